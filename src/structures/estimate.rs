//! Estimated sizes of trees and arrays, for callers that cannot wait for a walk.

/// Size of a structure, estimated from counts in it and from samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Entries, about.
    pub entries: u64,
    /// Entries and unused places that a walk over all entries visits.
    pub walked: u64,
}

impl Estimate {
    /// An estimate of a structure without unused places.
    pub fn dense(entries: u64) -> Self {
        Estimate { entries, walked: entries }
    }
}

/// Place of sample `i` among `end` places. Samples are spread evenly, and not in step with rows.
pub fn sample_place(i: u64, end: u64) -> u64 {
    /// 2^64 divided by the golden ratio.
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let product = u128::from(i.wrapping_mul(STEP)).saturating_mul(u128::from(end));
    u64::try_from(product >> 64).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread() {
        let mut places: Vec<u64> = (0..16).map(|i| sample_place(i, 1600)).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|w| (30..300).contains(&(w[1] - w[0]))), "{places:?}");
        assert!(places[0] == 0 && places[15] > 1400 && sample_place(7, u64::MAX) < u64::MAX && sample_place(7, 0) == 0);
    }
}
