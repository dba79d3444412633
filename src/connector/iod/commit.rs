//! Commits: long values are stored in packs, and one record publishes all changes.

use super::commits::Commits;
use super::image::{Body, Change, Changes};
use super::in_doubt::{is_full, is_retried};
use super::moves;
use super::object_access::ObjectAccess;
use super::paths;
use super::state::State;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::changed::SharedImage;
use crate::iod::merge::{Merged, Merging, merge};
use crate::iod::record::{self, DELTA_MAX_BYTES, Delta};
use crate::iod::rules::Rule;
use crate::iod::{Conflict, Entry, Key, Outcome, PackWriter, Ranges, Record, Session, keys};
use std::sync::Arc;

/// Ids that a session has at least when an operation begins.
const IDS_MIN: u64 = 1 << 16;
/// With more changes, the next operation begins with a commit.
const CHANGES_MAX: usize = 1 << 18;

fn poisoned(reason: &str) -> Error {
    let remedy = "write 'discard' to .h5dir/refused to drop the changes since the commit before it, or mount again";
    Error::refused(libc::EIO, format!("an earlier commit was refused; {remedy}: {reason}"))
}

impl ObjectAccess {
    /// The image of a chunk that another writer changed by `entries`, with the bytes that the
    /// session wrote.
    pub(super) fn merged_chunk(&self, state: &State, key: &Key, entries: &[Entry]) -> Result<SharedImage> {
        let (id, ..) = keys::parts(key).ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "it has no dataset"))?;
        let d = self.dataset_of(state, id)?;
        let ours = self.chunks.chunk(state, &d, key)?;
        let entry = entries.binary_search_by(|entry| entry.key.cmp(key)).ok().and_then(|at| entries.get(at));
        let theirs = match entry.and_then(|entry| entry.cell.as_ref()) {
            Some(cell) => self.chunks.to_change(&d, cell)?,
            None => self.chunks.blank(&d, false)?,
        };
        if !self.container.rules().keep(Rule::Ranges) {
            return Ok(ours);
        }
        let mut merged = theirs;
        let taken = Arc::make_mut(&mut merged).take(&ours, &state.written(key), d.chunk_dims(), d.element_size.max(1));
        ours.check(Some(()), d.id)?;
        merged.check(taken, d.id)?;
        Ok(merged)
    }
}

impl Commits {
    /// Errors: the session cannot change anything any more.
    pub(super) fn check_writable(&self, state: &State) -> Result<()> {
        self.check_unfinished()?;
        match (&state.failed, &state.session) {
            (Some(reason), _) => Err(poisoned(reason)),
            (None, None) => Err(Error::refused(libc::EROFS, "the container was opened for reading")),
            (None, Some(_)) => Ok(()),
        }
    }

    /// Makes all changes one version. Errors: a conflict with another writer, after which nothing
    /// can be changed; of the store, after which another commit may succeed.
    pub(super) fn commit_all(&self, state: &mut State) -> Result<()> {
        self.check_writable(state)?;
        self.objects.lead(state)?;
        // The record of a commit in doubt may have what was reverted since.
        if state.changes.is_empty() && state.in_doubt.is_empty() {
            return Ok(());
        }
        let done = self.try_commit(state);
        match &done {
            Err(e) if is_full(e) => {
                self.free_unused_packs(state);
                self.pins.advance(state);
            }
            Err(e) if !is_retried(e) => state.failed = Some(e.to_string()),
            _ => {}
        }
        done
    }

    fn try_commit(&self, state: &mut State) -> Result<()> {
        let mut turn = self.container.turn();
        loop {
            self.container.wait_for_turn(&mut turn, &mut || self.rebase(state))?;
            self.values.store(state)?;
            let entries = entries(state);
            let record = self.new_record(state, &entries)?;
            let outcome = self.container.append(&state.snapshot, &record);
            if let Err(e) = &outcome
                && is_retried(e)
                && !self.is_without_room(e, record.version)
            {
                state.note_in_doubt(record.uuid);
            }
            if let Outcome::Committed(hash) = outcome? {
                self.container.won_turn(&turn);
                return self.committed(state, &record, hash, &entries);
            }
            let before = state.snapshot.version();
            let rivals = self.rebase(state)?;
            if state.snapshot.version() == before {
                return Err(record::fork(before.saturating_add(1)));
            }
            self.container.lost_turn(&mut turn, rivals);
        }
    }

    /// Makes the version of `record`, which has all changes, the one that is shown.
    pub(super) fn committed(&self, state: &mut State, record: &Record, hash: u64, entries: &[Entry]) -> Result<()> {
        state.snapshot.advance(record, hash, entries)?;
        state.changes = Changes::new_sync();
        state.in_doubt.clear();
        state.unpublished.clear();
        (state.dirty_bytes, state.moves_group) = (0, false);
        self.checkpoint_if_due(state);
        self.settle_packs(state);
        Ok(())
    }

    /// The record of the next version, with these changes.
    pub(super) fn new_record(&self, state: &State, entries: &[Entry]) -> Result<Record> {
        let session = session(state)?;
        let delta = self.delta(session, entries)?;
        self.container.record(&state.snapshot, session.number(), state.moves_group, delta)
    }

    /// Changes as they are stored: long ones in a pack.
    pub(super) fn delta(&self, session: &Session, entries: &[Entry]) -> Result<Delta> {
        let delta = record::encode_delta(entries)?;
        if delta.len() <= DELTA_MAX_BYTES {
            return Ok(Delta::Inline(entries.to_vec()));
        }
        let mut packs = PackWriter::new(&self.container, session);
        let extent = packs.add(&delta)?;
        packs.finish()?;
        Ok(Delta::Extent(extent))
    }

    /// Makes the changes those of the newest version; returns the writers of the versions between.
    fn rebase(&self, state: &mut State) -> Result<Vec<u64>> {
        let mut rivals = Vec::new();
        self.container.each_new(state.snapshot.version(), &mut |record, hash, entries| {
            rivals.extend(self.container.rival(record));
            let Some(reason) = self.merge_record(state, record, hash, &entries)? else { return Ok(()) };
            tracing::error!("the changes since version {} are not committed: {reason}", state.snapshot.version());
            Err(Error::refused(libc::EIO, reason))
        })?;
        Ok(rivals)
    }

    /// Makes the changes those of the version of `record`; returns a conflict as a sentence. After
    /// an error the changes are as before.
    pub(super) fn merge_record(&self, state: &mut State, record: &Record, hash: u64, entries: &[Entry]) -> Result<Option<String>> {
        if state.is_in_doubt(record) {
            state.rebase_on_own(record, hash, entries)?;
            state.all_changed();
            return Ok(None);
        }
        let Merged { chunks, values } = match self.merge_entries(state, record, entries)? {
            Ok(merged) => merged,
            Err(conflict) => {
                let with = format!("version {} ({})", conflict.version, String::from_utf8_lossy(&record.label));
                return Ok(Some(self.conflict_text(state, &conflict, &with)));
            }
        };
        // After an error of a read the record is merged again: nothing is changed before.
        let images = chunks.iter().map(|key| self.objects.merged_chunk(state, key, entries)).collect::<Result<Vec<_>>>()?;
        state.snapshot.advance(record, hash, entries)?;
        state.in_doubt.clear();
        state.all_changed();
        values.into_iter().for_each(|(key, cell)| state.change(key, Body::Cell(cell), Ranges::whole()));
        for (key, image) in chunks.into_iter().zip(images) {
            let ranges = state.written(&key);
            state.put_chunk(key, image, ranges);
        }
        Ok(None)
    }

    /// [`merge`] of the changes with those of another writer.
    pub(super) fn merge_entries(&self, state: &State, record: &Record, entries: &[Entry]) -> Result<Result<Merged, Conflict>> {
        let merging = Merging { objects: &self.container, base: &state.snapshot };
        let merged = merge(&merging, &state.changes, record, entries)?;
        if merged.is_ok() && state.moves_group && record.moves_group && !moves::make_no_cycle(state, entries)? {
            let link = entries.iter().find(|entry| matches!(keys::parts(&entry.key), Some((_, keys::LINK, _))));
            let key = link.map(|entry| entry.key.clone()).unwrap_or_default();
            return Ok(Err(Conflict { key, version: record.version, reason: "both moved directories, perhaps below each other" }));
        }
        Ok(merged)
    }

    /// A conflict as a sentence, with the name of what conflicts.
    pub(super) fn conflict_text(&self, state: &State, conflict: &Conflict, with: &str) -> String {
        let (id, kind, rest) = keys::parts(&conflict.key).unwrap_or((0, 0, &[]));
        let path = paths::path_of(&self.objects.derived, state, id).unwrap_or_else(|| format!("#{id}").into_bytes());
        let mut name = String::from_utf8_lossy(&path).into_owned();
        if matches!(kind, keys::LINK | keys::ATTRIBUTE) {
            let what = if kind == keys::LINK { "name" } else { "attribute" };
            name = format!("{what} {:?} of {name}", String::from_utf8_lossy(rest));
        }
        if kind == keys::MAP {
            name = format!("key {} of {name}", state.shown_key(id, rest));
        }
        format!("conflict at {name} with {with}: {}", conflict.reason)
    }

    /// Notes that all packs belong to committed versions, after a commit.
    fn settle_packs(&self, state: &State) {
        if let (true, Some(session)) = (state.preparations.is_empty(), &state.session) {
            self.values.while_idle(|| session.settle());
        }
    }

    fn checkpoint_if_due(&self, state: &mut State) {
        let State { snapshot, session: Some(session), .. } = state else { return };
        if snapshot.wants_checkpoint()
            && let Err(e) = self.container.checkpoint(snapshot, session)
        {
            // The version is committed; a later commit tries again.
            tracing::warn!("no checkpoint is written: {e}");
        }
    }

    /// Begins another session if the present one has few ids left. Commits before the changes are
    /// too many for one delta.
    pub(super) fn keep_ids(&self, state: &mut State) -> Result<()> {
        if state.changes.size() >= CHANGES_MAX && self.joined.is_none() {
            self.commit_all(state)?;
        }
        if state.session.as_ref().is_none_or(|session| session.ids_left() >= IDS_MIN) {
            return Ok(());
        }
        let session = match &self.joined {
            // The version that is shown stays.
            Some(_) => self.container.begin_session(&mut self.container.snapshot(None)?)?,
            None => {
                self.commit_all(state)?;
                self.container.begin_session(&mut state.snapshot)?
            }
        };
        state.session = Some(Arc::new(session));
        state.all_changed();
        Ok(())
    }

    /// Begins the session of a writer.
    pub(super) fn first_session(container: &crate::iod::Container, snapshot: &mut crate::iod::Snapshot) -> Result<Session> {
        container.check_store()?;
        container.begin_session(snapshot)
    }
}

/// The session of the writer.
pub(super) fn session(state: &State) -> Result<&Arc<Session>> {
    state.session.as_ref().ok_or_else(|| Error::refused(libc::EROFS, "the container was opened for reading"))
}

/// The changes but chunks that are not encoded.
pub(super) fn entries(state: &State) -> Vec<Entry> {
    state.changes.iter().filter_map(|(key, change)| entry(key, change)).collect()
}

/// The change of a value in a record. `None`: a chunk that is not encoded.
fn entry(key: &Key, change: &Change) -> Option<Entry> {
    let cell = match &change.body {
        Body::Removed => None,
        Body::Cell(cell) => Some(cell.clone()),
        Body::Dirty(_) => return None,
    };
    Some(Entry { key: key.clone(), cell, ranges: change.ranges.clone() })
}
