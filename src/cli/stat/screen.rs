//! An object in short, in 24 lines of 80 columns.

use crate::cli::brief::{self, Line, LinkPlace};
use crate::cli::colours::{Colours, Ink};
use crate::cli::view::ViewError;
use crate::cli::{text, tree};
use crate::fs::model::{AttributeBrief, ElementsBrief, ObjectBrief, ObjectModel, cut, errno};
use crate::fs::types::ROOT;
use crate::fs::{FileKind, FsResult, Operations};
use std::io::{self, Write};

/// Columns of the screen.
const COLUMNS: usize = 80;
/// Lines of the screen.
const LINES: usize = 24;
/// Columns of the words before the values, with the space after them.
const KEY_COLUMNS: usize = 10;
/// Most columns of a value.
const VALUE_COLUMNS: usize = COLUMNS - KEY_COLUMNS;
/// Most attributes that are read.
const ATTRIBUTES_MAX: usize = 64;
/// Ends of the names of attributes that hold the unit of another one.
const UNIT_SUFFIXES: [&[u8]; 4] = [b"_units", b"_unit", b".units", b".unit"];
/// Most characters of a unit.
const UNIT_CHARS: usize = 12;

/// Prints the object at `path`; false: there is no object, but a file.
pub(super) fn print(
    operations: &dyn Operations,
    path: &[u8],
    located: &tree::Located,
    (colours, out): (Colours, &mut dyn Write),
) -> Result<bool, ViewError> {
    let failed = |e| ViewError::Path(path.to_vec(), e);
    let (attr, shown) = (&located.attr, text::name(path));
    let (directory, name) = located.found.clone().unwrap_or((ROOT, Vec::new()));
    let group = operations.model(directory).ok();
    let place = LinkPlace { group: group.as_ref(), is_host: false, name: &name };
    if attr.kind == FileKind::Symlink {
        let Line { cells: [kind, ..], target, .. } = brief::line(operations, place, shown.clone(), attr, false);
        pairs(&[("link", shown), ("kind", kind), ("target", target.unwrap_or_default())], out)?;
        return Ok(true);
    }
    let Ok(model) = operations.model(attr.ino) else { return Ok(false) };
    let object = Object::read(operations, &model, attr.ino).map_err(failed)?;
    let mut lines = object.lines(shown);
    if let Some(target) = object.summary.is_external.then(|| brief::external_target(place)).flatten() {
        lines.push(("external", target));
    }
    lines.push(("modified", text::short_time(attr.mtime)));
    let ends = object.ends();
    pairs(&lines, out)?;
    let room = LINES.saturating_sub(lines.len()).saturating_sub(ends.len());
    object.print_attributes(room, colours, out)?;
    pairs(&ends, out)?;
    Ok(true)
}

/// Prints words and values that are not empty.
fn pairs(pairs: &[(&str, String)], out: &mut dyn Write) -> io::Result<()> {
    pairs.iter().filter(|(_, value)| !value.is_empty()).try_for_each(|(key, value)| {
        let value = cut(value, VALUE_COLUMNS);
        writeln!(out, "{key:<KEY_COLUMNS$}{value}")
    })
}

struct Object {
    summary: ObjectBrief,
    attributes: Vec<AttributeBrief>,
    elements: Option<ElementsBrief>,
    /// Names in a group.
    members: Option<usize>,
    storage: Option<u64>,
}

impl Object {
    fn read(operations: &dyn Operations, model: &ObjectModel, ino: crate::fs::Ino) -> FsResult<Object> {
        let summary = model.brief(VALUE_COLUMNS).map_err(|e| errno(&e))?;
        let attributes = model.attributes_brief(ATTRIBUTES_MAX, VALUE_COLUMNS).map_err(|e| errno(&e))?;
        let is_dataset = summary.kind == "dataset";
        let elements = match is_dataset.then(|| model.elements_brief()) {
            // The rest of the object is shown.
            Some(Err(_)) => Some(ElementsBrief::Hidden("unreadable".into())),
            Some(Ok(elements)) => elements,
            None => None,
        };
        let members = matches!(summary.kind, "group" | "map").then(|| tree::names(operations, ino).map(|names| names.len()));
        let storage = if is_dataset { model.storage().ok().or(summary.storage) } else { None };
        Ok(Object { summary, attributes, elements, members: members.transpose()?, storage })
    }

    /// The lines before the attributes.
    fn lines(&self, path: String) -> Vec<(&'static str, String)> {
        let s = &self.summary;
        let mut lines = vec![(s.kind, path)];
        lines.extend([("type", s.datatype.clone()), ("shape", s.shape.clone())]);
        if let Some(members) = self.members {
            lines.push(("members", members.to_string()));
        }
        if let Some(storage) = self.storage {
            lines.push(("storage", storage_text(storage, s.bytes.filter(|bytes| *bytes > 0))));
        }
        match s.layout {
            "" | "contiguous" => {}
            "chunked" => lines.push(("chunks", s.chunks.clone())),
            layout => lines.push(("layout", [layout, s.profile, s.chunks.as_str()].join(" ").trim().to_owned())),
        }
        let fill = if s.kind == "dataset" && s.fill.is_empty() { "default" } else { s.fill.as_str() };
        lines.extend([("filters", s.filters.clone()), ("fill", fill.to_owned()), ("comment", text::name(&s.comment))]);
        lines.retain(|(_, value)| !value.is_empty());
        lines
    }

    /// The value of the attribute `name` as a unit.
    fn unit(&self, name: &[u8]) -> Option<&str> {
        let value = self.attributes.iter().find(|a| a.name == name)?.value.strip_prefix('"')?.strip_suffix('"')?;
        (!value.is_empty() && value.chars().count() <= UNIT_CHARS).then_some(value)
    }

    fn attribute(&self, a: &AttributeBrief) -> String {
        let unit = UNIT_SUFFIXES.iter().find_map(|suffix| self.unit(&[a.name.as_slice(), suffix].concat()));
        brief::attribute(a) + &unit.map(|unit| format!(" {unit}")).unwrap_or_default()
    }

    fn print_attributes(&self, room: usize, colours: Colours, out: &mut dyn Write) -> io::Result<()> {
        let Some(room) = room.checked_sub(1).filter(|_| self.summary.attributes > 0) else { return Ok(()) };
        writeln!(out, "attributes")?;
        let all = self.summary.attributes;
        // The last line counts those that are left out.
        let shown = if all > room { room.saturating_sub(1) } else { all }.min(self.attributes.len());
        for a in self.attributes.iter().take(shown) {
            let line = cut(&self.attribute(a), COLUMNS.saturating_sub(2));
            let (name, value) = line.split_once(" = ").map_or((line.as_str(), None), |(name, value)| (name, Some(value)));
            let value = value.map(|value| format!(" = {value}")).unwrap_or_default();
            writeln!(out, "  {}{value}", colours.paint(Ink::Attribute, name))?;
        }
        match all.saturating_sub(shown) {
            0 => Ok(()),
            more => writeln!(out, "  ... {more} more; --json lists all"),
        }
    }

    /// The first and the last elements.
    fn ends(&self) -> Vec<(&'static str, String)> {
        let room = VALUE_COLUMNS;
        match &self.elements {
            None => Vec::new(),
            Some(ElementsBrief::Hidden(why)) => vec![("elements", format!("({why})"))],
            Some(ElementsBrief::All(all)) if joined(all) <= room => vec![("elements", all.join(", "))],
            Some(ElementsBrief::All(all)) => vec![("first", first(all, room)), ("last", last(all, room))],
            Some(ElementsBrief::Ends(firsts, lasts)) => {
                let mut lines = vec![("first", first(firsts, room))];
                if !lasts.is_empty() {
                    lines.push(("last", last(lasts, room)));
                }
                lines
            }
        }
    }
}

/// Storage, and how it compares with the bytes of the elements.
fn storage_text(storage: u64, bytes: Option<u64>) -> String {
    let stored = brief::size(storage);
    let Some(bytes) = bytes.filter(|bytes| *bytes != storage) else { return stored };
    let tenths = u128::from(bytes).saturating_mul(10).checked_div(storage.into());
    let ratio = tenths.map(|tenths| format!(", ratio {}.{}", tenths / 10, tenths % 10)).unwrap_or_default();
    format!("{stored} of {}{ratio}", brief::size(bytes))
}

/// Characters of a list.
fn joined(texts: &[String]) -> usize {
    texts.iter().fold(0usize, |n, text| n.saturating_add(text.chars().count()).saturating_add(2)).saturating_sub(2)
}

/// As many of the first texts as have room; one at least.
fn first(texts: &[String], room: usize) -> String {
    let most = (1..=texts.len()).rev().find(|n| texts.get(..*n).map_or(0, joined) <= room.saturating_sub(5)).unwrap_or(1);
    format!("{}, ...", texts.get(..most).unwrap_or_default().join(", "))
}

/// As many of the last texts as have room; one at least.
fn last(texts: &[String], room: usize) -> String {
    let start = (0..texts.len()).find(|n| texts.get(*n..).map_or(0, joined) <= room.saturating_sub(5));
    let start = start.unwrap_or(texts.len().saturating_sub(1));
    format!("..., {}", texts.get(start..).unwrap_or_default().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(range: std::ops::Range<u32>) -> Vec<String> {
        range.map(|n| n.to_string()).collect()
    }

    #[test]
    fn storage_is_compared_with_the_elements() {
        assert_eq!(storage_text(223, Some(4608)), "223 B of 4.5 KiB, ratio 20.6");
        assert_eq!((storage_text(8, Some(8)), storage_text(0, Some(80))), ("8 B".into(), "0 B of 80 B".into()));
        assert_eq!(storage_text(u64::MAX, Some(u64::MAX - 1)), "15.9 EiB of 15.9 EiB, ratio 0.9");
    }

    #[test]
    fn ends_have_as_many_elements_as_fit() {
        assert_eq!((first(&texts(0..9), 15), last(&texts(0..9), 15)), ("0, 1, 2, 3, ...".into(), "..., 5, 6, 7, 8".into()));
        assert_eq!(first(&["x".repeat(99)], 10).len(), 104);
    }

    #[test]
    fn an_object_fits_a_screen() {
        let attributes: Vec<AttributeBrief> =
            (0..64).map(|i| AttributeBrief { name: format!("a{i}").into(), value: "v".repeat(70) }).collect();
        let mut object = Object {
            summary: ObjectBrief { kind: "dataset", attributes: 90, ..ObjectBrief::default() },
            attributes,
            elements: Some(ElementsBrief::Ends(texts(0..8), texts(92..100))),
            members: None,
            storage: Some(1),
        };
        let mut out = Vec::new();
        object.print_attributes(12, Colours(false), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().count() == 12 && text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert!(text.ends_with("\n  ... 80 more; --json lists all\n"), "{text}");
        object.attributes =
            [("gain", "2"), ("gain_units", "\"dB\"")].map(|(name, value)| AttributeBrief { name: name.into(), value: value.into() }).into();
        assert_eq!(object.attribute(&object.attributes[0]), "gain = 2 dB");
        assert_eq!(object.ends()[1].1, "..., 92, 93, 94, 95, 96, 97, 98, 99");
    }
}
