//! Pin `p/<uuid>`: garbage collection keeps the version that a mount is based on.
//!
//! ```text
//! "H5IODK1\n" | version u64 | version of the checkpoint below it u64 |
//! session u64, 0 of a reader | packs without uncommitted bytes u32 | seconds since 1970 u64 |
//! seconds that it lasts u32 | label length u16, label | checksum u32
//! ```
//!
//! A pin is written again at half its life. A writer whose pin is over reads the floor of garbage
//! collection before and after it creates a record: the number may be that of a removed record.

use super::gc::state::Floor;
use super::objects::{Objects, failed};
use super::origin::{label, now, uuid};
use super::record::LABEL_MAX;
use super::rules::Rule;
use super::snapshot::Pinned;
use super::{keys, sealed};
use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

const SIGNATURE: &[u8; 8] = b"H5IODK1\n";
/// Seconds that a pin lasts without being renewed, by default.
pub const PIN_SECONDS: u32 = 3600;
/// Longest stored pin, bytes.
pub const PIN_MAX_BYTES: u64 = 4096;

/// A pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The version that is kept, with all later ones.
    pub version: u64,
    /// The checkpoint whose tree is read.
    pub checkpoint: u64,
    /// Session of a writer; 0: a reader.
    pub session: u64,
    /// Packs of the session before this one have no uncommitted bytes.
    pub settled: u32,
    /// When it was written, seconds since 1970, by the clock of its mount.
    pub seconds: u64,
    /// How long it lasts, seconds.
    pub lasts: u32,
    /// Text of its mount.
    pub label: Vec<u8>,
}

impl Pin {
    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = sealed::begin(SIGNATURE);
        let label = self.label.get(..self.label.len().min(LABEL_MAX)).unwrap_or_default();
        w.u64(self.version).u64(self.checkpoint).u64(self.session).u32(self.settled).u64(self.seconds).u32(self.lasts);
        w.uint(label.len() as u64, 2).bytes(label);
        sealed::end(w)
    }

    /// Decodes a pin.
    pub fn decode(bytes: &[u8]) -> Result<Pin> {
        let mut r = sealed::open(bytes, SIGNATURE, "pin", 0)?;
        let (version, checkpoint, session) = (r.u64()?, r.u64()?, r.u64()?);
        let (settled, seconds, lasts) = (r.u32()?, r.u64()?, r.u32()?);
        let len = usize::from(r.u16()?);
        let label = r.bytes(len)?.to_vec();
        if label.len() > LABEL_MAX {
            return Err(r.corrupt("the label is too long"));
        }
        sealed::finish(&r)?;
        Ok(Pin { version, checkpoint, session, settled, seconds, lasts, label })
    }

    /// True if it counts at `now`, with `grace` for the difference of two clocks.
    pub fn lasts_at(&self, now: u64, grace: u64) -> bool {
        self.seconds.saturating_add(self.lasts.into()).saturating_add(grace) > now
    }
}

/// Time since the machine started, also while it is suspended.
fn boot_time() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// The pin of an open container.
#[derive(Debug, Default)]
pub(super) struct Lease(Mutex<Held>);

#[derive(Debug)]
struct Held {
    /// Name of the pin; `None`: nothing is pinned.
    name: Option<String>,
    session: u64,
    lasts: u32,
    /// The container is not used any more.
    is_closed: bool,
    /// The pin counts before this time.
    valid_until: Duration,
}

impl Default for Held {
    fn default() -> Held {
        Held { name: None, session: 0, lasts: PIN_SECONDS, is_closed: false, valid_until: Duration::ZERO }
    }
}

impl Lease {
    /// Another one, whose pins last as long.
    pub(super) fn beside(&self) -> Lease {
        let lasts = self.0.lock().lasts;
        Lease(Mutex::new(Held { lasts, ..Held::default() }))
    }

    /// Sets how long pins last from the next one on.
    pub(super) fn set_seconds(&self, lasts: u32) {
        self.0.lock().lasts = lasts;
    }

    /// The session that is pinned; 0: none.
    pub(super) fn session(&self) -> u64 {
        self.0.lock().session
    }

    /// Time after which the pin is to be renewed.
    pub(super) fn period(&self) -> Duration {
        Duration::from_secs(self.0.lock().lasts.into()) / 2
    }

    fn is_valid(&self) -> bool {
        let held = self.0.lock();
        held.name.is_some() && boot_time() < held.valid_until
    }

    /// Pins `base`, that of `session` or of a reader, or renews the pin. Errors: `ESTALE` if
    /// garbage collection goes past the version, or counts the session as ended.
    pub(super) fn write(&self, objects: &Objects, base: Pinned, session: u64, settled: u32) -> Result<()> {
        let (name, before, lasts) = {
            let mut held = self.0.lock();
            if held.is_closed {
                return Ok(());
            }
            let name = match &held.name {
                Some(name) if boot_time() < held.valid_until => name.clone(),
                // Garbage collection may be about to delete a pin that is over.
                _ => keys::pin_name(&uuid()?),
            };
            held.session = session;
            (name.clone(), held.name.replace(name), held.lasts)
        };
        let (Pinned { version, checkpoint }, label) = (base, label());
        let begin = boot_time();
        let pin = Pin { version, checkpoint, session, settled, seconds: now(), lasts, label };
        let bytes = pin.encode();
        objects.again("write a pin", || objects.store().put(&name, &bytes))?;
        // Garbage collection lists pins after it published a floor: one of both sees the other.
        if let Err(e) = check_floor(objects, version, session) {
            if before.is_none() || is_stale(&e) {
                // It protects nothing, and would hold garbage collection up.
                let _ = objects.store().delete(&name);
            }
            return Err(e);
        }
        if let Some(before) = before.filter(|before| *before != name) {
            let _ = objects.store().delete(&before);
        }
        self.0.lock().valid_until = begin.saturating_add(Duration::from_secs(lasts.into()) / 8 * 7);
        Ok(())
    }

    /// Removes the pin, if there is one. Nothing is pinned any more.
    pub(super) fn end(&self, objects: &Objects) -> Result<()> {
        let name = {
            let mut held = self.0.lock();
            held.is_closed = true;
            held.name.take()
        };
        name.map_or(Ok(()), |name| objects.store().delete(&name).map_err(failed("remove a pin", 0)))
    }

    /// Renews a pin that is over. Called before a record is created.
    pub(super) fn renew_if_over(&self, objects: &Objects, base: Pinned) -> Result<()> {
        let session = {
            let held = self.0.lock();
            held.name.as_ref().map(|_| held.session)
        };
        match session {
            Some(session) if !self.is_valid() && objects.rules().keep(Rule::FloorBeforeCommit) => self.write(objects, base, session, 0),
            _ => Ok(()),
        }
    }

    /// Called when record `version` was created: makes sure that it was not created in place of a
    /// record that garbage collection removed.
    pub(super) fn confirm(&self, objects: &Objects, version: u64) -> Result<()> {
        if self.is_valid() || !objects.rules().keep(Rule::FloorAfterCommit) {
            return Ok(());
        }
        let checked = check_floor(objects, version, 0);
        if checked.as_ref().is_err_and(is_stale) {
            // No version has this number any more.
            let _ = objects.store().delete(&keys::record_name(version));
        }
        checked
    }
}

/// Errors: `ESTALE` if garbage collection goes past `version`, or counts the session as ended.
fn check_floor(objects: &Objects, version: u64, session: u64) -> Result<()> {
    let Some(floor) = Floor::newest(objects.store())? else { return Ok(()) };
    let what = if version < floor.version {
        format!("version {version} was removed by garbage collection, which keeps those from {} on", floor.version)
    } else if floor.is_dead(session) {
        format!("garbage collection counts session {session} as ended, and may have removed what it stored")
    } else {
        return Ok(());
    };
    let why = "the mount was suspended for longer than its pin lasts";
    let reason = format!("{what}: {why}; changes that are not committed are lost; mount again");
    tracing::error!("{reason}");
    Err(Error::refused(libc::ESTALE, reason))
}

/// True if garbage collection went past a version or a session.
fn is_stale(e: &Error) -> bool {
    matches!(e, Error::Refused { errno: libc::ESTALE, .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::store::ObjectStore;
    use crate::file::store::faulty::{Fault, FaultyStore};
    use crate::file::store::memory::MemoryStore;
    use crate::iod::record::Delta;
    use crate::iod::{Container, Snapshot};
    use std::sync::Arc;

    /// A container, its newest version, and a store of it whose reads can fail.
    fn unreadable() -> (MemoryStore, Arc<FaultyStore>, Container, Snapshot) {
        let store = MemoryStore::default();
        Container::create(Arc::new(store.clone()), Vec::new()).unwrap();
        let faulty = Arc::new(FaultyStore::new(store.clone(), Fault::Unreadable, i64::MAX));
        let container = Container::open(faulty.clone()).unwrap();
        let snapshot = container.snapshot(None).unwrap();
        (store, faulty, container, snapshot)
    }

    fn pins(store: &MemoryStore) -> Vec<String> {
        store.keys().into_iter().filter(|key| key.starts_with(keys::PINS)).collect()
    }

    /// A pin with a longer label than any has was taken, and encoded again as another pin.
    #[test]
    fn labels_have_a_longest_length() {
        let pin = |len: usize| Pin { version: 9, checkpoint: 8, session: 7, settled: 1, seconds: 2, lasts: 3, label: vec![b'x'; len] };
        let longest = pin(LABEL_MAX);
        assert_eq!(Pin::decode(&longest.encode()).unwrap(), longest);
        let mut w = sealed::begin(SIGNATURE);
        w.u64(9).u64(8).u64(7).u32(1).u64(2).u32(3).uint(LABEL_MAX as u64 + 1, 2).bytes(&pin(LABEL_MAX + 1).label);
        assert!(Pin::decode(&sealed::end(w)).unwrap_err().to_string().contains("too long"));
    }

    /// A commit of a mount without a pin deleted its record when the floor could not be read:
    /// another writer may have committed the next version.
    #[test]
    fn an_unreadable_floor_deletes_no_record() {
        let (store, faulty, container, snapshot) = unreadable();
        let record = container.record(&snapshot, 0, false, Delta::Inline(Vec::new())).unwrap();
        faulty.fail_at(0);
        assert!(container.append(&snapshot, &record).is_err());
        assert!(store.head(&keys::record_name(record.version)).unwrap().is_some());
    }

    /// A pin that was renewed was deleted when the floor could not be read, and its mount went on.
    #[test]
    fn an_unreadable_floor_keeps_the_pin() {
        let (store, faulty, container, snapshot) = unreadable();
        container.pin(snapshot.pinned(), None).unwrap();
        let before = pins(&store);
        faulty.fail_at(0);
        assert!(container.pin(snapshot.pinned(), None).is_err());
        assert_eq!((before.len(), pins(&store)), (1, before));
    }

    /// Garbage collection deletes a pin that is over; it was renewed under the same name meanwhile.
    #[test]
    fn a_pin_that_is_over_is_not_renewed_under_its_name() {
        let (store, _, container, snapshot) = unreadable();
        container.set_pin_seconds(0);
        container.pin(snapshot.pinned(), None).unwrap();
        let over = pins(&store);
        container.pin(snapshot.pinned(), None).unwrap();
        store.delete(&over[0]).unwrap();
        assert_eq!((over.len(), pins(&store).len()), (1, 1));
    }
}
