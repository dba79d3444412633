//! Values in short: the first elements, on one line that is safe to print.
//!
//! Numbers are as in `value`. Strings are in quotes, lists in brackets, compounds in braces. What
//! does not fit is left out, and not rendered. Elements too large to be shown are `(N bytes)`.

use super::brief::{MORE, cut, is_bool, is_complex, name_brief};
use super::number;
use super::value::{strip, value_text};
use crate::base::datatype::{Class, Compound, Datatype, VariableLength};
use crate::base::escape::escaped_bytes;
use crate::base::parts::{Budget, Limited, Parts};
use crate::base::shape::Shape;
use crate::base::value::{Elements, Value};
use crate::base::variable_form::until_nul;
use crate::base::{Error, Result};

/// Largest element that is shown, bytes; of strings the beginning.
pub const ELEMENT_BYTES_MAX: u64 = 4096;
/// Longest stored string or sequence that is read, bytes.
const STORED_BYTES_MAX: u64 = 64 << 10;
/// Longest text of one number, bytes.
const NUMBER_BYTES_MAX: u64 = 1024;
/// Bytes of an opaque element that are shown.
const OPAQUE_BYTES: usize = 16;
/// Most characters of the name of a member.
const NAME_CHARS: usize = 24;
/// Levels of values within each other that are shown.
const DEPTH_MAX: usize = 16;

/// The value of an attribute in at most `chars` characters.
pub fn value_brief(value: &Value, chars: usize) -> String {
    elements_text(&value.elements(), &*value.parts, chars)
}

/// Elements as one text in at most `chars` characters: one stands alone, several are a list.
pub fn elements_text(elements: &Elements<'_>, parts: &dyn Parts, chars: usize) -> String {
    let mut out = Writer::new(parts, chars);
    match elements.shape.count() {
        _ if *elements.shape == Shape::Null => out.push("null"),
        Some(1) => out.element(elements.datatype, elements.bytes, DEPTH_MAX),
        count => out.list(elements.datatype, elements.bytes, count.unwrap_or(u64::MAX), DEPTH_MAX),
    }
    out.finish()
}

/// One element in at most `chars` characters.
pub fn element_brief(t: &Datatype, bytes: &[u8], parts: &dyn Parts, chars: usize) -> String {
    let mut out = Writer::new(parts, chars);
    out.element(t, bytes, DEPTH_MAX);
    out.finish()
}

/// A string in quotes, in at most `chars` characters.
pub fn quoted(text: &[u8], chars: usize) -> String {
    let room = chars.saturating_sub(2);
    // A character has at most four bytes.
    let start = text.get(..room.saturating_mul(4).saturating_add(4)).unwrap_or(text);
    format!("\"{}\"", cut(&escaped_bytes(start).to_string().replace('"', "\\\""), room))
}

/// Text that grows up to a width.
struct Writer<'a> {
    parts: &'a dyn Parts,
    chars: usize,
    written: usize,
    /// What all stored parts together may take.
    budget: Budget,
    out: String,
}

impl<'a> Writer<'a> {
    fn new(parts: &'a dyn Parts, chars: usize) -> Self {
        Writer { parts, chars, written: 0, budget: Budget::tight(STORED_BYTES_MAX), out: String::new() }
    }

    fn push(&mut self, text: &str) {
        self.written = self.written.saturating_add(text.chars().count());
        self.out.push_str(text);
    }

    fn is_full(&self) -> bool {
        self.written >= self.chars
    }

    fn room(&self) -> usize {
        self.chars.saturating_sub(self.written)
    }

    fn finish(self) -> String {
        cut(&self.out, self.chars)
    }

    /// A list of `count` elements, of which `bytes` has the first ones.
    fn list(&mut self, t: &Datatype, bytes: &[u8], count: u64, depth: usize) {
        self.push("[");
        let size = usize::try_from(t.element_size()).unwrap_or(usize::MAX).max(1);
        let left = |shown: u64| format!("{MORE} {} more]", count.saturating_sub(shown));
        // The number of those left out has room.
        let room = self.chars.saturating_sub(left(0).len()).saturating_sub(2);
        let mut shown = 0u64;
        for element in bytes.chunks_exact(size).take(usize::try_from(count).unwrap_or(usize::MAX)) {
            // The first one is cut to fit, the others are shown whole or not at all.
            let most = if shown == 0 { room.saturating_sub(1) } else { room };
            let mut one = Writer { budget: self.budget.clone(), ..Writer::new(self.parts, most) };
            one.element(t, element, depth);
            self.budget = one.budget.clone();
            let text = one.finish();
            let comma = if shown > 0 { ", ".len() } else { 0 };
            let end = self.written.saturating_add(comma).saturating_add(text.chars().count());
            let is_last = shown.saturating_add(1) == count;
            if end > if is_last { self.chars.saturating_sub(1) } else { room } {
                break;
            }
            if shown > 0 {
                self.push(", ");
            }
            self.push(&text);
            shown = shown.saturating_add(1);
        }
        if shown == count {
            self.push("]");
            return;
        }
        if shown > 0 {
            self.push(", ");
        }
        self.push(&left(shown));
    }

    fn element(&mut self, t: &Datatype, bytes: &[u8], depth: usize) {
        let Some(depth) = depth.checked_sub(1).filter(|_| !self.is_full()) else { return self.push(MORE) };
        match &t.class {
            Class::String(s) => {
                let most = usize::try_from(ELEMENT_BYTES_MAX).unwrap_or(usize::MAX);
                self.quoted(strip(s.padding, bytes.get(..most).unwrap_or(bytes)));
            }
            Class::VariableLength(v) => self.stored(t, v, bytes, depth),
            _ if t.element_size() > ELEMENT_BYTES_MAX => self.push(&format!("({} bytes)", t.size)),
            Class::Opaque(_) => {
                let shown = bytes.get(..OPAQUE_BYTES).unwrap_or(bytes);
                self.push(&format!("0x{}{}", number::hex(shown), if shown.len() < bytes.len() { MORE } else { "" }));
            }
            Class::Compound(_) | Class::Complex(_) if is_complex(t) => self.complex(t, bytes),
            Class::Compound(c) => self.compound(c, bytes, depth),
            Class::Complex(c) => self.list(&c.base, bytes, 2, depth),
            Class::Array(a) => {
                let count = a.dims.iter().fold(1u64, |n, d| n.saturating_mul((*d).into()));
                self.list(&a.base, bytes, count, depth);
            }
            Class::Enumeration(_) if is_bool(t) => self.push(if bytes == [0] { "false" } else { "true" }),
            _ => self.number(t, bytes),
        }
    }

    fn quoted(&mut self, text: &[u8]) {
        self.push(&quoted(text, self.room()));
    }

    /// A string or sequence that is stored outside its element.
    fn stored(&mut self, t: &Datatype, v: &VariableLength, bytes: &[u8], depth: usize) {
        let count = match self.parts.count(bytes) {
            Ok(count) => u64::from(count),
            Err(e) => return self.failed(&e, 0),
        };
        let size = count.saturating_mul(v.base.element_size());
        if size > STORED_BYTES_MAX {
            return self.push(&format!("({size} bytes)"));
        }
        match self.parts.sequence(bytes, v.base.size, &mut self.budget) {
            Ok(payload) if t.is_vlen_string() => self.quoted(until_nul(&payload)),
            Ok(payload) => self.list(&v.base, &payload, count, depth),
            Err(e) => self.failed(&e, size),
        }
    }

    fn failed(&mut self, e: &Error, size: u64) {
        match e {
            Error::Limit { .. } => self.push(&format!("({size} bytes)")),
            _ => self.push("(unreadable)"),
        }
    }

    fn compound(&mut self, c: &Compound, bytes: &[u8], depth: usize) {
        self.push("{");
        for (i, m) in c.members.iter().enumerate() {
            if i > 0 {
                self.push(", ");
            }
            if self.is_full() {
                self.push(MORE);
                break;
            }
            self.push(&format!("{}: ", name_brief(&m.name.bytes, NAME_CHARS)));
            let end = usize::try_from(m.end()).unwrap_or(usize::MAX);
            match bytes.get(m.offset as usize..end) {
                Some(part) => self.element(&m.datatype, part, depth),
                None => self.push("(unreadable)"),
            }
        }
        self.push("}");
    }

    /// `1.5+2j`
    fn complex(&mut self, t: &Datatype, bytes: &[u8]) {
        let base = match &t.class {
            Class::Complex(c) => Some(&*c.base),
            _ => t.members().first().map(|m| &m.datatype),
        };
        let half = bytes.len() / 2;
        let texts = base.zip(bytes.split_at_checked(half)).map(|(base, (r, i))| (self.text(base, r), self.text(base, i)));
        match texts {
            Some((Ok(real), Ok(imaginary))) => {
                let sign = if imaginary.starts_with(['-', '+']) { "" } else { "+" };
                self.push(&format!("{real}{sign}{imaginary}j"));
            }
            _ => self.push("(unreadable)"),
        }
    }

    /// What has no parts of its own: numbers, names of enumerations, targets of references.
    fn number(&mut self, t: &Datatype, bytes: &[u8]) {
        match self.text(t, bytes) {
            Ok(text) if text.is_empty() => self.push("null"),
            Ok(text) => self.push(&text),
            Err(e) => self.failed(&e, t.element_size()),
        }
    }

    fn text(&self, t: &Datatype, bytes: &[u8]) -> Result<String> {
        let elements = Elements { datatype: t, shape: &Shape::Scalar, bytes };
        let text = value_text(&elements, &Limited { parts: self.parts, limit: NUMBER_BYTES_MAX })?;
        Ok(escaped_bytes(&text).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Address;
    use crate::base::datatype::Reference;
    use crate::base::parts::Target;
    use crate::present::parse::parse_datatype;

    /// Elements have their number of bytes; each sequence is zeros.
    struct Zeros;

    impl Parts for Zeros {
        fn count(&self, element: &[u8]) -> Result<u32> {
            Ok(u32::from_le_bytes(element.get(..4).and_then(|b| b.try_into().ok()).unwrap_or_default()))
        }

        fn sequence(&self, element: &[u8], base_size: u32, budget: &mut Budget) -> Result<Vec<u8>> {
            let size = u64::from(self.count(element)?) * u64::from(base_size);
            budget.read(size)?;
            Ok(vec![b'x'; size as usize])
        }

        fn reference(&self, _: &Reference, _: &[u8], _: &mut Budget) -> Result<Option<Target>> {
            Err(Error::corrupt("reference", Address(0), "it leads nowhere"))
        }
    }

    fn brief(t: &str, dims: Option<&[u64]>, bytes: &[u8], chars: usize) -> String {
        let shape = dims.map_or(Shape::Scalar, |dims| Shape::Simple { dims: dims.to_vec(), max: None });
        elements_text(&Elements { datatype: &parse_datatype(t).unwrap(), shape: &shape, bytes }, &Zeros, chars)
    }

    #[test]
    fn lists_are_cut_and_count_the_rest() {
        let bytes: Vec<u8> = (0..100u8).collect();
        assert_eq!(brief("|u1", Some(&[3]), &bytes[..3], 60), "[0, 1, 2]");
        assert_eq!(brief("|u1", Some(&[10, 10]), &bytes, 30), "[0, 1, 2, 3, 4, ... 95 more]");
        assert_eq!(brief("|u1", Some(&[0]), &[], 30), "[]");
        assert_eq!(brief("|u1", None, &[7], 30), "7");
        assert!(brief("|S9", Some(&[1 << 40]), b"abcdefghi", 40).ends_with("1099511627775 more]"));
    }

    #[test]
    fn strings_are_quoted_and_cut() {
        assert_eq!(brief("|S5", None, b"a\"b\n\0", 40), "\"a\\\"b\\n\"");
        assert_eq!(brief("|S100000", None, &vec![b'x'; 100_000], 20), "\"xxxxxxxxxxxxxxx...\"");
        let variable = r#"{"class":"H5T_STRING","length":"H5T_VARIABLE","charSet":"H5T_CSET_UTF8","strPad":"H5T_STR_NULLTERM"}"#;
        let element = |n: u32| [n.to_le_bytes().as_slice(), &[0; 12]].concat();
        assert_eq!(brief(variable, None, &element(3), 20), "\"xxx\"");
        assert_eq!(brief(variable, None, &element(60 << 20), 20), "(62914560 bytes)");
    }

    #[test]
    fn compounds_complex_numbers_and_booleans() {
        let point = "[('a', '<i2'), ('b', '|u1', (3,))]";
        assert_eq!(brief(point, None, &[1, 0, 2, 3, 4], 60), "{a: 1, b: [2, 3, 4]}");
        let complex = [1.5f32.to_le_bytes(), (-2f32).to_le_bytes()].concat();
        assert_eq!(brief("<c8", None, &complex, 60), "1.5-2.0j");
        assert_eq!(brief("|b1", Some(&[2]), &[0, 1], 60), "[false, true]");
        assert_eq!(brief("|V40", None, &[255; 40], 60), format!("0x{}...", "ff".repeat(16)));
        let array = r#"{"class":"H5T_ARRAY","base":{"class":"H5T_INTEGER","base":"H5T_STD_U8LE"},"dims":[5000]}"#;
        assert_eq!(brief(array, None, &[1; 5000], 60), "(5000 bytes)");
        let reference = r#"{"class":"H5T_REFERENCE","base":"H5T_STD_REF_OBJ"}"#;
        assert_eq!(brief(reference, None, &[1; 8], 60), "(unreadable)");
    }

    #[test]
    fn wide_compounds_stop_at_the_width() {
        let fields: Vec<String> = (0..1000).map(|i| format!("('f{i}', '|u1')")).collect();
        let text = brief(&format!("[{}]", fields.join(", ")), None, &[5; 1000], 40);
        assert!(text.chars().count() <= 40 && text.starts_with("{f0: 5, f1: 5"), "{text}");
    }
}
