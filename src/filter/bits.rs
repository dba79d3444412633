//! Bit streams of n-bit, scale-offset and szip: most significant bit of each byte first.

/// Cursor over a bit stream.
#[derive(Debug, Clone)]
pub(super) struct Bits<'a> {
    buf: &'a [u8],
    /// Bits consumed.
    pos: usize,
    /// Length of the stream, bits.
    end: usize,
}

impl<'a> Bits<'a> {
    /// A cursor at the first bit of `buf`.
    pub(super) fn new(buf: &'a [u8]) -> Self {
        Bits { buf, pos: 0, end: buf.len().saturating_mul(8) }
    }

    /// Reads the next `n` bits (at most 64) as an unsigned number; `None` when fewer remain.
    #[inline]
    pub(super) fn take(&mut self, n: u32) -> Option<u64> {
        let end = self.pos.checked_add(usize::try_from(n).ok()?).filter(|&e| e <= self.end)?;
        if n == 0 {
            return Some(0);
        }
        let (byte, shift) = (self.pos / 8, (self.pos % 8) as u32);
        let tail = self.buf.get(byte..).unwrap_or_default();
        let word = match tail.first_chunk::<8>() {
            Some(w) => u64::from_be_bytes(*w),
            None => tail.iter().fold(0u64, |w, &b| w << 8 | u64::from(b)) << (64 - 8 * tail.len() as u32),
        };
        let mut value = word << shift;
        if n.saturating_add(shift) > 64 {
            value |= u64::from(tail.get(8).copied().unwrap_or(0) >> (8 - shift));
        }
        self.pos = end;
        Some(value >> 64u32.saturating_sub(n))
    }

    /// Reads the next `out.len()` bytes, at any bit position.
    pub(super) fn bytes(&mut self, out: &mut [u8]) -> Option<()> {
        if self.pos.is_multiple_of(8) {
            let from = self.pos / 8;
            let to = from.checked_add(out.len())?;
            out.copy_from_slice(self.buf.get(from..to)?);
            self.pos = to.checked_mul(8)?;
            return Some(());
        }
        for byte in out {
            *byte = self.take(8)? as u8;
        }
        Some(())
    }
}

/// Writer of a bit stream.
#[derive(Debug, Clone, Default)]
pub(super) struct BitWriter {
    out: Vec<u8>,
    /// Bits not yet in `out`, in the upper bits.
    word: u64,
    /// Number of bits in `word`, at most 63.
    held: u32,
}

impl BitWriter {
    /// A writer that appends to `out`.
    pub(super) fn new(out: Vec<u8>) -> Self {
        BitWriter { out, word: 0, held: 0 }
    }

    /// Appends the low `n` bits (at most 64) of `value`.
    #[inline]
    pub(super) fn put(&mut self, value: u64, n: u32) {
        if n == 0 {
            return;
        }
        let top = value << 64u32.saturating_sub(n);
        self.word |= top >> self.held;
        let held = self.held.saturating_add(n);
        if held >= 64 {
            self.out.extend_from_slice(&self.word.to_be_bytes());
            // The bits of `value` that did not fit: all but the first 64 - held bits.
            self.word = top.checked_shl(64u32.saturating_sub(self.held)).unwrap_or(0);
            self.held = held.saturating_sub(64);
        } else {
            self.held = held;
        }
    }

    /// Appends `n` zero bits and a one bit.
    #[inline]
    pub(super) fn unary(&mut self, n: u32) {
        let mut left = n;
        while left >= 63 {
            self.put(0, 63);
            left = left.saturating_sub(63);
        }
        self.put(1, left.saturating_add(1));
    }

    /// Appends whole bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|w| self.put(u64::from_be_bytes(*w), 64));
        rest.iter().for_each(|b| self.put(u64::from(*b), 8));
    }

    /// Length in bits, including the bytes passed to `new`.
    pub(super) fn len(&self) -> usize {
        self.out.len().saturating_mul(8).saturating_add(self.held as usize)
    }

    /// Returns the stream, its last byte padded with zero bits.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut out = self.out;
        let bytes = self.held.div_ceil(8) as usize;
        out.extend_from_slice(self.word.to_be_bytes().get(..bytes).unwrap_or_default());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::{BitWriter, Bits};

    /// The reader returns what the writer wrote, for every width at many bit positions.
    #[test]
    fn writer_and_reader_agree() {
        let value = |i: u32| u64::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let width = |i: u32, first: u32| (first + i * 7) % 65;
        for first in 0..=64 {
            let mut w = BitWriter::new(vec![0xab]);
            (0..100).for_each(|i| w.put(value(i), width(i, first)));
            w.unary(first * 3);
            let len = w.len();
            let out = w.finish();
            assert_eq!(out.len(), len.div_ceil(8));
            let mut r = Bits::new(&out);
            assert_eq!(r.take(8), Some(0xab));
            for i in 0..100 {
                let n = width(i, first);
                assert_eq!(r.take(n), Some(if n == 0 { 0 } else { value(i) << (64 - n) >> (64 - n) }));
            }
            (0..first * 3).for_each(|_| assert_eq!(r.take(1), Some(0)));
            assert_eq!(r.take(1), Some(1));
        }
        let mut w = BitWriter::new(Vec::new());
        w.put(1, 3);
        w.bytes(&[0x12; 19]);
        let out = w.finish();
        let mut r = Bits::new(&out);
        assert_eq!(r.take(3), Some(1));
        (0..19).for_each(|_| assert_eq!(r.take(8), Some(0x12)));
    }

    /// Every width at every bit position equals the bit-by-bit answer, up to the end of the stream.
    #[test]
    fn equals_bit_by_bit() {
        let buf: Vec<u8> = (0..40u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let bit = |i: usize| u64::from(buf[i / 8] >> (7 - i % 8) & 1);
        for n in 0..=64u32 {
            for start in 0..16 {
                let mut bits = Bits::new(&buf);
                bits.take(start).unwrap();
                let mut pos = start as usize;
                while pos + n as usize <= buf.len() * 8 {
                    let want = (pos..pos + n as usize).fold(0, |v, i| v << 1 | bit(i));
                    assert_eq!(bits.take(n), Some(want), "{n} bits at {pos}");
                    pos += n as usize;
                    if n == 0 {
                        break;
                    }
                }
                assert!(n == 0 || bits.take(n).is_none());
            }
        }
    }

    #[test]
    fn bytes_at_any_phase() {
        let mut out = [0; 2];
        let mut bits = Bits::new(&[0x12, 0x34, 0x56]);
        bits.bytes(&mut out).unwrap();
        assert_eq!(out, [0x12, 0x34]);
        assert!(bits.clone().bytes(&mut out).is_none());
        let mut bits = Bits::new(&[0x12, 0x34, 0x56]);
        bits.take(4).unwrap();
        bits.bytes(&mut out).unwrap();
        assert_eq!(out, [0x23, 0x45]);
        assert!(bits.bytes(&mut out).is_none());
    }
}
