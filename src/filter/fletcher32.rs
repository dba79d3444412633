//! Filter 3, fletcher32: a checksum behind the data.
//!
//! ```text
//! data ... | checksum u32 little-endian
//! ```
//!
//! The sum runs over big-endian 16-bit words (an odd last byte is the upper half of a word).
//! Each half is folded as `(s & 0xffff) + (s >> 16)`, after every 360 words and once at the end,
//! which is not the same as modulo 65535: a half may be 0xffff. (H5checksum.c)
//!
//! Before release 1.6.3 the bytes of each half were swapped on little-endian machines;
//! H5Zfletcher32.c still accepts that form, so does this.

use super::{FilterError, Params, bounded};

const NAME: &str = "fletcher32";
/// Words between two folds; within so many, 32 bits do not overflow.
const WORDS_PER_FOLD: usize = 360;

fn fold(sum: u32) -> u32 {
    (sum & 0xffff).wrapping_add(sum >> 16)
}

/// libhdf5's Fletcher-32 of `data`.
pub fn checksum(data: &[u8]) -> u32 {
    let (words, odd) = data.as_chunks::<2>();
    let (mut sum1, mut sum2) = (0u32, 0u32);
    for block in words.chunks(WORDS_PER_FOLD) {
        for word in block {
            sum1 = sum1.wrapping_add(u32::from(u16::from_be_bytes(*word)));
            sum2 = sum2.wrapping_add(sum1);
        }
        (sum1, sum2) = (fold(sum1), fold(sum2));
    }
    if let [last] = odd {
        sum1 = sum1.wrapping_add(u32::from(*last) << 8);
        sum2 = sum2.wrapping_add(sum1);
        (sum1, sum2) = (fold(sum1), fold(sum2));
    }
    (sum1, sum2) = (fold(sum1), fold(sum2));
    sum2 << 16 | sum1
}

/// Checks the trailing checksum of `input`; gives the number of data bytes before it.
pub fn verify(input: &[u8]) -> Result<usize, FilterError> {
    let Some((data, stored)) = input.split_last_chunk::<4>() else {
        return Err(FilterError::corrupt(NAME, "shorter than its checksum"));
    };
    let stored = u32::from_le_bytes(*stored);
    let want = checksum(data);
    let before_1_6_3 = (want & 0x00ff_00ff) << 8 | (want >> 8) & 0x00ff_00ff;
    if stored == want || stored == before_1_6_3 || cfg!(fuzzing) {
        Ok(data.len())
    } else {
        Err(FilterError::corrupt(NAME, format!("checksum is {stored:#010x}, must be {want:#010x}")))
    }
}

/// Checks and removes the checksum.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let len = verify(input)?;
    bounded::copy(NAME, input.get(..len).unwrap_or_default(), p.limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The straightforward reading of H5_checksum_fletcher32, kept apart from the fast one.
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
}
