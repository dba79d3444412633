//! JSON and Python literals as trees whose strings may hold any bytes.
//!
//! Beyond JSON (RFC 8259): `NaN`, `Infinity` and `-Infinity` as numbers; Python's `None`, `True`,
//! `False`, strings in single quotes, tuples, and a comma behind the last item. An escape `\udc80`
//! to `\udcff` that is not half of a pair is a byte, as `json` writes it. Bytes that are not UTF-8
//! are kept.

use super::{invalid, shown};
use crate::base::Result;
use crate::present::json::write_string;

/// Lists and objects inside each other; the recursion is that deep.
const DEPTH_MAX: usize = 256;

/// A value as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// `null`, `None`
    Null,
    /// `true`, `True`, `false`, `False`
    Bool(bool),
    /// A number as written, `NaN` and `Infinity` too.
    Number(String),
    /// A string.
    String(Vec<u8>),
    /// A list or tuple.
    Array(Vec<Node>),
    /// An object; names in the order written.
    Object(Vec<(Vec<u8>, Node)>),
}

impl Node {
    /// The one value that `text` is.
    pub fn parse(text: &[u8]) -> Result<Node> {
        Self::read(Parser { text, pos: 0, is_json: false })
    }

    /// The one value that `text` is, without Python's notation.
    pub fn parse_json(text: &[u8]) -> Result<Node> {
        Self::read(Parser { text, pos: 0, is_json: true })
    }

    fn read(mut p: Parser<'_>) -> Result<Node> {
        let node = p.value(0)?;
        p.space();
        if p.pos < p.text.len() { Err(p.wrong("more text behind the value")) } else { Ok(node) }
    }

    /// Appends the value as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        let separate = |i: usize, out: &mut Vec<u8>| {
            if i > 0 {
                out.push(b',');
            }
        };
        match self {
            Node::Null => out.extend_from_slice(b"null"),
            Node::Bool(b) => out.extend_from_slice(if *b { b"true" } else { b"false" }),
            Node::Number(n) => out.extend_from_slice(n.as_bytes()),
            Node::String(s) => write_string(s, out),
            Node::Array(items) => {
                out.push(b'[');
                for (i, item) in items.iter().enumerate() {
                    separate(i, out);
                    item.write(out);
                }
                out.push(b']');
            }
            Node::Object(fields) => {
                out.push(b'{');
                for (i, (name, value)) in fields.iter().enumerate() {
                    separate(i, out);
                    write_string(name, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }

    /// The value as JSON.
    pub fn json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// The bytes of a string.
    pub fn text(&self) -> Option<&[u8]> {
        if let Node::String(s) = self { Some(s) } else { None }
    }

    /// What kind of value it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Node::Null => "null",
            Node::Bool(_) => "a truth value",
            Node::Number(_) => "a number",
            Node::String(_) => "a string",
            Node::Array(_) => "a list",
            Node::Object(_) => "an object",
        }
    }

    /// The items of the list `what`.
    pub fn array(&self, what: &str) -> Result<&[Node]> {
        match self {
            Node::Array(items) => Ok(items),
            other => Err(invalid(format!("{what} must be a list, not {}", other.kind()))),
        }
    }

    /// The bytes of the string `what`.
    pub fn string(&self, what: &str) -> Result<&[u8]> {
        match self {
            Node::String(s) => Ok(s),
            other => Err(invalid(format!("{what} must be a string, not {}", other.kind()))),
        }
    }

    /// The unsigned integer `what`.
    pub fn unsigned(&self, what: &str) -> Result<u64> {
        let Node::Number(n) = self else { return Err(invalid(format!("{what} must be an integer, not {}", self.kind()))) };
        n.parse().map_err(|_| invalid(format!("{what} must be an unsigned integer, not {n}")))
    }

    /// The unsigned integer `what` of at most 32, 16 or 8 bits.
    pub fn small<T: TryFrom<u64>>(&self, what: &str) -> Result<T> {
        T::try_from(self.unsigned(what)?).map_err(|_| invalid(format!("{what} is too large")))
    }
}

/// The fields of an object, each to be asked for by name.
pub struct Fields<'a> {
    what: &'a str,
    fields: &'a [(Vec<u8>, Node)],
}

impl<'a> Fields<'a> {
    /// Of the object `what`, whose fields must all be among `known` and different.
    pub fn new(what: &'a str, node: &'a Node, known: &[&str]) -> Result<Self> {
        let Node::Object(fields) = node else { return Err(invalid(format!("{what} must be an object, not {}", node.kind()))) };
        for (i, (name, _)) in fields.iter().enumerate() {
            if !known.iter().any(|k| k.as_bytes() == name.as_slice()) {
                return Err(invalid(format!("{what} has the unknown key {}; known are {}", shown(name), known.join(", "))));
            }
            if fields.iter().take(i).any(|(other, _)| other == name) {
                return Err(invalid(format!("{what} has the key {} twice", shown(name))));
            }
        }
        Ok(Fields { what, fields })
    }

    /// The field `name`.
    pub fn get(&self, name: &str) -> Option<&'a Node> {
        self.fields.iter().find(|(n, _)| n.as_slice() == name.as_bytes()).map(|(_, v)| v)
    }

    /// The field `name`, which must be there.
    pub fn need(&self, name: &str) -> Result<&'a Node> {
        self.get(name).ok_or_else(|| invalid(format!("{} has no {name:?}", self.what)))
    }
}

struct Parser<'a> {
    text: &'a [u8],
    pos: usize,
    /// Python's notation is refused.
    is_json: bool,
}

impl Parser<'_> {
    fn wrong(&self, what: &str) -> crate::base::Error {
        let rest = self.text.get(self.pos..).unwrap_or_default();
        invalid(format!("{what} at byte {}: {}", self.pos, shown(rest.get(..20).unwrap_or(rest))))
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.pos).copied()
    }

    fn step(&mut self, n: usize) {
        self.pos = self.pos.saturating_add(n);
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.step(1);
        }
    }

    /// Takes `word` if it is next.
    fn take(&mut self, word: &str) -> bool {
        let next = self.text.get(self.pos..).is_some_and(|t| t.starts_with(word.as_bytes()));
        if next {
            self.step(word.len());
        }
        next
    }

    fn value(&mut self, depth: usize) -> Result<Node> {
        if depth > DEPTH_MAX {
            return Err(invalid(format!("lists and objects nested deeper than {DEPTH_MAX}")));
        }
        self.space();
        match self.peek() {
            None => Err(self.wrong("a value is missing")),
            Some(b'[') => self.list(b']', depth),
            Some(b'(' | b'\'') if self.is_json => Err(self.wrong("no value")),
            Some(b'(') => self.list(b')', depth),
            Some(b'{') => self.object(depth),
            Some(quote @ (b'"' | b'\'')) => Ok(Node::String(self.string(quote)?)),
            Some(_) => self.word(),
        }
    }

    /// A number or one of the words.
    fn word(&mut self) -> Result<Node> {
        let start = self.pos;
        while matches!(self.peek(), Some(b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.' | b'_')) {
            self.step(1);
        }
        let word = self.text.get(start..self.pos).and_then(|w| std::str::from_utf8(w).ok()).unwrap_or_default();
        let is_number = word.trim_start_matches(['-', '+']).starts_with(|c: char| c.is_ascii_digit() || c == '.');
        match word {
            "None" | "True" | "False" | "nan" | "inf" | "-inf" if self.is_json => Err(self.wrong("no value")),
            "null" | "None" => Ok(Node::Null),
            "true" | "True" => Ok(Node::Bool(true)),
            "false" | "False" => Ok(Node::Bool(false)),
            "NaN" | "nan" | "Infinity" | "-Infinity" | "inf" | "-inf" => Ok(Node::Number(word.to_owned())),
            _ if is_number => Ok(Node::Number(word.to_owned())),
            _ => {
                self.pos = start;
                Err(self.wrong("no value"))
            }
        }
    }

    /// After an item: true when another may follow, false when `close` was taken.
    fn goes_on(&mut self, close: u8) -> Result<bool> {
        self.space();
        match self.peek() {
            Some(b',') => {
                self.step(1);
                self.space();
                if self.peek() != Some(close) || self.is_json {
                    return Ok(true);
                }
                self.step(1);
                Ok(false)
            }
            Some(c) if c == close => {
                self.step(1);
                Ok(false)
            }
            _ => Err(self.wrong("no comma and no end of the list")),
        }
    }

    fn list(&mut self, close: u8, depth: usize) -> Result<Node> {
        self.step(1);
        self.space();
        let mut items = Vec::new();
        if self.peek() == Some(close) {
            self.step(1);
            return Ok(Node::Array(items));
        }
        loop {
            items.push(self.value(depth.saturating_add(1))?);
            if !self.goes_on(close)? {
                return Ok(Node::Array(items));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node> {
        self.step(1);
        self.space();
        let mut fields = Vec::new();
        if self.peek() == Some(b'}') {
            self.step(1);
            return Ok(Node::Object(fields));
        }
        loop {
            self.space();
            let quote = self.peek().filter(|c| *c == b'"' || *c == b'\'' && !self.is_json);
            let quote = quote.ok_or_else(|| self.wrong("no name of a field"))?;
            let name = self.string(quote)?;
            self.space();
            if !self.take(":") {
                return Err(self.wrong("no colon behind a field's name"));
            }
            fields.push((name, self.value(depth.saturating_add(1))?));
            if !self.goes_on(b'}')? {
                return Ok(Node::Object(fields));
            }
        }
    }

    fn string(&mut self, quote: u8) -> Result<Vec<u8>> {
        self.step(1);
        let mut out = Vec::new();
        loop {
            match self.peek() {
                None => return Err(self.wrong("a string does not end")),
                Some(c) if c == quote => {
                    self.step(1);
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.step(1);
                    self.escape(&mut out)?;
                }
                Some(c) => {
                    self.step(1);
                    out.push(c);
                }
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let c = self.peek();
        self.step(1);
        let code = match c {
            Some(c @ (b'"' | b'\'' | b'\\' | b'/')) => u32::from(c),
            Some(b'n') => 0x0a,
            Some(b'r') => 0x0d,
            Some(b't') => 0x09,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'x') => self.hex(2)?,
            Some(b'u') => return self.utf16(out),
            Some(b'U') => self.hex(8)?,
            _ => return Err(self.wrong("an unknown escape")),
        };
        let c = char::from_u32(code).ok_or_else(|| self.wrong("an escape of no character"))?;
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    /// Behind `\u`: a character, a pair of surrogates, or a byte.
    fn utf16(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let first = self.hex(4)?;
        let mut code = first;
        if (0xd800..0xdc00).contains(&first) && self.take("\\u") {
            let second = self.hex(4)?;
            if !(0xdc00..0xe000).contains(&second) {
                return Err(self.wrong("half of a surrogate pair"));
            }
            code = 0x1_0000 + ((first & 0x3ff) << 10) + (second & 0x3ff);
        } else if (0xdc80..=0xdcff).contains(&first) {
            out.push((first & 0xff) as u8);
            return Ok(());
        }
        let c = char::from_u32(code).ok_or_else(|| self.wrong("half of a surrogate pair"))?;
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn hex(&mut self, digits: usize) -> Result<u32> {
        let text = self.text.get(self.pos..self.pos.saturating_add(digits)).filter(|t| t.iter().all(u8::is_ascii_hexdigit));
        let code = text.and_then(|t| std::str::from_utf8(t).ok()).and_then(|t| u32::from_str_radix(t, 16).ok());
        let code = code.ok_or_else(|| self.wrong("an escape without its hexadecimal digits"))?;
        self.step(digits);
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(n: &str) -> Node {
        Node::Number(n.into())
    }

    #[test]
    fn json_and_python_mean_the_same() {
        let want = Node::Array(vec![
            Node::Array(vec![Node::String(b"a'b".to_vec()), number("-1.5e3")]),
            Node::Object(vec![(b"k".to_vec(), Node::Bool(true)), (b"n".to_vec(), Node::Null)]),
            Node::Array(vec![number("3")]),
            Node::Array(vec![]),
        ]);
        assert_eq!(Node::parse(br#" [["a'b",-1.5e3], {"k":true, "n":null},[3],[]] "#), Ok(want.clone()));
        assert_eq!(Node::parse(br#"[("a\'b", -1.5e3), {'k': True, 'n': None}, (3,), ()]"#), Ok(want));
        assert_eq!(Node::parse(b"[NaN,-Infinity]"), Ok(Node::Array(vec![number("NaN"), number("-Infinity")])));
        assert_eq!(Node::parse_json(br#"["a'b",{"k":null},true]"#), Node::parse(br#"["a'b",{"k":null},true]"#));
        for python in ["['a']", "(1,2)", "{'k':1}", "[1,]", "None", "[True]", "nan"] {
            assert!(Node::parse(python.as_bytes()).is_ok() && Node::parse_json(python.as_bytes()).is_err(), "{python}");
        }
        let escapes = Node::String("\u{1f600}\u{e4}\u{ff}\u{1f600}".as_bytes().iter().copied().chain([0xff]).collect());
        assert_eq!(Node::parse(br#""\ud83d\ude00\u00e4\xff\U0001f600\udcff""#), Ok(escapes));
    }

    #[test]
    fn malformed_text_is_refused() {
        let bad = [
            "",
            " ",
            "[",
            "[1",
            "[1 2]",
            "{",
            "{1:2}",
            "{\"a\"}",
            "{\"a\":}",
            "\"",
            "\"\\",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\\q\"",
            "x",
            "1 2",
            "]",
        ];
        for text in bad {
            assert!(matches!(Node::parse(text.as_bytes()), Err(crate::base::Error::Refused { errno: libc::EINVAL, .. })), "{text}");
        }
        assert!(Node::parse("[".repeat(100_000).as_bytes()).is_err());
        assert!(Node::parse("{\"a\":".repeat(100_000).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn strings_of_any_bytes_come_back(s: Vec<u8>) {
            let mut text = Vec::new();
            write_string(&s, &mut text);
            prop_assert_eq!(Node::parse(&text), Ok(Node::String(s)));
        }

        #[test]
        fn trees_come_back(names in proptest::collection::vec(any::<Vec<u8>>(), 0..4), s: Vec<u8>, n: i64) {
            let leaf = Node::Array(vec![Node::String(s), Node::Number(n.to_string()), Node::Null, Node::Bool(true)]);
            let tree = Node::Object(names.into_iter().map(|name| (name, leaf.clone())).collect());
            prop_assert_eq!(Node::parse(&tree.json()), Ok(tree));
        }

        #[test]
        fn any_text_ends(text in proptest::collection::vec(proptest::sample::select(&b"[](){}\"'\\,:01a.uxdc \xff"[..]), 0..60)) {
            let _ = Node::parse(&text);
        }
    }
}
