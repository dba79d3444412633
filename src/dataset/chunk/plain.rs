//! Chunks too large for memory that are changed: their decoded bytes in an unlinked temporary file.
//!
//! They are encoded piece by piece into a second such file, as far as the filters allow it: shuffled into a third one, then
//! deflated, with checksums before and behind. So a chunk costs a few pieces of memory, and one encoding each time that it is written out.
//! Where filters take a chunk as a whole it is in memory while they do.

use super::spool::StreamPlan;
use super::temporary;
use crate::base::{Address, Error, Result};
use crate::dataset::fill::FillPattern;
use crate::filter::fletcher32::Trailing;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use parking_lot::RwLock;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes read and written at once.
const PIECE: usize = 1 << 20;

/// Decoded bytes in a file.
#[derive(Debug)]
pub struct Plain {
    file: File,
    len: u64,
    /// Held shared to read and exclusively to write, so that nobody sees half of a write.
    lock: RwLock<()>,
}

/// An encoded chunk in a file.
#[derive(Debug)]
pub struct Stored {
    file: File,
    len: u64,
    filter_mask: u32,
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> Error {
    move |e| Error::io(operation, Address::UNDEF, &e)
}

/// A temporary file of `len` zeros.
fn zeros(len: u64) -> Result<File> {
    let file = temporary::file().map_err(failed("make a temporary file"))?;
    file.set_len(len).map_err(failed("make a temporary file"))?;
    Ok(file)
}

/// Visits `range` in pieces: where each begins, and its length.
fn pieces(range: Range<u64>) -> impl Iterator<Item = (u64, usize)> {
    let end = range.end;
    range.step_by(PIECE).map(move |at| (at, usize::try_from(end.saturating_sub(at)).unwrap_or(PIECE).min(PIECE)))
}

impl Plain {
    /// `len` zeros.
    pub fn new(len: u64) -> Result<Plain> {
        Ok(Plain { file: zeros(len)?, len, lock: RwLock::default() })
    }

    /// `len` bytes of which those before `until` are what `read` fills buffers with, from an offset on, and the others what was
    /// never written reads as.
    pub fn filled(len: u64, fill: &FillPattern, until: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>) -> Result<Plain> {
        let this = Plain::new(len)?;
        let mut buffer = vec![0u8; PIECE];
        for (at, n) in pieces(0..until.min(len)) {
            let part = buffer.get_mut(..n).unwrap_or_default();
            read(at, part)?;
            // Zeros stay holes of the file.
            if part.iter().any(|b| *b != 0) {
                this.write(at, part)?;
            }
        }
        if !fill.is_zero() {
            for (at, n) in pieces(until.min(len)..len) {
                let part = buffer.get_mut(..n).unwrap_or_default();
                fill.fill(at, part);
                this.write(at, part)?;
            }
        }
        Ok(this)
    }

    /// Its bytes in all.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True when it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `buf` with the bytes from `at` on.
    pub fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let _shared = self.lock.read();
        self.file.read_exact_at(buf, at).map_err(failed("read a temporary file"))
    }

    /// Writes `bytes` at `at`, within the length.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        if at.checked_add(bytes.len() as u64).is_none_or(|end| end > self.len) {
            return Err(Error::corrupt("chunk", Address::UNDEF, "shorter than its dimensions say"));
        }
        let _alone = self.lock.write();
        self.file.write_all_at(bytes, at).map_err(failed("write a temporary file"))
    }

    /// True when `len` bytes from `at` on are zeros.
    pub fn is_zero(&self, at: u64, len: u64) -> Result<bool> {
        let mut buffer = vec![0u8; PIECE];
        for (at, n) in pieces(at..at.saturating_add(len)) {
            let part = buffer.get_mut(..n).unwrap_or_default();
            self.read(at, part)?;
            if part.iter().any(|b| *b != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes `len` bytes from `at` on zeros.
    pub fn clear(&self, at: u64, len: u64) -> Result<()> {
        let zeros = vec![0u8; PIECE];
        pieces(at..at.saturating_add(len)).try_for_each(|(at, n)| self.write(at, zeros.get(..n).unwrap_or_default()))
    }

    /// The bytes as they are stored. What is written meanwhile may be in them or not: the caller finds out.
    pub fn encode(&self, plan: StreamPlan) -> Result<Stored> {
        let shuffled = plan.shuffle.map(|size| self.shuffled(size)).transpose()?;
        let source = shuffled.as_ref().unwrap_or(&self.file);
        let out = temporary::file().map_err(failed("make a temporary file"))?;
        let io = failed("write a temporary file");
        let sink = Sink { file: &out, at: 0, sum: plan.outer.then(Trailing::default), buffer: Vec::new() };
        let mut deflated = ZlibEncoder::new(sink, Compression::new(plan.level.unwrap_or_default()));
        let mut inner = plan.inner.then(Trailing::default);
        let mut buffer = vec![0u8; PIECE];
        for (at, n) in pieces(0..self.len) {
            let part = buffer.get_mut(..n).unwrap_or_default();
            source.read_exact_at(part, at).map_err(failed("read a temporary file"))?;
            if let Some(sum) = &mut inner {
                sum.add(part);
            }
            deflated.write_all(part).map_err(&io)?;
        }
        if let Some(sum) = inner {
            deflated.write_all(&sum.sum().to_le_bytes()).map_err(&io)?;
        }
        let mut sink = deflated.finish().map_err(&io)?;
        if let Some(sum) = sink.sum.take() {
            sink.write_all(&sum.sum().to_le_bytes()).map_err(&io)?;
        }
        sink.flush().map_err(&io)?;
        let len = sink.at;
        Ok(Stored { file: out, len, filter_mask: 0 })
    }

    /// The same by `encode`, which takes all bytes at once and gives those to store with the filter mask.
    pub fn encode_whole(&self, encode: impl FnOnce(Vec<u8>) -> Result<(Vec<u8>, u32)>) -> Result<Stored> {
        let no_memory = Error::Io { operation: "find memory to encode a chunk", address: Address::UNDEF, errno: libc::ENOMEM };
        let mut bytes = Vec::new();
        let len = usize::try_from(self.len).ok().filter(|len| bytes.try_reserve_exact(*len).is_ok()).ok_or(no_memory)?;
        bytes.resize(len, 0);
        self.read(0, &mut bytes)?;
        let (bytes, filter_mask) = encode(bytes)?;
        let file = temporary::file().map_err(failed("make a temporary file"))?;
        file.write_all_at(&bytes, 0).map_err(failed("write a temporary file"))?;
        Ok(Stored { file, len: bytes.len() as u64, filter_mask })
    }

    /// The bytes with the first ones of all elements of `size` bytes before the second ones, and so on.
    fn shuffled(&self, size: u64) -> Result<File> {
        let out = zeros(self.len)?;
        let count = self.len.checked_div(size).unwrap_or(0);
        let step = usize::try_from(size).unwrap_or(1).max(1);
        let whole = PIECE / step * step;
        let mut buffer = vec![0u8; whole];
        let mut plane = Vec::with_capacity(PIECE / step);
        let mut first = 0u64;
        while first < count {
            let elements = usize::try_from(count.saturating_sub(first)).unwrap_or(usize::MAX).min(whole / step);
            let part = buffer.get_mut(..elements.saturating_mul(step)).unwrap_or_default();
            self.file.read_exact_at(part, first.saturating_mul(size)).map_err(failed("read a temporary file"))?;
            if part.iter().any(|b| *b != 0) {
                for p in 0..step {
                    plane.clear();
                    plane.extend(part.iter().skip(p).step_by(step));
                    let at = (p as u64).saturating_mul(count).saturating_add(first);
                    out.write_all_at(&plane, at).map_err(failed("write a temporary file"))?;
                }
            }
            first = first.saturating_add(elements as u64);
        }
        // What is behind the last whole element stays where it is.
        let from = count.saturating_mul(size);
        let mut tail = vec![0u8; usize::try_from(self.len.saturating_sub(from)).unwrap_or(0)];
        self.file.read_exact_at(&mut tail, from).map_err(failed("read a temporary file"))?;
        out.write_all_at(&tail, from).map_err(failed("write a temporary file"))?;
        Ok(out)
    }
}

impl Stored {
    /// Bytes in all.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Which filters were left out, a bit for each.
    pub fn filter_mask(&self) -> u32 {
        self.filter_mask
    }

    /// Fills `buf` with the bytes from `at` on.
    pub fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buf, at).map_err(failed("read a temporary file"))
    }
}

/// Where encoded bytes go.
struct Sink<'a> {
    file: &'a File,
    /// Bytes so far.
    at: u64,
    sum: Option<Trailing>,
    /// Those that are not in the file yet.
    buffer: Vec<u8>,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(sum) = &mut self.sum {
            sum.add(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        self.at = self.at.saturating_add(bytes.len() as u64);
        if self.buffer.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.at.saturating_sub(self.buffer.len() as u64))?;
        self.buffer.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::pipeline::{FilterSpec, Pipeline};
    use crate::filter::registry::{DEFLATE, FLETCHER32, SHUFFLE};

    fn spec(id: u16, cd_values: &[u32]) -> FilterSpec {
        FilterSpec { id, flags: 0, name: Vec::new(), cd_values: cd_values.to_vec() }
    }

    #[test]
    fn what_is_encoded_in_pieces_is_decoded_as_a_whole() {
        let mut data: Vec<u8> = (0..3_000_007u32).map(|i| (i.wrapping_mul(i) >> 9) as u8).collect();
        data[1_200_000..2_900_000].fill(0);
        let read = &mut |at: u64, buf: &mut [u8]| {
            buf.copy_from_slice(&data[at as usize..at as usize + buf.len()]);
            Ok(())
        };
        let plain = Plain::filled(data.len() as u64, &FillPattern::zero(), u64::MAX, read).unwrap();
        for size in [1, 2, 8, 40] {
            for (inner, outer) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut filters = vec![spec(SHUFFLE, &[size])];
                filters.extend(inner.then(|| spec(FLETCHER32, &[])));
                filters.push(spec(DEFLATE, &[1]));
                filters.extend(outer.then(|| spec(FLETCHER32, &[])));
                let pipeline = Pipeline { filters };
                let plan = StreamPlan::of(&pipeline, 0, data.len() as u64).unwrap();
                let stored = plain.encode(plan).unwrap();
                let mut bytes = vec![0; stored.len() as usize];
                stored.read(0, &mut bytes).unwrap();
                assert!(pipeline.decode(&bytes, 0, data.len()).unwrap() == data, "{size} {inner} {outer}");
            }
        }
    }

    #[test]
    fn bytes_are_changed_where_they_lie() {
        let fill = FillPattern::new(&[1, 2, 3], 3);
        let plain = Plain::filled(3 << 20, &fill, 10, &mut |_, buf| {
            buf.fill(9);
            Ok(())
        })
        .unwrap();
        let mut bytes = [0; 8];
        plain.read(6, &mut bytes).unwrap();
        assert_eq!(bytes, [9, 9, 9, 9, 2, 3, 1, 2]);
        plain.write((3 << 20) - 2, &[7, 7]).unwrap();
        assert!(plain.write((3 << 20) - 1, &[7, 7]).is_err());
        plain.clear(7, 2 << 20).unwrap();
        assert!(plain.is_zero(7, 2 << 20).unwrap() && !plain.is_zero(6, 2).unwrap() && !plain.is_zero(7, (2 << 20) + 1).unwrap());
    }
}
