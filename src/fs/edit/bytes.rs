//! Changes of the bytes of files: write, truncate, allocate, zero, copy.

use crate::base::Error;
use crate::connector::edit::Edit;
use crate::connector::{Form, ObjectId};
use crate::fs::changes::ChangeLog;
use crate::fs::done::{ALL_PAGES, Invalidate};
use crate::fs::mounted::Mounted;
use crate::fs::namespace::Node;
use crate::fs::open_files::{Holder, OpenFile, OpenFiles, check_writable, note_gap, padded_end};
use crate::fs::page_guard::{PageGuard, WriteCall};
use crate::fs::types::{Errno, FsResult, Handle, OpenMode};
use crate::fs::views::{EditView, Effects, Host};
use std::ops::Range;
use std::sync::Arc;

/// See the module's description. Callers hold the lock of names where a node must stay what it is.
pub struct ByteEditor {
    mounted: Arc<Mounted>,
    changes: Arc<ChangeLog>,
    files: Arc<OpenFiles>,
}

impl ByteEditor {
    /// Changes the bytes of `files`.
    pub fn new(mounted: Arc<Mounted>, changes: Arc<ChangeLog>, files: Arc<OpenFiles>) -> Self {
        ByteEditor { mounted, changes, files }
    }

    fn padded_end(&self, file: &OpenFile) -> Option<u64> {
        padded_end(file, || self.changes.size(file.holder.as_ref()?.id?))
    }

    /// Writes `data` to `file` at `offset`, or at EOF with `O_APPEND`.
    pub fn write(&self, file: &OpenFile, offset: u64, data: &[u8], mode: OpenMode, invalidate: &mut Invalidate) -> FsResult<()> {
        let end = self.padded_end(file);
        self.mounted.editor()?;
        let holder = file.holder.as_ref().ok_or(Errno(libc::EBADF))?;
        let (node, view) = (&holder.node, holder.writer.ok_or(Errno(libc::EBADF))?);
        let buffered = view.is_buffered();
        if buffered && holder.bypasses && node.opens() > 1 {
            invalidate.pages.push((node.ino, ALL_PAGES));
        }
        let effects = match buffered {
            true => self.write_buffered(view, node, offset, data, mode)?,
            false => self.write_guarded(view, holder, offset, data, mode)?,
        };
        if !buffered && !mode.written_back {
            let guard = PageGuard::of(node.clone());
            // Only this file is open, and cannot be mapped: no pages hold the old bytes, and a
            // later open reads the new ones.
            invalidate.guard = guard.filter(|guard| guard.write.pages.is_some() || node.opens() > 1 || mode.read);
        }
        self.changes.record(effects, invalidate);
        if !buffered {
            // The kernel or the guard sees to the pages of this file.
            invalidate.pages.retain(|(ino, _)| *ino != node.ino);
        }
        note_gap(file, end, offset, invalidate);
        file.note_written();
        Ok(())
    }

    fn write_buffered(&self, view: &dyn EditView, node: &Node, offset: u64, data: &[u8], mode: OpenMode) -> FsResult<Effects> {
        let cx = self.mounted.context();
        let offset = if mode.append { view.size(&cx, node)? } else { offset };
        view.write(&cx, node, offset, data)
    }

    fn write_guarded(&self, view: &dyn EditView, holder: &Holder, offset: u64, data: &[u8], mode: OpenMode) -> FsResult<Effects> {
        let node = &*holder.node;
        let call = WriteCall { file: holder.handle, offset, len: data.len() as u64, bypasses: holder.bypasses };
        let cx = self.mounted.context();
        // A page of a mapping holds elements besides those that were stored to it.
        let known = node.item.mapped_dataset().filter(|id| mode.written_back && self.mounted.has_unwritten_elements(*id));
        let mut effects = Effects::default();
        let mut write = |at: u64, data: &[u8]| {
            let parts = match known {
                Some(id) => self.changed_elements(id, at, data)?,
                None => std::iter::once(0..data.len()).collect(),
            };
            for part in parts {
                let offset = at.saturating_add(part.start as u64);
                effects = view.write(&cx, node, offset, data.get(part).unwrap_or_default())?;
            }
            Ok(())
        };
        match mode {
            OpenMode { written_back: true, .. } => {
                // A mapping ends with the file. The kernel may take the file to be longer: it adds
                // an append to the size that it knows, which has whole rows.
                let room = usize::try_from(view.size(&cx, node)?.saturating_sub(call.offset)).unwrap_or(usize::MAX);
                node.writes.write_back(call.offset, data.get(..room).unwrap_or(data), write)?;
            }
            OpenMode { append: true, .. } => {
                let mut written = |at: u64| write(at, data).map(|()| holder.end.wrote(node, at.saturating_add(data.len() as u64)));
                node.writes.append(call, || view.size(&cx, node), &mut written)?;
            }
            _ => {
                node.writes.overwrite(call, |at| write(at, data))?;
                holder.end.wrote(node, offset.saturating_add(data.len() as u64));
            }
        }
        Ok(effects)
    }

    /// The parts of `data`, to be written to the dataset `id` at `offset`, that change its
    /// elements.
    fn changed_elements(&self, id: ObjectId, offset: u64, data: &[u8]) -> FsResult<Vec<Range<usize>>> {
        let failed = |e: Error| self.mounted.failed(Some(id), &e);
        let connector = &self.mounted.connector;
        let size = connector.dataset(id).map_err(failed)?.datatype.element_size();
        let content = connector.content(id, Form::Main).map_err(failed)?;
        let (mut old, mut at) = (vec![0; data.len()], 0usize);
        while let Some(rest) = old.get_mut(at..).filter(|rest| !rest.is_empty()) {
            match content.read(offset.saturating_add(at as u64), rest).map_err(failed)? {
                0 => break,
                n => at = at.saturating_add(n),
            }
        }
        old.truncate(at);
        Ok(differing_elements(&old, data, offset, size))
    }

    /// Sets the size of `node`; `by_path`: see [`Changes`].
    pub fn resize(&self, node: &Node, size: u64, by_path: bool, invalidate: &mut Invalidate) -> FsResult<()> {
        self.files.view_writers.check(node)?;
        if node.item.is_directory() {
            return Err(Errno(libc::EISDIR));
        }
        check_writable(&self.mounted, node)?;
        let view = node.item.editable().ok_or(Errno(libc::EACCES))?;
        let effects = view.resize(&self.mounted.context(), node, size)?;
        if by_path && size == 0 {
            node.set_size.clear();
        } else {
            node.set_size.set(Some(size));
        }
        self.changes.record(effects, invalidate);
        Ok(())
    }

    /// The dataset whose bytes are those of `node` one by one.
    fn mapped_dataset(&self, node: &Node) -> FsResult<ObjectId> {
        let id = node.item.mapped_dataset().ok_or(Errno(libc::EOPNOTSUPP))?;
        check_writable(&self.mounted, node).map(|()| id)
    }

    /// Allocates, zeroes or punches a range, as fallocate(2) does with `mode`.
    pub fn allocate(&self, handle: Handle, offset: u64, len: u64, mode: i32, invalidate: &mut Invalidate) -> FsResult<()> {
        let (edit, file) = (self.mounted.editor()?, self.files.get(handle)?);
        let node = &file.holder.as_ref().ok_or(Errno(libc::EBADF))?.node;
        let id = self.mapped_dataset(node)?;
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or(Errno(if len == 0 { libc::EINVAL } else { libc::EFBIG }))?;
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let zeroes = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => false,
            libc::FALLOC_FL_ZERO_RANGE => true,
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => true,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        let storage = match zeroes {
            true => None,
            false => Some(edit.allocate().ok_or(Errno(libc::EOPNOTSUPP))?),
        };
        let view = node.item.editable().ok_or(Errno(libc::EACCES))?;
        let size = || view.size(&self.mounted.context(), &**node);
        let (before, padded) = (size()?, self.padded_end(&file));
        let failed = |e: Error| self.mounted.refused(Some(id), &e);
        let within = |size: u64| end.min(size).saturating_sub(offset);
        if zeroes {
            // A range that cannot be zeroed must not extend the file either.
            edit.zero(id, offset, 0).map_err(failed)?;
        }
        let mut grown = before;
        if end > before && !keep_size {
            // First: where the size is refused nothing is done.
            edit.set_size(id, end).map_err(failed)?;
            node.set_size.set(Some(end));
            grown = size()?;
            note_gap(&file, padded, grown, invalidate);
        }
        if zeroes && within(grown) > 0 {
            // The new part holds the fill value.
            let zeroed = match edit.erase().filter(|_| mode & libc::FALLOC_FL_PUNCH_HOLE != 0) {
                Some(erase) => erase.punch(id, offset, within(grown)),
                None => edit.zero(id, offset, within(grown)),
            };
            zeroed.map_err(failed)?;
            // The kernel zeroes parts of pages, but punched elements have the fill value.
            if self.mounted.has_undefined_elements(id) {
                invalidate.pages_before_answer.push((node.ino, offset..end));
            }
        }
        if let Some(storage) = storage {
            // The container cannot reserve storage past EOF.
            if offset >= grown {
                return Err(Errno(libc::EOPNOTSUPP));
            }
            storage.allocate(id, offset, within(grown)).map_err(failed)?;
        }
        self.changes.changed(&[id], invalidate);
        Ok(())
    }

    /// Copies bytes between datasets of the mounted file; returns how many.
    pub fn copy(&self, from: (Handle, u64), to: (Handle, u64), len: u64, invalidate: &mut Invalidate) -> FsResult<u64> {
        let unsupported = Errno(libc::EOPNOTSUPP);
        let (edit, source, file) = (self.mounted.editor()?, self.files.get(from.0)?, self.files.get(to.0)?);
        let source = &source.holder.as_ref().ok_or(unsupported)?.node;
        let source = source.item.writable().filter(|view| view.maps_ranges()).and_then(|_| source.item.dataset()).ok_or(unsupported)?;
        let id = self.mapped_dataset(&file.holder.as_ref().ok_or(unsupported)?.node)?;
        let end = self.padded_end(&file);
        let holder = file.holder.as_ref().ok_or(unsupported)?;
        let n = edit.copy_range().ok_or(unsupported)?.copy_range((source, from.1), (id, to.1), len).map_err(|e| match &e {
            Error::Refused { errno: libc::EOPNOTSUPP, .. } => unsupported,
            _ => self.mounted.refused(Some(id), &e),
        })?;
        holder.end.wrote(&holder.node, to.1.saturating_add(n));
        note_gap(&file, end, to.1, invalidate);
        file.note_written();
        self.changes.changed(&[id], invalidate);
        Ok(n)
    }

    /// Bytes of `node` that were written and could not be stored.
    pub fn write_error(&self, node: &Node) -> FsResult<()> {
        let (Ok(edit), Some(id)): (FsResult<&dyn Edit>, _) = (self.mounted.editor(), node.item.object()) else { return Ok(()) };
        edit.write_error(id).map_err(|e| crate::fs::errno::errno(&e))
    }
}

/// The parts of `new`, bytes from `offset` of elements of `size` bytes, whose elements differ from
/// those of `old`, which may end early.
fn differing_elements(old: &[u8], new: &[u8], offset: u64, size: u64) -> Vec<Range<usize>> {
    let size = usize::try_from(size).unwrap_or(usize::MAX).max(1);
    let skipped = usize::try_from(offset.checked_rem(size as u64).unwrap_or(0)).unwrap_or(0);
    let (mut parts, mut at): (Vec<Range<usize>>, usize) = (Vec::new(), 0);
    let mut end = size.saturating_sub(skipped).min(new.len());
    while at < new.len() {
        if old.get(at..end) != new.get(at..end) {
            match parts.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => parts.push(at..end),
            }
        }
        (at, end) = (end, end.saturating_add(size).min(new.len()));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_that_differ_are_found() {
        let (old, mut new) = ([0u8; 16], [0u8; 16]);
        assert!(differing_elements(&old, &new, 0, 4).is_empty());
        (new[1], new[4], new[15]) = (1, 1, 1);
        assert_eq!(differing_elements(&old, &new, 0, 4), [0..8, 12..16]);
        assert_eq!(differing_elements(&old, &new, 2, 4), [0..6, 14..16]);
        assert!(differing_elements(&old[..6], &new, 0, 8).into_iter().eq(std::iter::once(0..16)));
        assert!(differing_elements(&old, &new, 3, 100).into_iter().eq(std::iter::once(0..16)));
    }
}
