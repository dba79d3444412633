//! Attributes that are open for writing: their bytes until they are set.

use crate::base::Error;
use crate::base::escape::escaped;
use crate::connector::ObjectId;
use crate::fs::errno::errno;
use crate::fs::types::{Errno, FsResult};
use crate::fs::views::bytes::copy;
use crate::fs::views::context::{Context, Effects};
use crate::present;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes of all attributes that are being written.
const BUFFERED_BYTES_MAX: u64 = 64 << 20;

/// An attribute: its object and its name.
pub(super) type Key = (ObjectId, Vec<u8>);

/// The bytes of an attribute that is open for writing. Its lock is held while the attribute is set.
#[derive(Debug, Default)]
struct Buffer {
    /// New bytes; `None`: those of the attribute.
    bytes: Option<Vec<u8>>,
    /// Bytes were written since the attribute was set. A file that was only truncated is about to
    /// be written: shells close a copy of the descriptor first.
    dirty: bool,
    /// The attribute was removed through its object: bytes are discarded until the file is opened
    /// again.
    removed: bool,
}

/// An attribute that is open for writing.
#[derive(Debug, Default)]
struct OpenAttribute {
    /// Descriptors open for writing.
    writers: u64,
    buffer: Arc<Mutex<Buffer>>,
}

/// Attributes that are open for writing.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// Locked only to find a buffer.
    open: Mutex<HashMap<Key, OpenAttribute>>,
    /// Bytes of all buffers.
    bytes: AtomicU64,
}

/// Logs a change that was refused, each time: the reason may be another one.
pub(super) fn refused(cx: &Context<'_>, (id, name): &Key, e: &Error) -> Errno {
    let name = String::from_utf8_lossy(name);
    tracing::warn!("{}: attribute {name:?} of the object at {}: {e}", escaped(cx.file), id);
    errno(e)
}

impl Attributes {
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

    /// Counts a writer.
    pub fn open(&self, key: Key) {
        let buffer = {
            let mut open = self.open.lock();
            let attribute = open.entry(key).or_default();
            attribute.writers = attribute.writers.saturating_add(1);
            attribute.buffer.clone()
        };
        buffer.lock().removed = false;
    }

    /// Length of the buffered bytes, if there are any.
    pub fn len(&self, key: &Key) -> Option<u64> {
        self.buffer(key)?.lock().bytes.as_ref().map(|b| b.len() as u64)
    }

    /// Reads buffered bytes, or `stored` ones if no bytes are buffered; `None`: the attribute has
    /// no writer, or is not stored.
    pub fn read(&self, key: &Key, offset: u64, buf: &mut [u8], stored: impl FnOnce() -> Option<Vec<u8>>) -> Option<usize> {
        let buffer = self.buffer(key)?;
        if let Some(bytes) = &buffer.lock().bytes {
            return Some(copy(bytes, offset, buf));
        }
        stored().map(|bytes| copy(&bytes, offset, buf))
    }

    /// Changes the bytes of an attribute, which is at least `len` bytes long afterwards.
    fn change(&self, cx: &Context<'_>, key: &Key, len: u64, f: impl FnOnce(&mut Vec<u8>)) -> FsResult<Arc<Mutex<Buffer>>> {
        if len.saturating_add(self.bytes.load(Ordering::Acquire)) > BUFFERED_BYTES_MAX {
            return Err(Errno(libc::EFBIG));
        }
        let shared = self.buffer(key).ok_or(Errno(libc::EBADF))?;
        let mut buffer = shared.lock();
        if !buffer.removed {
            let mut bytes = match self.take(&mut buffer) {
                Some(bytes) => bytes,
                None => {
                    present::attribute_raw(&**cx.connector, key.0, &key.1).map_err(|e| cx.host.failed(Some(key.0), &e))?.unwrap_or_default()
                }
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

    /// Sets the length. Without a writer the attribute is set at once.
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

    /// Sets the attribute if bytes were written.
    pub fn finish(&self, cx: &Context<'_>, key: &Key) -> FsResult<Effects> {
        let Some(buffer) = self.buffer(key) else { return Ok(Effects::default()) };
        let mut buffer = buffer.lock();
        if buffer.dirty { self.set(cx, key, &mut buffer) } else { Ok(Effects::default()) }
    }

    fn set(&self, cx: &Context<'_>, key: &Key, buffer: &mut Buffer) -> FsResult<Effects> {
        let (Some(edit), Some(bytes)) = (cx.connector.edit(), &buffer.bytes) else { return Ok(Effects::default()) };
        edit.set_attribute_bytes(key.0, &key.1, bytes).map_err(|e| refused(cx, key, &e))?;
        self.discard(buffer);
        Ok(Effects::changed(key.0))
    }

    fn discard(&self, buffer: &mut Buffer) {
        self.take(buffer);
        buffer.dirty = false;
    }

    /// Counts a writer less, and drops the buffer with the last one.
    fn leave(&self, key: &Key) {
        let mut open = self.open.lock();
        let Some(attribute) = open.get_mut(key) else { return };
        attribute.writers = attribute.writers.saturating_sub(1);
        if attribute.writers > 0 {
            return;
        }
        let attribute = open.remove(key);
        drop(open);
        attribute.into_iter().for_each(|attribute| self.discard(&mut attribute.buffer.lock()));
    }

    /// A writer has left. With the last one the attribute is set, unless it is `gone`.
    pub fn close(&self, cx: &Context<'_>, key: &Key, gone: bool) -> Effects {
        let last = self.open.lock().get(key).filter(|attribute| attribute.writers <= 1).map(|attribute| attribute.buffer.clone());
        let done = last.filter(|_| !gone).map_or(Ok(Effects::default()), |buffer| self.set(cx, key, &mut buffer.lock()));
        self.leave(key);
        done.unwrap_or_else(|_| {
            tracing::warn!("{}: the bytes written make no attribute: it stays as it was", escaped(cx.file));
            Effects::default()
        })
    }

    /// Discards the bytes of attributes of `id` that are not there any more.
    pub fn removed(&self, cx: &Context<'_>, id: ObjectId) {
        let of_object = |((of, name), attribute): (&Key, &OpenAttribute)| (*of == id).then(|| (name.clone(), attribute.buffer.clone()));
        let open: Vec<_> = self.open.lock().iter().filter_map(of_object).collect();
        for (name, buffer) in open {
            if matches!(present::attribute_raw(&**cx.connector, id, &name), Ok(None)) {
                let mut buffer = buffer.lock();
                self.discard(&mut buffer);
                buffer.removed = true;
            }
        }
    }

    /// An attribute of `id` has another name.
    pub fn renamed(&self, id: ObjectId, old: Vec<u8>, new: Vec<u8>) {
        let mut open = self.open.lock();
        let replaced = open.remove(&(id, new.clone()));
        if let Some(attribute) = open.remove(&(id, old)) {
            open.insert((id, new), attribute);
        }
        drop(open);
        replaced.into_iter().for_each(|attribute| self.discard(&mut attribute.buffer.lock()));
    }
}
