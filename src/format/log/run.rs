//! A run: records that were appended to a log together, with a control record before them.
//!
//! ```text
//! run:      control record | records
//! control:  head of dataset 0, a block of as many bytes as follow in the record | kind i64 | body
//! kind 1:   version 1 i64 | sequence number of the run i64 | serial number of the state of the
//!           file i64 | bytes of the run i64 | records i64 | continued 0 or 1 i64 |
//!           checksum of the run i64 | datasets i64 | dataset[]
//! dataset:  ID i64 | bytes of an element i64 | rank i64 | dimensions i64[]
//! kind 2:   erased ranges i64 | for each: dataset ID i64, first element i64, elements i64
//! ```
//!
//! A run is whole if its checksum (lookup3, with zeros in its place) is right. A run that is
//! continued belongs to the run after it; runs that belong together count if all are whole, and the
//! file has reached the state that the last one names. Ranges are of linear element numbers; 2^63 -
//! 1 elements are all to the end. The records of a run are in the order of their effect.

use super::super::{Reader, Writer};
use super::record::{CONTROL_ID, Head, NAME, Selection};
use crate::base::checksum::lookup3;
use crate::base::{Address, Result, limits};

/// Bytes of a control record's head.
pub(crate) const CONTROL_HEAD_BYTES: usize = 36;
/// Offset of the checksum in a run.
const CHECKSUM_AT: usize = CONTROL_HEAD_BYTES + 56;
/// Bytes of a run before its datasets.
pub(crate) const RUN_HEAD_BYTES: usize = CONTROL_HEAD_BYTES + 72;
const VERSION: u64 = 1;
const KIND_RUN: u64 = 1;
const KIND_ERASED: u64 = 2;
/// All elements from the first one on.
pub(crate) const TO_THE_END: u64 = i64::MAX as u64;
/// Datasets of one run, and erased ranges of one record.
const LIST_MAX: u64 = 1 << 20;

/// A dataset of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunDataset {
    /// Its ID.
    pub(crate) id: u64,
    /// Bytes of an element.
    pub(crate) element_size: u64,
    /// Its dimensions.
    pub(crate) dims: Vec<u64>,
}

/// The control record at the start of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunHead {
    /// Number of the run in the log: each is one more than that of the run before it.
    pub(crate) sequence: u64,
    /// The run counts once the file has reached this state.
    pub(crate) serial: u64,
    /// Bytes of the run.
    pub(crate) bytes: u64,
    /// Records that follow.
    pub(crate) records: u64,
    /// The next run belongs to it.
    pub(crate) continued: bool,
    /// Datasets that they are of.
    pub(crate) datasets: Vec<RunDataset>,
}

/// Elements that a run erases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Erased {
    /// ID of the dataset.
    pub(crate) dataset: u64,
    /// First element.
    pub(crate) first: u64,
    /// Number of elements; [`TO_THE_END`]: all from there on.
    pub(crate) count: u64,
}

/// Appends a control record of `body`.
fn write_control(w: &mut Writer, body: &[u8]) {
    let selection = Selection::Subarray { start: vec![0], count: vec![body.len() as u64] };
    Head { dataset: CONTROL_ID, selection, deflated: false }.write(1, w);
    w.bytes(body);
}

impl RunHead {
    /// The run: this control record and `records`, which are encoded. `bytes` is not looked at.
    pub(crate) fn encode(&self, records: &[u8]) -> Vec<u8> {
        let mut body = Writer::new();
        let all: usize = self.datasets.iter().map(|d| d.dims.len().saturating_add(3).saturating_mul(8)).sum();
        let bytes = RUN_HEAD_BYTES.saturating_add(all).saturating_add(records.len());
        for n in [
            KIND_RUN,
            VERSION,
            self.sequence,
            self.serial,
            bytes as u64,
            self.records,
            self.continued.into(),
            0,
            self.datasets.len() as u64,
        ] {
            body.u64(n);
        }
        for d in &self.datasets {
            for n in [d.id, d.element_size, d.dims.len() as u64].into_iter().chain(d.dims.iter().copied()) {
                body.u64(n);
            }
        }
        let mut w = Writer::new();
        write_control(&mut w, &body.into_bytes());
        w.bytes(records);
        let mut run = w.into_bytes();
        let checksum = u64::from(lookup3(&run, 0)).to_le_bytes();
        if let Some(place) = run.get_mut(CHECKSUM_AT..CHECKSUM_AT + 8) {
            place.copy_from_slice(&checksum);
        }
        run
    }

    /// Decodes the control record at the start of a run. Does not check the run.
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<RunHead> {
        let Some(body) = control(r)? else { return Err(r.corrupt("no control record")) };
        let mut b = Reader::new(body, NAME, r.address());
        let (kind, version) = (b.u64()?, b.u64()?);
        if (kind, version) != (KIND_RUN, VERSION) {
            return Err(r.corrupt(format!("control record {kind}, version {version}")));
        }
        let (sequence, serial, bytes, records) = (b.u64()?, b.u64()?, b.u64()?, b.u64()?);
        let (continued, _checksum) = (b.u64()? == 1, b.u64()?);
        let n = b.u64()?;
        if n > LIST_MAX {
            return Err(r.corrupt(format!("{n} datasets in a run")));
        }
        let mut datasets = Vec::new();
        for _ in 0..n {
            let (id, element_size, rank) = (b.u64()?, b.u64()?, b.u64()?);
            if rank > limits::RANK_MAX as u64 {
                return Err(r.corrupt(format!("rank {rank}")));
            }
            datasets.push(RunDataset { id, element_size, dims: (0..rank).map(|_| b.u64()).collect::<Result<_>>()? });
        }
        Ok(RunHead { sequence, serial, bytes, records, continued, datasets })
    }

    /// True if `run`, all bytes of a run, has the checksum that is in it.
    pub(crate) fn is_whole(run: &mut [u8]) -> bool {
        let Some(stored) = run.get(CHECKSUM_AT..CHECKSUM_AT + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes) else {
            return false;
        };
        if let Some(place) = run.get_mut(CHECKSUM_AT..CHECKSUM_AT + 8) {
            place.fill(0);
        }
        stored == u64::from(lookup3(run, 0))
    }
}

/// The body of the control record at the cursor; `None` if it is the record of a dataset.
fn control<'a>(r: &mut Reader<'a>) -> Result<Option<&'a [u8]>> {
    let begin = r.clone();
    let Ok(head) = Head::read(r, |id| (id == CONTROL_ID).then_some(1)) else {
        *r = begin;
        return Ok(None);
    };
    let bytes = head.selection.elements(1).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    r.bytes(bytes).map(Some)
}

/// Appends a control record of erased elements.
pub(crate) fn write_erased(w: &mut Writer, erased: &[Erased]) {
    let mut body = Writer::new();
    body.u64(KIND_ERASED).u64(erased.len() as u64);
    for e in erased {
        body.u64(e.dataset).u64(e.first).u64(e.count);
    }
    write_control(w, &body.into_bytes());
}

/// Consumes a control record of erased elements; `None`, and nothing is consumed, if another record
/// is at the cursor.
pub(crate) fn read_erased(r: &mut Reader<'_>) -> Result<Option<Vec<Erased>>> {
    let Some(body) = control(r)? else { return Ok(None) };
    let mut b = Reader::new(body, NAME, r.address());
    let (kind, n) = (b.u64()?, b.u64()?);
    if kind != KIND_ERASED || n > LIST_MAX {
        return Err(r.corrupt(format!("control record {kind} of {n} ranges")));
    }
    let one = |b: &mut Reader<'_>| Ok(Erased { dataset: b.u64()?, first: b.u64()?, count: b.u64()? });
    (0..n).map(|_| one(&mut b)).collect::<Result<_>>().map(Some)
}

/// Where a run may begin in `bytes`, from `from` on: its control record has this kind and version.
pub(crate) fn next_start(bytes: &[u8], from: usize) -> Option<usize> {
    let mark = [KIND_RUN.to_le_bytes(), VERSION.to_le_bytes()].concat();
    let body = from.checked_add(CONTROL_HEAD_BYTES)?;
    bytes.get(body..)?.windows(mark.len()).position(|window| window == mark)?.checked_add(from)
}

/// Bytes at the start of a run that [`probe`] needs.
pub(crate) const RUN_PROBE_BYTES: usize = CONTROL_HEAD_BYTES + 48;

/// Sequence number and length of the run that begins with `probe`; `None` if no run can.
pub(crate) fn probe(probe: &[u8]) -> Option<(u64, u64)> {
    let mut r = Reader::new(probe, NAME, Address::UNDEF);
    let head = Head::read(&mut r, |id| (id == CONTROL_ID).then_some(1)).ok()?;
    let body = head.selection.elements(1)?;
    let (kind, version, sequence, _serial, bytes) = (r.u64().ok()?, r.u64().ok()?, r.u64().ok()?, r.u64().ok()?, r.u64().ok()?);
    let least = body.checked_add(CONTROL_HEAD_BYTES as u64)?;
    ((kind, version) == (KIND_RUN, VERSION) && bytes >= least).then_some((sequence, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_round_trip_and_changes_are_found() {
        let datasets = vec![RunDataset { id: 3, element_size: 4, dims: vec![10, 20] }, RunDataset { id: 4, element_size: 8, dims: vec![] }];
        let head = RunHead { sequence: 7, serial: 2, bytes: 0, records: 1, continued: false, datasets };
        let mut records = Writer::new();
        let erased = [Erased { dataset: 3, first: 5, count: TO_THE_END }, Erased { dataset: 4, first: 0, count: 1 }];
        write_erased(&mut records, &erased);
        let records = records.into_bytes();
        let run = head.encode(&records);
        assert_eq!(probe(&run[..RUN_PROBE_BYTES]), Some((7, run.len() as u64)));
        let mut r = Reader::new(&run, NAME, Address(0));
        assert_eq!(RunHead::read(&mut r).unwrap(), RunHead { bytes: run.len() as u64, ..head });
        assert_eq!(read_erased(&mut r).unwrap().unwrap(), erased);
        assert!(RunHead::is_whole(&mut run.clone()));
        for i in 0..run.len() {
            let mut torn = run.clone();
            torn[i] ^= 1;
            assert!(!RunHead::is_whole(&mut torn), "byte {i}");
        }
    }
}
