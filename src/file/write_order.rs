//! Order in which a commit replaces live bytes while readers without locks have the file open.
//!
//! Such a reader may read any structure at any moment. What it finds refers to complete structures
//! if each structure is replaced by one write, after all that it refers to. Levels express that:
//! bytes of a lower level are replaced first. `meta::level` names them.

use super::space::Ranges;
use std::collections::BTreeMap;
use std::ops::Range;

/// Level of elements, which refer to nothing.
pub const DATA_LEVEL: u8 = 0;
/// Most bytes of elements written at once.
const PIECE_BYTES: usize = 1 << 20;

/// Live bytes that changed since the last commit, by level.
#[derive(Debug, Default)]
pub struct WriteOrder {
    data: Ranges,
    /// End and level of each structure, by its start.
    structures: BTreeMap<u64, (u64, u8)>,
}

impl WriteOrder {
    /// Adds `range`, which is one structure unless it holds elements.
    pub fn add(&mut self, range: Range<u64>, level: u8) {
        if level == DATA_LEVEL {
            return self.data.insert(range);
        }
        let known = self.structures.entry(range.start).or_insert((range.end, level));
        *known = (known.0.max(range.end), known.1.max(level));
    }

    /// All ranges in the order in which they are written, each by one write: structures as a whole,
    /// elements in pieces.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let mut structures: Vec<_> = self.structures.iter().map(|(&start, &(end, level))| (level, start..end)).collect();
        structures.sort_by_key(|(level, range)| (*level, range.start));
        let pieces = |range: Range<u64>| {
            let end = range.end;
            range.step_by(PIECE_BYTES).map(move |at| at..at.saturating_add(PIECE_BYTES as u64).min(end))
        };
        self.data.iter().flat_map(pieces).chain(structures.into_iter().map(|(_, range)| range)).collect()
    }

    /// Removes all ranges.
    pub fn clear(&mut self) {
        self.data.clear();
        self.structures.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_levels_come_first() {
        let mut order = WriteOrder::default();
        order.add(100..140, 4);
        order.add(500..600, 1);
        order.add(900..950, DATA_LEVEL);
        order.add(950..960, DATA_LEVEL);
        order.add(10..20, 4);
        // A structure keeps its highest level.
        order.add(500..600, 2);
        order.add(300..400, 1);
        assert_eq!(order.ranges(), [900..960, 300..400, 500..600, 10..20, 100..140]);
        order.add(1000..1000 + (3 << 19), DATA_LEVEL);
        assert_eq!(order.ranges()[1..3], [1000..1000 + (1 << 20), 1000 + (1 << 20)..1000 + (3 << 19)]);
        order.clear();
        assert!(order.ranges().is_empty());
    }
}
