//! Moves live values out of packs that are mostly garbage, by an ordinary commit.
//!
//! The entries of the commit have no written ranges: they never conflict. A value that another
//! writer changes meanwhile is not moved.

use super::Run;
use super::mark::Writer;
use super::state::PackId;
use crate::base::Result;
use crate::iod::container::Outcome;
use crate::iod::objects::failed;
use crate::iod::record::{DELTA_MAX_BYTES, Delta, encode_delta};
use crate::iod::{Cell, Data, Entry, Key, PackWriter, Ranges, keys};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};

/// Values that one commit moves.
const MOVED_AT_ONCE: usize = 4096;

impl Run<'_> {
    /// See the module's description. False: another run got ahead.
    pub(super) fn rewrite_packs(&mut self) -> Result<bool> {
        if self.options.dry_run || self.is_held() {
            return Ok(true);
        }
        let before = (self.state.lengths.len(), self.state.rewritten.len());
        self.measure()?;
        let mut sparse = self.sparse();
        if !sparse.is_empty() && self.container.has_room().is_err() {
            self.note("packs of which less than half is needed stay as they are: the file system is nearly full".into());
            sparse.clear();
        }
        if !sparse.is_empty() {
            self.report.rewritten = sparse.len() as u64;
            self.move_values(&sparse)?;
            self.state.rewritten.extend(sparse);
        }
        if before == (self.state.lengths.len(), self.state.rewritten.len()) {
            return Ok(true);
        }
        self.state.publish(self.container.store())
    }

    /// Gets the lengths of new packs with live values, of ended sessions.
    fn measure(&mut self) -> Result<()> {
        let floor = self.state.floor();
        let is_new = |(pack, live): &(&PackId, &u64)| **live > 0 && floor.is_dead(pack.0) && !self.state.lengths.contains_key(*pack);
        let new: Vec<PackId> = self.state.base.iter().filter(is_new).map(|(pack, _)| *pack).collect();
        for pack in new {
            let name = keys::pack_name(pack.0, pack.1);
            if let Some(len) = self.container.store().head(&name).map_err(failed("read the length of a pack", pack.0))? {
                self.state.lengths.insert(pack, len);
            }
        }
        Ok(())
    }

    /// Packs of which less than half is live, only in versions from the floor on.
    fn sparse(&self) -> BTreeSet<PackId> {
        let state = &self.state;
        let is_sparse = |(pack, len): &(&PackId, &u64)| {
            let live = state.live(pack);
            live > 0 && live.saturating_mul(2) < **len && !state.tags.values().any(|table| table.contains_key(*pack))
        };
        let packs = state.lengths.iter().filter(is_sparse).map(|(pack, _)| *pack);
        packs.filter(|pack| !state.rewritten.contains(pack) && !state.doomed.contains_key(pack)).collect()
    }

    /// Moves the values of the newest version that are in `packs`. Reads its whole tree.
    fn move_values(&self, packs: &BTreeSet<PackId>) -> Result<()> {
        let mut writer = self.writer()?;
        let mut from = Bound::Unbounded;
        loop {
            let mut found: BTreeMap<Key, Cell> = BTreeMap::new();
            let flow = writer.snapshot.scan(self.container, &(from.clone(), Bound::Unbounded), &mut |key, cell| {
                if let Data::Extent(extent) = &cell.data
                    && packs.contains(&(extent.session, extent.pack))
                {
                    found.insert(key.to_vec(), cell.clone());
                }
                Ok(if found.len() < MOVED_AT_ONCE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
            let last = found.keys().next_back().cloned();
            self.move_cells(&mut writer, found)?;
            match last {
                Some(last) if flow.is_break() => from = Bound::Excluded(last),
                _ => return Ok(()),
            }
        }
    }

    fn move_cells(&self, writer: &mut Writer, found: BTreeMap<Key, Cell>) -> Result<()> {
        let mut packs = PackWriter::new(self.container, &writer.session);
        let mut moved: BTreeMap<Key, Cell> = BTreeMap::new();
        for (key, cell) in found {
            let data = Data::Extent(packs.add(&self.container.bytes(&cell)?)?);
            moved.insert(key, Cell { mask: cell.mask, data });
        }
        packs.finish()?;
        while !moved.is_empty() {
            let entry = |(key, cell): (&Key, &Cell)| Entry { key: key.clone(), cell: Some(cell.clone()), ranges: Ranges::default() };
            let entries: Vec<Entry> = moved.iter().map(entry).collect();
            let bytes = encode_delta(&entries)?;
            let delta = match bytes.len() > DELTA_MAX_BYTES {
                true => {
                    let extent = packs.add(&bytes)?;
                    packs.finish()?;
                    Delta::Extent(extent)
                }
                false => Delta::Inline(entries.clone()),
            };
            let record = self.container.record(&writer.snapshot, writer.session.number(), false, delta)?;
            if let Outcome::Committed(hash) = self.container.append(&writer.snapshot, &record)? {
                writer.snapshot.advance(&record, hash, &entries)?;
                break;
            }
            while let Some((_, entries)) = self.container.next(&mut writer.snapshot)? {
                entries.iter().for_each(|entry| drop(moved.remove(&entry.key)));
            }
        }
        Ok(())
    }
}
