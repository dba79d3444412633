//! Which elements the rows of a table have.

use crate::base::selected::Selected;
use std::ops::Range;

/// The rows of selected elements.
#[derive(Debug, Clone)]
pub struct Rows {
    elements: Selected,
    /// Dimensions of the selection.
    shape: Vec<u64>,
    /// A row is one element, else a line.
    of_elements: bool,
}

fn product(dims: impl Iterator<Item = u64>) -> u64 {
    dims.fold(1, u64::saturating_mul)
}

impl Rows {
    /// The rows of `elements`.
    pub fn new(elements: Selected, of_elements: bool) -> Rows {
        Rows { shape: elements.shape(), elements, of_elements }
    }

    /// Dimensions of the selection.
    pub fn extent(&self) -> Vec<u64> {
        self.shape.clone()
    }

    /// Elements of a line: along the last dimension.
    fn line_len(&self) -> u64 {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Number of lines; 0 if there are no elements.
    pub fn lines(&self) -> u64 {
        let Some((last, outer)) = self.shape.split_last() else { return 1 };
        if *last == 0 { 0 } else { product(outer.iter().copied()) }
    }

    /// Elements of a row.
    pub fn len(&self) -> u64 {
        if self.of_elements { 1 } else { self.line_len() }
    }

    /// Number of rows.
    pub fn count(&self) -> u64 {
        if self.of_elements { self.lines().saturating_mul(self.line_len()) } else { self.lines() }
    }

    /// True if a line is a list in JSON: there are dimensions.
    pub fn is_list(&self) -> bool {
        !self.shape.is_empty()
    }

    /// True if a row has the elements of a line, however many they are.
    pub fn are_lines(&self) -> bool {
        !self.of_elements
    }

    /// The elements of line `line`, by their positions in the selection.
    pub fn line(&self, line: u64) -> Range<u64> {
        let start = line.saturating_mul(self.line_len());
        start..start.saturating_add(self.line_len())
    }

    /// The elements of `rows`, by their positions in the selection.
    pub fn elements(&self, rows: &Range<u64>) -> Range<u64> {
        let at = |row: u64| row.saturating_mul(self.len());
        at(rows.start)..at(rows.end)
    }

    /// The elements at `positions` in runs, numbered through the dataset in row-major order. The
    /// caller bounds how many they are.
    pub fn runs(&self, positions: &Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        // The visitor does not fail.
        let _ = self.elements.for_each_run(positions.clone(), &mut |run| {
            match runs.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => runs.push(run),
            }
            Ok(())
        });
        runs
    }

    /// Brackets of JSON lists that begin before, and end after line `line`, beside its own.
    pub fn brackets(&self, line: u64) -> (usize, usize) {
        let Some((_, outer)) = self.shape.split_last() else { return (0, 0) };
        let (mut rest, mut opened, mut closed) = (line, 0, 0);
        let (mut first, mut last) = (true, true);
        for n in outer.iter().rev() {
            let at = rest.checked_rem(*n).unwrap_or(0);
            rest = rest.checked_div(*n).unwrap_or(0);
            first &= at == 0;
            last &= at.saturating_add(1) == *n;
            opened += usize::from(first);
            closed += usize::from(last);
        }
        (opened, closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::selected::Steps;

    fn rows(dims: &[u64], block: &[Range<u64>], of_elements: bool) -> Rows {
        Rows::new(Selected::grid(dims, block.iter().map(Steps::range).collect()).unwrap(), of_elements)
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn rows_are_runs_of_elements() {
        let runs = |rows: &Rows, n: Range<u64>| rows.runs(&rows.elements(&n));
        let all = rows(&[3, 4], &[0..3, 0..4], false);
        assert_eq!((all.count(), all.len(), runs(&all, 1..3)), (3, 4, vec![4..12]));
        let part = rows(&[3, 4], &[1..3, 1..3], false);
        assert_eq!((part.count(), runs(&part, 0..2)), (2, vec![5..7, 9..11]));
        let elements = rows(&[3, 4], &[1..3, 1..3], true);
        assert_eq!((elements.count(), runs(&elements, 1..4)), (4, vec![6..7, 9..11]));
        let scalar = rows(&[], &[], true);
        assert_eq!((scalar.count(), runs(&scalar, 0..1)), (1, vec![0..1]));
        let empty = rows(&[3, 0], &[0..3, 0..0], false);
        assert_eq!((empty.count(), empty.lines(), runs(&empty, 0..0)), (0, 0, Vec::new()));
    }

    #[test]
    fn lists_of_json_are_nested() {
        let rows = rows(&[2, 2, 5], &[0..2, 0..2, 0..5], false);
        assert_eq!((0..4).map(|line| rows.brackets(line)).collect::<Vec<_>>(), [(2, 0), (0, 1), (1, 0), (0, 2)]);
        assert_eq!(rows.line(3), 15..20);
    }
}
