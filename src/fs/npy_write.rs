//! Writing the files of `.h5dir/npy`: a numpy header, then the elements.
//!
//! The header is taken from the first bytes. It makes the dataset what it says; the bytes behind it go on to the dataset as
//! they come, and nothing of them is kept here, but for arrays in Fortran order, which are turned round when they are there
//! as a whole. The file is as it was written until all of it is there and a descriptor is closed, or the last one is; then it
//! has the header of ours, which is numpy's. A new file without a whole header is gone when it is closed.

use super::FsResult;
use super::container::{ContainerFs, form};
use super::nodes::{Node, NodeKind, View};
use super::types::{Entry, Errno};
use super::view::Child;
use crate::base::Error;
use crate::base::escape::escaped;
use crate::connector::edit::{Edit, NpyHeader};
use crate::connector::{LinkTarget, ObjectId, ObjectKind};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Suffix of the files.
const SUFFIX: &[u8] = b".npy";
/// Longest header, bytes.
const HEAD_MAX: usize = (1 << 20) + 64;
/// Bytes behind the header that may come before it.
const EARLY_MAX: usize = 64 << 10;
/// Bytes of arrays in Fortran order that are being written, all together.
const FORTRAN_MAX: u64 = 256 << 20;
/// Elements are turned round in pieces of this many bytes at least.
const PIECE: usize = 1 << 20;

/// A file that is open for writing.
#[derive(Debug, Default)]
pub(super) struct Writing {
    writers: u64,
    /// The group and the name of a new file that has no header yet.
    fresh: Option<(ObjectId, Vec<u8>)>,
    /// Up to where elements were written in order behind a new header.
    end: u64,
    /// Length of the elements behind the header; `None` while that is not there as a whole.
    data: Option<u64>,
    /// The header as far as it was written.
    head: Vec<u8>,
    /// What was written behind it before it was whole, by offset.
    early: BTreeMap<u64, Vec<u8>>,
    /// The dataset's elements are not wanted any more.
    emptied: bool,
    /// An array in Fortran order.
    fortran: Option<Fortran>,
    /// What was written is no header: the answer to all that follows.
    failed: Option<Errno>,
}

#[derive(Debug)]
struct Fortran {
    header: NpyHeader,
    bytes: Vec<u8>,
}

/// Files that are open for writing.
#[derive(Default)]
pub(super) struct Writings {
    files: Mutex<HashMap<ObjectId, Arc<Mutex<Writing>>>>,
    /// Bytes kept of arrays in Fortran order.
    turned: AtomicU64,
}

impl Writing {
    /// The header comes anew.
    fn restart(&mut self) {
        self.data = None;
        self.head.clear();
        self.early.clear();
        self.failed = None;
    }

    fn len(&self) -> u64 {
        let early = self.early.last_key_value().map_or(0, |(at, b)| at.saturating_add(b.len() as u64));
        (self.head.len() as u64).saturating_add(self.data.unwrap_or(0)).max(early)
    }
}

impl ContainerFs {
    fn npy_writing(&self, id: ObjectId) -> Option<Arc<Mutex<Writing>>> {
        self.side.npy.files.lock().get(&id).cloned()
    }

    fn npy_told(&self, id: ObjectId, e: &Error) -> Errno {
        tracing::warn!("{}: .npy file of the object at {}: {e}", escaped(&self.spec.file), id.address);
        super::errno::errno(e)
    }

    pub(super) fn npy_open(&self, id: ObjectId, node: &Node) -> FsResult<()> {
        let mut files = self.side.npy.files.lock();
        if let Some(w) = files.get(&id) {
            let mut w = w.lock();
            w.writers = w.writers.saturating_add(1);
            return Ok(());
        }
        let failed = |e: Error| self.failed(node.kind.object(), &e);
        let head = self.connector.npy_header(id).map_err(failed)?.ok_or(Errno(libc::EIO))?;
        let size = self.connector.content(id, form(View::Npy)).and_then(|c| c.size()).map_err(failed)?;
        let w = Writing { writers: 1, data: Some(size), head, ..Writing::default() };
        files.insert(id, Arc::new(Mutex::new(w)));
        Ok(())
    }

    pub(super) fn npy_len(&self, id: ObjectId) -> Option<u64> {
        self.npy_writing(id).map(|w| w.lock().len())
    }

    pub(super) fn npy_read(&self, id: ObjectId, offset: u64, buf: &mut [u8]) -> Option<FsResult<usize>> {
        let writing = self.npy_writing(id)?;
        let w = writing.lock();
        let part = |all: &[u8], from: u64, buf: &mut [u8]| {
            let rest = usize::try_from(from).ok().and_then(|o| all.get(o..)).unwrap_or_default();
            buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            rest.len().min(buf.len())
        };
        let n = part(&w.head, offset, buf);
        let Some(rest) = buf.get_mut(n..).filter(|r| !r.is_empty() && w.data.is_some()) else { return Some(Ok(n)) };
        let at = offset.saturating_add(n as u64).saturating_sub(w.head.len() as u64);
        let read = match &w.fortran {
            Some(f) => Ok(part(&f.bytes, at, rest)),
            None => self.connector.content(id, form(View::Npy)).and_then(|c| c.read(at, rest)),
        };
        Some(read.map(|m| m.saturating_add(n)).map_err(|e| self.failed(Some(id), &e)))
    }

    pub(super) fn npy_write(&self, id: ObjectId, offset: u64, data: &[u8]) -> FsResult<usize> {
        let edit = self.editor()?;
        let writing = self.npy_writing(id).ok_or(Errno(libc::EBADF))?;
        let w = &mut *writing.lock();
        if let Some(errno) = w.failed {
            return Err(errno);
        }
        let done = self.npy_put(edit, id, w, offset, data);
        done.map_err(|e| {
            let errno = self.npy_told(id, &e);
            if w.data.is_none() && !matches!(errno, Errno(libc::ENOSPC | libc::EDQUOT | libc::EIO | libc::EROFS)) {
                w.failed = Some(errno);
            }
            errno
        })?;
        self.touched(&[id]);
        Ok(data.len())
    }

    fn npy_put(&self, edit: &dyn Edit, id: ObjectId, w: &mut Writing, offset: u64, data: &[u8]) -> Result<(), Error> {
        let head_len = w.head.len() as u64;
        if w.data.is_some() && offset < head_len {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let within = data.len().min(w.head.len().saturating_sub(start));
            let (part, rest) = data.split_at_checked(within).unwrap_or((data, &[]));
            if w.head.get(start..start.saturating_add(within)) == Some(part) {
                return self.npy_data(edit, id, w, 0, rest);
            }
            let mut other = w.head.clone();
            if let Some(there) = other.get_mut(start..start.saturating_add(within)) {
                there.copy_from_slice(part);
            }
            match NpyHeader::parse(&other) {
                // The header of a file that grows is written anew in its place.
                Ok(Some(header)) if header.header_len() == w.head.len() => {
                    self.npy_become(edit, id, w, header)?;
                    w.head = other;
                    return self.npy_data(edit, id, w, 0, rest);
                }
                _ if offset == 0 => w.restart(),
                Err(e) => return Err(e),
                Ok(_) => return Err(Error::refused(libc::EINVAL, "a part of a .npy header is written that does not fit the rest")),
            }
        }
        if w.data.is_some() {
            return self.npy_data(edit, id, w, offset.saturating_sub(w.head.len() as u64), data);
        }
        if offset > w.head.len() as u64 {
            let kept: usize = w.early.values().map(Vec::len).sum();
            if kept.saturating_add(data.len()) > EARLY_MAX {
                return Err(Error::refused(libc::EINVAL, "a .npy file is written from its beginning: its header comes first"));
            }
            w.early.insert(offset, data.to_vec());
            return Ok(());
        }
        let mut bytes = w.head.clone();
        bytes.truncate(usize::try_from(offset).unwrap_or(usize::MAX));
        bytes.extend_from_slice(data);
        let Some(header) = NpyHeader::parse(&bytes)? else {
            if bytes.len() > HEAD_MAX {
                return Err(Error::refused(libc::EINVAL, "the header of a .npy file is longer than 1 MiB"));
            }
            w.head = bytes;
            return Ok(());
        };
        let rest = bytes.split_off(header.header_len().min(bytes.len()));
        self.npy_become(edit, id, w, header)?;
        w.head = bytes;
        self.npy_data(edit, id, w, 0, &rest)?;
        for (at, data) in std::mem::take(&mut w.early) {
            self.npy_put(edit, id, w, at, &data)?;
        }
        Ok(())
    }

    /// The header is there.
    fn npy_become(&self, edit: &dyn Edit, id: ObjectId, w: &mut Writing, header: NpyHeader) -> Result<(), Error> {
        let len = header.data_len();
        self.npy_forget_turned(w);
        if header.is_fortran() {
            let all = self.side.npy.turned.fetch_add(len, Ordering::AcqRel);
            if len.saturating_add(all) > FORTRAN_MAX {
                self.side.npy.turned.fetch_sub(len, Ordering::AcqRel);
                let reason = format!("arrays in Fortran order are turned round in memory, {FORTRAN_MAX} bytes at a time at most");
                return Err(Error::refused(libc::EINVAL, reason));
            }
        }
        if let Err(e) = edit.set_npy(id, &header, w.emptied) {
            if header.is_fortran() {
                self.side.npy.turned.fetch_sub(len, Ordering::AcqRel);
            }
            return Err(e);
        }
        (w.data, w.emptied, w.fresh, w.end) = (Some(len), false, None, 0);
        if header.is_fortran() {
            let bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            w.fortran = Some(Fortran { header, bytes });
        }
        Ok(())
    }

    fn npy_forget_turned(&self, w: &mut Writing) {
        if let Some(f) = w.fortran.take() {
            self.side.npy.turned.fetch_sub(f.bytes.len() as u64, Ordering::AcqRel);
        }
    }

    /// Writes elements.
    fn npy_data(&self, edit: &dyn Edit, id: ObjectId, w: &mut Writing, offset: u64, data: &[u8]) -> Result<(), Error> {
        let end = offset.saturating_add(data.len() as u64);
        let most = w.data.unwrap_or(0);
        if end > most {
            return Err(Error::refused(libc::EFBIG, format!("the header says that there are {most} bytes behind it")));
        }
        if data.is_empty() {
            return Ok(());
        }
        match &mut w.fortran {
            None => edit.write_as(id, form(View::Npy), offset, data)?,
            Some(f) => {
                let range = usize::try_from(offset).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
                if let Some(to) = f.bytes.get_mut(range) {
                    to.copy_from_slice(data);
                }
            }
        }
        if offset <= w.end {
            w.end = w.end.max(end);
        }
        Ok(())
    }

    pub(super) fn npy_resize(&self, id: ObjectId, size: u64) -> FsResult<()> {
        let told = |errno, reason: &'static str| Err(self.npy_told(id, &Error::refused(errno, reason)));
        let Some(writing) = self.npy_writing(id) else {
            return told(libc::EINVAL, "a .npy file that nobody writes keeps its size");
        };
        let w = &mut *writing.lock();
        match size {
            0 => {
                w.restart();
                w.emptied = true;
                self.npy_forget_turned(w);
                Ok(())
            }
            _ if size == w.len() => Ok(()),
            _ if size > w.len() => told(libc::EFBIG, "a .npy file is as long as its header says"),
            _ => told(libc::EINVAL, "a .npy file is as long as its header says"),
        }
    }

    /// Whether there is a header; what was turned round becomes the elements.
    pub(super) fn npy_finish(&self, id: ObjectId) -> FsResult<()> {
        let Some(writing) = self.npy_writing(id) else { return Ok(()) };
        let w = &mut *writing.lock();
        if let Some(errno) = w.failed {
            return Err(errno);
        }
        if w.data.is_none() && w.len() > 0 {
            return Err(self.npy_told(id, &Error::refused(libc::EINVAL, "what was written is not a whole .npy header")));
        }
        if w.data != Some(w.end) {
            // What numpy writes later, through a mapping, would not be turned round.
            let part = w.fortran.is_some();
            let e = Error::refused(libc::EINVAL, "an array in Fortran order is written as a whole before it is closed");
            return if part { Err(self.npy_told(id, &e)) } else { Ok(()) };
        }
        self.npy_turn(id, w)?;
        self.npy_forget_turned(w);
        // Whoever reads it next finds what stays.
        if let Ok(Some(head)) = self.connector.npy_header(id) {
            w.head = head;
        }
        Ok(())
    }

    fn npy_turn(&self, id: ObjectId, w: &mut Writing) -> FsResult<()> {
        let (Some(edit), Some(f)) = (self.connector.edit(), &w.fortran) else { return Ok(()) };
        let most = PIECE.max(usize::try_from(f.header.datatype_len()).unwrap_or(PIECE));
        let mut at = 0u64;
        while at < f.header.data_len() {
            let piece = f.header.transposed(&f.bytes, at, most);
            edit.write_as(id, form(View::Npy), at, &piece).map_err(|e| self.npy_told(id, &e))?;
            at = at.saturating_add((piece.len() as u64).max(1));
        }
        self.touched(&[id]);
        Ok(())
    }

    /// Whether closing the last file open on `node` may take its name away.
    pub(super) fn is_fresh(&self, node: &Node) -> bool {
        let NodeKind::Dataset(View::Npy, id) = node.kind else { return false };
        self.npy_writing(id).is_some_and(|w| w.lock().fresh.is_some())
    }

    pub(super) fn npy_close(&self, id: ObjectId) {
        let mut files = self.side.npy.files.lock();
        let Some(writing) = files.get(&id).cloned() else { return };
        let w = &mut *writing.lock();
        w.writers = w.writers.saturating_sub(1);
        if w.writers > 0 {
            return;
        }
        files.remove(&id);
        drop(files);
        if let Some((group, name)) = w.fresh.take() {
            self.npy_discard(id, group, &name);
            return;
        }
        if w.fortran.is_some() {
            tracing::warn!("{}: an array in Fortran order was not written as a whole", escaped(&self.spec.file));
            let _ = self.npy_turn(id, w);
        }
        self.npy_forget_turned(w);
    }

    /// A new file never got a header.
    fn npy_discard(&self, id: ObjectId, group: ObjectId, name: &[u8]) {
        let Some(edit) = self.connector.edit() else { return };
        let there = self.connector.lookup(group, name).ok().flatten();
        // It may have been moved or replaced in the main tree.
        if there.is_none_or(|l| l.target != LinkTarget::Hard(id)) {
            return;
        }
        self.keep_listings([group]);
        match edit.unlink(group, name, false) {
            Ok(gone) => {
                self.object_gone(gone);
                self.names_changed(&[group]);
            }
            Err(e) => drop(self.npy_told(id, &e)),
        }
    }

    pub(super) fn npy_create(&self, dir: &Arc<Node>, group: ObjectId, name: &[u8]) -> FsResult<Entry> {
        let edit = self.editor()?;
        let link = name.strip_suffix(SUFFIX).and_then(|stem| self.tree().new_name(dir, stem)).ok_or(Errno(libc::EINVAL))?;
        if let Some(there) = self.connector.lookup(group, &link).map_err(|e| self.failed(Some(group), &e))? {
            // This view does not show the link: its object has no numpy notation.
            return Err(Errno(if self.leads_to_group(group, there.target) { libc::EISDIR } else { libc::EEXIST }));
        }
        let id = edit.create_file(group, &link).map_err(|e| super::errno::errno(&e))?;
        self.names_changed(&[group]);
        let w = Writing { fresh: Some((group, link)), emptied: true, ..Writing::default() };
        self.side.npy.files.lock().insert(id, Arc::new(Mutex::new(w)));
        self.entry_in(dir, name)
    }

    fn leads_to_group(&self, from: ObjectId, target: LinkTarget) -> bool {
        let id = match target {
            LinkTarget::Hard(id) => Some(id),
            LinkTarget::Soft(path) => self.connector.resolve(from, &path).ok().flatten(),
            LinkTarget::External { .. } | LinkTarget::UserDefined(_) => None,
        };
        id.and_then(|id| self.connector.info(id).ok()).is_some_and(|info| info.kind == ObjectKind::Group)
    }

    pub(super) fn npy_remove(&self, group: ObjectId, name: &[u8], child: &Child) -> FsResult<()> {
        let edit = self.editor()?;
        let link = child.link_name.as_deref().or(name.strip_suffix(SUFFIX)).ok_or(Errno(libc::EINVAL))?;
        let gone = edit.unlink(group, link, false).map_err(|e| super::errno::errno(&e))?;
        self.object_gone(gone);
        self.names_changed(&[group]);
        Ok(())
    }
}
