//! One file in several members: each has a range of its addresses.
//!
//! Members are opened when they are read, at most [`OPEN_MAX`] at a time. Their lengths are those
//! of the time at which the file was opened.

use super::directory::Directory;
use super::posix::PosixFile;
use super::{FileDriver, Status, read_all, read_parts};
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use lru::LruCache;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::ffi::OsString;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

/// Members kept open.
const OPEN_MAX: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// A member.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its name in the directory.
    pub name: OsString,
    /// Address of its first byte.
    pub start: u64,
    /// Its length, bytes.
    pub len: u64,
}

/// A file in several members of one directory, for reading.
pub struct Members {
    directory: Directory,
    /// Ascending; none overlap.
    members: Vec<Member>,
    status: Status,
    opened: Mutex<LruCache<usize, Arc<PosixFile>>>,
}

impl Members {
    /// The file in `members` of `directory`, ascending by address. Errors: `EINVAL` if two overlap,
    /// those of looking at the first one.
    pub fn new(directory: Directory, members: Vec<Member>) -> io::Result<Members> {
        let overlap = members.windows(2).any(|pair| matches!(pair, [a, b] if a.start.checked_add(a.len).is_none_or(|end| end > b.start)));
        let end = members.last().and_then(|last| last.start.checked_add(last.len));
        let (Some(first), Some(len), false) = (members.first(), end, overlap) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let mut status = open(&directory, first)?.status()?;
        for member in members.iter().skip(1) {
            let Some(entry) = directory.entry(&member.name)? else { return Err(io::Error::from_raw_os_error(libc::ENOENT)) };
            status.mtime = status.mtime.max(entry.status.mtime);
            status.ctime = status.ctime.max(entry.status.ctime);
            status.allocated = status.allocated.saturating_add(entry.status.allocated);
        }
        status.len = len;
        Ok(Members { directory, members, status, opened: Mutex::new(lru_cache(OPEN_MAX)) })
    }

    fn file(&self, index: usize, member: &Member) -> io::Result<Arc<PosixFile>> {
        if let Some(file) = self.opened.lock().get(&index) {
            return Ok(file.clone());
        }
        // Opened without the lock: two threads may open the member twice; the later one is kept.
        let file = Arc::new(open(&self.directory, member)?);
        self.opened.lock().put(index, file.clone());
        Ok(file)
    }
}

fn open(directory: &Directory, member: &Member) -> io::Result<PosixFile> {
    PosixFile::from_file(directory.open_file(&member.name, OFlag::O_RDONLY, Mode::empty())?)
}

impl FileDriver for Members {
    fn status(&self) -> io::Result<Status> {
        Ok(self.status)
    }

    /// Addresses between members read as zeros.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        read_parts(self.status.len, buf, offset, &mut |rest, at| {
            let next = self.members.partition_point(|m| m.start <= at);
            let index = next.checked_sub(1);
            let inside = index.and_then(|i| Some((i, self.members.get(i)?))).filter(|(_, m)| at.saturating_sub(m.start) < m.len);
            let end = match inside {
                Some((_, m)) => m.start.saturating_add(m.len),
                None => self.members.get(next).map_or(self.status.len, |m| m.start),
            };
            let n = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(rest.len());
            let part = rest.get_mut(..n).unwrap_or_default();
            match inside {
                None => part.fill(0),
                Some((i, m)) => {
                    if read_all(&*self.file(i, m)?, part, at.saturating_sub(m.start))? < n {
                        // It became shorter.
                        return Err(io::Error::from_raw_os_error(libc::EIO));
                    }
                }
            }
            Ok(n)
        })
    }

    fn gaps(&self) -> Vec<Range<u64>> {
        let between = self.members.windows(2).filter_map(|pair| match pair {
            [a, b] => Some(a.start.saturating_add(a.len)..b.start),
            _ => None,
        });
        between.filter(|gap| !gap.is_empty()).collect()
    }

    /// The end of the addresses between two members.
    fn hole_end(&self, offset: u64) -> Option<u64> {
        let next = self.members.partition_point(|m| m.start <= offset);
        let before = next.checked_sub(1).and_then(|i| self.members.get(i));
        let is_gap = before.is_none_or(|m| offset.saturating_sub(m.start) >= m.len);
        self.members.get(next).filter(|_| is_gap).map(|m| m.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(parts: &[(u64, &[u8])]) -> (tempfile::TempDir, io::Result<Members>) {
        let dir = tempfile::tempdir().unwrap();
        let mut all = Vec::new();
        for (i, (start, bytes)) in parts.iter().enumerate() {
            std::fs::write(dir.path().join(i.to_string()), bytes).unwrap();
            all.push(Member { name: i.to_string().into(), start: *start, len: bytes.len() as u64 });
        }
        let opened = Members::new(Directory::open(dir.path()).unwrap(), all);
        (dir, opened)
    }

    #[test]
    fn reads_cross_members_and_gaps() {
        let (dir, opened) = members(&[(0, b"abc"), (3, b"de"), (8, b"fgh")]);
        let file = opened.unwrap();
        let mut buf = [9; 20];
        assert_eq!((file.read_at(&mut buf, 1).unwrap(), &buf[..10]), (10, &b"bcde\0\0\0fgh"[..]));
        assert!(file.gaps().iter().eq(&std::iter::once(5..8).collect::<Vec<_>>()));
        assert_eq!(file.read_at(&mut buf, 11).unwrap(), 0);
        assert_eq!((file.hole_end(4), file.hole_end(5), file.hole_end(8)), (None, Some(8), None));
        std::fs::write(dir.path().join("1"), "d").unwrap();
        assert!(file.read_at(&mut buf, 0).is_err() && file.read_at(&mut buf, 8).is_ok());
    }

    #[test]
    fn members_do_not_overlap() {
        assert!(members(&[(0, b"abc"), (2, b"de")]).1.is_err() && members(&[(0, b"a"), (u64::MAX, b"b")]).1.is_err());
        assert!(members(&[]).1.is_err());
    }
}
