//! Known answers from libhdf5 (`tests/fixtures/heaps/links60.h5`: 60 links, creation order
//! indexed), round trips and damage.

use super::*;
use crate::format::Context;

const FILE: &[u8] = include_bytes!("../../../tests/fixtures/heaps/links60.h5");
const CTX: &Context = &Context::DEFAULT;

fn headers() -> Vec<(Address, Header)> {
    let hits = FILE.windows(4).enumerate().filter(|(_, w)| w == b"BTHD").map(|(i, _)| Address(i as u64));
    hits.map(|a| (a, Header::decode(&FILE[a.0 as usize..], a, CTX).unwrap())).collect()
}

fn at(a: Address, n: usize) -> &'static [u8] {
    &FILE[a.0 as usize..a.0 as usize + n]
}

/// Checks that every damaged byte and every truncation is refused.
fn refuses(good: &[u8], decode: impl Fn(&[u8]) -> bool) {
    assert!(decode(good));
    for i in 0..good.len() {
        assert!(!decode(&good[..i]), "length {i}");
        let mut bad = good.to_vec();
        bad[i] ^= 0x20;
        assert!(!decode(&bad) || cfg!(fuzzing), "byte {i}");
    }
}

#[test]
fn headers_as_libhdf5_writes_them() {
    let all = headers();
    let shapes: Vec<_> = all.iter().map(|(_, h)| (h.record_type, h.record_size, h.node_size, h.depth, h.root.total)).collect();
    assert_eq!(shapes, [(5, 11, 512, 1, 60), (6, 15, 512, 1, 60)]);
    for (a, h) in &all {
        assert_eq!((h.split_percent, h.merge_percent), (100, 40));
        let bytes = h.encode(CTX);
        assert_eq!(bytes.len(), Header::size(CTX));
        assert_eq!(bytes, at(*a, bytes.len()));
        refuses(&bytes, |b| Header::decode(b, *a, CTX).is_ok());
    }
}

#[test]
fn nodes_as_libhdf5_writes_them() {
    for (a, h) in headers() {
        let g = h.geometry(CTX, a).unwrap();
        let size = h.node_size as usize;
        let n = h.root.records;
        let root = Internal::decode(at(h.root.address, size), h.root.address, &h, &g, 1, n, CTX).unwrap();
        assert_eq!(root.encode(&h, &g, CTX).unwrap(), at(h.root.address, size));
        let used = at(h.root.address, Internal::used(&h, &g, 1, n));
        refuses(used, |b| Internal::decode(b, h.root.address, &h, &g, 1, n, CTX).is_ok());
        let mut total = u64::from(n);
        for child in &root.children {
            let leaf = Leaf::decode(at(child.address, size), child.address, &h, child.records).unwrap();
            assert_eq!(leaf.encode(&h).unwrap(), at(child.address, size));
            refuses(at(child.address, Leaf::used(&h, child.records)), |b| Leaf::decode(b, child.address, &h, child.records).is_ok());
            assert_eq!(u64::from(child.records), child.total);
            total += child.total;
        }
        assert_eq!(total, h.root.total);
    }
}

#[test]
fn nodes_that_do_not_fit_are_refused() {
    let (a, h) = headers().remove(0);
    let g = h.geometry(CTX, a).unwrap();
    let root = h.root.address;
    assert!(Internal::decode(at(root, 512), root, &h, &g, 1, 200, CTX).is_err());
    assert!(Internal::decode(at(root, 512), root, &h, &g, 0, 1, CTX).is_err());
    assert!(Internal::decode(at(root, 512), root, &h, &g, 9, 1, CTX).is_err());
    assert!(Leaf::decode(at(root, 512), root, &h, 60_000).is_err());
    assert!(Leaf { record_type: 5, records: vec![0; 600] }.encode(&h).is_err());
    let children = vec![h.root; 60];
    assert!(Internal { record_type: 5, depth: 1, records: vec![0; 590], children }.encode(&h, &g, CTX).is_err());
    let wide = Header { root: NodePointer { records: 60, ..h.root }, ..h };
    assert!(wide.geometry(CTX, a).is_err());
}
