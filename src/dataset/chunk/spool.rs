//! Chunks too large for memory, inflated piece by piece into unlinked temporary files of their own.
//!
//! A deflated chunk of a gigabyte of zeros takes a megabyte in a file: it must be readable, but not in
//! memory. Only what ends in deflate can be decoded in pieces; shuffled bytes are put together again
//! by reading from every plane. Others are decoded in memory once and then kept in such a file. Runs of zeros are left out of the file, which stays sparse.

use super::cache::ChunkKey;
use super::temporary;
use crate::base::{Address, Error, Result};
use crate::filter::deflate::Stream;
use crate::filter::fletcher32::Trailing;
use crate::filter::pipeline::Pipeline;
use crate::filter::registry::{DEFLATE, FLETCHER32, SHUFFLE};
use crate::filter::{FilterError, shuffle};
use lru::LruCache;
use parking_lot::Mutex;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes read and written at once.
const PIECE: usize = 256 << 10;
/// Files kept open.
const KEPT: usize = 8;
/// Largest element that is unshuffled plane by plane, bytes.
const PLANES_MAX: u64 = 64;

/// How a chunk is decoded in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPlan {
    /// Element size of the shuffle filter.
    pub(super) shuffle: Option<u64>,
    /// A checksum behind the bytes before deflation.
    pub(super) inner: bool,
    /// A checksum behind the deflated bytes.
    pub(super) outer: bool,
    /// How much is done to deflate, 0 to 9, if the filter says so.
    pub(super) level: Option<u32>,
}

impl StreamPlan {
    /// For chunks of `chunk_bytes` through `pipeline`, of which `mask` excludes filters; `None` when
    /// they must be decoded as a whole.
    pub fn of(pipeline: &Pipeline, mask: u32, chunk_bytes: u64) -> Option<StreamPlan> {
        let mut plan = StreamPlan { shuffle: None, inner: false, outer: false, level: None };
        let mut deflated = false;
        for (i, f) in pipeline.filters.iter().enumerate() {
            if mask.checked_shr(u32::try_from(i).ok()?).unwrap_or(0) & 1 != 0 {
                continue;
            }
            match f.id {
                SHUFFLE if shuffle::is_identity(&f.cd_values, usize::try_from(chunk_bytes).ok()?) => {}
                SHUFFLE if !deflated && !plan.inner && plan.shuffle.is_none() => {
                    let size = f.cd_values.first().copied().map(u64::from);
                    plan.shuffle = Some(size.filter(|n| (2..=PLANES_MAX).contains(n))?);
                }
                FLETCHER32 if !deflated && !plan.inner => plan.inner = true,
                FLETCHER32 if deflated && !plan.outer => plan.outer = true,
                DEFLATE if !deflated => {
                    deflated = true;
                    plan.level = Some(&f.cd_values).filter(|v| v.len() == 1).and_then(|v| v.first().copied()).filter(|level| *level <= 9);
                }
                _ => return None,
            }
        }
        deflated.then_some(plan)
    }

    /// True when chunks can also be encoded so.
    pub fn encodes(&self) -> bool {
        self.level.is_some()
    }
}

/// A decoded chunk in a file.
#[derive(Debug)]
pub struct Spooled {
    file: File,
    len: u64,
    /// Element size, where the file's bytes are shuffled.
    shuffle: Option<u64>,
}

impl Spooled {
    /// Inflates a chunk of `len` bytes according to `plan`. `read` fills a buffer with stored bytes from an offset.
    pub fn make(
        plan: StreamPlan,
        len: u64,
        stored: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
        at: Address,
    ) -> Result<Spooled> {
        let corrupt = |e: FilterError| Error::corrupt("chunk", at, e.to_string());
        let io = |e: std::io::Error| Error::io("write a temporary file", at, &e);
        let file = temporary::file().map_err(io)?;
        file.set_len(len).map_err(io)?;
        let mut writer = Writer { file: &file, at: 0, len, inner: plan.inner.then(Trailing::default) };
        let mut outer = plan.outer.then(Trailing::default);
        let mut stream = Stream::new();
        let (mut input, mut output) = (vec![0u8; PIECE], vec![0u8; PIECE]);
        let (mut offset, mut ended) = (0u64, false);
        while offset < stored && !(ended && outer.is_none()) {
            let n = usize::try_from(stored.saturating_sub(offset)).unwrap_or(PIECE).min(PIECE);
            let piece = input.get_mut(..n).unwrap_or_default();
            read(offset, piece)?;
            offset = offset.saturating_add(n as u64);
            if let Some(sum) = &mut outer {
                sum.add(piece);
            }
            let mut rest: &[u8] = piece;
            // Bytes behind the stream (a checksum, or padding) are not part of it.
            while !ended {
                let step = stream.step(rest, &mut output).map_err(corrupt)?;
                writer.put(output.get(..step.produced).unwrap_or_default()).map_err(corrupt)?.map_err(io)?;
                rest = rest.get(step.consumed..).unwrap_or_default();
                ended = step.ended;
                if step.produced == 0 && rest.is_empty() {
                    break;
                }
                if step.produced == 0 && step.consumed == 0 && !ended {
                    return Err(Error::corrupt("chunk", at, "filter deflate: the stream does not go on"));
                }
            }
        }
        if !ended {
            return Err(Error::corrupt("chunk", at, "filter deflate: the stream ends early"));
        }
        let written = writer.finish().map_err(corrupt)?;
        outer.map_or(Ok(()), |sum| sum.finish().map(drop)).map_err(corrupt)?;
        if written != len {
            return Err(Error::corrupt("chunk", at, format!("{written} bytes decoded, the chunk has {len}")));
        }
        Ok(Spooled { file, len, shuffle: plan.shuffle })
    }

    /// Keeps the bytes of a chunk that had to be decoded as a whole.
    pub fn keep(bytes: &[u8], at: Address) -> Result<Spooled> {
        let io = |e: std::io::Error| Error::io("write a temporary file", at, &e);
        let file = temporary::file().map_err(io)?;
        let len = bytes.len() as u64;
        file.set_len(len).map_err(io)?;
        let mut from = 0u64;
        for piece in bytes.chunks(PIECE) {
            if piece.iter().any(|b| *b != 0) {
                file.write_all_at(piece, from).map_err(io)?;
            }
            from = from.saturating_add(piece.len() as u64);
        }
        Ok(Spooled { file, len, shuffle: None })
    }

    /// Fills `buf` with the chunk's bytes from `within` on.
    pub fn read(&self, within: u64, buf: &mut [u8]) -> Result<()> {
        let io = |e: std::io::Error| Error::io("read a temporary file", Address(within), &e);
        let Some(size) = self.shuffle else { return self.file.read_exact_at(buf, within).map_err(io) };
        let count = self.len / size;
        let whole = count.saturating_mul(size);
        // What is behind the last whole element was not shuffled.
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

/// Writes decoded bytes, except zeros, and checks what is behind them.
struct Writer<'a> {
    file: &'a File,
    at: u64,
    len: u64,
    inner: Option<Trailing>,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> std::result::Result<std::io::Result<()>, FilterError> {
        if let Some(sum) = &mut self.inner {
            sum.add(bytes);
        }
        let room = self.len.saturating_sub(self.at);
        let extra = if self.inner.is_some() { Trailing::LEN as u64 } else { 0 };
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

    /// Bytes of the chunk.
    fn finish(self) -> std::result::Result<u64, FilterError> {
        match self.inner {
            None => Ok(self.at),
            Some(sum) => sum.finish(),
        }
    }
}

#[derive(Default)]
struct Entry(Mutex<Option<Result<Arc<Spooled>>>>);

/// The chunks in files.
pub struct Spools {
    entries: Mutex<LruCache<ChunkKey, (u64, Arc<Entry>)>>,
    capacity: u64,
}

impl Spools {
    /// Of at most `capacity` bytes in all; 0: none.
    pub fn new(capacity: u64) -> Self {
        Spools { entries: Mutex::new(LruCache::unbounded()), capacity }
    }

    /// The most bytes a chunk may have.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of the chunks in files.
    pub fn bytes(&self) -> u64 {
        self.entries.lock().iter().map(|(_, (n, _))| *n).sum()
    }

    /// Forgets every chunk.
    pub fn clear(&self) {
        self.entries.lock().clear();
    }

    /// Forgets the chunk `key`.
    pub fn remove(&self, key: ChunkKey) {
        self.entries.lock().pop(&key);
    }

    /// Forgets every chunk of `dataset`.
    pub fn forget(&self, dataset: u64) {
        let mut entries = self.entries.lock();
        let keys: Vec<_> = entries.iter().filter(|(k, _)| k.dataset == dataset).map(|(k, _)| *k).collect();
        for key in keys {
            entries.pop(&key);
        }
    }

    /// The chunk `key` of `len` bytes, which `make` decodes if nobody has; others wait for it meanwhile.
    /// A chunk that cannot be decoded is not tried again while it is remembered.
    pub fn get(&self, key: ChunkKey, len: u64, make: impl FnOnce() -> Result<Spooled>) -> Result<Arc<Spooled>> {
        let entry = {
            let mut entries = self.entries.lock();
            match entries.get(&key) {
                Some((_, e)) => e.clone(),
                None => {
                    let held = |entries: &LruCache<ChunkKey, (u64, Arc<Entry>)>| entries.iter().map(|(_, (n, _))| *n).sum::<u64>();
                    while entries.len() >= KEPT || held(&entries).saturating_add(len) > self.capacity {
                        if entries.pop_lru().is_none() {
                            break;
                        }
                    }
                    let e = Arc::<Entry>::default();
                    entries.put(key, (len, e.clone()));
                    e
                }
            }
        };
        let mut slot = entry.0.lock();
        if let Some(result) = slot.as_ref() {
            return result.clone();
        }
        let made = make().map(Arc::new);
        // What the machine refused may go well the next time.
        if !matches!(made, Err(Error::Io { .. })) {
            *slot = Some(made.clone());
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::pipeline::FilterSpec;
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

    fn make(pipeline: &Pipeline, stored: &[u8], len: usize) -> Result<Spooled> {
        let plan = StreamPlan::of(pipeline, 0, len as u64).unwrap();
        let mut read = |at: u64, buf: &mut [u8]| {
            buf.copy_from_slice(&stored[at as usize..at as usize + buf.len()]);
            Ok(())
        };
        Spooled::make(plan, len as u64, stored.len() as u64, &mut read, Address(7))
    }

    #[test]
    fn every_pipeline_that_can_be_streamed() {
        let mut data: Vec<u8> = (0..1_000_003u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        data[200_000..900_000].fill(0);
        for size in [1, 2, 3, 8, 16] {
            for (inner, outer) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut stored = if size > 1 { shuffled(&data, size) } else { data.clone() };
                let mut filters = vec![spec(SHUFFLE, &[size as u32])];
                if inner {
                    stored = with_sum(stored);
                    filters.push(spec(FLETCHER32, &[]));
                }
                stored = zlib(&stored);
                filters.push(spec(DEFLATE, &[1]));
                if outer {
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
                    assert!(b == data[from..from + n], "{size} {inner} {outer}: {n} at {from}");
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
        let mut data = vec![0u8; 3 * PIECE + 17];
        data[PIECE + 5] = 7;
        data[3 * PIECE + 16] = 9;
        let s = Spooled::keep(&data, Address(7)).unwrap();
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
        let spools = Spools::new(100);
        let key = |chunk| ChunkKey { dataset: 1, chunk };
        let bad = Error::corrupt("chunk", Address(5), "bad");
        assert_eq!(spools.get(key(1), 10, || Err(bad.clone())).err(), Some(bad.clone()));
        assert_eq!(spools.get(key(1), 10, || panic!("again")).err(), Some(bad));
        let pipeline = Pipeline { filters: vec![spec(DEFLATE, &[1])] };
        for i in 2..40 {
            spools.get(key(i), 30, || make(&pipeline, &zlib(&[3; 30]), 30)).unwrap();
            assert!(spools.entries.lock().len() <= 4);
        }
    }
}
