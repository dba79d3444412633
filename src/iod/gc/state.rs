//! State of garbage collection `g/<n>`, created once: what is kept, and what will be deleted.
//!
//! ```text
//! "H5IODG1\n" | n u64 | newest version with changes u64 | accounted version u64 |
//! sessions below are ended u64 | count u32, sessions below that are not ended u64 each |
//! count u32, floors: version u64, seconds u64 | swept floor u64 |
//! count u32, doomed packs: session u64, pack u32, seconds u64 |
//! count u32, leftovers: name length u16, name, seconds u64 |
//! table of the floor | table of later records | count u32, tags: version u64, table |
//! table of lengths | count u32, rewritten packs: session u64, pack u32 | checksum u32
//! table  count u32 | session u64, pack u32, bytes u64 each
//! ```
//!
//! Seconds are those since 1970 at which the item was published. A table has the bytes of packs
//! that are referenced; extents that several values have count several times.

use crate::base::request_error::is_absent;
use crate::base::{Error, Result};
use crate::file::store::ObjectStore;
use crate::format::{Reader, Writer};
use crate::iod::objects::failed;
use crate::iod::{keys, sealed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SIGNATURE: &[u8; 8] = b"H5IODG1\n";
/// Longest state, bytes.
const STATE_MAX_BYTES: u64 = 1 << 30;
/// Attempts to read the newest state while others replace it.
const ATTEMPTS: usize = 8;

/// Session and number of a pack.
pub type PackId = (u64, u32);
/// Referenced bytes of packs.
pub type Table = BTreeMap<PackId, u64>;

/// What writers check: the oldest version that is kept, and the sessions that ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Floor {
    /// The oldest version that is kept, but for tags.
    pub version: u64,
    /// Sessions below have ended.
    pub dead_below: u64,
    /// But for these.
    pub alive: BTreeSet<u64>,
}

impl Floor {
    /// The published one; `None`: garbage was never collected.
    pub fn newest(store: &Arc<dyn ObjectStore>) -> Result<Option<Floor>> {
        Ok(GcState::newest(store)?.map(|state| state.floor()))
    }

    /// True if the session counts as ended.
    pub fn is_dead(&self, session: u64) -> bool {
        session != 0 && session < self.dead_below && !self.alive.contains(&session)
    }
}

/// See the module's description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcState {
    /// Its number, from 1 on; 0: it is not stored.
    pub number: u64,
    /// The newest version that changed something.
    pub changed: u64,
    /// Records up to this version are in the tables.
    pub accounted: u64,
    /// Sessions below have ended.
    pub dead_below: u64,
    /// But for these.
    pub alive: BTreeSet<u64>,
    /// Published floors that are not swept yet, and the last one; ascending.
    pub floors: Vec<(u64, u64)>,
    /// What is below this version was deleted.
    pub swept: u64,
    /// Packs to delete, and since when.
    pub doomed: BTreeMap<PackId, u64>,
    /// Objects of unfinished transactions and of the queue, and when they were first seen.
    pub leftovers: BTreeMap<String, u64>,
    /// References of the version of the floor.
    pub base: Table,
    /// References of the records after it.
    pub recent: Table,
    /// References of tagged versions before it.
    pub tags: BTreeMap<u64, Table>,
    /// Lengths of packs of ended sessions.
    pub lengths: Table,
    /// Packs whose live bytes were moved.
    pub rewritten: BTreeSet<PackId>,
}

impl GcState {
    /// The oldest version that is kept, but for tags; 0: none was published.
    pub fn floor_version(&self) -> u64 {
        self.floors.last().map_or(0, |(version, _)| *version)
    }

    /// Referenced bytes of a pack.
    pub fn live(&self, pack: &PackId) -> u64 {
        let of = |table: &Table| table.get(pack).copied().unwrap_or(0);
        self.tags.values().map(of).fold(of(&self.base).saturating_add(of(&self.recent)), u64::saturating_add)
    }

    /// What writers check.
    pub fn floor(&self) -> Floor {
        Floor { version: self.floor_version(), dead_below: self.dead_below, alive: self.alive.clone() }
    }

    /// The stored one; `None`: garbage was never collected.
    pub fn newest(store: &Arc<dyn ObjectStore>) -> Result<Option<GcState>> {
        for _ in 0..ATTEMPTS {
            let names = store.list_after(keys::STATES, "").map_err(failed("list the states of garbage collection", 0))?;
            let Some(number) = names.iter().filter_map(|name| keys::version_of(name)).max() else { return Ok(None) };
            match store.get(&keys::state_name(number), 0..STATE_MAX_BYTES) {
                // A newer one replaced it.
                Err(e) if is_absent(&e) => {}
                read => return GcState::decode(&read.map_err(failed("read the state of garbage collection", number))?, number).map(Some),
            }
        }
        Err(Error::refused(libc::EAGAIN, "the state of garbage collection changes all the time; try again"))
    }

    /// Stores it as the next state; false: another run stored one.
    pub fn publish(&mut self, store: &Arc<dyn ObjectStore>) -> Result<bool> {
        let number = self.number.saturating_add(1);
        let (name, next) = (keys::state_name(number), GcState { number, ..self.clone() });
        store.settle().map_err(failed("write the state of garbage collection", number))?;
        let bytes = next.encode();
        let created = store.create(&name, &bytes);
        let is_ours = match created {
            Ok(created) => created,
            // The reply may be lost.
            Err(e) => match store.get(&name, 0..STATE_MAX_BYTES) {
                Ok(found) if found == bytes => true,
                _ => return Err(failed("write the state of garbage collection", number)(e)),
            },
        };
        let names = store.list_after(keys::STATES, "").map_err(failed("list the states of garbage collection", 0))?;
        let numbers: Vec<u64> = names.iter().filter_map(|name| keys::version_of(name)).collect();
        // A number that was removed can be created again: a greater one is there then.
        if !is_ours || numbers.iter().any(|n| *n > number) {
            return Ok(false);
        }
        for old in numbers.into_iter().filter(|n| *n < number) {
            store.delete(&keys::state_name(old)).map_err(failed("delete a state of garbage collection", old))?;
        }
        *self = next;
        Ok(true)
    }

    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = sealed::begin(SIGNATURE);
        w.u64(self.number).u64(self.changed).u64(self.accounted).u64(self.dead_below);
        count(&mut w, self.alive.len());
        for session in &self.alive {
            w.u64(*session);
        }
        count(&mut w, self.floors.len());
        for (version, seconds) in &self.floors {
            w.u64(*version).u64(*seconds);
        }
        w.u64(self.swept);
        count(&mut w, self.doomed.len());
        for ((session, pack), seconds) in &self.doomed {
            w.u64(*session).u32(*pack).u64(*seconds);
        }
        count(&mut w, self.leftovers.len());
        for (name, seconds) in &self.leftovers {
            w.uint(name.len() as u64, 2).bytes(name.as_bytes()).u64(*seconds);
        }
        write_table(&mut w, &self.base);
        write_table(&mut w, &self.recent);
        count(&mut w, self.tags.len());
        for (version, table) in &self.tags {
            w.u64(*version);
            write_table(&mut w, table);
        }
        write_table(&mut w, &self.lengths);
        count(&mut w, self.rewritten.len());
        for (session, pack) in &self.rewritten {
            w.u64(*session).u32(*pack);
        }
        sealed::end(w)
    }

    /// Decodes state `number`.
    pub fn decode(bytes: &[u8], number: u64) -> Result<GcState> {
        let mut r = sealed::open(bytes, SIGNATURE, "state of garbage collection", number)?;
        if r.u64()? != number {
            return Err(r.corrupt("it has another number"));
        }
        let (changed, accounted, dead_below) = (r.u64()?, r.u64()?, r.u64()?);
        let alive = list(&mut r, |r| r.u64())?.into_iter().collect();
        let floors = list(&mut r, |r| Ok((r.u64()?, r.u64()?)))?;
        if floors.is_empty() || !floors.is_sorted_by_key(|(version, _)| *version) {
            return Err(r.corrupt("its floors do not ascend"));
        }
        let swept = r.u64()?;
        let doomed = list(&mut r, |r| Ok(((r.u64()?, r.u32()?), r.u64()?)))?.into_iter().collect();
        let leftovers = list(&mut r, leftover)?.into_iter().collect();
        let (base, recent) = (table(&mut r)?, table(&mut r)?);
        let tags = list(&mut r, |r| Ok((r.u64()?, table(r)?)))?.into_iter().collect();
        let lengths = table(&mut r)?;
        let rewritten = list(&mut r, |r| Ok((r.u64()?, r.u32()?)))?.into_iter().collect();
        sealed::finish(&r)?;
        Ok(GcState {
            number,
            changed,
            accounted,
            dead_below,
            alive,
            floors,
            swept,
            doomed,
            leftovers,
            base,
            recent,
            tags,
            lengths,
            rewritten,
        })
    }
}

fn leftover(r: &mut Reader<'_>) -> Result<(String, u64)> {
    let len = usize::from(r.u16()?);
    let bytes = r.bytes(len)?.to_vec();
    let name = String::from_utf8(bytes).map_err(|_| r.corrupt("a name is no UTF-8"))?;
    Ok((name, r.u64()?))
}

fn count(w: &mut Writer, len: usize) {
    w.uint(len as u64, 4);
}

/// A list with its count: each item has bytes, so that the count allocates nothing.
fn list<T>(r: &mut Reader<'_>, read: impl Fn(&mut Reader<'_>) -> Result<T>) -> Result<Vec<T>> {
    let count = r.u32()?;
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(read(r)?);
    }
    Ok(all)
}

fn table(r: &mut Reader<'_>) -> Result<Table> {
    Ok(list(r, |r| Ok(((r.u64()?, r.u32()?), r.u64()?)))?.into_iter().collect())
}

fn write_table(w: &mut Writer, table: &Table) {
    count(w, table.len());
    for ((session, pack), bytes) in table {
        w.u64(*session).u32(*pack).u64(*bytes);
    }
}
