//! Words of a command line, quoted as a shell does.

/// How the end of a word is quoted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Quoting {
    /// Not, or by backslashes.
    #[default]
    Plain,
    /// By `'`.
    Single,
    /// By `"`.
    Double,
}

/// A word of a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// As typed.
    pub(super) typed: Vec<u8>,
    /// Without quotes.
    pub(super) text: Vec<u8>,
    /// Quotes that are open at its end.
    open: Quoting,
}

/// What a shell keeps of the word that is completed: candidates replace the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// Without quotes.
    pub(super) text: Vec<u8>,
    /// The rest is quoted; false: the shell does that.
    pub(super) is_quoted: bool,
    /// How the rest is quoted.
    pub(super) quoting: Quoting,
    /// The rest is all of the word, and may begin with a tilde that is quoted.
    pub(super) is_at_start: bool,
}

impl Kept {
    /// What replaces the rest of the word for `candidate`; `None` if the word does not become it.
    pub(super) fn rest<'a>(&self, candidate: &'a [u8]) -> Option<&'a [u8]> {
        candidate.strip_prefix(self.text.as_slice())
    }
}

impl Word {
    /// What the shell keeps, if it replaces `replaced`, the end of the word as typed.
    pub(super) fn kept(&self, replaced: &[u8]) -> Kept {
        let start = self.typed.strip_suffix(replaced).unwrap_or_default();
        let before = split(start).pop().unwrap_or_default();
        // The tilde that was typed stands for a directory.
        let is_at_start = start.is_empty() && !self.typed.starts_with(b"~");
        Kept { text: before.text, is_quoted: true, quoting: before.open, is_at_start }
    }
}

/// The words of `line`; the last one is empty if the line ends in a space, or is empty.
pub(super) fn split(line: &[u8]) -> Vec<Word> {
    let (mut all, mut word, mut escaped) = (Vec::new(), Word::default(), false);
    for &byte in line {
        if !escaped && word.open == Quoting::Plain && byte.is_ascii_whitespace() {
            if !word.typed.is_empty() {
                all.push(std::mem::take(&mut word));
            }
            continue;
        }
        word.typed.push(byte);
        if escaped {
            // Between double quotes a backslash is one, but before these.
            if word.open == Quoting::Double && !b"\"\\$`".contains(&byte) {
                word.text.push(b'\\');
            }
            word.text.push(byte);
            escaped = false;
            continue;
        }
        match (byte, word.open) {
            (b'\\', Quoting::Plain | Quoting::Double) => escaped = true,
            (b'\'', Quoting::Plain) => word.open = Quoting::Single,
            (b'"', Quoting::Plain) => word.open = Quoting::Double,
            (b'\'', Quoting::Single) | (b'"', Quoting::Double) => word.open = Quoting::Plain,
            _ => word.text.push(byte),
        }
    }
    all.push(word);
    all
}

impl Quoting {
    /// `text` as a shell reads it inside these quotes. `at_start`: it is the start of a word.
    pub(super) fn quoted(self, text: &[u8], at_start: bool) -> Vec<u8> {
        let mut quoted = Vec::with_capacity(text.len());
        for (at, &byte) in text.iter().enumerate() {
            let plain = byte.is_ascii_alphanumeric() || byte >= 0x80 || b"_@%+=:,./-".contains(&byte);
            let is_tilde = byte == b'~' && !(at_start && at == 0);
            match self {
                Quoting::Plain if plain || is_tilde => quoted.push(byte),
                Quoting::Single if byte == b'\'' => quoted.extend_from_slice(b"'\\''"),
                Quoting::Plain => quoted.extend_from_slice(&[b'\\', byte]),
                Quoting::Double if b"\"\\$`".contains(&byte) => quoted.extend_from_slice(&[b'\\', byte]),
                Quoting::Single | Quoting::Double => quoted.push(byte),
            }
        }
        quoted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        split(line.as_bytes()).into_iter().map(|word| String::from_utf8(word.text).unwrap()).collect()
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(texts("h5dir ls "), ["h5dir", "ls", ""]);
        assert_eq!(texts(r#"h5dir  ls a\ b.h5:/g "c d":/x"#), ["h5dir", "ls", "a b.h5:/g", "c d:/x"]);
        assert_eq!(texts(r#"ls 'it'\''s "$x' "\$y \z"#), ["ls", "it's \"$x", r"$y \z"]);
        assert_eq!(texts(""), [""]);
    }

    #[test]
    fn a_shell_keeps_the_start_of_a_word() {
        let kept = |word: &str, replaced: &str| split(word.as_bytes()).pop().unwrap().kept(replaced.as_bytes());
        let plain = |text: &str, quoting| Kept { text: text.into(), is_quoted: true, quoting, is_at_start: false };
        assert_eq!(kept("a.h5:/g", "/g"), plain("a.h5:", Quoting::Plain));
        assert_eq!(kept(r"a\ b.h5:/g", "/g"), plain("a b.h5:", Quoting::Plain));
        assert_eq!(kept(r#""a b.h5:/g"#, "a b.h5:/g"), plain("", Quoting::Double));
        assert_eq!(kept("'a b':/g", "/g"), plain("a b:", Quoting::Plain));
        assert!(kept("a", "a").is_at_start && kept("", "").is_at_start && !kept("~/a", "~/a").is_at_start);
    }

    #[test]
    fn a_shell_reads_what_was_quoted() {
        let name = "~a b$(x)'\"\\`;|&*?[\u{e9}!#";
        let of = |quoting: Quoting| String::from_utf8(quoting.quoted(name.as_bytes(), true)).unwrap();
        for line in [of(Quoting::Plain), format!("'{}'", of(Quoting::Single)), format!("\"{}\"", of(Quoting::Double))] {
            assert_eq!(texts(&line), [name], "{line}");
            let echoed = std::process::Command::new("bash").args(["-c", &format!("printf %s {line}")]).output().unwrap();
            assert_eq!(String::from_utf8(echoed.stdout).unwrap(), name, "{line}");
        }
    }
}
