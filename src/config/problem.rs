//! A problem of a configuration file: what is wrong, and where.

use crate::base::escape::{self, escaped};
use crate::base::url_secrets::shown;
use std::path::Path;

/// Longest part of a source line that is quoted, characters.
const QUOTED_COLUMNS_MAX: usize = 160;
/// A suggestion differs from the given word in at most the inverse of this share of its letters.
const SUGGESTION_DIVISOR: usize = 3;

/// A place in a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Line, from 1.
    pub(crate) line: usize,
    /// Column, from 1, characters.
    pub(crate) column: usize,
    /// Length, characters; a caret marks at least one.
    pub(crate) length: usize,
}

impl Span {
    /// The first character of a file.
    pub(crate) const START: Span = Span { line: 1, column: 1, length: 1 };
}

/// A problem of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where it is.
    pub(crate) at: Span,
    /// What is wrong, and what to do.
    pub(crate) message: String,
}

impl Problem {
    /// Makes a problem.
    pub(crate) fn new(at: Span, message: impl Into<String>) -> Self {
        Problem { at, message: shown(&message.into()).into_owned() }
    }

    /// The problem as a part of a sentence.
    pub(crate) fn sentence(&self) -> String {
        format!("{} at line {} column {}", self.message, self.at.line, self.at.column)
    }

    /// `FILE:LINE:COLUMN: message`, the line of the file, and carets below the place.
    pub(crate) fn quoted(&self, path: &Path, text: &str) -> String {
        let Span { line, column, length } = self.at;
        let head = format!("{}:{line}:{column}: {}\n", escaped(path), escape::line(&self.message));
        let Some(source) = text.lines().nth(line.saturating_sub(1)) else { return head };
        // A line with secrets of a URL is not quoted, also if its value has spaces.
        let has_user = source.split_once(':').is_some_and(|(_, value)| value.contains('@'));
        if has_user || source.to_ascii_lowercase().contains("http") && source.contains('?') {
            return head;
        }
        // One column each: a tab or an escape would move the carets.
        let shown: String =
            source.chars().map(|c| if c == '\t' || escape::is_unsafe(c) { ' ' } else { c }).take(QUOTED_COLUMNS_MAX).collect();
        let before = column.saturating_sub(1);
        let width = shown.chars().count().saturating_sub(before);
        if before > QUOTED_COLUMNS_MAX {
            return head;
        }
        let carets = "^".repeat(length.clamp(1, width.max(1)));
        let (number, margin) = (format!("{line:>5}"), " ".repeat(5));
        format!("{head}{number} | {shown}\n{margin} | {}{carets}\n", " ".repeat(before))
    }
}

/// `; did you mean 'x'?` with the word of `known` that is most like `given`, or nothing.
pub(crate) fn suggestion<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let folded = given.to_lowercase().replace('_', "-");
    let distance = |word: &str| strsim::damerau_levenshtein(&folded, word);
    let allowed = (given.chars().count() / SUGGESTION_DIVISOR).max(1);
    let nearest = known.into_iter().map(|word| (distance(word), word)).min().filter(|(far, _)| *far <= allowed);
    nearest.map_or_else(String::new, |(_, word)| format!("; did you mean '{word}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_quoted_with_carets_below_the_place() {
        let problem = Problem::new(Span { line: 2, column: 3, length: 10 }, "unknown key");
        assert_eq!(
            problem.quoted(Path::new("/a b/c.yaml"), "mount:\n  cache-sise: 5\n"),
            "/a b/c.yaml:2:3: unknown key\n    2 |   cache-sise: 5\n      |   ^^^^^^^^^^\n"
        );
        assert_eq!(problem.sentence(), "unknown key at line 2 column 3");
        let odd = Problem::new(Span { line: 1, column: 3, length: 99 }, "x\ny");
        assert_eq!(odd.quoted(Path::new("c"), "\u{1b}\tab"), "c:1:3: x\\ny\n    1 |   ab\n      |   ^^\n");
        for secret in ["source: http://u:p w@h", "source: \"HTTPS:\\/\\/h/x?t\"", "s: ftp://u@h"] {
            let problem = Problem::new(Span { line: 1, column: 1, length: 1 }, "invalid 'http://u:p@h/x?t'");
            assert_eq!(problem.quoted(Path::new("c"), secret), "c:1:1: invalid 'http://h/x'\n");
        }
        assert_eq!(Problem::new(Span { line: 9, column: 1, length: 1 }, "x").quoted(Path::new("c"), "a"), "c:9:1: x\n");
    }

    #[test]
    fn words_that_are_alike_are_suggested() {
        let known = ["cache-size", "threads", "uid", "gid"];
        for (given, wanted) in [("cache-sise", "cache-size"), ("cache_size", "cache-size"), ("Threads", "threads"), ("thraeds", "threads")]
        {
            assert_eq!(suggestion(given, known), format!("; did you mean '{wanted}'?"));
        }
        assert_eq!((suggestion("colour", known), suggestion("x", known)), (String::new(), String::new()));
        assert_eq!(suggestion("uidd", known), "; did you mean 'uid'?");
    }
}
