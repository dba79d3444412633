//! Bounds of what one read of a virtual dataset reads of its sources, which may be virtual, too.
//!
//! A hostile file can make a dataset its own source, or map one source many times.

use crate::base::{Address, Error, Result, limits};
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Most source bytes that one read may read, as a multiple of its own bytes.
const NESTED_FACTOR: u64 = 64;
/// Source bytes that one read may read in addition.
const NESTED_SLACK_BYTES: u64 = 16 << 20;

/// Parts of sources that one read defers, at most: it reads others at once.
const LONG_READS_MAX: usize = 1024;

/// Place of a source (number of its file, address of its object header), and a range of its bytes.
pub type SourcePart = ((u32, Address), Range<u64>);

/// Parts of sources whose reads take decoding, or wait for a disk.
#[derive(Default)]
pub struct LongReads(RefCell<Vec<SourcePart>>);

impl LongReads {
    /// The parts that were noted.
    pub fn into_parts(self) -> Vec<SourcePart> {
        self.0.into_inner()
    }
}

/// Source bytes that one read may still read.
pub struct SourceBytes(Cell<u64>);

impl SourceBytes {
    /// Those of a read of `bytes`.
    pub fn of_read(bytes: u64) -> Self {
        SourceBytes(Cell::new(bytes.saturating_mul(NESTED_FACTOR).saturating_add(NESTED_SLACK_BYTES)))
    }
}

/// Reads of sources for one read of a virtual dataset.
#[derive(Clone, Copy)]
pub struct SourceReads<'a> {
    /// Virtual datasets on the way to the source.
    depth: usize,
    left: &'a SourceBytes,
    /// Long reads are noted there, and left out.
    long: Option<&'a LongReads>,
}

impl<'a> SourceReads<'a> {
    /// Reads within `left`.
    pub fn new(left: &'a SourceBytes) -> Self {
        SourceReads { depth: 0, left, long: None }
    }

    /// Long reads are noted in `long`, and left out.
    #[must_use]
    pub fn deferring(self, long: &'a LongReads) -> Self {
        SourceReads { long: Some(long), ..self }
    }

    /// Notes `part` if its read is left out because it is long; true if it is.
    pub fn defers(self, part: SourcePart, is_long: impl FnOnce() -> bool) -> bool {
        let Some(LongReads(long)) = self.long else { return false };
        let defers = long.borrow().len() < LONG_READS_MAX && is_long();
        if defers {
            long.borrow_mut().push(part);
        }
        defers
    }

    /// Reads of the sources of one more virtual dataset. Errors: they are nested too deep.
    pub fn nested(self) -> Result<Self> {
        if self.depth >= limits::VIRTUAL_DEPTH_MAX {
            return Err(Error::limit("virtual dataset", Address::UNDEF, "virtual datasets nested too deep"));
        }
        Ok(SourceReads { depth: self.depth.saturating_add(1), ..self })
    }

    /// Counts `bytes` of a source. Errors: they are too many.
    pub fn spend(self, bytes: u64) -> Result<()> {
        let too_much = || Error::limit("virtual dataset", Address::UNDEF, "one read needs too many bytes of its sources");
        self.left.0.set(self.left.0.get().checked_sub(bytes).ok_or_else(too_much)?);
        Ok(())
    }
}
