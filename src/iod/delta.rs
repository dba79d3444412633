//! What a commit changes.
//!
//! ```text
//! delta   count u32 | entries, ascending by key
//! entry   key length u16 | key | 0 removed, 1 stored | [cell] |
//!         0 all bytes, 1 ranges | [count u32 | (start u32 | end u32) ...]
//! ```

use super::cell::Cell;
use super::keys::{KEY_MAX, Key};
use super::limits::DELTA_ENTRIES_MAX;
use super::ranges::Ranges;
use crate::base::Result;
use crate::format::{Reader, Writer};

/// A change of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// The new value; `None`: removed.
    pub cell: Option<Cell>,
    /// Bytes of a chunk that were written.
    pub ranges: Ranges,
}

impl Entry {
    /// True if the bytes of the value are the same, in another place.
    pub fn is_moved(&self) -> bool {
        self.cell.is_some() && !self.ranges.is_whole() && self.ranges.list().is_empty()
    }
}

/// Appends a delta.
pub fn write(entries: &[Entry], w: &mut Writer) {
    w.uint(entries.len() as u64, 4);
    for entry in entries {
        w.uint(entry.key.len() as u64, 2).bytes(&entry.key).u8(entry.cell.is_some().into());
        if let Some(cell) = &entry.cell {
            cell.write(w);
        }
        w.u8((!entry.ranges.is_whole()).into());
        if !entry.ranges.is_whole() {
            w.uint(entry.ranges.list().len() as u64, 4);
            for (start, end) in entry.ranges.list() {
                w.u32(*start).u32(*end);
            }
        }
    }
}

/// Reads a delta.
pub fn read(r: &mut Reader<'_>) -> Result<Vec<Entry>> {
    let count = r.u32()?;
    if count as usize > DELTA_ENTRIES_MAX {
        return Err(r.corrupt(format!("a delta of {count} entries, of {DELTA_ENTRIES_MAX} at most")));
    }
    // An entry has at least 4 bytes.
    let mut entries: Vec<Entry> = Vec::with_capacity((count as usize).min(r.remaining() / 4));
    for _ in 0..count {
        let len = usize::from(r.u16()?);
        let key = r.bytes(len)?.to_vec();
        if key.len() > KEY_MAX || entries.last().is_some_and(|last| last.key >= key) {
            return Err(r.corrupt("keys do not ascend"));
        }
        let cell = if flag(r)? { Some(Cell::read(r)?) } else { None };
        let ranges = if flag(r)? { ranges(r)? } else { Ranges::whole() };
        entries.push(Entry { key, cell, ranges });
    }
    Ok(entries)
}

fn flag(r: &mut Reader<'_>) -> Result<bool> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        n => Err(r.corrupt(format!("flag {n}"))),
    }
}

fn ranges(r: &mut Reader<'_>) -> Result<Ranges> {
    let count = r.u32()?;
    let mut pairs = r.sub((count as usize).saturating_mul(8))?;
    let list = (0..count).map(|_| Ok((pairs.u32()?, pairs.u32()?))).collect::<Result<_>>()?;
    Ranges::of(list).ok_or_else(|| r.corrupt("ranges do not ascend"))
}
