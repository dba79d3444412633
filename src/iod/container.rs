//! A container: its records, checkpoints and packs in a store.

use super::checkpoint::{CHECKPOINT_MAX_BYTES, Checkpoint};
use super::delta::Entry;
use super::descriptor::{DESCRIPTOR_MAX_BYTES, Descriptor};
use super::keys;
use super::limits::DELTAS_AT_ONCE_BYTES;
use super::objects::{ATTEMPTS, Objects, failed};
pub use super::origin::now;
use super::origin::{label, uuid};
use super::pin::Lease;
use super::record::{self, Delta, RECORD_MAX_BYTES, Record};
use super::rules::{Rule, Rules};
use super::session::{PackWriter, Session};
use super::snapshot::{Pinned, Snapshot};
use super::tree;
use super::turns::{Turn, Turns};
use crate::base::request_error::{errno_of, is_absent, is_transient};
use crate::base::{Address, Error, Result};
use crate::file::attempts::Attempts;
use crate::file::store::{ObjectStore, RangeCache, probe};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads that read records when a snapshot is opened.
const READERS: usize = 8;
/// Records that are read before their changes are applied.
const RECORDS_AT_ONCE: u64 = 64;
/// Bytes of an entry of a delta, about.
const ENTRY_BYTES: u64 = 64;

/// A record, the hash of its bytes, and its changes.
pub type Changed = (Record, u64, Vec<Entry>);

/// A record that was asked for.
enum Read {
    Changed(Changed),
    /// There is no such version.
    Missing,
    /// It was not read: the changes of those before it are many.
    Later,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is committed; the hash of its bytes.
    Committed(u64),
    /// Another record has its version.
    Lost,
}

/// An open container.
pub struct Container {
    objects: Arc<Objects>,
    descriptor: Descriptor,
    /// Keeps the version that is used from garbage collection.
    pub(super) lease: Lease,
    /// When it commits beside other writers.
    turns: Turns,
}

impl std::ops::Deref for Container {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.objects
    }
}

impl Container {
    /// Makes an empty store a container. `entries`: its first values, version 1. Errors: `EEXIST`
    /// if it is one; `EOPNOTSUPP` if the store does not create objects once.
    pub fn create(store: Arc<dyn ObjectStore>, entries: Vec<Entry>) -> Result<()> {
        probed(&*store)?;
        if store.head(keys::DESCRIPTOR).map_err(failed("read the object store", 0))?.is_some() {
            return Err(Error::refused(libc::EEXIST, "there is a container already"));
        }
        let descriptor = Descriptor { uuid: uuid()?, seconds: now() };
        let container = Container::of(Objects::new(store, Rules::default()), descriptor);
        let empty = Snapshot::empty();
        let record = container.record(&empty, 0, false, Delta::Inline(entries))?;
        // The descriptor comes last: it makes the rest a container.
        match container.append(&empty, &record)? {
            Outcome::Committed(_) => {}
            // A creation that was interrupted made version 1. Of two that end here, one is first.
            Outcome::Lost if container.read_record(2)?.is_none() => {}
            Outcome::Lost => return Err(Error::refused(libc::EEXIST, "the place holds the records of another container")),
        }
        match container.store().create(keys::DESCRIPTOR, &descriptor.encode()).map_err(failed("create the container", 0))? {
            true => Ok(()),
            false => Err(Error::refused(libc::EEXIST, "there is a container already")),
        }
    }

    /// Opens the container in `store`. Errors: `ENOENT` if there is none.
    pub fn open(store: Arc<dyn ObjectStore>) -> Result<Container> {
        Self::open_cached(store, None)
    }

    /// [`Container::open`], which keeps only `rules`.
    #[cfg(test)]
    pub fn open_with(store: Arc<dyn ObjectStore>, rules: Rules) -> Result<Container> {
        let bytes = store.get(keys::DESCRIPTOR, 0..DESCRIPTOR_MAX_BYTES).map_err(failed("open", 0))?;
        Ok(Container::of(Objects::new(store, rules), Descriptor::decode(&bytes)?))
    }

    /// [`Container::open`], with `cache` for bytes of packs.
    pub fn open_cached(store: Arc<dyn ObjectStore>, cache: Option<Arc<dyn RangeCache>>) -> Result<Container> {
        let bytes = store.get(keys::DESCRIPTOR, 0..DESCRIPTOR_MAX_BYTES).map_err(failed("open", 0))?;
        let (descriptor, mut objects) = (Descriptor::decode(&bytes)?, Objects::new(store, Rules::default()));
        if let Some(cache) = cache {
            objects.set_cache(cache, descriptor.uuid);
        }
        Ok(Container::of(objects, descriptor))
    }

    /// [`Container::open`], to collect garbage, which may take the last room of a folder.
    pub fn open_to_collect(store: Arc<dyn ObjectStore>) -> Result<Container> {
        let bytes = store.get(keys::DESCRIPTOR, 0..DESCRIPTOR_MAX_BYTES).map_err(failed("open", 0))?;
        let mut objects = Objects::new(store, Rules::default());
        objects.take_all_room();
        Ok(Container::of(objects, Descriptor::decode(&bytes)?))
    }

    /// The same container for another session, with the same store and caches and a pin of its own.
    pub fn beside(&self) -> Container {
        let (objects, descriptor) = (self.objects.clone(), self.descriptor);
        Container { objects, descriptor, lease: self.lease.beside(), turns: Turns::default() }
    }

    /// Errors: `EOPNOTSUPP` if the store does not create objects once.
    pub fn check_store(&self) -> Result<()> {
        probed(&**self.store())
    }

    fn of(objects: Objects, descriptor: Descriptor) -> Container {
        Container { objects: Arc::new(objects), descriptor, lease: Lease::default(), turns: Turns::default() }
    }

    /// The record after `snapshot`, with these changes.
    pub fn record(&self, snapshot: &Snapshot, session: u64, moves_group: bool, delta: Delta) -> Result<Record> {
        let version = snapshot.version().saturating_add(1);
        let (uuid, previous, seconds) = (uuid()?, snapshot.hash(), now());
        Ok(Record { version, uuid, previous, session, seconds, moves_group, label: label(), transaction: None, delta })
    }

    /// Commits `record`, unless another one has its version. Errors: `ESTALE` if garbage collection
    /// went past the version of `snapshot`.
    pub fn append(&self, snapshot: &Snapshot, record: &Record) -> Result<Outcome> {
        debug_assert_eq!(record.version, snapshot.version().saturating_add(1));
        self.lease.renew_if_over(self, snapshot.pinned())?;
        let begin = Instant::now();
        let outcome = self.create_record(record)?;
        if let Outcome::Committed(_) = outcome {
            self.turns.created(begin.elapsed());
            self.lease.confirm(self, record.version)?;
        }
        Ok(outcome)
    }

    /// The turn of a commit that begins now, beside those of other writers. In a near store there
    /// is nothing to wait for.
    pub fn turn(&self) -> Turn {
        if self.store().is_near() { Turn::default() } else { self.turns.begin(|| self.pins()) }
    }

    /// Waits until the next attempt is due. `look` merges the new records, and returns the rivals
    /// that committed them.
    pub fn wait_for_turn(&self, turn: &mut Turn, look: &mut dyn FnMut() -> Result<Vec<u64>>) -> Result<()> {
        self.turns.wait(turn, look)
    }

    /// Draws the time of the next attempt, after one that lost against `rivals`.
    pub fn lost_turn(&self, turn: &mut Turn, rivals: Vec<u64>) {
        if !self.store().is_near() {
            self.turns.lost(turn, rivals, || self.pins());
        }
    }

    /// Notes that the commit of `turn` succeeded.
    pub fn won_turn(&self, turn: &Turn) {
        self.turns.won(turn);
    }

    /// Number of pins, about.
    fn pins(&self) -> usize {
        self.store().list_after(keys::PINS, "").map_or(0, |names| names.len())
    }

    /// The session that committed a record; `None`: it is this one, or the record begins a session.
    pub fn rival(&self, record: &Record) -> Option<u64> {
        (record.session != 0 && record.session != self.lease.session()).then_some(record.session)
    }

    /// Sets how long pins last from the next one on.
    pub fn set_pin_seconds(&self, lasts: u32) {
        self.lease.set_seconds(lasts);
    }

    /// Time after which the pin is to be renewed.
    pub fn pin_period(&self) -> Duration {
        self.lease.period()
    }

    /// Pins `base`, that of `session` or of a reader, or renews the pin. Errors: `ESTALE` if
    /// garbage collection goes past the version, or counts the session as ended.
    pub fn pin(&self, base: Pinned, session: Option<&Session>) -> Result<()> {
        let (number, settled) = session.map_or((0, 0), |s| (s.number(), s.settled()));
        self.lease.write(self, base, number, settled)
    }

    /// Removes the pin, if there is one. Nothing is pinned any more.
    pub fn unpin(&self) -> Result<()> {
        self.lease.end(self)
    }

    fn create_record(&self, record: &Record) -> Result<Outcome> {
        let (name, bytes) = (keys::record_name(record.version), record.encode());
        let mut attempts = Attempts::default();
        for attempt in 1..=ATTEMPTS {
            let created = self.put_record(&name, &bytes);
            if let Ok(true) = created {
                return Ok(Outcome::Committed(record::hash(&bytes)));
            }
            // Lost, or committed by an attempt whose reply was lost.
            let found = self.find_record(record.version);
            let is_last = attempt == ATTEMPTS || found.as_ref().is_err_and(|e| !is_transient(e));
            match (decoded(found, record.version), created) {
                (Ok(Some((found, hash))), _) if found.uuid == record.uuid && self.rules().keep(Rule::ReadBack) => {
                    // The attempt may have failed after it made the object, but not durable.
                    self.settle()?;
                    return Ok(Outcome::Committed(hash));
                }
                (Ok(Some(_)), _) => return Ok(Outcome::Lost),
                (_, Err(e)) if is_last || !is_transient(&e) => return Err(failed("commit", record.version)(e)),
                (Ok(None), Ok(_)) if attempt == ATTEMPTS => return Err(record::fork(record.version)),
                // S3 refuses requests that meet another one (409), and asks to repeat them.
                (Ok(None), Ok(_)) => tracing::debug!("version {} is refused, and is not there; trying again", record.version),
                (Err(e), Ok(_)) => return Err(e),
                (_, Err(e)) => tracing::debug!("cannot commit version {}: {e}; trying again", record.version),
            }
            std::thread::sleep(attempts.pause());
        }
        Err(Error::Io { operation: "commit", address: Address(record.version), errno: libc::EIO })
    }

    /// The record of a version and the hash of its bytes; `None`: there is no such version.
    pub fn read_record(&self, version: u64) -> Result<Option<(Record, u64)>> {
        decoded(self.find_record(version), version)
    }

    /// The bytes of the record of a version; `None`: there is no such version.
    fn find_record(&self, version: u64) -> io::Result<Option<Vec<u8>>> {
        let begin = Instant::now();
        let read = self.store().get(&keys::record_name(version), 0..RECORD_MAX_BYTES);
        self.turns.read(begin.elapsed());
        match read {
            Err(e) if is_absent(&e) => Ok(None),
            read => read.map(Some),
        }
    }

    /// The changes of a record.
    pub fn entries(&self, record: &Record) -> Result<Vec<Entry>> {
        match &record.delta {
            Delta::Inline(entries) => Ok(entries.clone()),
            Delta::Extent(extent) => record::decode_delta(&self.read_delta(extent)?, record.version),
        }
    }

    /// Advances `snapshot` by the next record; `None`: there is none yet.
    pub fn next(&self, snapshot: &mut Snapshot) -> Result<Option<(Record, Vec<Entry>)>> {
        let Some((record, hash)) = self.read_record(snapshot.version().saturating_add(1))? else { return Ok(None) };
        let entries = self.entries(&record)?;
        snapshot.advance(&record, hash, &entries)?;
        Ok(Some((record, entries)))
    }

    /// Advances `snapshot` to the newest version; returns the writers of the records.
    fn read_rivals(&self, snapshot: &mut Snapshot) -> Result<Vec<u64>> {
        let mut rivals = Vec::new();
        self.each_new(snapshot.version(), &mut |record, hash, entries| {
            rivals.extend(self.rival(record));
            snapshot.advance(record, hash, &entries)
        })?;
        Ok(rivals)
    }

    /// Calls `f` with the records after `version`, their hashes and their changes, up to the
    /// newest. Reads one at first, and then twice as many at once each time.
    pub fn each_new(&self, version: u64, f: &mut dyn FnMut(&Record, u64, Vec<Entry>) -> Result<()>) -> Result<()> {
        let (mut last, mut count) = (version, 1);
        loop {
            let versions: Vec<u64> = (1..=count).map(|n| last.saturating_add(n)).collect();
            for read in self.read_group(&versions) {
                match read? {
                    Read::Changed((record, hash, entries)) => {
                        last = record.version;
                        f(&record, hash, entries)?;
                    }
                    Read::Missing => return Ok(()),
                    Read::Later => break,
                }
            }
            count = count.saturating_mul(2).min(READERS as u64);
        }
    }

    /// Reads records and their changes, several at once. The changes of all of them are in memory
    /// together: when they are many, later records are left for another call, but not the first.
    fn read_group(&self, versions: &[u64]) -> Vec<Result<Read>> {
        let (first, decoded) = (versions.first().copied(), AtomicU64::new(0));
        in_threads(versions, &|version| {
            let is_late = |bytes: u64| Some(version) != first && bytes > DELTAS_AT_ONCE_BYTES;
            if is_late(decoded.load(Ordering::Relaxed)) {
                return Ok(Read::Later);
            }
            let Some((record, hash)) = self.read_record(version)? else { return Ok(Read::Missing) };
            let delta = match &record.delta {
                Delta::Inline(entries) => (entries.len() as u64).saturating_mul(ENTRY_BYTES),
                Delta::Extent(extent) => extent.len.into(),
            };
            if is_late(decoded.fetch_add(delta, Ordering::Relaxed).saturating_add(delta)) {
                return Ok(Read::Later);
            }
            let entries = self.entries(&record)?;
            Ok(Read::Changed((record, hash, entries)))
        })
    }

    /// Begins a session of a writer, and pins its version. `snapshot` becomes the newest version.
    pub fn begin_session(&self, snapshot: &mut Snapshot) -> Result<Session> {
        let mut attempts = ATTEMPTS;
        let (mut turn, mut first) = (self.turn(), true);
        loop {
            let rivals = self.read_rivals(snapshot)?;
            if !std::mem::take(&mut first) {
                self.lost_turn(&mut turn, rivals);
                self.wait_for_turn(&mut turn, &mut || self.read_rivals(snapshot))?;
            }
            if !self.rules().keep(Rule::SessionIds) {
                return Session::new(snapshot.version());
            }
            let record = self.record(snapshot, 0, false, Delta::Inline(Vec::new()))?;
            if let Outcome::Committed(hash) = self.append(snapshot, &record)? {
                snapshot.advance(&record, hash, &[])?;
                let session = Session::new(record.version)?;
                match self.pin(snapshot.pinned(), Some(&session)) {
                    // Garbage collection ran before the pin was there.
                    Err(Error::Refused { errno: libc::ESTALE, .. }) if attempts > 1 => attempts = attempts.saturating_sub(1),
                    pinned => return pinned.map(|()| session),
                }
            }
        }
    }

    /// A version; `None` is the newest. Errors: `ENOENT` if there is no such version.
    pub fn snapshot(&self, version: Option<u64>) -> Result<Snapshot> {
        if let Some(version) = version
            && self.read_record(version)?.is_none()
        {
            let newest = self.versions_after(self.checkpoint_up_to(u64::MAX)?.version(), usize::MAX)?.last().copied().unwrap_or(0);
            return Err(Error::refused(libc::ENOENT, format!("the container has no version {version}; the newest is {newest}")));
        }
        let mut snapshot = self.checkpoint_up_to(version.unwrap_or(u64::MAX))?;
        match version {
            // Versions are dense: the store need not list them.
            Some(last) => self.advance_to(&mut snapshot, last)?,
            None => {
                if let Some(last) = self.versions_after(snapshot.version(), usize::MAX)?.last() {
                    self.advance_to(&mut snapshot, *last)?;
                }
            }
        }
        Ok(snapshot)
    }

    /// The version of the newest checkpoint that is not newer than `last`.
    pub(super) fn checkpoint_up_to(&self, last: u64) -> Result<Snapshot> {
        let names = self.store().list_after(keys::CHECKPOINTS, "").map_err(failed("list the object store", 0))?;
        for at in names.iter().rev().filter_map(|name| keys::version_of(name)).filter(|at| *at <= last) {
            let bytes = self.store().get(&keys::checkpoint_name(at), 0..CHECKPOINT_MAX_BYTES).map_err(failed("read a checkpoint", at));
            match bytes.and_then(|bytes| Checkpoint::decode(&bytes, at)) {
                Ok(checkpoint) => return Ok(Snapshot::at(&checkpoint)),
                Err(e) => tracing::warn!("{e}; an earlier checkpoint is used"),
            }
        }
        Ok(Snapshot::empty())
    }

    /// Numbers of versions after `version`, ascending, `max` at most. Reads no version.
    pub fn versions_after(&self, version: u64, max: usize) -> Result<Vec<u64>> {
        let names = self.store().list_part(keys::RECORDS, &keys::record_name(version), max);
        let names = names.map_err(failed("list the object store", 0))?;
        Ok(names.iter().filter_map(|name| keys::version_of(name)).collect())
    }

    /// Makes `snapshot` the version `last`.
    pub(super) fn advance_to(&self, snapshot: &mut Snapshot, last: u64) -> Result<()> {
        self.each_record(snapshot.version(), last, &mut |record, hash, entries| snapshot.advance_by(record, hash, entries))
    }

    /// Calls `f` with the records after `first` up to `last`, their hashes and their changes.
    pub(super) fn each_record(&self, first: u64, last: u64, f: &mut dyn FnMut(&Record, u64, Vec<Entry>) -> Result<()>) -> Result<()> {
        let mut next = first.saturating_add(1);
        while next <= last {
            let end = next.saturating_add(RECORDS_AT_ONCE).min(last.saturating_add(1));
            let group: Vec<u64> = (next..end).collect();
            for read in self.read_group(&group) {
                match read? {
                    Read::Changed((record, hash, entries)) => f(&record, hash, entries)?,
                    Read::Missing => return Err(record::fork(next)),
                    Read::Later => break,
                }
                next = next.saturating_add(1);
            }
        }
        Ok(())
    }

    pub(super) fn read_checkpoint(&self, version: u64) -> Result<Checkpoint> {
        let bytes = self.store().get(&keys::checkpoint_name(version), 0..CHECKPOINT_MAX_BYTES);
        Checkpoint::decode(&bytes.map_err(failed("read a checkpoint", version))?, version)
    }

    /// Writes a checkpoint of `snapshot`: the nodes of the tree that changed, and its root.
    pub fn checkpoint(&self, snapshot: &mut Snapshot, session: &Session) -> Result<()> {
        let mut packs = PackWriter::new(self, session);
        let root = match self.rules().keep(Rule::Checkpoint) {
            true => tree::update(self, snapshot.root(), snapshot.delta(), &mut packs)?,
            false => snapshot.root().copied(),
        };
        packs.finish()?;
        let checkpoint = Checkpoint { version: snapshot.version(), hash: snapshot.hash(), root };
        let name = keys::checkpoint_name(checkpoint.version);
        let created = self.again("write a checkpoint", || self.store().create(&name, &checkpoint.encode()))?;
        // Another writer's checkpoint of the version has the same values. Only nodes of a tree that
        // is stored are kept.
        let checkpoint = if created { checkpoint } else { self.read_checkpoint(checkpoint.version)? };
        *snapshot = Snapshot::at(&checkpoint);
        Ok(())
    }
}

/// The record in the bytes that were found, and their hash.
fn decoded(found: io::Result<Option<Vec<u8>>>, version: u64) -> Result<Option<(Record, u64)>> {
    let Some(bytes) = found.map_err(failed("read a commit record", version))? else { return Ok(None) };
    Ok(Some((Record::decode(&bytes, version)?, record::hash(&bytes))))
}

/// Calls `read` with each version, several at once.
fn in_threads<T: Send>(versions: &[u64], read: &(dyn Fn(u64) -> Result<T> + Sync)) -> Vec<Result<T>> {
    if versions.len() < 2 {
        return versions.iter().map(|v| read(*v)).collect();
    }
    let lost = || Err(Error::Io { operation: "read a commit record", address: Address::UNDEF, errno: libc::EIO });
    std::thread::scope(|scope| {
        let parts = versions.chunks(versions.len().div_ceil(READERS).max(1));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || part.iter().map(|v| read(*v)).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|_| vec![lost()])).collect()
    })
}

/// Errors: `EOPNOTSUPP` if the store does not create objects once.
fn probed(store: &dyn ObjectStore) -> Result<()> {
    let reason = "the object store lets several writers create one object: commits would be lost; use another server";
    probe::check(store).map_err(|e| match errno_of(&e) {
        Some(libc::EOPNOTSUPP) => Error::refused(libc::EOPNOTSUPP, reason),
        _ => failed("probe the object store", 0)(e),
    })
}
