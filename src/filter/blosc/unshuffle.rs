//! Reverses the inner filters of a Blosc block: shuffle, bitshuffle, delta, bytedelta.

use crate::filter::bit_transpose;

/// Reverses the byte shuffle: first bytes of all items, then second bytes, and so on; a partial
/// item is copied.
pub(super) fn shuffle(item: usize, from: &[u8], to: &mut [u8]) {
    match item {
        2 => planes::<2>(from, to),
        4 => planes::<4>(from, to),
        8 => planes::<8>(from, to),
        0 | 1 => copy(from, to),
        _ => {
            let items = to.len() / item;
            let whole = items.saturating_mul(item);
            let (body, tail) = from.split_at_checked(whole).unwrap_or((from, &[]));
            if items > 0 {
                for (j, plane) in body.chunks_exact(items).enumerate() {
                    for (t, &f) in to.get_mut(j..whole).unwrap_or_default().iter_mut().step_by(item).zip(plane) {
                        *t = f;
                    }
                }
            }
            copy(tail, to.get_mut(whole..).unwrap_or_default());
        }
    }
}

fn planes<const N: usize>(from: &[u8], to: &mut [u8]) {
    let items = to.len() / N;
    let mut planes: [_; N] = std::array::from_fn(|j| from.get(j.saturating_mul(items)..).unwrap_or_default().iter());
    let mut whole = to.chunks_exact_mut(N);
    for item in &mut whole {
        for (t, plane) in item.iter_mut().zip(&mut planes) {
            *t = plane.next().copied().unwrap_or(0);
        }
    }
    copy(from.get(items.saturating_mul(N)..).unwrap_or_default(), whole.into_remainder());
}

/// Copies as many bytes as fit.
fn copy(from: &[u8], to: &mut [u8]) {
    for (t, f) in to.iter_mut().zip(from) {
        *t = *f;
    }
}

/// Reverses the bit shuffle.
///
/// Items beyond a multiple of 8 are copied; in format version 2 such a block is not shuffled at
/// all.
pub(super) fn bits(item: usize, version: u8, from: &[u8], to: &mut [u8]) {
    let items = to.len().checked_div(item).unwrap_or(0);
    let eights = match version {
        0..=2 if !items.is_multiple_of(8) => 0,
        _ => items - items % 8,
    };
    let whole = eights.saturating_mul(item);
    let (body, tail) = from.split_at_checked(whole).unwrap_or((from, &[]));
    let (to_body, to_tail) = to.split_at_mut_checked(whole).unwrap_or_default();
    bit_transpose::untranspose(body, to_body, item);
    copy(tail, to_tail);
}

/// Reverses the delta filter in place: blocks are XORed with the chunk's first block.
///
/// Without a `reference`, `block` is the first block itself: each item is XORed with the previous
/// one. Items are 1, 2, 4 or 8 bytes; other sizes are treated as 8 if a multiple of 8, else as 1.
pub(super) fn delta(item: usize, reference: Option<&[u8]>, block: &mut [u8]) {
    let item = match item {
        1 | 2 | 4 | 8 => item,
        n if n % 8 == 0 && n > 0 => 8,
        _ => 1,
    };
    let whole = block.len() - block.len() % item;
    match reference {
        Some(reference) => {
            for (b, r) in block.iter_mut().take(whole).zip(reference) {
                *b ^= r;
            }
        }
        None => {
            let mut before = [0u8; 8];
            for it in block.get_mut(..whole).unwrap_or_default().chunks_exact_mut(item) {
                for (b, p) in it.iter_mut().zip(&mut before) {
                    *b ^= *p;
                    *p = *b;
                }
            }
        }
    }
}

/// Reverses the bytedelta filter in place: `streams` runs of equal length, each byte a difference
/// to the previous one.
pub(super) fn bytedelta(streams: usize, block: &mut [u8]) {
    let run = block.len().checked_div(streams).unwrap_or(0);
    if run == 0 {
        return;
    }
    for stream in block.chunks_exact_mut(run).take(streams) {
        let mut sum = 0u8;
        for b in stream {
            sum = sum.wrapping_add(*b);
            *b = sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffle_of_every_item_size() {
        for item in 0..20usize {
            for n in 0..70usize {
                let from: Vec<u8> = (0..n as u8).collect();
                let mut to = vec![0xee; n];
                shuffle(item, &from, &mut to);
                let size = item.max(1);
                let items = n / size;
                let want: Vec<u8> =
                    (0..n).map(|i| if i < items * size { ((i % size) * items + i / size) as u8 } else { i as u8 }).collect();
                assert_eq!(to, want, "item {item} length {n}");
            }
        }
    }
}
