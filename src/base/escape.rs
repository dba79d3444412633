//! Escapes untrusted text, such as paths and names, for terminals and logs.
//!
//! Escaped are control characters (C0, DEL, C1), bidirectional controls, and the line and paragraph
//! separators: a terminal acts on them, a log reader takes them for the end of a line, or they
//! reorder the displayed text.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter, Write};
use std::os::unix::ffi::OsStrExt;

/// True for characters that must not reach a terminal or a log unescaped.
pub fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Displays a name or path with unsafe characters and invalid UTF-8 bytes escaped.
///
/// They appear as `\xNN` per byte, or `\n`, `\t`; a backslash as `\\`, so that distinct names stay
/// distinct.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(&'a [u8]);

/// Displays a path or another OS string, escaped.
pub fn escaped<S: AsRef<OsStr> + ?Sized>(text: &S) -> Escaped<'_> {
    Escaped(text.as_ref().as_bytes())
}

/// Displays bytes, escaped.
pub fn escaped_bytes(bytes: &[u8]) -> Escaped<'_> {
    Escaped(bytes)
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    c => write_char(f, c)?,
                }
            }
            chunk.invalid().iter().try_for_each(|b| write!(f, "\\x{b:02x}"))?;
        }
        Ok(())
    }
}

fn write_char(f: &mut impl Write, c: char) -> fmt::Result {
    match c {
        '\n' => f.write_str("\\n"),
        '\t' => f.write_str("\\t"),
        c if is_unsafe(c) => c.encode_utf8(&mut [0; 4]).bytes().try_for_each(|b| write!(f, "\\x{b:02x}")),
        c => f.write_char(c),
    }
}

fn replaced(text: &str, replace: impl Fn(char) -> bool, write: impl Fn(&mut String, char) -> fmt::Result) -> Cow<'_, str> {
    if !text.contains(&replace) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        // Writing to a String does not fail.
        let _ = if replace(c) { write(&mut out, c) } else { out.write_char(c) };
    }
    Cow::Owned(out)
}

/// Escapes a message for one line: unsafe characters as in [`Escaped`], backslashes unchanged.
pub fn line(message: &str) -> Cow<'_, str> {
    replaced(message, is_unsafe, write_char)
}

/// Escapes each line of `message` as [`line()`] does; line feeds are kept.
pub fn lines(message: &str) -> Cow<'_, str> {
    replaced(message, |c| c != '\n' && is_unsafe(c), write_char)
}

/// Escapes unsafe characters of a JSON document as `\uNNNN`, which JSON defines as equal.
///
/// Newlines are kept: valid JSON has them only between values.
pub fn json(document: &str) -> Cow<'_, str> {
    replaced(document, |c| c != '\n' && is_unsafe(c), |out, c| write!(out, "\\u{:04x}", u32::from(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every unsafe character.
    fn all_unsafe() -> Vec<char> {
        let ranges = [0..=0x1f, 0x7f..=0x9f, 0x61c..=0x61c, 0x200e..=0x200f, 0x2028..=0x202e, 0x2066..=0x2069];
        ranges.into_iter().flatten().map(|c| char::from_u32(c).unwrap()).collect()
    }

    #[test]
    fn no_unsafe_character_gets_through_and_no_other_is_changed() {
        let all: String = all_unsafe().into_iter().collect();
        assert_eq!(all.chars().count(), 32 + 33 + 1 + 2 + 7 + 4);
        for text in [escaped(&all).to_string(), line(&all).into_owned(), json(&all.replace('\n', "")).into_owned()] {
            assert!(text.bytes().all(|b| (b' '..=b'~').contains(&b)), "{text}");
        }
        let plain = "/srv/M\u{fc}ller \u{65e5}\u{672c} \u{200d}\u{2065}\u{206a}\u{a0}'\"";
        assert_eq!(escaped(plain).to_string(), plain);
        assert!(matches!(line(plain), Cow::Borrowed(_)) && matches!(json(plain), Cow::Borrowed(_)));
    }

    #[test]
    fn escapes_are_those_of_the_bytes() {
        assert_eq!(escaped(OsStr::from_bytes(b"a\xff\\\n\t\x1b\xc2\x9b")).to_string(), "a\\xff\\\\\\n\\t\\x1b\\xc2\\x9b");
        assert_eq!(escaped_bytes("\u{202e}".as_bytes()).to_string(), "\\xe2\\x80\\xae");
        assert_eq!(line("a\\b\r\n"), "a\\b\\x0d\\n");
        assert_eq!(lines("a\r\nb\u{9b}\n"), "a\\x0d\nb\\xc2\\x9b\n");
        assert_eq!(json("\"\u{85}\u{2069}\u{7f}\""), "\"\\u0085\\u2069\\u007f\"");
    }
}
