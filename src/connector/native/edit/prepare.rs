//! Prepares a dataset's next layout while other requests are served.
//!
//! 1. An operation creates a dataset without a name that has the wanted properties.
//! 2. The elements are copied to it in pieces: each is an operation of its own, and the pieces are
//!    read and encoded without a lock.
//! 3. The operation that changes the dataset (`relayout`) takes over the header messages and the
//!    storage of the copy.
//!
//! A copy in a log is an anchor with a number of its own there, which the dataset takes over: until
//! step 3 no dataset with a name has the elements that were appended.
//!
//! A change of the elements before step 3 cancels the preparation. After a crash the dataset has
//! the old or the new layout; the space of a copy that a commit made durable is lost.
//!
//! Elements of variable length and references are not prepared: `relayout` copies them itself.

use super::super::dataset::{Dataset, key};
use super::attributes::Values;
use super::change_parts::LayoutChange;
use super::connector_parts::LayoutPreparation;
use super::now;
use super::relayout::{KINDS, bound_copy, bound_holes};
use crate::base::datatype::Datatype;
use crate::base::limits::IO_PIECE_BYTES;
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result, waiting};
use crate::connector::edit::Elements;
use crate::connector::plan::plan;
use crate::connector::{Connector, DatasetSpec, Form, ObjectId};
use crate::dataset::creation::Creation;
use crate::file::space::SpaceUsage;
use crate::format::object_header::kind;
use crate::meta::header_edit::HeaderEdit;
use foldhash::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Datasets with fewer stored bytes are changed at once.
const PREPARED_MIN_BYTES: u64 = 64 << 10;
/// A new file is laid out again if more of the container is free: a divisor of its size.
const FREE_PART: u64 = 20;
/// Room for metadata beside elements that are in one block, bytes.
const ROOM_BYTES: u64 = 64 << 10;
/// Rounds in which dirty chunks of the copy are stored without the exclusive lock.
const STORE_ROUNDS: usize = 8;

/// A copy of a dataset in another layout.
#[derive(Debug)]
pub(super) struct Preparation {
    /// The dataset without a name.
    copy: ObjectId,
    /// What it was created as.
    creation: Creation,
    /// The dataset is a file of bytes of this mount whose description came now.
    of_new_file: bool,
    /// Space that is kept free between the bytes of a new file and the copy.
    spacer: Option<(Address, u64)>,
    /// All elements are in the copy.
    complete: AtomicBool,
    /// The elements changed since.
    cancelled: AtomicBool,
    /// The dataset has the layout.
    adopted: AtomicBool,
    done: AtomicU64,
    total: u64,
}

impl Preparation {
    fn is_usable(&self) -> bool {
        self.complete.load(Ordering::Acquire) && !self.is_cancelled()
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}

/// Preparations under way, by dataset.
#[derive(Default)]
pub(in crate::connector::native) struct Preparations(Mutex<HashMap<ObjectId, Arc<Preparation>>>);

impl Preparations {
    fn get(&self, id: ObjectId) -> Option<Arc<Preparation>> {
        self.0.lock().get(&id).cloned()
    }

    /// The elements of `id` change.
    pub(super) fn cancel(&self, id: ObjectId) {
        if let Some(p) = self.0.lock().get(&id) {
            p.cancelled.store(true, Ordering::Release);
        }
    }

    /// Bytes copied and to be copied, of the dataset `id` or of all.
    pub(in crate::connector::native) fn progress(&self, id: Option<ObjectId>) -> Option<(u64, u64)> {
        let all = self.0.lock();
        let of = all.iter().filter(|(other, _)| id.is_none_or(|id| id == **other));
        of.map(|(_, p)| (p.done.load(Ordering::Relaxed), p.total)).reduce(|a, b| (a.0.saturating_add(b.0), a.1.saturating_add(b.1)))
    }
}

impl LayoutChange<'_> {
    /// The creation that `spec` makes of the dataset, if it is prepared.
    fn preparable(&self, id: ObjectId, spec: &DatasetSpec) -> Result<Option<(Arc<Dataset>, Creation)>> {
        let (store, d) = (self.change.store()?, self.change.dataset(id)?);
        let plain = |t: &crate::base::datatype::Datatype| !t.contains_vlen() && !t.contains_reference();
        if !plain(&d.datatype) || spec.dtype.as_ref().is_some_and(|t| !plain(t)) || d.bytes.size < PREPARED_MIN_BYTES {
            return Ok(None);
        }
        let spec = self.completed(id, spec.clone());
        if self.is_wish(&d, &spec) {
            return Ok(None);
        }
        let creation = plan(&self.now(&d)?, &spec, &mut Values::new(self.change, &store))?;
        // There is nothing to copy.
        if self.is_maximum(&d, &spec, &creation)? || self.is_blank(&d, &creation)? {
            return Ok(None);
        }
        // A log of the released log VOL gives an ID to the dataset itself.
        let is_released = self.change.access.written_log().is_some_and(|log| log.is_released());
        if is_released && (creation.layout.kind.records().is_some() || d.layout().for_copy().kind.records().is_some()) {
            return Ok(None);
        }
        self.change.data().check_bounds(&d)?;
        bound_copy(&d)?;
        Ok(Some((d, creation)))
    }

    /// Creates the copy.
    fn begin_preparation(&self, id: ObjectId, d: &Dataset, creation: Creation) -> Result<Arc<Preparation>> {
        let of_new_file = self.change.editing.objects.usage(id).is_new_file && d.datatype == Datatype::byte();
        let (spacer, copy) = self.change.atomically(|| {
            let spacer = if of_new_file { self.spacer(d, &creation)? } else { None };
            let copy = ObjectId { address: self.change.objects().new_dataset(&creation, now())?, ..id };
            self.change.connector.options.environment.forget(key(copy));
            self.change.changed(copy);
            self.change.log().set_anchor(copy, &creation, true)?;
            if self.change.dataset(copy)?.bytes.fill != d.bytes.fill {
                bound_holes(d)?;
            }
            Ok((spacer, copy))
        })?;
        self.change.editing.objects.use_object(copy, |usage| usage.is_nameless = true);
        let preparation = Arc::new(Preparation {
            copy,
            creation,
            of_new_file,
            spacer,
            complete: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            adopted: AtomicBool::new(false),
            done: AtomicU64::new(0),
            total: d.bytes.size,
        });
        self.change.editing.preparations.0.lock().insert(id, preparation.clone());
        Ok(preparation)
    }

    /// Reserves space behind the bytes of a new file, so that the copy fits before itself when they
    /// are gone: not all of them may have been stored.
    fn spacer(&self, d: &Dataset, creation: &Creation) -> Result<Option<(Address, u64)>> {
        let (store, stored) = (self.change.store()?, d.layout().stored_volume(&d.bytes)?.bytes);
        let is_waste = stored > store.transaction()?.space_usage().end / FREE_PART;
        if creation.layout.chunk_dims().is_some() || creation.layout.kind.records().is_some() || !is_waste {
            return Ok(None);
        }
        let len = d.bytes.size.saturating_sub(stored).saturating_add(ROOM_BYTES.saturating_mul(4));
        store.append(len).map(Some)
    }

    fn free_spacer(&self, p: &Preparation) -> Result<()> {
        let Some((address, len)) = p.spacer else { return Ok(()) };
        self.change.atomically(|| self.change.store()?.free(address, len))
    }

    /// Gives the layout that was prepared for `old` as `creation` to the dataset `id`. False if
    /// there is none.
    pub(super) fn adopt(&self, id: ObjectId, old: &Dataset, creation: &Creation, retyped: bool) -> Result<bool> {
        let Some(p) = self.change.editing.preparations.get(id).filter(|p| p.is_usable() && p.creation == *creation) else {
            return Ok(false);
        };
        let (store, env) = (self.change.store()?, &self.change.connector.options.environment);
        self.change.dirty_chunks().flush_within(p.copy)?;
        let header = HeaderEdit::load(&store, p.copy.address)?;
        let message = |kind: u16| Some((kind, header.message(header.find(kind)?)?.flags, header.body(header.find(kind)?).to_vec()));
        let messages = KINDS.into_iter().chain([kind::DATATYPE]).filter_map(message).collect();
        self.set_messages(id, messages, retyped)?;
        self.change.log().move_anchor(p.copy, id, creation)?;
        self.change.changed(id);
        self.change.delete_storage(old)?;
        env.forget(key(old.id));
        HeaderEdit::delete(&store, p.copy.address)?;
        env.forget(key(p.copy));
        self.change.changed(p.copy);
        p.adopted.store(true, Ordering::Release);
        Ok(true)
    }
}

impl LayoutPreparation<'_> {
    /// Prepares the layout that `spec` gives to the dataset `id`. False if it is changed at once.
    /// The caller holds the object, and ends what was begun.
    pub(super) fn prepare(&self, id: ObjectId, spec: &DatasetSpec) -> Result<bool> {
        waiting::may_wait();
        let editing = self.connector.editing()?;
        let p = {
            let change = self.connector.change(&[id])?;
            if editing.preparations.get(id).is_some() {
                return Ok(false);
            }
            // What is wrong with it the change itself reports.
            let Ok(Some((d, creation))) = change.layout().preparable(id, spec) else { return Ok(false) };
            change.layout().begin_preparation(id, &d, creation)?
        };
        let copied = self.copy_pieces(id, &p);
        if p.is_cancelled() {
            self.end_prepared(id);
            return Err(Error::refused(libc::EBUSY, "the dataset was written while its layout changed"));
        }
        if let Err(e) = copied {
            self.end_prepared(id);
            return Err(e);
        }
        p.complete.store(true, Ordering::Release);
        Ok(true)
    }

    fn copy_pieces(&self, id: ObjectId, p: &Preparation) -> Result<()> {
        let mut piece = vec![0u8; IO_PIECE_BYTES];
        let mut at = 0u64;
        while at < p.total && !p.is_cancelled() {
            p.done.store(at, Ordering::Relaxed);
            let (from, n) = self.read_piece(id, p, at, &mut piece)?;
            if n > 0 {
                self.connector.write_back().admit_write()?;
                self.connector.write_back().bound_staged()?;
                let bytes = piece.get(..n).unwrap_or_default();
                let copy = self.connector.access().dataset(p.copy)?.dataset.bytes.clone();
                for part in copy.kept(bytes, from, p.creation.undefine_fill) {
                    let (at, bytes) = (from.saturating_add(part.start as u64), bytes.get(part).unwrap_or_default());
                    self.connector.operate(&[p.copy], |c| c.data().put_elements(p.copy, at, bytes))?;
                }
            }
            at = from.saturating_add(n as u64);
        }
        p.done.store(p.total, Ordering::Relaxed);
        self.connector.write_back().store_dataset(key(p.copy), STORE_ROUNDS)
    }

    /// Reads the first written elements at or after `at`; returns where they are and their bytes.
    fn read_piece(&self, id: ObjectId, p: &Preparation, at: u64, piece: &mut [u8]) -> Result<(u64, usize)> {
        let env = &self.connector.options.environment;
        let access = self.connector.access();
        let (d, copy) = (&access.dataset(id)?.dataset, &access.dataset(p.copy)?.dataset);
        let Some(next) = self.connector.holes().written(id, d, copy)?.next(d, at)? else { return Ok((p.total, 0)) };
        let from = next.start;
        let len = usize::try_from(next.end.saturating_sub(from)).unwrap_or(IO_PIECE_BYTES).clamp(1, IO_PIECE_BYTES);
        let len = copy.bytes.whole_elements(len);
        let n = d.bytes.read(env, from, piece.get_mut(..len).unwrap_or_default())?;
        if n == 0 { Err(d.object.lacks("whole data layout")) } else { Ok((from, n)) }
    }

    /// Changes a dataset, to a layout that was prepared if there is one.
    pub(super) fn change_layout(&self, id: ObjectId, spec: DatasetSpec, elements: Elements) -> Result<()> {
        if elements == Elements::Kept && self.change_prepared(id, &spec)?.is_some() {
            return Ok(());
        }
        self.connector.operate_flushed(id, |c| match elements {
            Elements::Kept => c.layout().change_dataset(id, spec),
            Elements::Dropped => c.layout().replace_dataset(id, &spec),
        })
    }

    /// The change of a dataset whose next layout is prepared. `None`: it is not, or not any more.
    fn change_prepared(&self, id: ObjectId, spec: &DatasetSpec) -> Result<Option<()>> {
        let change = self.connector.change(&[id])?;
        let Some(p) = change.editing.preparations.get(id).filter(|p| p.is_usable()) else { return Ok(None) };
        // Another layout is made from the stored elements.
        if change.layout().preparable(id, spec)?.is_none_or(|(_, creation)| creation != p.creation) {
            return Ok(None);
        }
        let changed = change.atomically_reserved(|| change.layout().change_dataset(id, spec.clone()));
        changed.inspect_err(|_| p.adopted.store(false, Ordering::Release))?;
        if p.adopted.load(Ordering::Acquire) {
            // Dirty chunks of the old layout.
            self.connector.options.environment.forget(key(id));
            // Its address may be that of another object soon.
            change.editing.objects.remove(p.copy);
        }
        change.settle().map(Some)
    }

    /// Ends a preparation. Deletes a copy that was not used. Lays a new file out again if the space
    /// that its bytes took is a large part of the container.
    pub(super) fn end_prepared(&self, id: ObjectId) {
        let Some(p) = self.connector.editing.as_ref().and_then(|e| e.preparations.0.lock().remove(&id)) else { return };
        let freed = self.connector.change(&[]).and_then(|change| change.layout().free_spacer(&p));
        let ended = if p.adopted.load(Ordering::Acquire) {
            let is_in_log = p.creation.layout.kind.records().is_some();
            if p.of_new_file && !is_in_log { self.lay_out_again(id) } else { Ok(()) }
        } else {
            self.connector.operate(&[p.copy], |c| c.objects().delete_nameless(p.copy))
        };
        if let Err(e) = freed.and(ended) {
            tracing::debug!("space that a change of a layout took is not free: {e}");
        }
    }

    /// Use of space, after a commit if that makes much space free.
    fn space_usage(&self) -> Result<SpaceUsage> {
        let store = self.connector.file(0)?.store.clone();
        let usage = store.transaction()?.space_usage();
        if usage.freed <= usage.end / FREE_PART {
            return Ok(usage);
        }
        self.connector.commits().commit_all(false)?;
        Ok(store.transaction()?.space_usage())
    }

    fn lay_out_again(&self, id: ObjectId) -> Result<()> {
        let (usage, needed) = (self.space_usage()?, self.connector.content(id, Form::Main)?.allocated()?);
        let in_pieces = Connector::dataset(self.connector, id)?.chunks.is_some();
        let room = if in_pieces { usage.free } else { usage.largest.saturating_sub(ROOM_BYTES) };
        if usage.free <= usage.end / FREE_PART || room < needed {
            return Ok(());
        }
        let same = DatasetSpec::default();
        if self.prepare(id, &same)? {
            let changed = self.change_prepared(id, &same);
            self.end_prepared(id);
            changed?;
        }
        Ok(())
    }
}
