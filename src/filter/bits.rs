//! Bit stream of n-bit and scale-offset: most significant bit of each byte first.

/// Cursor over a bit stream.
#[derive(Debug, Clone)]
pub(super) struct Bits<'a> {
    buf: &'a [u8],
    /// Bits consumed.
    pos: usize,
    /// Bits in all.
    end: usize,
}

impl<'a> Bits<'a> {
    /// A cursor at the first bit of `buf`.
    pub(super) fn new(buf: &'a [u8]) -> Self {
        Bits { buf, pos: 0, end: buf.len().saturating_mul(8) }
    }

    /// The next `n` bits (at most 64) as an unsigned number; `None` when fewer are left.
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

    /// The next `out.len()` bytes of the stream.
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

#[cfg(test)]
mod tests {
    use super::Bits;

    /// Every width at every phase equals the bit-by-bit answer, to the very end of the stream.
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
