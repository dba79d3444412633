//! Merges a wanted creation order with the present one.

use foldhash::HashMap;

/// Positions of `len` items in their new order. Items whose name is in `names` are in the order of
/// `names`; the others keep their order, before or after them as they come before the first of
/// them or not. `name` returns the name of the item at a position.
pub fn merged<'a>(len: usize, name: impl Fn(usize) -> Option<&'a [u8]>, names: &[Vec<u8>]) -> Vec<usize> {
    let wanted: HashMap<&[u8], usize> = names.iter().enumerate().rev().map(|(n, name)| (name.as_slice(), n)).collect();
    let (mut before, mut named, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..len {
        match name(i).and_then(|name| wanted.get(name)) {
            Some(&n) => named.push((n, i)),
            None if named.is_empty() => before.push(i),
            None => after.push(i),
        }
    }
    named.sort_unstable();
    before.into_iter().chain(named.into_iter().map(|(_, i)| i)).chain(after).collect()
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn items_without_a_wanted_place_keep_theirs() {
        let have = [&b"old"[..], b"b", b"new", b"a", b"c"];
        let names = [b"a".to_vec(), b"missing".to_vec(), b"b".to_vec(), b"c".to_vec()];
        assert_eq!(merged(have.len(), |i| have.get(i).copied(), &names), [0, 3, 1, 4, 2]);
        assert_eq!(merged(have.len(), |i| have.get(i).copied(), &[]), [0, 1, 2, 3, 4]);
    }
}
