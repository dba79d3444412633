//! Chunks that searches found to be stored, or not to be.
//!
//! A program that looks for all holes of a dataset passes each run of chunks once.

use crate::base::Result;
use crate::base::locks::Mutex;
use std::ops::Range;

/// Numbers of chunks that the last searches passed. Valid until the dataset changes.
#[derive(Debug, Default)]
pub(crate) struct FoundChunks {
    /// Consecutive stored chunks.
    stored: Mutex<Range<u64>>,
    /// Consecutive absent chunks; a stored one or the end of the dataset follows.
    absent: Mutex<Range<u64>>,
}

impl FoundChunks {
    /// The first stored chunk in `range`. `next_stored` finds the first one from a number on, or
    /// the end of the dataset.
    pub(super) fn first_stored(&self, range: Range<u64>, next_stored: &mut dyn FnMut(u64) -> Result<u64>) -> Result<Option<u64>> {
        let absent = self.absent.lock().clone();
        let found = if self.stored.lock().contains(&range.start) {
            range.start
        } else if absent.contains(&range.start) {
            absent.end
        } else {
            let found = next_stored(range.start)?;
            *self.absent.lock() = range.start..found;
            found
        };
        Ok(Some(found).filter(|n| *n < range.end))
    }

    /// The first chunk in `range` that is not stored. `run_end` finds the end of the stored chunks
    /// at the start of a range, at most the range's end.
    pub(super) fn first_absent(&self, range: Range<u64>, run_end: &mut dyn FnMut(Range<u64>) -> Result<u64>) -> Result<Option<u64>> {
        let mut at = range.start;
        while at < range.end {
            let known = self.stored.lock().clone();
            if known.contains(&at) {
                at = known.end;
                continue;
            }
            let stop = if at < known.start { known.start.min(range.end) } else { range.end };
            let next = run_end(at..stop)?;
            if next > at {
                let start = if at == known.end { known.start } else { at };
                let end = if next == known.start { known.end } else { next };
                *self.stored.lock() = start..end;
            }
            if next < stop {
                return Ok(Some(next));
            }
            at = next;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn searches_agree_with_brute_force(
            mask in prop::collection::vec(prop::bool::weighted(0.8), 1..40),
            searches in prop::collection::vec((any::<bool>(), 0usize..40, 1usize..40), 1..60),
        ) {
            let found = FoundChunks::default();
            let len = mask.len() as u64;
            for (stored, start, n) in searches {
                let range = (start as u64).min(len - 1)..(start as u64 + n as u64).clamp(1, len);
                if range.is_empty() {
                    continue;
                }
                let wanted = range.clone().find(|i| mask[*i as usize] == stored);
                let got = match stored {
                    true => found.first_stored(range, &mut |from| Ok((from..len).find(|i| mask[*i as usize]).unwrap_or(len))),
                    false => found.first_absent(range, &mut |r| Ok(r.clone().find(|i| !mask[*i as usize]).unwrap_or(r.end))),
                };
                prop_assert_eq!(got.unwrap(), wanted);
            }
        }
    }

    #[test]
    fn a_run_is_passed_once() {
        let (found, mut passed) = (FoundChunks::default(), 0);
        let mut run_end = |run: Range<u64>| {
            passed += run.end - run.start;
            Ok(run.end)
        };
        for range in [500..600, 400..600, 0..600, 0..1000, 3..1000] {
            assert_eq!(found.first_absent(range, &mut run_end).unwrap(), None);
        }
        assert_eq!(passed, 1000);
    }
}
