//! The grammar of selections, which commands and names of views share.
//!
//! ```text
//! selection  :=  [ term { ("+" | "-") term } ]           union and difference, from left to right
//! term       :=  block | "[" block "]" | "@" FILE | "[@" FILE "]" | JSON
//! block      :=  part { "," part } [ "," "(" selection ")" ] | "(" selection ")"
//! part       :=  INDEX | [INDEX] ":" [INDEX] [ ":" [STEP] ] | "..."
//! ```
//!
//! Indices are those of numpy: negative ones count from the end, ranges are cut to the extent.
//! Dimensions left out at the end are taken whole; an empty selection is all. The selection in
//! parentheses is one of the remaining dimensions. A `-` after `:`, `,`, an operator or at the
//! beginning that precedes a digit is a sign.
//!
//! JSON, and a file (`points`), is a list of points or of blocks. A single list of points keeps its
//! order; whatever is combined is row-major.

use super::points;
use super::{invalid, shown};
use crate::base::element_set::ElementSet;
use crate::base::selected::{Selected, Steps};
use crate::base::{Result, limits};
use std::io::Read;
use std::ops::Range;

/// Most terms of a selection.
const TERMS_MAX: usize = 1 << 20;
/// Spans that differences may pass over in all: bounds the time.
const DIFFERENCE_STEPS: u64 = 1 << 28;
/// Most spans that one union or difference makes: bounds the memory.
const SPANS_MAX: u64 = 1 << 22;

/// The files that a selection names.
pub trait PointFiles {
    /// Opens the file `name`.
    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>>;
}

/// A selection as it was asked for.
#[derive(Clone, Copy)]
pub struct SelectionText<'a> {
    text: &'a str,
    files: Option<&'a dyn PointFiles>,
}

impl<'a> From<&'a str> for SelectionText<'a> {
    /// A text that names no files.
    fn from(text: &'a str) -> Self {
        SelectionText { text, files: None }
    }
}

impl<'a> SelectionText<'a> {
    /// A text that may name `files`.
    pub fn with_files(text: &'a str, files: &'a dyn PointFiles) -> Self {
        SelectionText { text, files: Some(files) }
    }

    /// True if it takes all elements without naming any.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// The elements that it selects of an extent of `dims`. Errors: `EINVAL`, it has no meaning or
    /// takes coordinates that are not there; `EFBIG`, it has too many blocks.
    pub fn select(&self, dims: &[u64]) -> Result<Selected> {
        let mut parser = Parser { text: self.text, pos: 0, files: self.files, terms: 0, depth: 0 };
        let selected = parser.selection(dims)?;
        if parser.pos < self.text.len() {
            return Err(parser.wrong());
        }
        Ok(selected)
    }
}

/// Names of the files in the selection `text`, as far as it has a form.
pub fn point_files(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('@') {
        let is_bracketed = before.trim_end().ends_with('[');
        match after.split_once(']').filter(|_| is_bracketed) {
            Some((name, more)) => {
                names.push(name);
                rest = more;
            }
            None => {
                names.push(after);
                break;
            }
        }
    }
    names
}

struct Parser<'a> {
    text: &'a str,
    pos: usize,
    files: Option<&'a dyn PointFiles>,
    terms: usize,
    /// Parentheses around it.
    depth: usize,
}

/// A coordinate as written.
#[derive(Clone, Copy)]
struct Index {
    n: u64,
    from_end: bool,
}

impl Index {
    /// The coordinate, at least 0, in a dimension of `size`.
    fn clipped(self, size: u64) -> u64 {
        if self.from_end { size.saturating_sub(self.n) } else { self.n.min(size) }
    }
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.pos..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().as_bytes().first().copied()
    }

    fn skip(&mut self, n: usize) {
        self.pos = self.pos.saturating_add(n);
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.skip(rest.len().saturating_sub(rest.trim_start().len()));
    }

    /// Passes `byte` if it is next.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.skip(usize::from(is_next));
        is_next
    }

    fn wrong(&self) -> crate::base::Error {
        let at = shown(self.rest().as_bytes());
        match self.rest() {
            "" => invalid(format!("the selection {} ends early; one is such as 2:7,: or 0:10:2 + 5", shown(self.text.as_bytes()))),
            _ => invalid(format!("{at} in a selection is no range of coordinates such as 2:7, 2::3 or 5")),
        }
    }

    /// A selection up to the end of the text, or to a parenthesis.
    fn selection(&mut self, dims: &[u64]) -> Result<Selected> {
        self.space();
        if matches!(self.peek(), None | Some(b')')) {
            return Selected::all(dims);
        }
        let first = self.term(dims)?;
        self.space();
        if !matches!(self.peek(), Some(b'+' | b'-')) {
            return Ok(first);
        }
        // Terms that are added are joined together: their cost is not that of each with all before.
        let mut added = vec![first.to_set()?];
        let mut set = ElementSet::default();
        let mut steps = 0u64;
        loop {
            let adds = self.take(b'+');
            if !adds && !self.take(b'-') {
                break;
            }
            let term = self.term(dims)?.to_set()?;
            self.space();
            if adds {
                added.push(term);
                continue;
            }
            join(&mut set, &mut added)?;
            steps = steps.saturating_add(set.rows()).saturating_add(term.rows());
            if steps > DIFFERENCE_STEPS {
                return Err(too_many());
            }
            set.change_by(&term, false, SPANS_MAX).map_err(many)?;
        }
        join(&mut set, &mut added)?;
        Selected::set(dims, set)
    }

    fn term(&mut self, dims: &[u64]) -> Result<Selected> {
        self.terms = self.terms.saturating_add(1);
        if self.terms > TERMS_MAX {
            return Err(too_many());
        }
        self.space();
        let rest = self.rest();
        if rest.starts_with('@') {
            // In parentheses nothing follows a name but what ends it.
            self.skip(rest.len());
            return self.file(rest.get(1..).unwrap_or_default(), dims);
        }
        if !rest.starts_with('[') && !rest.starts_with('{') {
            return self.block(dims);
        }
        let inner = rest.get(1..).unwrap_or_default().trim_start();
        if rest.starts_with('{') || inner.starts_with('[') || inner.starts_with('{') {
            let end = json_len(rest).ok_or_else(|| self.wrong())?;
            self.skip(end);
            return points::from_json(rest.get(..end).unwrap_or_default().as_bytes(), dims);
        }
        self.skip(1);
        self.space();
        let block = match self.rest().strip_prefix('@') {
            Some(name) => {
                let end = name.find(']').ok_or_else(|| self.wrong())?;
                self.skip(end.saturating_add(1));
                self.file(name.get(..end).unwrap_or_default(), dims)?
            }
            None => self.block(dims)?,
        };
        self.space();
        if self.take(b']') { Ok(block) } else { Err(self.wrong()) }
    }

    fn file(&self, name: &str, dims: &[u64]) -> Result<Selected> {
        let files =
            self.files.ok_or_else(|| invalid("a selection in a name, or in an attribute, names no file: write the points or blocks"))?;
        if name.is_empty() {
            return Err(invalid("a selection names a file: @FILE.npy or @FILE.json"));
        }
        points::from_file(&mut *files.open(name)?, name, dims)
    }

    fn block(&mut self, dims: &[u64]) -> Result<Selected> {
        let (mut parts, mut ellipsis): (Vec<Option<Part>>, Option<usize>) = (Vec::new(), None);
        loop {
            self.space();
            if self.peek() == Some(b'(') {
                return self.nested(dims, parts, ellipsis);
            }
            if self.rest().starts_with("...") {
                if ellipsis.replace(parts.len()).is_some() {
                    return Err(self.wrong());
                }
                self.skip(3);
            } else {
                parts.push(Some(self.part()?));
            }
            self.space();
            if !self.take(b',') {
                break;
            }
        }
        Selected::grid(dims, steps(parts, ellipsis, dims)?)
    }

    /// A block whose last dimensions are in parentheses.
    fn nested(&mut self, dims: &[u64], parts: Vec<Option<Part>>, ellipsis: Option<usize>) -> Result<Selected> {
        self.skip(1);
        self.depth = self.depth.saturating_add(1);
        if ellipsis.is_some() || self.depth > limits::RANK_MAX || parts.len() >= dims.len() {
            return Err(invalid("parentheses in a selection are of the remaining dimensions, of which there is at least one"));
        }
        if parts.is_empty() {
            return self.inner(dims);
        }
        let (before, remaining) = dims.split_at_checked(parts.len()).unwrap_or_default();
        let inner = self.inner(remaining)?;
        let outer = Selected::grid(before, steps(parts, None, before)?)?;
        Selected::set(dims, outer.to_set()?.times(&inner.to_set()?))
    }

    /// The selection up to a parenthesis, and that.
    fn inner(&mut self, dims: &[u64]) -> Result<Selected> {
        let inner = self.selection(dims)?;
        self.depth = self.depth.saturating_sub(1);
        if self.take(b')') { Ok(inner) } else { Err(self.wrong()) }
    }

    fn part(&mut self) -> Result<Part> {
        let start = self.index()?;
        self.space();
        if !self.take(b':') {
            return start.map(Part::Index).ok_or_else(|| self.wrong());
        }
        self.space();
        let stop = self.index()?;
        self.space();
        let mut step = 1;
        if self.take(b':') {
            self.space();
            match self.index()? {
                Some(Index { n, from_end: false }) if n > 0 => step = n,
                None => {}
                Some(_) => return Err(invalid("the step of a selection is at least 1: elements are taken in the order of the dataset")),
            }
        }
        Ok(Part::Range(start, stop, step))
    }

    /// An index, if one is next.
    fn index(&mut self) -> Result<Option<Index>> {
        let rest = self.rest();
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let len = digits.bytes().take_while(u8::is_ascii_digit).count();
        if len == 0 {
            return Ok(None);
        }
        let n = digits.get(..len).unwrap_or_default().parse().map_err(|_| self.wrong())?;
        let from_end = digits.len() < rest.len();
        self.skip(len.saturating_add(usize::from(from_end)));
        Ok(Some(Index { n, from_end }))
    }
}

/// Adds the sets `added` to `set`.
fn join(set: &mut ElementSet, added: &mut Vec<ElementSet>) -> Result<()> {
    let all = ElementSet::join(std::mem::take(added), SPANS_MAX);
    all.and_then(|all| set.change_by(&all, true, SPANS_MAX)).map_err(many)
}

/// The error of a set that would have too many spans.
fn many(e: crate::base::Error) -> crate::base::Error {
    if matches!(e, crate::base::Error::Limit { .. }) { too_many() } else { e }
}

fn too_many() -> crate::base::Error {
    crate::base::Error::refused(libc::EFBIG, "a selection of too many blocks; write the points into a .npy file, or select in parts")
}

/// What a block takes of one dimension.
enum Part {
    Index(Index),
    Range(Option<Index>, Option<Index>, u64),
}

impl Part {
    fn steps(&self, size: u64) -> Result<Steps> {
        match self {
            Part::Index(i) => {
                let outside = || invalid(format!("coordinate {}{} of a dimension of {size}", if i.from_end { "-" } else { "" }, i.n));
                let at = if i.from_end { size.checked_sub(i.n) } else { Some(i.n) };
                let at = at.filter(|at| *at < size).ok_or_else(outside)?;
                Ok(Steps { start: at, step: 1, count: 1 })
            }
            Part::Range(start, stop, step) => {
                let start = start.map_or(0, |i| i.clipped(size));
                let stop = stop.map_or(size, |i| i.clipped(size)).max(start);
                Ok(Steps { start, step: *step, count: stop.saturating_sub(start).div_ceil(*step) })
            }
        }
    }
}

/// What `parts` take of each dimension. `ellipsis`: the number of parts before one.
fn steps(mut parts: Vec<Option<Part>>, ellipsis: Option<usize>, dims: &[u64]) -> Result<Vec<Steps>> {
    if parts.len() > dims.len() {
        return Err(invalid(format!("a selection of {} dimensions in a dataset of {}", parts.len(), dims.len())));
    }
    let at = ellipsis.unwrap_or(parts.len()).min(parts.len());
    let left = dims.len().saturating_sub(parts.len());
    parts.splice(at..at, std::iter::repeat_with(|| None).take(left));
    parts.iter().zip(dims).map(|(part, size)| part.as_ref().map_or_else(|| Ok(Steps::range(&(0..*size))), |p| p.steps(*size))).collect()
}

/// Bytes of the JSON value that `text` begins with, as far as its brackets show it.
fn json_len(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (i, b) in text.bytes().enumerate() {
        if in_string {
            (in_string, escaped) = (escaped || b != b'"', !escaped && b == b'\\');
            continue;
        }
        match b {
            b'"' => in_string = true,
            b'[' | b'{' => depth = depth.saturating_add(1),
            b']' | b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(i.saturating_add(1));
        }
    }
    None
}

/// The one block that `text` selects of an extent of `dims`. Errors: it is not one.
pub fn one_block(text: SelectionText<'_>, dims: &[u64]) -> Result<Vec<Range<u64>>> {
    text.select(dims)?.block().ok_or_else(|| invalid("the selection is of one block, without steps"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Error;

    fn numbers(text: &str, dims: &[u64]) -> Vec<u64> {
        let mut all = Vec::new();
        let selected = SelectionText::from(text).select(dims).unwrap_or_else(|e| panic!("{text}: {e}"));
        selected
            .for_each_run(0..u64::MAX, &mut |run| {
                all.extend(run);
                Ok(())
            })
            .unwrap();
        assert_eq!(selected.len(), all.len() as u64, "{text}");
        all
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn blocks_are_those_of_numpy() {
        let parse = |text: &str| one_block(text.into(), &[10, 20]);
        assert_eq!(parse("").unwrap(), [0..10, 0..20]);
        assert_eq!(parse(":, 3:").unwrap(), [0..10, 3..20]);
        assert_eq!(parse("4").unwrap(), [4..5, 0..20]);
        assert_eq!(parse("-2:,:-5").unwrap(), [8..10, 0..15]);
        assert_eq!(parse("5:3,2:99").unwrap(), [5..5, 2..20]);
        assert_eq!(parse("...,4").unwrap(), [0..10, 4..5]);
        assert_eq!(parse("[ 1 : 2 , ... ]").unwrap(), [1..2, 0..20]);
        for wrong in [
            "10",
            "1,2,3",
            "a",
            "1:b",
            "--1",
            "1;2",
            "99999999999999999999",
            "1,,2",
            "5,",
            "::0",
            "::-1",
            "1:2:3:4",
            "...,...",
            "[1",
            "(1",
            "nan",
            "1.5",
            "+",
            "1+",
            "-11",
            "@x",
            "[@x]",
            "1,2,(3)",
            "[[1,2],[3]]",
            "[[1]]",
            "[[10,0]]",
            "{}",
            "1 2",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(one_block("".into(), &[]).unwrap(), Vec::<Range<u64>>::new());
    }

    #[test]
    fn unions_and_differences_are_row_major() {
        assert_eq!(numbers("7:9 + 1 + 2", &[10]), [1, 2, 7, 8]);
        assert_eq!(numbers("0:10-2:5", &[10]), [0, 1, 5, 6, 7, 8, 9]);
        assert_eq!(numbers("::3+1-0", &[10]), [1, 3, 6, 9]);
        assert_eq!(numbers("[:]-3", &[5]), [0, 1, 2, 4]);
        assert_eq!(numbers(": - 3", &[5]), [0, 1, 2, 4]);
        assert_eq!(numbers(": -3", &[5]), [0, 1]);
        assert_eq!(numbers("3--1+-1", &[5]), [3, 4]);
        assert_eq!(numbers("1,(0,1+1,0)", &[2, 2, 2]), [5, 6]);
        assert_eq!(numbers("0:2,(::2)", &[2, 3]), [0, 2, 3, 5]);
        assert_eq!(numbers("(0:6) - (1 + 3)", &[9]), [0, 2, 4, 5]);
        assert_eq!(numbers("[[1,2],[0,0],[1,2]]", &[2, 3]), [5, 0, 5]);
        assert_eq!(numbers("[[1,-1],[0,0]] + 0,1", &[2, 3]), [0, 1, 5]);
        assert_eq!(numbers(r#"{"shape":[2,3],"blocks":[{"start":[0,1],"stop":[2,3]}]}"#, &[2, 3]), [1, 2, 4, 5]);
        assert_eq!(numbers("0 - 0", &[3]), [0u64; 0]);
    }

    #[test]
    fn hostile_texts_are_refused_soon() {
        let select = |text: &str, dims: &[u64]| SelectionText::from(text).select(dims);
        let large = [1u64 << 40];
        assert_eq!(select("::2", &large).unwrap().len(), 1 << 39);
        assert!(matches!(select("::2 + 1", &large), Err(Error::Refused { errno: libc::EFBIG, .. })));
        assert!(select(&"0+".repeat(TERMS_MAX + 1), &large).is_err());
        let alternating: String = (0..5000).map(|n| format!("+{}:{}-{}", 8 * n, 8 * n + 3, 8 * n + 1)).collect();
        assert_eq!(select(&alternating[1..], &large).unwrap().len(), 10_000);
        assert!(matches!(select("::2,::2 + ::3,::3 + ::5,::5", &[1 << 21; 2]), Err(Error::Refused { errno: libc::EFBIG, .. })));
        assert!(select(&format!("0{}", ",(".repeat(100_000)), &[2; 32]).is_err());
        assert_eq!(select("::18446744073709551615", &large).unwrap().len(), 1);
    }

    #[test]
    fn names_of_files_are_found() {
        assert_eq!(point_files("@a-b.npy"), ["a-b.npy"]);
        assert_eq!(point_files("0:3+[@a.npy]-[ @b]+1"), ["a.npy", "b"]);
        assert_eq!(point_files("1+@x]y"), ["x]y"]);
        assert!(point_files("0:3").is_empty());
    }
}
