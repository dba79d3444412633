//! Candidates that are in files: paths in HDF5 files and containers, names of attributes.
//!
//! One group is listed, that of the path typed so far, after the thread is confined to the files of
//! the container. No request is sent: names of object stores have no candidates.

use crate::base::remote::{container_folder, is_container, is_like_url, is_url};
use crate::cli::confine::confine_command;
use crate::cli::located::Located;
use crate::cli::tree;
use crate::config::resolve;
use crate::config::side_args::ExternalArgs;
use crate::config::target::Target;
use crate::config::value::ExternalFiles;
use crate::fs::{FileKind, Operations};
use clap_complete::CompletionCandidate;
use clap_complete::engine::{PathCompleter, ValueCompleter};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Names of a group that are candidates at most.
const NAMES_MAX: usize = super::CANDIDATES_MAX;
/// Longest time in which a group is listed; names found until then are candidates.
const LISTING_TIMEOUT: Duration = Duration::from_secs(1);
/// Before the folder of a container.
const FOLDER_SCHEME: &str = "iod:";
/// The control directory, which no listing has.
const CONTROL: &[u8] = b".h5dir";
/// Extended attributes that are attributes of HDF5.
const ATTRIBUTE_PREFIX: &[u8] = b"user.";
/// Extended attributes that are facts.
const FACT_PREFIX: &[u8] = b"user.h5dir.";

/// What an argument takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Files and containers.
    Files,
    /// Containers in folders.
    Containers,
    /// Files, and objects in them.
    Objects,
    /// Files, and groups in them.
    Groups,
}

/// Candidates for `current`, an argument that takes `wanted`.
pub(super) fn candidates(current: &OsStr, wanted: Wanted) -> Vec<CompletionCandidate> {
    let has_paths = matches!(wanted, Wanted::Objects | Wanted::Groups);
    let file = current.as_bytes().strip_suffix(b":").map(OsStr::from_bytes);
    let (typed, target) = match file.filter(|file| has_paths && is_file(file)) {
        // The slash is the next character.
        Some(file) => (file, Target { file: expanded(file).into(), inner: Some(b"/".to_vec()) }),
        None => {
            let target = Target::parse(&expanded(current));
            let path = target.inner.as_ref().map_or(0, |inner| inner.len().saturating_add(1));
            let end = current.len().saturating_sub(path);
            (OsStr::from_bytes(current.as_bytes().get(..end).unwrap_or_default()), target)
        }
    };
    let is_remote = is_url(&target.file) && container_folder(&target.file).is_none() && target.file.as_os_str() != FOLDER_SCHEME;
    if is_remote {
        return Vec::new();
    }
    match target.inner.filter(|_| has_paths) {
        Some(inner) => {
            let paths = listed(&target.file, &inner, wanted == Wanted::Groups);
            paths.into_iter().map(|path| [typed.as_bytes(), b":", &path].concat()).map(candidate).collect()
        }
        None if is_like_url(current.as_bytes()) => Vec::new(),
        None => files(current, wanted),
    }
}

fn candidate(text: Vec<u8>) -> CompletionCandidate {
    CompletionCandidate::new(OsString::from_vec(text))
}

/// `text` with the home directory in place of a tilde.
fn expanded(text: &OsStr) -> OsString {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    match text.as_bytes().strip_prefix(b"~/").zip(home) {
        Some((rest, home)) => Path::new(&home).join(OsStr::from_bytes(rest)).into(),
        None => text.to_owned(),
    }
}

fn is_file(name: &OsStr) -> bool {
    let name = expanded(name);
    Path::new(&name).is_file() || container_folder(Path::new(&name)).is_some_and(Path::is_dir)
}

/// Names of files that begin with `current`. One that is a container alone also has the start of a
/// path in it.
fn files(current: &OsStr, wanted: Wanted) -> Vec<CompletionCandidate> {
    let folder = current.as_bytes().strip_prefix(FOLDER_SCHEME.as_bytes()).map(OsStr::from_bytes);
    let mut found = match (folder, wanted) {
        (Some(folder), _) => PathCompleter::dir().complete(folder).into_iter().map(|c| c.add_prefix(FOLDER_SCHEME)).collect(),
        (None, Wanted::Containers) => Vec::new(),
        (None, _) => PathCompleter::any().complete(current),
    };
    found.retain(|c| c.get_value() != "." && c.get_value() != "iod:.");
    found.truncate(NAMES_MAX);
    if folder.is_none() && FOLDER_SCHEME.as_bytes().starts_with(current.as_bytes()) && (wanted == Wanted::Containers || !current.is_empty())
    {
        found.push(CompletionCandidate::new(FOLDER_SCHEME));
    }
    let visible: Vec<&CompletionCandidate> = found.iter().filter(|c| !c.is_hide_set()).collect();
    let single = visible.first().filter(|_| visible.len() == 1 && matches!(wanted, Wanted::Objects | Wanted::Groups));
    let path = single.map(|c| c.get_value().to_owned()).filter(|name| Path::new(&expanded(name)).is_file());
    if let Some(name) = path.filter(|name| container(Path::new(&expanded(name))).is_some()) {
        let mut start = name.clone();
        start.push(":/");
        return vec![CompletionCandidate::new(name), CompletionCandidate::new(start)];
    }
    found
}

/// The container `file`, opened for reading. Confines this thread to its directories.
fn container(file: &Path) -> Option<Arc<dyn Operations>> {
    let external = ExternalArgs { external: ExternalFiles::Visible, external_root: None, version: None };
    let spec = resolve::side(file, &external).ok()?;
    let located = Located::find(&spec).ok()?;
    confine_command(&located.directories().ok()?, false);
    located.open(&spec).ok()
}

/// Paths in `file` that begin with `path`: those in its last group. Groups end in a slash.
fn listed(file: &Path, path: &[u8], only_groups: bool) -> Vec<Vec<u8>> {
    let Some(operations) = container(file) else { return Vec::new() };
    let end = path.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash.saturating_add(1));
    let (group, start) = path.split_at(end);
    let Ok(found) = tree::locate(&*operations, group, true) else { return Vec::new() };
    let mut names = BTreeMap::new();
    let until = Instant::now() + LISTING_TIMEOUT;
    if let Ok(handle) = operations.opendir(found.attr.ino) {
        let _ = operations.readdir(found.attr.ino, handle, 0, &mut |entry| {
            let hidden = matches!(entry.name, b"." | b"..") || start.is_empty() && entry.name.starts_with(b".");
            if entry.name.starts_with(start) && !hidden {
                names.insert(entry.name.to_vec(), entry.kind);
            }
            if names.len() >= NAMES_MAX || Instant::now() >= until { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        operations.releasedir(found.attr.ino, handle);
    }
    if !start.is_empty() && CONTROL.starts_with(start) && operations.lookup(found.attr.ino, CONTROL).is_ok() {
        names.insert(CONTROL.to_vec(), FileKind::Directory);
    }
    let mut paths = Vec::new();
    for (name, kind) in names {
        let mut path = [group, &name].concat();
        // Where a link leads is looked up while there is time.
        let leads = kind == FileKind::Symlink && Instant::now() < until;
        let target = if leads { tree::locate(&*operations, &path, true).ok().map(|to| to.attr.kind) } else { None };
        let is_group = target.unwrap_or(kind) == FileKind::Directory;
        if is_group {
            path.push(b'/');
        }
        if is_group || !only_groups {
            paths.push(path);
        }
    }
    paths
}

/// Names of the attributes of the object that `argument` names.
pub(super) fn attributes(argument: &OsStr) -> Vec<CompletionCandidate> {
    let target = Target::parse(&expanded(argument));
    if is_url(&target.file) && container_folder(&target.file).is_none() || is_container(&target.file) && !is_file(target.file.as_os_str()) {
        return Vec::new();
    }
    let inner = target.inner.unwrap_or_else(|| b"/".to_vec());
    let names = || {
        let operations = container(&target.file)?;
        let found = tree::locate(&*operations, &inner, true).ok()?;
        operations.listxattr(found.attr.ino).ok()
    };
    let list = names().unwrap_or_default();
    let all = list.split(|b| *b == 0).filter(|name| !name.starts_with(FACT_PREFIX));
    all.filter_map(|name| name.strip_prefix(ATTRIBUTE_PREFIX)).take(NAMES_MAX).map(|name| candidate(name.to_vec())).collect()
}
