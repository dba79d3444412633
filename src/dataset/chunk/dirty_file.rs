//! Dirty chunks too large for memory: their decoded bytes, in an unlinked temporary file.
//!
//! Writeback encodes such a chunk piece by piece into a second temporary file: shuffled through a
//! third one, then deflated, with checksums before and after deflation. It takes a few pieces of
//! memory. Pipelines that need the whole chunk encode it in memory.

use super::chunk_files::StreamPlan;
use super::temporary;
use crate::base::io_pieces::pieces;
use crate::base::limits::IO_PIECE_BYTES;
use crate::base::locks::RwLock;
use crate::base::{Address, Error, Result};
use crate::dataset::fill::FillPattern;
use crate::file::posix::read_cached;
use crate::filter::fletcher32::Trailing;
use crate::format::chunk_record::StoredForm;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Decoded bytes of a chunk in a temporary file.
#[derive(Debug)]
pub(crate) struct DirtyFile {
    file: File,
    len: u64,
    /// Held shared by reads and exclusively by writes, so that reads see no partial write.
    lock: RwLock<()>,
    #[cfg(test)]
    is_cold: std::sync::atomic::AtomicBool,
}

/// An encoded chunk in a temporary file.
#[derive(Debug)]
pub(crate) struct Stored {
    file: File,
    len: u64,
    form: StoredForm,
}

fn io_error(operation: &'static str) -> impl Fn(io::Error) -> Error {
    move |e| Error::io(operation, Address::UNDEF, &e)
}

/// Creates a temporary file of `len` zeros.
fn zeros(len: u64) -> Result<File> {
    let file = temporary::file().map_err(io_error("make a temporary file"))?;
    file.set_len(len).map_err(io_error("make a temporary file"))?;
    Ok(file)
}

impl DirtyFile {
    /// Creates a file of `len` zeros.
    pub(crate) fn new(len: u64) -> Result<DirtyFile> {
        Ok(DirtyFile {
            file: zeros(len)?,
            len,
            lock: RwLock::default(),
            #[cfg(test)]
            is_cold: false.into(),
        })
    }

    /// Creates a file of `len` bytes: those before `until` from `read`, which fills a buffer from
    /// an offset; the rest from the fill value.
    pub(crate) fn filled(
        len: u64,
        fill: &FillPattern,
        until: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<DirtyFile> {
        let this = DirtyFile::new(len)?;
        let mut buffer = vec![0u8; IO_PIECE_BYTES];
        for (at, n) in pieces(0..until.min(len)) {
            let part = buffer.get_mut(..n).unwrap_or_default();
            read(at, part)?;
            // Zeros stay holes of the temporary file.
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

    /// Length, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buf` with the bytes from `at`.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let _shared = self.lock.read();
        self.file.read_exact_at(buf, at).map_err(io_error("read a temporary file"))
    }

    /// False if a disk must be read for the first or the last byte of `range`.
    pub(crate) fn is_in_memory(&self, range: &Range<u64>) -> bool {
        #[cfg(test)]
        if self.is_cold.load(std::sync::atomic::Ordering::SeqCst) {
            return false;
        }
        [range.start, range.end.saturating_sub(1)].iter().all(|at| read_cached(&self.file, &mut [0], *at) != Some(0))
    }

    /// Has the host read `range` into its memory. A read that follows finds errors.
    pub(crate) fn warm(&self, range: Range<u64>) {
        #[cfg(test)]
        self.is_cold.store(false, std::sync::atomic::Ordering::SeqCst);
        let mut buffer = vec![0u8; IO_PIECE_BYTES];
        let mut pieces = pieces(range);
        drop(pieces.try_for_each(|(at, n)| self.file.read_exact_at(buffer.get_mut(..n).unwrap_or_default(), at)));
    }

    /// A disk must be read, until [`DirtyFile::warm`] did that.
    #[cfg(test)]
    pub(crate) fn cool(&self) {
        self.is_cold.store(true, std::sync::atomic::Ordering::SeqCst);
    }

    /// Writes `bytes` at `at`. Errors: a range past the length.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        if at.checked_add(bytes.len() as u64).is_none_or(|end| end > self.len) {
            return Err(Error::corrupt("chunk", Address::UNDEF, "shorter than its dimensions say"));
        }
        let _alone = self.lock.write();
        self.file.write_all_at(bytes, at).map_err(io_error("write a temporary file"))
    }

    /// True when `len` bytes from `at` are zero.
    pub(crate) fn is_zero(&self, at: u64, len: u64) -> Result<bool> {
        let mut buffer = vec![0u8; IO_PIECE_BYTES];
        for (at, n) in pieces(at..at.saturating_add(len)) {
            let part = buffer.get_mut(..n).unwrap_or_default();
            self.read(at, part)?;
            if part.iter().any(|b| *b != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Zeroes `len` bytes from `at`.
    pub(crate) fn clear(&self, at: u64, len: u64) -> Result<()> {
        let zeros = vec![0u8; IO_PIECE_BYTES];
        pieces(at..at.saturating_add(len)).try_for_each(|(at, n)| self.write(at, zeros.get(..n).unwrap_or_default()))
    }

    /// Encodes the chunk in pieces. The result may mix versions if a write runs concurrently: the
    /// caller compares versions.
    pub(crate) fn encode(&self, plan: StreamPlan) -> Result<Stored> {
        let shuffled = plan.shuffle.map(|size| self.shuffled(size)).transpose()?;
        let source = shuffled.as_ref().unwrap_or(&self.file);
        let out = temporary::file().map_err(io_error("make a temporary file"))?;
        let io = io_error("write a temporary file");
        let sink = Sink { file: &out, at: 0, sum: plan.outer_checksum.then(Trailing::default), buffer: Vec::new() };
        let mut deflated = ZlibEncoder::new(sink, Compression::new(plan.level.unwrap_or_default()));
        let mut inner_checksum = plan.inner_checksum.then(Trailing::default);
        let mut buffer = vec![0u8; IO_PIECE_BYTES];
        for (at, n) in pieces(0..self.len) {
            let part = buffer.get_mut(..n).unwrap_or_default();
            source.read_exact_at(part, at).map_err(io_error("read a temporary file"))?;
            if let Some(sum) = &mut inner_checksum {
                sum.add(part);
            }
            deflated.write_all(part).map_err(&io)?;
        }
        if let Some(sum) = inner_checksum {
            deflated.write_all(&sum.sum().to_le_bytes()).map_err(&io)?;
        }
        let mut sink = deflated.finish().map_err(&io)?;
        if let Some(sum) = sink.sum.take() {
            sink.write_all(&sum.sum().to_le_bytes()).map_err(&io)?;
        }
        sink.flush().map_err(&io)?;
        let len = sink.at;
        Ok(Stored { file: out, len, form: StoredForm::WHOLE })
    }

    /// Encodes the chunk in memory by `encode`, which returns the stored bytes and how they are
    /// decoded.
    pub(crate) fn encode_whole(&self, encode: impl FnOnce(Vec<u8>) -> Result<(Vec<u8>, StoredForm)>) -> Result<Stored> {
        let no_memory = Error::Io { operation: "find memory to encode a chunk", address: Address::UNDEF, errno: libc::ENOMEM };
        let mut bytes = Vec::new();
        let len = usize::try_from(self.len).ok().filter(|len| bytes.try_reserve_exact(*len).is_ok()).ok_or(no_memory)?;
        bytes.resize(len, 0);
        self.read(0, &mut bytes)?;
        let (bytes, form) = encode(bytes)?;
        let file = temporary::file().map_err(io_error("make a temporary file"))?;
        file.write_all_at(&bytes, 0).map_err(io_error("write a temporary file"))?;
        Ok(Stored { file, len: bytes.len() as u64, form })
    }

    /// Shuffles elements of `size` bytes into byte planes in a new file, as the shuffle filter
    /// does.
    fn shuffled(&self, size: u64) -> Result<File> {
        let out = zeros(self.len)?;
        let count = self.len.checked_div(size).unwrap_or(0);
        let step = usize::try_from(size).unwrap_or(1).max(1);
        let whole = IO_PIECE_BYTES / step * step;
        let mut buffer = vec![0u8; whole];
        let mut plane = Vec::with_capacity(IO_PIECE_BYTES / step);
        let mut first = 0u64;
        while first < count {
            let elements = usize::try_from(count.saturating_sub(first)).unwrap_or(usize::MAX).min(whole / step);
            let part = buffer.get_mut(..elements.saturating_mul(step)).unwrap_or_default();
            self.file.read_exact_at(part, first.saturating_mul(size)).map_err(io_error("read a temporary file"))?;
            if part.iter().any(|b| *b != 0) {
                for p in 0..step {
                    plane.clear();
                    plane.extend(part.iter().skip(p).step_by(step));
                    let at = (p as u64).saturating_mul(count).saturating_add(first);
                    out.write_all_at(&plane, at).map_err(io_error("write a temporary file"))?;
                }
            }
            first = first.saturating_add(elements as u64);
        }
        // Bytes after the last whole element are not shuffled.
        let from = count.saturating_mul(size);
        let mut tail = vec![0u8; usize::try_from(self.len.saturating_sub(from)).unwrap_or(0)];
        self.file.read_exact_at(&mut tail, from).map_err(io_error("read a temporary file"))?;
        out.write_all_at(&tail, from).map_err(io_error("write a temporary file"))?;
        Ok(out)
    }
}

impl Stored {
    /// Length, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// How the encoded bytes are decoded.
    pub(crate) fn form(&self) -> StoredForm {
        self.form
    }

    /// Fills `buf` with the encoded bytes from `at`.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buf, at).map_err(io_error("read a temporary file"))
    }
}

/// Buffered writer of encoded bytes to a file.
struct Sink<'a> {
    file: &'a File,
    /// Bytes written so far, including those in `buffer`.
    at: u64,
    sum: Option<Trailing>,
    /// Bytes not in the file yet.
    buffer: Vec<u8>,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(sum) = &mut self.sum {
            sum.add(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        self.at = self.at.saturating_add(bytes.len() as u64);
        if self.buffer.len() >= IO_PIECE_BYTES {
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
    use crate::base::filter_spec::FilterSpec;
    use crate::filter::pipeline::Pipeline;
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
        let plain = DirtyFile::filled(data.len() as u64, &FillPattern::zero(), u64::MAX, read).unwrap();
        for size in [1, 2, 8, 40] {
            for (inner_checksum, outer_checksum) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut filters = vec![spec(SHUFFLE, &[size])];
                filters.extend(inner_checksum.then(|| spec(FLETCHER32, &[])));
                filters.push(spec(DEFLATE, &[1]));
                filters.extend(outer_checksum.then(|| spec(FLETCHER32, &[])));
                let pipeline = Pipeline { filters };
                let plan = StreamPlan::of(&pipeline, 0, data.len() as u64).unwrap();
                let stored = plain.encode(plan).unwrap();
                let mut bytes = vec![0; stored.len() as usize];
                stored.read(0, &mut bytes).unwrap();
                assert!(pipeline.decode(&bytes, 0, data.len()).unwrap() == data, "{size} {inner_checksum} {outer_checksum}");
            }
        }
    }

    #[test]
    fn bytes_are_changed_where_they_lie() {
        let fill = FillPattern::new(&[1, 2, 3], 3);
        let plain = DirtyFile::filled(3 << 20, &fill, 10, &mut |_, buf| {
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
