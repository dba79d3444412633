//! Reader of a big-endian bit stream (most significant bit of each byte first).

/// Why a read failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BitError {
    /// The stream ended within a code.
    End,
    /// A unary code beyond [`UNARY_MAX`].
    Unary,
}

/// Zeros after which a unary code is corrupt. An encoder would have stored such a block
/// uncompressed.
const UNARY_MAX: u32 = 1 << 20;

/// Reader state: unconsumed bits are the upper `have` bits of `acc`, then `bytes`.
///
/// Bits of `acc` below `have` are either zero or equal to the bits that the next refill adds, so
/// refills may simply OR.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    acc: u64,
    have: u32,
}

impl<'a> BitReader<'a> {
    /// A reader at the first bit of `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        BitReader { bytes, acc: 0, have: 0 }
    }

    /// Fills `acc` to at least 56 bits, or with all remaining bits.
    #[inline]
    fn refill(&mut self) {
        if let Some(word) = self.bytes.first_chunk::<8>() {
            self.acc |= u64::from_be_bytes(*word) >> self.have;
            let take = (63 - self.have) / 8;
            self.bytes = self.bytes.get(take as usize..).unwrap_or_default();
            self.have += take * 8;
            return;
        }
        while self.have < 56
            && let Some((&byte, rest)) = self.bytes.split_first()
        {
            self.acc |= u64::from(byte) << (56 - self.have);
            self.bytes = rest;
            self.have += 8;
        }
    }

    /// Reads the next `n` bits, at most 32, as a number.
    #[inline]
    pub(super) fn get(&mut self, n: u32) -> Result<u32, BitError> {
        if self.have < n {
            self.refill();
            if self.have < n {
                return Err(BitError::End);
            }
        }
        if n == 0 {
            return Ok(0);
        }
        let value = (self.acc >> (64 - n)) as u32;
        self.acc <<= n;
        self.have -= n;
        Ok(value)
    }

    /// Reads a fundamental sequence: counts the zeros before the next one bit and consumes both.
    #[inline]
    pub(super) fn unary(&mut self) -> Result<u32, BitError> {
        let run = self.acc.leading_zeros();
        if run < self.have {
            self.acc <<= run + 1;
            self.have -= run + 1;
            return Ok(run);
        }
        self.unary_across()
    }

    /// Reads a fundamental sequence whose one bit is not in `acc`.
    fn unary_across(&mut self) -> Result<u32, BitError> {
        let mut zeros = 0u32;
        loop {
            let run = self.acc.leading_zeros();
            if run < self.have {
                self.acc <<= run + 1;
                self.have -= run + 1;
                return Ok(zeros + run);
            }
            zeros += self.have;
            if zeros > UNARY_MAX {
                return Err(BitError::Unary);
            }
            self.acc = 0;
            self.have = 0;
            self.refill();
            if self.have == 0 {
                return Err(BitError::End);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits of a known stream into widths return the same bits as a shift register.
    #[test]
    fn widths_agree_with_a_shift_register() {
        let bytes: Vec<u8> = (0..61u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let all: Vec<u8> = bytes.iter().flat_map(|b| (0..8).rev().map(move |i| b >> i & 1)).collect();
        for seed in 0..40u32 {
            let (mut r, mut at, mut x) = (BitReader::new(&bytes), 0usize, seed);
            loop {
                x = x.wrapping_mul(1_103_515_245).wrapping_add(12345);
                if x >> 16 & 3 == 0 {
                    let zeros = all[at..].iter().take_while(|&&b| b == 0).count();
                    if at + zeros >= all.len() {
                        assert_eq!(r.unary(), Err(BitError::End));
                        break;
                    }
                    assert_eq!(r.unary(), Ok(zeros as u32));
                    at += zeros + 1;
                } else {
                    let n = (x >> 20) % 33;
                    let Some(want) = all.get(at..at + n as usize) else {
                        assert_eq!(r.get(n), Err(BitError::End));
                        break;
                    };
                    assert_eq!(r.get(n), Ok(want.iter().fold(0u32, |v, &b| v << 1 | u32::from(b))));
                    at += n as usize;
                }
            }
        }
    }

    #[test]
    fn endless_zeros_are_refused() {
        assert_eq!(BitReader::new(&vec![0; 1 << 18]).unary(), Err(BitError::Unary));
        assert_eq!(BitReader::new(&[0; 100]).unary(), Err(BitError::End));
        assert_eq!(BitReader::new(&[]).get(0), Ok(0));
    }
}
