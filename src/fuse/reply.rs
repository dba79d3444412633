//! Converts between the types of `fuser` and those of the file system.

use crate::fs::{Attr, Creator, Errno, FileKind, FsResult, Ino, OpenMode, Opened};
use fuser::{FileAttr, FileType, FopenFlags, INodeNo, OpenAccMode, OpenFlags, ReplyEmpty, ReplyXattr, Request, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Largest value or list of extended attributes (XATTR_SIZE_MAX), bytes.
const XATTR_BYTES_MAX: usize = 65_536;

pub(super) fn open_flags(opened: &Opened) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct_io);
    flags.set(FopenFlags::FOPEN_NOFLUSH, opened.no_flush);
    flags
}

pub(super) fn open_mode(flags: OpenFlags) -> OpenMode {
    let access = flags.acc_mode();
    let (append, truncate) = (flags.0 & libc::O_APPEND != 0, flags.0 & libc::O_TRUNC != 0);
    let write = access != OpenAccMode::O_RDONLY || append || truncate;
    OpenMode { read: access != OpenAccMode::O_WRONLY, write, append, sync: flags.0 & libc::O_DSYNC != 0, ..OpenMode::default() }
}

pub(super) fn reply_empty(result: FsResult<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(e)),
    }
}

pub(super) fn time(t: TimeOrNow) -> SystemTime {
    match t {
        TimeOrNow::SpecificTime(t) => with_nanoseconds(t),
        TimeOrNow::Now => SystemTime::now(),
    }
}

/// Corrects a time before 1970: `fuser` subtracts its nanoseconds instead of adding them.
fn with_nanoseconds(t: SystemTime) -> SystemTime {
    let nanoseconds = UNIX_EPOCH.duration_since(t).map_or(0, |before| u64::from(before.subsec_nanos()));
    t.checked_add(Duration::from_nanos(nanoseconds.saturating_mul(2))).unwrap_or(t)
}

/// The process that creates a file of `mode`.
pub(super) fn creator(req: &Request, mode: u32) -> Creator {
    Creator { uid: req.uid(), gid: req.gid(), mode }
}

/// True if a change of bytes by the process clears set-ID bits. `fuser` does not pass on the
/// kernel's answer (`FATTR_KILL_SUIDGID`), except for writes.
pub(super) fn clears_set_id(req: &Request) -> bool {
    req.uid() != 0
}

pub(super) fn ino(n: INodeNo) -> Ino {
    Ino(n.0)
}

pub(super) fn errno(e: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(e.0)
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Directory => FileType::Directory,
        FileKind::Regular => FileType::RegularFile,
        FileKind::Symlink => FileType::Symlink,
    }
}

pub(super) fn file_attr(a: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(a.ino.0),
        size: a.size,
        blocks: a.blocks,
        atime: a.atime,
        mtime: a.mtime,
        ctime: a.ctime,
        crtime: a.btime,
        kind: file_type(a.kind),
        perm: a.perm & 0o7777,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: 0,
        blksize: a.blksize,
        flags: 0,
    }
}

/// True if a process has the access of `mask` (R_OK, W_OK, X_OK).
pub(super) fn may(attr: &Attr, uid: u32, gid: u32, mask: i32) -> bool {
    let mask = (mask & 7) as u16;
    if uid == 0 {
        // The rule of CAP_DAC_OVERRIDE.
        let runs = attr.kind == FileKind::Directory || attr.perm & 0o111 != 0;
        return mask & libc::X_OK as u16 == 0 || runs;
    }
    let class = if uid == attr.uid {
        attr.perm >> 6
    } else if gid == attr.gid {
        attr.perm >> 3
    } else {
        attr.perm
    };
    class & mask == mask
}

/// Attributes of a missing name: inode 0 makes the kernel cache its absence.
pub(super) fn absent() -> FileAttr {
    file_attr(&attr_absent())
}

fn attr_absent() -> Attr {
    Attr { nlink: 0, blksize: 0, ..Attr::empty(Ino(0), FileKind::Regular, 0, UNIX_EPOCH) }
}

/// Answers an extended attribute's size (`size` 0), its bytes, or why they do not fit.
pub(super) fn reply_xattr(result: FsResult<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match result {
        Err(e) => reply.error(errno(e)),
        Ok(value) if value.len() > XATTR_BYTES_MAX => reply.error(fuser::Errno::E2BIG),
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}

/// The answer to a listing with `count` entries in the reply. An error after the first entry waits
/// for the next request, because these entries count as looked up.
pub(super) fn listed(result: FsResult<()>, count: usize) -> Result<(), fuser::Errno> {
    if count > 0 { Ok(()) } else { result.map_err(errno) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{R_OK, W_OK, X_OK};

    #[test]
    fn access_follows_modes_and_root_executes_programs_only() {
        let attr = |kind, perm| Attr { kind, perm, uid: 1, gid: 2, ..attr_absent() };
        let file = attr(FileKind::Regular, 0o640);
        assert!(may(&file, 0, 0, R_OK | W_OK) && !may(&file, 0, 0, X_OK));
        assert!(may(&attr(FileKind::Regular, 0o001), 0, 0, X_OK) && may(&attr(FileKind::Directory, 0), 0, 0, X_OK));
        assert!(may(&file, 1, 9, R_OK | W_OK) && may(&file, 9, 2, R_OK) && !may(&file, 9, 2, W_OK) && !may(&file, 9, 9, R_OK));
    }
}
