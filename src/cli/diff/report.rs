//! What `diff` prints: one line per difference, or JSON.

use crate::base::escape::{self, escaped_bytes};
use crate::cli::text;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Characters of a value that are printed in a line.
const VALUE_CHARACTERS: usize = 80;

/// One difference.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    /// What differs: `kind`, `type`, `shape`, `size`, `data`, `target`, `attribute NAME`, ...
    pub(super) what: String,
    /// On the left; `None`: it is not there.
    pub(super) left: Option<String>,
    /// On the right.
    pub(super) right: Option<String>,
    /// Where in the data.
    pub(super) at: Option<At>,
}

/// Where data differs first.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum At {
    /// The coordinates of an element.
    Element(Vec<u64>),
    /// A byte, from 0 on.
    Byte(u64),
}

impl Difference {
    /// Both sides have it, with these values.
    pub(super) fn values(what: impl Into<String>, left: impl Into<String>, right: impl Into<String>) -> Self {
        Difference { what: what.into(), left: Some(left.into()), right: Some(right.into()), at: None }
    }

    /// One side has no such object.
    pub(super) fn missing(kind: &str, on_left: bool) -> Self {
        let there = Some(kind.to_owned());
        let (left, right) = if on_left { (None, there) } else { (there, None) };
        Difference { what: "object".into(), left, right, at: None }
    }
}

impl At {
    fn text(&self) -> String {
        match self {
            At::Element(index) => format!(" [{}]", index.iter().map(u64::to_string).collect::<Vec<_>>().join(",")),
            At::Byte(byte) => format!(" byte {byte}"),
        }
    }

    fn json(&self) -> (&'static str, Value) {
        match self {
            At::Element(index) => ("index", json!(index)),
            At::Byte(byte) => ("byte", json!(byte)),
        }
    }
}

/// Prints differences as they are found.
pub(super) struct Report<'a> {
    out: &'a mut dyn Write,
    style: Style,
    /// Differences so far.
    pub(super) count: u64,
}

/// How differences are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// One line each.
    Lines,
    /// A JSON list.
    Json,
    /// Not at all; the first one ends the comparison.
    Quiet,
}

impl<'a> Report<'a> {
    /// Prints to `out`.
    pub(super) fn new(out: &'a mut dyn Write, style: Style) -> io::Result<Self> {
        if style == Style::Json {
            write!(out, "[")?;
        }
        Ok(Report { out, style, count: 0 })
    }

    /// True if no more differences are of interest.
    pub(super) fn is_done(&self) -> bool {
        self.style == Style::Quiet && self.count > 0
    }

    /// Prints a difference of the objects at `path`.
    pub(super) fn add(&mut self, path: &[u8], difference: &Difference) -> io::Result<()> {
        self.count = self.count.saturating_add(1);
        match self.style {
            Style::Quiet => Ok(()),
            Style::Lines => writeln!(self.out, "{}", line(path, difference)),
            Style::Json => {
                let gap = if self.count > 1 { "," } else { "" };
                write!(self.out, "{gap}\n{}", escape::json(&row(path, difference).to_string()))
            }
        }
    }

    /// Ends the output.
    pub(super) fn end(self) -> io::Result<()> {
        if self.style == Style::Json {
            writeln!(self.out, "{}]", if self.count > 0 { "\n" } else { "" })?;
        }
        self.out.flush()
    }
}

fn line(path: &[u8], difference: &Difference) -> String {
    let path = escaped_bytes(path);
    match (&difference.left, &difference.right) {
        (Some(kind), None) if difference.what == "object" => format!("{path}: only on the left: {kind}"),
        (None, Some(kind)) if difference.what == "object" => format!("{path}: only on the right: {kind}"),
        (left, right) => {
            let at = difference.at.as_ref().map(At::text).unwrap_or_default();
            let side = |value: &Option<String>| value.as_deref().map_or_else(|| "(none)".to_owned(), shown);
            format!("{path}: {}{at}: {} | {}", escape::line(&difference.what), side(left), side(right))
        }
    }
}

/// A value on one line, cut.
fn shown(value: &str) -> String {
    let mut text: String = value.chars().take(VALUE_CHARACTERS).collect();
    if text.len() < value.len() {
        text.push_str("...");
    }
    escape::line(&text).into_owned()
}

fn row(path: &[u8], difference: &Difference) -> Value {
    let mut row = Map::new();
    row.insert("path".into(), text::json(path));
    row.insert("difference".into(), difference.what.as_str().into());
    if let Some(at) = &difference.at {
        let (key, value) = at.json();
        row.insert(key.into(), value);
    }
    row.insert("left".into(), difference.left.clone().into());
    row.insert("right".into(), difference.right.clone().into());
    Value::Object(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_path_place_and_values() {
        let mut data = Difference::values("data", "1", "2");
        data.at = Some(At::Element(vec![3, 0]));
        assert_eq!(line(b"/g/d", &data), "/g/d: data [3,0]: 1 | 2");
        assert_eq!(line(b"/x", &Difference::missing("file", true)), "/x: only on the right: file");
        assert_eq!(line(b"/x", &Difference::missing("file", false)), "/x: only on the left: file");
        let long = Difference::values("attribute a\n", "x".repeat(99), "\u{1b}");
        assert!(line(b"/", &long).starts_with("/: attribute a\\n: xxx") && line(b"/", &long).ends_with("x... | \\x1b"));
    }

    #[test]
    fn json_is_one_document() {
        let mut out = Vec::new();
        let mut report = Report::new(&mut out, Style::Json).unwrap();
        report.add(b"/a", &Difference { at: Some(At::Byte(7)), ..Difference::values("data", "0x00", "0x01") }).unwrap();
        report.add(b"/b", &Difference::missing("directory", false)).unwrap();
        assert!(!report.is_done());
        report.end().unwrap();
        let rows: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(rows[0], json!({"path": "/a", "difference": "data", "byte": 7, "left": "0x00", "right": "0x01"}));
        assert_eq!(rows[1]["right"], Value::Null);
        let mut out = Vec::new();
        Report::new(&mut out, Style::Json).unwrap().end().unwrap();
        assert_eq!(out, b"[]\n");
    }
}
