//! Row-major order for an index that stores chunks in another one.
//!
//! An extensible array stores the unlimited dimension slowest. If it is not the first dimension,
//! one walk over the array finds the next chunks in row-major order, and keeps their numbers.

use super::traits::{ChunkIndex, Place};
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::grid::ChunkGrid;
use crate::meta::Store;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Most chunk numbers that are kept, 8 bytes each. A walk over the array takes twice as many.
const KEPT_CHUNKS_MAX: usize = 1 << 20;

/// The allocated chunks with numbers in `range`.
struct Window {
    range: Range<u64>,
    /// Row-major numbers, ascending; `None`: every chunk of the extent is allocated.
    numbers: Option<Vec<u64>>,
}

/// Allocated chunks of one dataset in row-major order.
pub(super) struct RowMajor {
    grid: ChunkGrid,
    kept_max: usize,
    window: Mutex<Option<Arc<Window>>>,
}

impl RowMajor {
    /// The order of the chunks of `grid`. Reads nothing.
    pub(super) fn new(grid: &ChunkGrid) -> Self {
        RowMajor { grid: grid.clone(), kept_max: KEPT_CHUNKS_MAX, window: Mutex::default() }
    }

    /// [`ChunkIndex::iterate_from`] of `index`.
    pub(super) fn iterate_from(&self, index: &dyn ChunkIndex, store: &Store, from: &[u64], f: &mut Place<'_>) -> Result<()> {
        let past = || Error::limit("extensible array header", Address::UNDEF, "2^64 chunks or more");
        let (mut at, total) = self.grid.number(from).zip(self.grid.total()).ok_or_else(past)?;
        while at < total {
            let window = self.window(index, store, at, total)?;
            let end = window.range.end.min(total);
            let mut visit = |number: u64| f(&self.grid.scaled(number));
            match &window.numbers {
                None => {
                    for number in at..end {
                        if visit(number)?.is_break() {
                            return Ok(());
                        }
                    }
                }
                Some(numbers) => {
                    for &number in numbers.get(numbers.partition_point(|n| *n < at)..).unwrap_or_default() {
                        if visit(number)?.is_break() {
                            return Ok(());
                        }
                    }
                }
            }
            at = end;
        }
        Ok(())
    }

    /// The window that contains chunk `at`, kept or made by a walk over `index`.
    fn window(&self, index: &dyn ChunkIndex, store: &Store, at: u64, total: u64) -> Result<Arc<Window>> {
        let mut kept = self.window.lock();
        if let Some(window) = kept.as_ref().filter(|w| w.range.contains(&at)) {
            return Ok(window.clone());
        }
        let (mut numbers, mut end, mut count) = (Vec::new(), u64::MAX, 0u64);
        // Keeps the lowest numbers, and ends the window after them.
        let shorten = |numbers: &mut Vec<u64>, end: &mut u64| {
            if let Some(most) = self.kept_max.checked_sub(1).filter(|most| numbers.len() > most.saturating_add(1)) {
                let (_, last, _) = numbers.select_nth_unstable(most);
                *end = last.saturating_add(1);
                numbers.truncate(self.kept_max);
            }
        };
        index.iterate(store, &mut |scaled, _| {
            count = count.saturating_add(1);
            if let Some(n) = self.grid.number(scaled).filter(|n| (at..end).contains(n)) {
                numbers.push(n);
                if numbers.len() >= self.kept_max.saturating_mul(2) {
                    shorten(&mut numbers, &mut end);
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        shorten(&mut numbers, &mut end);
        numbers.sort_unstable();
        numbers.shrink_to_fit();
        let window = match count >= total {
            true => Window { range: 0..u64::MAX, numbers: None },
            false => Window { range: at..end, numbers: Some(numbers) },
        };
        Ok(kept.insert(Arc::new(window)).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::traits::Visit;
    use super::*;
    use crate::format::chunk_record::{ChunkRecord, StoredForm};
    use crate::structures::estimate::Estimate;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// An index that visits the columns of an extent one after another, and counts its walks.
    struct Columns {
        chunks: Vec<Vec<u64>>,
        walks: AtomicU32,
    }

    impl ChunkIndex for Columns {
        fn name(&self) -> &'static str {
            "columns"
        }

        fn lookup(&self, _: &Store, _: &[u64]) -> Result<Option<ChunkRecord>> {
            Ok(None)
        }

        fn iterate(&self, _: &Store, f: &mut Visit<'_>) -> Result<()> {
            self.walks.fetch_add(1, Ordering::Relaxed);
            for scaled in &self.chunks {
                let _ = f(scaled, ChunkRecord { address: Address(0), size: 1, form: StoredForm::WHOLE })?;
            }
            Ok(())
        }

        fn iterate_from(&self, _: &Store, _: &[u64], _: &mut Place<'_>) -> Result<()> {
            Ok(())
        }

        fn estimate(&self, _: &Store) -> Result<Estimate> {
            Ok(Estimate::default())
        }
    }

    proptest! {
        #[test]
        fn chunks_come_in_row_major_order(
            rows in 1u64..9, columns in 1u64..9, mask in any::<u64>(), full in any::<bool>(), kept_max in 1usize..20, from in any::<u64>(),
        ) {
            let store = Store::over_bytes(vec![0u8; 16]);
            let grid = ChunkGrid::new(vec![rows, columns], vec![Some(9), None], vec![1, 1], 1).unwrap();
            let is_there = |s: &[u64]| full || mask >> ((s[0] * columns + s[1]) % 64) & 1 == 1;
            let all = (0..columns).flat_map(|c| (0..rows).map(move |r| vec![r, c]));
            let index = Columns { chunks: all.filter(|s| is_there(s)).collect(), walks: AtomicU32::new(0) };
            let mut expected = index.chunks.clone();
            let from = [from % rows, from % columns];
            expected.retain(|s| s.as_slice() >= &from[..]);
            expected.sort();
            let order = RowMajor { kept_max, ..RowMajor::new(&grid) };
            for _ in 0..2 {
                let mut seen = Vec::new();
                order.iterate_from(&index, &store, &from, &mut |s| {
                    seen.push(s.to_vec());
                    Ok(ControlFlow::Continue(()))
                }).unwrap();
                prop_assert_eq!(&seen, &expected);
                if expected.len() < kept_max {
                    prop_assert_eq!(index.walks.load(Ordering::Relaxed), 1);
                }
            }
        }
    }
}
