//! Commits: chunks are encoded into packs, and one record publishes all changes.

use super::access::{IodConnector, Running};
use super::dataset::Dataset;
use super::decoding::chunk_key;
use super::image::{Body, Change, Changes, SharedImage, Unencoded, out_of_range};
use super::in_doubt::{is_full, is_retried};
use super::moves;
use super::paths;
use super::state::State;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::key::CacheKey;
use crate::iod::cell::INLINE_MAX_BYTES;
use crate::iod::merge::{Merged, Merging, merge};
use crate::iod::record::{self, DELTA_MAX_BYTES, Delta};
use crate::iod::rules::Rule;
use crate::iod::{Cell, Conflict, Data, Entry, Key, Outcome, PackWriter, Ranges, Record, Session, keys};
use std::borrow::Cow;
use std::sync::Arc;

/// Chunks that are encoded before they are put into packs.
const ENCODED_AT_ONCE: usize = 64;
/// Ids that a session has at least when an operation begins.
const IDS_MIN: u64 = 1 << 16;
/// With more changes, the next operation begins with a commit.
const CHANGES_MAX: usize = 1 << 18;

fn poisoned(reason: &str) -> Error {
    let remedy = "write 'discard' to .h5dir/refused to drop the changes since the commit before it, or mount again";
    Error::refused(libc::EIO, format!("an earlier commit was refused; {remedy}: {reason}"))
}

impl IodConnector {
    /// Errors: the session cannot change anything any more.
    pub(super) fn check_writable(&self, state: &State) -> Result<()> {
        self.check_unfinished()?;
        match (&state.failed, &state.session) {
            (Some(reason), _) => Err(poisoned(reason)),
            (None, None) => Err(Error::refused(libc::EROFS, "the container was opened for reading")),
            (None, Some(_)) => Ok(()),
        }
    }

    /// Encodes chunks in memory if one operation made many.
    pub(super) fn bound_dirty(&self, state: &mut State) -> Result<()> {
        if state.dirty_bytes > self.dirty_limit.saturating_mul(4) { self.store_values(state) } else { Ok(()) }
    }

    /// Stores all values in packs that are too long for records, chunks encoded. No version has
    /// them yet.
    pub(super) fn store_values(&self, state: &mut State) -> Result<()> {
        let Some(session) = state.session.clone() else { return Ok(()) };
        let (values, chunks) = (long_values(state), self.dirty_chunks(state)?);
        let (longs, cells) = self.store_all(&session, &values, &chunks)?;
        // Not before the packs are there: after an error the values are still in memory.
        values_stored(state, values, longs);
        let stored = self.chunks_stored(state, chunks, cells);
        self.cache_stored(stored);
        Ok(())
    }

    /// Stores long values and chunks in packs, chunks encoded, while other operations run: a commit
    /// after it has little left to do.
    pub(super) fn store_ahead(&self) -> Result<()> {
        let _one = self.storing.lock();
        let state = self.states.shown();
        let (Some(session), None) = (state.session.clone(), &state.failed) else { return Ok(()) };
        let (values, chunks) = (long_values(&state), self.dirty_chunks(&state)?);
        if values.is_empty() && chunks.is_empty() {
            return Ok(());
        }
        drop(state);
        let (longs, cells) = self.store_all(&session, &values, &chunks)?;
        let mut state = self.states.next();
        values_stored(&mut state, values, longs);
        let stored = self.chunks_stored(&mut state, chunks, cells);
        drop(state);
        self.cache_stored(stored);
        Ok(())
    }

    /// Has a thread store chunks ahead if many are in memory; waits for it if too many are.
    pub(super) fn store_many_ahead(&self) -> Result<()> {
        let dirty = self.states.shown().dirty_bytes;
        if dirty > self.dirty_limit.saturating_mul(2) {
            return self.store_ahead();
        }
        // A burst of writes starts one.
        if dirty > self.dirty_limit
            && let Some(running) = Running::one_of(&self.storers, 1)
        {
            let connector = self.shared()?;
            let store = move || {
                let _running = running;
                // The chunks stay in memory; a commit gets the error again.
                if let Err(e) = connector.store_ahead() {
                    tracing::debug!("chunks are not stored ahead: {e}");
                }
            };
            if let Err(e) = std::thread::Builder::new().name("h5dir-store".into()).spawn(store) {
                tracing::debug!("chunks are not stored ahead: {e}");
            }
        }
        Ok(())
    }

    /// The chunks in memory.
    fn dirty_chunks(&self, state: &State) -> Result<Vec<DirtyChunk>> {
        let mut chunks = Vec::new();
        for (key, change) in &state.changes {
            if let Body::Dirty(image) = &change.body {
                let (id, ..) = keys::parts(key).ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "it has no dataset"))?;
                chunks.push(DirtyChunk { key: key.clone(), dataset: self.dataset_of(state, id)?, image: image.now() });
            }
        }
        Ok(chunks)
    }

    /// Stores long values, and chunks encoded; returns where.
    fn store_all(&self, session: &Session, values: &[LongValue], chunks: &[DirtyChunk]) -> Result<(Vec<Cell>, Vec<Cell>)> {
        let mut packs = PackWriter::new(&self.container, session);
        let stored = put_all(&mut packs, values, chunks);
        if let Err(e) = &stored {
            packs.give_up(e);
        }
        stored
    }

    /// Replaces chunks in memory by what is stored of them, unless they changed since; returns
    /// those for the cache.
    fn chunks_stored(&self, state: &mut State, chunks: Vec<DirtyChunk>, cells: Vec<Cell>) -> Vec<StoredImage> {
        let mut stored = Vec::new();
        for (DirtyChunk { key, dataset, image }, cell) in chunks.into_iter().zip(cells) {
            state.note_pack(&cell);
            let Some(Change { body: Body::Dirty(now), ranges }) = state.changes.get(&key) else { continue };
            if !Arc::ptr_eq(&now.now(), &image) {
                continue;
            }
            let ranges = ranges.clone();
            let is_sparse = image.image().defined().is_some();
            let is_full = !is_sparse && ranges.list().last().is_some_and(|(_, end)| *end as usize >= image.memory());
            let in_cache = if let Data::Extent(extent) = &cell.data { Some(chunk_key(&dataset, extent)) } else { None };
            state.change_form(key, Body::Cell(cell), ranges);
            stored.extend(in_cache.map(|key| StoredImage { key, image, is_full }));
        }
        stored
    }

    /// Puts chunks that were stored into the cache. Full ones are rarely read soon.
    fn cache_stored(&self, stored: Vec<StoredImage>) {
        for StoredImage { key, image, is_full } in stored {
            // A reader that has it now has read it.
            let Ok(Unencoded(image)) = Arc::try_unwrap(image) else { continue };
            let len = image.element_bytes();
            if let Some(chunk) = self.env.cache.insert(key, image).filter(|_| is_full) {
                self.env.cache.record_read(key, &chunk, len);
            }
        }
    }

    /// Makes all changes one version. Errors: a conflict with another writer, after which nothing
    /// can be changed; of the store, after which another commit may succeed.
    pub(super) fn commit_all(&self, state: &mut State) -> Result<()> {
        self.check_writable(state)?;
        self.lead(state)?;
        // The record of a commit in doubt may have what was reverted since.
        if state.changes.is_empty() && state.in_doubt.is_empty() {
            return Ok(());
        }
        let done = self.try_commit(state);
        match &done {
            Err(e) if is_full(e) => {
                self.free_unused_packs(state);
                self.move_pin(state);
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
            self.store_values(state)?;
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
        let images = chunks.iter().map(|key| self.merged_chunk(state, key, entries)).collect::<Result<Vec<_>>>()?;
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

    /// The image of a chunk that another writer changed by `entries`, with the bytes that the
    /// session wrote.
    pub(super) fn merged_chunk(&self, state: &State, key: &Key, entries: &[Entry]) -> Result<SharedImage> {
        let (id, ..) = keys::parts(key).ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "it has no dataset"))?;
        let d = self.dataset_of(state, id)?;
        let ours = self.chunks.chunk(state, &d, key)?;
        let entry = entries.binary_search_by(|entry| entry.key.cmp(key)).ok().and_then(|at| entries.get(at));
        let theirs = match entry.and_then(|entry| entry.cell.as_ref()) {
            Some(cell) => self.chunks.image(&d, cell)?.into_image(&d)?,
            None => d.blank(false)?,
        };
        if !self.container.rules().keep(Rule::Ranges) {
            return Ok(ours);
        }
        let mut merged = theirs;
        let taken = Arc::make_mut(&mut merged).take(&ours, &state.written(key), d.chunk_dims(), d.element_size.max(1));
        taken.ok_or_else(|| out_of_range(d.id))?;
        Ok(merged)
    }

    /// A conflict as a sentence, with the name of what conflicts.
    pub(super) fn conflict_text(&self, state: &State, conflict: &Conflict, with: &str) -> String {
        let (id, kind, rest) = keys::parts(&conflict.key).unwrap_or((0, 0, &[]));
        let path = paths::path_of(self, state, id).unwrap_or_else(|| format!("#{id}").into_bytes());
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

/// A value in memory that is too long for records: a chunk in stored form, a block of cells.
struct LongValue {
    key: Key,
    mask: u32,
    bytes: Arc<[u8]>,
}

/// The long values in memory.
fn long_values(state: &State) -> Vec<LongValue> {
    let values = state.changes.iter().filter_map(|(key, change)| match &change.body {
        Body::Cell(cell) => cell.long().map(|bytes| LongValue { key: key.clone(), mask: cell.mask, bytes: bytes.clone() }),
        _ => None,
    });
    values.collect()
}

/// Replaces long values in memory by where they are stored, unless they changed since.
fn values_stored(state: &mut State, values: Vec<LongValue>, cells: Vec<Cell>) {
    for (LongValue { key, bytes, .. }, cell) in values.into_iter().zip(cells) {
        state.note_pack(&cell);
        let Some(Change { body: Body::Cell(now), ranges }) = state.changes.get(&key) else { continue };
        if now.mask == cell.mask && now.long().is_some_and(|now| Arc::ptr_eq(now, &bytes)) {
            let ranges = ranges.clone();
            state.change_form(key, Body::Cell(cell), ranges);
        }
    }
}

/// A chunk in memory.
struct DirtyChunk {
    key: Key,
    dataset: Arc<Dataset>,
    image: SharedImage,
}

/// A chunk that was stored, and is to be cached.
struct StoredImage {
    key: CacheKey,
    image: SharedImage,
    /// It was written to its end.
    is_full: bool,
}

/// Puts long values and chunks, encoded, into packs, which are durable then; returns where.
fn put_all(packs: &mut PackWriter<'_>, values: &[LongValue], chunks: &[DirtyChunk]) -> Result<(Vec<Cell>, Vec<Cell>)> {
    let place = |value: &LongValue| Ok(Cell { mask: value.mask, data: Data::Extent(packs.add(&value.bytes)?) });
    let longs = values.iter().map(place).collect::<Result<Vec<_>>>()?;
    let mut cells = Vec::with_capacity(chunks.len());
    for group in chunks.chunks(ENCODED_AT_ONCE) {
        for encoded in encode_all(group) {
            let (bytes, mask) = encoded?;
            cells.push(Cell { mask, data: placed(packs, &bytes)? });
        }
    }
    packs.settle()?;
    Ok((longs, cells))
}

/// A value in a record, or in a pack if it is long.
fn placed(packs: &mut PackWriter<'_>, bytes: &[u8]) -> Result<Data> {
    match bytes.len() > INLINE_MAX_BYTES {
        true => packs.add(bytes).map(Data::Extent),
        false => Ok(Data::Inline(bytes.into())),
    }
}

/// Encodes chunks, several at once if they have filters.
fn encode_all(chunks: &[DirtyChunk]) -> Vec<Result<(Cow<'_, [u8]>, u32)>> {
    fn encode(chunk: &DirtyChunk) -> Result<(Cow<'_, [u8]>, u32)> {
        chunk.dataset.encode(&chunk.image)
    }
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if threads < 2 || chunks.len() < 2 || chunks.iter().all(|chunk| chunk.dataset.pipeline.is_empty()) {
        return chunks.iter().map(encode).collect();
    }
    let lost = || Err(Error::Io { operation: "encode a chunk", address: Address::UNDEF, errno: libc::EIO });
    std::thread::scope(|scope| {
        let parts = chunks.chunks(chunks.len().div_ceil(threads));
        let running: Vec<_> = parts.map(|part| (part.len(), scope.spawn(move || part.iter().map(encode).collect::<Vec<_>>()))).collect();
        running.into_iter().flat_map(|(len, thread)| thread.join().unwrap_or_else(|_| (0..len).map(|_| lost()).collect())).collect()
    })
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
