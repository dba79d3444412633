//! Elements that are next to each other, and where they are.

use std::ops::Range;

/// Where elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// In a staged buffer, from this byte on.
    Staged { buffer: u32, at: u64 },
    /// In a log dataset, from this byte on.
    Stored { log: u32, offset: u64 },
    /// In a deflated record whose elements are next to each other.
    ///
    /// `first`: the first element wanted. `stored`: bytes of the record; 0: not known.
    Deflated { log: u32, offset: u64, first: u32, elements: u32, stored: u32 },
    /// In another deflated record, by number, from this element on.
    Scattered { record: u32, first: u64 },
}

impl Source {
    /// The source of the elements after the first `n`, of `size` bytes each.
    pub(super) fn after(self, n: u64, size: u64) -> Source {
        let bytes = n.saturating_mul(size);
        match self {
            Source::Staged { buffer, at } => Source::Staged { buffer, at: at.saturating_add(bytes) },
            Source::Stored { log, offset } => Source::Stored { log, offset: offset.saturating_add(bytes) },
            Source::Deflated { log, offset, first, elements, stored } => {
                let first = first.saturating_add(u32::try_from(n).unwrap_or(u32::MAX));
                Source::Deflated { log, offset, first, elements, stored }
            }
            Source::Scattered { record, first } => Source::Scattered { record, first: first.saturating_add(n) },
        }
    }
}

/// Elements that are next to each other in the dataset and at their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Linear number of the first element.
    pub(super) first: u64,
    /// Linear number after the last element.
    pub(super) end: u64,
    pub(super) source: Source,
}

impl Extent {
    /// The part of the extent within `range`, which it intersects; elements have `size` bytes.
    pub(super) fn cut(&self, range: &Range<u64>, size: u64) -> Extent {
        let first = self.first.max(range.start);
        Extent { first, end: self.end.min(range.end), source: self.source.after(first.saturating_sub(self.first), size) }
    }

    /// True if `next` follows, in the dataset and at the source.
    pub(super) fn continues_in(&self, next: &Extent, size: u64) -> bool {
        self.end == next.first && self.source.after(self.end.saturating_sub(self.first), size) == next.source
    }
}

/// What is known of elements: their source; `None`: they are not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) source: Option<Source>,
}

impl Piece {
    /// The part from element `at` on.
    pub(super) fn after(self, at: u64, size: u64) -> Piece {
        let first = self.first.max(at);
        Piece { first, end: self.end, source: self.source.map(|s| s.after(first.saturating_sub(self.first), size)) }
    }
}
