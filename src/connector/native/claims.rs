//! Walk over all structures of a file: its own, and those of each object that hard links reach.
//!
//! Each object is visited once, from a list of pending addresses. Memory: the addresses of all
//! objects and of all global heap collections.
//!
//! Objects do not depend on each other: threads read the structures of the next ones ahead and
//! record what they find, and the walk takes the records in the order of its list. An object that
//! is damaged, large, or has values in heaps is not recorded: the walk itself visits it. So what is
//! found, and its order, is that of a walk without threads.

use super::ObjectId;
use super::access::Access;
use super::attribute;
use super::dataset::Dataset;
use super::file::HdfFile;
use super::file_heap::{ELEMENT_BYTES_MAX, FileHeap};
use super::object::Object;
use crate::base::datatype::Datatype;
use crate::base::parts::{Budget, Limited};
use crate::base::variable_form::{Held, VariableForm};
use crate::base::{Address, Error, Result};
use crate::connector::ObjectKind;
use crate::dataset::heap::Descriptor;
use crate::dataset::layout::Operation;
use crate::dataset::reference;
use crate::format::Reader;
use crate::format::message::attribute::Attribute;
use crate::format::message::link::{Link, LinkTarget};
use crate::format::object_header::{SharedMessage, flag};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::meta::extent::Extent;
use crate::structures::{file_space, global_heap, group};
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Structures of a valid file do not overlap. A walk that claims so many times the bytes of the
/// file ends.
const CLAIMED_FACTOR: u64 = 2;

/// Bytes decoded at a time: least and most.
const DECODED_BYTES: (u64, u64) = (8 << 20, 64 << 20);
/// So many bytes of a dataset are decoded whatever the file takes on the disk.
const DECODED_ALWAYS_BYTES: u64 = 16 << 20;
/// Times that filters make data smaller, at most (deflate: 1032).
const PACKED_MOST: u64 = 1032;
/// Bytes of variable-length values that are read in any file, and in a file of a size.
const VALUES_ALWAYS_BYTES: u64 = 256 << 20;
const VALUES_FACTOR: u64 = 4;
/// Objects that are read ahead at a time.
const AHEAD_OBJECTS: usize = 64;
/// Records of objects that the walk has not come to.
const RECORDS_MAX: usize = 256;
/// Extents and links of an object that is recorded, at most.
const RECORDED_MAX: usize = 1024;
/// Bytes of the messages of an object that is recorded, at most.
const RECORDED_HEADER_BYTES: usize = 64 << 10;
/// Pieces of one dataset that cannot be decoded, after which the others are not tried.
const FAILURES_MAX: usize = 1000;

/// Receives what the walk finds.
pub(super) trait Claims {
    /// A range of the file that a structure of `object` owns; `None`: a structure of the file.
    fn live(&mut self, object: Option<Address>, extent: Extent);
    /// A range of addresses that the file names as free. All calls follow those of
    /// [`Claims::live`].
    fn free(&mut self, range: Range<u64>);
    /// A structure of `object`, or of the file, cannot be read. Called in the order of objects.
    fn damaged(&mut self, object: Option<Address>, error: &Error);
    /// An object was opened; its structures are visited next.
    fn opened(&mut self, _object: &Object) {}
    /// A group has a link.
    fn link(&mut self, _group: Address, _link: &Link) {}
    /// All structures of an object were visited.
    fn visited(&mut self, _object: Address) {}
    /// `bytes` of elements were decoded, up to byte `part` of the `whole` elements of the dataset.
    fn decoded(&mut self, _bytes: u64, _part: u64, _whole: u64) {}
    /// Nothing more is taken: the walk ends.
    fn is_full(&self) -> bool {
        false
    }
}

/// What a walk reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Structures.
    Structures,
    /// Structures and all elements.
    Elements,
}

/// Finds all structures of `file`, and the space that it names as free.
pub(super) fn claim_all(access: &Access<'_>, file: &Arc<HdfFile>, depth: Depth, claims: &mut dyn Claims) -> Result<()> {
    let store = file.store.clone();
    let source = Source { access, file, depth, btree_k: 0, end: store.file_len()? };
    let metadata_left = store.room()?.saturating_mul(CLAIMED_FACTOR);
    let raw_left = store.file_len()?.saturating_mul(CLAIMED_FACTOR);
    let values = Budget::tight(VALUES_ALWAYS_BYTES.saturating_add(store.held()?.saturating_mul(VALUES_FACTOR)));
    Walk::over(source, (metadata_left, raw_left, values), claims).run();
    Ok(())
}

/// What a walk reads.
#[derive(Clone, Copy)]
struct Source<'a> {
    access: &'a Access<'a>,
    file: &'a Arc<HdfFile>,
    depth: Depth,
    /// K of version 1 chunk B-trees.
    btree_k: u16,
    /// End of the file.
    end: u64,
}

/// One walk.
struct Walk<'a> {
    source: Source<'a>,
    store: Arc<Store>,
    /// Object headers that were reached.
    seen: HashSet<Address>,
    /// Those that are still to be visited.
    pending: Vec<Address>,
    /// Global heap collections that were claimed.
    collections: HashSet<Address>,
    /// Bytes that may still be claimed.
    metadata_left: u64,
    raw_left: u64,
    /// Bytes of variable-length values that may still be read.
    values: Budget,
    /// True when more bytes were claimed than a valid file can have.
    is_exhausted: bool,
    /// It records one object.
    is_ahead: bool,
    /// Records of pending objects; `None`: the walk itself visits the object.
    records: HashMap<Address, Option<Record>>,
    claims: &'a mut dyn Claims,
}

/// What was found in one object, which is not damaged.
struct Record {
    object: Object,
    found: Vec<Recorded>,
    /// Objects that it leads to.
    reached: Vec<Address>,
}

/// A part of a record.
enum Recorded {
    Extent(Extent),
    Link(Link),
}

/// Takes what a walk over one object finds.
#[derive(Default)]
struct Recorder {
    object: Option<Object>,
    found: Vec<Recorded>,
    /// The walk itself must visit the object.
    is_unfit: bool,
}

impl Recorder {
    fn add(&mut self, found: Recorded) {
        self.is_unfit |= self.found.len() >= RECORDED_MAX;
        if !self.is_unfit {
            self.found.push(found);
        }
    }
}

impl Claims for Recorder {
    fn live(&mut self, _object: Option<Address>, extent: Extent) {
        self.add(Recorded::Extent(extent));
    }

    fn free(&mut self, _range: Range<u64>) {}

    fn damaged(&mut self, _object: Option<Address>, _error: &Error) {
        self.is_unfit = true;
    }

    fn opened(&mut self, object: &Object) {
        let bytes = object.header.messages.iter().map(|m| m.body.len()).fold(0, usize::saturating_add);
        self.is_unfit |= bytes > RECORDED_HEADER_BYTES;
        self.object = Some(object.clone()).filter(|_| !self.is_unfit);
    }

    fn link(&mut self, _group: Address, link: &Link) {
        self.add(Recorded::Link(link.clone()));
    }

    fn is_full(&self) -> bool {
        self.is_unfit
    }
}

impl Source<'_> {
    /// Visits the object at `address`; `None` if the walk itself must do that.
    fn record(&self, address: Address) -> Option<Record> {
        let mut recorder = Recorder::default();
        let mut walk = Walk::over(*self, (u64::MAX, u64::MAX, Budget::tight(0)), &mut recorder);
        walk.is_ahead = true;
        walk.object(address);
        let reached = std::mem::take(&mut walk.pending);
        let Recorder { object, found, is_unfit } = recorder;
        object.filter(|_| !is_unfit).map(|object| Record { object, found, reached })
    }
}

/// Visits one kind of structure of an object.
type Part<'a> = fn(&mut Walk<'a>, &Object) -> Result<()>;

impl<'a> Walk<'a> {
    fn over(source: Source<'a>, (metadata_left, raw_left, values): (u64, u64, Budget), claims: &'a mut dyn Claims) -> Walk<'a> {
        Walk {
            source,
            store: source.file.store.clone(),
            seen: HashSet::new(),
            pending: Vec::new(),
            collections: HashSet::new(),
            metadata_left,
            raw_left,
            values,
            is_exhausted: false,
            is_ahead: false,
            records: HashMap::new(),
            claims,
        }
    }

    fn run(&mut self) {
        let store = self.store.clone();
        for part in file_space::PARTS {
            let done = part(&store, &mut |extent| self.claim(None, extent));
            self.note(None, done);
        }
        match group::edit::k_values(&store) {
            Ok(k) => self.source.btree_k = k.chunk_internal,
            Err(e) => self.note(None, Err(e)),
        }
        self.reach(self.source.file.root);
        while let Some(address) = self.pending.pop().filter(|_| !self.is_exhausted && !self.claims.is_full()) {
            self.read_ahead(address);
            match self.records.remove(&address).flatten().filter(|record| self.has_room_for(record)) {
                Some(record) => self.take(address, record),
                None => self.object(address),
            }
        }
        let done = file_space::free(&store, &mut |range| self.claims.free(range));
        self.note(None, done);
    }

    /// Records `address` and the objects that the walk visits next, unless they are recorded.
    fn read_ahead(&mut self, address: Address) {
        let pool = &self.source.access.connector.options.environment.pool;
        let is_possible = self.source.depth == Depth::Structures && pool.current_num_threads() > 1;
        if !is_possible || self.records.contains_key(&address) || self.records.len().saturating_add(AHEAD_OBJECTS) > RECORDS_MAX {
            return;
        }
        let next = self.pending.iter().rev().take(RECORDS_MAX).filter(|at| !self.records.contains_key(at));
        let batch: Vec<Address> = std::iter::once(&address).chain(next).take(AHEAD_OBJECTS).copied().collect();
        if batch.len() > 1 {
            let source = self.source;
            let records: Vec<_> = pool.install(|| batch.par_iter().map(|at| (*at, source.record(*at))).collect());
            self.records.extend(records);
        }
    }

    /// True if the walk ends neither at nor in the object of `record`.
    fn has_room_for(&self, record: &Record) -> bool {
        let (mut metadata, mut raw) = (0u64, 0u64);
        for found in &record.found {
            if let Recorded::Extent(extent) = found {
                let sum = if extent.kind == SpaceKind::Raw { &mut raw } else { &mut metadata };
                *sum = sum.saturating_add(self.cost(extent));
            }
        }
        metadata <= self.metadata_left && raw <= self.raw_left
    }

    /// Takes what was recorded of the object at `address`.
    fn take(&mut self, address: Address, record: Record) {
        let Record { object, found, reached } = record;
        self.claims.opened(&object);
        for found in found {
            match found {
                Recorded::Link(link) => self.claims.link(address, &link),
                Recorded::Extent(extent) => {
                    let claimed = self.claim(Some(address), extent);
                    self.note(Some(address), claimed);
                }
            }
        }
        reached.into_iter().for_each(|at| self.reach(at));
        self.claims.visited(address);
    }

    /// What `extent` costs: its bytes in the file, or fewer; at least one.
    fn cost(&self, extent: &Extent) -> u64 {
        self.source.end.saturating_sub(extent.address.0).min(extent.len).min(extent.cost).max(1)
    }

    fn note(&mut self, object: Option<Address>, done: Result<()>) {
        if let Err(e) = done {
            self.claims.damaged(object, &e);
        }
    }

    /// Adds the object at `address` to the pending ones when it is reached for the first time.
    fn reach(&mut self, address: Address) {
        if self.seen.insert(address) {
            self.pending.push(address);
        }
    }

    /// Adds the object that the reference `body` to a shared message means, if it means one.
    fn reach_shared(&mut self, object: &Object, body: &[u8]) -> Result<()> {
        let mut r = Reader::new(body, "shared message", object.header.address);
        if let SharedMessage::Object(address) = SharedMessage::decode(&mut r, self.store.ctx())? {
            self.reach(address);
        }
        Ok(())
    }

    fn claim(&mut self, object: Option<Address>, extent: Extent) -> Result<()> {
        if extent.shared && !self.collections.insert(extent.address) {
            return Ok(());
        }
        if self.claims.is_full() {
            return Err(Error::refused(libc::E2BIG, "the object is too large to be recorded"));
        }
        let cost = self.cost(&extent);
        let left = if extent.kind == SpaceKind::Raw { &mut self.raw_left } else { &mut self.metadata_left };
        let Some(rest) = left.checked_sub(cost) else {
            self.is_exhausted = true;
            return Err(Error::corrupt(extent.structure, extent.address, "structures overlap: together they are larger than the file"));
        };
        *left = rest;
        self.claims.live(object, extent);
        Ok(())
    }

    fn object(&mut self, address: Address) {
        let object = match Object::open(self.source.file, address) {
            Ok(object) => object,
            Err(e) => return self.claims.damaged(Some(address), &e),
        };
        self.claims.opened(&object);
        let mut parts: Vec<Part<'a>> = vec![Walk::header, Walk::shared_messages, Walk::attribute_storage, Walk::attributes];
        match object.info().kind {
            ObjectKind::Group => parts.extend([Walk::links as Part<'a>, Walk::group]),
            ObjectKind::Dataset => parts.push(Walk::dataset),
            ObjectKind::Datatype | ObjectKind::Map | ObjectKind::Unknown => {}
        }
        for part in parts {
            let done = part(self, &object);
            self.note(Some(address), done);
        }
        self.claims.visited(address);
    }

    fn header(&mut self, object: &Object) -> Result<()> {
        object.header.extents(&mut |extent| self.claim(Some(object.header.address), extent))
    }

    /// Committed datatypes that the object uses. No name may be left of them.
    fn shared_messages(&mut self, object: &Object) -> Result<()> {
        object.header.messages.iter().filter(|m| m.flags & flag::SHARED != 0).try_for_each(|m| self.reach_shared(object, &m.body))
    }

    fn links(&mut self, object: &Object) -> Result<()> {
        let skipped = group::list(&self.store.clone(), &object.group_storage()?, 0, &mut |link, _| {
            self.claims.link(object.header.address, &link);
            if let LinkTarget::Hard(address) = link.target {
                self.reach(address);
            }
            Ok(if self.claims.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        skipped.map_or(Ok(()), Err)?;
        object.link_messages().try_for_each(|link| link.map(drop))
    }

    fn group(&mut self, object: &Object) -> Result<()> {
        let storage = object.group_storage()?;
        group::extents(&self.store.clone(), &storage, &mut |extent| self.claim(Some(object.header.address), extent))
    }

    fn attribute_storage(&mut self, object: &Object) -> Result<()> {
        let Some(dense) = attribute::dense(object)? else { return Ok(()) };
        dense.extents(&self.store.clone(), &mut |extent| self.claim(Some(object.header.address), extent))
    }

    fn attributes(&mut self, object: &Object) -> Result<()> {
        let mut first = None;
        let skipped = attribute::each(object, &mut |a| {
            if let Err(e) = self.attribute(object, &a) {
                first.get_or_insert(e);
            }
        })?;
        first.or(skipped).map_or(Ok(()), Err)
    }

    fn attribute(&mut self, object: &Object, a: &Attribute) -> Result<()> {
        if a.datatype_shared {
            self.reach_shared(object, &a.datatype)?;
        }
        let value = attribute::typed(object, a)?;
        let form = VariableForm::holding(&value.datatype);
        if form.is_verbatim() { Ok(()) } else { self.held(object, &form, &value.datatype, &value.bytes) }
    }

    fn dataset(&mut self, object: &Object) -> Result<()> {
        let (access, at) = (self.source.access, object.header.address);
        let (connector, d) =
            (access.connector, access.open_dataset(object.clone(), ObjectId { file: self.source.file.index, address: at }, 0)?);
        let op = Operation {
            env: &connector.options.environment,
            data: &d.bytes,
            message: &d.message,
            space: &d.space,
            dirty_budget: 0,
            btree_k: self.source.btree_k,
            header: at,
        };
        let claimed = d.layout().extents(&op, &mut |extent| self.claim(Some(at), extent));
        claimed.and(self.elements(object, &d))
    }

    /// Claims what the elements and the fill value of `d` hold outside of themselves.
    fn elements(&mut self, object: &Object, d: &Dataset) -> Result<()> {
        let form = VariableForm::holding(&d.datatype);
        if !d.layout().is_in_file() && self.source.depth == Depth::Structures {
            return Ok(());
        }
        if form.is_verbatim() || !d.layout().is_in_file() {
            return if self.source.depth == Depth::Elements { self.decode(object, d) } else { Ok(()) };
        }
        if self.is_ahead {
            return Err(Error::refused(libc::EAGAIN, "the elements are read by the walk itself"));
        }
        let connector = self.source.access.connector;
        let mut first = self.held(object, &form, &d.datatype, d.bytes.fill.element()).err();
        d.written_elements(&connector.options.environment, 0..d.bytes.size, &mut |elements| {
            if let Err(e) = elements.and_then(|elements| self.held(object, &form, &d.datatype, elements)) {
                first.get_or_insert(e);
            }
            Ok(if self.is_exhausted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        first.map_or(Ok(()), Err)
    }

    /// Decodes all stored elements of `d`. Notes each piece that cannot be decoded.
    fn decode(&mut self, object: &Object, d: &Dataset) -> Result<()> {
        let (env, at) = (&self.source.access.connector.options.environment, Some(object.header.address));
        let piece = usize::try_from(d.layout().io_bytes().clamp(DECODED_BYTES.0, DECODED_BYTES.1)).unwrap_or(0);
        let mut piece = vec![0u8; piece.min(usize::try_from(d.bytes.size).unwrap_or(usize::MAX))];
        let (mut at_byte, mut last, mut failures) = (0u64, None, 0usize);
        // Chunks at any place of a sparse file count as stored.
        let packed = if d.pipeline.filters.is_empty() { 2 } else { PACKED_MOST };
        let mut most = DECODED_ALWAYS_BYTES.saturating_add(self.store.held()?.saturating_mul(packed));
        while at_byte < d.bytes.size && failures < FAILURES_MAX && !self.is_exhausted {
            if let Some(end) = d.bytes.unwritten(at_byte)?.or_else(|| d.layout().file_hole_end(&d.bytes, at_byte)) {
                at_byte = end.max(at_byte.saturating_add(1));
                continue;
            }
            if most == 0 {
                let detail = format!("only {at_byte} of {} bytes were decoded: the file cannot hold so many", d.bytes.size);
                return Err(Error::unsupported("dataset", object.header.address, detail));
            }
            most = most.saturating_sub(piece.len() as u64);
            let left = usize::try_from(d.bytes.size.saturating_sub(at_byte)).unwrap_or(usize::MAX).min(piece.len());
            let done = d.bytes.read(env, at_byte, piece.get_mut(..left).unwrap_or_default());
            if let Err(e) = done {
                failures = failures.saturating_add(1);
                // Pieces of one chunk fail in the same way.
                if last.as_ref() != Some(&e) {
                    self.claims.damaged(at, &e);
                }
                last = Some(e);
            }
            at_byte = at_byte.saturating_add(left as u64);
            self.claims.decoded(left as u64, at_byte, d.bytes.size);
        }
        Ok(())
    }

    /// Claims the global heap collections with parts of `elements`. Errors: the first one, after
    /// all elements.
    fn held(&mut self, object: &Object, form: &VariableForm, datatype: &Datatype, elements: &[u8]) -> Result<()> {
        let store = self.store.clone();
        let (heap, mut first) = (FileHeap(&store), None);
        let limited = Limited { parts: &heap, limit: ELEMENT_BYTES_MAX };
        let mut whole = (self.source.depth == Depth::Elements).then(|| VariableForm::of(datatype));
        for element in elements.chunks_exact(usize::try_from(datatype.element_size()).unwrap_or(usize::MAX).max(1)) {
            match whole.as_ref().map(|whole| whole.exact_within(element, &heap, &mut self.values, &mut Vec::new())) {
                // The budget of the file: its values share their bytes.
                Some(Err(Error::Limit { structure: "value", .. })) => {
                    let detail = "the values are larger together than the file can hold: the rest is not read";
                    first.get_or_insert(Error::unsupported("value", object.header.address, detail));
                    whole = None;
                }
                Some(Err(e)) => {
                    first.get_or_insert(e);
                }
                Some(Ok(())) | None => {}
            }
            form.held(element, &limited, &mut |held| {
                let collection = match held {
                    Held::Sequence(descriptor) => Descriptor::decode(descriptor, store.ctx()).map(|d| Some(d.collection)),
                    Held::Reference(t, reference) => reference::collection(t, reference, store.ctx()),
                    Held::Unreadable(e) => Err(e),
                };
                if let Err(e) = collection.and_then(|at| at.map_or(Ok(()), |at| self.collection(object, at))) {
                    first.get_or_insert(e);
                }
            });
        }
        first.map_or(Ok(()), Err)
    }

    /// Claims the global heap collection at `address` when it is reached for the first time.
    fn collection(&mut self, object: &Object, address: Address) -> Result<()> {
        if self.collections.contains(&address) {
            return Ok(());
        }
        match global_heap::extent(&self.store, address) {
            Ok(extent) => self.claim(Some(object.header.address), extent),
            Err(e) => {
                self.collections.insert(address);
                Err(e)
            }
        }
    }
}
