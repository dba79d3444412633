//! A decoded chunk that is too large for memory: its bytes are in a temporary file.

use super::dirty_file::DirtyFile;
use super::image::{ChunkImage, Image};
use crate::base::io_pieces::pieces;
use crate::base::limits::IO_PIECE_BYTES;
use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use crate::dataset::fill::FillPattern;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that a chunk takes beside its file, bytes.
const MEMORY_BYTES: u64 = 1024;

/// Chunks in files, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct FilesInUse {
    files: AtomicU64,
    bytes: AtomicU64,
}

impl FilesInUse {
    /// Number of files, and bytes of their chunks.
    pub(crate) fn now(&self) -> (u64, u64) {
        (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// One of the files in use until it is dropped.
#[derive(Debug)]
struct InUse(Arc<FilesInUse>, u64);

impl InUse {
    fn one_of(all: &Arc<FilesInUse>, bytes: u64) -> InUse {
        all.files.fetch_add(1, Ordering::Relaxed);
        all.bytes.fetch_add(bytes, Ordering::Relaxed);
        InUse(all.clone(), bytes)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.files.fetch_sub(1, Ordering::Relaxed);
        self.0.bytes.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// A dense chunk in a temporary file. Errors of what was done with this handle are in
/// [`ChunkImage::take_failure`].
#[derive(Debug)]
pub(crate) struct FileImage {
    chunk: Arc<FileChunk>,
    failure: Mutex<Option<Error>>,
}

#[derive(Debug)]
struct FileChunk {
    file: DirtyFile,
    /// Value of elements that were never written.
    fill: FillPattern,
    /// All bytes from there on have the fill value.
    end: AtomicU64,
    in_use: InUse,
}

impl FileImage {
    /// A chunk of `len` bytes: the first `until` from `read`, which fills a buffer from an offset,
    /// and the others from the fill value. `all`: counts it.
    pub(crate) fn new(
        all: &Arc<FilesInUse>,
        (len, until): (u64, u64),
        fill: &FillPattern,
        read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<FileImage> {
        Ok(FileImage::from_file(all, DirtyFile::filled(len, fill, until, read)?, fill, until))
    }

    /// The chunk in `file`. `until`: its bytes from there on have the fill value. `all`: counts it.
    pub(crate) fn from_file(all: &Arc<FilesInUse>, file: DirtyFile, fill: &FillPattern, until: u64) -> FileImage {
        let (in_use, end) = (InUse::one_of(all, file.len()), AtomicU64::new(until.min(file.len())));
        FileImage { chunk: Arc::new(FileChunk { file, fill: fill.clone(), end, in_use }), failure: Mutex::default() }
    }

    /// `image`, if its bytes are in a file.
    pub(crate) fn of(image: &dyn ChunkImage) -> Option<&FileImage> {
        (image as &dyn Any).downcast_ref()
    }

    /// The same chunk, to be changed where it is.
    pub(crate) fn handle(&self) -> FileImage {
        FileImage { chunk: self.chunk.clone(), failure: Mutex::default() }
    }

    /// The file with the chunk's bytes.
    pub(crate) fn file(&self) -> &DirtyFile {
        &self.chunk.file
    }

    /// All bytes from there on have the fill value.
    pub(crate) fn end(&self) -> u64 {
        self.chunk.end.load(Ordering::Acquire)
    }

    /// A copy. Errors: there is no room for it.
    fn copied(&self) -> Result<FileImage> {
        let FileChunk { file, fill, in_use, .. } = &*self.chunk;
        FileImage::new(&in_use.0, (file.len(), self.end()), fill, &mut |at, buf| file.read(at, buf))
    }

    /// Notes an error of the file.
    fn done(&self, done: Result<()>) -> Option<()> {
        let note = |e| {
            self.failure.lock().get_or_insert(e);
        };
        done.map_err(note).ok()
    }

    fn reach(&self, end: u64) {
        self.chunk.end.fetch_max(end, Ordering::AcqRel);
    }
}

impl ChunkImage for FileImage {
    fn element_bytes(&self) -> u64 {
        self.file().len()
    }

    fn memory(&self) -> u64 {
        MEMORY_BYTES
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Option<()> {
        at.checked_add(buf.len() as u64).filter(|end| *end <= self.file().len())?;
        self.done(self.file().read(at, buf))
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Option<()> {
        let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= self.file().len())?;
        self.reach(end);
        self.done(self.file().write(at, bytes))
    }

    fn is_blank(&self, parts: &[(usize, usize)]) -> bool {
        let is_zero = |(at, len): &(usize, usize)| self.file().is_zero(*at as u64, *len as u64);
        // What cannot be read may have a value.
        parts.iter().all(|part| match is_zero(part) {
            Ok(is_zero) => is_zero,
            Err(e) => self.done(Err(e)).is_some(),
        })
    }

    fn clear(&mut self, parts: &[(usize, usize)]) {
        for (at, len) in parts {
            let end = (*at as u64).saturating_add(*len as u64).min(self.file().len());
            if !self.chunk.fill.is_zero() {
                self.reach(end);
            }
            self.done(self.file().clear(*at as u64, end.saturating_sub(*at as u64)));
        }
    }

    fn fill(&mut self, range: Range<u64>, fill: &FillPattern) {
        let range = range.start..range.end.min(self.file().len());
        let mut piece = vec![0; IO_PIECE_BYTES];
        for (at, len) in pieces(range.clone()) {
            let part = piece.get_mut(..len).unwrap_or_default();
            fill.fill(at, part);
            if self.done(self.file().write(at, part)).is_none() {
                return;
            }
        }
        match range.end >= self.end() && *fill == self.chunk.fill {
            true => drop(self.chunk.end.fetch_min(range.start, Ordering::AcqRel)),
            false => self.reach(range.end),
        }
    }

    /// Without room for a copy, all that is done with what is returned fails.
    fn duplicate(&self) -> Image {
        match self.copied() {
            Ok(copy) => Box::new(copy),
            Err(e) => Box::new(NoRoom(e)),
        }
    }

    fn dense(&self) -> Option<&[u8]> {
        None
    }

    fn into_dense(self: Box<Self>) -> Option<Vec<u8>> {
        None
    }

    fn take_failure(&self) -> Option<Error> {
        self.failure.lock().take()
    }
}

/// A copy that could not be made.
#[derive(Debug)]
struct NoRoom(Error);

impl ChunkImage for NoRoom {
    fn element_bytes(&self) -> u64 {
        0
    }

    fn memory(&self) -> u64 {
        0
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Option<()> {
        None
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Option<()> {
        None
    }

    fn is_blank(&self, _: &[(usize, usize)]) -> bool {
        false
    }

    fn clear(&mut self, _: &[(usize, usize)]) {}

    fn fill(&mut self, _: Range<u64>, _: &FillPattern) {}

    fn duplicate(&self) -> Image {
        Box::new(NoRoom(self.0.clone()))
    }

    fn dense(&self) -> Option<&[u8]> {
        None
    }

    fn into_dense(self: Box<Self>) -> Option<Vec<u8>> {
        None
    }

    fn take_failure(&self) -> Option<Error> {
        Some(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_in_a_file_is_changed_and_copied_as_one_in_memory() {
        let all = Arc::<FilesInUse>::default();
        let fill = FillPattern::new(&[9, 8], 2);
        let (len, until) = (3 << 20, 5);
        let first = |_: u64, buf: &mut [u8]| {
            buf.fill(1);
            Ok(())
        };
        let mut image = FileImage::new(&all, (len, until), &fill, &mut |at, buf| first(at, buf)).unwrap();
        let get = |image: &dyn ChunkImage, at: u64| {
            let mut buf = [0; 4];
            image.read(at, &mut buf).map(|()| buf)
        };
        assert_eq!((get(&image, 3), get(&image, len - 4), get(&image, len - 3)), (Some([1, 1, 8, 9]), Some([9, 8, 9, 8]), None));
        image.write(1 << 20, &[7; 3]).unwrap();
        assert!(image.write(len - 2, &[7; 3]).is_none() && image.take_failure().is_none());
        assert_eq!(image.end(), (1 << 20) + 3);
        let copy = image.duplicate();
        assert_eq!(all.now(), (2, 2 * len));
        image.clear(&[((1 << 20) + 1, 1)]);
        image.fill((1 << 20) + 2..u64::MAX, &fill);
        assert_eq!((get(&image, 1 << 20), image.end()), (Some([7, 0, 9, 8]), (1 << 20) + 2));
        assert_eq!(get(&*copy, 1 << 20), Some([7, 7, 7, 8]));
        assert!(image.is_blank(&[((1 << 20) + 1, 1)]) && !image.is_blank(&[(1 << 20, 2)]));
        drop((image, copy));
        assert_eq!(all.now(), (0, 0));
    }

    /// Regression: a reader could take the error of a change, which was answered as done then.
    #[test]
    fn an_error_is_that_of_the_handle_that_met_it() {
        let (all, fill) = (Arc::<FilesInUse>::default(), FillPattern::new(&[], 1));
        let image = FileImage::new(&all, (8, 0), &fill, &mut |_, _| Ok(())).unwrap();
        let other = image.handle();
        assert!(image.done(Err(Error::refused(libc::EIO, "test"))).is_none());
        assert!(other.take_failure().is_none() && image.take_failure().is_some() && image.take_failure().is_none());
    }
}
