//! Counts of newlines inside the strings of a dataset shown as one string per line.
//!
//! `user.h5dir.dataset` holds them, so that a copy of the file joins the lines of each string
//! again. As JSON they are one flat list of pairs:
//!
//! ```text
//! [strings without a newline, newlines in the next string, ...]
//! ```

use std::collections::VecDeque;

/// Newline counts of the strings that contain newlines, in string order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Newlines {
    /// Pairs: number of strings without a newline, then newlines in the string after them.
    runs: VecDeque<(u64, u64)>,
}

impl Newlines {
    /// Decodes the flat list; `None` if its length is odd or a count of newlines is 0.
    pub(crate) fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let (pairs, rest) = numbers.as_chunks::<2>();
        let runs: VecDeque<_> = pairs.iter().map(|&[skip, count]| (skip, count)).collect();
        (rest.is_empty() && runs.iter().all(|(_, count)| *count > 0)).then_some(Newlines { runs })
    }

    /// Encodes the flat list.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().flat_map(|&(skip, count)| [skip, count])
    }

    /// Appends `skip` strings without newlines, then one with `count` newlines (at least one).
    pub(crate) fn push(&mut self, skip: u64, count: u64) {
        self.runs.push_back((skip, count));
    }

    /// True when no string contains a newline.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of strings that contain newlines.
    pub(crate) fn strings(&self) -> usize {
        self.runs.len()
    }

    /// Number of newlines inside all strings.
    pub(crate) fn total(&self) -> u64 {
        self.runs.iter().fold(0, |n, (_, count)| n.saturating_add(*count))
    }

    /// Number of newlines inside the first string.
    pub(crate) fn first(&self) -> u64 {
        self.runs.front().filter(|(skip, _)| *skip == 0).map_or(0, |(_, count)| *count)
    }

    /// Cuts the lines of `form` into strings, each with the newline that ends it.
    pub(crate) fn strings_of(mut self, form: &[u8]) -> impl Iterator<Item = &[u8]> {
        let mut lines = form.split_inclusive(|b| *b == b'\n');
        let mut rest = form;
        std::iter::from_fn(move || {
            let mut len = lines.next()?.len();
            for _ in 0..self.first() {
                let Some(line) = lines.next() else { break };
                len = len.saturating_add(line.len());
            }
            self.pop();
            let (string, behind) = rest.split_at_checked(len)?;
            rest = behind;
            Some(string)
        })
    }

    /// Removes the first string.
    pub(crate) fn pop(&mut self) {
        if let Some((skip, _)) = self.runs.front_mut() {
            match skip.checked_sub(1) {
                Some(left) => *skip = left,
                None => drop(self.runs.pop_front()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined() {
        let strings = |numbers: &[u64], form: &'static [u8]| Newlines::from_numbers(numbers).unwrap().strings_of(form).collect::<Vec<_>>();
        assert_eq!(strings(&[], b"a\n\nb"), [&b"a\n"[..], b"\n", b"b"]);
        assert_eq!(strings(&[1, 2, 0, 1], b"a\nb\nc\nd\n\ne\nf\n"), [&b"a\n"[..], b"b\nc\nd\n", b"\ne\n", b"f\n"]);
        assert_eq!(strings(&[0, u64::MAX], b"a\nb\n"), [b"a\nb\n"], "the lines that there are");
        assert!(strings(&[0, 1], b"").is_empty());
    }

    #[test]
    fn strings_are_counted_in_order() {
        let mut n = Newlines::from_numbers(&[1, 2, 0, 3]).unwrap();
        assert_eq!((n.total(), n.strings(), n.is_empty()), (5, 2, false));
        let mut each = Vec::new();
        for _ in 0..5 {
            each.push(n.first());
            n.pop();
        }
        assert_eq!(each, [0, 2, 3, 0, 0]);
        assert!(n.is_empty());
        assert_eq!((Newlines::from_numbers(&[1]), Newlines::from_numbers(&[1, 0])), (None, None));
    }
}
