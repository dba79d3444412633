//! Runs: staged elements cut into records.

use super::extent::{Extent, Source};
use super::shape::{Shape, blocks};
use crate::base::Result;
use crate::filter::{self, Params};
use crate::format::Writer;
use crate::format::log::record::{Head, Selection};
use crate::format::log::run::{Erased, RUN_HEAD_BYTES, RunHead};
use std::ops::Range;

/// Data of one run, about, bytes.
const RUN_BYTES: u64 = 8 << 20;
/// Records of one run, about.
const RUN_RECORDS: usize = 1 << 15;
/// Longest data of a record, bytes.
pub(super) const RECORD_BYTES_MAX: u64 = 1 << 20;
/// Longest data of an entry of a released log, bytes.
const BARE_BYTES_MAX: u64 = 1 << 30;
/// Data of a record that is deflated, bytes: all of it is inflated to read some.
const DEFLATED_BYTES_MAX: u64 = 128 << 10;

/// A record of a run.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) dataset: u64,
    /// Linear elements.
    pub(super) elements: Range<u64>,
    /// Elements and stored bytes of a deflated record.
    pub(super) deflated: Option<(u32, u32)>,
    /// Offset of its data among the records of the run, bytes.
    pub(super) offset: u64,
}

/// A run that is ready to be written.
#[derive(Clone)]
pub(crate) struct Run {
    pub(super) head: RunHead,
    /// The records, encoded.
    pub(super) records: Vec<u8>,
    /// Offsets are those in `records`.
    pub(super) made: Vec<Made>,
    /// Erased ranges that the records have.
    pub(super) erased: Vec<Erased>,
    /// The records are nothing but elements, and nothing precedes them.
    pub(super) is_bare: bool,
}

impl Run {
    /// Bytes before the records.
    pub(super) fn head_len(&self) -> u64 {
        if self.is_bare {
            return 0;
        }
        let dims: usize = self.head.datasets.iter().map(|d| d.dims.len().saturating_add(3)).sum();
        (RUN_HEAD_BYTES as u64).saturating_add((dims as u64).saturating_mul(8))
    }

    /// Bytes of the run.
    pub(crate) fn len(&self) -> u64 {
        self.head_len().saturating_add(self.records.len() as u64)
    }

    /// The bytes of records without anything before them.
    pub(crate) fn bare(&self) -> &[u8] {
        &self.records
    }

    /// The run as number `sequence` of a run file, of which `durable` runs are durable.
    /// `continued`: the next one belongs to it.
    pub(crate) fn encode_beside(&self, sequence: u64, durable: u64, continued: bool) -> Vec<u8> {
        RunHead { sequence, serial: durable, continued, ..self.head.clone() }.encode(&self.records)
    }

    /// The run, for the state `serial` of the file. `continued`: the next one belongs to it.
    pub(crate) fn encode(&self, serial: u64, continued: bool) -> Vec<u8> {
        RunHead { serial, continued, ..self.head.clone() }.encode(&self.records)
    }
}

/// Makes records.
#[derive(Default)]
pub(super) struct Maker {
    pub(super) writer: Writer,
    pub(super) bytes: u64,
    pub(super) made: Vec<Made>,
    /// Records have no heads, and are as long as can be.
    pub(super) is_bare: bool,
}

impl Maker {
    /// True if the run is long enough, with `waiting` more bytes.
    pub(super) fn is_enough(&self, waiting: u64) -> bool {
        self.bytes.saturating_add(waiting) >= RUN_BYTES || self.made.len() >= RUN_RECORDS
    }

    /// Appends records of the linear elements that `extents`, which are next to each other, have.
    /// `copy` appends the bytes of a staged source.
    pub(super) fn add(
        &mut self,
        (dataset, shape, deflate): (u64, &Shape, bool),
        extents: &[Extent],
        copy: &dyn Fn(u32, Range<u64>, &mut Vec<u8>),
    ) -> Result<()> {
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return Ok(()) };
        let size = shape.element_size;
        let most = match (self.is_bare, deflate) {
            (true, _) => BARE_BYTES_MAX,
            (false, true) => DEFLATED_BYTES_MAX,
            (false, false) => RECORD_BYTES_MAX,
        };
        let most = (most / size.max(1)).max(1);
        let mut rest = extents.iter().peekable();
        let mut cut = |range: &Range<u64>, data: &mut Vec<u8>| {
            while let Some(extent) = rest.peek() {
                let part = extent.first.max(range.start)..extent.end.min(range.end);
                if let Source::Staged { buffer, at } = extent.source {
                    let skipped = part.start.saturating_sub(extent.first).saturating_mul(size);
                    let from = at.saturating_add(skipped);
                    copy(buffer, from..from.saturating_add(part.end.saturating_sub(part.start).saturating_mul(size)), data);
                }
                if extent.end > range.end {
                    break;
                }
                rest.next();
                if part.end >= range.end {
                    break;
                }
            }
        };
        let mut at = first.first;
        while at < last.end {
            let piece = at..at.saturating_add(most).min(last.end);
            blocks(shape, piece.clone(), &mut |start, count, skipped| {
                let elements: u64 = count.iter().fold(1, |n, c| n.saturating_mul(*c));
                let begin = piece.start.saturating_add(skipped);
                let range = begin..begin.saturating_add(elements);
                let mut data = Vec::with_capacity(usize::try_from(elements.saturating_mul(size)).unwrap_or(0));
                cut(&range, &mut data);
                self.record(dataset, range, Selection::Subarray { start, count }, &data, deflate);
            });
            at = piece.end;
        }
        Ok(())
    }

    fn record(&mut self, dataset: u64, elements: Range<u64>, selection: Selection, data: &[u8], deflate: bool) {
        let packed = if deflate { deflated(data) } else { None };
        let head = Head { dataset, selection, deflated: packed.is_some() };
        let mut w = Writer::new();
        let rank = if let Selection::Subarray { start, .. } = &head.selection { start.len() } else { 1 };
        if !self.is_bare {
            head.write(rank, &mut w);
        }
        let head_bytes = w.into_bytes();
        let stored = packed.as_deref().unwrap_or(data);
        let offset = self.bytes.saturating_add(head_bytes.len() as u64);
        self.writer.bytes(&head_bytes).bytes(stored);
        self.bytes = offset.saturating_add(stored.len() as u64);
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let count = elements.end.saturating_sub(elements.start);
        let deflated = packed.map(|packed| (small(count), small(packed.len() as u64)));
        self.made.push(Made { dataset, elements, deflated, offset });
    }
}

/// `data` deflated, if that is shorter.
fn deflated(data: &[u8]) -> Option<Vec<u8>> {
    let packed = filter::deflate::encode(data, &Params { cd_values: &[6], expected: data.len(), limit: usize::MAX }).ok().flatten()?;
    (packed.len() < data.len()).then_some(packed)
}
