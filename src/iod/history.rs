//! What changed between two versions, and commits that restore an earlier version.

use super::cell::{Cell, Data};
use super::container::{Container, Outcome};
use super::delta::Entry;
use super::gc::state::Floor;
use super::keys::{self, Key};
use super::ranges::Ranges;
use super::record::{self, DELTA_MAX_BYTES, Delta};
use super::session::{PackWriter, Session};
use super::snapshot::Snapshot;
use crate::base::Result;
use std::collections::BTreeMap;

/// Keys that changed, each with the bytes of the chunk that records wrote.
pub type Touched = BTreeMap<Key, Ranges>;

impl Container {
    /// Keys that changed between two versions, in either order. Costs the records between both, or
    /// what [`Snapshot::differing`] does if garbage collection removed some of them.
    pub fn touched(&self, a: &Snapshot, b: &Snapshot) -> Result<Touched> {
        let (first, last) = if a.version() <= b.version() { (a, b) } else { (b, a) };
        let mut touched = Touched::new();
        if self.add_between(&mut touched, first, last)? {
            // Values that garbage collection moved, and no record wrote.
            touched.retain(|_, ranges| ranges.is_whole() || !ranges.list().is_empty());
            return Ok(touched);
        }
        let mut moved = Vec::new();
        for key in touched.keys() {
            if self.is_moved(&first.get(self, key)?, &last.get(self, key)?) {
                moved.push(key.clone());
            }
        }
        moved.iter().for_each(|key| drop(touched.remove(key)));
        Ok(touched)
    }

    /// Adds the keys that changed between two versions; false: by their trees, as records are gone.
    fn add_between(&self, touched: &mut Touched, first: &Snapshot, last: &Snapshot) -> Result<bool> {
        let Err(e) = self.add_touched(touched, first.version(), last.version()) else { return Ok(true) };
        let floor = Floor::newest(self.store())?.map_or(0, |floor| floor.version);
        if floor <= first.version().saturating_add(1) {
            return Err(e);
        }
        tracing::debug!("versions {} and {} are compared by their trees: {e}", first.version(), last.version());
        *touched = first.differing(self, last)?.into_iter().map(|key| (key, Ranges::whole())).collect();
        Ok(false)
    }

    /// True if two values have the same bytes in two places.
    fn is_moved(&self, first: &Option<Cell>, last: &Option<Cell>) -> bool {
        let (Some(first), Some(last)) = (first, last) else { return false };
        let (Data::Extent(a), Data::Extent(b)) = (&first.data, &last.data) else { return false };
        let is_alike = first.mask == last.mask && (a.len, a.checksum) == (b.len, b.checksum);
        is_alike && matches!((self.read(a), self.read(b)), (Ok(a), Ok(b)) if a == b)
    }

    fn add_touched(&self, touched: &mut Touched, first: u64, last: u64) -> Result<()> {
        self.each_record(first, last, &mut |_, _, entries| {
            entries.into_iter().for_each(|entry| note(touched, entry));
            Ok(())
        })
    }

    /// Commits a version with the values of the version `earlier`, and makes `snapshot` that
    /// version; false: `snapshot`, the newest version, has them already. Later records stay.
    ///
    /// After another writer's commit the changes of that one are reverted as well. Errors: `ESTALE`
    /// if garbage collection may delete the version `earlier`, and so the bytes of its values.
    pub fn revert(&self, snapshot: &mut Snapshot, session: &Session, earlier: &Snapshot) -> Result<bool> {
        let mut touched = Touched::new();
        let mut seen = None;
        loop {
            while self.next(snapshot)?.is_some() {}
            self.check_kept(earlier.version(), "revert to a later version")?;
            match seen.replace(snapshot.version()) {
                Some(seen) => self.add_touched(&mut touched, seen, snapshot.version())?,
                None => drop(self.add_between(&mut touched, earlier, snapshot)?),
            }
            let entries = self.restoring(&touched, snapshot, earlier)?;
            if entries.is_empty() {
                return Ok(false);
            }
            // A record does not say which links led to groups: it counts as one that moved some.
            let moves_group = entries.iter().any(|e| keys::parts(&e.key).is_some_and(|(_, kind, _)| kind == keys::LINK));
            let delta = self.placed_delta(session, &entries)?;
            let record = self.record(snapshot, session.number(), moves_group, delta)?;
            if let Outcome::Committed(hash) = self.append(snapshot, &record)? {
                snapshot.advance(&record, hash, &entries)?;
                return Ok(true);
            }
        }
    }

    /// The changes that give the keys of `touched` their values in `earlier`.
    fn restoring(&self, touched: &Touched, now: &Snapshot, earlier: &Snapshot) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for key in touched.keys() {
            let cell = earlier.get(self, key)?;
            if cell != now.get(self, key)? {
                entries.push(Entry { key: key.clone(), cell, ranges: Ranges::whole() });
            }
        }
        Ok(entries)
    }

    /// A delta, in a pack if it is long.
    fn placed_delta(&self, session: &Session, entries: &[Entry]) -> Result<Delta> {
        let bytes = record::encode_delta(entries)?;
        if bytes.len() <= DELTA_MAX_BYTES {
            return Ok(Delta::Inline(entries.to_vec()));
        }
        let mut packs = PackWriter::new(self, session);
        let extent = packs.add(&bytes)?;
        packs.settle()?;
        Ok(Delta::Extent(extent))
    }

    /// `snapshot` with a newer checkpoint below it, if there is one: fewer changes are in memory.
    pub fn rebased(&self, snapshot: &Snapshot) -> Result<Option<Snapshot>> {
        let mut newer = self.checkpoint_up_to(snapshot.version())?;
        if newer.version() <= snapshot.checkpoint() {
            return Ok(None);
        }
        self.advance_to(&mut newer, snapshot.version())?;
        Ok(Some(newer))
    }
}

/// Adds what a record changed.
fn note(touched: &mut Touched, entry: Entry) {
    let Entry { key, ranges, .. } = entry;
    match touched.get_mut(&key) {
        Some(there) if ranges.is_whole() => *there = ranges,
        Some(there) if !there.is_whole() => {
            ranges.list().iter().for_each(|(start, end)| there.add(u64::from(*start)..u64::from(*end)));
        }
        Some(_) => {}
        None => drop(touched.insert(key, ranges)),
    }
}
