//! One mapping of a virtual dataset: parsed names, decoded and checked selections.
//!
//! The selections determine the kind (H5Dvirtual.c, `H5D_virtual_check_mapping_pre` and `_post`):
//!
//! ```text
//! virtual     source
//! limited     limited      fixed: one source dataset, the same number of elements
//! unlimited   unlimited    growing: one source dataset, as many slices as both extents have
//! unlimited   limited      printf: one source dataset per virtual block, numbered by %b
//! ```

use crate::base::budget::Budget;
use crate::base::hyperslab::{HyperslabDim, UNLIMITED};
use crate::base::selection::Selection;
use crate::base::{Address, Error, Result};
use crate::format::virtual_mapping::MappingEntry;
use std::sync::Arc;

pub(super) const STRUCTURE: &str = "virtual dataset mapping";

pub(super) fn corrupt(detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(STRUCTURE, Address::UNDEF, detail)
}

/// The name of a source, split at `%b`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamePattern {
    /// The parts of the name between block numbers.
    segments: Vec<Arc<[u8]>>,
}

impl NamePattern {
    /// Parses `%b` (the block number) and `%%` (a `%`). Any other `%` is corrupt.
    pub(crate) fn parse(name: &Arc<[u8]>) -> Result<Self> {
        if !name.contains(&b'%') {
            return Ok(NamePattern { segments: vec![name.clone()] });
        }
        let (mut segments, mut segment) = (Vec::new(), Vec::new());
        let mut bytes = name.iter();
        while let Some(&b) = bytes.next() {
            match b {
                b'%' => match bytes.next() {
                    Some(b'b') => segments.push(Arc::from(std::mem::take(&mut segment))),
                    Some(b'%') => segment.push(b'%'),
                    _ => {
                        return Err(corrupt(format!(
                            "a source name has a % that is neither %b nor %%: {:?}",
                            String::from_utf8_lossy(name)
                        )));
                    }
                },
                b => segment.push(b),
            }
        }
        segments.push(Arc::from(segment));
        Ok(NamePattern { segments })
    }

    /// True when the name contains a block number.
    fn is_numbered(&self) -> bool {
        self.segments.len() > 1
    }

    /// The name for block `number`.
    pub(crate) fn name(&self, number: u64) -> Arc<[u8]> {
        match self.segments.as_slice() {
            [only] => only.clone(),
            segments => Arc::from(segments.join(number.to_string().as_bytes())),
        }
    }
}

/// Kind of a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Both selections are limited.
    Fixed,
    /// Both are unlimited, in these dimensions.
    Growing {
        /// Unlimited dimension of the virtual dataset.
        virtual_dim: usize,
        /// The virtual selection in that dimension.
        virtual_slab: HyperslabDim,
        /// Unlimited dimension of the source dataset.
        source_dim: usize,
        /// The source selection in that dimension.
        source_slab: HyperslabDim,
    },
    /// The virtual selection has an unlimited number of blocks; each is another source dataset.
    Printf {
        /// Unlimited dimension of the virtual dataset.
        dim: usize,
        /// The virtual selection in that dimension.
        slab: HyperslabDim,
    },
}

/// A mapping.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Source file; `.` is the file of the virtual dataset.
    pub(crate) file: NamePattern,
    /// Path of the source dataset.
    pub(crate) dataset: NamePattern,
    /// Elements of the source.
    pub(crate) source: Selection,
    /// Elements of the virtual dataset.
    pub(crate) virtual_: Selection,
    /// Kind of the mapping.
    pub(crate) kind: Kind,
}

impl Mapping {
    /// Checks an entry as libhdf5 does when it opens the dataset. `budget` bounds the work on its
    /// selections.
    pub(crate) fn new(entry: &MappingEntry, rank: usize, budget: &Budget) -> Result<Self> {
        let (file, dataset) = (NamePattern::parse(&entry.file.bytes)?, NamePattern::parse(&entry.dataset.bytes)?);
        let (source, virtual_) = (entry.source.to_selection(budget)?, entry.virtual_.to_selection(budget)?);
        if virtual_.rank().is_some_and(|r| r != rank) {
            return Err(corrupt("the virtual selection has another rank than the virtual dataset"));
        }
        let numbered = file.is_numbered() || dataset.is_numbered();
        let kind = match (virtual_.unlimited(), source.unlimited()) {
            (None, None) => Kind::Fixed,
            (Some((virtual_dim, virtual_slab)), Some((source_dim, source_slab))) => {
                Kind::Growing { virtual_dim, virtual_slab, source_dim, source_slab }
            }
            (Some((dim, slab)), None) if slab.count == UNLIMITED => Kind::Printf { dim, slab },
            _ => return Err(corrupt("only one of the two selections is unlimited")),
        };
        if numbered != matches!(kind, Kind::Printf { .. }) {
            return Err(corrupt("names must have block numbers if and only if the virtual selection has unlimited blocks"));
        }
        Ok(Mapping { file, dataset, source, virtual_, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pattern: &str, number: u64) -> Option<(String, bool)> {
        let p = NamePattern::parse(&Arc::from(pattern.as_bytes())).ok()?;
        Some((String::from_utf8(p.name(number).to_vec()).unwrap(), p.is_numbered()))
    }

    #[test]
    fn block_numbers_and_escapes() {
        assert_eq!(names("f-%b.h5", 12), Some(("f-12.h5".into(), true)));
        assert_eq!(names("%b%%%b", 0), Some(("0%0".into(), true)));
        assert_eq!(names("100%%b", 3), Some(("100%b".into(), false)));
        assert_eq!(names(".", 3), Some((".".into(), false)));
        assert_eq!(names("", 3), Some(("".into(), false)));
        assert_eq!((names("a%", 0), names("%d", 0), names("%%%", 0)), (None, None, None));
    }
}
