//! Values of a container at one moment: a snapshot and the changes that are not committed.
//!
//! A copy that readers get shares what neither changes, so that it costs nothing.

use super::ids::no_such;
use super::image::{Body, Change, Changes, DirtyImage};
use super::preparations::Preparations;
use crate::base::locks::{Mutex, RwLock};
use crate::base::newlines::Newlines;
use crate::base::value::NewValue;
use crate::base::{Address, Error, Result};
use crate::connector::defined::Announced;
use crate::connector::edit::NewReference;
use crate::connector::{DatasetSpec, Form as Shown, ObjectKind};
use crate::dataset::chunk::changed::SharedImage;
use crate::format::object_header::kind::{MTIME, REFERENCE_COUNT};
use crate::iod::keys::{self, OBJECT_TYPE};
use crate::iod::limits::value_max;
use crate::iod::range::{KeyRange, Visit, is_empty, overlay};
use crate::iod::{Cell, Container, Key, Ranges, Session, Snapshot, merge};
use foldhash::{HashMap, HashSet};
use rpds::HashTrieMapSync;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Datasets whose newlines inside strings are kept at a time.
const NEWLINES_AWAITED_MAX: usize = 4096;

/// Objects whose revisions are kept apart. With more, all objects have a new one.
const REVISIONS_MAX: usize = 1 << 16;

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
#[derive(Clone)]
pub(super) struct Form {
    /// As it is now, in all states.
    pub bytes: Arc<RwLock<Vec<u8>>>,
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
    /// How often the versions of others took its place; see [`crate::connector::Follow::state`].
    number: u64,
    /// Number of the state: each one has another.
    generation: u64,
    /// Numbers of all states of the container.
    numbers: Arc<AtomicU64>,
    /// Revision of all objects but those in `revisions`.
    revision: u64,
    revisions: HashTrieMapSync<u64, u64>,
    /// How often objects are held, in all states.
    held: Arc<Mutex<HashMap<u64, u64>>>,
    /// Forms of variable-length datasets that are being written.
    pub forms: HashTrieMapSync<u64, Form>,
    /// Defined elements of datasets whose bytes are written next, in all states.
    announced: Arc<Mutex<HashMap<u64, Announced>>>,
    /// How often objects changed by others than the mount, in all states.
    by_others: Arc<AtomicU64>,
    /// Datasets of which a program set the extent while they were empty, and whose bytes no program
    /// has used since, in all states.
    shape_only: Arc<Mutex<HashSet<u64>>>,
    /// Datasets whose next layout is being made.
    pub preparations: Arc<Preparations<Prepared>>,
    /// UUIDs of records of the next version whose commit is in doubt.
    pub in_doubt: Vec<[u8; 16]>,
    /// Why nothing can be written any more.
    pub failed: Option<String>,
    /// Newlines inside the strings of datasets whose lines are written next; empty in the
    /// states of readers.
    pub newlines: HashMap<u64, Newlines>,
    /// What waits for objects that are not there yet; empty in the states of readers.
    pub waiting: Waiting,
    /// Packs, with their sessions, that no record can refer to yet; empty in the states of
    /// readers.
    pub unpublished: BTreeSet<(u64, u32)>,
    /// What the operation under way began with; `None`: it is not undone.
    undo: Option<Undo>,
    /// Stands for a dirty chunk in listings.
    placeholder: Cell,
}

/// The next layout of a dataset.
pub(super) struct Prepared {
    /// What it was made for.
    pub spec: DatasetSpec,
    /// The session that stored its values.
    pub session: Option<Arc<Session>>,
    /// The state in which the dataset has it.
    pub state: State,
}

/// What an operation began with.
struct Undo {
    changes: Changes,
    moved_group: bool,
    revision: u64,
    revisions: HashTrieMapSync<u64, u64>,
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
            changes: Changes::new_sync(),
            dirty_bytes: 0,
            moves_group: false,
            number: 0,
            generation: 1,
            numbers: Arc::new(AtomicU64::new(2)),
            revision: 0,
            revisions: HashTrieMapSync::new_sync(),
            held: Arc::default(),
            forms: HashTrieMapSync::new_sync(),
            announced: Arc::default(),
            by_others: Arc::default(),
            shape_only: Arc::default(),
            preparations: Arc::default(),
            in_doubt: Vec::new(),
            failed: None,
            newlines: HashMap::default(),
            waiting: Waiting::default(),
            unpublished: BTreeSet::new(),
            undo: None,
            placeholder: Cell::inline(&[]),
        }
    }

    /// The same for readers.
    pub fn for_readers(&self) -> State {
        State {
            container: self.container.clone(),
            snapshot: self.snapshot.clone(),
            session: self.session.clone(),
            changes: self.changes.clone(),
            dirty_bytes: self.dirty_bytes,
            moves_group: self.moves_group,
            number: self.number,
            generation: self.generation,
            numbers: self.numbers.clone(),
            revision: self.revision,
            revisions: self.revisions.clone(),
            held: self.held.clone(),
            forms: self.forms.clone(),
            announced: self.announced.clone(),
            by_others: self.by_others.clone(),
            shape_only: self.shape_only.clone(),
            preparations: self.preparations.clone(),
            in_doubt: self.in_doubt.clone(),
            failed: self.failed.clone(),
            newlines: HashMap::default(),
            waiting: Waiting::default(),
            unpublished: BTreeSet::new(),
            undo: None,
            placeholder: self.placeholder.clone(),
        }
    }

    /// How often the versions of others took its place.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Notes that the version of another one takes its place.
    pub fn follow(&mut self) {
        self.number = self.number.saturating_add(1);
    }

    /// A copy in which one operation is under way, beside those that make the next state.
    pub fn copy(&self) -> State {
        let mut copy = State { preparations: Arc::default(), ..self.for_readers() };
        copy.renew();
        copy.begin();
        copy
    }

    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Number of the state. Two states with the same one are the same.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Makes it another state.
    pub fn renew(&mut self) {
        self.generation = self.next_number();
    }

    /// Number that changes with the metadata of the object `id`, and with its variable-length
    /// elements.
    pub fn revision(&self, id: u64) -> u64 {
        self.revisions.get(&id).copied().unwrap_or(self.revision)
    }

    /// Notes a change of the metadata of the object `id`, or of its variable-length elements.
    pub fn changed(&mut self, id: u64) {
        if self.revisions.size() >= REVISIONS_MAX {
            self.all_changed();
        } else {
            self.revisions.insert_mut(id, self.next_number());
        }
    }

    /// Notes changes of any objects.
    pub fn all_changed(&mut self) {
        self.preparations.note_all();
        self.revisions = HashTrieMapSync::new_sync();
        self.revision = self.next_number();
        self.by_others.fetch_add(1, Ordering::AcqRel);
    }

    /// A number that changes by others than the mount raise.
    pub fn by_others(&self) -> u64 {
        self.by_others.load(Ordering::Acquire)
    }

    /// Notes that the object `id` is open once more.
    pub fn hold(&self, id: u64) {
        let mut held = self.held.lock();
        let count = held.entry(id).or_insert(0);
        *count = count.saturating_add(1);
    }

    /// Notes that the object `id` is open once less; true if it is not open any more.
    pub fn release(&self, id: u64) -> bool {
        let mut held = self.held.lock();
        let left = held.get(&id).map_or(0, |n| n.saturating_sub(1));
        match left {
            0 => drop(held.remove(&id)),
            left => drop(held.insert(id, left)),
        }
        left == 0
    }

    /// How often the object `id` is open.
    pub fn holders(&self, id: u64) -> u64 {
        self.held.lock().get(&id).copied().unwrap_or(0)
    }

    /// True if the object `id` is open.
    pub fn is_held(&self, id: u64) -> bool {
        self.holders(id) > 0
    }

    /// Defined elements of datasets whose bytes are written next.
    pub fn announced(&self) -> crate::base::locks::MutexGuard<'_, HashMap<u64, Announced>> {
        self.announced.lock()
    }

    /// True for an object without names that is still stored.
    pub fn is_nameless(&self, id: u64) -> bool {
        id != 0 && matches!(self.link_count(id), Ok(0)) && self.kind(id).is_ok_and(|kind| kind.is_some())
    }

    /// True if objects without names are open.
    pub fn has_nameless(&self) -> bool {
        self.held_ids().into_iter().any(|id| self.is_nameless(id))
    }

    /// Deletes the objects without names that are open.
    pub fn delete_nameless(&mut self) -> Result<()> {
        let held: Vec<u64> = self.held_ids().into_iter().filter(|id| self.is_nameless(*id)).collect();
        held.into_iter().try_for_each(|id| self.delete_object(id))
    }

    fn held_ids(&self) -> Vec<u64> {
        self.held.lock().keys().copied().collect()
    }

    /// Begins an operation that is undone if it fails.
    pub fn begin(&mut self) {
        let (changes, moved_group) = (self.changes.clone(), self.moves_group);
        self.undo = Some(Undo { changes, moved_group, revision: self.revision, revisions: self.revisions.clone() });
    }

    /// Ends the operation; undoes its changes unless they are `kept`.
    pub fn end(&mut self, kept: bool) {
        let Some(Undo { changes, moved_group, revision, revisions }) = self.undo.take().filter(|_| !kept) else { return };
        if !self.changes.ptr_eq(&changes) {
            self.changes = changes;
            self.dirty_bytes = self.changes.values().map(|change| dirty_len(&change.body)).fold(0, usize::saturating_add);
        }
        (self.moves_group, self.revision, self.revisions) = (moved_group, revision, revisions);
    }

    /// Notes that only the extent of the dataset `id` was set, or that its bytes are used.
    pub fn note_shape_only(&self, id: u64, is_shape_only: bool) {
        let mut all = self.shape_only.lock();
        if is_shape_only {
            all.insert(id)
        } else {
            all.remove(&id)
        };
    }

    /// True if the bytes that the dataset `id` shows, of which no chunk is there, may be zeros that
    /// a program left there.
    pub fn shows_bytes(&self, id: u64) -> bool {
        !self.shape_only.lock().contains(&id)
    }

    /// True if a chunk in memory may be changed where it is: the operation made it, or is not
    /// undone.
    pub fn owns(&self, chunk: &DirtyImage) -> bool {
        self.undo.is_none() || chunk.made_in == self.generation
    }

    /// Notes that the chunk `key` in memory, which had `before` bytes of memory, was changed where
    /// it is.
    pub fn note_in_place(&mut self, key: &[u8], before: usize, chunk: &DirtyImage) {
        self.preparations.note(key);
        self.dirty_bytes = self.dirty_bytes.saturating_sub(before).saturating_add(chunk.memory());
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
        self.preparations.note(&key);
        self.change_form(key, body, ranges);
    }

    /// [`State::change`] of a value to the same in another form.
    pub fn change_form(&mut self, key: Key, body: Body, ranges: Ranges) {
        let before = self.changes.get(&key).map_or(0, |old| dirty_len(&old.body));
        self.dirty_bytes = self.dirty_bytes.saturating_sub(before).saturating_add(dirty_len(&body));
        self.changes.insert_mut(key, Change { body, ranges });
    }

    /// Makes a chunk `image`, of which the session wrote `ranges`.
    pub fn put_chunk(&mut self, key: Key, image: SharedImage, ranges: Ranges) {
        self.change(key, Body::Dirty(DirtyImage::new(image, self.generation)), ranges);
    }

    /// The bytes of a chunk that the session wrote.
    pub fn written(&self, key: &[u8]) -> Ranges {
        self.changes.get(key).map_or_else(Ranges::default, |change| change.ranges.clone())
    }

    /// Drops the change of a value.
    pub fn forget_change(&mut self, key: &[u8]) {
        self.preparations.note(key);
        let before = self.changes.get(key).map_or(0, |old| dirty_len(&old.body));
        self.dirty_bytes = self.dirty_bytes.saturating_sub(before);
        self.changes.remove_mut(key);
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
        match self.snapshot.get(&self.container, &key)?.is_some() {
            true => self.change(key, Body::Removed, Ranges::whole()),
            false => self.forget_change(&key),
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
        let (generation, numbers, held) = (self.generation, self.numbers.clone(), self.held.clone());
        self.announced.lock().clear();
        self.shape_only.lock().clear();
        *self = State {
            generation,
            numbers,
            held,
            announced: self.announced.clone(),
            by_others: self.by_others.clone(),
            shape_only: self.shape_only.clone(),
            preparations: self.preparations.clone(),
            ..State::new(self.container.clone(), snapshot, Some(session))
        };
        self.all_changed();
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
