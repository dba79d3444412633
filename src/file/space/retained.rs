//! Freed space that readers without locks may still read: it is not reused in this session.

use super::{Ranges, Space};
use std::ops::Range;

impl Space {
    /// Keeps space that is freed from now on out of use until the file is closed.
    pub fn retain_freed(&mut self) {
        self.retains = true;
    }

    /// Space that is free in the next session, ascending: ranges for any use, and parts of pages of
    /// metadata and of raw data.
    pub fn free_next(&self) -> (Vec<Range<u64>>, [Vec<Range<u64>>; 2]) {
        let mut whole: Ranges = Ranges::default();
        let mut parts: [Ranges; 2] = Default::default();
        let retained = self.resting.iter().filter(|_| self.retains);
        self.free_ranges().chain(retained.clone().flat_map(|r| r.space.iter())).for_each(|r| whole.insert(r));
        for (i, (all, free)) in parts.iter_mut().zip(self.free_parts()).enumerate() {
            let retained = retained.clone().filter_map(|r| r.parts.get(i)).flat_map(Ranges::iter);
            free.chain(retained).for_each(|r| all.insert(r));
        }
        (whole.iter().collect(), parts.map(|all| all.iter().collect()))
    }
}
