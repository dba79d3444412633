//! Decoder of BloscLZ, the LZ77 coder of the Blosc libraries (a FastLZ relative).
//!
//! ```text
//! control < 32            literal run of control + 1 bytes (the first control's upper 3 bits mean nothing)
//! control = lllddddd      match: length l + 2 (l = 7: plus following bytes until one is not 255), then one distance byte;
//!                         distance = d * 256 + byte + 1, or if all those bits are set, 8192 + u16 BE that follows
//! ```

/// Distances from here on have two further bytes.
const FAR: usize = 8191;

/// Decodes `input` into all of `out`. False if the input is broken or gives another length.
pub(super) fn decompress(input: &[u8], out: &mut [u8]) -> bool {
    run(input, out).is_some_and(|n| n == out.len())
}

/// The bytes written, if the input is sound.
fn run(mut input: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut next = || {
        let (&b, rest) = input.split_first()?;
        input = rest;
        Some(b)
    };
    let mut at = 0usize;
    let mut control = next()? & 31;
    loop {
        if control < 32 {
            for _ in 0..=control {
                *out.get_mut(at)? = next()?;
                at += 1;
            }
        } else {
            let mut length = usize::from(control >> 5) + 2;
            if length == 9 {
                loop {
                    let more = next()?;
                    length = length.checked_add(usize::from(more))?;
                    if more != 255 {
                        break;
                    }
                }
            }
            let high = usize::from(control & 31) << 8;
            let low = usize::from(next()?);
            let mut distance = high + low + 1;
            if distance == FAR + 1 {
                distance = FAR + 1 + (usize::from(next()?) << 8 | usize::from(next()?));
            }
            at = copy_match(out, at, distance, length)?;
        }
        match next() {
            Some(c) => control = c,
            None => return Some(at),
        }
    }
}

/// Repeats what stands `distance` before `at`; the source may overlap what it makes.
fn copy_match(out: &mut [u8], at: usize, distance: usize, length: usize) -> Option<usize> {
    let from = at.checked_sub(distance)?;
    let end = at.checked_add(length)?;
    let (made, _) = out.split_at_mut_checked(end)?;
    let mut to = at;
    while to < end {
        // What is there repeats with period `distance`, so the copy may double each time.
        let n = (to - from).min(end - to);
        made.copy_within(from..from + n, to);
        to += n;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_runs_and_far_matches() {
        let mut out = [0; 12];
        // "abc", then length 9 at distance 3.
        assert!(decompress(&[2, b'a', b'b', b'c', 0xe0, 0, 2], &mut out));
        assert_eq!(&out, b"abcabcabcabc");
        assert!(!decompress(&[2, b'a', b'b', b'c', 0xe0, 0, 3], &mut out), "before the start");
        assert!(!decompress(&[2, b'a', b'b', b'c', 0xe0, 1, 2], &mut out), "too long");
        assert!(!decompress(&[2, b'a', b'b', b'c'], &mut out), "too short");
        assert!(!decompress(&[], &mut []));
        let mut input: Vec<u8> = Vec::new();
        for i in 0..300u32 {
            input.push(31);
            input.extend((0..32u32).map(|j| (i * 32 + j).wrapping_mul(2_654_435_761).to_be_bytes()[0]));
        }
        let head: Vec<u8> = input.chunks(33).flat_map(|c| c[1..].to_vec()).collect();
        input.extend([0x3f, 255, 0x01, 0x00]);
        let mut out = vec![0; 9603];
        assert!(decompress(&input, &mut out));
        assert_eq!(out[..9600], head[..]);
        let from = 9600 - 8192 - 256;
        assert_eq!(out[9600..], head[from..from + 3]);
    }
}
