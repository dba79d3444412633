//! Filter 3, fletcher32: a checksum after the data.
//!
//! ```text
//! data ... | checksum u32 little-endian
//! ```
//!
//! The sum is over big-endian 16-bit words (an odd last byte is the upper half of a word). Each
//! half is folded as `(s & 0xffff) + (s >> 16)`, after every 360 words and once at the end, which
//! differs from modulo 65535: a half may be 0xffff. (H5checksum.c)
//!
//! Before release 1.6.3 the bytes of each half were swapped on little-endian machines; like
//! H5Zfletcher32.c, this decoder still accepts that form.

use super::{FilterError, Params, bounded};

const NAME: &str = "fletcher32";
/// Words between two folds: few enough that 32 bits do not overflow.
const WORDS_PER_FOLD: usize = 360;

fn fold(sum: u32) -> u32 {
    (sum & 0xffff).wrapping_add(sum >> 16)
}

/// Running sums: the two halves of the checksum.
#[derive(Debug, Clone, Copy, Default)]
struct Sums(u32, u32);

impl Sums {
    /// Adds words; each `data` except the last must be a multiple of `WORDS_PER_FOLD` words.
    fn add(&mut self, data: &[[u8; 2]]) {
        for block in data.chunks(WORDS_PER_FOLD) {
            for word in block {
                self.0 = self.0.wrapping_add(u32::from(u16::from_be_bytes(*word)));
                self.1 = self.1.wrapping_add(self.0);
            }
            (self.0, self.1) = (fold(self.0), fold(self.1));
        }
    }

    /// Adds the last bytes and returns the checksum.
    fn finish(mut self, data: &[u8]) -> u32 {
        let (words, odd) = data.as_chunks::<2>();
        self.add(words);
        if let [last] = odd {
            self.0 = self.0.wrapping_add(u32::from(*last) << 8);
            self.1 = self.1.wrapping_add(self.0);
            (self.0, self.1) = (fold(self.0), fold(self.1));
        }
        fold(self.1) << 16 | fold(self.0)
    }
}

/// Computes libhdf5's Fletcher-32 of `data`.
pub fn checksum(data: &[u8]) -> u32 {
    Sums::default().finish(data)
}

/// Incremental verification of data that end with their checksum.
#[derive(Debug, Default)]
pub struct Trailing {
    sums: Sums,
    /// Bytes not yet summed: less than a block plus a checksum.
    rest: Vec<u8>,
    len: u64,
}

impl Trailing {
    /// Size of the checksum, bytes.
    pub const LEN: usize = 4;

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        const BLOCK: usize = WORDS_PER_FOLD * 2;
        self.len = self.len.saturating_add(bytes.len() as u64);
        self.rest.extend_from_slice(bytes);
        let ready = self.rest.len().saturating_sub(Self::LEN) / BLOCK * BLOCK;
        self.sums.add(self.rest.get(..ready).unwrap_or_default().as_chunks::<2>().0);
        self.rest.drain(..ready);
    }

    /// Returns the checksum of all bytes added, for data without a trailing checksum.
    pub fn sum(self) -> u32 {
        self.sums.finish(&self.rest)
    }

    /// Verifies the trailing checksum; returns the number of data bytes before it.
    pub fn finish(self) -> Result<u64, FilterError> {
        let (data, stored) = split(&self.rest)?;
        matches(stored, self.sums.finish(data))?;
        Ok(self.len.saturating_sub(Self::LEN as u64))
    }
}

fn split(input: &[u8]) -> Result<(&[u8], u32), FilterError> {
    let (data, stored) = input.split_last_chunk::<4>().ok_or_else(|| FilterError::corrupt(NAME, "shorter than its checksum"))?;
    Ok((data, u32::from_le_bytes(*stored)))
}

fn matches(stored: u32, want: u32) -> Result<(), FilterError> {
    let before_1_6_3 = (want & 0x00ff_00ff) << 8 | (want >> 8) & 0x00ff_00ff;
    if stored == want || stored == before_1_6_3 || cfg!(fuzzing) {
        Ok(())
    } else {
        Err(FilterError::corrupt(NAME, format!("checksum is {stored:#010x}, must be {want:#010x}")))
    }
}

/// Verifies the trailing checksum of `input`; returns the number of data bytes before it.
pub fn verify(input: &[u8]) -> Result<usize, FilterError> {
    let (data, stored) = split(input)?;
    matches(stored, checksum(data))?;
    Ok(data.len())
}

/// Appends the checksum of `data` to it.
pub fn append(data: &mut Vec<u8>) {
    let sum = checksum(data);
    data.extend_from_slice(&sum.to_le_bytes());
}

/// Copies `data` and appends its checksum; never declines.
pub fn encode(input: &[u8], _: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let len = input.len().saturating_add(Trailing::LEN);
    let mut out = bounded::buffer(NAME, len, len)?;
    out.extend_from_slice(input);
    append(&mut out);
    Ok(Some(out))
}

/// Verifies and removes the checksum.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let len = verify(input)?;
    bounded::copy(NAME, input.get(..len).unwrap_or_default(), p.limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A direct implementation of H5_checksum_fletcher32, independent of the fast one.
    fn slow(data: &[u8]) -> u32 {
        let (mut s1, mut s2, mut left) = (0u64, 0u64, 0);
        for pair in data.chunks(2) {
            if left == 0 || pair.len() == 1 {
                (s1, s2) = ((s1 & 0xffff) + (s1 >> 16), (s2 & 0xffff) + (s2 >> 16));
                left = 360;
            }
            s1 += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
            s2 += s1;
            left -= 1;
        }
        for _ in 0..2 {
            (s1, s2) = ((s1 & 0xffff) + (s1 >> 16), (s2 & 0xffff) + (s2 >> 16));
        }
        (s2 << 16 | s1) as u32
    }

    #[test]
    fn equals_the_slow_form() {
        let data: Vec<u8> = (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        for n in (0..200).chain([719, 720, 721, 722, 1440, 1441, 4999, 5000]) {
            assert_eq!(checksum(&data[..n]), slow(&data[..n]), "{n} bytes");
            assert_eq!(checksum(&vec![0xff; n]), slow(&vec![0xff; n]), "{n} bytes of 0xff");
        }
        assert_eq!(checksum(&[0xff; 2]), 0xffff_ffff, "0xffff stays: not modulo 65535");
        assert_eq!(checksum(&[]), 0);
    }

    #[test]
    fn both_byte_orders_pass_others_do_not() {
        let p = Params { cd_values: &[], expected: 3, limit: 100 };
        let sum = checksum(b"abc").to_le_bytes();
        let with = |s: [u8; 4]| [b"abc".as_slice(), &s].concat();
        assert_eq!(decode(&with(sum), &p).unwrap(), b"abc");
        assert_eq!(decode(&with([sum[1], sum[0], sum[3], sum[2]]), &p).unwrap(), b"abc");
        assert!(decode(&with([sum[0], sum[1], sum[3], sum[2]]), &p).is_err());
        assert!(decode(&with([sum[0] ^ 1, sum[1], sum[2], sum[3]]), &p).is_err());
        assert!(decode(b"abc", &p).is_err());
        assert!(decode(b"", &p).is_err());
    }

    #[test]
    fn pieces_sum_up_like_the_whole() {
        let data: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
        for len in [0, 1, 2, 719, 720, 721, 1440, 4999] {
            let input = [&data[..len], &checksum(&data[..len]).to_le_bytes()].concat();
            for piece in [1, 3, 720, 724, 5000] {
                let mut t = Trailing::default();
                input.chunks(piece).for_each(|p| t.add(p));
                assert_eq!(t.finish().unwrap(), len as u64);
                let mut t = Trailing::default();
                input.chunks(piece).for_each(|p| t.add(p));
                t.rest[0] ^= 1;
                assert!(t.finish().is_err());
            }
        }
        assert!(Trailing::default().finish().is_err());
    }
}
