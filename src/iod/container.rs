//! A container: its records, checkpoints and packs in a store.

use super::checkpoint::{CHECKPOINT_MAX_BYTES, Checkpoint};
use super::delta::Entry;
use super::descriptor::{DESCRIPTOR_MAX_BYTES, Descriptor};
use super::keys;
use super::objects::{ATTEMPTS, Objects, PAUSE, failed, is_transient};
use super::record::{self, Delta, RECORD_MAX_BYTES, Record};
use super::rules::{Rule, keeps};
use super::session::{PackWriter, Session};
use super::snapshot::Snapshot;
use super::tree;
use crate::base::{Address, Error, Result};
use crate::file::store::{ObjectStore, probe};
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Threads that read records when a snapshot is opened.
const READERS: usize = 8;

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
    objects: Objects,
    descriptor: Descriptor,
}

impl std::ops::Deref for Container {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.objects
    }
}

/// Random bytes of a UUID.
fn uuid() -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|_| Error::Io { operation: "get random bytes", address: Address::UNDEF, errno: libc::EIO })?;
    Ok(uuid)
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

impl Container {
    /// Makes an empty store a container. `entries`: its first values, version 1. Errors: `EEXIST`
    /// if it is one; `EOPNOTSUPP` if the store does not create objects once.
    pub fn create(store: Arc<dyn ObjectStore>, entries: Vec<Entry>) -> Result<()> {
        probe::check(&*store).map_err(|e| match e.raw_os_error() {
            Some(libc::EOPNOTSUPP) => not_once(),
            _ => failed("probe the object store", 0)(e),
        })?;
        if store.head(keys::DESCRIPTOR).map_err(failed("read the object store", 0))?.is_some() {
            return Err(Error::refused(libc::EEXIST, "there is a container already"));
        }
        let descriptor = Descriptor { uuid: uuid()?, seconds: now() };
        let container = Container::of(store, descriptor);
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
        let bytes = store.get(keys::DESCRIPTOR, 0..DESCRIPTOR_MAX_BYTES).map_err(failed("open", 0))?;
        Ok(Container::of(store, Descriptor::decode(&bytes)?))
    }

    /// Errors: `EOPNOTSUPP` if the store does not create objects once.
    pub fn check_store(&self) -> Result<()> {
        probe::check(&**self.store()).map_err(|e| match e.raw_os_error() {
            Some(libc::EOPNOTSUPP) => not_once(),
            _ => failed("probe the object store", 0)(e),
        })
    }

    fn of(store: Arc<dyn ObjectStore>, descriptor: Descriptor) -> Container {
        Container { objects: Objects::new(store), descriptor }
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The record after `snapshot`, with these changes.
    pub fn record(&self, snapshot: &Snapshot, session: u64, moves_group: bool, delta: Delta) -> Result<Record> {
        let version = snapshot.version().saturating_add(1);
        Ok(Record { version, uuid: uuid()?, previous: snapshot.hash(), session, seconds: now(), moves_group, label: label(), delta })
    }

    /// Commits `record`, unless another one has its version.
    pub fn append(&self, snapshot: &Snapshot, record: &Record) -> Result<Outcome> {
        debug_assert_eq!(record.version, snapshot.version().saturating_add(1));
        let (name, bytes) = (keys::record_name(record.version), record.encode());
        let mut pause = PAUSE;
        for attempt in 1..=ATTEMPTS {
            let created = self.store().create(&name, &bytes);
            if let Ok(true) = created {
                return Ok(Outcome::Committed(record::hash(&bytes)));
            }
            // Lost, or committed by an attempt whose reply was lost.
            match (self.read_record(record.version), created) {
                (Ok(Some((found, hash))), _) if found.uuid == record.uuid && keeps(Rule::ReadBack) => {
                    // The attempt may have failed after it made the object, before it was durable.
                    self.settle()?;
                    return Ok(Outcome::Committed(hash));
                }
                (Ok(Some(_)), _) => return Ok(Outcome::Lost),
                (_, Err(e)) if attempt == ATTEMPTS || !is_transient(&e) => return Err(failed("commit", record.version)(e)),
                (Ok(None), Ok(_)) if attempt == ATTEMPTS => return Err(record::fork(record.version)),
                // S3 refuses requests that meet another one (409), and asks to repeat them.
                (Ok(None), Ok(_)) => tracing::debug!("version {} is refused, and is not there; trying again", record.version),
                (Err(e), Ok(_)) => return Err(e),
                (_, Err(e)) => tracing::debug!("cannot commit version {}: {e}; trying again", record.version),
            }
            std::thread::sleep(pause);
            pause = pause.saturating_mul(2);
        }
        Err(Error::Io { operation: "commit", address: Address(record.version), errno: libc::EIO })
    }

    /// The record of a version and the hash of its bytes; `None`: there is no such version.
    pub fn read_record(&self, version: u64) -> Result<Option<(Record, u64)>> {
        let bytes = match self.store().get(&keys::record_name(version), 0..RECORD_MAX_BYTES) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) || e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed("read a commit record", version))?,
        };
        Ok(Some((Record::decode(&bytes, version)?, record::hash(&bytes))))
    }

    /// The changes of a record.
    pub fn entries(&self, record: &Record) -> Result<Vec<Entry>> {
        match &record.delta {
            Delta::Inline(entries) => Ok(entries.clone()),
            Delta::Extent(extent) => record::decode_delta(&self.read(extent)?, record.version),
        }
    }

    /// Advances `snapshot` by the next record; `None`: there is none yet.
    pub fn next(&self, snapshot: &mut Snapshot) -> Result<Option<(Record, Vec<Entry>)>> {
        let Some((record, hash)) = self.read_record(snapshot.version().saturating_add(1))? else { return Ok(None) };
        let entries = self.entries(&record)?;
        snapshot.advance(&record, hash, &entries)?;
        Ok(Some((record, entries)))
    }

    /// Begins a session of a writer. `snapshot` becomes the newest version.
    pub fn begin_session(&self, snapshot: &mut Snapshot) -> Result<Session> {
        loop {
            while self.next(snapshot)?.is_some() {}
            if !keeps(Rule::SessionIds) {
                return Session::new(snapshot.version());
            }
            let record = self.record(snapshot, 0, false, Delta::Inline(Vec::new()))?;
            if let Outcome::Committed(hash) = self.append(snapshot, &record)? {
                snapshot.advance(&record, hash, &[])?;
                return Session::new(record.version);
            }
        }
    }

    /// A version; `None` is the newest. Errors: `ENOENT` if there is no such version.
    pub fn snapshot(&self, version: Option<u64>) -> Result<Snapshot> {
        let last = version.unwrap_or(u64::MAX);
        let listed = |e| failed("list the object store", 0)(e);
        let names = self.store().list_after(keys::CHECKPOINTS, "").map_err(listed)?;
        let mut snapshot = Snapshot::empty();
        for at in names.iter().rev().filter_map(|name| keys::version_of(name)).filter(|at| *at <= last) {
            let bytes = self.store().get(&keys::checkpoint_name(at), 0..CHECKPOINT_MAX_BYTES).map_err(failed("read a checkpoint", at));
            match bytes.and_then(|bytes| Checkpoint::decode(&bytes, at)) {
                Ok(checkpoint) => {
                    snapshot = Snapshot::at(&checkpoint);
                    break;
                }
                Err(e) => tracing::warn!("{e}; an earlier checkpoint is used"),
            }
        }
        let after = keys::record_name(snapshot.version());
        let names = self.store().list_after(keys::RECORDS, &after).map_err(listed)?;
        let versions: Vec<u64> = names.iter().filter_map(|name| keys::version_of(name)).filter(|v| *v <= last).collect();
        for group in versions.chunks(READERS.saturating_mul(8)) {
            for read in self.read_records(group) {
                let (record, hash, entries) = read?;
                snapshot.advance(&record, hash, &entries)?;
            }
        }
        match version {
            Some(version) if version != snapshot.version() => {
                Err(Error::refused(libc::ENOENT, format!("the container has no version {version}; the newest is {}", snapshot.version())))
            }
            _ => Ok(snapshot),
        }
    }

    /// Reads records and their changes, several at once.
    fn read_records(&self, versions: &[u64]) -> Vec<Result<(Record, u64, Vec<Entry>)>> {
        let read = |version: u64| {
            let (record, hash) = self.read_record(version)?.ok_or_else(|| record::fork(version))?;
            let entries = self.entries(&record)?;
            Ok((record, hash, entries))
        };
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

    /// Writes a checkpoint of `snapshot`: the nodes of the tree that changed, and its root.
    pub fn checkpoint(&self, snapshot: &mut Snapshot, session: &Session) -> Result<()> {
        let mut packs = PackWriter::new(self, session);
        let root = match keeps(Rule::Checkpoint) {
            true => tree::update(self, snapshot.root(), snapshot.delta(), &mut packs)?,
            false => snapshot.root().copied(),
        };
        packs.finish()?;
        let checkpoint = Checkpoint { version: snapshot.version(), hash: snapshot.hash(), root };
        let name = keys::checkpoint_name(checkpoint.version);
        // Another writer's checkpoint of the version has the same values.
        self.again("write a checkpoint", || self.store().create(&name, &checkpoint.encode()))?;
        *snapshot = Snapshot::at(&checkpoint);
        Ok(())
    }
}

fn not_once() -> Error {
    let reason = "the object store lets several writers create one object: commits would be lost; use another server";
    Error::refused(libc::EOPNOTSUPP, reason)
}

/// Text that shows who committed: the number of the process.
fn label() -> Vec<u8> {
    format!("process {}", std::process::id()).into_bytes()
}
