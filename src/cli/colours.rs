//! Colours of text on a terminal.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

/// What a text is, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    /// No colour.
    Plain,
    /// Name of a group or a directory.
    Group,
    /// Name of a link, and where it leads.
    Link,
    /// Name of a named datatype or a map.
    Type,
    /// Storage in another file or dataset.
    Elsewhere,
    /// Name of an attribute.
    Attribute,
}

/// Whether colours are used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Colours(pub(crate) bool);

impl Colours {
    /// Colours if standard output is a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    pub(crate) fn of_output() -> Colours {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Colours(!refused && std::env::var_os("TERM").is_none_or(|term| term != "dumb") && io::stdout().is_terminal())
    }

    /// `text` in the colour of `ink`.
    pub(crate) fn paint<'a>(self, ink: Ink, text: &'a str) -> Cow<'a, str> {
        let code = match ink {
            Ink::Plain => return text.into(),
            Ink::Group => "1;34",
            Ink::Link => "36",
            Ink::Type => "35",
            Ink::Elsewhere => "33",
            Ink::Attribute => "32",
        };
        if self.0 && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m").into() } else { text.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_colours_is_unchanged() {
        assert_eq!(Colours(false).paint(Ink::Group, "g"), "g");
        assert_eq!(Colours(true).paint(Ink::Plain, "d"), "d");
        assert_eq!(Colours(true).paint(Ink::Group, "g"), "\x1b[1;34mg\x1b[0m");
    }
}
