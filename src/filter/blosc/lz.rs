//! BloscLZ, the LZ77 coder of the Blosc libraries (a FastLZ relative).
//!
//! ```text
//! control < 32        literal run of control + 1 bytes (the first control's upper 3 bits are
//! unused)
//! control = lllddddd  match: length l + 2 (l = 7: plus following bytes until one is not 255),
//!                     then one distance byte; distance = d * 256 + byte + 1,
//!                     or if all those bits are set, 8192 + u16 BE that follows
//! ```

/// Distances less one from this value on take two more bytes.
const FAR_DISTANCE: usize = 8191;

/// Decompresses `input` into all of `out`; false if it is invalid or has another length.
pub(super) fn decompress(input: &[u8], out: &mut [u8]) -> bool {
    run(input, out).is_some_and(|n| n == out.len())
}

/// Decompresses `input`; returns the bytes written, `None` if it is invalid.
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
            if distance == FAR_DISTANCE + 1 {
                distance = FAR_DISTANCE + 1 + (usize::from(next()?) << 8 | usize::from(next()?));
            }
            at = copy_match(out, at, distance, length)?;
        }
        match next() {
            Some(c) => control = c,
            None => return Some(at),
        }
    }
}

/// Copies `length` bytes from `distance` before `at` to `at`; the ranges may overlap.
fn copy_match(out: &mut [u8], at: usize, distance: usize, length: usize) -> Option<usize> {
    let from = at.checked_sub(distance)?;
    let end = at.checked_add(length)?;
    let (made, _) = out.split_at_mut_checked(end)?;
    let mut to = at;
    while to < end {
        // The output repeats with period `distance`, so each copy may double in size.
        let n = (to - from).min(end - to);
        made.copy_within(from..from + n, to);
        to += n;
    }
    Some(end)
}

/// log2 of the number of hash table slots.
const SLOT_BITS: u32 = 14;
/// Bytes at the end in which no match starts; half of them are always literals, as in c-blosc's
/// encoder.
const TAIL_BYTES: usize = 12;
/// Longest distance of a match, bytes.
const DISTANCE_MAX: usize = FAR_DISTANCE + 1 + 0xffff;

/// Compresses `input`; incompressible data become slightly longer.
pub(super) fn compress(input: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(input.len() / 2);
    let mut positions = vec![0u32; 1 << SLOT_BITS];
    let (mut at, mut literals) = (1usize, 0usize);
    while let Some(four) = input.get(at..).filter(|rest| rest.len() > TAIL_BYTES).and_then(<[u8]>::first_chunk::<4>) {
        let slot = (u32::from_le_bytes(*four).wrapping_mul(2_654_435_761) >> (32 - SLOT_BITS)) as usize;
        let Some(place) = positions.get_mut(slot) else { break };
        // 0 means an empty slot: position 0 is never a match.
        let from = std::mem::replace(place, u32::try_from(at).unwrap_or(0)) as usize;
        let distance = at.saturating_sub(from);
        if from == 0 || distance > DISTANCE_MAX || input.get(from..from.saturating_add(4)) != Some(four) {
            // Skip faster through data without matches.
            at = at.saturating_add(1).saturating_add(at.saturating_sub(literals) >> 6);
            continue;
        }
        let rest = input.get(at..input.len().saturating_sub(TAIL_BYTES / 2)).unwrap_or_default();
        let earlier = input.get(from..).unwrap_or_default();
        let length = rest.iter().zip(earlier).take_while(|(a, b)| a == b).count();
        put_literals(input.get(literals..at).unwrap_or_default(), &mut out);
        put_match(length, distance, &mut out);
        at = at.saturating_add(length);
        literals = at;
    }
    put_literals(input.get(literals..).unwrap_or_default(), &mut out);
    out
}

fn put_literals(literals: &[u8], out: &mut Vec<u8>) {
    for run in literals.chunks(32) {
        out.push((run.len() as u8).wrapping_sub(1));
        out.extend_from_slice(run);
    }
}

/// Appends a match of `length` (at least 3) bytes at `distance`.
fn put_match(length: usize, distance: usize, out: &mut Vec<u8>) {
    let (code, back) = (length.saturating_sub(2), distance.saturating_sub(1));
    let high = if back < FAR_DISTANCE { back >> 8 } else { 31 };
    out.push((code.min(7) << 5 | high) as u8);
    if let Some(mut more) = code.checked_sub(7) {
        while more >= 255 {
            out.push(255);
            more = more.saturating_sub(255);
        }
        out.push(more as u8);
    }
    if back < FAR_DISTANCE {
        out.push(back as u8);
    } else {
        out.push(255);
        out.extend_from_slice(&(back.saturating_sub(FAR_DISTANCE) as u16).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8;
        for len in (0..80).chain([300, 1000, 9000, 100_000, 200_000]) {
            let kinds: [&dyn Fn(u32) -> u8; 5] = [&|_| 7, &|i| i as u8, &noise, &|i| noise(i % 8192), &|i| {
                if i % 80_000 < 40_000 { noise(i % 40_000) } else { (i / 500) as u8 }
            }];
            for (kind, f) in kinds.iter().enumerate() {
                let data: Vec<u8> = (0..len).map(f).collect();
                let coded = compress(&data);
                let mut out = vec![0; data.len()];
                assert!(len == 0 || decompress(&coded, &mut out), "kind {kind}, {len} bytes");
                assert!(out == data, "kind {kind}, {len} bytes");
                assert!(coded.len() <= data.len() + data.len().div_ceil(32));
                assert!(kind > 0 || len < 1000 || coded.len() < data.len() / 20);
            }
        }
    }

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
