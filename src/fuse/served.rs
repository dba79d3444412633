//! What answers requests: the operations of a file system, and what the kernel caches of it.

use super::guard::{guard, guard_done};
use super::kernel::{CacheTimes, Kernel};
use super::page_invalidation::PageInvalidation;
use super::passthrough::Passthrough;
use super::reply::{errno, file_attr, ino, open_flags, open_mode, reply_empty};
use crate::base::metrics;
use crate::fs::page_guard::PageGuard;
use crate::fs::{Attr, Caller, Done, Entry, Errno, FsResult, Grown, Handle, Ino, Invalidate, OpenMode, Opened, Operations, Sight};
use fuser::{
    FileHandle, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, OpenFlags, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyWrite, Request,
};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

thread_local! {
    /// Reply buffer of this thread: grown and zeroed once, then reused by each read.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A file system that FUSE serves.
pub struct Served {
    pub(super) operations: Arc<dyn Operations>,
    pub(super) writable: bool,
    pub(super) times: CacheTimes,
    pub(super) kernel: Kernel,
    pub(super) pages: PageInvalidation,
    pub(super) passthrough: Passthrough,
    /// The kernel maps files whose descriptors bypass the page cache.
    maps_direct: AtomicBool,
}

impl Served {
    /// Serves `operations`.
    pub fn new(operations: Arc<dyn Operations>, times: CacheTimes) -> Self {
        let (writable, kernel) = (operations.is_writable(), Kernel::default());
        let (pages, passthrough) = (PageInvalidation::new(kernel.clone()), Passthrough::default());
        Served { operations, writable, times, kernel, pages, passthrough, maps_direct: AtomicBool::new(false) }
    }

    /// Asks for shared mappings of files whose descriptors bypass the page cache (Linux 6.6).
    pub(super) fn request_mappings(&self, config: &mut KernelConfig) {
        let granted = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        self.maps_direct.store(granted, Ordering::Release);
    }

    /// How a file is opened by `flags`.
    pub(super) fn open_mode(&self, flags: OpenFlags) -> OpenMode {
        OpenMode { maps_direct: self.maps_direct.load(Ordering::Acquire), ..open_mode(flags) }
    }

    /// Checks that the process of `req` may see the paths that a text names. Root may, and the user
    /// of this process, who can read the file itself.
    pub(super) fn check_sight(&self, req: &Request, n: INodeNo, sight: Sight<'_>) -> FsResult<()> {
        match req.uid() == 0 || req.uid() == nix::unistd::geteuid().as_raw() {
            true => Ok(()),
            false => self.operations.check_sight(ino(n), sight, Caller { uid: req.uid(), gid: req.gid() }),
        }
    }

    /// Answers a read of `size` bytes. `direct`: past the page cache.
    pub(super) fn read(&self, n: INodeNo, file: Handle, offset: u64, size: u32, direct: bool, reply: ReplyData) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let buffer = buffer.get_mut(..size).unwrap_or_default();
            match guard("read", ino(n), || self.operations.read(ino(n), file, offset, buffer)) {
                Ok(count) => {
                    metrics::READ_BYTES.fetch_add(count as u64, Ordering::Relaxed);
                    // Past EOF the page caches what will be there when the file grows: growth does
                    // not invalidate it.
                    let past_eof = buffer.get_mut(count..).filter(|rest| count > 0 && !rest.is_empty() && !direct);
                    let padded = past_eof.is_some_and(|rest| self.operations.pad(file, offset.saturating_add(count as u64), rest));
                    reply.data(buffer.get(..count).filter(|_| !padded).unwrap_or(buffer));
                }
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    /// Answers a write. Pages that the write made stale are dropped before.
    pub(super) fn write(&self, n: INodeNo, file: Handle, offset: u64, data: &[u8], mode: OpenMode, reply: ReplyWrite) {
        let done = guard_done("write", ino(n), || self.operations.write(ino(n), file, offset, data, mode));
        let guard = self.invalidate(done.invalidate);
        let answer = move || match done.result {
            Ok(written) => {
                metrics::WRITTEN_BYTES.fetch_add(written as u64, Ordering::Relaxed);
                reply.written(u32::try_from(written).unwrap_or(u32::MAX));
            }
            Err(e) => reply.error(errno(e)),
        };
        match guard {
            Some(guard) => self.pages.drop_hidden(n, guard, answer),
            None => answer(),
        }
    }

    /// Has the kernel drop `attributes`. It keeps the pages of the inodes: to drop them it may have
    /// to wait for this daemon.
    fn drop_attributes(&self, attributes: &[Ino]) {
        let Some(kernel) = self.kernel.get() else { return };
        for n in attributes {
            if let Err(e) = kernel.inval_inode(INodeNo(n.0), -1, 0) {
                tracing::debug!("the kernel keeps the attributes of inode {n:?}: {e}");
            }
        }
    }

    /// Has the kernel take over the sizes of files that grew: a byte that is stored past the end of
    /// a file moves that.
    fn grow(&self, files: &[Grown]) {
        let Some(kernel) = self.kernel.get() else { return };
        for file in files {
            let Some(byte) = file.last_byte() else { continue };
            if let Err(e) = kernel.store(INodeNo(file.ino.0), file.last, &[byte]) {
                tracing::debug!("the kernel keeps the size of inode {:?}: {e}", file.ino);
            }
        }
    }

    /// Has the kernel drop what a change made stale; returns the guard of a write, whose pages must
    /// be dropped before the answer.
    pub(super) fn invalidate(&self, invalidate: Invalidate) -> Option<PageGuard> {
        self.pages.drop_later(invalidate.pages);
        self.pages.drop_names(invalidate.names);
        invalidate.pages_before_answer.into_iter().for_each(|(n, range)| self.pages.drop_now(n, range));
        self.grow(&invalidate.grown);
        self.drop_attributes(&invalidate.attributes);
        invalidate.guard
    }

    /// How long the kernel may cache a name.
    pub(super) fn entry_time(&self, entry: &Entry) -> Duration {
        if entry.volatile { Duration::ZERO } else { self.times.entry }
    }

    /// How long the kernel may cache attributes.
    pub(super) fn attr_time(&self, attr: &Attr) -> Duration {
        if attr.is_brief { Duration::ZERO } else { self.times.attr }
    }

    pub(super) fn reply_entry(&self, result: FsResult<Entry>, reply: ReplyEntry) {
        match result {
            Ok(e) => reply.entry_with_ttls(&self.attr_time(&e.attr), &self.entry_time(&e), &file_attr(&e.attr), Generation(e.generation)),
            Err(e) => reply.error(errno(e)),
        }
    }

    /// Answers a creation with the entry and the open file.
    pub(super) fn reply_create(&self, made: FsResult<(Entry, Opened)>, reply: ReplyCreate) {
        let (e, opened) = match made {
            Ok(made) => made,
            Err(e) => return reply.error(errno(e)),
        };
        // The reply has one timeout for the name and the attributes.
        let ttl = self.entry_time(&e).min(self.times.attr);
        let (attr, handle, flags) = (file_attr(&e.attr), FileHandle(opened.handle.0), open_flags(&opened));
        let open = |file| reply.open_backing(file);
        match self.passthrough.backing(&*self.operations, attr.ino, opened.handle, open) {
            Some(backing) => {
                let flags = flags - FopenFlags::FOPEN_KEEP_CACHE;
                reply.created_passthrough(&ttl, &attr, Generation(e.generation), handle, flags, &backing);
            }
            None => reply.created(&ttl, &attr, Generation(e.generation), handle, flags),
        }
    }

    /// Makes a change by `f` where changes are possible, and has the kernel drop what it made
    /// stale.
    pub(super) fn change<T>(&self, operation: &'static str, n: INodeNo, f: impl FnOnce(&dyn Operations) -> Done<T>) -> FsResult<T> {
        if !self.writable {
            return Err(Errno(libc::EROFS));
        }
        let done = guard_done(operation, ino(n), || f(&*self.operations));
        self.invalidate(done.invalidate);
        done.result
    }

    /// Answers a change made by `f` once all stale pages are dropped, also those of earlier
    /// changes.
    pub(super) fn change_and_wait(
        &self,
        operation: &'static str,
        n: INodeNo,
        reply: ReplyEmpty,
        f: impl FnOnce(&dyn Operations) -> Done<()>,
    ) {
        if !self.writable {
            return reply.error(fuser::Errno::ENOSYS);
        }
        let mut done = guard_done(operation, ino(n), || f(&*self.operations));
        let pages = std::mem::take(&mut done.invalidate.pages);
        self.invalidate(done.invalidate);
        self.pages.drop_then(pages, move || reply_empty(done.result, reply));
    }
}
