//! The values that are shown: a snapshot and the changes that are not committed.

use super::ids::no_such;
use super::image::{Body, Change, Changes};
use crate::base::newlines::Newlines;
use crate::base::value::NewValue;
use crate::base::{Address, Error, Result};
use crate::connector::defined::Announced;
use crate::connector::edit::NewReference;
use crate::connector::{Form as Shown, ObjectKind};
use crate::format::object_header::kind::{MTIME, REFERENCE_COUNT};
use crate::iod::keys::{self, OBJECT_TYPE};
use crate::iod::limits::value_max;
use crate::iod::range::{KeyRange, Visit, is_empty, overlay};
use crate::iod::{Cell, Container, Key, Ranges, Session, Snapshot, merge};
use foldhash::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Datasets whose newlines inside strings are kept at a time.
const NEWLINES_AWAITED_MAX: usize = 4096;

/// Changes of an object up to which readers take a copy of them.
const FROZEN_CHANGES_MAX: usize = 4096;

/// Type of an object: group.
pub(super) const GROUP: u8 = 1;
/// Type of an object: dataset.
pub(super) const DATASET: u8 = 2;
/// Type of an object: named datatype.
pub(super) const DATATYPE: u8 = 3;
/// Type of an object: map.
pub(super) const MAP: u8 = 4;

/// References and attributes whose targets do not exist yet.
#[derive(Default)]
pub(super) struct Waiting {
    /// Dataset, number of the reference, target.
    pub references: Vec<(u64, u64, NewReference)>,
    /// By object and name.
    pub attributes: BTreeMap<(u64, Vec<u8>), NewValue>,
    /// Fill values, by dataset.
    pub fills: BTreeMap<u64, NewValue>,
    /// Object, attribute or `None` for the elements, path of a named datatype.
    pub types: Vec<(u64, Option<Vec<u8>>, Vec<u8>)>,
}

impl Waiting {
    /// The attribute `from` of an object has the name `to` now; `None`: it is removed.
    pub fn rename_type(&mut self, id: u64, from: &[u8], to: Option<&[u8]>) {
        self.types.retain(|(object, name, _)| *object != id || name.is_none() || name.as_deref() != to);
        let is_it = |(object, name, _): &(u64, Option<Vec<u8>>, Vec<u8>)| *object == id && name.as_deref() == Some(from);
        match to {
            Some(to) => self.types.iter_mut().filter(|t| is_it(t)).for_each(|t| t.1 = Some(to.to_vec())),
            None => self.types.retain(|t| !is_it(t)),
        }
    }
}

/// The form of a dataset that is being written.
pub(super) struct Form {
    /// As it is now.
    pub bytes: Arc<Vec<u8>>,
    /// Something was written since it was made or emptied.
    pub written: bool,
    /// It was emptied: all of its elements are written.
    pub emptied: bool,
    /// It is made of lines.
    pub lines: bool,
    /// Length of its beginning that no write changes: strings of the dataset, some with newlines.
    pub fixed: usize,
}

impl State {
    /// Keeps the newlines inside the strings of a dataset until its lines are parsed.
    pub fn await_newlines(&mut self, id: u64, newlines: Newlines) -> Result<()> {
        if self.newlines.len() >= NEWLINES_AWAITED_MAX {
            return Err(Error::refused(libc::EINVAL, "too many files wait for strings with newlines"));
        }
        self.newlines.insert(id, newlines);
        Ok(())
    }
}

impl Form {
    /// Whether it is what `form` of the dataset shows, whose elements are strings if `strings`.
    pub fn is(&self, form: Shown, strings: bool) -> bool {
        self.lines == (form == Shown::Main && strings)
    }
}

/// See the module's description.
pub(super) struct State {
    pub container: Arc<Container>,
    pub snapshot: Snapshot,
    /// `None`: read-only.
    pub session: Option<Arc<Session>>,
    pub changes: Changes,
    /// Bytes of `changes` that packs get.
    pub dirty_bytes: usize,
    /// A change moved a group.
    pub moves_group: bool,
    /// How often objects are held.
    pub held: HashMap<u64, u64>,
    /// Forms of variable-length datasets that are being written.
    pub forms: HashMap<u64, Form>,
    /// Newlines inside the strings of datasets whose lines are written next.
    pub newlines: HashMap<u64, Newlines>,
    /// Defined elements of datasets whose bytes are written next.
    pub announced: HashMap<u64, Announced>,
    pub waiting: Waiting,
    /// UUIDs of records of the next version whose commit is in doubt.
    pub in_doubt: Vec<[u8; 16]>,
    /// Packs, with their sessions, that no record can refer to yet.
    pub unpublished: BTreeSet<(u64, u32)>,
    /// Why nothing can be written any more.
    pub failed: Option<String>,
    /// Values before the operation under way changed them; `None`: it is not undone.
    undo: Option<Undo>,
    /// Stands for a dirty chunk in listings.
    placeholder: Cell,
}

/// What an operation changed.
#[derive(Default)]
struct Undo {
    /// Values before, in the order of the changes; `None`: the key had no change.
    changes: Vec<(Key, Option<Change>)>,
    moved_group: bool,
}

/// The value that a change makes; `placeholder` for a dirty chunk.
fn shown<'a>(change: &'a Change, placeholder: &'a Cell) -> Option<&'a Cell> {
    match &change.body {
        Body::Removed => None,
        Body::Cell(cell) => Some(cell),
        Body::Dirty(_) => Some(placeholder),
    }
}

/// Bytes in memory that packs get.
fn dirty_len(body: &Body) -> usize {
    match body {
        Body::Dirty(image) => image.memory(),
        Body::Cell(cell) => cell.long().map_or(0, |bytes| bytes.len()),
        Body::Removed => 0,
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|d| u32::try_from(d.as_secs()).ok()).unwrap_or(0)
}

impl State {
    /// A version and its writer.
    pub fn new(container: Arc<Container>, snapshot: Snapshot, session: Option<Session>) -> State {
        State {
            container,
            snapshot,
            session: session.map(Arc::new),
            changes: Changes::new(),
            dirty_bytes: 0,
            moves_group: false,
            held: HashMap::default(),
            forms: HashMap::default(),
            newlines: HashMap::default(),
            announced: HashMap::default(),
            waiting: Waiting::default(),
            in_doubt: Vec::new(),
            unpublished: BTreeSet::new(),
            failed: None,
            undo: None,
            placeholder: Cell::inline(&[]),
        }
    }

    /// The values of one object as they are now, for a reader who does not lock the state; `None`:
    /// too many of them changed.
    pub fn of_object(&self, id: u64) -> Option<State> {
        let range = keys::of_object(id);
        let changed = self.changes.range::<Key, _>((range.0.as_ref(), range.1.as_ref())).take(FROZEN_CHANGES_MAX.saturating_add(1));
        let changes: Changes = changed.map(|(key, change)| (key.clone(), change.clone())).collect();
        let snapshot = self.snapshot.within(&range, FROZEN_CHANGES_MAX).filter(|_| changes.len() <= FROZEN_CHANGES_MAX)?;
        Some(State { changes, ..State::new(self.container.clone(), snapshot, None) })
    }

    /// True for an object without names that is still stored.
    pub fn is_nameless(&self, id: u64) -> bool {
        id != 0 && matches!(self.link_count(id), Ok(0)) && self.kind(id).is_ok_and(|kind| kind.is_some())
    }

    /// True if objects without names are open.
    pub fn has_nameless(&self) -> bool {
        self.held.keys().any(|id| self.is_nameless(*id))
    }

    /// Deletes the objects without names that are open.
    pub fn delete_nameless(&mut self) -> Result<()> {
        let held: Vec<u64> = self.held.keys().copied().filter(|id| self.is_nameless(*id)).collect();
        held.into_iter().try_for_each(|id| self.delete_object(id))
    }

    /// Begins an operation that is undone if it fails.
    pub fn begin(&mut self) {
        self.undo = Some(Undo { changes: Vec::new(), moved_group: self.moves_group });
    }

    /// Ends the operation; undoes its changes unless they are `kept`. Chunks that were in memory
    /// before keep the bytes that it wrote.
    pub fn end(&mut self, kept: bool) {
        let Some(Undo { changes, moved_group }) = self.undo.take().filter(|_| !kept) else { return };
        for (key, before) in changes.into_iter().rev() {
            let now = match before {
                Some(change) => {
                    self.dirty_bytes = self.dirty_bytes.saturating_add(dirty_len(&change.body));
                    self.changes.insert(key, change)
                }
                None => self.changes.remove(&key),
            };
            self.dirty_bytes = self.dirty_bytes.saturating_sub(now.map_or(0, |now| dirty_len(&now.body)));
        }
        self.moves_group = moved_group;
    }

    fn note(&mut self, key: &Key, before: Option<Change>) {
        if let Some(undo) = &mut self.undo {
            undo.changes.push((key.clone(), before));
        }
    }

    /// The value of a key that is no dirty chunk.
    pub fn get(&self, key: &[u8]) -> Result<Option<Cell>> {
        match self.changes.get(key).map(|c| &c.body) {
            Some(Body::Cell(cell)) => Ok(Some(cell.clone())),
            Some(Body::Removed | Body::Dirty(_)) => Ok(None),
            None => self.snapshot.get(&self.container, key),
        }
    }

    /// The bytes of a value.
    pub fn bytes(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(key)?.map(|cell| self.container.bytes_of(key, &cell)).transpose()
    }

    /// Visits the values in a range; that of a dirty chunk is empty.
    pub fn scan(&self, range: &KeyRange, f: &mut Visit<'_>) -> Result<ControlFlow<()>> {
        if is_empty(range) {
            return Ok(ControlFlow::Continue(()));
        }
        let placeholder = &self.placeholder;
        let live = |change| shown(change, placeholder);
        let below = |f: &mut Visit<'_>| self.snapshot.scan(&self.container, range, f);
        overlay(&self.changes, range, live, below, f)
    }

    /// The keys in a range.
    pub fn keys(&self, range: &KeyRange) -> Result<Vec<Key>> {
        let mut all = Vec::new();
        let _ = self.scan(range, &mut |key, _| {
            all.push(key.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }

    /// True if there is a value in the range.
    pub fn has_any(&self, range: &KeyRange) -> Result<bool> {
        Ok(self.scan(range, &mut |_, _| Ok(ControlFlow::Break(())))?.is_break())
    }

    /// Changes a value; `ranges`: bytes of a chunk that it was written to.
    pub fn change(&mut self, key: Key, body: Body, ranges: Ranges) {
        self.dirty_bytes = self.dirty_bytes.saturating_add(dirty_len(&body));
        let old = self.changes.insert(key.clone(), Change { body, ranges });
        self.dirty_bytes = self.dirty_bytes.saturating_sub(old.as_ref().map_or(0, |old| dirty_len(&old.body)));
        self.note(&key, old);
    }

    /// [`State::change`] of a value that has a change already, in another form or by more bytes. It
    /// is not undone.
    pub fn change_form(&mut self, key: Key, body: Body, ranges: Ranges) {
        let undo = self.undo.take();
        self.change(key, body, ranges);
        self.undo = undo;
    }

    /// The bytes of a chunk that the session wrote.
    pub fn written(&self, key: &[u8]) -> Ranges {
        self.changes.get(key).map_or_else(Ranges::default, |change| change.ranges.clone())
    }

    /// Drops the change of a value, which is committed.
    pub fn forget_change(&mut self, key: &[u8]) {
        let old = self.changes.remove(key);
        self.dirty_bytes = self.dirty_bytes.saturating_sub(old.map_or(0, |old| dirty_len(&old.body)));
    }

    /// Sets a value. Errors: `ENAMETOOLONG` if the key is too long.
    pub fn put(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        if key.len() > keys::KEY_MAX {
            return Err(Error::refused(libc::ENAMETOOLONG, "the name is too long for the container"));
        }
        let max = value_max(&key);
        if bytes.len() as u64 > max {
            return Err(Error::refused(
                libc::EFBIG,
                format!("a value of {} bytes is too long for a container, which takes {max}", bytes.len()),
            ));
        }
        self.change(key, Body::Cell(Cell::inline(bytes)), Ranges::whole());
        Ok(())
    }

    /// Removes a value.
    pub fn remove(&mut self, key: Key) -> Result<()> {
        let ranges = Ranges::whole();
        if self.snapshot.get(&self.container, &key)?.is_some() {
            self.change(key, Body::Removed, ranges);
        } else if let Some(old) = self.changes.remove(&key) {
            self.dirty_bytes = self.dirty_bytes.saturating_sub(dirty_len(&old.body));
            self.note(&key, Some(old));
        }
        Ok(())
    }

    /// Removes all values in a range.
    pub fn remove_all(&mut self, range: &KeyRange) -> Result<()> {
        self.keys(range)?.into_iter().try_for_each(|key| self.remove(key))
    }

    /// Sets metadata of an object.
    pub fn put_header(&mut self, id: u64, message: u16, body: &[u8]) -> Result<()> {
        self.put(keys::header(id, message), body)
    }

    /// Metadata of an object.
    pub fn header(&self, id: u64, message: u16) -> Result<Option<Vec<u8>>> {
        self.bytes(&keys::header(id, message))
    }

    /// All metadata of an object. Errors: there is no such object.
    pub fn headers(&self, id: u64) -> Result<BTreeMap<u16, Cell>> {
        let mut all = BTreeMap::new();
        let _ = self.scan(&keys::of_kind(id, keys::HEADER), &mut |key, cell| {
            if let Some(message) = keys::message(key) {
                all.insert(message, cell.clone());
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if all.is_empty() { Err(no_such(id, "there is no such object")) } else { Ok(all) }
    }

    /// Kind of an object; `None`: there is no such object.
    pub fn kind(&self, id: u64) -> Result<Option<ObjectKind>> {
        Ok(self.header(id, OBJECT_TYPE)?.map(|body| kind_of(&body)))
    }

    /// Hard links to an object.
    pub fn link_count(&self, id: u64) -> Result<u32> {
        let Some(cell) = self.get(&keys::header(id, REFERENCE_COUNT))? else { return Ok(0) };
        Ok(u32::try_from(merge::link_count(&self.container, &cell)?).unwrap_or(0))
    }

    pub fn set_link_count(&mut self, id: u64, count: u32) -> Result<()> {
        self.put_header(id, REFERENCE_COUNT, &merge::encode_link_count(count))
    }

    /// Notes a change of an object now.
    pub fn touch(&mut self, id: u64) -> Result<()> {
        let body = crate::format::message::times::encode(now());
        let key = keys::header(id, MTIME);
        if self.bytes(&key)?.as_ref() == Some(&body) { Ok(()) } else { self.put(key, &body) }
    }

    /// Drops all changes, and begins `session` on the version `snapshot`.
    pub fn discard(&mut self, snapshot: Snapshot, session: Session) {
        let held = std::mem::take(&mut self.held);
        *self = State { held, ..State::new(self.container.clone(), snapshot, Some(session)) };
    }

    /// An id for a new object or a block of cells.
    pub fn new_id(&self) -> Result<u64> {
        let none = || Error::refused(libc::ENOSPC, "the session has used up its object ids; mount again");
        self.session.as_ref().and_then(|session| session.new_id()).ok_or_else(none)
    }

    /// Errors: the object is not of this container.
    pub fn check_id(id: crate::connector::ObjectId) -> Result<u64> {
        let own = id.is_own().then_some(id.serial());
        own.ok_or_else(|| Error::corrupt("object", Address(id.serial()), "it is of another container"))
    }
}

/// The kind that a type of an object is.
pub(super) fn kind_of(body: &[u8]) -> ObjectKind {
    match body {
        [GROUP] => ObjectKind::Group,
        [DATASET] => ObjectKind::Dataset,
        [DATATYPE] => ObjectKind::Datatype,
        [MAP] => ObjectKind::Map,
        _ => ObjectKind::Unknown,
    }
}
