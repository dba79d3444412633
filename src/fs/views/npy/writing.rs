//! Writes `.npy` files: a numpy header, then the elements.
//!
//! The header is parsed from the first bytes and sets the type and shape of the dataset. Bytes
//! after it are written to the dataset as they come; none are kept, except for arrays in Fortran
//! order, which are transposed when they are complete. The file reads as it was written until it is
//! complete and a descriptor is closed, or the last one is. Then it has the header that numpy would
//! write. A new file without a complete header is removed when it is closed.

use crate::base::escape::escaped;
use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use crate::connector::edit::Edit;
use crate::connector::{Connector, Form, LinkTarget, ObjectId};
use crate::fs::errno::errno;
use crate::fs::types::{Errno, FsResult};
use crate::fs::views::bytes::copy;
use crate::fs::views::context::{Context, Effects};
use crate::present::{self, Editor, NpyHeader};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest header, bytes.
const HEADER_BYTES_MAX: usize = (1 << 20) + 64;
/// Bytes after the header that may arrive before it.
const EARLY_BYTES_MAX: usize = 64 << 10;
/// Bytes of arrays in Fortran order that are being written, all together.
const FORTRAN_BYTES_MAX: u64 = 256 << 20;
/// Bytes that are transposed at a time.
const TRANSPOSE_BYTES: usize = 1 << 20;

/// A file that is open for writing. Its lock is held while elements are written.
#[derive(Debug, Default)]
struct Writing {
    /// Group and name of a new file that has no header yet.
    new_file: Option<(ObjectId, Vec<u8>)>,
    /// End of the elements written in order after a new header.
    end: u64,
    /// Length of the elements, bytes; `None`: the header is incomplete.
    data: Option<u64>,
    /// The header as far as it was written.
    header: Vec<u8>,
    /// Bytes after the header that were written before it was complete, by offset.
    early: BTreeMap<u64, Vec<u8>>,
    /// The file was truncated: the dataset's elements are discarded.
    emptied: bool,
    /// An array in Fortran order.
    fortran: Option<Fortran>,
    /// The bytes written are no header: the answer to all later writes.
    failed: Option<Errno>,
}

#[derive(Debug)]
struct Fortran {
    header: NpyHeader,
    bytes: Vec<u8>,
}

/// A file and its writers.
#[derive(Debug, Default)]
struct OpenFile {
    /// Descriptors open for writing.
    writers: u64,
    writing: Arc<Mutex<Writing>>,
}

/// Files that are open for writing.
#[derive(Debug, Default)]
pub(super) struct Writings {
    /// Locked only to find a file.
    files: Mutex<HashMap<ObjectId, OpenFile>>,
    /// Bytes of arrays in Fortran order that are in memory.
    fortran_bytes: AtomicU64,
}

impl Writing {
    /// Waits for a new header.
    fn restart(&mut self) {
        self.data = None;
        self.header.clear();
        self.early.clear();
        self.failed = None;
    }

    fn len(&self) -> u64 {
        let early = self.early.last_key_value().map_or(0, |(at, b)| at.saturating_add(b.len() as u64));
        (self.header.len() as u64).saturating_add(self.data.unwrap_or(0)).max(early)
    }
}

impl Writings {
    fn get(&self, id: ObjectId) -> Option<Arc<Mutex<Writing>>> {
        Some(self.files.lock().get(&id)?.writing.clone())
    }

    /// Length of the file of `id` while it is written.
    pub fn len(&self, id: ObjectId) -> Option<u64> {
        self.get(id).map(|w| w.lock().len())
    }

    /// Reads the file of `id` while it is written.
    pub fn read(&self, connector: &dyn Connector, id: ObjectId, offset: u64, buf: &mut [u8]) -> Option<Result<usize>> {
        let writing = self.get(id)?;
        let w = writing.lock();
        let n = copy(&w.header, offset, buf);
        let Some(rest) = buf.get_mut(n..).filter(|r| !r.is_empty() && w.data.is_some()) else { return Some(Ok(n)) };
        let at = offset.saturating_add(n as u64).saturating_sub(w.header.len() as u64);
        let read = match &w.fortran {
            Some(f) => Ok(copy(&f.bytes, at, rest)),
            None => connector.content(id, Form::Exact).and_then(|c| c.read(at, rest)),
        };
        Some(read.map(|m| m.saturating_add(n)))
    }

    /// The group of the new file `id` that has no header yet.
    pub fn new_file_in(&self, id: ObjectId) -> Option<ObjectId> {
        self.get(id)?.lock().new_file.as_ref().map(|(group, _)| *group)
    }

    /// Notes the new file `id`, a link `name` of `group`.
    pub fn created(&self, id: ObjectId, group: ObjectId, name: Vec<u8>) {
        let w = Writing { new_file: Some((group, name)), emptied: true, ..Writing::default() };
        self.files.lock().insert(id, OpenFile { writers: 0, writing: Arc::new(Mutex::new(w)) });
    }

    /// Counts bytes of an array in Fortran order.
    fn reserve(&self, len: u64) -> Result<()> {
        let before = self.fortran_bytes.fetch_add(len, Ordering::AcqRel);
        if len.saturating_add(before) <= FORTRAN_BYTES_MAX {
            return Ok(());
        }
        self.fortran_bytes.fetch_sub(len, Ordering::AcqRel);
        let reason = format!("arrays in Fortran order are transposed in memory, {FORTRAN_BYTES_MAX} bytes at a time at most");
        Err(Error::refused(libc::EINVAL, reason))
    }

    fn release(&self, w: &mut Writing) {
        if let Some(f) = w.fortran.take() {
            self.fortran_bytes.fetch_sub(f.bytes.len() as u64, Ordering::AcqRel);
        }
    }
}

/// Writes the file of one dataset.
pub(super) struct Writer<'a> {
    /// The container.
    pub cx: &'a Context<'a>,
    /// How it is changed.
    pub edit: &'a dyn Edit,
    /// The dataset.
    pub id: ObjectId,
    /// All files that are being written.
    pub writings: Arc<Writings>,
}

impl Writer<'_> {
    /// Logs a change that was refused, each time: the reason may be another one.
    fn refused(&self, e: &Error) -> Errno {
        tracing::warn!("{}: .npy file of the object at {}: {e}", escaped(self.cx.file), self.id);
        errno(e)
    }

    /// Counts a writer.
    pub fn open(&self) -> FsResult<()> {
        if self.count_writer() {
            return Ok(());
        }
        let failed = |e: Error| self.cx.host.failed(Some(self.id), &e);
        let header = present::npy_header(&**self.cx.connector, self.id).map_err(failed)?.ok_or(Errno(libc::EIO))?;
        let size = self.cx.connector.content(self.id, Form::Exact).and_then(|c| c.size()).map_err(failed)?;
        let w = Writing { data: Some(size), header, ..Writing::default() };
        let mut files = self.writings.files.lock();
        // Another descriptor may have been opened meanwhile.
        let file = files.entry(self.id).or_insert_with(|| OpenFile { writers: 0, writing: Arc::new(Mutex::new(w)) });
        file.writers = file.writers.saturating_add(1);
        Ok(())
    }

    /// Counts a writer of a file that is open for writing.
    fn count_writer(&self) -> bool {
        let mut files = self.writings.files.lock();
        let file = files.get_mut(&self.id);
        file.map(|file| file.writers = file.writers.saturating_add(1)).is_some()
    }

    /// Writes bytes at `offset`.
    pub fn write(&self, offset: u64, data: &[u8]) -> FsResult<Effects> {
        let writing = self.writings.get(self.id).ok_or(Errno(libc::EBADF))?;
        let w = &mut *writing.lock();
        if let Some(errno) = w.failed {
            return Err(errno);
        }
        self.put(w, offset, data).map_err(|e| {
            let errno = self.refused(&e);
            if w.data.is_none() && !matches!(errno, Errno(libc::ENOSPC | libc::EDQUOT | libc::EIO | libc::EROFS)) {
                w.failed = Some(errno);
            }
            errno
        })?;
        Ok(Effects::changed(self.id))
    }

    fn put(&self, w: &mut Writing, offset: u64, data: &[u8]) -> Result<()> {
        let header_len = w.header.len() as u64;
        if w.data.is_some() && offset < header_len {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let within = data.len().min(w.header.len().saturating_sub(start));
            let (part, rest) = data.split_at_checked(within).unwrap_or((data, &[]));
            if w.header.get(start..start.saturating_add(within)) == Some(part) {
                return self.put_elements(w, 0, rest);
            }
            let mut other = w.header.clone();
            if let Some(there) = other.get_mut(start..start.saturating_add(within)) {
                there.copy_from_slice(part);
            }
            match NpyHeader::parse(&other) {
                // numpy rewrites the header of a file that grows in place.
                Ok(Some(header)) if header.header_len() == w.header.len() => {
                    self.set_header(w, header)?;
                    w.header = other;
                    return self.put_elements(w, 0, rest);
                }
                _ if offset == 0 => w.restart(),
                Err(e) => return Err(e),
                Ok(_) => return Err(Error::refused(libc::EINVAL, "a part of a .npy header is written that does not fit the rest")),
            }
        }
        if w.data.is_some() {
            return self.put_elements(w, offset.saturating_sub(w.header.len() as u64), data);
        }
        if offset > w.header.len() as u64 {
            let kept: usize = w.early.values().map(Vec::len).sum();
            if kept.saturating_add(data.len()) > EARLY_BYTES_MAX {
                return Err(Error::refused(libc::EINVAL, "a .npy file is written from its beginning: its header comes first"));
            }
            w.early.insert(offset, data.to_vec());
            return Ok(());
        }
        let mut bytes = w.header.clone();
        bytes.truncate(usize::try_from(offset).unwrap_or(usize::MAX));
        bytes.extend_from_slice(data);
        let Some(header) = NpyHeader::parse(&bytes)? else {
            if bytes.len() > HEADER_BYTES_MAX {
                return Err(Error::refused(libc::EINVAL, "the header of a .npy file is longer than 1 MiB"));
            }
            w.header = bytes;
            return Ok(());
        };
        let rest = bytes.split_off(header.header_len().min(bytes.len()));
        self.set_header(w, header)?;
        w.header = bytes;
        self.put_elements(w, 0, &rest)?;
        for (at, data) in std::mem::take(&mut w.early) {
            self.put(w, at, &data)?;
        }
        Ok(())
    }

    /// Sets type and shape of the dataset by a complete header.
    fn set_header(&self, w: &mut Writing, header: NpyHeader) -> Result<()> {
        let len = header.data_len();
        self.writings.release(w);
        let fortran = header.is_fortran();
        if fortran {
            self.writings.reserve(len)?;
        }
        if let Err(e) = (Editor { connector: &**self.cx.connector, edit: self.edit }).set_npy(self.id, &header, w.emptied) {
            if fortran {
                self.writings.fortran_bytes.fetch_sub(len, Ordering::AcqRel);
            }
            return Err(e);
        }
        (w.data, w.emptied, w.new_file, w.end) = (Some(len), false, None, 0);
        if fortran {
            w.fortran = Some(Fortran { header, bytes: vec![0; usize::try_from(len).unwrap_or(0)] });
        }
        Ok(())
    }

    /// Writes elements; `offset` counts from the end of the header.
    fn put_elements(&self, w: &mut Writing, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.saturating_add(data.len() as u64);
        let most = w.data.unwrap_or(0);
        if end > most {
            return Err(Error::refused(libc::EFBIG, format!("the header says that {most} bytes follow it")));
        }
        if data.is_empty() {
            return Ok(());
        }
        match &mut w.fortran {
            None => self.edit.write_as(self.id, Form::Exact, offset, data)?,
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

    /// Truncates the file to nothing. Other sizes are those of the header.
    pub fn resize(&self, size: u64) -> FsResult<Effects> {
        let refuse = |errno, reason: &'static str| Err(self.refused(&Error::refused(errno, reason)));
        let Some(writing) = self.writings.get(self.id) else {
            return refuse(libc::EINVAL, "a .npy file that is not open for writing keeps its size");
        };
        let w = &mut *writing.lock();
        match size {
            0 => {
                w.restart();
                w.emptied = true;
                self.writings.release(w);
                Ok(Effects::default())
            }
            _ if size == w.len() => Ok(Effects::default()),
            _ if size > w.len() => refuse(libc::EFBIG, "a .npy file is as long as its header says"),
            _ => refuse(libc::EINVAL, "a .npy file is as long as its header says"),
        }
    }

    /// Checks that the header is complete and stores a transposed array.
    pub fn finish(&self) -> FsResult<Effects> {
        let Some(writing) = self.writings.get(self.id) else { return Ok(Effects::default()) };
        let w = &mut *writing.lock();
        if let Some(errno) = w.failed {
            return Err(errno);
        }
        if w.data.is_none() && w.len() > 0 {
            return Err(self.refused(&Error::refused(libc::EINVAL, "the bytes written are not a complete .npy header")));
        }
        if w.data != Some(w.end) {
            // Bytes that numpy stores later, through a mapping, would not be transposed.
            let part = w.fortran.is_some();
            let e = Error::refused(libc::EINVAL, "an array in Fortran order must be complete before it is closed");
            return if part { Err(self.refused(&e)) } else { Ok(Effects::default()) };
        }
        let effects = self.transpose(w)?;
        self.writings.release(w);
        // Later readers find the header that the dataset has from now on.
        if let Ok(Some(header)) = present::npy_header(&**self.cx.connector, self.id) {
            w.header = header;
        }
        Ok(effects)
    }

    fn transpose(&self, w: &Writing) -> FsResult<Effects> {
        let Some(f) = &w.fortran else { return Ok(Effects::default()) };
        let most = TRANSPOSE_BYTES.max(usize::try_from(f.header.datatype_len()).unwrap_or(TRANSPOSE_BYTES));
        let mut at = 0u64;
        while at < f.header.data_len() {
            let piece = f.header.transposed(&f.bytes, at, most);
            self.edit.write_as(self.id, Form::Exact, at, &piece).map_err(|e| self.refused(&e))?;
            at = at.saturating_add((piece.len() as u64).max(1));
        }
        Ok(Effects::changed(self.id))
    }

    /// A writer has left. With the last one a new file without a header is removed.
    pub fn close(&self) -> Effects {
        let mut files = self.writings.files.lock();
        let Some(file) = files.get_mut(&self.id) else { return Effects::default() };
        file.writers = file.writers.saturating_sub(1);
        if file.writers > 0 {
            return Effects::default();
        }
        let Some(OpenFile { writing, .. }) = files.remove(&self.id) else { return Effects::default() };
        drop(files);
        let w = &mut *writing.lock();
        if let Some((group, name)) = w.new_file.take() {
            return self.unlink(group, &name);
        }
        let mut effects = Effects::default();
        if w.fortran.is_some() {
            tracing::warn!("{}: an array in Fortran order was closed before it was complete", escaped(self.cx.file));
            effects = self.transpose(w).unwrap_or_default();
        }
        self.writings.release(w);
        effects
    }

    /// Removes a new file that never got a header.
    fn unlink(&self, group: ObjectId, name: &[u8]) -> Effects {
        let there = self.cx.connector.lookup(group, name).ok().flatten();
        // The file may have been moved or replaced in the main tree.
        if there.is_none_or(|l| l.target != LinkTarget::Hard(self.id)) {
            return Effects::default();
        }
        match self.edit.unlink(group, name, false) {
            Ok(removed) => Effects::links(group, removed),
            Err(e) => {
                self.refused(&e);
                Effects::default()
            }
        }
    }
}
