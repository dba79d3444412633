//! What a seek looks for.

/// Target of a seek: `SEEK_DATA` or `SEEK_HOLE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Allocated bytes.
    Data,
    /// Bytes that read as zero and take no storage.
    Hole,
}
