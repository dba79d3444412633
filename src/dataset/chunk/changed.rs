//! A chunk that changed and is not encoded: its bytes now, and their version.
//!
//! Who encodes it, or keeps it for an undo, shares its bytes: a later change is made to a copy.
//! Bytes in a temporary file are changed where they are, beside their readers.

use super::file_image::FileImage;
use super::image::{ChunkImage, Image};
use crate::base::Result;
use crate::base::locks::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A chunk in the form that the format of its dataset works with. A clone is independent.
#[derive(Debug)]
pub(crate) struct Unencoded(pub Image);

/// A chunk that is shared until it is changed.
pub(crate) type SharedImage = Arc<Unencoded>;

impl Clone for Unencoded {
    fn clone(&self) -> Self {
        Unencoded(self.0.duplicate())
    }
}

impl Unencoded {
    /// The chunk, shared.
    pub(crate) fn shared(image: Image) -> SharedImage {
        Arc::new(Unencoded(image))
    }

    /// The chunk.
    pub(crate) fn image(&self) -> &dyn ChunkImage {
        &*self.0
    }
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct ChangedChunk {
    now: RwLock<SharedImage>,
    /// Raised by each change; of a chunk in a file, before and after it.
    version: AtomicU64,
}

impl ChangedChunk {
    /// A chunk that did not change yet.
    pub(crate) fn new(image: SharedImage) -> ChangedChunk {
        ChangedChunk { now: RwLock::new(image), version: AtomicU64::new(0) }
    }

    /// The chunk as it is now.
    pub(crate) fn now(&self) -> SharedImage {
        self.now.read().clone()
    }

    /// The chunk as it is now, and its version.
    pub(crate) fn snapshot(&self) -> (SharedImage, u64) {
        let now = self.now.read();
        (now.clone(), self.version())
    }

    /// Its version: unless that is another one later, nothing changed.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The chunk, if its bytes are in a file.
    pub(crate) fn in_file(&self) -> Option<FileImage> {
        FileImage::of(self.now.read().image()).map(FileImage::handle)
    }

    /// What `f` reads of the chunk. No change waits for a read of a file. Errors: those of that
    /// file.
    pub(crate) fn read<R>(&self, f: impl FnOnce(&dyn ChunkImage) -> R) -> Result<R> {
        let Some(image) = self.in_file() else { return Ok(f(self.now.read().image())) };
        let read = f(&image);
        image.take_failure().map_or(Ok(read), Err)
    }

    /// Changes the chunk, or a copy that replaces it while others share it. Errors: those of its
    /// file.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut dyn ChunkImage) -> R) -> Result<R> {
        let Some(mut image) = self.in_file() else {
            let mut now = self.now.write();
            self.raise_version();
            return Ok(f(&mut *Arc::make_mut(&mut *now).0));
        };
        self.raise_version();
        let done = f(&mut image);
        // One who encodes the file meanwhile sees another version, whenever that began.
        self.raise_version();
        image.take_failure().map_or(Ok(done), Err)
    }

    /// Replaces the chunk.
    pub(crate) fn replace(&self, image: SharedImage) {
        let mut now = self.now.write();
        self.raise_version();
        *now = image;
    }

    fn raise_version(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::super::file_image::FilesInUse;
    use super::super::image::DenseImage;
    use super::*;
    use crate::dataset::fill::FillPattern;

    fn bytes(image: &SharedImage) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        image.image().read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_change_is_made_to_a_copy_of_a_shared_chunk() {
        let chunk = ChangedChunk::new(Unencoded::shared(DenseImage::boxed(vec![1; 4])));
        let at = |image: &SharedImage| image.image().dense().unwrap().as_ptr();
        let first = at(&chunk.now());
        chunk.change(|image| image.write(0, &[2])).unwrap().unwrap();
        let (kept, version) = chunk.snapshot();
        assert_eq!((at(&kept), bytes(&kept)), (first, vec![2, 1, 1, 1]));
        chunk.change(|image| image.write(1, &[3])).unwrap().unwrap();
        assert_eq!((bytes(&kept), bytes(&chunk.now())), (vec![2, 1, 1, 1], vec![2, 3, 1, 1]));
        assert!(chunk.version() > version);
        chunk.replace(kept);
        assert_eq!(bytes(&chunk.now()), [2, 1, 1, 1]);
    }

    #[test]
    fn a_chunk_in_a_file_is_changed_where_it_is() {
        let file = FileImage::new(&Arc::<FilesInUse>::default(), (4, 0), &FillPattern::new(&[], 1), &mut |_, _| Ok(())).unwrap();
        let chunk = ChangedChunk::new(Unencoded::shared(Box::new(file)));
        let (kept, version) = chunk.snapshot();
        chunk.change(|image| image.write(1, &[3])).unwrap().unwrap();
        assert_eq!((bytes(&kept), chunk.in_file().is_some()), (vec![0, 3, 0, 0], true));
        assert!(chunk.version() > version + 1, "raised before and after the change");
        let read = |at| chunk.read(|image| image.read(at, &mut [0]).is_some()).unwrap();
        assert!(read(3) && !read(4));
    }
}
