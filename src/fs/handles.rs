//! Open files: made from nodes, read, and made again when the container is in another state.

use super::container::{ContainerFs, form};
use super::file::{OpenFile, Owner};
use super::nodes::{Node, NodeKind, View};
use super::side::attribute_name;
use super::types::{Errno, Handle, Ino, OpenMode, Opened};
use super::{FsResult, Operations};
use crate::connector::{ObjectId, ObjectKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl ContainerFs {
    /// Opens `node` for an open file that is handed out; names must be steady.
    pub(super) fn open_node(&self, node: &Arc<Node>, mode: OpenMode) -> FsResult<Opened> {
        if node.kind.is_directory() {
            return Err(Errno(libc::EISDIR));
        }
        if mode.write {
            self.writable_file(node)?;
        }
        // Bytes of an attribute that are being written may make no attribute: readers' pages must not have them. Elements that
        // are only written need no pages.
        let only_written = !mode.read && matches!(node.kind, NodeKind::Dataset(View::Main, _));
        let bypasses = mode.write && (only_written || matches!(node.kind, NodeKind::AttrFile(..)));
        let direct = node.kind == NodeKind::Status || bypasses;
        let state = self.state();
        let id = node.kind.owner().filter(|id| id.file == 0);
        let file = self.open_kind(node).map_err(|e| self.failed(node.kind.object(), &e))?;
        let mut file = file.ok_or(Errno(libc::EIO))?;
        file.state = state;
        if let Some(edit) = self.connector.edit() {
            if mode.write {
                self.view_writers.enter(node)?;
                self.side_open(node).inspect_err(|_| self.view_writers.leave(node))?;
            }
            if let Some(id) = id {
                edit.hold(id);
            }
            node.count_open(true);
            if node.kind.is_view() {
                self.open_views.fetch_add(1, Ordering::AcqRel);
            }
            file.owner = Some(Owner { node: node.clone(), id, writes: mode.write, bypasses });
        }
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.handles.write().insert(handle, Arc::new(file));
        // Pages of another state are dropped, should they have come after the kernel was told of the change.
        let same = self.connector.follow().is_none() || node.note_opened(state);
        Ok(Opened { handle: Handle(handle), keep_cache: !direct && !self.changing && same, direct_io: direct, no_flush: !mode.write })
    }

    /// What an open file kept is let go.
    pub(super) fn close_file(&self, file: &OpenFile) {
        let Some(owner) = &file.owner else { return };
        owner.node.count_open(false);
        if owner.node.kind.is_view() {
            self.open_views.fetch_sub(1, Ordering::AcqRel);
        }
        if owner.writes {
            self.side_close(&owner.node);
            self.view_writers.leave(&owner.node);
        }
        self.finish_last(owner.id);
        if let (Some(edit), Some(id)) = (self.connector.edit(), owner.id) {
            edit.release(id);
        }
    }

    /// The bytes of a dataset were changed: of what is open in the main tree and below `.h5dir` nobody knows which it was.
    pub(super) fn note_elsewhere(&self, id: ObjectId) {
        if self.open_views.load(Ordering::Acquire) == 0 {
            return;
        }
        let open = self.nodes.open_on(id);
        if open.len() > 1 {
            self.elsewhere.lock().extend(open);
        }
    }

    /// Makes what was written to `file` durable if it has to be at once: where the pages are bypassed the kernel does not ask for it.
    pub(super) fn sync_written(&self, ino: Ino, file: &OpenFile, now: OpenMode) -> FsResult<()> {
        if now.sync && file.owner.as_ref().is_some_and(|owner| owner.bypasses) { self.fsync(ino) } else { Ok(()) }
    }

    /// A new file may be made a named datatype; the kernel knows its node as a dataset's until it looks the name up again.
    pub(super) fn became_datatype(&self, id: ObjectId) -> bool {
        self.changing && self.connector.info(id).is_ok_and(|i| i.kind == ObjectKind::Datatype)
    }

    fn open_kind(&self, node: &Node) -> crate::base::Result<Option<OpenFile>> {
        Ok(Some(match &node.kind {
            NodeKind::Dataset(View::Main, id) if self.became_datatype(*id) => OpenFile::bytes(self.connector.datatype_text(*id)?),
            NodeKind::Dataset(view, id) if self.changing => {
                // Whether it can be read is told now.
                self.connector.content(*id, form(*view))?;
                OpenFile::live(self.connector.clone(), *view, *id)
            }
            NodeKind::Dataset(view, id) => {
                let content = self.connector.content(*id, form(*view))?;
                let header = if *view == View::Npy { self.connector.npy_header(*id)?.unwrap_or_default() } else { Vec::new() };
                OpenFile::content(header, content)
            }
            NodeKind::Datatype(id) => OpenFile::bytes(self.connector.datatype_text(*id)?),
            NodeKind::AttrFile(id, _) => OpenFile::bytes(self.connector.attribute_raw(*id, &attribute_name(node))?.unwrap_or_default()),
            NodeKind::Status => OpenFile::bytes(self.status_text()),
            NodeKind::ChunkFile(id, scaled) => match self.connector.chunks(*id)? {
                Some(chunks) => OpenFile::chunk(chunks, scaled.clone()),
                None => return Ok(None),
            },
            NodeKind::Unknown(_) => OpenFile::bytes(Vec::new()),
            NodeKind::Broken(_) => return Ok(None),
            NodeKind::Group(..) | NodeKind::Symlink(_) | NodeKind::Control | NodeKind::ChunkDir(_) | NodeKind::AttrDir(_) => {
                return Ok(None);
            }
        }))
    }

    /// The open file `handle` of `ino`, which shows the present state of the container.
    pub(super) fn file_of(&self, ino: Ino, handle: Handle) -> FsResult<Arc<OpenFile>> {
        let file = self.handles.read().get(&handle.0).cloned().ok_or(Errno(libc::EBADF))?;
        match self.connector.follow() {
            Some(f) if f.state() != file.state => self.open_again(ino, handle),
            _ => Ok(file),
        }
    }

    fn open_again(&self, ino: Ino, handle: Handle) -> FsResult<Arc<OpenFile>> {
        let state = self.state();
        let node = self.living(ino)?;
        let file = self.open_kind(&node).map_err(|e| self.failed(node.kind.object(), &e))?;
        let mut file = file.ok_or(Errno(libc::EIO))?;
        file.state = state;
        let file = Arc::new(file);
        if let Some(there) = self.handles.write().get_mut(&handle.0) {
            *there = file.clone();
        }
        Ok(file)
    }

    /// Open files let go of what they had of another state: the next read has it again.
    pub(super) fn close_outdated(&self) {
        let state = self.state();
        let mut gone = Vec::new();
        for file in self.handles.write().values_mut().filter(|f| f.state != state) {
            let mut nothing = OpenFile::bytes(Vec::new());
            nothing.state = file.state;
            gone.push(std::mem::replace(file, Arc::new(nothing)));
        }
    }
}
