//! Reads elements that are apart.

use crate::base::value::list_of;
use crate::base::{Error, Result};
use crate::connector::{Connector, ObjectId, Value};
use std::ops::Range;

/// Bytes between two runs that are read together.
const GAP_BYTES: u64 = 4 << 10;
/// Most bytes that are read together, unless one run has more.
const TOGETHER_BYTES: u64 = 1 << 20;

/// Reads the elements of `runs`, numbers in row-major order, as a list in their order.
///
/// `None`: there are none. The caller bounds their bytes. Runs near each other are read together.
pub(super) fn gather(connector: &dyn Connector, id: ObjectId, runs: &[Range<u64>]) -> Result<Option<Value>> {
    if let [run] = runs {
        return connector.elements_in(id, run.clone()).map(Some);
    }
    let Some(one) = runs.first() else { return Ok(None) };
    // Where each run begins in the list.
    let mut starts = Vec::with_capacity(runs.len());
    let mut total = 0u64;
    for run in runs {
        starts.push(total);
        total = total.saturating_add(run.end.saturating_sub(run.start));
    }
    let mut order: Vec<usize> = (0..runs.len()).collect();
    if !runs.is_sorted_by_key(|run| run.start) {
        order.sort_by_key(|n| runs.get(*n).map(|run| run.start));
    }
    let mut all = connector.elements_in(id, one.start..one.start)?;
    let size = all.datatype.element_size().max(1);
    let len = total.checked_mul(size).and_then(|n| usize::try_from(n).ok());
    all.bytes = vec![0; len.ok_or_else(|| Error::refused(libc::EFBIG, "selected elements that are more than the memory"))?];
    all.shape = list_of(&(0..total));
    let at = |n: u64| usize::try_from(n.saturating_mul(size)).unwrap_or(usize::MAX);
    let mut rest = order.as_slice();
    while let Some(first) = rest.first().and_then(|n| runs.get(*n)) {
        let mut block = first.clone();
        let near = |run: &Range<u64>, block: &Range<u64>| {
            run.start.saturating_sub(block.end).saturating_mul(size) <= GAP_BYTES
                && run.end.saturating_sub(block.start).saturating_mul(size) <= TOGETHER_BYTES
        };
        let mut n = 0usize;
        while let Some(run) = rest.get(n).and_then(|n| runs.get(*n))
            && (n == 0 || near(run, &block))
        {
            block.end = block.end.max(run.end);
            n = n.saturating_add(1);
        }
        let (together, later) = rest.split_at_checked(n).unwrap_or((rest, &[]));
        let read = connector.elements_in(id, block.clone())?;
        for number in together {
            let (Some(run), Some(start)) = (runs.get(*number), starts.get(*number)) else { continue };
            let from = read.bytes.get(at(run.start.saturating_sub(block.start))..at(run.end.saturating_sub(block.start)));
            let to = all.bytes.get_mut(at(*start)..at(start.saturating_add(run.end.saturating_sub(run.start))));
            match from.zip(to).filter(|(from, to)| from.len() == to.len()) {
                Some((from, to)) => to.copy_from_slice(from),
                None => return Err(Error::refused(libc::ESTALE, "the dataset became shorter")),
            }
        }
        rest = later;
    }
    Ok(Some(all))
}
