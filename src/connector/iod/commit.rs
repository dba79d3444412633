//! Commits: chunks are encoded into packs, and one record publishes all changes.

use super::access::IodConnector;
use super::dataset::Dataset;
use super::paths;
use super::state::State;
use crate::base::{Address, Error, Result};
use crate::iod::cell::INLINE_MAX_BYTES;
use crate::iod::merge::{Merging, merge};
use crate::iod::record::{self, DELTA_MAX_BYTES, Delta};
use crate::iod::{Body, Cell, Conflict, Data, Entry, Key, Outcome, PackWriter, Ranges, Record, Session, keys};
use std::sync::Arc;

/// Chunks that are encoded before they are put into packs.
const ENCODED_AT_ONCE: usize = 64;
/// Ids that a session has at least when an operation begins.
const IDS_MIN: u64 = 1 << 16;

fn poisoned(reason: &str) -> Error {
    Error::refused(libc::EIO, format!("an earlier commit failed, and the changes since the one before it are lost; mount again: {reason}"))
}

impl IodConnector {
    /// Errors: the session cannot change anything any more.
    pub(super) fn check_writable(&self, state: &State) -> Result<()> {
        match (&state.failed, &state.session) {
            (Some(reason), _) => Err(poisoned(reason)),
            (None, None) => Err(Error::refused(libc::EROFS, "the container was opened for reading")),
            (None, Some(_)) => Ok(()),
        }
    }

    /// Encodes chunks in memory if there are many.
    pub(super) fn bound_dirty(&self, state: &mut State) -> Result<()> {
        if state.dirty_bytes > self.dirty_limit { self.store_values(state) } else { Ok(()) }
    }

    /// Stores all values in packs that are too long for records, chunks encoded. No version has
    /// them yet.
    fn store_values(&self, state: &mut State) -> Result<()> {
        let Some(session) = &state.session else { return Ok(()) };
        let mut packs = PackWriter::new(&self.container, session);
        let mut stored: Vec<(Key, Cell, Option<Vec<u8>>)> = Vec::new();
        let mut place = |bytes: &[u8], mask: u32| match bytes.len() > INLINE_MAX_BYTES {
            true => packs.add(bytes).map(|extent| Cell { mask, data: Data::Extent(extent) }),
            false => Ok(Cell { mask, data: Data::Inline(bytes.into()) }),
        };
        let mut dirty = Vec::new();
        for (key, change) in &state.changes {
            match &change.body {
                Body::Dirty(image) => {
                    let (id, ..) = keys::parts(key).ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "it has no dataset"))?;
                    dirty.push((key, self.dataset_of(state, id)?, image));
                }
                Body::Cell(Cell { data: Data::Inline(bytes), mask }) if bytes.len() > INLINE_MAX_BYTES => {
                    stored.push((key.clone(), place(bytes, *mask)?, None));
                }
                _ => {}
            }
        }
        for group in dirty.chunks(ENCODED_AT_ONCE) {
            for ((key, _, image), encoded) in group.iter().zip(encode_all(group)) {
                let (bytes, mask) = encoded?;
                stored.push(((*key).clone(), place(&bytes, mask)?, Some((*image).clone())));
            }
        }
        packs.finish()?;
        for (key, cell, image) in stored {
            if let (Data::Extent(extent), Some(image)) = (&cell.data, image) {
                self.images.lock().put(*extent, Arc::new(image));
            }
            let ranges = state.changes.get(&key).map_or_else(Ranges::whole, |c| c.ranges.clone());
            state.change_form(key, Body::Cell(cell), ranges);
        }
        Ok(())
    }

    /// Makes all changes one version. Errors: a conflict with another writer, or of the store.
    pub(super) fn commit_all(&self, state: &mut State) -> Result<()> {
        self.check_writable(state)?;
        self.lead(state)?;
        if state.changes.is_empty() {
            return Ok(());
        }
        let done = self.try_commit(state);
        if let Err(e) = &done {
            state.failed = Some(e.to_string());
        }
        done
    }

    fn try_commit(&self, state: &mut State) -> Result<()> {
        loop {
            self.store_values(state)?;
            let entries: Vec<Entry> = state.changes.iter().filter_map(|(key, change)| entry(key, change)).collect();
            let record = self.new_record(state, &entries)?;
            if let Outcome::Committed(hash) = self.container.append(&state.snapshot, &record)? {
                state.snapshot.advance(&record, hash, &entries)?;
                state.changes.clear();
                (state.dirty_bytes, state.moves_group) = (0, false);
                self.checkpoint_if_due(state);
                return Ok(());
            }
            self.rebase(state)?;
        }
    }

    fn new_record(&self, state: &State, entries: &[Entry]) -> Result<Record> {
        let session = state.session.as_ref().ok_or_else(|| Error::refused(libc::EROFS, "the container was opened for reading"))?;
        let delta = record::encode_delta(entries);
        let delta = match delta.len() > DELTA_MAX_BYTES {
            false => Delta::Inline(entries.to_vec()),
            true => {
                let mut packs = PackWriter::new(&self.container, session);
                let extent = packs.add(&delta)?;
                packs.finish()?;
                Delta::Extent(extent)
            }
        };
        self.container.record(&state.snapshot, session.number(), state.moves_group, delta)
    }

    /// Makes the changes those of the newest version.
    pub(super) fn rebase(&self, state: &mut State) -> Result<()> {
        let mut advanced = false;
        while let Some((record, hash)) = self.container.read_record(state.snapshot.version().saturating_add(1))? {
            let entries = self.container.entries(&record)?;
            let mut changes = std::mem::take(&mut state.changes);
            let merging = Merging { objects: &self.container, base: &state.snapshot, moves_group: state.moves_group };
            let merged = merge(&merging, &mut changes, &record, &entries);
            state.changes = changes;
            match merged? {
                Err(conflict) => return Err(self.refused(state, &record, &conflict)),
                Ok(chunks) => {
                    let ours = chunks.into_iter().map(|key| self.own_image(state, key)).collect::<Result<Vec<_>>>()?;
                    state.snapshot.advance(&record, hash, &entries)?;
                    self.all_changed();
                    for (key, image) in ours {
                        self.merge_chunk(state, key, &image)?;
                    }
                }
            }
            advanced = true;
        }
        if advanced { Ok(()) } else { Err(record::fork(state.snapshot.version().saturating_add(1))) }
    }

    /// The image of a chunk that the session wrote.
    fn own_image(&self, state: &State, key: Key) -> Result<(Key, Vec<u8>)> {
        let (id, ..) = keys::parts(&key).ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "it has no dataset"))?;
        let d = self.dataset_of(state, id)?;
        let image = self.with_chunk(state, &d, &key, |image| image.unwrap_or_default().to_vec())?;
        Ok((key, image))
    }

    /// Writes the bytes of the session again, into the chunk of the new version.
    fn merge_chunk(&self, state: &mut State, key: Key, ours: &[u8]) -> Result<()> {
        let (id, ..) = keys::parts(&key).ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "it has no dataset"))?;
        let d = self.dataset_of(state, id)?;
        let theirs = match state.snapshot.get(&self.container, &key)? {
            Some(cell) => self.image(&d, &cell)?.to_vec(),
            None => Vec::new(),
        };
        let ranges = state.changes.get(&key).map_or_else(Ranges::default, |c| c.ranges.clone());
        let merged = self.merged_image(&d, &theirs, ours, &ranges);
        state.change(key, Body::Dirty(merged), ranges);
        Ok(())
    }

    /// The error of a conflict, with the name of what conflicts.
    fn refused(&self, state: &State, record: &Record, conflict: &Conflict) -> Error {
        let (id, kind, rest) = keys::parts(&conflict.key).unwrap_or((0, 0, &[]));
        let path = paths::path_of(self, state, id).unwrap_or_else(|| format!("#{id}").into_bytes());
        let mut name = String::from_utf8_lossy(&path).into_owned();
        if matches!(kind, keys::LINK | keys::ATTRIBUTE) {
            let what = if kind == keys::LINK { "name" } else { "attribute" };
            name = format!("{what} {:?} of {name}", String::from_utf8_lossy(rest));
        }
        let (version, label) = (conflict.version, String::from_utf8_lossy(&record.label));
        let reason = format!("conflict at {name} with version {version} ({label}): {}", conflict.reason);
        tracing::error!("the changes since version {} are not committed: {reason}", state.snapshot.version());
        Error::refused(libc::EIO, reason)
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

    /// Begins another session if the present one has few ids left.
    pub(super) fn keep_ids(&self, state: &mut State) -> Result<()> {
        if state.session.as_ref().is_none_or(|session| session.ids_left() >= IDS_MIN) {
            return Ok(());
        }
        self.commit_all(state)?;
        let session = self.container.begin_session(&mut state.snapshot)?;
        state.session = Some(session);
        self.all_changed();
        Ok(())
    }

    /// Begins the session of a writer.
    pub(super) fn first_session(container: &crate::iod::Container, snapshot: &mut crate::iod::Snapshot) -> Result<Session> {
        container.check_store()?;
        container.begin_session(snapshot)
    }
}

/// Encodes chunks, several at once if they have filters.
fn encode_all(chunks: &[(&Key, Arc<Dataset>, &Vec<u8>)]) -> Vec<Result<(Vec<u8>, u32)>> {
    let encode = |(_, d, image): &(&Key, Arc<Dataset>, &Vec<u8>)| d.encode((*image).clone());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if threads < 2 || chunks.len() < 2 || chunks.iter().all(|(_, d, _)| d.pipeline.is_empty()) {
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
fn entry(key: &Key, change: &crate::iod::Change) -> Option<Entry> {
    let cell = match &change.body {
        Body::Removed => None,
        Body::Cell(cell) => Some(cell.clone()),
        Body::Dirty(_) => return None,
    };
    Some(Entry { key: key.clone(), cell, ranges: change.ranges.clone() })
}
