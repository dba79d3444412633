//! Checksums of the file format: Jenkins lookup3 for metadata.
//!
//! Fletcher-32 of raw data lives with its filter. Source of lookup3: Bob Jenkins' public-domain
//! `hashlittle`, which the specification names ("Jenkins' lookup3", H5.format.4.0, "Checksums").

fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    *a = a.wrapping_sub(*c) ^ c.rotate_left(4);
    *c = c.wrapping_add(*b);
    *b = b.wrapping_sub(*a) ^ a.rotate_left(6);
    *a = a.wrapping_add(*c);
    *c = c.wrapping_sub(*b) ^ b.rotate_left(8);
    *b = b.wrapping_add(*a);
    *a = a.wrapping_sub(*c) ^ c.rotate_left(16);
    *c = c.wrapping_add(*b);
    *b = b.wrapping_sub(*a) ^ a.rotate_left(19);
    *a = a.wrapping_add(*c);
    *c = c.wrapping_sub(*b) ^ b.rotate_left(4);
    *b = b.wrapping_add(*a);
}

fn final_mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    *c = (*c ^ *b).wrapping_sub(b.rotate_left(14));
    *a = (*a ^ *c).wrapping_sub(c.rotate_left(11));
    *b = (*b ^ *a).wrapping_sub(a.rotate_left(25));
    *c = (*c ^ *b).wrapping_sub(b.rotate_left(16));
    *a = (*a ^ *c).wrapping_sub(c.rotate_left(4));
    *b = (*b ^ *a).wrapping_sub(a.rotate_left(14));
    *c = (*c ^ *b).wrapping_sub(b.rotate_left(24));
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).rev().fold(0, |w, &b| w << 8 | u32::from(b))
}

/// lookup3 of `data` with initial value `init` (0 everywhere in HDF5).
pub fn lookup3(data: &[u8], init: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(data.len() as u32).wrapping_add(init);
    let (mut a, mut b, mut c) = (start, start, start);
    let mut rest = data;
    while rest.len() > 12 {
        let (head, tail) = rest.split_at(12);
        a = a.wrapping_add(word(head));
        b = b.wrapping_add(word(head.get(4..).unwrap_or_default()));
        c = c.wrapping_add(word(head.get(8..).unwrap_or_default()));
        mix(&mut a, &mut b, &mut c);
        rest = tail;
    }
    if rest.is_empty() {
        return c;
    }
    a = a.wrapping_add(word(rest));
    b = b.wrapping_add(word(rest.get(4..).unwrap_or_default()));
    c = c.wrapping_add(word(rest.get(8..).unwrap_or_default()));
    final_mix(&mut a, &mut b, &mut c);
    c
}

#[cfg(test)]
mod tests {
    use super::lookup3;

    /// Known answers published with lookup3.c.
    #[test]
    fn lookup3_known_answers() {
        assert_eq!(lookup3(b"", 0), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago", 0), 0x1777_0551);
        assert_eq!(lookup3(b"Four score and seven years ago", 1), 0xcd62_8161);
    }
}
