//! YAML as a tree of nodes that know their place.
//!
//! Values stay text, without secrets of URLs: the reader of an option knows its type. Anchors,
//! aliases and quoted text work as in every YAML file; a file is one document, without tags but
//! `!!str`.

use super::problem::{Problem, Span};
use crate::base::url_secrets::conceal;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, StrInput, Tag};
use serde_json::{Map, Number, Value};
use std::collections::HashMap;
use std::ffi::OsStr;

/// Deepest nesting.
const DEPTH_MAX: usize = 64;
/// Most nodes, those of aliases counted each time.
const NODES_MAX: usize = 100_000;

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    /// Its place.
    pub(crate) at: Span,
    /// What it is.
    pub(crate) kind: NodeKind,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NodeKind {
    /// Text; `plain`: not in quotes, so that it may be a number, `true` or `null`.
    Scalar {
        /// The text.
        text: String,
        /// Not in quotes.
        plain: bool,
    },
    /// A list.
    Sequence(Vec<Node>),
    /// Keys and values in the order of the file.
    Mapping(Vec<(Node, Node)>),
}

impl Node {
    /// True for an empty value, `~` and `null`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.kind, NodeKind::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        if let NodeKind::Scalar { text, .. } = &self.kind { Some(text) } else { None }
    }

    /// The value as JSON. Not-a-number and infinities, which JSON has not, are text.
    pub(crate) fn json(&self) -> Value {
        match &self.kind {
            NodeKind::Scalar { text, plain: true } => plain(text),
            NodeKind::Scalar { text, .. } => text.as_str().into(),
            NodeKind::Sequence(items) => items.iter().map(Node::json).collect(),
            NodeKind::Mapping(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| (key.text().unwrap_or_default().to_owned(), value.json()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }
}

/// The value of text without quotes, by the core schema of YAML 1.2.
fn plain(text: &str) -> Value {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        ".nan" | ".NaN" | ".NAN" => return "nan".into(),
        _ if matches!(digits, ".inf" | ".Inf" | ".INF") => return if text.starts_with('-') { "-inf" } else { "inf" }.into(),
        _ if !is_number || digits.ends_with(['e', 'E', '-', '+']) => return text.into(),
        _ => {}
    }
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    // Digits after a leading zero are text: other versions of YAML take them for octal.
    let is_text = digits.len() > 1 && digits.bytes().all(|b| b.is_ascii_digit()) && digits.starts_with('0');
    if is_text {
        return text.into();
    }
    let radix = [("0x", 16), ("0o", 8)]
        .into_iter()
        .find_map(|(prefix, radix)| u64::from_str_radix(text.strip_prefix(prefix).filter(|d| !d.starts_with('+'))?, radix).ok());
    let whole = || unsigned.parse::<u64>().map(Value::from).or_else(|_| unsigned.parse::<i64>().map(Value::from)).ok();
    let real = || unsigned.parse::<f64>().ok().and_then(Number::from_f64).map(Value::Number);
    radix.map(Value::from).or_else(whole).or_else(real).unwrap_or_else(|| text.into())
}

/// Parses a file; `None` if it has no document.
pub(crate) fn parse(text: &str) -> Result<Option<Node>, Problem> {
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    let mut root = None;
    loop {
        let (event, at) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(root),
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) | Event::Alias(_) if root.is_none() => {
                root = Some(reader.node(event, at, 0)?);
            }
            Event::DocumentStart(_) if root.is_some() => return Err(Problem::new(at, "a second document; a file has one")),
            _ => {}
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Problem> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                let same_line = span.start.line() == span.end.line();
                let length = if same_line { span.end.col().saturating_sub(span.start.col()) } else { usize::MAX };
                Ok((event, Span { line: span.start.line(), column: span.start.col().saturating_add(1), length: length.max(1) }))
            }
            Some(Err(e)) => Err(scan_problem(&e)),
            None => Ok((Event::StreamEnd, Span::START)),
        }
    }

    /// Builds the node that begins with `event`.
    fn node(&mut self, event: Event<'a>, at: Span, depth: usize) -> Result<Node, Problem> {
        self.nodes = self.nodes.saturating_add(1);
        if depth > DEPTH_MAX || self.nodes > NODES_MAX {
            return Err(Problem::new(at, format!("more than {NODES_MAX} values, or more than {DEPTH_MAX} within each other")));
        }
        let first = Span { length: 1, ..at };
        let (anchor, node) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                if tag.is_some_and(|tag| !is_text_tag(&tag)) {
                    return Err(Problem::new(at, "a tag; values need none"));
                }
                let text = conceal(OsStr::new(&*text)).to_string_lossy().into_owned();
                (anchor, Node { at, kind: NodeKind::Scalar { text, plain } })
            }
            Event::SequenceStart(anchor, None) => (anchor, Node { at: first, kind: NodeKind::Sequence(self.items(depth)?) }),
            Event::MappingStart(anchor, None) => (anchor, Node { at: first, kind: NodeKind::Mapping(self.pairs(depth)?) }),
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned().ok_or_else(|| Problem::new(at, "an alias within its own anchor"))?;
                self.nodes = self.nodes.saturating_add(size(&node));
                (0, node)
            }
            _ => return Err(Problem::new(at, "a tag; values need none")),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn items(&mut self, depth: usize) -> Result<Vec<Node>, Problem> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, at) => items.push(self.node(event, at, depth.saturating_add(1))?),
            }
        }
    }

    fn pairs(&mut self, depth: usize) -> Result<Vec<(Node, Node)>, Problem> {
        let mut pairs = Vec::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => return Ok(pairs),
                (event, at) => self.node(event, at, depth.saturating_add(1))?,
            };
            if key.text().is_none() {
                return Err(Problem::new(key.at, "a key is text"));
            }
            let (event, at) = self.next()?;
            pairs.push((key, self.node(event, at, depth.saturating_add(1))?));
        }
    }
}

fn is_text_tag(tag: &Tag) -> bool {
    tag.is_yaml_core_schema() && tag.suffix == "str"
}

fn size(node: &Node) -> usize {
    match &node.kind {
        NodeKind::Scalar { .. } => 1,
        NodeKind::Sequence(items) => items.iter().map(size).fold(1, usize::saturating_add),
        NodeKind::Mapping(pairs) => pairs.iter().map(|(_, value)| size(value)).fold(1, usize::saturating_add),
    }
}

fn scan_problem(e: &ScanError) -> Problem {
    let at = Span { line: e.marker().line().max(1), column: e.marker().col().saturating_add(1), length: 1 };
    Problem::new(at, format!("not YAML: {}", e.info()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        parse(text).unwrap().map_or(Value::Null, |node| node.json())
    }

    #[test]
    fn values_are_those_of_the_core_schema() {
        let text = "[~, null, true, False, 0, -7, +7, 18446744073709551615, 0x1f, 0o17, 0x+1, +-5, 1.5, -1e3, .5, .inf, -.inf, .nan, 010, 1_000, '5', \"\\n\", a b, 1.2.3, '', 1e, on]";
        assert_eq!(
            value(text),
            json!([
                null,
                null,
                true,
                false,
                0,
                -7,
                7,
                u64::MAX,
                31,
                15,
                "0x+1",
                "+-5",
                1.5,
                -1000.0,
                0.5,
                "inf",
                "-inf",
                "nan",
                "010",
                "1_000",
                "5",
                "\n",
                "a b",
                "1.2.3",
                "",
                "1e",
                "on"
            ])
        );
        assert_eq!(value("a: &x {b: [1]}\nc: *x\nd: !!str 5\n"), json!({"a": {"b": [1]}, "c": {"b": [1]}, "d": "5"}));
        for empty in ["", "# only a comment\n", "---\n", "~"] {
            assert!(parse(empty).unwrap().is_none_or(|node| node.is_null()), "{empty:?}");
        }
    }

    #[test]
    fn nodes_know_their_place() {
        let root = parse("a: 1\nbb:\n  - c: 'x'\n    d: [5]\n").unwrap().unwrap();
        let NodeKind::Mapping(pairs) = root.kind else { panic!() };
        assert_eq!(pairs[0].0.at, Span { line: 1, column: 1, length: 1 });
        assert_eq!(pairs[1].0.at, Span { line: 2, column: 1, length: 2 });
        let NodeKind::Sequence(items) = &pairs[1].1.kind else { panic!() };
        assert_eq!((items[0].at.line, items[0].at.column), (3, 5));
        let NodeKind::Mapping(pairs) = &items[0].kind else { panic!() };
        assert_eq!(pairs[0].1.at, Span { line: 3, column: 8, length: 3 });
        assert_eq!((pairs[1].1.at.line, pairs[1].1.at.column), (4, 8));
    }

    #[test]
    fn what_is_no_yaml_or_too_much_is_a_problem() {
        for (text, line) in
            [("a: {\n", 2), ("a: 'x\n", 1), ("a: b: c\n", 1), ("a: !x 5\n", 1), ("--- a\n--- b\n", 2), ("[1, 2]: 3\n", 1), ("a: *b\n", 1)]
        {
            let problem = parse(text).unwrap_err();
            assert!(problem.at.line.abs_diff(line) <= 1, "{text:?}: {problem:?}");
        }
        let deep = "[".repeat(1000);
        assert!(parse(&deep).is_err());
        let laughs: String = (1..12).map(|n| format!("a{n}: &a{n} [{}]\n", format!("*a{}, ", n - 1).repeat(9))).collect();
        assert!(parse(&format!("a0: &a0 x\n{laughs}")).unwrap_err().message.contains("values"));
    }
}
