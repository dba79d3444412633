//! Parts of objects (attributes, values of maps) that are open for writing: their bytes until they
//! are set as a whole.

use super::bytes::copy;
use super::context::{Context, Effects};
use crate::base::escape::escaped;
use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use crate::connector::edit::Edit;
use crate::connector::{Connector, ObjectId};
use crate::fs::errno::errno;
use crate::fs::types::{Errno, FsResult};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes of all parts of a kind that are being written.
const BUFFERED_BYTES_MAX: u64 = 64 << 20;

/// A part: its object and its name.
pub(super) type Key = (ObjectId, Vec<u8>);

/// A kind of parts.
pub(super) trait Part: Send + Sync + 'static {
    /// What it is called in messages.
    const NOUN: &'static str;

    /// The bytes that are stored; `None`: there is no such part.
    fn stored(connector: &dyn Connector, key: &Key) -> Result<Option<Vec<u8>>>;

    /// Sets the bytes.
    fn set(connector: &dyn Connector, edit: &dyn Edit, key: &Key, bytes: &[u8]) -> Result<()>;
}

/// The bytes of a part that is open for writing. Its lock is held while the part is set.
#[derive(Debug, Default)]
struct Buffer {
    /// New bytes; `None`: those that are stored.
    bytes: Option<Vec<u8>>,
    /// Bytes were written since the part was set. A file that was only truncated is about to
    /// be written: shells close a copy of the descriptor first.
    dirty: bool,
    /// The part was removed through its object: bytes are discarded until the file is opened again.
    removed: bool,
    /// The part was created and not set since: what is written first makes all of its bytes.
    new: bool,
}

/// A part that is open for writing.
#[derive(Debug, Default)]
struct OpenPart {
    /// Descriptors open for writing.
    writers: u64,
    buffer: Arc<Mutex<Buffer>>,
}

/// Parts of a kind that are open for writing.
pub(super) struct WrittenParts<P> {
    /// Locked only to find a buffer.
    open: Mutex<HashMap<Key, OpenPart>>,
    /// Bytes of all buffers.
    bytes: AtomicU64,
    kind: PhantomData<fn() -> P>,
}

impl<P> Default for WrittenParts<P> {
    fn default() -> Self {
        WrittenParts { open: Mutex::default(), bytes: AtomicU64::new(0), kind: PhantomData }
    }
}

/// Logs a change that was refused, each time: the reason may be another one.
pub(super) fn refused<P: Part>(cx: &Context<'_>, (id, name): &Key, e: &Error) -> Errno {
    let name = String::from_utf8_lossy(name);
    tracing::warn!("{}: {} {name:?} of the object at {}: {e}", escaped(cx.file), P::NOUN, id);
    errno(e)
}

impl<P: Part> WrittenParts<P> {
    fn buffer(&self, key: &Key) -> Option<Arc<Mutex<Buffer>>> {
        Some(self.open.lock().get(key)?.buffer.clone())
    }

    /// Takes the bytes out of `buffer`.
    fn take(&self, buffer: &mut Buffer) -> Option<Vec<u8>> {
        let bytes = buffer.bytes.take();
        self.bytes.fetch_sub(bytes.as_ref().map_or(0, |b| b.len() as u64), Ordering::AcqRel);
        bytes
    }

    /// Puts bytes into `buffer`, which has none.
    fn put(&self, buffer: &mut Buffer, bytes: Vec<u8>) {
        self.bytes.fetch_add(bytes.len() as u64, Ordering::AcqRel);
        buffer.bytes = Some(bytes);
    }

    /// Notes that a part was created; a writer opens it next.
    pub fn created(&self, key: Key) {
        self.open.lock().entry(key).or_default().buffer.lock().new = true;
    }

    /// Counts a writer.
    pub fn open(&self, key: Key) {
        let buffer = {
            let mut open = self.open.lock();
            let part = open.entry(key).or_default();
            part.writers = part.writers.saturating_add(1);
            part.buffer.clone()
        };
        buffer.lock().removed = false;
    }

    /// Length of the buffered bytes, if there are any.
    pub fn len(&self, key: &Key) -> Option<u64> {
        self.buffer(key)?.lock().bytes.as_ref().map(|b| b.len() as u64)
    }

    /// Reads buffered bytes, or `stored` ones if no bytes are buffered; `None`: the part has no
    /// writer, or is not stored.
    pub fn read(&self, key: &Key, offset: u64, buf: &mut [u8], stored: impl FnOnce() -> Option<Vec<u8>>) -> Option<usize> {
        let buffer = self.buffer(key)?;
        if let Some(bytes) = &buffer.lock().bytes {
            return Some(copy(bytes, offset, buf));
        }
        stored().map(|bytes| copy(&bytes, offset, buf))
    }

    /// Changes the bytes of a part, which is at least `len` bytes long afterwards.
    fn change(&self, cx: &Context<'_>, key: &Key, len: u64, f: impl FnOnce(&mut Vec<u8>)) -> FsResult<Arc<Mutex<Buffer>>> {
        if len.saturating_add(self.bytes.load(Ordering::Acquire)) > BUFFERED_BYTES_MAX {
            return Err(Errno(libc::EFBIG));
        }
        let shared = self.buffer(key).ok_or(Errno(libc::EBADF))?;
        let mut buffer = shared.lock();
        if !buffer.removed {
            let mut bytes = match self.take(&mut buffer) {
                Some(bytes) => bytes,
                None if buffer.new => Vec::new(),
                None => P::stored(&**cx.connector, key).map_err(|e| cx.host.failed(Some(key.0), &e))?.unwrap_or_default(),
            };
            f(&mut bytes);
            self.put(&mut buffer, bytes);
            buffer.dirty = true;
        }
        drop(buffer);
        Ok(shared)
    }

    /// Writes bytes at `offset`.
    pub fn write(&self, cx: &Context<'_>, key: &Key, offset: u64, data: &[u8]) -> FsResult<()> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno(libc::EFBIG))?;
        let write = |bytes: &mut Vec<u8>| {
            let (from, to) = (usize::try_from(offset).unwrap_or(usize::MAX), usize::try_from(end).unwrap_or(usize::MAX));
            bytes.resize(bytes.len().max(to), 0);
            if let Some(part) = bytes.get_mut(from..to) {
                part.copy_from_slice(data);
            }
        };
        self.change(cx, key, end, write).map(drop)
    }

    /// Sets the length. Without a writer the part is set at once.
    pub fn resize(&self, cx: &Context<'_>, key: &Key, size: u64) -> FsResult<Effects> {
        let resize = |bytes: &mut Vec<u8>| bytes.resize(usize::try_from(size).unwrap_or(0), 0);
        if self.buffer(key).is_some() {
            self.change(cx, key, size, resize)?.lock().dirty = size > 0;
            return Ok(Effects::default());
        }
        self.open(key.clone());
        let done = self.change(cx, key, size, resize).and_then(|_| self.finish(cx, key));
        self.leave(key);
        done
    }

    /// Sets the part if bytes were written.
    pub fn finish(&self, cx: &Context<'_>, key: &Key) -> FsResult<Effects> {
        let Some(buffer) = self.buffer(key) else { return Ok(Effects::default()) };
        let mut buffer = buffer.lock();
        if buffer.dirty { self.set(cx, key, &mut buffer) } else { Ok(Effects::default()) }
    }

    fn set(&self, cx: &Context<'_>, key: &Key, buffer: &mut Buffer) -> FsResult<Effects> {
        let (Some(edit), Some(bytes)) = (cx.connector.edit(), &buffer.bytes) else { return Ok(Effects::default()) };
        P::set(&**cx.connector, edit, key, bytes).map_err(|e| refused::<P>(cx, key, &e))?;
        self.discard(buffer);
        buffer.new = false;
        Ok(Effects::changed(key.0))
    }

    fn discard(&self, buffer: &mut Buffer) {
        self.take(buffer);
        buffer.dirty = false;
    }

    /// Counts a writer less, and drops the buffer with the last one.
    fn leave(&self, key: &Key) {
        let mut open = self.open.lock();
        let Some(part) = open.get_mut(key) else { return };
        part.writers = part.writers.saturating_sub(1);
        if part.writers > 0 {
            return;
        }
        let part = open.remove(key);
        drop(open);
        part.into_iter().for_each(|part| self.discard(&mut part.buffer.lock()));
    }

    /// A writer has left. With the last one the part is set, unless it is `gone`.
    pub fn close(&self, cx: &Context<'_>, key: &Key, gone: bool) -> Effects {
        let last = self.open.lock().get(key).filter(|part| part.writers <= 1).map(|part| part.buffer.clone());
        let done = last.filter(|_| !gone).map_or(Ok(Effects::default()), |buffer| self.set(cx, key, &mut buffer.lock()));
        self.leave(key);
        done.unwrap_or_else(|_| {
            tracing::warn!("{}: the bytes written make no {}: it stays as it was", escaped(cx.file), P::NOUN);
            Effects::default()
        })
    }

    /// Discards the bytes of parts of `id` that are not there any more.
    pub fn removed(&self, cx: &Context<'_>, id: ObjectId) {
        let of_object = |((of, name), part): (&Key, &OpenPart)| (*of == id).then(|| (name.clone(), part.buffer.clone()));
        let open: Vec<_> = self.open.lock().iter().filter_map(of_object).collect();
        for (name, buffer) in open {
            if matches!(P::stored(&**cx.connector, &(id, name)), Ok(None)) {
                let mut buffer = buffer.lock();
                self.discard(&mut buffer);
                buffer.removed = true;
            }
        }
    }

    /// A part of `id` has another name.
    pub fn renamed(&self, id: ObjectId, old: Vec<u8>, new: Vec<u8>) {
        let mut open = self.open.lock();
        let replaced = open.remove(&(id, new.clone()));
        if let Some(part) = open.remove(&(id, old)) {
            open.insert((id, new), part);
        }
        drop(open);
        replaced.into_iter().for_each(|part| self.discard(&mut part.buffer.lock()));
    }
}
