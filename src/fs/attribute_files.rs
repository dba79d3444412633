//! Writing the files of `.h5dir/attrs`: attributes as raw bytes.
//!
//! What is written goes to a copy in memory, which whoever reads the file sees too. When a descriptor is closed, or the file
//! is synced, the attribute is set as a whole; until then, and if its type and shape do not take so many bytes, it stays as it
//! was. An attribute made here is a list of bytes and takes any number of them.

use super::FsResult;
use super::container::ContainerFs;
use super::cut_names::Names;
use super::name::{file_name, file_name_escaped, unescape};
use super::nodes::{Node, NodeKind, Place};
use super::side::attribute_name;
use super::types::{Entry, Errno, Ino};
use super::view::Child;
use crate::base::Error;
use crate::base::escape::escaped;
use crate::connector::ObjectId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Most bytes of all attributes that are being written.
const BYTES_MAX: u64 = 64 << 20;

/// An attribute that is open for writing.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// Files open on it.
    writers: u64,
    /// What it is to be; `None`: what it is.
    bytes: Option<Vec<u8>>,
    /// Something was written since it was set. What was only truncated is going to be written: shells close a copy of the
    /// descriptor before.
    written: bool,
    /// It was removed by another way: what is written to it goes nowhere, until it is opened anew.
    gone: bool,
}

/// Attributes that are open for writing.
pub(super) type Attributes = Mutex<HashMap<(ObjectId, Vec<u8>), Buffer>>;

impl ContainerFs {
    pub(super) fn attribute_open(&self, id: ObjectId, name: Vec<u8>) {
        let mut all = self.side.attributes.lock();
        let buffer = all.entry((id, name)).or_default();
        buffer.writers = buffer.writers.saturating_add(1);
        buffer.gone = false;
    }

    pub(super) fn attribute_len(&self, id: ObjectId, name: Vec<u8>) -> Option<u64> {
        self.side.attributes.lock().get(&(id, name))?.bytes.as_ref().map(|b| b.len() as u64)
    }

    pub(super) fn attribute_read(&self, id: ObjectId, name: Vec<u8>, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let all = self.side.attributes.lock();
        let key = (id, name);
        let now: Vec<u8>;
        let bytes = match &all.get(&key)?.bytes {
            Some(bytes) => bytes,
            // It was set since the file was opened.
            None => {
                now = self.connector.attribute_raw(id, &key.1).ok()??;
                &now
            }
        };
        let rest = usize::try_from(offset).ok().and_then(|o| bytes.get(o..)).unwrap_or_default();
        buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Some(rest.len().min(buf.len()))
    }

    /// Changes what the attribute is to be; it is `len` bytes long at least then.
    fn attribute_change(&self, id: ObjectId, name: Vec<u8>, len: u64, f: impl FnOnce(&mut Vec<u8>)) -> FsResult<()> {
        let mut all = self.side.attributes.lock();
        let others: u64 = all.values().filter_map(|b| b.bytes.as_ref()).map(|b| b.len() as u64).sum();
        if len.saturating_add(others) > BYTES_MAX {
            return Err(Errno(libc::EFBIG));
        }
        let buffer = all.get_mut(&(id, name.clone())).ok_or(Errno(libc::EBADF))?;
        if buffer.gone {
            return Ok(());
        }
        let mut bytes = match buffer.bytes.take() {
            Some(bytes) => bytes,
            None => self.connector.attribute_raw(id, &name).map_err(|e| self.failed(Some(id), &e))?.unwrap_or_default(),
        };
        f(&mut bytes);
        buffer.bytes = Some(bytes);
        buffer.written = true;
        Ok(())
    }

    pub(super) fn attribute_write(&self, id: ObjectId, name: Vec<u8>, offset: u64, data: &[u8]) -> FsResult<usize> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno(libc::EFBIG))?;
        self.attribute_change(id, name, end, |bytes| {
            let (from, to) = (usize::try_from(offset).unwrap_or(usize::MAX), usize::try_from(end).unwrap_or(usize::MAX));
            bytes.resize(bytes.len().max(to), 0);
            if let Some(part) = bytes.get_mut(from..to) {
                part.copy_from_slice(data);
            }
        })?;
        Ok(data.len())
    }

    pub(super) fn attribute_resize(&self, id: ObjectId, name: Vec<u8>, size: u64) -> FsResult<()> {
        let is_open = self.side.attributes.lock().contains_key(&(id, name.clone()));
        if !is_open {
            // Nobody closes it.
            self.attribute_open(id, name.clone());
        }
        let done = self.attribute_change(id, name.clone(), size, |bytes| bytes.resize(usize::try_from(size).unwrap_or(0), 0));
        if is_open {
            if let Some(buffer) = self.side.attributes.lock().get_mut(&(id, name)) {
                buffer.written = size > 0;
            }
            return done;
        }
        let done = done.and_then(|()| self.attribute_finish(id, name.clone()));
        self.side.attributes.lock().remove(&(id, name));
        done
    }

    /// Sets the attribute, if something was written.
    pub(super) fn attribute_finish(&self, id: ObjectId, name: Vec<u8>) -> FsResult<()> {
        self.keep_listings([id]);
        let mut all = self.side.attributes.lock();
        match all.get_mut(&(id, name.clone())) {
            Some(buffer) if buffer.written => self.attribute_set(id, &name, buffer),
            _ => Ok(()),
        }
    }

    fn attribute_set(&self, id: ObjectId, name: &[u8], buffer: &mut Buffer) -> FsResult<()> {
        let (Some(edit), Some(bytes)) = (self.connector.edit(), &buffer.bytes) else { return Ok(()) };
        let done = edit.set_attribute_bytes(id, name, bytes);
        done.map_err(|e| self.told(id, name, &e))?;
        (buffer.bytes, buffer.written) = (None, false);
        self.touched(&[id]);
        Ok(())
    }

    /// An attribute of `id` was removed by its object: what was written to its file is nothing any more.
    pub(super) fn attribute_removed(&self, id: ObjectId) {
        for ((of, name), buffer) in self.side.attributes.lock().iter_mut() {
            if *of == id && matches!(self.connector.attribute_raw(id, name), Ok(None)) {
                (buffer.bytes, buffer.written, buffer.gone) = (None, false, true);
            }
        }
    }

    /// One log line for what was refused: it is another reason each time.
    fn told(&self, id: ObjectId, name: &[u8], e: &Error) -> Errno {
        let name = String::from_utf8_lossy(name).into_owned();
        tracing::warn!("{}: attribute {name:?} of the object at {}: {e}", escaped(&self.spec.file), id.address);
        super::errno::errno(e)
    }

    pub(super) fn attribute_close(&self, id: ObjectId, name: Vec<u8>, gone: bool) {
        let mut all = self.side.attributes.lock();
        let Some(buffer) = all.get_mut(&(id, name.clone())) else { return };
        buffer.writers = buffer.writers.saturating_sub(1);
        if buffer.writers > 0 {
            return;
        }
        if !gone && self.attribute_set(id, &name, buffer).is_err() {
            tracing::warn!("{}: what was written makes no attribute: it stays as it was", escaped(&self.spec.file));
        }
        all.remove(&(id, name));
    }

    /// The attribute's name for the new file `name`; `None` where none can be shown so.
    fn new_attribute(&self, id: ObjectId, group: bool, name: &[u8]) -> Option<Vec<u8>> {
        let plain = unescape(name).filter(|n| !n.is_empty() && !n.contains(&0))?.into_owned();
        // A link of the same name comes first.
        let taken = group && self.connector.lookup(id, &plain).is_ok_and(|l| l.is_some());
        let shown = if taken { file_name_escaped(&plain) } else { file_name(&plain).into_owned() };
        (shown == name).then_some(plain)
    }

    pub(super) fn attribute_create(&self, dir: &Arc<Node>, id: ObjectId, name: &[u8]) -> FsResult<Entry> {
        let edit = self.editor()?;
        let plain = self.new_attribute(id, matches!(dir.kind, NodeKind::Group(..)), name).ok_or(Errno(libc::EINVAL))?;
        edit.set_attribute_bytes(id, &plain, &[]).map_err(|e| self.told(id, &plain, &e))?;
        self.attributes_changed(id);
        self.entry_in(dir, name)
    }

    fn attributes_changed(&self, id: ObjectId) {
        self.cut_names.forget(Names::Attributes(id));
        self.touched(&[id]);
    }

    pub(super) fn attribute_remove(&self, dir: &Arc<Node>, child: Child) -> FsResult<()> {
        let edit = self.editor()?;
        let (_, node) = child.node(dir);
        let Some(id) = node.kind.owner() else { return Err(Errno(libc::EPERM)) };
        let name = attribute_name(&node);
        edit.remove_attribute(id, &name).map_err(|e| self.told(id, &name, &e))?;
        self.nodes.name_gone(&node);
        self.attributes_changed(id);
        Ok(())
    }

    /// Gives an attribute another name in the same directory; `None`: the name is no attribute's.
    pub(super) fn attribute_rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Option<FsResult<()>> {
        let dir = self.directory(from.0).ok()?;
        let child = self.tree().lookup(&dir, from.1).ok().flatten()?;
        let NodeKind::AttrFile(id, _) = child.kind else { return None };
        let (_, node) = child.node(&dir);
        Some(self.move_attribute(&dir, id, &node, to, flags))
    }

    fn move_attribute(&self, dir: &Arc<Node>, id: ObjectId, node: &Node, to: (Ino, &[u8]), flags: u32) -> FsResult<()> {
        let edit = self.editor()?;
        if self.directory(to.0)?.ino != dir.ino {
            return Err(Errno(libc::EXDEV));
        }
        if id.file != 0 {
            return Err(Errno(libc::EROFS));
        }
        let replace = match flags {
            0 => true,
            libc::RENAME_NOREPLACE => false,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let there = self.tree().lookup(dir, to.1).map_err(|e| self.failed(Some(id), &e))?;
        let (name, new) = match &there {
            Some(c) if c.kind.is_directory() => return Err(Errno(libc::EISDIR)),
            Some(Child { kind: NodeKind::AttrFile(_, name), .. }) if replace => (attribute_name(node), name.to_vec()),
            Some(_) => return Err(Errno(libc::EEXIST)),
            None => {
                let new = self.new_attribute(id, matches!(dir.kind, NodeKind::Group(..)), to.1).ok_or(Errno(libc::EINVAL))?;
                (attribute_name(node), new)
            }
        };
        if name == new {
            return Ok(());
        }
        edit.rename_attribute(id, &name, &new, replace).map_err(|e| self.told(id, &name, &e))?;
        if let Some(there) = there {
            self.nodes.name_gone(&there.node(dir).1);
        }
        let link_name = (new != to.1).then(|| new.clone().into_boxed_slice());
        let place = Place { parent: Some(dir.clone()), name: to.1.into(), link_name };
        self.nodes.moved(&[(Node::new(dir, &node.place().name, node.link_name(), node.kind.clone()), place)]);
        let mut all = self.side.attributes.lock();
        all.remove(&(id, new.clone()));
        if let Some(buffer) = all.remove(&(id, name)) {
            all.insert((id, new), buffer);
        }
        drop(all);
        self.attributes_changed(id);
        Ok(())
    }
}
