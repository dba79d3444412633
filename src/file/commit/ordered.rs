//! Commit while readers without locks have the file open: the superblock is never marked.
//!
//! 1. New bytes and the file's length are durable.
//! 2. The superblock records the new EOF, so that it covers all that is referenced later.
//! 3. The changed sectors go to the journal, durable.
//! 4. New bytes that share a sector with changed ones are written.
//! 5. Changed live bytes are replaced by level (`file::write_order`), each structure by one write.
//!
//! After every write a reader finds structures that refer to complete ones. After a crash the
//! journal completes the commit, because a structure longer than a sector may be half on the disk.

use super::{Failed, Root, SECTOR, Transaction, after_mark, before, disarm, without_sector};
use crate::file::journal::Journal;
use crate::file::{WriteDriver, read_all};
use std::io;
use std::ops::Range;
use std::sync::Arc;

impl Transaction {
    /// Publishes the changes of live bytes in order. Fresh bytes are durable.
    pub(super) fn publish_in_order(
        &self,
        journal: &mut Option<Arc<dyn WriteDriver>>,
        root: &Root,
        eof: u64,
        nonce: u64,
    ) -> Result<(), Failed> {
        if eof != self.state.read().recorded_eof {
            self.publish(&root.extended, root.offset)?;
            let mut state = self.state.write();
            state.overlay.update_kept(root.offset, &root.extended);
            state.recorded_eof = eof;
        }
        let sectors = self.state.read().overlay.sectors();
        if sectors.is_empty() {
            return Ok(());
        }
        let mut first = vec![0u8; SECTOR as usize];
        read_all(&*self.driver, &mut first, root.offset).map_err(before)?;
        self.state.read().overlay.patch(root.offset, &mut first);
        let changes = Journal {
            owner: self.driver.status().map_err(before)?.identity,
            nonce,
            root: root.offset,
            marked: first.clone(),
            settled: first,
            records: without_sector(sectors, root.offset),
            free_record: self.state.read().free_record.place(),
        };
        let encoded = changes.encode_ordered();
        let file = self.arm(journal, &encoded)?;
        self.replace_in_order().and_then(|()| self.driver.sync()).map_err(after_mark)?;
        disarm(&*file, &changes, encoded.len() as u64);
        Ok(())
    }

    fn replace_in_order(&self) -> io::Result<()> {
        let (fresh, ordered) = {
            let state = self.state.read();
            let changed = state.overlay.changed();
            let parts = changed.into_iter().flat_map(|range| state.space.split_fresh(range));
            let fresh: Vec<_> = parts.filter(|(_, fresh)| *fresh).map(|(part, _)| part).collect();
            (fresh, state.order.as_ref().map(|order| order.ranges()).unwrap_or_default())
        };
        fresh.into_iter().chain(ordered).try_for_each(|range| self.replace(range))
    }

    /// Writes the present bytes of `range` by one write.
    fn replace(&self, range: Range<u64>) -> io::Result<()> {
        let mut bytes = vec![0u8; usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0)];
        let state = self.state.read();
        if !state.overlay.read(range.start, &mut bytes) {
            read_all(&*self.driver, &mut bytes, range.start)?;
            state.overlay.patch(range.start, &mut bytes);
        }
        drop(state);
        self.driver.write_at(&bytes, range.start)
    }
}
