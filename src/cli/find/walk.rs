//! Walks the objects below a path: each group is read a part at a time, and its objects are visited
//! before the next part is read. Groups with several hard links are walked once.

use super::Matches;
use super::object::Object;
use crate::cli::failure::errno_text;
use crate::cli::tree;
use crate::cli::view::ViewError;
use crate::fs::model::{ObjectModel, SharedGroup};
use crate::fs::{Attr, Errno, FileKind, FsResult, Handle, Ino, Operations};
use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::rc::Rc;

/// Names of a group that are read at once.
const PART_NAMES: usize = 256;
/// Groups within each other that are walked: a path has at most 4096 bytes.
const DEPTH_MAX: usize = 2048;

/// Where a directory of the view is.
#[derive(Clone)]
enum WalkPlace {
    /// A directory of files, by its name.
    Host(Vec<u8>),
    /// A group of a file, by its path.
    Inside(Rc<[u8]>, Vec<u8>),
}

impl WalkPlace {
    fn below(&self, name: &[u8]) -> WalkPlace {
        match self {
            WalkPlace::Host(path) if path.ends_with(b"/") => WalkPlace::Host([path.as_slice(), name].concat()),
            WalkPlace::Host(path) => WalkPlace::Host(tree::join(path, name)),
            WalkPlace::Inside(file, path) => WalkPlace::Inside(file.clone(), tree::join(path, name)),
        }
    }

    fn text(&self) -> Vec<u8> {
        match self {
            WalkPlace::Host(path) => path.clone(),
            WalkPlace::Inside(file, path) => [file, b":".as_slice(), path].concat(),
        }
    }
}

/// A file that a walk meets.
struct Met<'a> {
    place: WalkPlace,
    name: &'a [u8],
    attr: &'a Attr,
    /// A listing counted a reference to it.
    counted: bool,
    /// The group that has it; `None`: the walk starts here.
    group: Option<&'a ObjectModel>,
    /// Groups between the start and it.
    depth: usize,
}

/// A directory that is being walked.
struct Directory {
    place: WalkPlace,
    ino: Ino,
    handle: Handle,
    /// Its object; `None`: it is a directory of files.
    group: Option<ObjectModel>,
    /// Groups between the start and what is in it, itself included.
    depth: usize,
    /// Where its next part begins; `None`: all was read.
    next: Option<u64>,
    part: VecDeque<(Vec<u8>, Attr)>,
    /// The reference that a listing counted.
    counted: bool,
}

struct Walk<'a, 'b> {
    operations: &'a dyn Operations,
    maxdepth: usize,
    shared: HashSet<SharedGroup>,
    open: Vec<Directory>,
    matches: &'a mut Matches<'b>,
}

/// Passes the objects at and below `path` of the view to `matches`. `file`: what the argument calls
/// the file or the directory of the view.
pub(super) fn walk(
    operations: &dyn Operations,
    (file, path): (&[u8], &[u8]),
    maxdepth: Option<usize>,
    matches: &mut Matches<'_>,
) -> Result<(), ViewError> {
    let failed = |e| ViewError::Path(path.to_vec(), e);
    let found = tree::locate(operations, path, false).map_err(failed)?;
    let place = place(operations, file, path).map_err(failed)?;
    let mut walk = Walk { operations, maxdepth: maxdepth.unwrap_or(DEPTH_MAX), shared: HashSet::new(), open: Vec::new(), matches };
    let group = found.found.as_ref().and_then(|(ino, _)| operations.model(*ino).ok());
    let name = found.found.map_or_else(Vec::new, |(_, name)| name);
    walk.visit(Met { place, name: &name, attr: &found.attr, counted: false, group: group.as_ref(), depth: 0 })?;
    let done = walk.run();
    walk.open.iter().for_each(|d| close(operations, d));
    done
}

/// Where `path` of the view of `file` is.
fn place(operations: &dyn Operations, file: &[u8], path: &[u8]) -> FsResult<WalkPlace> {
    let path = tree::absolute(path);
    if operations.model(crate::fs::types::ROOT).is_ok() {
        return Ok(WalkPlace::Inside(file.into(), path));
    }
    let mut place = WalkPlace::Host(file.to_vec());
    let mut at = Vec::new();
    for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        at = tree::join(&at, name);
        place = place.below(name);
        let attr = tree::locate(operations, &at, true)?.attr;
        if let (WalkPlace::Host(file), true) = (&place, operations.model(attr.ino).is_ok()) {
            place = WalkPlace::Inside(file.as_slice().into(), b"/".to_vec());
        }
    }
    Ok(place)
}

fn close(operations: &dyn Operations, directory: &Directory) {
    operations.releasedir(directory.ino, directory.handle);
    if directory.counted {
        operations.forget(directory.ino, 1);
    }
}

impl Walk<'_, '_> {
    fn run(&mut self) -> Result<(), ViewError> {
        while let Some(directory) = self.open.last_mut() {
            if let Some((name, attr)) = directory.part.pop_front() {
                let (place, depth) = (directory.place.below(&name), directory.depth);
                let group = directory.group.take();
                let at = self.open.len().saturating_sub(1);
                let done = self.visit(Met { place, name: &name, attr: &attr, counted: true, group: group.as_ref(), depth });
                if let Some(directory) = self.open.get_mut(at) {
                    directory.group = group;
                }
                done?;
                continue;
            }
            if let Some(from) = directory.next {
                let read = next_part(self.operations, directory, from);
                let text = directory.place.text();
                self.matches.flush()?;
                if let Err(Errno(errno)) = read {
                    self.matches.failed(&text, &errno_text(errno))?;
                }
                continue;
            }
            if let Some(directory) = self.open.pop() {
                close(self.operations, &directory);
            }
        }
        Ok(())
    }

    /// Visits a file, and opens it if it is to be walked.
    fn visit(&mut self, met: Met<'_>) -> Result<(), ViewError> {
        let (ino, counted) = (met.attr.ino, met.counted);
        let opened = self.enter(met);
        if counted && !matches!(opened, Ok(true)) {
            self.operations.forget(ino, 1);
        }
        opened.map(drop)
    }

    /// Passes a file to the tests. True: it was opened, with the reference to it.
    fn enter(&mut self, met: Met<'_>) -> Result<bool, ViewError> {
        let Met { place, name, attr, counted, group, depth } = met;
        let is_directory = attr.kind == FileKind::Directory;
        let model = match self.operations.model(attr.ino) {
            Ok(model) => Some(model),
            Err(Errno(libc::EOPNOTSUPP)) => None,
            Err(Errno(errno)) => {
                self.matches.failed(&place.text(), &errno_text(errno))?;
                return Ok(false);
            }
        };
        // What an external link leads to is elsewhere. A start may be one.
        let model = model.filter(|model| group.is_none() || depth == 0 || !model.is_external());
        let (place, depth) = match (place, &model) {
            // A file is a start of its own.
            (WalkPlace::Host(file), Some(_)) if is_directory => (WalkPlace::Inside(file.into(), b"/".to_vec()), 0),
            (WalkPlace::Host(_), _) if !is_directory => return Ok(false),
            (place, _) => (place, depth),
        };
        if let WalkPlace::Inside(file, path) = &place {
            let name = if path == b"/" { b"" } else { name };
            let object = Object { operations: self.operations, file, path, group, name, attr, model: model.as_ref() };
            self.matches.take(&object, depth)?;
            if model.is_none() || depth >= self.maxdepth {
                return Ok(false);
            }
        }
        if !is_directory || self.open.len() >= DEPTH_MAX || !self.is_first(&place, model.as_ref())? {
            return Ok(false);
        }
        match self.operations.opendir(attr.ino) {
            Ok(handle) => {
                let depth = if model.is_some() { depth.saturating_add(1) } else { depth };
                let (next, part) = (Some(0), VecDeque::new());
                self.open.push(Directory { place, ino: attr.ino, handle, group: model, depth, next, part, counted });
                Ok(true)
            }
            Err(Errno(errno)) => {
                self.matches.failed(&place.text(), &errno_text(errno))?;
                Ok(false)
            }
        }
    }

    /// False for a group that was walked by another hard link.
    fn is_first(&mut self, place: &WalkPlace, model: Option<&ObjectModel>) -> Result<bool, ViewError> {
        match model.map(ObjectModel::shared_group) {
            Some(Ok(Some(group))) => Ok(self.shared.insert(group)),
            Some(Err(e)) => {
                self.matches.failed(&place.text(), &e.to_string())?;
                Ok(false)
            }
            Some(Ok(None)) | None => Ok(true),
        }
    }
}

/// Reads the names of `directory` from `from` on.
fn next_part(operations: &dyn Operations, directory: &mut Directory, from: u64) -> FsResult<()> {
    let (mut next, part) = (None, &mut directory.part);
    directory.next = None;
    operations.readdirplus(directory.ino, directory.handle, from, &mut |e| {
        if part.len() >= PART_NAMES {
            return ControlFlow::Break(());
        }
        next = Some(e.next);
        if e.name != b"." && e.name != b".." {
            part.push_back((e.name.to_vec(), e.entry.attr));
        }
        ControlFlow::Continue(())
    })?;
    directory.next = next;
    Ok(())
}
