//! Decoded chunks too large for memory, each in an unlinked temporary file.
//!
//! A deflated chunk of 1 GiB of zeros takes 1 MiB in the container: it must be readable without
//! decoding it in memory. Pipelines that end in deflate are inflated piece by piece. Shuffled bytes
//! stay shuffled in the file; reads gather an element from every byte plane. Chunks of other
//! pipelines are decoded once in memory and then stored in such a file. Zeros stay holes of the
//! file.

use super::key::{CacheKey, ChunkKey, DatasetKey};
use super::temporary;
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use crate::filter::deflate::Stream;
use crate::filter::fletcher32::Trailing;
use crate::filter::pipeline::Pipeline;
use crate::filter::registry::{DEFLATE, FLETCHER32, SHUFFLE};
use crate::filter::{FilterError, shuffle};
use lru::LruCache;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes inflated and written at a time.
const STREAM_PIECE_BYTES: usize = 256 << 10;
/// Temporary files kept open.
const FILES_MAX: usize = 8;
/// Largest element of shuffled bytes that can be read plane by plane, bytes.
const SHUFFLE_ELEMENT_MAX_BYTES: u64 = 64;

/// Plan for decoding or encoding a chunk in pieces: optional shuffle and checksums around deflate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamPlan {
    /// Element size of the shuffle filter, bytes.
    pub(super) shuffle: Option<u64>,
    /// A fletcher32 checksum follows the bytes before deflation.
    pub(super) inner_checksum: bool,
    /// A fletcher32 checksum follows the deflated bytes.
    pub(super) outer_checksum: bool,
    /// Compression level, 0 to 9, if the filter has a valid one.
    pub(super) level: Option<u32>,
}

impl StreamPlan {
    /// The plan of bytes that are deflated, and nothing else.
    pub(crate) const DEFLATED: StreamPlan = StreamPlan { shuffle: None, inner_checksum: false, outer_checksum: false, level: None };

    /// Plans for chunks of `chunk_bytes` filtered by `pipeline`, except the filters in `mask`.
    /// `None`: they must be decoded whole.
    pub(crate) fn of(pipeline: &Pipeline, mask: u32, chunk_bytes: u64) -> Option<StreamPlan> {
        let mut plan = StreamPlan { shuffle: None, inner_checksum: false, outer_checksum: false, level: None };
        let mut deflated = false;
        for (i, f) in pipeline.filters.iter().enumerate() {
            if mask.checked_shr(u32::try_from(i).ok()?).unwrap_or(0) & 1 != 0 {
                continue;
            }
            match f.id {
                SHUFFLE if shuffle::is_identity(&f.cd_values, usize::try_from(chunk_bytes).ok()?) => {}
                SHUFFLE if !deflated && !plan.inner_checksum && plan.shuffle.is_none() => {
                    let size = f.cd_values.first().copied().map(u64::from);
                    plan.shuffle = Some(size.filter(|n| (2..=SHUFFLE_ELEMENT_MAX_BYTES).contains(n))?);
                }
                FLETCHER32 if !deflated && !plan.inner_checksum => plan.inner_checksum = true,
                FLETCHER32 if deflated && !plan.outer_checksum => plan.outer_checksum = true,
                DEFLATE if !deflated => {
                    deflated = true;
                    plan.level = Some(&f.cd_values).filter(|v| v.len() == 1).and_then(|v| v.first().copied()).filter(|level| *level <= 9);
                }
                _ => return None,
            }
        }
        deflated.then_some(plan)
    }

    /// True when chunks can also be encoded in pieces.
    pub(crate) fn encodes(&self) -> bool {
        self.level.is_some()
    }
}

/// A decoded chunk in a temporary file.
#[derive(Debug)]
pub(crate) struct ChunkFile {
    file: File,
    len: u64,
    /// Element size, where the file's bytes are shuffled.
    shuffle: Option<u64>,
}

impl ChunkFile {
    /// Inflates a chunk of `len` bytes from `stored` bytes at `at`, according to `plan`.
    ///
    /// `read` fills a buffer with stored bytes from an offset in the chunk.
    pub(crate) fn inflate(
        plan: StreamPlan,
        len: u64,
        stored: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
        at: Address,
    ) -> Result<ChunkFile> {
        let corrupt = |e: FilterError| Error::corrupt("chunk", at, e.to_string());
        let io = |e: std::io::Error| Error::io("write a temporary file", at, &e);
        let file = temporary::file().map_err(io)?;
        file.set_len(len).map_err(io)?;
        let mut writer = Writer { file: &file, at: 0, len, inner_checksum: plan.inner_checksum.then(Trailing::default) };
        let mut outer_checksum = plan.outer_checksum.then(Trailing::default);
        let mut stream = Stream::new();
        let (mut input, mut output) = (vec![0u8; STREAM_PIECE_BYTES], vec![0u8; STREAM_PIECE_BYTES]);
        let (mut offset, mut ended) = (0u64, false);
        while offset < stored && !(ended && outer_checksum.is_none()) {
            let n = usize::try_from(stored.saturating_sub(offset)).unwrap_or(STREAM_PIECE_BYTES).min(STREAM_PIECE_BYTES);
            let piece = input.get_mut(..n).unwrap_or_default();
            read(offset, piece)?;
            offset = offset.saturating_add(n as u64);
            if let Some(sum) = &mut outer_checksum {
                sum.add(piece);
            }
            let mut rest: &[u8] = piece;
            // Bytes after the stream (a checksum, or padding) are not part of it.
            while !ended {
                let step = stream.step(rest, &mut output).map_err(corrupt)?;
                writer.put(output.get(..step.produced).unwrap_or_default()).map_err(corrupt)?.map_err(io)?;
                rest = rest.get(step.consumed..).unwrap_or_default();
                ended = step.ended;
                if step.produced == 0 && rest.is_empty() {
                    break;
                }
                if step.produced == 0 && step.consumed == 0 && !ended {
                    return Err(Error::corrupt("chunk", at, "filter deflate: the stream makes no progress"));
                }
            }
        }
        if !ended {
            return Err(Error::corrupt("chunk", at, "filter deflate: the stream ends early"));
        }
        let written = writer.finish().map_err(corrupt)?;
        outer_checksum.map_or(Ok(()), |sum| sum.finish().map(drop)).map_err(corrupt)?;
        if written != len {
            return Err(Error::corrupt("chunk", at, format!("{written} bytes decoded, the chunk has {len}")));
        }
        Ok(ChunkFile { file, len, shuffle: plan.shuffle })
    }

    /// Copies a chunk of `len` bytes that is stored without filters. `read` fills a buffer with
    /// stored bytes from an offset in the chunk.
    pub(crate) fn copied(len: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>, at: Address) -> Result<ChunkFile> {
        let io = |e: std::io::Error| Error::io("write a temporary file", at, &e);
        let file = temporary::file().map_err(io)?;
        file.set_len(len).map_err(io)?;
        let (mut piece, mut from) = (vec![0u8; STREAM_PIECE_BYTES], 0u64);
        while from < len {
            let n = usize::try_from(len.saturating_sub(from)).unwrap_or(STREAM_PIECE_BYTES).min(STREAM_PIECE_BYTES);
            let part = piece.get_mut(..n).unwrap_or_default();
            read(from, part)?;
            if part.iter().any(|b| *b != 0) {
                file.write_all_at(part, from).map_err(io)?;
            }
            from = from.saturating_add(n as u64);
        }
        Ok(ChunkFile { file, len, shuffle: None })
    }

    /// Bytes of the chunk.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Writes a chunk that was decoded whole, `bytes`, to a file. `at`: its address, for errors.
    pub(crate) fn from_decoded(bytes: &[u8], at: Address) -> Result<ChunkFile> {
        let io = |e: std::io::Error| Error::io("write a temporary file", at, &e);
        let file = temporary::file().map_err(io)?;
        let len = bytes.len() as u64;
        file.set_len(len).map_err(io)?;
        let mut from = 0u64;
        for piece in bytes.chunks(STREAM_PIECE_BYTES) {
            if piece.iter().any(|b| *b != 0) {
                file.write_all_at(piece, from).map_err(io)?;
            }
            from = from.saturating_add(piece.len() as u64);
        }
        Ok(ChunkFile { file, len, shuffle: None })
    }

    /// Fills `buf` with the chunk's bytes from `within` on.
    pub(crate) fn read(&self, within: u64, buf: &mut [u8]) -> Result<()> {
        let io = |e: std::io::Error| Error::io("read a temporary file", Address(within), &e);
        let Some(size) = self.shuffle else { return self.file.read_exact_at(buf, within).map_err(io) };
        let count = self.len / size;
        let whole = count.saturating_mul(size);
        // Bytes after the last whole element are not shuffled.
        let shuffled = usize::try_from(whole.saturating_sub(within)).unwrap_or(usize::MAX).min(buf.len());
        let (body, tail) = buf.split_at_mut(shuffled);
        if !tail.is_empty() {
            self.file.read_exact_at(tail, within.max(whole)).map_err(io)?;
        }
        if body.is_empty() {
            return Ok(());
        }
        let (first, skip) = (within / size, usize::try_from(within % size).unwrap_or(0));
        let last = within.saturating_add(body.len() as u64).saturating_sub(1) / size;
        let elements = usize::try_from(last.saturating_sub(first).saturating_add(1)).unwrap_or(0);
        let step = usize::try_from(size).unwrap_or(1).max(1);
        let mut plane = vec![0u8; elements];
        for p in 0..step {
            let from = (p as u64).saturating_mul(count).saturating_add(first);
            self.file.read_exact_at(&mut plane, from).map_err(io)?;
            // Byte `p` of element `e` belongs at `e * size + p - skip`.
            let (start, drop) = if p >= skip { (p - skip, 0) } else { (p + step - skip, 1) };
            for (slot, byte) in body.iter_mut().skip(start).step_by(step).zip(plane.iter().skip(drop)) {
                *slot = *byte;
            }
        }
        Ok(())
    }
}

/// Writes decoded bytes, except zeros, and verifies their checksum.
struct Writer<'a> {
    file: &'a File,
    at: u64,
    len: u64,
    inner_checksum: Option<Trailing>,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> std::result::Result<std::io::Result<()>, FilterError> {
        if let Some(sum) = &mut self.inner_checksum {
            sum.add(bytes);
        }
        let room = self.len.saturating_sub(self.at);
        let extra = if self.inner_checksum.is_some() { Trailing::LEN as u64 } else { 0 };
        if bytes.len() as u64 > room.saturating_add(extra) {
            return Err(FilterError::corrupt("deflate", format!("more than the {} bytes of the chunk", self.len)));
        }
        let own = bytes.get(..usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len())).unwrap_or_default();
        let start = self.at;
        self.at = start.saturating_add(bytes.len() as u64);
        if own.iter().all(|b| *b == 0) {
            return Ok(Ok(()));
        }
        Ok(self.file.write_all_at(own, start))
    }

    /// Verifies the checksum; returns the number of decoded bytes.
    fn finish(self) -> std::result::Result<u64, FilterError> {
        match self.inner_checksum {
            None => Ok(self.at),
            Some(sum) => sum.finish(),
        }
    }
}

#[derive(Default)]
struct Entry(Mutex<Option<Result<Arc<ChunkFile>>>>);

/// The place of a decoded chunk in the cache.
pub(crate) struct FilePlace(Arc<Entry>);

impl FilePlace {
    /// The chunk, or why it cannot be decoded, if a thread found that before.
    pub(crate) fn made(&self) -> Option<Result<Arc<ChunkFile>>> {
        self.0.0.try_lock()?.clone()
    }

    /// The chunk; calls `make` to decode it, unless another thread did or does, for which it waits.
    pub(crate) fn file(&self, make: impl FnOnce() -> Result<ChunkFile>) -> Result<Arc<ChunkFile>> {
        let mut slot = self.0.0.lock();
        if let Some(result) = slot.as_ref() {
            return result.clone();
        }
        let made = make().map(Arc::new);
        // Another error, of a temporary file or a server, may be transient: the next reader tries
        // again.
        if matches!(made, Ok(_) | Err(Error::Corrupt { .. } | Error::Unsupported { .. } | Error::Limit { .. })) {
            *slot = Some(made.clone());
        }
        made
    }
}

/// LRU cache of decoded chunks in temporary files.
pub(crate) struct ChunkFiles {
    entries: Mutex<LruCache<CacheKey, (u64, Arc<Entry>)>>,
    capacity: u64,
}

impl ChunkFiles {
    /// A cache of at most `capacity` bytes; 0: no chunk fits.
    pub(crate) fn new(capacity: u64) -> Self {
        ChunkFiles { entries: Mutex::new(LruCache::unbounded()), capacity }
    }

    /// Most bytes of all chunks, and so of one.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Decoded bytes of all chunks.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.lock().iter().map(|(_, (n, _))| *n).sum()
    }

    /// Returns the chunk `key` of `len` bytes; calls `make` to decode it on a miss.
    ///
    /// Waits if another thread is decoding the chunk. Caches errors of decoding alone.
    pub(crate) fn get(&self, key: impl Into<CacheKey>, len: u64, make: impl FnOnce() -> Result<ChunkFile>) -> Result<Arc<ChunkFile>> {
        self.place(key, len).file(make)
    }

    /// The place of the chunk `key` of `len` bytes. Removing the chunk from the cache detaches the
    /// place: a chunk that is decoded into a detached place is not cached.
    pub(crate) fn place(&self, key: impl Into<CacheKey>, len: u64) -> FilePlace {
        let key = key.into();
        let mut entries = self.entries.lock();
        if let Some((_, entry)) = entries.get(&key) {
            return FilePlace(entry.clone());
        }
        let held = |entries: &LruCache<CacheKey, (u64, Arc<Entry>)>| entries.iter().map(|(_, (n, _))| *n).sum::<u64>();
        while entries.len() >= FILES_MAX || held(&entries).saturating_add(len) > self.capacity {
            if entries.pop_lru().is_none() {
                break;
            }
        }
        let entry = Arc::<Entry>::default();
        entries.put(key, (len, entry.clone()));
        FilePlace(entry)
    }

    /// Drops every chunk.
    pub(crate) fn clear(&self) {
        self.entries.lock().clear();
    }

    /// Drops the chunk `key`.
    pub(crate) fn remove(&self, key: ChunkKey) {
        self.entries.lock().pop(&key.into());
    }

    /// Drops every chunk of `dataset`.
    pub(crate) fn forget(&self, dataset: DatasetKey) {
        let mut entries = self.entries.lock();
        let keys: Vec<_> = entries.iter().filter(|(k, _)| k.dataset() == dataset).map(|(k, _)| *k).collect();
        for key in keys {
            entries.pop(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::filter_spec::FilterSpec;
    use std::io::Write;

    fn spec(id: u16, cd_values: &[u32]) -> FilterSpec {
        FilterSpec { id, flags: 0, name: Vec::new(), cd_values: cd_values.to_vec() }
    }

    fn zlib(data: &[u8]) -> Vec<u8> {
        let mut z = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        z.write_all(data).unwrap();
        z.finish().unwrap()
    }

    fn with_sum(mut data: Vec<u8>) -> Vec<u8> {
        data.extend(crate::filter::fletcher32::checksum(&data).to_le_bytes());
        data
    }

    fn shuffled(data: &[u8], size: usize) -> Vec<u8> {
        let n = data.len() / size;
        let mut out: Vec<u8> = (0..size).flat_map(|p| (0..n).map(move |e| data[e * size + p])).collect();
        out.extend(&data[n * size..]);
        out
    }

    fn make(pipeline: &Pipeline, stored: &[u8], len: usize) -> Result<ChunkFile> {
        let plan = StreamPlan::of(pipeline, 0, len as u64).unwrap();
        let mut read = |at: u64, buf: &mut [u8]| {
            buf.copy_from_slice(&stored[at as usize..at as usize + buf.len()]);
            Ok(())
        };
        ChunkFile::inflate(plan, len as u64, stored.len() as u64, &mut read, Address(7))
    }

    #[test]
    fn every_pipeline_that_can_be_streamed() {
        let mut data: Vec<u8> = (0..1_000_003u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        data[200_000..900_000].fill(0);
        for size in [1, 2, 3, 8, 16] {
            for (inner_checksum, outer_checksum) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut stored = if size > 1 { shuffled(&data, size) } else { data.clone() };
                let mut filters = vec![spec(SHUFFLE, &[size as u32])];
                if inner_checksum {
                    stored = with_sum(stored);
                    filters.push(spec(FLETCHER32, &[]));
                }
                stored = zlib(&stored);
                filters.push(spec(DEFLATE, &[1]));
                if outer_checksum {
                    stored = with_sum(stored);
                    filters.push(spec(FLETCHER32, &[]));
                }
                let pipeline = Pipeline { filters };
                // The whole-chunk decoder agrees.
                assert_eq!(pipeline.decode(&stored, 0, data.len()).unwrap(), data);
                let s = make(&pipeline, &stored, data.len()).unwrap();
                for (from, n) in [(0, 10), (1, 1), (199_990, 300), (5, 70_000), (999_990, 13), (1_000_002, 1), (0, data.len())] {
                    let mut b = vec![9; n];
                    s.read(from as u64, &mut b).unwrap();
                    assert!(b == data[from..from + n], "{size} {inner_checksum} {outer_checksum}: {n} at {from}");
                }
                for at in [5, stored.len() - 2] {
                    let mut bad = stored.clone();
                    bad[at] ^= 0x55;
                    assert!(make(&pipeline, &bad, data.len()).is_err(), "{at}");
                }
                assert!(make(&pipeline, &stored[..stored.len() / 2], data.len()).is_err());
                assert!(make(&pipeline, &stored, data.len() - 1).is_err());
                assert!(make(&pipeline, &stored, data.len() + 1).is_err());
            }
        }
    }

    #[test]
    fn a_chunk_decoded_as_a_whole_is_kept_in_a_sparse_file() {
        let mut data = vec![0u8; 3 * STREAM_PIECE_BYTES + 17];
        data[STREAM_PIECE_BYTES + 5] = 7;
        data[3 * STREAM_PIECE_BYTES + 16] = 9;
        let s = ChunkFile::from_decoded(&data, Address(7)).unwrap();
        let mut b = vec![1; data.len() - 3];
        s.read(3, &mut b).unwrap();
        assert_eq!(b, data[3..]);
        assert!(s.read(4, &mut b).is_err());
    }

    #[test]
    fn what_cannot_be_streamed() {
        let plan = |filters: &[FilterSpec], mask| StreamPlan::of(&Pipeline { filters: filters.to_vec() }, mask, 1 << 30);
        let (d, s) = (spec(DEFLATE, &[6]), spec(SHUFFLE, &[4]));
        assert!(plan(&[s.clone(), d.clone()], 0).is_some());
        assert!(plan(&[d.clone(), s.clone()], 0).is_none());
        assert!(plan(&[d.clone(), s.clone()], 0b10).is_some());
        assert!(plan(&[spec(SHUFFLE, &[100_000]), d.clone()], 0).is_none());
        assert!(plan(&[spec(32000, &[]), d.clone()], 0).is_none() && plan(&[s], 0).is_none() && plan(&[d], 1).is_none());
    }

    #[test]
    fn failures_are_remembered_and_files_are_few() {
        let chunk_files = ChunkFiles::new(100);
        let key = |chunk| ChunkKey { dataset: 1.into(), chunk };
        let bad = Error::corrupt("chunk", Address(5), "bad");
        assert_eq!(chunk_files.get(key(1), 10, || Err(bad.clone())).err(), Some(bad.clone()));
        assert_eq!(chunk_files.get(key(1), 10, || panic!("again")).err(), Some(bad));
        // A server that did not answer may answer later.
        let silent = Error::Request { operation: "read a pack", errno: libc::ETIMEDOUT, reason: "no answer".into() };
        assert_eq!(chunk_files.get(key(0), 10, || Err(silent.clone())).err(), Some(silent));
        let pipeline = Pipeline { filters: vec![spec(DEFLATE, &[1])] };
        for i in [0].into_iter().chain(2..40) {
            chunk_files.get(key(i), 30, || make(&pipeline, &zlib(&[3; 30]), 30)).unwrap();
            assert!(chunk_files.entries.lock().len() <= 4);
        }
    }
}
