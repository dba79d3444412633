//! Reads and writes of open files of the tree.

use super::handles::OpenHandle;
use super::mirror_fs::errno;
use crate::base::waiting;
use crate::fs::open::Entry;
use crate::fs::types::{Errno, FsResult, OpenMode, Whence};
use nix::fcntl::{FallocateFlags, copy_file_range, fallocate};
use nix::unistd::lseek;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};

fn system(e: nix::errno::Errno) -> Errno {
    Errno(e as i32)
}

/// Fills the front of `buf` from `offset`; fewer bytes only at EOF.
pub fn read_full(file: &File, buf: &mut [u8], offset: u64) -> FsResult<usize> {
    waiting::may_wait();
    let mut done = 0usize;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(n) => done = done.saturating_add(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(errno(&e)),
        }
    }
    Ok(done)
}

/// Writes all of `data`. `mode`: flags of the descriptor now, and of this write.
pub fn write_to(open: &OpenHandle, file: &File, offset: u64, data: &[u8], mode: OpenMode) -> FsResult<usize> {
    waiting::may_wait();
    if mode.clears_set_id {
        clear_set_id(file).map_err(|e| errno(&e))?;
    }
    file.write_all_at(data, offset).map_err(|e| errno(&e))?;
    if mode.sync && !open.mode.sync {
        file.sync_data().map_err(|e| errno(&e))?;
    }
    Ok(data.len())
}

/// Clears the set-ID bits of a file that a process without `CAP_FSETID` writes to.
fn clear_set_id(file: &File) -> io::Result<()> {
    let mode = Entry::of(file)?.mode & 0o7777;
    let group = if mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
    match mode & !(libc::S_ISUID | group) {
        cleared if cleared == mode => Ok(()),
        cleared => file.set_permissions(Permissions::from_mode(cleared)),
    }
}

/// The next data or hole at or after `offset`; `ENXIO` past the end.
pub fn seek(file: &File, offset: u64, whence: Whence) -> FsResult<u64> {
    let whence = match whence {
        Whence::Data => nix::unistd::Whence::SeekData,
        Whence::Hole => nix::unistd::Whence::SeekHole,
    };
    let found = lseek(file.as_fd(), i64::try_from(offset).map_err(|_| Errno(libc::ENXIO))?, whence).map_err(system)?;
    u64::try_from(found).map_err(|_| Errno(libc::EIO))
}

/// Allocates, zeroes or punches; `mode` is that of fallocate(2).
pub fn allocate(file: &File, offset: u64, len: u64, mode: i32) -> FsResult<()> {
    let flags = FallocateFlags::from_bits(mode).ok_or(Errno(libc::EOPNOTSUPP))?;
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return Err(Errno(libc::EFBIG)) };
    waiting::may_wait();
    fallocate(file.as_fd(), flags, offset, len).map_err(system)
}

/// Copies bytes between two files; returns how many, perhaps fewer than `len`.
pub fn copy_files(from: (&File, u64), to: (&File, u64), len: u64) -> FsResult<u64> {
    let (Ok(mut at), Ok(mut target)) = (i64::try_from(from.1), i64::try_from(to.1)) else { return Err(Errno(libc::EINVAL)) };
    waiting::may_wait();
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let copied = copy_file_range(from.0.as_fd(), Some(&mut at), to.0.as_fd(), Some(&mut target), len).map_err(system)?;
    Ok(copied as u64)
}
