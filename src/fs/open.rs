//! Opens a container and builds its file system.

use super::container::ContainerFs;
use super::embedding::Embedding;
pub use super::errno::errno;
use super::operations::Operations;
use super::spec::MountSpec;
pub use super::spec::OpenError;
use super::subtree::subtree;
use super::trees::TreesFs;
use crate::base::Error;
pub use crate::connector::check::{Checked, Finding, Problem, Progress};
use crate::connector::edit::Edit;
use crate::connector::log::EditLog;
pub use crate::connector::log::{CompactProgress, Compacted, LogPart, LogValue, LogVisitor};
pub use crate::connector::new_file::{NewFile, SHARED_MESSAGES, Strategy};
pub use crate::connector::open::{ContainerPlace, Directory, Entry, Identity, Recognized, Stamp, UsedDirectory, temporary_directory};
pub use crate::connector::open::{FileDriver, Found, ObjectError, Objects, Version};
use crate::connector::open::{Located, OpenContainer, OpenOptions};
pub use crate::connector::open::{Resolved, host_path};
pub use crate::connector::shared::Shared;
pub use crate::connector::space::SpaceUse;
pub use crate::connector::transactions::Transactions;
pub use crate::connector::versions::{
    ChunkDifference, Collected, Collection, Difference, Keep, ObjectDifference, StoredValue, Tag, ValueName, VersionName,
};
use crate::connector::versions::{ValueVisitor, VersionVisitor, Versions};
use crate::connector::{Connector, kinds};
pub use crate::connector::{LinkTarget, ObjectKind, Shape};
use std::path::Path;
use std::sync::Arc;

/// A container to be mounted, located but not read yet.
pub struct LocatedContainer {
    located: Box<dyn Located>,
    options: OpenOptions,
}

impl LocatedContainer {
    /// All directories that the mount uses.
    pub fn directories(&self) -> Result<Vec<UsedDirectory>, OpenError> {
        self.located.directories()
    }
}

/// Resolves the paths of `spec` and opens what is there. Nothing is resolved again afterwards.
pub fn locate(spec: &MountSpec) -> Result<LocatedContainer, OpenError> {
    let options = spec.open_options();
    Ok(LocatedContainer { located: kinds::of(&spec.file).locate(&options)?, options })
}

/// Opens the container of `spec` and builds its file system. Starts threads: call it after a fork.
pub fn open(spec: &MountSpec) -> Result<Arc<dyn Operations>, OpenError> {
    open_located(spec, locate(spec)?)
}

/// Opens the container of `spec`, which was `located`.
pub fn open_located(spec: &MountSpec, located: LocatedContainer) -> Result<Arc<dyn Operations>, OpenError> {
    let LocatedContainer { located, options } = located;
    show(located.open(&options)?, spec.clone())
}

/// True if there is something at `path`, be it a file in several members.
pub fn exists(path: &Path) -> bool {
    kinds::of(path).exists(path)
}

/// Checks that the container of `spec`, which need not exist, may refer to bytes of the HDF5 file
/// `original`. Error: why not.
pub fn check_original(spec: &MountSpec, original: &Path) -> Result<(), String> {
    kinds::of(&spec.file).check_original(&spec.file, original, &spec.external)
}

/// Sums the use of the bytes of the container, which was `located`. Calls `damaged` with each
/// object or structure that cannot be read.
pub fn space(located: LocatedContainer, damaged: &mut dyn FnMut(&Error)) -> Result<SpaceUse, OpenError> {
    let LocatedContainer { located, options } = located;
    let connector = located.open(&options)?.connector;
    let unknown = || Error::refused(libc::EOPNOTSUPP, "its space cannot be counted");
    let used = connector.space().ok_or_else(unknown).and_then(|space| space.space(damaged));
    used.map_err(|source| OpenError::Engine { path: options.target, source })
}

/// Checks the container, which was `located`; with `data`, all elements, too.
pub fn check(located: LocatedContainer, data: bool, progress: &mut dyn FnMut(Progress)) -> Result<Checked, OpenError> {
    let LocatedContainer { located, options } = located;
    let connector = located.open(&options)?.connector;
    let unknown = || Error::refused(libc::EOPNOTSUPP, "it cannot be checked");
    let checked = connector.check().ok_or_else(unknown).and_then(|check| check.check(data, progress));
    checked.map_err(|source| OpenError::Engine { path: options.target, source })
}

/// Visits the versions of the container, which was `located`, the newest first.
pub fn log(located: LocatedContainer, f: &mut VersionVisitor<'_>) -> Result<(), OpenError> {
    inspect(located, |versions| versions.log(f))
}

/// Visits the stored values of the container, which was `located`.
pub fn values(located: LocatedContainer, f: &mut ValueVisitor<'_>) -> Result<(), OpenError> {
    inspect(located, |versions| versions.values(f))
}

/// Calls `f` with the transactions of the container, which was `located`.
pub fn transactions<T>(located: LocatedContainer, f: impl FnOnce(&dyn Transactions) -> Result<T, Error>) -> Result<T, OpenError> {
    let LocatedContainer { located, options } = located;
    let connector = located.open(&options)?.connector;
    let done = connector.transactions().ok_or_else(no_transactions).and_then(f);
    done.map_err(|source| OpenError::Engine { path: options.target, source })
}

fn no_transactions() -> Error {
    Error::refused(libc::EOPNOTSUPP, "it has no transactions: only containers in object stores have them")
}

/// Deletes what no kept version of the container needs, which was `located` for writing.
pub fn collect(located: LocatedContainer, collection: &Collection) -> Result<Collected, OpenError> {
    let LocatedContainer { located, options } = located;
    located.collect(&options, collection)
}

/// Tags of the container, which was `located`, by name.
pub fn tags(located: LocatedContainer) -> Result<Vec<(String, Tag)>, OpenError> {
    inspect(located, |versions| {
        let named = versions.tags()?.into_iter().map(|name| Ok(versions.tag(&name)?.map(|tag| (name, tag))));
        named.filter_map(Result::transpose).collect()
    })
}

/// Creates a tag; the container was `located` for writing. Returns the version that it names.
pub fn create_tag(located: LocatedContainer, name: &str, version: &VersionName) -> Result<u64, OpenError> {
    inspect(located, |versions| versions.create_tag(name, version))
}

/// Removes a tag; the container was `located` for writing.
pub fn remove_tag(located: LocatedContainer, name: &str) -> Result<(), OpenError> {
    inspect(located, |versions| versions.remove_tag(name))
}

/// The objects of the container, which was `located`, that differ between two versions.
pub fn version_diff(located: LocatedContainer, from: &VersionName, to: &VersionName) -> Result<Vec<ObjectDifference>, OpenError> {
    inspect(located, |versions| versions.diff(from, to))
}

/// Commits a version with the content of `version`; `None`: the newest one has it. The container
/// was `located` for writing.
pub fn revert(located: LocatedContainer, version: &VersionName) -> Result<Option<u64>, OpenError> {
    edit(located, |connector, _| connector.versions().ok_or_else(no_versions).and_then(|versions| versions.revert(version)))
}

/// Calls `f` with the versions of the container. It is opened for reading: a writer of a container
/// begins with a commit, which these operations do without.
fn inspect<T>(located: LocatedContainer, f: impl FnOnce(&dyn Versions) -> Result<T, Error>) -> Result<T, OpenError> {
    let LocatedContainer { located, options } = located;
    let options = OpenOptions { writable: false, ..options };
    let connector = located.open(&options)?.connector;
    let done = connector.versions().ok_or_else(no_versions).and_then(f);
    done.map_err(|source| OpenError::Engine { path: options.target, source })
}

fn no_versions() -> Error {
    Error::refused(libc::EOPNOTSUPP, "it has no versions: only containers in object stores have them")
}

/// Calls `f` with every part of the container's log, until it breaks.
pub fn dump_log(located: LocatedContainer, f: &mut LogVisitor<'_>) -> Result<(), OpenError> {
    let LocatedContainer { located, options } = located;
    let connector = located.open(&options)?.connector;
    let dumped = connector.log().ok_or_else(no_log).and_then(|log| log.dump(f));
    dumped.map_err(|source| OpenError::Engine { path: options.target, source })
}

/// Compacts the log of the container, or the dataset at `path` in it; `None`: there is no such
/// object.
pub fn compact(located: LocatedContainer, path: &[u8], progress: &mut CompactProgress<'_>) -> Result<Option<Compacted>, OpenError> {
    edit_log(located, |connector, log| {
        if path.iter().all(|b| *b == b'/') {
            return log.compact(None, progress).map(Some);
        }
        let Some(id) = connector.resolve(connector.root(), path)? else { return Ok(None) };
        log.compact(Some(id), progress).map(Some)
    })
}

/// Makes the index of the container's log from its records alone.
pub fn rebuild_log(located: LocatedContainer) -> Result<(), OpenError> {
    edit_log(located, |_, log| log.rebuild_index())
}

fn no_log() -> Error {
    Error::refused(libc::ENODATA, "it has no log")
}

fn no_records(connector: &dyn Connector) -> Error {
    let reason = match connector.log() {
        Some(_) => {
            "it has no log of records: a log of the released log VOL is neither compacted nor indexed; 'h5dir log replay' and 'h5dir log \
             export' make a file without replaced elements"
        }
        None => "it has no log of records",
    };
    Error::refused(libc::ENODATA, reason)
}

fn edit_log<T>(located: LocatedContainer, f: impl FnOnce(&dyn Connector, &dyn EditLog) -> Result<T, Error>) -> Result<T, OpenError> {
    edit(located, |connector, edit| edit.log().ok_or_else(|| no_records(connector)).and_then(|log| f(connector, log)))
}

/// Opens a container, changes and closes it.
fn edit<T>(located: LocatedContainer, f: impl FnOnce(&dyn Connector, &dyn Edit) -> Result<T, Error>) -> Result<T, OpenError> {
    let LocatedContainer { located, options } = located;
    let connector = located.open(&options)?.connector;
    let read_only = || Error::refused(libc::EROFS, "it cannot be changed");
    let done = connector.edit().ok_or_else(read_only).and_then(|edit| {
        let done = f(&*connector, edit);
        let closed = edit.close();
        done.and_then(|done| closed.map(|()| done))
    });
    done.map_err(|source| OpenError::Engine { path: options.target, source })
}

/// Opens the container that is the file at `place`, with the caches of `shared`. The path of `spec`
/// is for messages.
pub fn open_in(spec: &MountSpec, place: &ContainerPlace<'_>, shared: &Shared) -> Result<Arc<dyn Operations>, OpenError> {
    let options = OpenOptions { shared: Some(shared.clone()), ..spec.open_options() };
    let located = kinds::of(&spec.file).locate_in(place, &options)?;
    open_located(spec, LocatedContainer { located, options })
}

/// Locates the container that is the file at `place`. The path of `spec` is for messages.
pub fn locate_in(spec: &MountSpec, place: &ContainerPlace<'_>) -> Result<LocatedContainer, OpenError> {
    let options = spec.open_options();
    Ok(LocatedContainer { located: kinds::of(&spec.file).locate_in(place, &options)?, options })
}

/// The objects below the prefix that `spec` names. Sends nothing.
pub fn objects(spec: &MountSpec) -> Result<Arc<dyn Objects>, OpenError> {
    kinds::of(&spec.file).objects(&spec.open_options())
}

/// Opens the container in the bytes of `driver`, with the caches of `shared`. The path of `spec` is
/// for messages.
pub fn open_bytes(spec: &MountSpec, driver: Arc<dyn FileDriver>, shared: &Shared) -> Result<Arc<dyn Operations>, OpenError> {
    let options = OpenOptions { shared: Some(shared.clone()), ..spec.open_options() };
    show(kinds::of(&spec.file).open_bytes(driver, &options)?, spec.clone())
}

/// Whether the bytes of `driver`, which is called `name`, are those of a container.
pub fn recognize_bytes(driver: &dyn FileDriver, name: &Path) -> std::io::Result<Recognized> {
    kinds::of(name).recognize_bytes(driver, name)
}

/// Whether the file at `place` is a container.
pub fn recognize(place: &ContainerPlace<'_>) -> std::io::Result<Recognized> {
    kinds::of(Path::new(place.name)).recognize(place)
}

/// The file system that shows `container` as `spec` states.
pub fn show(container: OpenContainer, spec: MountSpec) -> Result<Arc<dyn Operations>, OpenError> {
    if spec.transaction.is_some() && container.connector.transactions().is_none() {
        return Err(OpenError::Engine { path: spec.file, source: no_transactions() });
    }
    let (group, prefix) = subtree(&*container.connector, &spec)?;
    let has_trees = spec.trees && container.connector.transactions().is_some();
    let shown = ContainerFs::of_container(container, group, prefix, spec);
    Ok(if has_trees { Arc::new(Embedding(TreesFs::new(shown))) } else { Arc::new(shown) })
}

/// Creates an empty container at `path`.
pub fn create(path: &Path, new: &NewFile) -> Result<(), OpenError> {
    kinds::of(path).create(path, new)
}

/// Makes a log in the container, in which new datasets are by default. `released`: as the released
/// log VOL stores it, with all datasets in it.
pub fn log_by_default(located: LocatedContainer, released: bool) -> Result<(), OpenError> {
    edit(located, |_, edit| edit.log_by_default(released))
}

/// Recovers the container at `path` after an interrupted writer; returns a sentence. Calls
/// `confine` with the directories that it uses before it reads the container.
pub fn recover(path: &Path, mut confine: impl FnMut(&[UsedDirectory])) -> Result<String, OpenError> {
    kinds::of(path).recover(path, &mut confine)
}

/// What [`recover`] would do, as a sentence. Nothing is changed.
pub fn examine(path: &Path, mut confine: impl FnMut(&[UsedDirectory])) -> Result<String, OpenError> {
    kinds::of(path).examine(path, &mut confine)
}
