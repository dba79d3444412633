//! The kind of container in an object store: `iod:FOLDER`, `iod+s3://BUCKET/PREFIX`.

use super::access::IodConnector;
use super::commits::Commits;
use super::external::{self, External};
use super::following::time_of;
use super::original_sources::{self, FolderSources, PrefixSources};
use super::state::{GROUP, State, now};
use super::transaction::open_peer;
use super::versions::number_of;
use crate::base::remote::{container_folder, container_parent, container_url, is_container};
use crate::base::{Error, Result};
use crate::connector::DatasetSpec;
use crate::connector::new_file::NewFile;
use crate::connector::open::{
    Backing, ConfinedDir, ContainerKind, ContainerPlace, ExternalPolicy, FreeSpace, Located, Objects, OpenContainer, OpenError,
    OpenOptions, Recognized, UsedDirectory, temporary_directory,
};
use crate::connector::plan;
use crate::connector::transactions::TransactionUse;
use crate::connector::versions::{Collected, Collection, VersionName};
use crate::file::directory::Directory;
use crate::file::host_path;
use crate::file::reader::Reader;
use crate::file::store::local::LocalStore;
use crate::file::store::{ObjectStore, RangeCache};
use crate::format::message::times;
use crate::format::object_header::kind;
use crate::iod::{Cell, Container, Entry, Ranges, gc, keys, merge};
use nix::sys::stat::Mode;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Temporary files that a container may have whatever its caches are, bytes.
const FILES_MIN_BYTES: u64 = 256 << 20;
/// The blocks of originals have this part of the cache.
const BLOCKS_DIVISOR: u64 = 4;

/// See the module's description.
pub struct IodContainer;

/// A container whose store is known.
struct LocatedStore {
    store: Arc<dyn ObjectStore>,
    used: Vec<UsedDirectory>,
    /// The folder that is the store; `None` for a bucket.
    folder: Option<Directory>,
    /// The disk cache.
    cache: Option<Arc<dyn RangeCache>>,
    /// Other files that may be read; `None`: none.
    external: Option<external::Place>,
    /// The prefix that the container's is in: its objects may be originals.
    parent: Option<Arc<dyn Objects>>,
}

fn remote_error(path: &Path, message: impl Into<String>) -> OpenError {
    OpenError::Remote { path: path.to_owned(), message: message.into() }
}

fn engine(path: &Path) -> impl Fn(Error) -> OpenError + '_ {
    |source| match source {
        Error::Io { operation: "open", errno: libc::ENOENT, .. } => {
            remote_error(path, "there is no container; 'h5dir create' makes one, and 'h5dir mount' of the path without 'iod:' shows files")
        }
        Error::Refused { errno, reason } if errno != libc::EIO => remote_error(path, reason),
        Error::Request { reason, .. } => remote_error(path, reason),
        source => OpenError::Engine { path: path.to_owned(), source },
    }
}

/// The first values of a container: those of the root group.
pub(super) fn root_entries() -> Vec<Entry> {
    let entry =
        |message: u16, body: Vec<u8>| Entry { key: keys::header(0, message), cell: Some(Cell::inline(&body)), ranges: Ranges::whole() };
    vec![
        entry(kind::MTIME, times::encode(now())),
        entry(kind::REFERENCE_COUNT, merge::encode_link_count(1)),
        entry(keys::OBJECT_TYPE, vec![GROUP]),
    ]
}

/// The store in the folder `folder`; made if it does not exist and `create`.
fn local(path: &Path, folder: &Path, create: bool) -> std::result::Result<LocalStore, OpenError> {
    let io = |source| OpenError::Open { path: path.to_owned(), source };
    if !create {
        return LocalStore::of(Directory::open(folder).map_err(io)?).map_err(io);
    }
    let folder = host_path::directory_or_create(folder, Mode::from_bits_truncate(0o777)).map_err(io)?;
    if !folder.names(1).map_err(io)?.is_empty() {
        return Err(io(io::Error::from_raw_os_error(libc::ENOTEMPTY)));
    }
    LocalStore::of(folder).map_err(io)
}

#[cfg(not(feature = "remote"))]
fn remote(path: &Path, _url: &str, _options: &crate::base::remote::RemoteOptions) -> std::result::Result<LocatedStore, OpenError> {
    Err(remote_error(path, "this h5dir was built without the feature 'remote', which reads and writes object stores"))
}

#[cfg(feature = "remote")]
fn remote(path: &Path, url: &str, options: &crate::base::remote::RemoteOptions) -> std::result::Result<LocatedStore, OpenError> {
    let bucket = url.split_once("://").map_or(url, |(_, rest)| rest);
    if !bucket.contains('/') {
        return Err(remote_error(path, "a container has a prefix of its bucket for itself; write iod+s3://BUCKET/PREFIX"));
    }
    let failed = |failure: crate::file::remote::Failure| remote_error(path, failure.message);
    let io = |source| OpenError::Open { path: path.to_owned(), source };
    let store = crate::file::remote::RemoteStore::locate(url, options).map_err(failed)?;
    let cache = store.disk_cache(options).map_err(failed)?;
    let parent = crate::file::remote::RemotePrefix::locate(container_parent(url), options).map_err(failed)?;
    let parent: Arc<dyn Objects> = Arc::new(parent);
    let mut used = store.used().map_err(io)?;
    let (cache, directory) = cache.unzip();
    used.extend(directory.map(|directory| (directory, true)));
    let mut used: Vec<UsedDirectory> =
        used.into_iter().map(|(directory, written)| UsedDirectory { directory, written, tree: false }).collect();
    used.extend(used_temporary().map_err(io)?);
    Ok(LocatedStore { store: Arc::new(store), used, folder: None, cache, external: None, parent: Some(parent) })
}

/// The directory of temporary files.
fn used_temporary() -> io::Result<Option<UsedDirectory>> {
    let Some(temporary) = temporary_directory() else { return Ok(None) };
    Ok(Some(UsedDirectory { directory: temporary.as_fd().try_clone_to_owned()?, written: true, tree: false }))
}

/// The store at `path`; `written`: objects are made in it.
fn located(path: &Path, options: &crate::base::remote::RemoteOptions, written: bool) -> std::result::Result<LocatedStore, OpenError> {
    if let Some(url) = container_url(path) {
        return remote(path, &url, options);
    }
    let folder = container_folder(path).ok_or_else(|| remote_error(path, "write iod:FOLDER or iod+s3://BUCKET/PREFIX"))?;
    let store = local(path, folder, false)?;
    let io = |source| OpenError::Open { path: path.to_owned(), source };
    let mut used = vec![UsedDirectory { directory: store.root().as_fd().try_clone_to_owned().map_err(io)?, written, tree: true }];
    used.extend(used_temporary().map_err(io)?);
    let folder = Some(store.root().clone());
    Ok(LocatedStore { store: Arc::new(store), used, folder, cache: None, external: None, parent: None })
}

/// Where external links of the container in a folder lead, by the options.
fn external_place(options: &OpenOptions, located: &LocatedStore) -> std::result::Result<Option<external::Place>, OpenError> {
    let Some(folder) = located.folder.as_ref().filter(|_| options.external != ExternalPolicy::Off) else { return Ok(None) };
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Open { path, source }
    };
    // As of a file: names are relative to the directory that it is in.
    let from = folder.enter(OsStr::new("..")).and_then(ConfinedDir::new).map_err(io(&options.target))?;
    let from = from.with_hidden(options.external_hidden);
    let owner = Reader::owner_of(folder).map_err(io(&options.target))?;
    match &options.external {
        ExternalPolicy::Beneath(Some(root)) | ExternalPolicy::Written(root) => {
            let root = ConfinedDir::open(root).map_err(io(root))?.with_hidden(options.external_hidden);
            Ok(Some(external::Place { root, from: from.path().to_owned(), owner }))
        }
        ExternalPolicy::Beneath(None) | ExternalPolicy::Off => {
            Ok(Some(external::Place { from: from.path().to_owned(), root: from, owner }))
        }
    }
}

impl ContainerKind for IodContainer {
    fn claims(&self, target: &Path) -> bool {
        is_container(target)
    }

    fn locate(&self, options: &OpenOptions) -> std::result::Result<Box<dyn Located>, OpenError> {
        if options.swmr || options.rescue || options.log_writer.is_some() {
            let reason = "--swmr, --log-writer and --rescue are for HDF5 files; leave them out";
            return Err(remote_error(&options.target, reason));
        }
        let mut located = located(&options.target, &options.remote, options.writable || options.pin.is_some())?;
        located.external = external_place(options, &located)?;
        if let Some(place) = &located.external {
            let io = |source| OpenError::Open { path: place.root.path().to_owned(), source };
            let directory = place.root.directory().as_fd().try_clone_to_owned().map_err(io)?;
            located.used.push(UsedDirectory { directory, written: false, tree: false });
        }
        Ok(Box::new(located))
    }

    fn locate_in(&self, _place: &ContainerPlace<'_>, options: &OpenOptions) -> std::result::Result<Box<dyn Located>, OpenError> {
        Err(remote_error(&options.target, "a container is no file of a mirrored directory"))
    }

    fn recognize(&self, _place: &ContainerPlace<'_>) -> io::Result<Recognized> {
        Ok(Recognized::Other)
    }

    fn create(&self, path: &Path, new: &NewFile) -> std::result::Result<(), OpenError> {
        if !new.is_plain() {
            let message = "a container in an object store has no file space strategy, user block, B-trees or shared messages".into();
            return Err(OpenError::Remote { path: path.to_owned(), message });
        }
        let store: Arc<dyn ObjectStore> = match container_folder(path) {
            Some(folder) => Arc::new(local(path, folder, true)?),
            None => located(path, &Default::default(), true)?.store,
        };
        Container::create(store, root_entries()).map_err(engine(path))
    }

    fn recover(&self, path: &Path, confine: &mut dyn FnMut(&[UsedDirectory])) -> std::result::Result<String, OpenError> {
        self.examine(path, confine)
    }

    fn examine(&self, path: &Path, confine: &mut dyn FnMut(&[UsedDirectory])) -> std::result::Result<String, OpenError> {
        let located = located(path, &Default::default(), false)?;
        confine(&located.used);
        let container = Container::open(located.store).map_err(engine(path))?;
        let snapshot = container.snapshot(None).map_err(engine(path))?;
        Ok(format!("{}: version {} is complete; there is nothing to do", path.display(), snapshot.version()))
    }

    fn check_original(&self, target: &Path, original: &Path, external: &ExternalPolicy) -> std::result::Result<(), String> {
        original_sources::check(target, original, external)
    }

    fn check_new_dataset(&self, spec: &DatasetSpec) -> Result<()> {
        plan::check_new_dataset(spec)
    }

    fn check_part(&self, spec: &DatasetSpec) -> Result<()> {
        plan::check_part(spec)
    }
}

impl Located for LocatedStore {
    fn directories(&self) -> std::result::Result<Vec<UsedDirectory>, OpenError> {
        let again = |used: &UsedDirectory| {
            let directory = used.directory.try_clone()?;
            Ok(UsedDirectory { directory, written: used.written, tree: used.tree })
        };
        let failed = |source| OpenError::Open { path: "the folders of the container".into(), source };
        self.used.iter().map(again).collect::<io::Result<_>>().map_err(failed)
    }

    fn open(self: Box<Self>, options: &OpenOptions) -> std::result::Result<OpenContainer, OpenError> {
        let path = &options.target;
        let (connector, seconds) = open(self.store.clone(), self.cache, options).map_err(engine(path))?;
        if let Some(place) = self.external.map(Arc::new) {
            connector.set_original_sources(Arc::new(FolderSources(place.clone())));
            let _ = connector.external.set(Arc::new(External::new(place, options)));
        }
        if let Some(objects) = self.parent.filter(|_| options.external != ExternalPolicy::Off) {
            objects.set_memory(options.cache_bytes / BLOCKS_DIVISOR);
            let url = container_url(path).unwrap_or_default();
            connector.set_original_sources(Arc::new(PrefixSources { url: container_parent(&url).to_owned(), objects }));
        }
        let time = time_of(seconds);
        let store = self.store;
        let len = store.space().map_or(0, |(used, _)| used);
        let free_space = options.writable.then(|| Box::new(move || store.space()) as FreeSpace);
        Ok(OpenContainer { connector, backing: Backing { atime: time, mtime: time, ctime: time, len }, free_space })
    }

    fn collect(self: Box<Self>, options: &OpenOptions, collection: &Collection) -> std::result::Result<Collected, OpenError> {
        let container = Container::open_to_collect(self.store).map_err(engine(&options.target))?;
        gc::run(&container, collection).map_err(engine(&options.target))
    }
}

/// Seconds of a pin: whole ones.
fn pin_seconds(pin: Duration) -> u32 {
    u32::try_from(pin.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// Opens the container in `store`, and the time of the version that is shown.
fn open(store: Arc<dyn ObjectStore>, cache: Option<Arc<dyn RangeCache>>, options: &OpenOptions) -> Result<(Arc<IodConnector>, u64)> {
    if options.writable && options.version != VersionName::Newest {
        return Err(Error::refused(libc::EROFS, "a version is never changed; leave out --version"));
    }
    let env = options.environment(FILES_MIN_BYTES)?;
    let container = Arc::new(Container::open_cached(store.clone(), cache)?);
    if let Some(pin) = options.pin {
        container.set_pin_seconds(pin_seconds(pin));
    }
    match &options.transaction {
        Some(TransactionUse::Peer { spec, peer }) => return open_peer(container, spec, *peer, env),
        Some(TransactionUse::Manage) => {
            let state = State::new(container.clone(), container.snapshot(None)?, None);
            return Ok((IodConnector::new(container, state, false, env), 0));
        }
        None => {}
    }
    let mut snapshot = container.snapshot(number_of(&container, &options.version)?)?;
    let session = match options.writable {
        true => Some(Commits::first_session(&container, &mut snapshot)?),
        false => None,
    };
    if !options.writable && options.pin.is_some() {
        container.pin(snapshot.pinned(), None)?;
    }
    let seconds = container.read_record(snapshot.version())?.map_or(0, |(record, _)| record.seconds);
    let state = State::new(container.clone(), snapshot, session);
    let connector = IodConnector::new(container, state, options.writable, env);
    if options.writable || options.pin.is_some() {
        connector.pins.keep_renewed()?;
    }
    if options.follow && !options.writable && options.version == VersionName::Newest {
        let time = time_of(seconds);
        let len = store.space().map_or(0, |(used, _)| used);
        connector.begin_following(options.group.clone(), Backing { atime: time, mtime: time, ctime: time, len });
    }
    Ok((connector, seconds))
}
