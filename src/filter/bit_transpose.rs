//! Transposition of the bits of items: bit planes to items and back.

use super::shuffle;

/// Reverses the bit transpose of one block: `from` has one row per bit of an item, `to` receives
/// the items.
///
/// Both must have the same length, a multiple of 8 items of `item` bytes; otherwise `to` is
/// undefined.
pub(super) fn untranspose(from: &[u8], to: &mut [u8], item: usize) {
    match item {
        1 => untranspose_sized::<1>(from, to),
        2 => untranspose_sized::<2>(from, to),
        4 => untranspose_sized::<4>(from, to),
        8 => untranspose_sized::<8>(from, to),
        _ => untranspose_eights(from, to, item, 0),
    }
}

/// Reverses the bit transpose for items of `N` bytes, 64 at a time: two to three times as fast as
/// 8.
fn untranspose_sized<const N: usize>(from: &[u8], to: &mut [u8]) {
    let row = to.len() / N / 8;
    let (items, _) = to.as_chunks_mut::<N>();
    for (block, items) in items.chunks_exact_mut(64).enumerate() {
        let mut planes = [[0; 64]; N];
        for (byte, plane) in planes.iter_mut().enumerate() {
            *plane = transpose_64(std::array::from_fn(|bit| {
                let at = (byte * 8 + bit).saturating_mul(row).saturating_add(block.saturating_mul(8));
                from.get(at..).and_then(<[u8]>::first_chunk::<8>).map_or(0, |b| u64::from_le_bytes(*b))
            }));
        }
        for (i, item) in items.iter_mut().enumerate() {
            *item = std::array::from_fn(|byte| planes[byte][i % 64]);
        }
    }
    untranspose_eights(from, to, N, row - row % 8);
}

/// Transposes 8 rows of 64 bits to 64 bytes: bit `k` of byte `i` is bit `i` of row `k`.
#[inline]
fn transpose_64(mut rows: [u64; 8]) -> [u8; 64] {
    // Constant loops, so that the compiler unrolls them.
    for a in [0, 2, 4, 6] {
        exchange::<1>(&mut rows, a, 0x5555_5555_5555_5555);
    }
    for a in [0, 1, 4, 5] {
        exchange::<2>(&mut rows, a, 0x3333_3333_3333_3333);
    }
    for a in [0, 1, 2, 3] {
        exchange::<4>(&mut rows, a, 0x0f0f_0f0f_0f0f_0f0f);
    }
    let mut out = [0; 64];
    let (eights, _) = out.as_chunks_mut::<8>();
    for (i, row) in rows.iter().enumerate() {
        for (eight, byte) in eights.iter_mut().zip(row.to_le_bytes()) {
            eight[i] = byte;
        }
    }
    out
}

/// Reverses [`transpose_64`].
#[inline]
fn untranspose_64(bytes: &[u8; 64]) -> [u64; 8] {
    let (eights, _) = bytes.as_chunks::<8>();
    let mut rows = std::array::from_fn(|i| eights.iter().enumerate().fold(0, |row, (e, eight)| row | u64::from(eight[i % 8]) << (8 * e)));
    for a in [0, 1, 2, 3] {
        exchange::<4>(&mut rows, a, 0x0f0f_0f0f_0f0f_0f0f);
    }
    for a in [0, 1, 4, 5] {
        exchange::<2>(&mut rows, a, 0x3333_3333_3333_3333);
    }
    for a in [0, 2, 4, 6] {
        exchange::<1>(&mut rows, a, 0x5555_5555_5555_5555);
    }
    rows
}

/// Transposes the bits of one block of items of `item` bytes from `from` to `to`.
///
/// `planes` is scratch space for the byte shuffle. All three have the same length, a multiple of 8
/// items. Bytes of `to` after the last item are left unchanged.
pub(super) fn transpose_block(from: &[u8], planes: &mut [u8], to: &mut [u8], item: usize) {
    let items = from.len().checked_div(item).unwrap_or(0);
    let row = items / 8;
    if row == 0 {
        return;
    }
    shuffle::shuffle(from, item, planes);
    for (plane, rows) in planes.chunks_exact(items).zip(to.chunks_exact_mut(items)).take(item) {
        let mut rows = rows.chunks_exact_mut(row);
        let mut rows: [_; 8] = std::array::from_fn(|_| rows.next().unwrap_or_default().iter_mut());
        let (blocks, rest) = plane.as_chunks::<64>();
        for block in blocks {
            for (row, word) in rows.iter_mut().zip(untranspose_64(block)) {
                for (byte, slot) in word.to_le_bytes().into_iter().zip(row) {
                    *slot = byte;
                }
            }
        }
        for eight in rest.as_chunks::<8>().0 {
            for (row, byte) in rows.iter_mut().zip(transpose(u64::from_le_bytes(*eight)).to_le_bytes()) {
                if let Some(slot) = row.next() {
                    *slot = byte;
                }
            }
        }
    }
}

/// Swaps the bits of row `a` outside `mask` with those of row `a + D` inside it.
#[inline]
fn exchange<const D: usize>(rows: &mut [u64; 8], a: usize, mask: u64) {
    let t = (rows[a] >> D ^ rows[a + D]) & mask;
    rows[a + D] ^= t;
    rows[a] ^= t << D;
}

/// Reverses the bit transpose for any item size, 8 items at a time, starting at group `skip`.
fn untranspose_eights(from: &[u8], to: &mut [u8], item: usize, skip: usize) {
    let row = to.len().checked_div(item).unwrap_or(0) / 8;
    if row <= skip {
        return;
    }
    // Each byte of the item has 8 rows; 8 items take one byte of each row, an 8 x 8 bit matrix.
    for (byte, rows) in from.chunks_exact(row.saturating_mul(8)).take(item).enumerate() {
        let mut rows: [_; 8] =
            std::array::from_fn(|bit| rows.get(bit.saturating_mul(row).saturating_add(skip)..).unwrap_or_default().iter());
        for eight in to.chunks_exact_mut(item.saturating_mul(8)).skip(skip) {
            let bits = u64::from_le_bytes(std::array::from_fn(|bit| rows.get_mut(bit).and_then(Iterator::next).copied().unwrap_or(0)));
            for (t, b) in eight.iter_mut().skip(byte).step_by(item).zip(transpose(bits).to_le_bytes()) {
                *t = b;
            }
        }
    }
}

/// Transposes an 8 x 8 bit matrix with one row per byte.
#[inline]
fn transpose(mut x: u64) -> u64 {
    let t = (x ^ (x >> 7)) & 0x00aa_00aa_00aa_00aa;
    x ^= t ^ (t << 7);
    let t = (x ^ (x >> 14)) & 0x0000_cccc_0000_cccc;
    x ^= t ^ (t << 14);
    let t = (x ^ (x >> 28)) & 0x0000_0000_f0f0_f0f0;
    x ^ t ^ (t << 28)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transpose_is_by_bits() {
        for row in 0..8 {
            for column in 0..8 {
                assert_eq!(transpose(1 << (row * 8 + column)), 1 << (column * 8 + row));
            }
        }
    }

    /// The fast and the plain way agree with the definition, bit by bit.
    #[test]
    fn untranspose_by_definition() {
        for item in [1usize, 2, 3, 4, 8, 12] {
            for items in [8usize, 56, 64, 72, 200] {
                let from: Vec<u8> = (0..(items * item) as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
                let mut want = vec![0u8; from.len()];
                for (i, bit) in (0..items).flat_map(|i| (0..item * 8).map(move |bit| (i, bit))) {
                    let set = from[bit * (items / 8) + i / 8] >> (i % 8) & 1;
                    want[i * item + bit / 8] |= set << (bit % 8);
                }
                let mut got = vec![0u8; from.len()];
                untranspose(&from, &mut got, item);
                assert_eq!(got, want, "{items} items of {item}");
                let (mut planes, mut back) = (vec![0; from.len()], vec![0; from.len()]);
                transpose_block(&want, &mut planes, &mut back, item);
                assert_eq!(back, from, "transposing {items} items of {item}");
            }
        }
    }
}
