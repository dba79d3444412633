//! Where the elements of a dataset are that has no storage of its own.

use crate::base::budget::Budget;
use crate::base::hyperslab::{HyperslabDim, UNLIMITED};
use crate::base::selection::Selection;
use crate::base::{Error, Result, limits};
use crate::format::selection::{Form, SerializedSelection};
use crate::format::virtual_mapping::{MappingEntry, SourceName, VirtualMappings};
use std::sync::Arc;

/// Steps of walks over selections with many blocks.
const SELECTION_STEPS: u64 = 1 << 24;

/// A part of an external raw file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// File name as stored.
    pub name: Vec<u8>,
    /// First byte in that file.
    pub offset: u64,
    /// Length, bytes; `None`: to the end of the dataset.
    pub size: Option<u64>,
}

/// Where elements are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Elsewhere {
    /// In segments of raw files, in the order of the dataset's bytes.
    Files(Vec<Segment>),
    /// In other datasets.
    Datasets(Vec<SourceMapping>),
}

/// A selection of a source dataset that appears as a selection of the virtual one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceMapping {
    /// Name of the file as stored, `.` for the dataset's own; `%b` is the number of a block.
    pub file: Vec<u8>,
    /// Path of the source dataset in it; `%b` is the number of a block.
    pub dataset: Vec<u8>,
    /// Elements of the source.
    pub source: SerializedSelection,
    /// Elements of the virtual dataset, in the same order.
    pub at: SerializedSelection,
}

fn refused<T>(reason: impl Into<std::borrow::Cow<'static, str>>) -> Result<T> {
    Err(Error::refused(libc::EINVAL, reason))
}

/// The selection of one regular hyperslab with `dims`; `None`: all elements.
fn selection(dims: Option<Vec<HyperslabDim>>) -> SerializedSelection {
    match dims {
        None => SerializedSelection::All(Form::V1 { reserved: 0, length: 0 }),
        Some(dims) => {
            // Rank, and four numbers of 8 bytes for each dimension.
            let length = u32::try_from(dims.len()).unwrap_or(u32::MAX).saturating_mul(32).saturating_add(4);
            SerializedSelection::Regular { form: Form::HyperslabV2 { length }, dims }
        }
    }
}

/// Number of coordinates in `dims`; `None`: unlimited, or 2^64 and more.
fn count(dims: &[HyperslabDim]) -> Option<u64> {
    dims.iter().try_fold(1u64, |n, d| if d.is_unlimited() { None } else { n.checked_mul(d.count.checked_mul(d.block)?) })
}

fn unlimited(dims: &[HyperslabDim]) -> usize {
    dims.iter().filter(|d| d.is_unlimited()).count()
}

/// True if `name` has the block number of a printf source.
fn is_printf(name: &[u8]) -> bool {
    let mut rest = name;
    while let Some(at) = memchr::memchr(b'%', rest) {
        if rest.get(at.saturating_add(1)) == Some(&b'b') {
            return true;
        }
        rest = rest.get(at.saturating_add(2)..).unwrap_or_default();
    }
    false
}

impl SourceMapping {
    /// A mapping of regular hyperslabs; `None`: all elements.
    pub fn new(file: Vec<u8>, dataset: Vec<u8>, source: Option<Vec<HyperslabDim>>, at: Option<Vec<HyperslabDim>>) -> Self {
        SourceMapping { file, dataset, source: selection(source), at: selection(at) }
    }

    /// The hyperslabs of the source and of the virtual dataset, if they are regular ones.
    pub fn regular(&self) -> (Option<&[HyperslabDim]>, Option<&[HyperslabDim]>) {
        (regular(&self.source), regular(&self.at))
    }

    /// Errors: `EINVAL` where libhdf5 refuses the mapping in a dataset of `rank` dimensions.
    fn check(&self, rank: usize) -> Result<()> {
        if self.file.is_empty() || self.dataset.is_empty() || self.file.contains(&0) || self.dataset.contains(&0) {
            return refused("a source is FILE:/PATH; the file . is the dataset's own");
        }
        let budget = Budget::new(SELECTION_STEPS, "selection");
        self.source.to_selection(&budget)?;
        let at = self.at.to_selection(&budget)?;
        let ranked = |s: &Selection, rank: usize| s.rank().is_none_or(|n| n == rank);
        if !ranked(&at, rank) {
            return refused(format!("\"at\" has another number of dimensions than the dataset, {rank}"));
        }
        let (Some(from), Some(to)) = self.regular() else { return Ok(()) };
        from.iter().chain(to).try_for_each(|d| d.check().map_err(|e| Error::refused(libc::EINVAL, e.to_string())))?;
        let printf = is_printf(&self.file) || is_printf(&self.dataset);
        match (unlimited(from), unlimited(to), printf) {
            (0, 0, false) if count(from) == count(to) => Ok(()),
            (0, 0, false) => {
                refused(format!("\"select\" has {} elements, \"at\" {}: they must be as many", shown(count(from)), shown(count(to))))
            }
            (1, 1, false) => Ok(()),
            (0, 1, true) => {
                let block: Vec<_> = to.iter().map(|d| if d.count == UNLIMITED { HyperslabDim { count: 1, ..*d } } else { *d }).collect();
                if count(from) == count(&block) {
                    return Ok(());
                }
                refused("\"select\" of a source with %b has as many elements as one block of \"at\"")
            }
            (.., true) => refused("a source with %b has an unlimited number of blocks in \"at\", and a limited \"select\""),
            _ => refused("either both of \"select\" and \"at\" have one unlimited dimension, or none"),
        }
    }
}

fn shown(count: Option<u64>) -> String {
    count.map_or_else(|| "too many".into(), |n| n.to_string())
}

fn regular(selection: &SerializedSelection) -> Option<&[HyperslabDim]> {
    match selection {
        SerializedSelection::Regular { dims, .. } => Some(dims),
        _ => None,
    }
}

/// Errors: `EINVAL` for mappings that no virtual dataset of `rank` dimensions has.
pub(crate) fn check_mappings(mappings: &[SourceMapping], rank: usize) -> Result<()> {
    if mappings.is_empty() {
        return refused("a virtual dataset has at least one source");
    }
    if mappings.len() as u64 > limits::VIRTUAL_MAPPINGS_MAX {
        return refused(format!("a virtual dataset of more than {} sources", limits::VIRTUAL_MAPPINGS_MAX));
    }
    mappings.iter().try_for_each(|m| m.check(rank))
}

/// Errors: `EINVAL` for segments that no dataset has with `bytes` bytes, at most `most` (`None`:
/// unlimited).
pub(crate) fn check_segments(segments: &[Segment], bytes: u64, most: Option<u64>) -> Result<()> {
    let Some((last, front)) = segments.split_last() else { return refused("an external dataset has at least one file") };
    if segments.len() > usize::from(u16::MAX) {
        return refused("an external dataset of more than 65535 files");
    }
    if front.iter().any(|s| s.size.is_none()) {
        return refused("only the last external file has no size");
    }
    let mut sum = 0u64;
    for segment in segments {
        if segment.name.is_empty() || segment.name.contains(&0) || segment.name.len() > limits::HEAP_NAME_MAX {
            return refused("an external file has a name, without NUL");
        }
        let size = segment.size.unwrap_or(0);
        if segment.size == Some(0) {
            return refused("a segment of an external file has at least one byte");
        }
        let end = segment.offset.checked_add(size).filter(|end| i64::try_from(*end).is_ok());
        sum = end.and_then(|_| sum.checked_add(size)).ok_or_else(|| Error::refused(libc::EINVAL, "a segment ends past 2^63"))?;
    }
    match (last.size, most) {
        (None, _) => Ok(()),
        (Some(_), None) => refused("a dataset that grows without limit needs a last external file without a size"),
        (Some(_), Some(most)) if sum >= most.max(bytes) => Ok(()),
        (Some(_), Some(most)) => refused(format!("the external files have {sum} bytes, and the dataset up to {}", most.max(bytes))),
    }
}

/// The mappings as they are stored.
pub(crate) fn encodable(mappings: &[SourceMapping]) -> VirtualMappings {
    let name = |bytes: &[u8]| SourceName { bytes: Arc::from(bytes), shared_with: None };
    let entry = |m: &SourceMapping| MappingEntry {
        flags: 0,
        file: name(&m.file),
        dataset: name(&m.dataset),
        source: m.source.clone(),
        virtual_: m.at.clone(),
    };
    VirtualMappings { version: 0, entries: mappings.iter().map(entry).collect() }
}

/// Mappings as they are stored.
pub(crate) fn decoded(stored: VirtualMappings) -> Vec<SourceMapping> {
    let mapping = |e: MappingEntry| SourceMapping {
        file: e.file.bytes.to_vec(),
        dataset: e.dataset.bytes.to_vec(),
        source: e.source,
        at: e.virtual_,
    };
    stored.entries.into_iter().map(mapping).collect()
}
