//! `fuser::Filesystem` over [`Operations`]: each request is translated, guarded and answered.
//!
//! Rules of the kernel's protocol are applied here and never reach [`Operations`]: EROFS of a
//! read-only file system, the `user.` namespace as the only one with extended attributes, and the
//! size protocol of extended attributes.

use super::apart::Apart;
use super::busy_poll::BusyPoll;
use super::event_loops::{EventLoops, RequestKind, Turn};
use super::guard::guard;
use super::kernel::{CacheTimes, Kernel};
use super::reply::{
    absent, clears_set_id, creator, errno, file_attr, file_type, ino, listed, may, open_flags, open_mode, reply_empty, reply_xattr, time,
};
use super::served::Served;
use crate::fs::done::ALL_PAGES;
use crate::fs::{Changes, Errno, Handle, OpenMode, Operations, Sight, Whence};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// Largest request, bytes. The kernel's own bound is 256 pages (`fs.fuse.max_pages_limit`).
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Most bytes copied by one request: the answer has 32 bits.
const COPY_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a write that counts as a change that takes little time.
const SMALL_WRITE_BYTES: usize = 128 << 10;
/// Background requests (readahead, direct I/O) that may be in flight.
const BACKGROUND_REQUESTS: u16 = 64;

/// Features requested if the kernel has them.
const CAPABILITIES: [InitFlags; 6] = [
    // The file system clears set-ID bits: else the kernel asks for capabilities before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
];

/// Takes the requests of a mount.
pub struct Adapter {
    served: Arc<Served>,
    readahead: u32,
    /// The event loops of a writable file system.
    event_loops: Option<Arc<EventLoops>>,
    apart: Arc<Apart>,
}

impl Adapter {
    /// Serves `operations` by `loops` event loops; `readahead` in bytes.
    pub fn new(operations: Arc<dyn Operations>, times: CacheTimes, readahead: u32, loops: usize, busy_poll: BusyPoll) -> Self {
        let served = Arc::new(Served::new(operations, times));
        let event_loops = (served.writable && loops > 1).then(|| EventLoops::new(loops, busy_poll));
        Adapter { served, readahead, event_loops, apart: Arc::default() }
    }

    /// Marks a request as being served until the result is dropped, after the answer.
    fn turn(&self, kind: RequestKind) -> Option<Turn<'_>> {
        self.event_loops.as_ref().map(|event_loops| event_loops.turn(kind))
    }

    /// Serves a request that may have to wait: apart if no other event loop takes requests.
    fn serve(&self, kind: RequestKind, request: impl FnOnce(&Served) + Send + 'static) {
        let turn = self.turn(kind);
        if turn.as_ref().is_some_and(Turn::is_last) { self.apart(request) } else { request(&self.served) }
    }

    /// Serves a request while this event loop takes others.
    fn apart(&self, request: impl FnOnce(&Served) + Send + 'static) {
        let served = self.served.clone();
        self.apart.serve(move || request(&served));
    }

    /// The event loops of a writable file system.
    pub fn event_loops(&self) -> Option<Arc<EventLoops>> {
        self.event_loops.clone()
    }

    /// Takes the notifier of the session.
    pub fn kernel(&self) -> Kernel {
        self.served.kernel.clone()
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.apart.wait();
    }
}

impl Filesystem for Adapter {
    // This must not panic: the kernel would wait forever for the answer to INIT (fuser issue 271).
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let is_wanted = |c: &InitFlags| *c != InitFlags::FUSE_DO_READDIRPLUS || self.served.operations.lists_attributes();
        for capability in CAPABILITIES.iter().filter(|c| is_wanted(c)) {
            let _ = config.add_capabilities(*capability);
        }
        if !self.served.operations.names_may_change() {
            // In a writable mount the target of a link changes when the link is moved.
            let _ = config.add_capabilities(InitFlags::FUSE_CACHE_SYMLINKS);
        }
        self.served.passthrough.request(&*self.served.operations, config);
        self.served.request_mappings(config);
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_REQUESTS);
        if let Err(most) = config.set_max_readahead(self.readahead.max(4096)) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turn(RequestKind::Other);
        let (CacheTimes { absent: ttl, attr, .. }, is_volatile) = (self.served.times, || self.served.operations.is_volatile(ino(parent)));
        match guard("lookup", ino(parent), || self.served.operations.lookup(ino(parent), name.as_bytes())) {
            Ok(e) => reply.entry_with_ttls(
                &self.served.attr_time(&e.attr),
                &self.served.entry_time(&e),
                &file_attr(&e.attr),
                Generation(e.generation),
            ),
            Err(Errno(libc::ENOENT)) if !ttl.is_zero() && !is_volatile() => reply.entry_with_ttls(&attr, &ttl, &absent(), Generation(0)),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn forget(&self, _req: &Request, n: INodeNo, nlookup: u64) {
        let _turn = self.turn(RequestKind::Other);
        let _ = guard("forget", ino(n), || {
            self.served.operations.forget(ino(n), nlookup);
            Ok(())
        });
    }

    fn getattr(&self, _req: &Request, n: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let _turn = self.turn(RequestKind::Other);
        match guard("getattr", ino(n), || self.served.operations.getattr(ino(n))) {
            Ok(attr) => reply.attr(&self.served.attr_time(&attr), &file_attr(&attr)),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn readlink(&self, _req: &Request, n: INodeNo, reply: ReplyData) {
        let _turn = self.turn(RequestKind::Other);
        match guard("readlink", ino(n), || self.served.operations.readlink(ino(n))) {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn open(&self, req: &Request, n: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turn(RequestKind::Other);
        let mode = self.served.open_mode(flags);
        if mode.write && !self.served.writable {
            return reply.error(fuser::Errno::EROFS);
        }
        let open = || {
            self.served.check_sight(req, n, Sight::Bytes)?;
            self.served.operations.open(ino(n), mode)
        };
        match guard("open", ino(n), open) {
            Ok(opened) => {
                let (handle, flags) = (FileHandle(opened.handle.0), open_flags(&opened));
                match self.served.passthrough.backing(&*self.served.operations, n, opened.handle, |file| reply.open_backing(file)) {
                    Some(backing) => reply.opened_passthrough(handle, flags - FopenFlags::FOPEN_KEEP_CACHE, &backing),
                    None => reply.opened(handle, flags),
                }
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        n: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _turn = self.turn(RequestKind::Long);
        self.served.read(n, Handle(fh.0), offset, size, flags.0 & libc::O_DIRECT != 0, reply);
    }

    fn release(
        &self,
        _req: &Request,
        n: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        // Of a file that was written it may change all.
        self.serve(RequestKind::Other, move |served| {
            let closed = guard("release", ino(n), || Ok(served.operations.release(ino(n), Handle(fh.0))));
            closed.into_iter().for_each(|invalidate| drop(served.invalidate(invalidate)));
            served.passthrough.released(n);
            reply.ok();
        });
    }

    fn opendir(&self, _req: &Request, n: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turn(RequestKind::Other);
        let mut flags = FopenFlags::empty();
        // A listing may be cached as long as the names in it, unless names change.
        let kept =
            !self.served.times.entry.is_zero() && !self.served.operations.names_may_change() && !self.served.operations.is_volatile(ino(n));
        flags.set(FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE, kept);
        match guard("opendir", ino(n), || self.served.operations.opendir(ino(n))) {
            Ok(handle) => reply.opened(FileHandle(handle.0), flags),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn readdir(&self, _req: &Request, n: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let _turn = self.turn(RequestKind::Long);
        let mut count = 0;
        let result = guard("readdir", ino(n), || {
            self.served.operations.readdir(ino(n), Handle(fh.0), offset, &mut |e| {
                if reply.add(INodeNo(e.ino.0), e.next, file_type(e.kind), OsStr::from_bytes(e.name)) {
                    return ControlFlow::Break(());
                }
                count += 1;
                ControlFlow::Continue(())
            })
        });
        match listed(result, count) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn readdirplus(&self, _req: &Request, n: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let _turn = self.turn(RequestKind::Long);
        let mut count = 0;
        let result = guard("readdirplus", ino(n), || {
            self.served.operations.readdirplus(ino(n), Handle(fh.0), offset, &mut |e| {
                let (attr, ttl) = (file_attr(&e.entry.attr), self.served.entry_time(&e.entry).min(self.served.attr_time(&e.entry.attr)));
                if reply.add(attr.ino, e.next, OsStr::from_bytes(e.name), &ttl, &attr, Generation(e.entry.generation)) {
                    return ControlFlow::Break(());
                }
                count += 1;
                ControlFlow::Continue(())
            })
        });
        match listed(result, count) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn releasedir(&self, _req: &Request, n: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        let _turn = self.turn(RequestKind::Other);
        let _ = guard("releasedir", ino(n), || {
            self.served.operations.releasedir(ino(n), Handle(fh.0));
            Ok(())
        });
        reply.ok();
    }

    fn statfs(&self, _req: &Request, n: INodeNo, reply: ReplyStatfs) {
        let _turn = self.turn(RequestKind::Other);
        match guard("statfs", ino(n), || self.served.operations.statfs()) {
            Ok(s) => reply.statfs(s.blocks, s.free, s.free, s.files, 0, s.block_size, s.name_max, s.block_size),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn getxattr(&self, req: &Request, n: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _turn = self.turn(RequestKind::Other);
        // `ls -l` and `exec` ask for security.* and system.* of every file. After EOPNOTSUPP they
        // ask no more in this file system.
        if !name.as_bytes().starts_with(b"user.") {
            return reply.error(fuser::Errno::EOPNOTSUPP);
        }
        let get = || {
            self.served.check_sight(req, n, Sight::Xattr(name.as_bytes()))?;
            self.served.operations.getxattr(ino(n), name.as_bytes())
        };
        reply_xattr(guard("getxattr", ino(n), get), size, reply);
    }

    fn listxattr(&self, _req: &Request, n: INodeNo, size: u32, reply: ReplyXattr) {
        let _turn = self.turn(RequestKind::Other);
        reply_xattr(guard("listxattr", ino(n), || self.served.operations.listxattr(ino(n))), size, reply);
    }

    fn lseek(&self, _req: &Request, n: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let _turn = self.turn(RequestKind::Long);
        let whence = match whence {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(fuser::Errno::ENXIO);
        };
        match guard("lseek", ino(n), || self.served.operations.lseek(ino(n), Handle(fh.0), offset, whence)) {
            Ok(found) => match i64::try_from(found) {
                Ok(found) => reply.offset(found),
                Err(_) => reply.error(fuser::Errno::EOVERFLOW),
            },
            Err(e) => reply.error(errno(e)),
        }
    }

    // After ENOSYS the kernel sends none of these requests again, and they succeed.

    fn flush(&self, _req: &Request, n: INodeNo, fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        self.serve(RequestKind::Long, move |served| served.change_and_wait("flush", n, reply, |o| o.flush(ino(n), Handle(fh.0))));
    }

    fn fsync(&self, _req: &Request, n: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.serve(RequestKind::Long, move |served| served.change_and_wait("fsync", n, reply, |o| o.fsync(ino(n))));
    }

    fn fsyncdir(&self, _req: &Request, n: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.serve(RequestKind::Long, move |served| served.change_and_wait("fsyncdir", n, reply, |o| o.fsync(ino(n))));
    }

    /// Sent only where the kernel does not check modes: in a mount that only root can use.
    fn access(&self, req: &Request, n: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let _turn = self.turn(RequestKind::Other);
        match guard("access", ino(n), || self.served.operations.getattr(ino(n))) {
            Ok(attr) if may(&attr, req.uid(), req.gid(), mask.bits()) => reply.ok(),
            Ok(_) => reply.error(fuser::Errno::EACCES),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn poll(&self, _r: &Request, _i: INodeNo, _f: FileHandle, _p: PollNotifier, _e: PollEvents, _flags: PollFlags, reply: ReplyPoll) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn bmap(&self, _req: &Request, _ino: INodeNo, _blocksize: u32, _idx: u64, reply: ReplyBmap) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn ioctl(&self, _r: &Request, _i: INodeNo, _f: FileHandle, _fl: IoctlFlags, _cmd: u32, _in: &[u8], _out: u32, reply: ReplyIoctl) {
        reply.error(fuser::Errno::ENOTTY);
    }

    fn getlk(&self, _r: &Request, _i: INodeNo, _f: FileHandle, _o: LockOwner, _s: u64, _e: u64, _t: i32, _p: u32, reply: ReplyLock) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn setlk(
        &self,
        _r: &Request,
        _i: INodeNo,
        _f: FileHandle,
        _o: LockOwner,
        _s: u64,
        _e: u64,
        _t: i32,
        _p: u32,
        _w: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    // Changes: EROFS in a read-only file system.

    fn setattr(
        &self,
        req: &Request,
        n: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let clears_set_id = size.is_some() && clears_set_id(req);
        let changes =
            Changes { size, by_path: fh.is_none(), mtime: mtime.map(time), atime: atime.map(time), mode, uid, gid, clears_set_id };
        self.serve(RequestKind::Change, move |served| match served.change("setattr", n, |o| o.setattr(ino(n), &changes)) {
            Ok(attr) => reply.attr(&served.times.attr, &file_attr(&attr)),
            Err(e) => reply.error(errno(e)),
        });
    }

    fn mknod(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, _rdev: u32, reply: ReplyEntry) {
        // The file system has no devices, pipes or sockets.
        if !matches!(mode & libc::S_IFMT, 0 | libc::S_IFREG) {
            let refusal = if self.served.writable { fuser::Errno::EPERM } else { fuser::Errno::EROFS };
            return reply.error(refusal);
        }
        let (name, by) = (name.to_owned(), creator(req, mode));
        self.serve(RequestKind::Change, move |served| {
            served.reply_entry(served.change("mknod", parent, |o| o.mknod(ino(parent), name.as_bytes(), by)), reply);
        });
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let (name, by) = (name.to_owned(), creator(req, mode));
        self.serve(RequestKind::Change, move |served| {
            served.reply_entry(served.change("mkdir", parent, |o| o.mkdir(ino(parent), name.as_bytes(), by)), reply);
        });
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.serve(RequestKind::Change, move |served| {
            reply_empty(served.change("unlink", parent, |o| o.unlink(ino(parent), name.as_bytes())), reply);
        });
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.serve(RequestKind::Change, move |served| {
            reply_empty(served.change("rmdir", parent, |o| o.rmdir(ino(parent), name.as_bytes())), reply);
        });
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (name, target, by) = (name.to_owned(), target.as_os_str().to_owned(), creator(req, 0o777));
        self.serve(RequestKind::Change, move |served| {
            let made = |o: &dyn Operations| o.symlink(ino(parent), name.as_bytes(), target.as_bytes(), by);
            served.reply_entry(served.change("symlink", parent, made), reply);
        });
    }

    fn rename(&self, _req: &Request, p: INodeNo, name: &OsStr, new: INodeNo, new_name: &OsStr, flags: RenameFlags, reply: ReplyEmpty) {
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        self.serve(RequestKind::Change, move |served| {
            let (from, to) = ((ino(p), name.as_bytes()), (ino(new), new_name.as_bytes()));
            reply_empty(served.change("rename", p, |o| o.rename(from, to, flags.bits())), reply);
        });
    }

    fn link(&self, _req: &Request, n: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.serve(RequestKind::Change, move |served| {
            served.reply_entry(served.change("link", n, |o| o.link(ino(n), ino(parent), name.as_bytes())), reply);
        });
    }

    fn write(
        &self,
        _req: &Request,
        n: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let turn = self.turn(if data.len() <= SMALL_WRITE_BYTES { RequestKind::Change } else { RequestKind::Long });
        if !self.served.writable {
            return reply.error(fuser::Errno::EROFS);
        }
        // fcntl(2) may have cleared O_APPEND, and pwritev2(2) may ask for O_DSYNC.
        let written_back = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let clears_set_id = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let (file, mode) = (Handle(fh.0), OpenMode { written_back, clears_set_id, ..open_mode(flags) });
        if turn.as_ref().is_some_and(Turn::is_last) {
            let data = data.to_vec();
            return self.apart(move |served| served.write(n, file, offset, &data, mode, reply));
        }
        self.served.write(n, file, offset, data, mode, reply);
    }

    fn setxattr(&self, _req: &Request, n: INodeNo, name: &OsStr, value: &[u8], flags: i32, _position: u32, reply: ReplyEmpty) {
        // Some change all of a dataset.
        let is_fact = name.as_bytes().starts_with(b"user.h5dir.");
        let kind = if is_fact { RequestKind::Long } else { RequestKind::Change };
        let (name, value) = (name.to_owned(), value.to_vec());
        self.serve(kind, move |served| {
            if is_fact && served.operations.has_stored_pages(ino(n)) {
                served.pages.drop_now(ino(n), ALL_PAGES);
            }
            reply_empty(served.change("setxattr", n, |o| o.setxattr(ino(n), name.as_bytes(), &value, flags)), reply);
        });
    }

    fn removexattr(&self, _req: &Request, n: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.serve(RequestKind::Change, move |served| {
            reply_empty(served.change("removexattr", n, |o| o.removexattr(ino(n), name.as_bytes())), reply);
        });
    }

    fn create(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, flags: i32, reply: ReplyCreate) {
        let (name, by) = (name.to_owned(), creator(req, mode));
        let clears_set_id = clears_set_id(req);
        let mode = OpenMode { truncate: flags & libc::O_TRUNC != 0, clears_set_id, ..self.served.open_mode(OpenFlags(flags)) };
        let exclusive = flags & libc::O_EXCL != 0;
        self.serve(RequestKind::Change, move |served| {
            let made = served.change("create", parent, |o| o.create(ino(parent), name.as_bytes(), by, mode, exclusive));
            served.reply_create(made, reply);
        });
    }

    fn fallocate(&self, _req: &Request, n: INodeNo, fh: FileHandle, offset: u64, length: u64, mode: i32, reply: ReplyEmpty) {
        self.serve(RequestKind::Long, move |served| {
            reply_empty(served.change("fallocate", n, |o| o.fallocate(ino(n), Handle(fh.0), offset, length, mode)), reply);
        });
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = ((Handle(fh_in.0), offset_in), (Handle(fh_out.0), offset_out));
        self.serve(RequestKind::Long, move |served| {
            match served.change("copy_file_range", ino_out, |o| o.copy_range(from, to, len.min(COPY_BYTES_MAX))) {
                Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(u32::MAX)),
                // After EOPNOTSUPP the kernel reads and writes.
                Err(e) => reply.error(errno(e)),
            }
        });
    }
}
