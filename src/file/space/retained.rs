//! Freed space that readers without locks may still read: it is not reused in this session.

use super::{Ranges, Space};
use crate::base::free_ranges::FreeRanges;

impl Space {
    /// Keeps space that is freed from now on out of use until the file is closed.
    pub fn retain_freed(&mut self) {
        self.retains = true;
    }

    /// Space that is free in the next session.
    pub fn free_next(&self) -> FreeRanges {
        let mut whole: Ranges = Ranges::default();
        let mut parts: [Ranges; 2] = Default::default();
        let retained = self.resting.iter().filter(|_| self.retains);
        self.free_ranges().chain(retained.clone().flat_map(|r| r.space.iter())).for_each(|r| whole.insert(r));
        for (i, (all, free)) in parts.iter_mut().zip(self.free_parts()).enumerate() {
            let retained = retained.clone().filter_map(|r| r.parts.get(i)).flat_map(Ranges::iter);
            free.chain(retained).for_each(|r| all.insert(r));
        }
        FreeRanges { whole: whole.iter().collect(), parts: parts.map(|all| all.iter().collect()) }
    }
}
