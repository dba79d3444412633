//! Newlines inside the strings of a dataset whose file shows one string per line.
//!
//! `user.h5dir.dataset` carries them, so that a copy joins the lines of a string again. As JSON they are a list of pairs, flat:
//!
//! ```text
//! [strings without a newline, newlines in the next string, strings without a newline, newlines in the next string, ...]
//! ```

use std::collections::VecDeque;

/// Newlines of the strings that have any, in the order of the strings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Newlines {
    /// Strings without a newline, then newlines of the string behind them.
    runs: VecDeque<(u64, u64)>,
}

impl Newlines {
    /// Takes the numbers of the list; `None` if they are not pairs, or a count of newlines is 0.
    pub fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let (pairs, rest) = numbers.as_chunks::<2>();
        let runs: VecDeque<_> = pairs.iter().map(|&[skip, count]| (skip, count)).collect();
        (rest.is_empty() && runs.iter().all(|(_, count)| *count > 0)).then_some(Newlines { runs })
    }

    /// The numbers of the list.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().flat_map(|&(skip, count)| [skip, count])
    }

    /// Adds a string with `count` newlines, at least one, behind `skip` strings without.
    pub fn push(&mut self, skip: u64, count: u64) {
        self.runs.push_back((skip, count));
    }

    /// True when no string holds a newline.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Strings that hold newlines.
    pub fn strings(&self) -> usize {
        self.runs.len()
    }

    /// Newlines inside strings, all together.
    pub fn total(&self) -> u64 {
        self.runs.iter().fold(0, |n, (_, count)| n.saturating_add(*count))
    }

    /// Newlines inside the first string.
    pub fn first(&self) -> u64 {
        self.runs.front().filter(|(skip, _)| *skip == 0).map_or(0, |(_, count)| *count)
    }

    /// Removes the first string.
    pub fn pop(&mut self) {
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
