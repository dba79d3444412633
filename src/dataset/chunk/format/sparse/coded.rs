//! Sets of defined elements, as bytes: a selection or a bitmap, whichever is shorter.

use super::image::{Geometry, SparseImage};
use crate::base::element_set::ElementSet;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::LARGE_DATA;
use crate::dataset::chunk::format::traits::{Large, LargeReader, check_stored};
use crate::dataset::chunk::source::ChunkSource;
use crate::format::Writer;
use crate::format::chunk_record::ChunkRecord;
use crate::format::selection::SerializedSelection;
use crate::format::set_selection::Versions;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Bytes by which a selection may exceed a bitmap.
const SELECTION_SLACK_BYTES: u64 = 256;

/// Most runs and blocks of a chunk's set.
const RUNS_MAX: usize = 1 << 23;

/// Errors: a set that could not be read again.
pub(super) fn check_set(set: &ElementSet) -> Result<()> {
    let reason = "a sparse chunk has too many separate defined elements: use smaller chunks";
    if set.blocks() > RUNS_MAX as u64 { Err(Error::refused(libc::EFBIG, reason)) } else { Ok(()) }
}

/// Most bytes of a set.
pub(super) fn bytes_max(geometry: &Geometry) -> u64 {
    (geometry.elements() / 8).saturating_add(SELECTION_SLACK_BYTES)
}

/// The bits of `set`, row-major, low bit first.
pub(super) fn bitmap(set: &ElementSet, geometry: &Geometry) -> Result<Vec<u8>> {
    let mut bits = vec![0u8; usize::try_from(geometry.elements().div_ceil(8)).unwrap_or(0)];
    set.for_each_run(&geometry.dims, &mut |run| {
        for n in run {
            let byte = usize::try_from(n / 8).ok().and_then(|at| bits.get_mut(at));
            let byte = byte.ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "a defined element past its end"))?;
            *byte |= 1 << (n % 8);
        }
        Ok(())
    })?;
    Ok(bits)
}

/// The set with these bits. Errors: another length, or more spans than are worked on.
pub(super) fn of_bitmap(bits: &[u8], geometry: &Geometry) -> Result<ElementSet> {
    if bits.len() as u64 != geometry.elements().div_ceil(8) {
        return Err(Error::corrupt("chunk", Address::UNDEF, "a bitmap of another length"));
    }
    let bit = |n: u64| usize::try_from(n / 8).ok().and_then(|at| bits.get(at)).is_some_and(|b| b >> (n % 8) & 1 != 0);
    of_predicate(geometry, bit)
}

/// The elements of `dense` that differ from the fill value: what a program that knows no sparse
/// datasets may have written.
pub(super) fn differing(dense: &[u8], geometry: &Geometry) -> Result<ElementSet> {
    let size = usize::try_from(geometry.element_size).unwrap_or(usize::MAX).max(1);
    let mut fill = vec![0; size.min(dense.len())];
    geometry.fill.fill(0, &mut fill);
    let mut elements = dense.chunks(size);
    let mut next = 0u64;
    of_predicate(geometry, |n| {
        // Asked for each element in turn.
        debug_assert_eq!(n, next);
        next = next.saturating_add(1);
        elements.next().is_some_and(|e| e != fill.as_slice())
    })
}

/// The elements for which `is_in` holds; it is asked for each in turn.
fn of_predicate(geometry: &Geometry, mut is_in: impl FnMut(u64) -> bool) -> Result<ElementSet> {
    let end = geometry.elements();
    let mut runs: Vec<Range<u64>> = Vec::new();
    for n in 0..end {
        if is_in(n) {
            if runs.len() >= RUNS_MAX {
                return Err(Error::limit("chunk", Address::UNDEF, "runs of defined elements"));
            }
            match runs.last_mut() {
                Some(run) if run.end == n => run.end = n.saturating_add(1),
                _ => runs.push(n..n.saturating_add(1)),
            }
        }
    }
    ElementSet::of_runs(&geometry.dims, &runs)
}

/// The selection of `set`; `None` if a bitmap is much shorter.
pub(super) fn selection(set: &ElementSet, geometry: &Geometry) -> Option<SerializedSelection> {
    // Two bytes a coordinate is the least.
    let least = set.blocks().saturating_mul(geometry.dims.len() as u64).saturating_mul(2);
    if least > bytes_max(geometry) {
        return None;
    }
    let selection = SerializedSelection::of_set(set, &geometry.dims, Versions::Compact);
    (encoded(&selection).len() as u64 <= bytes_max(geometry)).then_some(selection)
}

/// The bytes of a selection.
pub(super) fn encoded(selection: &SerializedSelection) -> Vec<u8> {
    let mut w = Writer::new();
    selection.encode(&mut w);
    w.into_bytes()
}

/// The values of the defined elements, row-major.
pub(super) fn values(image: &SparseImage, geometry: &Geometry) -> Result<Vec<u8>> {
    let mut values = Vec::new();
    image.set().for_each_run(&geometry.dims, &mut |run| {
        image.append(geometry.bytes_of(&run), &mut values);
        Ok(())
    })?;
    Ok(values)
}

/// The chunk of `defined` elements, whose `values` are in the order of `selection`, or row-major.
pub(super) fn unpack(
    geometry: &Arc<Geometry>,
    defined: ElementSet,
    selection: Option<&SerializedSelection>,
    values: &[u8],
    record: ChunkRecord,
) -> Result<SparseImage> {
    let count = selection.map_or(defined.elements(), |s| s.values(&defined));
    let bytes = count.checked_mul(geometry.element_size);
    if bytes != Some(values.len() as u64) {
        return Err(corrupt(record, format!("{} bytes of values, {bytes:?} in its selection", values.len())));
    }
    let mut image = SparseImage::blank(geometry);
    let mut rest = values;
    let mut put = |run: Range<u64>| {
        let own = geometry.bytes_of(&run);
        let len = usize::try_from(own.end.saturating_sub(own.start)).unwrap_or(usize::MAX);
        let (head, tail) = rest.split_at_checked(len).ok_or_else(|| corrupt(record, "values past its end"))?;
        rest = tail;
        image.put(own.start, head).ok_or_else(|| corrupt(record, "elements past its end"))
    };
    match selection {
        Some(selection) => selection.for_each_run(&defined, &geometry.dims, &mut put)?,
        None => defined.for_each_run(&geometry.dims, &mut put)?,
    }
    image.define(defined);
    Ok(image)
}

/// The error of a damaged chunk.
pub(super) fn corrupt(record: ChunkRecord, detail: impl Into<Cow<'static, str>>) -> Error {
    Error::corrupt("sparse chunk", record.address, detail)
}

/// Errors: chunks that are too large for memory.
pub(super) fn check_large<'a>(geometry: &Geometry, reader: &LargeReader<'a>) -> Result<Option<Large<'a>>> {
    let bytes = geometry.bytes();
    if bytes > reader.env.whole_chunk_max() {
        let detail = format!("sparse chunks of {bytes} bytes need a larger --cache-size");
        return Err(Error::limit(LARGE_DATA, reader.record.address, detail));
    }
    Ok(None)
}

/// The stored bytes of a chunk.
pub(super) fn read<'s>(source: &'s dyn ChunkSource, geometry: &Geometry, record: ChunkRecord) -> Result<Cow<'s, [u8]>> {
    check_stored(source, geometry.bytes(), record, record.size)?;
    let len = usize::try_from(record.size).map_err(|_| Error::limit("chunk", record.address, "stored size"))?;
    source.bytes(record.address, len)
}
