//! Filter 2, shuffle: byte `j` of every element, then byte `j + 1` of every element, and so on.
//!
//! ```text
//! element 0..n:  a0 a1 a2 a3  b0 b1 b2 b3  c0 c1 c2 c3 | t
//! stored:        a0 b0 c0  a1 b1 c1  a2 b2 c2  a3 b3 c3 | t
//! ```
//!
//! Client data: the element's size. Bytes after the last whole element (`t`) stay in place; chunks
//! of one element or less are not shuffled (H5Zshuffle.c).

use super::{FilterError, Params, bounded};

const NAME: &str = "shuffle";
/// Elements per tile where an element has many planes: a tile fits in the L1 cache.
const TILE_ELEMENTS: usize = 128;

/// Element size from the client data, bytes.
fn element_size(cd_values: &[u32]) -> Result<usize, FilterError> {
    match cd_values {
        [size] if *size > 0 => usize::try_from(*size).map_err(|_| FilterError::corrupt(NAME, "the element size is too large")),
        _ => Err(FilterError::corrupt(NAME, "client data must be one element size above 0")),
    }
}

/// True when shuffling `len` bytes changes nothing: elements of one byte, or fewer than two
/// elements.
pub fn is_identity(cd_values: &[u32], len: usize) -> bool {
    element_size(cd_values).is_ok_and(|size| size == 1 || len / size < 2)
}

/// Reassembles the elements from their byte planes.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let size = element_size(p.cd_values)?;
    if is_identity(p.cd_values, input.len()) {
        return bounded::copy(NAME, input, p.limit);
    }
    let count = input.len() / size;
    let (planes, tail) = input.split_at(count.saturating_mul(size));
    if input.len() > p.limit {
        return Err(FilterError::TooLarge { filter: NAME, limit: p.limit });
    }
    let mut out = bounded::buffer(NAME, input.len(), p.limit)?;
    match size {
        2 => words::<2>(planes, &mut out),
        4 => words::<4>(planes, &mut out),
        8 => words::<8>(planes, &mut out),
        16 => words::<16>(planes, &mut out),
        _ => tiles(planes, size, count, &mut out),
    }
    out.extend_from_slice(tail);
    Ok(out)
}

/// Separates the elements into byte planes; never declines.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let size = element_size(p.cd_values)?;
    if is_identity(p.cd_values, input.len()) {
        return bounded::copy(NAME, input, input.len()).map(Some);
    }
    let mut out = bounded::any(NAME, input.len(), input.len())?;
    shuffle(input, size, &mut out);
    Ok(Some(out))
}

/// Shuffles `input`, elements of `size` bytes, into `out`, which has the same length; bytes after
/// the last whole element are copied.
pub(super) fn shuffle(input: &[u8], size: usize, out: &mut [u8]) {
    let count = input.len().checked_div(size).unwrap_or(0);
    let whole = count.saturating_mul(size);
    let (elements, tail) = input.split_at_checked(whole).unwrap_or((input, &[]));
    let (planes, out_tail) = out.split_at_mut_checked(whole).unwrap_or_default();
    match size {
        2 => planes_of::<2>(elements, planes),
        4 => planes_of::<4>(elements, planes),
        8 => planes_of::<8>(elements, planes),
        16 => planes_of::<16>(elements, planes),
        _ => planes_of_any(elements, size, count, planes),
    }
    for (to, from) in out_tail.iter_mut().zip(tail) {
        *to = *from;
    }
}

/// Fills `planes` from elements of `N` bytes: 2, 4, 8 or 16.
fn planes_of<const N: usize>(elements: &[u8], planes: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    let done = sse2::shuffle::<N>(elements, planes);
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    let (elements, _) = elements.as_chunks::<N>();
    let rest = elements.get(done..).unwrap_or_default();
    for (j, plane) in planes.chunks_exact_mut(elements.len().max(1)).enumerate() {
        for (to, element) in plane.iter_mut().skip(done).zip(rest) {
            *to = element.get(j).copied().unwrap_or(0);
        }
    }
}

/// Fills `planes` from elements of any size, tile by tile.
fn planes_of_any(elements: &[u8], size: usize, count: usize, planes: &mut [u8]) {
    if count == 0 {
        return;
    }
    for (number, tile) in elements.chunks(TILE_ELEMENTS.saturating_mul(size)).enumerate() {
        let first = number.saturating_mul(TILE_ELEMENTS);
        for (j, plane) in planes.chunks_exact_mut(count).enumerate() {
            let to = plane.get_mut(first..).unwrap_or_default();
            for (to, byte) in to.iter_mut().zip(tile.iter().skip(j).step_by(size)) {
                *to = *byte;
            }
        }
    }
}

/// Reassembles elements of any size: per tile, eight planes at a time, then the remaining planes
/// singly.
fn tiles(planes: &[u8], size: usize, count: usize, out: &mut Vec<u8>) {
    out.resize(planes.len(), 0);
    let mut buffers = (Vec::with_capacity(TILE_ELEMENTS * 8), Vec::with_capacity(TILE_ELEMENTS * 8));
    for (number, tile) in out.chunks_mut(TILE_ELEMENTS.saturating_mul(size)).enumerate() {
        let first = number.saturating_mul(TILE_ELEMENTS);
        let elements = first..first.saturating_add(tile.len() / size);
        let mut plane = planes.chunks_exact(count).map(|plane| plane.get(elements.clone()).unwrap_or_default());
        for at in (0..size - size % 8).step_by(8) {
            eight_planes(plane.by_ref().take(8), &mut buffers, tile.chunks_exact_mut(size), at);
        }
        for (plane, at) in plane.zip(size - size % 8..) {
            for (element, &byte) in tile.chunks_exact_mut(size).zip(plane) {
                if let Some(slot) = element.get_mut(at) {
                    *slot = byte;
                }
            }
        }
    }
}

/// Interleaves eight planes of a tile and stores the words at offset `at` of each element.
fn eight_planes<'a>(
    planes: impl Iterator<Item = &'a [u8]>,
    (gathered, words_of): &mut (Vec<u8>, Vec<u8>),
    elements: std::slice::ChunksExactMut<'_, u8>,
    at: usize,
) {
    gathered.clear();
    planes.for_each(|plane| gathered.extend_from_slice(plane));
    words_of.clear();
    words::<8>(gathered, words_of);
    for (element, word) in elements.zip(words_of.as_chunks::<8>().0) {
        if let Some(slot) = element.get_mut(at..).and_then(|e| e.first_chunk_mut::<8>()) {
            *slot = *word;
        }
    }
}

/// Reassembles elements of `N` bytes (2, 4, 8 or 16); appends `planes.len()` bytes to the empty
/// `out`.
fn words<const N: usize>(planes: &[u8], out: &mut Vec<u8>) {
    #[cfg(target_arch = "x86_64")]
    let done = sse2::unshuffle::<N>(planes, out);
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    let count = planes.len() / N;
    let mut plane: [&[u8]; N] = [&[]; N];
    for (p, source) in plane.iter_mut().zip(planes.chunks_exact(count.max(1))) {
        *p = source.get(done..).unwrap_or_default();
    }
    for i in 0..count.saturating_sub(done) {
        let element: [u8; N] = std::array::from_fn(|j| plane.get(j).and_then(|p| p.get(i)).copied().unwrap_or(0));
        out.extend_from_slice(&element);
    }
}

/// SSE2 is part of x86-64: no detection.
#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128, _mm_unpackhi_epi8, _mm_unpacklo_epi8};

    /// Interleaves the `N` planes of `planes` (N a power of 2, at most 16) into the empty `out`, 16
    /// elements at a time; returns the number of elements done: all but the last 15 at most.
    pub(super) fn unshuffle<const N: usize>(planes: &[u8], out: &mut Vec<u8>) -> usize {
        const { assert!(N.is_power_of_two() && N >= 2 && N <= 16) };
        let count = planes.len() / N;
        let blocks = count / 16;
        let bytes = blocks * 16 * N;
        out.clear();
        out.reserve(bytes);
        let mut register = [zero(); N];
        for block in 0..blocks {
            for (j, r) in register.iter_mut().enumerate() {
                // SAFETY: j < N and block < count / 16, so j * count + block * 16 + 16 <= N * count
                // <= planes.len().
                *r = unsafe { _mm_loadu_si128(planes.as_ptr().add(j * count + block * 16).cast()) };
            }
            interleave(&mut register);
            for (j, r) in register.iter().enumerate() {
                // SAFETY: (block * N + j) * 16 + 16 <= blocks * N * 16 = bytes, which `reserve`
                // made room for in the empty vector.
                unsafe { _mm_storeu_si128(out.as_mut_ptr().add((block * N + j) * 16).cast(), *r) };
            }
        }
        // SAFETY: the loop wrote every one of the `bytes` bytes, and the capacity is at least that.
        unsafe { out.set_len(bytes) };
        blocks * 16
    }

    /// Splits `elements` of `N` bytes into `planes` of the same total length, 16 elements at a
    /// time; returns the number of elements done.
    pub(super) fn shuffle<const N: usize>(elements: &[u8], planes: &mut [u8]) -> usize {
        const { assert!(N.is_power_of_two() && N >= 2 && N <= 16) };
        assert!(planes.len() == elements.len());
        let count = elements.len() / N;
        let blocks = count / 16;
        let mut register = [zero(); N];
        for block in 0..blocks {
            for (j, r) in register.iter_mut().enumerate() {
                // SAFETY: j < N and block < count / 16, so (block * N + j) * 16 + 16 <= count * N
                // <= elements.len().
                *r = unsafe { _mm_loadu_si128(elements.as_ptr().add((block * N + j) * 16).cast()) };
            }
            // log2(16) perfect shuffles move the bits of the position, whose lowest ones are the
            // plane number, to the register number; log2(N) more would reverse that.
            for _ in 0..4 {
                perfect_shuffle(&mut register);
            }
            for (j, r) in register.iter().enumerate() {
                // SAFETY: as in `unshuffle`: j * count + block * 16 + 16 <= N * count <=
                // planes.len().
                unsafe { _mm_storeu_si128(planes.as_mut_ptr().add(j * count + block * 16).cast(), *r) };
            }
        }
        blocks * 16
    }

    fn zero() -> __m128i {
        // SAFETY: SSE2 is part of the x86-64 baseline.
        unsafe { _mm_setzero_si128() }
    }

    /// log2(N) perfect shuffles: each turns one bit of the plane number into one of the position.
    fn interleave<const N: usize>(register: &mut [__m128i; N]) {
        for _ in 0..N.trailing_zeros() {
            perfect_shuffle(register);
        }
    }

    /// Interleaves bytes of the first half of the registers, taken as one row of 16 * N bytes, with
    /// the second half.
    fn perfect_shuffle<const N: usize>(register: &mut [__m128i; N]) {
        let old = *register;
        let (low, high) = old.split_at(N / 2);
        let (pairs, _) = register.as_chunks_mut::<2>();
        for ((pair, &a), &b) in pairs.iter_mut().zip(low).zip(high) {
            // SAFETY: SSE2 is part of the x86-64 baseline.
            *pair = unsafe { [_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)] };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffled(data: &[u8], size: usize) -> Vec<u8> {
        let n = data.len() / size;
        let mut out: Vec<u8> = (0..size).flat_map(|j| (0..n).map(move |i| data[i * size + j])).collect();
        out.extend_from_slice(&data[n * size..]);
        out
    }

    #[test]
    fn every_size_and_length() {
        let data: Vec<u8> = (0..9000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
        for size in [1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 24, 31, 32, 100] {
            for len in (0..70).chain((0..40).map(|i| i * 37 + size)).chain([8999, 9000]) {
                let p = Params { cd_values: &[size as u32], expected: len, limit: len };
                let got = decode(&shuffled(&data[..len], size), &p).unwrap();
                assert!(got == data[..len], "element size {size}, {len} bytes");
                let got = encode(&data[..len], &p).unwrap().unwrap();
                assert!(got == shuffled(&data[..len], size), "shuffling element size {size}, {len} bytes");
            }
        }
    }

    #[test]
    fn bad_parameters() {
        for cd in [&[][..], &[0], &[4, 4]] {
            assert!(decode(&[0; 8], &Params { cd_values: cd, expected: 8, limit: 8 }).is_err());
            assert!(encode(&[0; 8], &Params { cd_values: cd, expected: 8, limit: 8 }).is_err());
            assert!(!is_identity(cd, 8));
        }
        let p = Params { cd_values: &[4], expected: 8, limit: 7 };
        assert_eq!(decode(&[0; 8], &p), Err(FilterError::TooLarge { filter: NAME, limit: 7 }));
        let p = Params { cd_values: &[u32::MAX], expected: 8, limit: 8 };
        assert_eq!(decode(&[7; 8], &p).unwrap(), [7; 8]);
    }
}
