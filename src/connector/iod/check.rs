//! Checks a version of a container: records, tree, metadata, links and stored bytes.
//!
//! One pass visits all values in order. Bytes of packs that need no look while the pass is under
//! way are fetched by several threads, many at a time (`check_bytes`).

use super::access::IodConnector;
use super::attribute;
use super::cells::{Place, StateCells};
use super::check_bytes::{Pending, Stored};
use super::dataset::Dataset;
use super::forms::ELEMENT_MAX;
use super::state::{State, kind_of};
use super::types::referred;
use super::{paths, properties};
use crate::base::parts::Limited;
use crate::base::variable_form::VariableForm;
use crate::base::{Address, Error, Result};
use crate::connector::check::{Check, Checked, Finding, Findings, Problem, Progress};
use crate::connector::space::SpaceUse;
use crate::connector::{LinkTarget, ObjectKind, ObjectProperties};
use crate::dataset::chunk::LARGE_DATA;
use crate::format::message::times;
use crate::format::object_header::kind;
use crate::iod::{Cell, Data, check as engine, keys, merge};
use foldhash::HashSet;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The finding for an error at an object.
fn of_error(object: Option<u64>, error: &Error) -> Finding {
    let (problem, structure, address) = match error {
        Error::Limit { structure: structure @ LARGE_DATA, address, .. } => (Problem::NotChecked, Some(*structure), Some(*address)),
        Error::Corrupt { structure, address, .. } | Error::Limit { structure, address, .. } => {
            (Problem::Damaged, Some(*structure), Some(*address))
        }
        Error::Unsupported { structure, address, .. } => (Problem::NotChecked, Some(*structure), Some(*address)),
        Error::Io { address, .. } | Error::OnDisk { address, .. } => (Problem::Damaged, None, Some(*address)),
        // A pack that is not there, say.
        Error::Request { .. } | Error::Missing { .. } | Error::Refused { .. } => (Problem::Damaged, None, None),
    };
    Finding { problem, object, path: None, structure, address: address.map(|a| a.0), detail: error.to_string() }
}

/// What is known of an object.
#[derive(Default)]
struct Seen {
    kind: Option<ObjectKind>,
    /// Hard links, and references to a named datatype, that it states.
    stated: u64,
    /// Those that were found.
    found: u64,
}

/// The object whose values are visited.
struct Current {
    id: u64,
    kind: Option<ObjectKind>,
    dataset: Option<Arc<Dataset>>,
}

/// The walk of a check.
struct Checker<'a> {
    connector: &'a IodConnector,
    state: &'a State,
    /// Elements are decoded.
    data: bool,
    findings: Findings,
    objects: BTreeMap<u64, Seen>,
    /// From an object to one that it leads to.
    edges: Vec<(u64, u64)>,
    current: Option<Current>,
    pending: Pending,
    space: SpaceUse,
    decoded: u64,
    done: Progress,
    progress: &'a mut dyn FnMut(Progress),
}

impl Check for IodConnector {
    fn check(&self, data: bool, progress: &mut dyn FnMut(Progress)) -> Result<Checked> {
        let state = self.states.shown();
        let total = self.container.store().space().map_or(0, |(used, _)| used);
        let done = Progress { total, ..Progress::default() };
        let mut checker = Checker {
            connector: self,
            state: &state,
            data,
            findings: Findings::default(),
            objects: BTreeMap::new(),
            edges: Vec::new(),
            current: None,
            pending: Pending::default(),
            space: SpaceUse { overlaps_checked: true, ..SpaceUse::default() },
            decoded: 0,
            done,
            progress,
        };
        let mut damaged = Vec::new();
        engine::records(&self.container, state.snapshot.version(), &mut |e| damaged.push(e))?;
        damaged.iter().for_each(|e| checker.findings.add(of_error(None, e)));
        checker.values()?;
        checker.links();
        checker.finish()
    }
}

impl Checker<'_> {
    fn damaged(&mut self, id: u64, error: &Error) {
        self.findings.add(of_error(Some(id), error));
    }

    fn corrupt(&mut self, structure: &'static str, id: u64, detail: String) {
        self.damaged(id, &Error::corrupt(structure, Address(id), detail));
    }

    fn note<T>(&mut self, id: u64, result: Result<T>) -> Option<T> {
        result.map_err(|e| self.damaged(id, &e)).ok()
    }

    /// Visits all values.
    fn values(&mut self) -> Result<()> {
        let mut damaged = Vec::new();
        let (container, snapshot) = (self.state.container.clone(), &self.state.snapshot);
        let nodes = engine::values(snapshot, &container, &mut |e| damaged.push(e), &mut |key, cell| {
            self.value(key, cell)?;
            Ok(ControlFlow::Continue(()))
        })?;
        damaged.iter().for_each(|e| self.findings.add(of_error(None, e)));
        self.end_object();
        self.fetch();
        self.space.metadata = self.space.metadata.saturating_add(nodes.bytes);
        Ok(())
    }

    fn value(&mut self, key: &[u8], cell: &Cell) -> Result<()> {
        let Some((id, kind, rest)) = keys::parts(key) else {
            self.findings.add(of_error(None, &Error::corrupt("key", Address::UNDEF, format!("it has {} bytes", key.len()))));
            return Ok(());
        };
        if self.current.as_ref().is_none_or(|current| current.id != id) {
            self.end_object();
            self.begin_object(id);
        }
        let sum = match kind {
            keys::CHUNK => &mut self.space.raw,
            keys::CELLS => &mut self.space.heap,
            _ => &mut self.space.metadata,
        };
        *sum = sum.saturating_add(cell.len());
        self.done.bytes = self.done.bytes.saturating_add(cell.len());
        match kind {
            keys::CHUNK => self.chunk(id, key, cell),
            keys::CELLS | keys::MAP => self.later(id, kind, None, cell),
            _ => {
                let bytes = self.state.container.bytes(cell);
                if let Some(bytes) = self.note(id, bytes) {
                    self.metadata(id, (kind, rest), &bytes);
                }
            }
        }
        if self.pending.is_full() {
            self.fetch();
        }
        Ok(())
    }

    fn begin_object(&mut self, id: u64) {
        let body = self.state.header(id, keys::OBJECT_TYPE);
        let kind = self.note(id, body).flatten().map(|body| kind_of(&body));
        if matches!(kind, None | Some(ObjectKind::Unknown)) {
            self.corrupt("object", id, "it has values, and no type that is known".into());
        }
        let dataset = match kind {
            Some(ObjectKind::Dataset) => {
                let opened = Dataset::open(self.state, id);
                self.note(id, opened).map(Arc::new)
            }
            Some(ObjectKind::Datatype) => {
                let decoded = self.state.named_datatype(id);
                self.note(id, decoded);
                None
            }
            Some(ObjectKind::Map) => {
                let types = self.state.map_types(id);
                self.note(id, types);
                None
            }
            _ => None,
        };
        self.objects.entry(id).or_default().kind = kind;
        self.current = Some(Current { id, kind, dataset });
    }

    fn end_object(&mut self) {
        if self.current.take().is_none() {
            return;
        }
        self.done.objects = self.done.objects.saturating_add(1);
        (self.progress)(self.done);
    }

    /// Reads the variable-length elements of a chunk.
    fn variable(&mut self, d: &Dataset, cell: &Cell) -> Result<()> {
        let image = self.connector.chunks.image(d, cell)?;
        let place = Place::Dataset(d.id);
        let cells = StateCells { objects: &self.connector.objects, state: self.state, place: &place };
        let (form, limited) = (VariableForm::of(&d.datatype), Limited { parts: &cells, limit: ELEMENT_MAX });
        let Some(image) = image.image() else { return Ok(()) };
        d.each_stored_element(image, &mut |element| {
            let mut out = Vec::new();
            form.exact(element, &limited, &mut out)?;
            self.decoded = self.decoded.saturating_add(out.len() as u64);
            Ok(())
        })
    }

    fn edge(&mut self, from: u64, to: u64) {
        self.edges.push((from, to));
        let seen = self.objects.entry(to).or_default();
        seen.found = seen.found.saturating_add(1);
    }

    fn metadata(&mut self, id: u64, (kind, rest): (u8, &[u8]), bytes: &[u8]) {
        match kind {
            keys::HEADER => {
                let decoded = self.header(id, rest, bytes);
                self.note(id, decoded);
            }
            keys::ATTRIBUTE => {
                // A value that is damaged elsewhere counts as a user of its type as well.
                if let Ok(Some(named)) = attribute::named_type(bytes, id) {
                    self.edge(id, named);
                }
                let decoded = attribute::check(&self.connector.objects, self.state, bytes, (id, rest));
                self.note(id, decoded);
            }
            keys::LINK => self.link(id, rest, bytes),
            keys::LINK_OWNER => {
                let owner = super::ownership::decode(bytes, id);
                self.note(id, owner);
            }
            kind => self.damaged(id, &Error::unsupported("key", Address(id), format!("a value of the kind {kind:#04x}"))),
        }
    }

    fn header(&mut self, id: u64, rest: &[u8], bytes: &[u8]) -> Result<()> {
        let at = Address(id);
        let message = <[u8; 2]>::try_from(rest).map(u16::from_be_bytes);
        match message.map_err(|_| Error::corrupt("key", at, "metadata without the type of a message"))? {
            kind::REFERENCE_COUNT => {
                let count = merge::link_count(&self.state.container, &Cell::inline(bytes))?;
                self.objects.entry(id).or_default().stated = u64::try_from(count).unwrap_or(0);
                Ok(())
            }
            kind::MTIME | keys::ACCESS_TIME => times::decode(bytes, at).map(drop),
            keys::OWNERSHIP => super::ownership::decode(bytes, id).map(drop),
            kind::DATATYPE => {
                if let Some(named) = referred(bytes, id)? {
                    self.edge(id, named);
                }
                Ok(())
            }
            // The object was decoded as a whole.
            kind::DATASPACE | kind::FILL_VALUE | kind::DATA_LAYOUT | kind::FILTER_PIPELINE | kind::COMMENT => Ok(()),
            keys::OBJECT_TYPE | keys::MAP_KEY_TYPE | keys::MAP_VALUE_TYPE => Ok(()),
            other if properties::decode(other, bytes, id, &mut ObjectProperties::default())? => Ok(()),
            other => Err(Error::unsupported("object", at, format!("metadata of the type {other:#06x}"))),
        }
    }

    fn link(&mut self, id: u64, name: &[u8], bytes: &[u8]) {
        if self.current.as_ref().is_some_and(|current| current.kind != Some(ObjectKind::Group)) {
            self.corrupt("link message", id, "an object that is no group has links".into());
        }
        let decoded = paths::decode_named(bytes, id);
        let Some((stored, target)) = self.note(id, decoded) else { return };
        if stored != name {
            let (stored, name) = (String::from_utf8_lossy(&stored).into_owned(), String::from_utf8_lossy(name));
            self.corrupt("link message", id, format!("the link {name:?} has the name {stored:?}"));
        }
        if let LinkTarget::Hard(target) = target {
            self.edge(id, target.serial());
        }
    }

    fn chunk(&mut self, id: u64, key: &[u8], cell: &Cell) {
        let dataset = self.current.as_ref().and_then(|current| current.dataset.clone());
        let Some(d) = dataset else {
            // That the dataset does not decode was reported.
            if self.current.as_ref().is_some_and(|current| current.kind != Some(ObjectKind::Dataset)) {
                self.corrupt("chunk", id, "an object that is no dataset has elements".into());
            }
            return;
        };
        let scaled = keys::scaled(key).unwrap_or_default();
        let is_in = d.grid.linear(&scaled).is_some_and(|number| d.grid.scaled(number) == scaled);
        if !is_in {
            self.corrupt("chunk", id, format!("the chunk at {scaled:?} is outside of the dataset"));
        }
        if self.data && d.datatype.contains_vlen() {
            let parts = self.variable(&d, cell);
            self.note(id, parts);
        } else {
            self.later(id, keys::CHUNK, Some(d), cell);
        }
    }

    /// Checks the bytes of a value with others, or at once where they are at hand.
    fn later(&mut self, id: u64, kind: u8, dataset: Option<Arc<Dataset>>, cell: &Cell) {
        let whole = self.data || kind == keys::MAP;
        let stored = Stored { id, kind, dataset, mask: cell.mask, whole };
        match &cell.data {
            Data::Inline(bytes) => {
                let decoded = stored.check(self.connector, bytes.to_vec());
                self.take(id, decoded);
            }
            Data::Extent(extent) => self.pending.add(*extent, stored),
        }
    }

    fn take(&mut self, id: u64, decoded: Result<u64>) {
        if let Some(bytes) = self.note(id, decoded) {
            self.decoded = self.decoded.saturating_add(bytes);
        }
    }

    /// Checks the bytes that wait.
    fn fetch(&mut self) {
        for (id, decoded) in self.pending.fetch(self.connector) {
            self.take(id, decoded);
        }
        (self.progress)(self.done);
    }

    /// Checks where links lead, and their numbers.
    fn links(&mut self) {
        // The container refers to the root.
        let root = self.objects.entry(0).or_default();
        root.found = root.found.saturating_add(1);
        let missing: Vec<(u64, u64)> =
            self.edges.iter().copied().filter(|(_, to)| self.objects.get(to).is_none_or(|seen| seen.kind.is_none())).collect();
        for (from, to) in missing {
            self.corrupt("link", from, format!("it leads to the object {to:#x}, which does not exist"));
        }
        let counted: Vec<(u64, u64, u64)> =
            self.objects.iter().filter(|(_, seen)| seen.kind.is_some()).map(|(id, seen)| (*id, seen.stated, seen.found)).collect();
        let reached = self.reached();
        for (id, stated, found) in counted {
            if stated != found {
                self.corrupt("object", id, format!("it states {stated} links, and {found} lead to it"));
            } else if !reached.contains(&id) {
                let error = Error::corrupt("object", Address(id), "no path leads to it: its space is lost");
                self.findings.add(Finding { problem: Problem::Unnamed, ..of_error(Some(id), &error) });
            }
        }
        if self.objects.get(&0).is_none_or(|root| root.kind != Some(ObjectKind::Group)) {
            self.corrupt("object", 0, "the container has no root group".into());
        }
        self.done.objects = self.objects.values().filter(|seen| seen.kind.is_some()).count() as u64;
    }

    /// The objects that links from the root reach.
    fn reached(&mut self) -> HashSet<u64> {
        self.edges.sort_unstable();
        let (mut reached, mut waiting) = (HashSet::default(), vec![0u64]);
        while let Some(id) = waiting.pop() {
            if reached.insert(id) {
                let first = self.edges.partition_point(|(from, _)| *from < id);
                let own = self.edges.get(first..).unwrap_or_default().iter().take_while(|(from, _)| *from == id);
                waiting.extend(own.map(|(_, to)| *to));
            }
        }
        reached
    }

    fn finish(mut self) -> Result<Checked> {
        self.space.total = self.space.live();
        let Findings { listed: mut findings, count, not_checked, unnamed } = self.findings;
        let wanted: HashSet<u64> = findings.iter().filter_map(|finding| finding.object).collect();
        if !wanted.is_empty() {
            // Damaged groups have no members whose paths could be found.
            let found = paths::paths_of(self.state, &wanted).unwrap_or_default();
            for finding in &mut findings {
                finding.path = finding.object.and_then(|object| found.get(&object).cloned());
            }
        }
        let objects = self.done.objects;
        Ok(Checked {
            findings,
            cut: None,
            count,
            not_checked,
            unnamed,
            objects,
            decoded: self.decoded,
            space: self.space,
            dead: Vec::new(),
        })
    }
}
