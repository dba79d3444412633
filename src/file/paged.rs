//! A file some of whose pages are in another file.

use super::posix::PosixFile;
use super::{FileDriver, Status, read_all, read_parts};
use std::io;

/// A file whose pages are in an original, or in a second file; for reading.
pub struct PagedFile {
    original: PosixFile,
    second: PosixFile,
    status: Status,
    /// Bytes of the original that count.
    original_len: u64,
    page_size: u64,
    /// Offsets of pages, and where they are in the second file; ascending.
    pages: Vec<(u64, u64)>,
}

impl PagedFile {
    /// The file of `len` bytes with the `pages` of `page_size` bytes in `second`, and the others in
    /// the first `original_len` bytes of `original`.
    pub fn new(
        (original, original_len): (PosixFile, u64),
        second: PosixFile,
        len: u64,
        page_size: u64,
        pages: Vec<(u64, u64)>,
    ) -> io::Result<PagedFile> {
        let (mut status, other) = (original.status()?, second.status()?);
        status.mtime = status.mtime.max(other.mtime);
        status.ctime = status.ctime.max(other.ctime);
        status.allocated = status.allocated.saturating_add(other.allocated);
        status.len = len;
        Ok(PagedFile { original, second, status, original_len, page_size: page_size.max(1), pages })
    }

    /// Fills `part`, which lies in the page at `page`, from `at`.
    fn read_page(&self, part: &mut [u8], page: u64, at: u64) -> io::Result<()> {
        if let Some((_, stored)) = self.pages.binary_search_by_key(&page, |p| p.0).ok().and_then(|i| self.pages.get(i)) {
            let from = stored.saturating_add(at.saturating_sub(page));
            let n = read_all(&self.second, part, from)?;
            return if n == part.len() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) };
        }
        let there = usize::try_from(self.original_len.saturating_sub(at)).unwrap_or(usize::MAX).min(part.len());
        let (front, rest) = part.split_at_mut(there);
        let n = read_all(&self.original, front, at)?;
        if let Some(missing) = front.get_mut(n..) {
            missing.fill(0);
        }
        rest.fill(0);
        Ok(())
    }

    /// The first stored page after `offset`; `u64::MAX` if there is none.
    fn next_page(&self, offset: u64) -> u64 {
        let next = self.pages.partition_point(|p| p.0 <= offset);
        self.pages.get(next).map_or(u64::MAX, |p| p.0)
    }
}

impl FileDriver for PagedFile {
    fn status(&self) -> io::Result<Status> {
        Ok(self.status)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        read_parts(self.status.len, buf, offset, &mut |rest, at| {
            let page = at.saturating_sub(at.checked_rem(self.page_size).unwrap_or(0));
            let is_stored = self.pages.binary_search_by_key(&page, |p| p.0).is_ok();
            // Pages of the original are read together.
            let end = if is_stored { page.saturating_add(self.page_size) } else { self.next_page(page) };
            let n = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(rest.len());
            self.read_page(rest.get_mut(..n).unwrap_or_default(), page, at).map(|()| n)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_replace_those_of_the_original() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            PosixFile::from_file(std::fs::File::open(path).unwrap()).unwrap()
        };
        let paged = PagedFile::new((file("a", "abcdefgh"), 7), file("b", "..WXYZ1234"), 14, 4, vec![(4, 2), (12, 6)]).unwrap();
        for from in 0..14 {
            for len in 0..16 {
                let mut buf = vec![9; len];
                let n = paged.read_at(&mut buf, from as u64).unwrap();
                let want = &b"abcdWXYZ\0\0\0\x0012"[from..];
                assert_eq!((n, &buf[..n]), (len.min(want.len()), &want[..len.min(want.len())]));
            }
        }
    }
}
