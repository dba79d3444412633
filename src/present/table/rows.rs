//! Which elements the rows of a table have.

use std::ops::Range;

/// The rows of a block of an extent.
#[derive(Debug, Clone)]
pub struct Rows {
    /// Dimensions of the dataset.
    dims: Vec<u64>,
    /// The block in each of them.
    block: Vec<Range<u64>>,
    /// A row is one element, else a line.
    of_elements: bool,
}

fn product(dims: impl Iterator<Item = u64>) -> u64 {
    dims.fold(1, u64::saturating_mul)
}

fn len(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

impl Rows {
    /// The rows of `block`, which lies in an extent of `dims`.
    pub fn new(dims: &[u64], block: &[Range<u64>], of_elements: bool) -> Rows {
        Rows { dims: dims.to_vec(), block: block.to_vec(), of_elements }
    }

    /// Dimensions of the block.
    pub fn extent(&self) -> Vec<u64> {
        self.block.iter().map(len).collect()
    }

    /// Elements of a line: of the block along its last dimension.
    fn line_len(&self) -> u64 {
        self.block.last().map_or(1, len)
    }

    /// Lines of the block; 0 if it is empty.
    pub fn lines(&self) -> u64 {
        let Some((last, outer)) = self.block.split_last() else { return 1 };
        if len(last) == 0 { 0 } else { product(outer.iter().map(len)) }
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
        !self.block.is_empty()
    }

    /// True if a row has the elements of a line, however many they are.
    pub fn are_lines(&self) -> bool {
        !self.of_elements
    }

    /// Elements of line `line`, numbered through the dataset in row-major order.
    pub fn line(&self, line: u64) -> Range<u64> {
        let Some((last, outer)) = self.block.split_last() else { return 0..1 };
        let (mut rest, mut start, mut stride) = (line, last.start, self.dims.last().copied().unwrap_or(1));
        for (range, dim) in outer.iter().zip(&self.dims).rev() {
            let at = rest.checked_rem(len(range)).unwrap_or(0);
            rest = rest.checked_div(len(range)).unwrap_or(0);
            start = start.saturating_add(range.start.saturating_add(at).saturating_mul(stride));
            stride = stride.saturating_mul(*dim);
        }
        start..start.saturating_add(len(last))
    }

    /// True if the lines of the block follow one another.
    fn is_dense(&self) -> bool {
        self.block.iter().zip(&self.dims).skip(1).all(|(range, dim)| *range == (0..*dim))
    }

    /// The elements of `rows` in runs of whole rows.
    pub fn runs(&self, rows: Range<u64>) -> Vec<Range<u64>> {
        if rows.is_empty() || self.line_len() == 0 {
            return Vec::new();
        }
        let elements = |row: u64| if self.of_elements { row } else { row.saturating_mul(self.line_len()) };
        let wanted = elements(rows.start)..elements(rows.end);
        if self.is_dense() {
            let first = self.line(0).start;
            return std::iter::once(first.saturating_add(wanted.start)..first.saturating_add(wanted.end)).collect();
        }
        let mut runs = Vec::new();
        let mut at = wanted.start;
        while at < wanted.end {
            let line = self.line(at / self.line_len());
            let within = at % self.line_len();
            let n = self.line_len().saturating_sub(within).min(wanted.end.saturating_sub(at));
            let start = line.start.saturating_add(within);
            runs.push(start..start.saturating_add(n));
            at = at.saturating_add(n.max(1));
        }
        runs
    }

    /// Brackets of JSON lists that begin before, and end after line `line`, beside its own.
    pub fn brackets(&self, line: u64) -> (usize, usize) {
        let Some((_, outer)) = self.block.split_last() else { return (0, 0) };
        let (mut rest, mut opened, mut closed) = (line, 0, 0);
        let (mut first, mut last) = (true, true);
        for range in outer.iter().rev() {
            let at = rest.checked_rem(len(range)).unwrap_or(0);
            rest = rest.checked_div(len(range)).unwrap_or(0);
            first &= at == 0;
            last &= at.saturating_add(1) == len(range);
            opened += usize::from(first);
            closed += usize::from(last);
        }
        (opened, closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn rows_are_runs_of_elements() {
        let all = Rows::new(&[3, 4], &[0..3, 0..4], false);
        assert_eq!((all.count(), all.len(), all.runs(1..3)), (3, 4, vec![4..12]));
        let part = Rows::new(&[3, 4], &[1..3, 1..3], false);
        assert_eq!((part.count(), part.runs(0..2)), (2, vec![5..7, 9..11]));
        let elements = Rows::new(&[3, 4], &[1..3, 1..3], true);
        assert_eq!((elements.count(), elements.runs(1..4)), (4, vec![6..7, 9..11]));
        let scalar = Rows::new(&[], &[], true);
        assert_eq!((scalar.count(), scalar.runs(0..1)), (1, vec![0..1]));
        let empty = Rows::new(&[3, 0], &[0..3, 0..0], false);
        assert_eq!((empty.count(), empty.lines(), empty.runs(0..0)), (0, 0, Vec::new()));
    }

    #[test]
    fn lists_of_json_are_nested() {
        let rows = Rows::new(&[2, 2, 5], &[0..2, 0..2, 0..5], false);
        assert_eq!((0..4).map(|line| rows.brackets(line)).collect::<Vec<_>>(), [(2, 0), (0, 1), (1, 0), (0, 2)]);
        assert_eq!(rows.line(3), 15..20);
    }
}
