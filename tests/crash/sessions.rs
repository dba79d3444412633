//! What is done to containers in the crash test, and how their states are told apart.

use super::images::Image;
use h5dir::base::{Error, Result};
use h5dir::connector::edit::{Edit, Taken};
use h5dir::connector::native::external::Neighbours;
use h5dir::connector::native::{NativeConnector, Options};
use h5dir::connector::{Connector, Form, LinkTarget, ObjectId, ObjectKind};
use h5dir::dataset::environment::Environment;
use h5dir::dataset::layout::virtual_::MissingPolicy;
use h5dir::file::fault::Plan;
use h5dir::file::memory::{GrowingFile, MemoryFile, MemoryJournal};
use h5dir::file::recorder::{Log, RecordedPlace, Recorder, Step, Target};
use h5dir::meta::Store;
use h5dir::present::{self, Editor, Existing};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A recorded session.
pub struct Session {
    /// Structure and kind of operation.
    pub name: String,
    /// The file before it.
    pub initial: Vec<u8>,
    /// What was done to the file and its journal.
    pub log: Vec<Step>,
    /// The container's state at the beginning and after each commit.
    pub states: Vec<String>,
}

pub fn options() -> Options {
    static POOL: OnceLock<Arc<Environment>> = OnceLock::new();
    let pool = POOL.get_or_init(|| Arc::new(Environment::new(1 << 20, 0, 2).unwrap())).pool.clone();
    Options {
        environment: Arc::new(Environment::with_pool(1 << 20, 0, pool)),
        neighbours: Arc::new(Neighbours::new(None)),
        missing: MissingPolicy::Fill,
        rescue: false,
        log: Default::default(),
    }
}

/// Recovers an image and opens what its superblock says is the file.
pub fn open(file: Vec<u8>, journal: Option<Vec<u8>>) -> Result<Arc<NativeConnector>> {
    let file = Arc::new(GrowingFile::new(file));
    drop(Store::open_writable(file.clone(), Box::new(MemoryJournal::new(journal)))?);
    let mut bytes = file.bytes();
    let end = Store::open(Arc::new(MemoryFile::new(bytes.clone())))?.superblock().eof.0 as usize;
    // Nothing that counts lies beyond the end that the superblock tells.
    bytes.truncate(end);
    NativeConnector::open(Arc::new(MemoryFile::new(bytes)), PathBuf::from("/"), options())
}

/// True when no reader needs the journal.
pub fn opens_directly(image: &Image) -> bool {
    let store = Store::open(Arc::new(MemoryFile::new(image.file.clone())));
    store.is_ok_and(|s| s.superblock().eof.0 <= image.file.len() as u64 && s.superblock().flags == 0)
}

/// All that can be read of a container, as text.
pub fn digest(connector: &dyn Connector) -> String {
    let (mut out, mut seen) = (String::new(), HashSet::new());
    object(connector, connector.root(), "/", &mut seen, &mut out);
    out
}

fn object(c: &dyn Connector, id: ObjectId, path: &str, seen: &mut HashSet<ObjectId>, out: &mut String) {
    let info = match c.info(id) {
        Ok(info) => info,
        Err(e) => {
            let _ = writeln!(out, "{path} {e}");
            return;
        }
    };
    let _ = write!(out, "{path} {:?} {}", info.kind, info.links);
    if !seen.insert(id) {
        out.push_str(" again\n");
        return;
    }
    match c.attributes(id) {
        Ok(names) => {
            for name in names.iter() {
                let value = present::attribute_text(c, id, name);
                let _ = write!(out, " @{}={:x?}", String::from_utf8_lossy(name), value);
            }
        }
        Err(e) => {
            let _ = write!(out, " attributes: {e}");
        }
    }
    match info.kind {
        ObjectKind::Dataset => {
            for fact in ["shape", "dtype", "maxshape", "chunks"] {
                let _ =
                    write!(out, " {fact}={:?}", present::fact(c, id, fact).map(|v| v.map(|v| String::from_utf8_lossy(&v).into_owned())));
            }
            let _ = writeln!(out, " {}", content(c, id));
        }
        ObjectKind::Group => {
            out.push('\n');
            let mut links = Vec::new();
            let listed = c.list(id, 0, &mut |l, _| {
                links.push(l);
                ControlFlow::Continue(())
            });
            if let Err(e) = listed {
                let _ = writeln!(out, "{path} links: {e}");
            }
            links.sort_by(|a, b| a.name.cmp(&b.name));
            for link in links {
                let name = format!("{path}{}/", String::from_utf8_lossy(&link.name));
                match link.target {
                    LinkTarget::Hard(id) => object(c, id, &name, seen, out),
                    other => {
                        let _ = writeln!(out, "{name} -> {other:?}");
                    }
                }
            }
        }
        _ => out.push('\n'),
    }
}

fn content(c: &dyn Connector, id: ObjectId) -> String {
    let read = || -> Result<String> {
        let content = c.content(id, Form::Exact)?;
        let mut bytes = vec![0; content.size()?.min(1 << 20) as usize];
        let n = content.read(0, &mut bytes)?;
        bytes.truncate(n);
        let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
        Ok(format!("{n} bytes {sum:016x}"))
    };
    read().unwrap_or_else(|e| e.to_string())
}

/// Objects of a container by path, in order.
pub fn objects(c: &dyn Connector, kind: ObjectKind) -> Vec<(String, ObjectId)> {
    let mut out = Vec::new();
    let mut pending = vec![(String::from("/"), c.root())];
    let mut seen = HashSet::new();
    while let Some((path, id)) = pending.pop() {
        if !seen.insert(id) {
            continue;
        }
        let Ok(info) = c.info(id) else { continue };
        if info.kind == kind {
            out.push((path.clone(), id));
        }
        if info.kind == ObjectKind::Group {
            let _ = c.list(id, 0, &mut |l, _| {
                if let LinkTarget::Hard(id) = l.target {
                    pending.push((format!("{path}{}/", String::from_utf8_lossy(&l.name)), id));
                }
                ControlFlow::Continue(())
            });
        }
    }
    out.sort();
    out
}

/// Larger datasets are left alone: their indexes would fill the memory.
const SIZE_MAX: u64 = 1 << 24;

/// Does operations, each followed by a commit.
pub struct Recording {
    /// What is changed.
    pub connector: Arc<NativeConnector>,
    log: Log,
    states: Vec<String>,
    /// Errors are collected, not fatal.
    tolerant: bool,
    /// Faults, which do not concern looking at the state.
    pub plan: Option<Arc<Plan>>,
    /// What went wrong.
    pub errors: Vec<Error>,
    /// States that a commit was asked for, successful or not.
    pub reached: Vec<String>,
    /// The last of them whose commit succeeded.
    pub committed: usize,
}

impl Recording {
    /// For sessions with faults.
    pub fn tolerant(connector: Arc<NativeConnector>) -> Self {
        let states = vec![digest(&*connector)];
        Recording {
            reached: states.clone(),
            states,
            connector,
            log: Log::default(),
            tolerant: true,
            plan: None,
            errors: Vec::new(),
            committed: 0,
        }
    }

    /// The container.
    pub fn edit(&self) -> &dyn Edit {
        Connector::edit(&*self.connector).unwrap()
    }

    fn state(&self) -> String {
        let pause = |paused| self.plan.iter().for_each(|p| p.pause(paused));
        pause(true);
        let state = digest(&*self.connector);
        pause(false);
        state
    }

    /// Makes durable what was done.
    pub fn commit(&mut self) {
        if self.tolerant {
            self.reached.push(self.state());
        }
        match self.edit().commit() {
            Ok(()) => self.acknowledge(),
            Err(e) if self.tolerant => self.errors.push(e),
            Err(e) => panic!("{e}"),
        }
    }

    /// The state is durable.
    pub fn acknowledge(&mut self) {
        let state = self.state();
        if self.tolerant {
            if self.reached.last() != Some(&state) {
                self.reached.push(state);
            }
            self.committed = self.reached.len() - 1;
            return;
        }
        self.states.push(state);
        self.log.lock().push(Step::Acknowledged(self.states.len() as u64 - 1));
    }

    /// [`Recording::done`] of a change from text.
    pub fn edited<T>(&mut self, operation: impl FnOnce(Editor<'_>) -> Result<T>) -> bool {
        let connector = self.connector.clone();
        self.done(|edit| operation(Editor { connector: &*connector, edit }))
    }

    /// Refusals are for other tests; here they only mean that nothing was done.
    pub fn done<T>(&mut self, operation: impl FnOnce(&dyn Edit) -> Result<T>) -> bool {
        match operation(self.edit()) {
            Ok(_) => true,
            Err(Error::Refused { .. } | Error::Unsupported { .. }) => false,
            Err(e) if self.tolerant => {
                self.errors.push(e);
                false
            }
            Err(e) => panic!("{e}"),
        }
    }

    /// The result of an operation that nothing speaks against.
    pub fn get<T>(&mut self, operation: impl FnOnce(&dyn Edit) -> Result<T>) -> Option<T> {
        match operation(self.edit()) {
            Ok(t) => Some(t),
            Err(e) if self.tolerant => {
                self.errors.push(e);
                None
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// What a session does.
pub type Operations = fn(&mut Recording);

/// A file to begin with.
pub fn fixture(base: &str) -> Vec<u8> {
    let path = |folder: &str| format!("{}/tests/fixtures/{folder}/{base}.h5", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path("mutants")).or_else(|_| std::fs::read(path("space"))).unwrap()
}

/// `at_once`: on a file system that cannot take room beforehand, where each new structure is written at once.
fn record(base: &'static str, kind: &'static str, operations: Operations, at_once: bool) -> Session {
    let initial = fixture(base);
    let log = Log::default();
    let recorder = Recorder::new(Arc::new(GrowingFile::new(initial.clone())), log.clone());
    let driver = Arc::new(if at_once { recorder.unsure() } else { recorder });
    let place = Box::new(RecordedPlace::new(MemoryJournal::default(), log.clone()));
    let connector = NativeConnector::writable_over(driver, place, PathBuf::from("/"), options()).unwrap();
    log.lock().clear();
    let mut r = Recording { tolerant: false, log, ..Recording::tolerant(connector) };
    operations(&mut r);
    r.edit().close().unwrap();
    r.acknowledge();
    assert!(r.states.len() > 2, "{base} {kind}: nothing was done");
    let steps = r.log.lock().clone();
    Session { name: format!("{kind}, {base}"), initial, log: steps, states: r.states }
}

fn write(r: &mut Recording) {
    for (_, id) in objects(&*r.connector, ObjectKind::Dataset) {
        let Ok(size) = r.connector.content(id, Form::Main).and_then(|c| c.size()) else { continue };
        let wanted = (size / 3).min(300) as usize;
        if (1..SIZE_MAX).contains(&size) && r.done(|e| e.write(id, size / 2, &vec![0xa5; wanted.max(1)])) {
            r.commit();
        }
    }
}

fn overwrite(r: &mut Recording) {
    for (_, id) in objects(&*r.connector, ObjectKind::Dataset) {
        let Ok(size) = r.connector.content(id, Form::Main).and_then(|c| c.size()) else { continue };
        let bytes: Vec<u8> = (0..size.min(4096)).map(|i| (i * 7) as u8).collect();
        if (1..SIZE_MAX).contains(&size) && r.done(|e| e.write(id, 0, &bytes)) {
            r.commit();
        }
    }
}

fn resize(r: &mut Recording) {
    for (_, id) in objects(&*r.connector, ObjectKind::Dataset) {
        let size = |r: &Recording| r.connector.content(id, Form::Main).and_then(|c| c.size()).unwrap_or(0);
        let before = size(r);
        if before >= SIZE_MAX {
            continue;
        }
        if r.done(|e| e.set_size(id, before + before / 2 + 1)) {
            let end = size(r);
            if end > 0 {
                r.done(|e| e.write(id, end - 1, &[7]));
            }
            r.commit();
        }
        if r.done(|e| e.set_size(id, before / 3)) {
            r.commit();
        }
    }
}

/// A compaction of the log between writes.
fn compact(r: &mut Recording) {
    let datasets: Vec<_> = objects(&*r.connector, ObjectKind::Dataset).into_iter().map(|(_, id)| id).collect();
    for turn in 0..2u8 {
        for id in &datasets {
            r.done(|e| e.write(*id, 0, &[turn + 1; 40]));
        }
        r.commit();
        r.get(|e| e.log().map_or(Ok(()), |log| log.compact(None, &mut |_, _| ControlFlow::Continue(())).map(drop)));
        r.commit();
        for id in datasets.iter().take(2) {
            r.done(|e| e.write(*id, 8, &[turn + 9; 20]));
        }
        r.commit();
    }
}

fn every_object(r: &Recording) -> Vec<ObjectId> {
    let mut ids: Vec<_> =
        [ObjectKind::Group, ObjectKind::Dataset].iter().flat_map(|k| objects(&*r.connector, *k)).map(|(_, id)| id).collect();
    ids.truncate(6);
    ids
}

fn attributes(r: &mut Recording) {
    for id in every_object(r) {
        for i in 0..3u8 {
            r.edited(|e| e.set_attribute(id, &[b'n', b'0' + i], &vec![b'x'; 40 * usize::from(i)], Existing::Any));
            r.commit();
        }
        r.edited(|e| e.set_attribute(id, b"n1", b"another and longer value", Existing::Replace));
        r.commit();
    }
}

fn remove_attributes(r: &mut Recording) {
    for id in every_object(r) {
        let Ok(names) = r.connector.attributes(id) else { continue };
        for name in names.iter().take(12) {
            if r.done(|e| e.remove_attribute(id, name)) {
                r.commit();
            }
        }
        r.edited(|e| e.set_attribute(id, b"new", b"value", Existing::Create));
        r.commit();
    }
}

fn groups(r: &Recording) -> Vec<ObjectId> {
    objects(&*r.connector, ObjectKind::Group).into_iter().map(|(_, id)| id).take(4).collect()
}

fn create(r: &mut Recording) {
    for group in groups(r) {
        for i in 0..4u8 {
            let Some(id) = r.get(|e| e.create_file(group, &[b'z', b'z', b'0' + i])) else { continue };
            r.get(|e| e.write(id, 0, &vec![i; 3000 * usize::from(i)]));
            r.commit();
        }
        let Some(inner) = r.get(|e| e.create_group(group, b"zz inner")) else { continue };
        r.get(|e| e.create_file(inner, b"deep"));
        r.get(|e| e.symlink(group, b"zz soft", b"zz inner/deep"));
        r.commit();
    }
}

fn unlink(r: &mut Recording) {
    for group in groups(r) {
        // It may have gone with an earlier one.
        if !objects(&*r.connector, ObjectKind::Group).iter().any(|(_, id)| *id == group) {
            continue;
        }
        let mut names = Vec::new();
        let _ = r.connector.list(group, 0, &mut |l, _| {
            names.push(l.name);
            ControlFlow::Continue(())
        });
        for name in names.into_iter().take(14) {
            if r.done(|e| e.unlink(group, &name, true)) || r.done(|e| e.unlink(group, &name, false)) {
                r.commit();
            }
        }
        let Some(id) = r.get(|e| e.create_file(group, b"zz after")) else { continue };
        r.get(|e| e.write(id, 0, &[1; 5000]));
        r.commit();
    }
}

fn rename(r: &mut Recording) {
    let root = r.connector.root();
    let Some(a) = r.get(|e| e.create_group(root, b"zz ga")) else { return };
    let Some(f) = r.get(|e| e.create_file(a, b"one")) else { return };
    r.get(|e| e.write(f, 0, b"content"));
    r.commit();
    for group in groups(r) {
        r.get(|e| e.rename((a, b"one"), (group, b"zz moved"), Taken::Refuse));
        r.commit();
        r.get(|e| e.link(a, b"zz second", f));
        r.commit();
        r.get(|e| e.create_file(a, b"zz third"));
        r.get(|e| e.rename((a, b"zz third"), (group, b"zz moved"), Taken::Exchange));
        r.commit();
        r.get(|e| e.rename((a, b"zz third"), (a, b"one"), Taken::Replace));
        r.get(|e| e.unlink(a, b"zz second", false));
        r.commit();
    }
}

const BASES: [&str; 32] = [
    "attrs_earliest",
    "attrs_v108",
    "attrs_v110",
    "chunks_earliest",
    "chunks_v108",
    "chunks_v110",
    "chunks_latest",
    "chunks2_earliest",
    "chunks2_v108",
    "chunks2_v110",
    "chunks2_latest",
    "filters_earliest",
    "filters_latest",
    "groups_earliest",
    "groups_v108",
    "layouts_latest",
    "userblock_latest",
    "attrs_latest",
    "groups_latest",
    "types_earliest",
    "vlen_v110",
    "image_v110",
    "shared_earliest",
    "shared_latest",
    "persist",
    "pages",
    "pages_image",
    "sparse_v110",
    "log_v110",
    "log_earliest",
    "log_tail_v110",
    UNREADABLE,
];

/// Holds structured chunks, which no released libhdf5 opens.
pub const UNREADABLE: &str = "structured_v110";

const KINDS: [(&str, Operations); 9] = [
    ("write", write),
    ("overwrite", overwrite),
    ("resize", resize),
    ("attributes", attributes),
    ("remove attributes", remove_attributes),
    ("create", create),
    ("unlink", unlink),
    ("rename", rename),
    ("compact", compact),
];

/// Sessions for tests that repeat each many times. No filters that lose precision: there a state before its commit is
/// another one than after it.
pub fn few() -> Vec<(&'static str, &'static str, Operations)> {
    let bases = ["chunks_v110", "attrs_earliest", "chunks2_latest"];
    let kinds = || KINDS.into_iter().filter(|(kind, _)| *kind != "compact");
    bases.into_iter().flat_map(|base| kinds().map(move |(kind, operations)| (base, kind, operations))).collect()
}

/// Every kind of operation on every structure that has something for it; some of them in the other way of writing too.
pub fn all() -> Vec<Box<dyn Fn() -> Session + Sync>> {
    let mut out: Vec<Box<dyn Fn() -> Session + Sync>> = Vec::new();
    let mut turn = false;
    for base in BASES {
        for (kind, operations) in KINDS {
            let data = matches!(kind, "write" | "overwrite" | "resize");
            if data && ["attrs", "groups", "types", "vlen"].iter().any(|b| base.starts_with(b))
                || kind == "compact" && !base.starts_with("log")
                || kind == "resize" && ["layouts", "image", "shared"].iter().any(|b| base.starts_with(b))
            {
                continue;
            }
            out.push(Box::new(move || record(base, kind, operations, false)));
            turn = !turn;
            if turn || super::long() {
                out.push(Box::new(move || record(base, kind, operations, true)));
            }
        }
    }
    for (base, kind, operations) in super::layouts::SESSIONS {
        out.push(Box::new(move || record(base, kind, operations, false)));
    }
    out
}

/// The file at the beginning and after each commit.
pub fn files(session: &Session) -> Vec<Vec<u8>> {
    let mut bytes = session.initial.clone();
    let mut out = vec![bytes.clone()];
    for step in &session.log {
        match step {
            Step::Write(Target::File, offset, data) => {
                let at = *offset as usize;
                bytes.resize(bytes.len().max(at + data.len()), 0);
                bytes[at..at + data.len()].copy_from_slice(data);
            }
            Step::SetLen(Target::File, len) => bytes.resize(*len as usize, 0),
            Step::Acknowledged(_) => out.push(bytes.clone()),
            _ => {}
        }
    }
    out
}

/// Kinds of barrier.
pub const BARRIERS: usize = 7;
pub const BARRIER_NAMES: [&str; BARRIERS] = ["new bytes", "end of file", "one sector", "journal", "mark", "changes", "settled"];

/// The log without the syncs of one kind.
pub fn without_barrier(log: &[Step], barrier: usize) -> Vec<Step> {
    let mut out = Vec::new();
    // Syncs of the file since the journal's; writes since the last sync of the file.
    let (mut after_journal, mut writes) = (None, Vec::new());
    for step in log {
        let kind = match step {
            Step::Write(Target::File, _, bytes) => {
                writes.push(bytes.len());
                None
            }
            Step::SetLen(Target::File, _) => {
                writes.push(usize::MAX);
                None
            }
            Step::Sync(Target::Journal) => {
                after_journal = Some(0usize);
                Some(3)
            }
            Step::Sync(Target::File) => {
                let kind = match (&mut after_journal, writes.as_slice()) {
                    (Some(n), _) => {
                        *n += 1;
                        let kind = 3 + *n;
                        if *n == 3 {
                            after_journal = None;
                        }
                        kind
                    }
                    (None, [48 | 96 | 100]) => 1,
                    (None, [512]) => 2,
                    (None, _) => 0,
                };
                writes.clear();
                Some(kind)
            }
            _ => None,
        };
        if kind != Some(barrier) {
            out.push(step.clone());
        }
    }
    out
}
