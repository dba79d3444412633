//! The table of open files: opens, finds and closes them.

use super::ends::WrittenEnd;
use super::file::{Holder, OpenFile};
use super::view_writers::ViewWriters;
use crate::base::escape::escaped;
use crate::base::locks::RwLock;
use crate::connector::ObjectId;
use crate::connector::edit::Edit;
use crate::fs::changes::ChangeLog;
use crate::fs::done::{ALL_PAGES, Invalidate};
use crate::fs::errno::errno;
use crate::fs::mounted::Mounted;
use crate::fs::namespace::{Namespace, Node};
use crate::fs::types::{Errno, FsResult, Handle, Ino, OpenMode, Opened};
use crate::fs::views::{Bytes, Class, Host, Text};
use foldhash::{HashMap, HashMapExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module's description.
pub struct OpenFiles {
    mounted: Arc<Mounted>,
    namespace: Arc<Namespace>,
    changes: Arc<ChangeLog>,
    files: RwLock<HashMap<u64, Arc<OpenFile>>>,
    next_handle: AtomicU64,
    /// Writers of datasets.
    pub view_writers: ViewWriters,
}

/// Checks that `node` can be written to.
pub fn check_writable(mounted: &Mounted, node: &Node) -> FsResult<()> {
    mounted.editor()?;
    let file = matches!(node.item.class, Class::Dataset | Class::File);
    match node.item.class {
        Class::Broken => Err(Errno(libc::EIO)),
        _ if !file || node.item.editable().is_none() => Err(Errno(libc::EACCES)),
        _ if node.item.writable().is_none() => Err(Errno(libc::EROFS)),
        _ => Ok(()),
    }
}

impl OpenFiles {
    /// No files are open yet.
    pub fn new(mounted: Arc<Mounted>, namespace: Arc<Namespace>, changes: Arc<ChangeLog>) -> Self {
        let (files, next_handle, view_writers) = (RwLock::new(HashMap::new()), AtomicU64::new(1), ViewWriters::default());
        OpenFiles { mounted, namespace, changes, files, next_handle, view_writers }
    }

    fn bytes(&self, node: &Arc<Node>) -> FsResult<Box<dyn Bytes>> {
        if node.item.view.is_generated(&node.item) {
            self.mounted.inodes.store(self.namespace.nodes.len() as u64, Ordering::Relaxed);
            self.mounted.open_files.store(self.files.read().len() as u64, Ordering::Relaxed);
        }
        let bytes = node.item.view.open(&self.mounted.context(), node.clone());
        bytes.map_err(|e| self.mounted.failed(node.item.object(), &e))?.ok_or(Errno(libc::EIO))
    }

    /// Opens `node`. The lock of names is held.
    pub fn open(&self, node: &Arc<Node>, mode: OpenMode) -> FsResult<Opened> {
        if node.item.is_directory() {
            return Err(Errno(libc::EISDIR));
        }
        if mode.write {
            check_writable(&self.mounted, node)?;
        }
        let editable = node.item.editable().filter(|_| mode.write);
        let bypasses = editable.is_some_and(|edit| edit.bypasses_page_cache(mode));
        let direct_io = node.item.view.is_generated(&node.item) || bypasses;
        let state = self.mounted.state();
        let bytes = self.bytes(node)?;
        if mode.read && !mode.truncate && !direct_io {
            // The kernel reads nothing of a file without a size.
            bytes.size().map_err(|e| self.mounted.failed(node.item.object(), &e))?;
        }
        let handle = Handle(self.next_handle.fetch_add(1, Ordering::Relaxed));
        let mut holder = None;
        if let Some(edit) = self.mounted.connector.edit() {
            if let Some(view) = editable {
                if self.view_writers.enter(node)? {
                    self.end_flushed_writers(node.item.owner, edit);
                }
                view.open_writer(&self.mounted.context(), &**node).inspect_err(|_| self.view_writers.leave(node))?;
            }
            let id = node.item.owner.filter(|id| id.is_own());
            id.into_iter().for_each(|id| edit.hold(id));
            self.namespace.opened(node);
            let end = WrittenEnd::new(node);
            holder = Some(Holder { handle, node: node.clone(), id, writer: editable, bypasses, end });
        }
        // Were the pages dropped now, the kernel could read one again that a write is about to
        // change, and keep the old bytes.
        let writes_pages = holder.as_ref().is_some_and(Holder::writes_pages);
        let is_written = if writes_pages { node.enter_page_writer() } else { node.has_page_writers() };
        let is_written = node.note_changes(self.mounted.connector.changes_by_others()) && is_written;
        self.files.write().insert(handle.0, Arc::new(OpenFile::new(bytes, state, holder)));
        // Pages of another state are dropped, should they have come after the kernel was notified
        // of the change.
        let same = self.mounted.connector.follow().is_none() || node.note_opened(state);
        let keep_cache = !direct_io && same && (is_written || !self.mounted.changing);
        Ok(Opened { handle, keep_cache, direct_io, no_flush: !mode.write })
    }

    /// Ends what was set for the bytes of writers of `id` if all of them flushed their bytes: after
    /// `close` has returned, the file may still be open for the daemon.
    fn end_flushed_writers(&self, id: Option<ObjectId>, edit: &dyn Edit) {
        let (Some(id), Some(erase)) = (id.filter(|id| id.is_own()), edit.erase()) else { return };
        let writes = |holder: &Holder| holder.writer.is_some() && holder.id == Some(id);
        if !self.files.read().values().any(|file| file.is_written() && file.holder.as_ref().is_some_and(writes)) {
            erase.writer_closed(id);
        }
    }

    /// The open file `handle`.
    pub fn get(&self, handle: Handle) -> FsResult<Arc<OpenFile>> {
        self.files.read().get(&handle.0).cloned().ok_or(Errno(libc::EBADF))
    }

    /// The open file `handle` of `ino`, in the present state of the container.
    pub fn current(&self, ino: Ino, handle: Handle) -> FsResult<Arc<OpenFile>> {
        let file = self.get(handle)?;
        match self.mounted.connector.follow() {
            Some(f) if f.state() != file.state => self.open_again(ino, handle),
            _ => Ok(file),
        }
    }

    fn open_again(&self, ino: Ino, handle: Handle) -> FsResult<Arc<OpenFile>> {
        let state = self.mounted.state();
        let bytes = self.bytes(&self.namespace.living(ino)?)?;
        let file = Arc::new(OpenFile::new(bytes, state, None));
        if let Some(there) = self.files.write().get_mut(&handle.0) {
            *there = file.clone();
        }
        Ok(file)
    }

    /// Drops the bytes of files that show another state: the next read opens them again.
    pub fn close_outdated(&self) {
        let state = self.mounted.state();
        let mut outdated = Vec::new();
        for file in self.files.write().values_mut().filter(|f| f.state != state) {
            let empty = OpenFile::new(Box::new(Text(Vec::new())), file.state, None);
            outdated.push(std::mem::replace(file, Arc::new(empty)));
        }
    }

    /// Closes the file `handle`.
    pub fn release(&self, handle: Handle, invalidate: &mut Invalidate) {
        let file = self.files.write().remove(&handle.0);
        let Some(file) = file else { return };
        // A new file may lose its name.
        let view = file.holder.as_ref().and_then(|holder| Some((holder, holder.writer?)));
        if view.is_some_and(|(holder, view)| view.unlinked_by_close(&self.mounted.context(), &*holder.node).is_some()) {
            let _names = self.namespace.lock_alone(&[]);
            return self.close(&file, invalidate);
        }
        let _names = self.namespace.lock_shared();
        self.close(&file, invalidate);
    }

    /// Ends what [`OpenFiles::open`] began.
    fn close(&self, file: &OpenFile, invalidate: &mut Invalidate) {
        let Some(holder) = &file.holder else { return };
        self.namespace.closed(&holder.node);
        if holder.writes_pages() {
            holder.node.leave_page_writer();
        }
        if let Some(view) = holder.writer {
            let cx = self.mounted.context();
            self.namespace.save_listings(view.unlinked_by_close(&cx, &*holder.node));
            let effects = view.close_writer(&cx, &*holder.node);
            self.changes.record(effects, invalidate);
            self.view_writers.leave(&holder.node);
        }
        if self.finish_elements(holder.id, true, invalidate).is_err() {
            tracing::warn!("{}: the bytes written make no elements: they stay as they were", escaped(&self.mounted.spec.file));
        }
        if let (Some(edit), Some(id)) = (self.mounted.connector.edit(), holder.id) {
            if let Some(erase) = edit.erase().filter(|_| holder.writer.is_some()) {
                erase.writer_closed(id);
            }
            edit.release(id);
        }
    }

    /// Closes all files.
    pub fn close_all(&self, invalidate: &mut Invalidate) {
        let open: Vec<_> = self.files.write().drain().map(|(_, file)| file).collect();
        open.iter().for_each(|file| self.close(file, invalidate));
    }

    /// Stores what views buffer of `node`.
    pub fn finish(&self, node: &Node, invalidate: &mut Invalidate) -> FsResult<()> {
        let Some(view) = node.item.writable().filter(|_| self.mounted.changing) else { return Ok(()) };
        if view.is_buffered() {
            self.namespace.save_listings(node.item.owner);
        }
        let effects = view.finish(&self.mounted.context(), node)?;
        self.changes.record(effects, invalidate);
        Ok(())
    }

    /// Stores elements that are only written as a whole; see
    /// [`crate::connector::edit::Edit::finish`].
    pub fn finish_elements(&self, id: Option<ObjectId>, last: bool, invalidate: &mut Invalidate) -> FsResult<()> {
        let (Ok(edit), Some(id)) = (self.mounted.editor(), id.filter(|id| id.is_own())) else { return Ok(()) };
        let finished = edit.finish(id, last).map_err(|e| {
            tracing::warn!("{}: object at {}: {e}", escaped(&self.mounted.spec.file), id);
            errno(&e)
        })?;
        if finished {
            self.mounted.note_uncommitted();
            // Strings and sequences may read back in another form than they were written.
            invalidate.pages.extend(self.namespace.nodes.open_on(id).into_iter().map(|ino| (ino, ALL_PAGES)));
            // The size that a file shows, open or not, is that of its form.
            invalidate.attributes.extend(self.namespace.nodes.of_object(id).iter().map(|node| node.ino));
        }
        Ok(())
    }
}
