//! Follows the versions that other writers commit.
//!
//! A container that is only read looks for the next record; if there is one, the newest version
//! takes the place of the one shown, at one moment. A container that is written does that while it
//! has no changes of its own.

use super::access::IodConnector;
use super::beside::{Following, Looks};
use super::ids;
use super::paths;
use super::state::{State, Waiting};
use crate::base::locks::{Mutex, RwLock};
use crate::base::{Address, Error, Result};
use crate::connector::open::Backing;
use crate::connector::{Follow, ObjectId, ObjectKind};
use crate::iod::Snapshot;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between requests that failed reads cause: another version seldom helps them.
const PAUSE: Duration = Duration::from_secs(1);
/// Records that are read in one look.
const RECORDS_MAX: usize = 4096;

/// A newer version.
struct Newer {
    snapshot: Snapshot,
    /// When it was committed, seconds since 1970.
    seconds: u64,
    /// It has other values: beginnings of sessions change none.
    differs: bool,
}

/// A time of a version.
pub(super) fn time_of(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.min(u32::MAX.into()))
}

/// The group at `path`. Errors: there is none.
fn group_at(state: &State, path: Option<&[u8]>) -> Result<ObjectId> {
    let Some(path) = path else { return Ok(ids::object(0)) };
    let absent = || Error::corrupt("mounted group", Address(0), "it is not there any more");
    let id = paths::follow(state, 0, path, &mut 0)?.ok_or_else(absent)?;
    if state.kind(id)? == Some(ObjectKind::Group) { Ok(ids::object(id)) } else { Err(absent()) }
}

impl IodConnector {
    /// Begins to follow. `group`: path of the group that is shown.
    pub(super) fn begin_following(&self, group: Option<Vec<u8>>, backing: Backing) {
        // Whether the group is there, the caller finds out.
        let root = group_at(&self.states.shown(), group.as_deref()).unwrap_or(ids::object(0));
        let looks = Mutex::new(Looks::default());
        let following = Following { group, mounted: RwLock::new((root, backing)), looks };
        let _ = self.following.set(following);
    }

    /// The newest version, if it is newer than `version`; costs one request if it is not.
    fn newer_than(&self, version: u64) -> Result<Option<Newer>> {
        if self.container.read_record(version.saturating_add(1))?.is_none() {
            return Ok(None);
        }
        let mut newer = Newer { snapshot: self.states.shown().snapshot.clone(), seconds: 0, differs: false };
        for _ in 0..RECORDS_MAX {
            let Some((record, entries)) = self.container.next(&mut newer.snapshot)? else { break };
            newer.seconds = record.seconds;
            newer.differs |= !entries.is_empty();
        }
        if newer.snapshot.wants_checkpoint()
            && let Some(rebased) = self.container.rebased(&newer.snapshot)?
        {
            newer.snapshot = rebased;
        }
        Ok(Some(newer))
    }

    /// Shows the newest version; returns whether it differs.
    fn advance(&self, following: &Following) -> Result<bool> {
        let version = self.states.shown().snapshot.version();
        let Some(Newer { snapshot, seconds, differs }) = self.newer_than(version)? else { return Ok(false) };
        let new = State::new(self.container.clone(), snapshot, None);
        let root = group_at(&new, following.group.as_deref())?;
        let mut state = self.states.next();
        state.snapshot = new.snapshot;
        if differs {
            let mut mounted = following.mounted.write();
            let time = time_of(seconds);
            *mounted = (root, Backing { atime: time, mtime: time, ctime: time, len: mounted.1.len });
            state.all_changed();
            state.follow();
        }
        Ok(differs)
    }

    /// Shows the newest version of a container that is written, unless it has changes. A peer of a
    /// transaction keeps the version that all peers see.
    pub(super) fn advance_if_clean(&self) -> Result<()> {
        if self.joined.is_some() {
            return Ok(());
        }
        let version = {
            let state = self.states.shown();
            if !state.is_clean() {
                return Ok(());
            }
            state.snapshot.version()
        };
        let Some(Newer { snapshot, differs, .. }) = self.newer_than(version)? else { return Ok(()) };
        // A writer at work makes changes: a newer version is shown after it.
        let Some(mut state) = self.states.try_next() else { return Ok(()) };
        if state.is_clean() && state.snapshot.version() == version {
            state.snapshot = snapshot;
            if differs {
                state.all_changed();
            }
        }
        Ok(())
    }
}

impl State {
    /// True if nothing waits for a commit.
    fn is_clean(&self) -> bool {
        let Waiting { references, attributes, fills, types: _ } = &self.waiting;
        let waits = !references.is_empty() || !attributes.is_empty() || !fills.is_empty();
        let undecided = !self.in_doubt.is_empty() || self.failed.is_some();
        self.changes.is_empty() && self.forms.is_empty() && !waits && !undecided
    }
}

impl Follow for IodConnector {
    fn state(&self) -> u64 {
        self.states.shown().number()
    }

    fn look(&self, failed: bool) -> bool {
        let Some(following) = self.following.get() else { return false };
        let before = self.state();
        let mut looks = following.looks.lock();
        if failed && self.state() != before {
            return true;
        }
        if failed && looks.last.is_some_and(|last| last.elapsed() < PAUSE) {
            return false;
        }
        looks.last = Some(Instant::now());
        match self.advance(following) {
            Ok(differs) => {
                looks.failing = false;
                differs
            }
            Err(e) => {
                if !std::mem::replace(&mut looks.failing, true) {
                    tracing::warn!("the newest version cannot be shown ({e}): the container is shown as it was");
                }
                false
            }
        }
    }

    /// What was read of a version stays as it was: stored objects never change.
    fn is_intact(&self) -> bool {
        true
    }

    fn mounted(&self) -> (ObjectId, Backing) {
        match self.following.get() {
            Some(following) => *following.mounted.read(),
            None => (ids::object(0), Backing { atime: UNIX_EPOCH, mtime: UNIX_EPOCH, ctime: UNIX_EPOCH, len: 0 }),
        }
    }
}
