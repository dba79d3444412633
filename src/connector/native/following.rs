//! A container that is read while others change its file.
//!
//! What others did is noticed by the file's stamp: which file has the name, its length and its
//! times. Then the file is opened anew, with nothing of what was decoded before, and takes the
//! place of the one shown; what was obtained of that one can be read to the end. A file that cannot
//! be opened just then (its writer is half way, or replaced it by something else) changes nothing:
//! the one shown stays, and it is tried again at each look.
//!
//! No bytes are locked, and no writer is waited for. What was read counts if the file is unchanged
//! after that (`is_intact`); see `docs/DESIGN-following.md`.

use super::external::Neighbours;
use super::log::LogAccess;
use super::recover::{committed, open_for_reading};
use super::{NativeConnector, Options};
use crate::base::escape::escaped;
use crate::base::locks::{Mutex, RwLock};
use crate::base::{Address, Error, Result};
use crate::connector::log::{DatasetInLog, Log, LogUse, LogVisitor};
use crate::connector::open::Backing;
use crate::connector::{
    AttributeNames, Budget, Chunks, Connector, Content, DatasetInfo, Datatype, ElementSet, Follow, Form, Link, LinkFacts, Newlines,
    ObjectId, ObjectInfo, ObjectKind, ObjectProperties, TargetVisitor, Value,
};
use crate::dataset::layout::virtual_::MissingPolicy;
use crate::file::host_file::HostFile;
use crate::file::space::REST;
use crate::file::{FileDriver, Stamp, Status};
use std::ops::ControlFlow;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A change this soon after another may leave the stamp as it is: the clock of a file system ticks
/// every 10 ms at most.
const TICK: Duration = Duration::from_millis(20);
/// A file changed this recently may be half way between two states.
const RECENT: Duration = Duration::from_secs(2);
/// A read begins no later than this after the file was last seen unchanged, so that it ends before
/// [`REST`].
const UNCHANGED_FOR: Duration = REST.saturating_sub(Duration::from_secs(2));
/// Superblock flag: the writer lets others read (`H5F_ACC_SWMR_WRITE`), and frees no space.
const SWMR_WRITE: u32 = 4;
/// States that follow each other because of failures are this far apart at least.
const PAUSE: Duration = Duration::from_millis(20);

/// What is shown now.
struct Shown {
    connector: Arc<NativeConnector>,
    root: ObjectId,
    status: Status,
    /// The file had not been changed within a tick before.
    settled: bool,
    /// When the file was last seen unchanged.
    unchanged: Mutex<Instant>,
}

impl Shown {
    fn new((connector, root): (Arc<NativeConnector>, ObjectId), status: Status, asked: Instant) -> Shown {
        Shown { connector, root, status, settled: !within(status.mtime, TICK), unchanged: Mutex::new(asked) }
    }
}

/// What looking leads to.
struct Looks {
    /// The state that was opened last, or tried to.
    stamp: Stamp,
    /// Since when it is shown.
    since: Instant,
    /// It was changed within a tick before it was read: it may have been changed after, too.
    unsettled: bool,
    /// It could not be opened.
    failing: bool,
    /// The one shown before: who reads it may still need the files that it leads to.
    previous: Option<Arc<NativeConnector>>,
}

/// See the module's description.
pub struct Following {
    host: HostFile,
    directory: PathBuf,
    group: Option<Vec<u8>>,
    neighbours: Arc<Neighbours>,
    missing: MissingPolicy,
    log: LogAccess,
    shown: RwLock<Shown>,
    state: AtomicU64,
    looks: Mutex<Looks>,
}

fn within(time: SystemTime, span: Duration) -> bool {
    SystemTime::now().duration_since(time).is_ok_and(|age| age < span)
}

/// The group `group` of `connector`; an error says that there is none.
fn mounted_group(connector: &NativeConnector, group: Option<&[u8]>) -> Result<ObjectId> {
    let root = connector.root();
    let Some(path) = group else { return Ok(root) };
    let absent = || Error::corrupt("mounted group", root.address, "it is not there any more");
    let id = connector.resolve(root, path)?.ok_or_else(absent)?;
    if connector.info(id)?.kind == ObjectKind::Group { Ok(id) } else { Err(absent()) }
}

impl Following {
    /// Opens `host`, whose directory is `directory`; `group` becomes the root, and must be there.
    pub fn open(host: HostFile, directory: PathBuf, group: Option<Vec<u8>>, options: Options) -> Result<Arc<Following>> {
        host.reader().map_err(|e| Error::io("open", Address(0), &e))?.announce_follower();
        let asked = Instant::now();
        let driver = open_for_reading(&host)?;
        let status = driver.status().map_err(|e| Error::io("stat", Address(0), &e))?;
        let (neighbours, missing, log) = (options.neighbours.clone(), options.missing, options.log.clone());
        let connector = NativeConnector::open(driver, directory.clone(), options)?;
        // Whether the group is there, the caller finds out.
        let root = mounted_group(&connector, group.as_deref()).unwrap_or(connector.root());
        let (stamp, unsettled) = (status.stamp(), within(status.mtime, TICK));
        let looks = Looks { stamp, since: Instant::now(), unsettled, failing: false, previous: None };
        let shown = RwLock::new(Shown::new((connector, root), status, asked));
        let (state, looks) = (AtomicU64::new(0), Mutex::new(looks));
        Ok(Arc::new(Following { host, directory, group, neighbours, missing, log, shown, state, looks }))
    }

    fn now(&self) -> Arc<NativeConnector> {
        self.shown.read().connector.clone()
    }

    /// What has the name, or, if nothing has that could be shown, the file that had it.
    fn status_now(&self) -> Option<(Status, bool)> {
        if let Some(status) = self.host.status_now() {
            return Some((status, true));
        }
        let file = self.now().file(0).ok()?;
        Some((file.store.driver().status().ok()?, false))
    }

    fn reopen(&self, named: bool) -> Result<(Arc<NativeConnector>, ObjectId)> {
        let old = self.now();
        let driver = if named {
            let file = self.host.open_successor().map_err(|e| Error::io("open", Address(0), &e))?;
            file.announce_follower();
            committed(file, &self.host)?
        } else {
            old.file(0)?.store.driver().clone()
        };
        let environment = Arc::new(old.environment().with_empty_caches());
        let options =
            Options { environment, neighbours: self.neighbours.clone(), missing: self.missing, rescue: false, log: self.log.clone() };
        let connector = NativeConnector::open(driver, self.directory.clone(), options)?;
        let root = mounted_group(&connector, self.group.as_deref())?;
        Ok((connector, root))
    }

    fn show(&self, looks: &mut Looks, shown: (Arc<NativeConnector>, ObjectId), status: Status, asked: Instant) {
        let old = std::mem::replace(&mut *self.shown.write(), Shown::new(shown, status, asked));
        self.state.fetch_add(1, Ordering::SeqCst);
        // What is read of it from now on is not worth keeping.
        old.connector.environment().forget_decoded();
        looks.previous = Some(old.connector);
        looks.since = Instant::now();
        if old.status.identity != status.identity {
            tracing::info!("{} is another file now", escaped(&self.host.path()));
        }
    }
}

impl Follow for Following {
    fn state(&self) -> u64 {
        self.state.load(Ordering::SeqCst)
    }

    fn look(&self, failed: bool) -> bool {
        let before = self.state();
        let mut looks = self.looks.lock();
        if failed && self.state() != before {
            // Another thread met the failure, too.
            return true;
        }
        let asked = Instant::now();
        let Some((status, named)) = self.status_now() else { return false };
        let changed = status.stamp() != looks.stamp || looks.unsettled || looks.failing || self.now().neighbours_changed();
        let hasty = failed && within(status.mtime, RECENT);
        if !changed && !hasty {
            looks.previous = None;
            return false;
        }
        if failed {
            std::thread::sleep(PAUSE.saturating_sub(looks.since.elapsed()));
        }
        (looks.stamp, looks.unsettled) = (status.stamp(), within(status.mtime, TICK));
        match self.reopen(named) {
            Ok(new) => {
                looks.failing = false;
                self.show(&mut looks, new, status, asked);
                true
            }
            Err(e) => {
                if !std::mem::replace(&mut looks.failing, true) {
                    tracing::warn!("{} was changed and cannot be read now ({e}): it is shown as it was", escaped(&self.host.path()));
                }
                false
            }
        }
    }

    fn is_intact(&self) -> bool {
        let shown = self.shown.read();
        let Ok(file) = shown.connector.file(0) else { return false };
        let (driver, asked) = (file.store.driver(), Instant::now());
        let Ok(now) = driver.status() else { return false };
        let mut unchanged = shown.unchanged.lock();
        // The name and what it leads to may change, which changes the ctime.
        if shown.settled && (now.len, now.mtime) == (shown.status.len, shown.status.mtime) {
            *unchanged = asked;
            return true;
        }
        let spared = unchanged.elapsed() < UNCHANGED_FOR && driver.is_changed_by_mount();
        spared || file.store.superblock().flags & SWMR_WRITE != 0
    }

    fn mounted(&self) -> (ObjectId, Backing) {
        let shown = self.shown.read();
        (shown.root, shown.status.into())
    }
}

impl Connector for Following {
    fn root(&self) -> ObjectId {
        self.now().root()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.now().counters()
    }

    fn warning(&self) -> Option<String> {
        self.now().warning()
    }

    fn set_cache_bytes(&self, bytes: u64) {
        // The next state begins with the budget of this one.
        let _looks = self.looks.lock();
        self.now().set_cache_bytes(bytes);
    }

    fn info(&self, id: ObjectId) -> Result<ObjectInfo> {
        self.now().info(id)
    }

    fn link_facts(&self, group: ObjectId, name: &[u8]) -> Result<LinkFacts> {
        self.now().link_facts(group, name)
    }

    fn lookup(&self, group: ObjectId, name: &[u8]) -> Result<Option<Link>> {
        self.now().lookup(group, name)
    }

    fn list(&self, group: ObjectId, start: u64, f: &mut dyn FnMut(Link, u64) -> ControlFlow<()>) -> Result<()> {
        self.now().list(group, start, f)
    }

    fn external(&self, from: ObjectId, file: &[u8], object: &[u8]) -> Result<Option<ObjectId>> {
        self.now().external(from, file, object)
    }

    fn resolve(&self, start: ObjectId, path: &[u8]) -> Result<Option<ObjectId>> {
        self.now().resolve(start, path)
    }

    fn content(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>> {
        self.now().content(id, form)
    }

    fn glance(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>> {
        self.now().glance(id, form)
    }

    fn dataset(&self, id: ObjectId) -> Result<DatasetInfo> {
        Connector::dataset(&*self.now(), id)
    }

    fn elsewhere(&self, id: ObjectId) -> Result<Option<crate::connector::Elsewhere>> {
        self.now().elsewhere(id)
    }

    fn newlines(&self, id: ObjectId) -> Result<Option<Newlines>> {
        self.now().newlines(id)
    }

    fn elements(&self, id: ObjectId) -> Result<Value> {
        self.now().elements(id)
    }

    fn elements_in(&self, id: ObjectId, elements: Range<u64>) -> Result<Value> {
        self.now().elements_in(id, elements)
    }

    fn references(&self, id: ObjectId, first: u64, budget: &mut Budget, f: &mut TargetVisitor<'_>) -> Result<()> {
        self.now().references(id, first, budget, f)
    }

    fn defined(&self, id: ObjectId, first: &[u64], end: &[u64]) -> Result<Option<ElementSet>> {
        self.now().defined(id, first, end)
    }

    fn chunks(&self, id: ObjectId) -> Result<Option<Arc<dyn Chunks>>> {
        self.now().chunks(id)
    }

    fn location(&self) -> Option<Vec<u8>> {
        self.now().location()
    }

    fn damage(&self, id: ObjectId) -> Option<Error> {
        self.now().damage(id)
    }

    fn comment(&self, id: ObjectId) -> Result<Option<Vec<u8>>> {
        self.now().comment(id)
    }

    fn properties(&self, id: ObjectId) -> Result<ObjectProperties> {
        self.now().properties(id)
    }

    fn created_links(&self, group: ObjectId, limit: usize) -> Result<Option<Vec<Vec<u8>>>> {
        self.now().created_links(group, limit)
    }

    fn datatype(&self, id: ObjectId) -> Result<Datatype> {
        self.now().datatype(id)
    }

    fn named_type(&self, id: ObjectId, attribute: Option<&[u8]>) -> Result<Option<ObjectId>> {
        self.now().named_type(id, attribute)
    }

    fn path_of(&self, id: ObjectId) -> Option<Vec<u8>> {
        self.now().path_of(id)
    }

    fn reference_bytes(&self) -> u8 {
        self.now().reference_bytes()
    }

    fn attributes(&self, id: ObjectId) -> Result<AttributeNames> {
        self.now().attributes(id)
    }

    fn attribute(&self, id: ObjectId, name: &[u8]) -> Result<Option<Value>> {
        self.now().attribute(id, name)
    }

    fn log(&self) -> Option<&dyn Log> {
        self.now().log().is_some().then_some(self)
    }

    fn follow(&self) -> Option<&dyn Follow> {
        Some(self)
    }
}

impl Log for Following {
    fn dataset(&self, id: ObjectId) -> Result<Option<DatasetInLog>> {
        self.now().log().map_or(Ok(None), |log| log.dataset(id))
    }

    fn usage(&self) -> Result<LogUse> {
        self.now().log().map_or(Ok(LogUse::default()), |log| log.usage())
    }

    fn dump(&self, f: &mut LogVisitor<'_>) -> Result<()> {
        self.now().log().map_or(Ok(()), |log| log.dump(f))
    }
}
