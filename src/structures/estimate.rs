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
