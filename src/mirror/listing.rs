//! Entries of a directory of the tree, and of `.h5dir`.

use super::control::{FILES, TEXTS};
use super::files::{Folder, Name as Listed};
use super::handles::{OpenHandle, What as OpenWhat};
use super::mirror_fs::{MirrorFs, errno};
use super::node::{Node, What, host_key};
use super::spec::{Naming, SUFFIX};
use crate::fs::open::Entry;
use crate::fs::types::{DirEntry, DirEntryPlus, Entry as Answer, Errno, FileKind, FsResult};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Offsets 1 and 2 follow `.` and `..`.
const FIRST_OFFSET: u64 = 2;
/// Names under which a file may be listed: its own, and that of its container.
const NAMES_PER_FILE: usize = 2;

/// A name in a listing.
struct Name {
    shown: Vec<u8>,
    /// Name of its file.
    file: Vec<u8>,
    entry: Entry,
    what: What,
}

impl MirrorFs {
    /// The names of the directory that is open as `open`, read once.
    fn names(&self, open: &OpenHandle, directory: &dyn Folder, offset: u64) -> FsResult<Arc<[Listed]>> {
        let OpenWhat::Directory(names) = &open.what else { return Err(Errno(libc::ENOTDIR)) };
        let mut names = names.lock();
        match &*names {
            // rewinddir(3) reads them again.
            Some(known) if offset > 0 => Ok(known.clone()),
            _ => {
                let listed: Arc<[Listed]> = directory.list().map_err(|e| errno(&e))?.into();
                *names = Some(listed.clone());
                Ok(listed)
            }
        }
    }

    /// The name number `variant` of a file, if it has that many and is shown. `exact`: what it is
    /// is found by its first bytes.
    fn name(&self, parent: &Arc<Node>, directory: &dyn Folder, (listed, variant): (&Listed, usize), exact: bool) -> Option<Name> {
        let file = listed.name.as_bytes();
        if variant > 0 && (self.spec.naming == Naming::Replace || !listed.may_be_file || parent.original) {
            return None;
        }
        // A file that was removed meanwhile, or cannot be looked at.
        let entry = listed.entry.or_else(|| directory.entry(&listed.name).ok().flatten())?;
        if self.is_hidden(parent, file, entry.is_directory()) {
            return None;
        }
        let what = self.what(directory, &listed.name, &entry, parent.original, !exact)?;
        let (shown, what) = match (what, self.spec.naming, variant) {
            (What::Container(c), Naming::Suffix | Naming::Both, 1) => ([file, SUFFIX].concat(), What::Container(c)),
            (What::Container(_), Naming::Suffix, _) => return None,
            (What::Container(_), Naming::Both, _) => (file.to_vec(), What::File),
            (_, _, 1) => return None,
            (what, ..) => (file.to_vec(), what),
        };
        Some(Name { shown, file: file.to_vec(), entry, what })
    }

    /// Visits the names of the directory of the tree after `offset`.
    fn visit(&self, open: &OpenHandle, offset: u64, exact: bool, f: &mut dyn FnMut(Name, u64) -> ControlFlow<()>) -> FsResult<()> {
        let directory = self.directory(&open.node)?;
        let names = self.names(open, &*directory, offset)?;
        let first = usize::try_from(offset.saturating_sub(FIRST_OFFSET)).unwrap_or(usize::MAX);
        for place in first..names.len().saturating_mul(NAMES_PER_FILE) {
            let Some(listed) = names.get(place / NAMES_PER_FILE) else { break };
            let next = (place as u64).saturating_add(FIRST_OFFSET).saturating_add(1);
            let Some(name) = self.name(&open.node, &*directory, (listed, place % NAMES_PER_FILE), exact) else { continue };
            let container = name.what.container().cloned();
            let flow = f(name, next);
            // A container that is only listed is not remembered.
            container.iter().for_each(|container| self.containers.forget(container));
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Lists a directory of the tree.
    pub(super) fn list_tree(&self, open: &OpenHandle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()> {
        if self.list_dots(open, offset, f).is_break() {
            return Ok(());
        }
        self.visit(open, offset, false, &mut |name, next| {
            let key = host_key(&name.entry, open.node.original, &name.what);
            let ino = self.nodes.number(key, name.entry.status.identity);
            f(DirEntry { ino, kind: self.attr(ino, &name.what, &name.entry).kind, name: &name.shown, next })
        })
    }

    /// Lists a directory of the tree with attributes.
    pub(super) fn list_tree_plus(
        &self,
        open: &OpenHandle,
        offset: u64,
        f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let dots = self.list_dots(open, offset, &mut |e| f(DirEntryPlus { name: e.name, entry: self.dot_entry(open, e), next: e.next }));
        if dots.is_break() {
            return Ok(());
        }
        self.visit(open, offset, true, &mut |name, next| {
            let entry = self.enter_in_tree(&open.node, &name.file, &name.entry, name.what);
            let flow = f(DirEntryPlus { name: &name.shown, entry, next });
            if flow.is_break() {
                self.forget_one(entry.attr.ino);
            }
            flow
        })
    }

    /// Lists `.` and `..` after `offset`.
    fn list_dots(&self, open: &OpenHandle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        let dots: [&[u8]; 2] = [b".", b".."];
        for (next, name) in (1u64..).zip(dots).filter(|(next, _)| *next > offset) {
            f(DirEntry { ino: self.dot(&open.node, name), kind: FileKind::Directory, name, next })?;
        }
        ControlFlow::Continue(())
    }

    /// Attributes of `.` and `..`, of which the kernel uses the number and the type.
    fn dot_entry(&self, open: &OpenHandle, dot: DirEntry<'_>) -> Answer {
        let mut attr = self.control_attr(&open.node);
        (attr.ino, attr.kind) = (dot.ino, dot.kind);
        Answer { attr, generation: 0, volatile: false }
    }

    /// Lists `.h5dir`.
    pub(super) fn list_control(&self, open: &OpenHandle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()> {
        if self.list_dots(open, offset, f).is_break() {
            return Ok(());
        }
        let names = std::iter::once(FILES).chain(TEXTS.iter().map(|(name, _)| *name));
        for (next, name) in (FIRST_OFFSET.saturating_add(1)..).zip(names).filter(|(next, _)| *next > offset) {
            let answer = self.lookup_control(&open.node, name)?;
            self.forget_one(answer.attr.ino);
            if f(DirEntry { ino: answer.attr.ino, kind: answer.attr.kind, name, next }).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Lists `.h5dir` with attributes.
    pub(super) fn list_control_plus(
        &self,
        open: &OpenHandle,
        offset: u64,
        f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let mut result = Ok(());
        self.list_control(open, offset, &mut |e| {
            if e.name == b"." || e.name == b".." {
                return f(DirEntryPlus { name: e.name, entry: self.dot_entry(open, e), next: e.next });
            }
            match self.lookup_control(&open.node, e.name) {
                Ok(entry) => {
                    let flow = f(DirEntryPlus { name: e.name, entry, next: e.next });
                    if flow.is_break() {
                        self.forget_one(entry.attr.ino);
                    }
                    flow
                }
                Err(e) => {
                    result = Err(e);
                    ControlFlow::Break(())
                }
            }
        })?;
        result
    }
}
