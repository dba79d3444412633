//! Stored lengths of deflated records, which their index entries lack.
//!
//! They follow the index entries of a dataset, as entries of dataset 0: the coordinates of the
//! points are the lengths of the next deflated entries, the number of the log dataset is the
//! dataset that they are of, the offset is the number of its deflated entries before them.

use super::dataset::LogGroup;
use super::pages::{Pages, Stream};
use crate::base::{Address, Result};
use crate::dataset::environment::Environment;
use crate::format::Reader;
use crate::format::log::record::{CONTROL_ID, Head, IndexEntry, Selection};
use std::collections::VecDeque;
use std::sync::Arc;

/// Lengths of one entry.
const IN_ENTRY: usize = 1024;
/// Bytes of an entry beside its lengths.
const ENTRY_BYTES: u64 = 44;
/// Lengths in memory while an index is written, bytes.
const IN_MEMORY: usize = 64 << 10;

/// Lengths to be written.
#[derive(Default)]
pub(super) struct NewLengths {
    all: Stream,
    pages: Arc<Pages>,
}

impl NewLengths {
    /// Adds the length of the next deflated entry.
    pub(super) fn add(&mut self, length: u32) -> Result<()> {
        self.all.put(&length.to_le_bytes());
        if self.all.in_memory() >= IN_MEMORY { self.all.spill(&self.pages) } else { Ok(()) }
    }

    /// Passes the entries that follow those of the dataset `id` to `put`.
    pub(super) fn write(&self, id: u64, put: &mut dyn FnMut(&IndexEntry) -> Result<()>) -> Result<()> {
        let mut before = 0u64;
        for piece in self.all.pieces() {
            for bytes in piece?.chunks(IN_ENTRY * 4) {
                let numbers = bytes.chunks_exact(4).filter_map(|b| Some(u32::from_le_bytes(b.try_into().ok()?).into()));
                let selection = Selection::Points(numbers.collect());
                put(&IndexEntry { head: Head { dataset: CONTROL_ID, selection, deflated: false }, log: id, offset: before })?;
                before = before.saturating_add(bytes.len() as u64 / 4);
            }
        }
        Ok(())
    }
}

/// Lengths that are read along with the entries.
pub(super) struct Lengths<'a> {
    environment: &'a Environment,
    group: &'a LogGroup,
    id: u64,
    /// Where the next entry is; `None`: there is none.
    at: Option<u64>,
    before: u64,
    next: VecDeque<u64>,
}

impl<'a> Lengths<'a> {
    /// Lengths of the dataset `id`, whose entries end at `at` of the index table.
    pub(super) fn new(environment: &'a Environment, group: &'a LogGroup, id: u64, at: Option<u64>) -> Self {
        Lengths { environment, group, id, at, before: 0, next: VecDeque::new() }
    }

    /// The length of the next deflated entry; 0: not known.
    pub(super) fn next(&mut self) -> u32 {
        if self.next.is_empty() {
            self.at = self.read().ok().flatten();
        }
        self.before = self.before.saturating_add(1);
        self.next.pop_front().and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
    }

    /// Reads the next entry; returns its end.
    fn read(&mut self) -> Result<Option<u64>> {
        let (Some(at), Some(table)) = (self.at, &self.group.index) else { return Ok(None) };
        let len = table.size.saturating_sub(at).min(ENTRY_BYTES.saturating_add(IN_ENTRY as u64 * 8));
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        table.read(self.environment, at, &mut bytes)?;
        let mut r = Reader::new(&bytes, "log index", Address::UNDEF);
        let entry = IndexEntry::read(&mut r, CONTROL_ID, 1)?;
        match entry.head.selection {
            Selection::Points(lengths) if (entry.log, entry.offset) == (self.id, self.before) => {
                self.next = lengths.into();
                Ok(at.checked_add(r.position() as u64))
            }
            _ => Ok(None),
        }
    }
}
