//! Runs as they are stored: whole ones, and their records.

use crate::base::{Address, Error, Result, limits};
use crate::format::Reader;
use crate::format::log::record::{Head, NAME};
use crate::format::log::run::{Erased, RUN_PROBE_BYTES, RunDataset, RunHead, probe, read_erased};
use foldhash::HashMap;

/// Longest run, bytes.
pub(super) const RUN_BYTES_MAX: u64 = 1 << 30;

/// The run at the start of `left` bytes, if it is whole and has this sequence number, or any.
/// `read` reads from the first byte on.
pub(super) fn whole_run(left: u64, sequence: Option<u64>, read: &dyn Fn(&mut [u8]) -> Result<()>) -> Result<Option<(RunHead, Vec<u8>)>> {
    let mut start = [0; RUN_PROBE_BYTES];
    if left < start.len() as u64 {
        return Ok(None);
    }
    read(&mut start)?;
    let Some((found, bytes)) = probe(&start) else { return Ok(None) };
    if sequence.is_some_and(|sequence| sequence != found) || bytes > left.min(RUN_BYTES_MAX) {
        return Ok(None);
    }
    let mut run = vec![0; usize::try_from(bytes).unwrap_or(0)];
    read(&mut run)?;
    if !RunHead::is_whole(&mut run) {
        return Ok(None);
    }
    let head = RunHead::read(&mut Reader::new(&run, NAME, Address::UNDEF))?;
    Ok(Some((head, run)))
}

/// A record of a run.
pub(super) enum RunRecord {
    /// Elements were erased.
    Erased(Vec<Erased>),
    /// Elements were written: the head, offset of the data in the log dataset, its stored bytes.
    Written { head: Head, offset: u64, bytes: u64 },
}

/// Calls `f` with the records of a whole run, which begins at `offset` of its log dataset.
pub(super) fn each_record(head: &RunHead, run: &[u8], offset: u64, f: &mut dyn FnMut(RunRecord) -> Result<()>) -> Result<()> {
    let mut r = Reader::new(run, NAME, Address::UNDEF);
    RunHead::read(&mut r)?;
    let datasets: HashMap<u64, &RunDataset> = head.datasets.iter().map(|d| (d.id, d)).collect();
    for _ in 0..head.records {
        if let Some(erased) = read_erased(&mut r)? {
            f(RunRecord::Erased(erased))?;
            continue;
        }
        let record = Head::read(&mut r, |id| datasets.get(&id).map(|d| d.dims.len()))?;
        let Some(dataset) = datasets.get(&record.dataset) else { return Err(r.corrupt("a record of another dataset")) };
        let data = offset.saturating_add(r.position() as u64);
        let bytes = record.selection.elements(dataset.dims.len()).and_then(|n| n.checked_mul(dataset.element_size));
        let bytes = bytes.and_then(|n| usize::try_from(n).ok()).ok_or_else(|| r.corrupt("a record of 2^64 bytes"))?;
        let stored = if record.deflated { deflated_len(r.rest(), bytes)? } else { bytes };
        r.skip(stored)?;
        f(RunRecord::Written { head: record, offset: data, bytes: stored as u64 })?;
    }
    Ok(())
}

/// Length of the zlib stream at the start of `bytes`, which inflates to `expected` bytes.
fn deflated_len(bytes: &[u8], expected: usize) -> Result<usize> {
    let corrupt = |detail: &'static str| Error::corrupt(NAME, Address::UNDEF, detail);
    if expected as u64 > limits::CHUNK_BYTES_MAX {
        return Err(corrupt("a deflated record of more than 4 GiB"));
    }
    let mut inflate = flate2::Decompress::new(true);
    let mut out = vec![0u8; 64 << 10];
    loop {
        let from = usize::try_from(inflate.total_in()).unwrap_or(usize::MAX);
        let before = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(bytes.get(from..).unwrap_or_default(), &mut out, flate2::FlushDecompress::None);
        let status = status.map_err(|_| corrupt("a deflated record that does not inflate"))?;
        if inflate.total_out() > expected as u64 {
            return Err(corrupt("a deflated record of more bytes than it selects"));
        }
        if status == flate2::Status::StreamEnd {
            let whole = inflate.total_out() == expected as u64;
            return if whole {
                Ok(usize::try_from(inflate.total_in()).unwrap_or(usize::MAX))
            } else {
                Err(corrupt("a short deflated record"))
            };
        }
        if before == (inflate.total_in(), inflate.total_out()) {
            return Err(corrupt("a deflated record that ends early"));
        }
    }
}
