//! Known answers from libhdf5 (`tests/fixtures/heaps/`), round trips and damage.

use super::*;
use crate::base::Address;
use crate::format::Context;

const LINKS10: &[u8] = include_bytes!("../../../tests/fixtures/heaps/links10.h5");
const LINKS60: &[u8] = include_bytes!("../../../tests/fixtures/heaps/links60.h5");
const FILTERED: &[u8] = include_bytes!("../../../tests/fixtures/heaps/filtered12.h5");
const ATTRS: &[u8] = include_bytes!("../../../tests/fixtures/heaps/attrs10.h5");
const CTX: &Context = &Context::DEFAULT;

fn heap(file: &[u8]) -> (Address, Header, Geometry) {
    let at = file.windows(4).position(|w| w == b"FRHP").unwrap();
    let a = Address(at as u64);
    let h = Header::decode(&file[at..], a, CTX).unwrap();
    let g = Geometry::new(&h, a, CTX).unwrap();
    (a, h, g)
}

fn slice(file: &[u8], a: Address, n: u64) -> &[u8] {
    &file[a.0 as usize..(a.0 + n) as usize]
}

#[test]
fn headers_as_libhdf5_writes_them() {
    for file in [LINKS10, LINKS60, FILTERED, ATTRS] {
        let (a, h, _) = heap(file);
        let bytes = h.encode(CTX).unwrap();
        assert_eq!(bytes, slice(file, a, bytes.len() as u64));
        assert_eq!(Header::encoded_size(&bytes[..9], a, CTX).unwrap(), bytes.len());
        for i in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[i] ^= 4;
            assert!(Header::decode(&bad, a, CTX).is_err() || cfg!(fuzzing), "byte {i}");
            assert!(Header::decode(&bytes[..i], a, CTX).is_err(), "length {i}");
        }
    }
    let (_, h, g) = heap(LINKS10);
    assert_eq!((h.id_length, h.max_managed_size, h.statistics.managed_objects), (7, 4096, 10));
    assert_eq!((h.table.width, h.table.start_block_size, h.table.max_direct_size, h.table.max_heap_bits), (4, 512, 65_536, 32));
    assert_eq!((g.offset_size, g.length_size, g.max_direct_rows, g.max_rows), (4, 2, 9, 22));
    assert_eq!(g.direct_overhead(), 21);
    assert!(h.checksummed());
    let (_, h, _) = heap(ATTRS);
    assert_eq!((h.id_length, h.statistics.huge_objects, h.statistics.managed_objects), (8, 1, 10));
    assert!(heap(FILTERED).1.filters.is_some());
}

#[test]
fn blocks_as_libhdf5_writes_them() {
    let (a, h, g) = heap(LINKS60);
    let rows = u32::from(h.table.root_rows);
    assert!(rows > 0);
    let bytes = slice(LINKS60, h.table.root, g.indirect_size(rows));
    let root = IndirectBlock::decode(bytes, h.table.root, rows, &g).unwrap();
    assert_eq!((root.heap, root.offset), (a, 0));
    assert_eq!(root.encode(&g), bytes);
    for i in 0..bytes.len() {
        let mut bad = bytes.to_vec();
        bad[i] ^= 4;
        assert!(IndirectBlock::decode(&bad, h.table.root, rows, &g).is_err() || cfg!(fuzzing), "byte {i}");
        assert!(IndirectBlock::decode(&bytes[..i], h.table.root, rows, &g).is_err(), "length {i}");
    }
    let mut blocks = 0;
    for (row, column) in (0..rows).flat_map(|r| (0..4).map(move |c| (r, c))) {
        let entry = root.entry(row, column, &g).unwrap();
        if !entry.address.is_defined() {
            continue;
        }
        let bytes = slice(LINKS60, entry.address, g.block_size(row).unwrap()).to_vec();
        let block = DirectBlock::decode(bytes.clone(), entry.address, &g).unwrap();
        assert_eq!((block.heap, Some(block.offset)), (a, g.block_offset(row, column)));
        assert_eq!(g.locate(block.offset + 3), Some((row, column)));
        let objects = &bytes[g.direct_overhead()..];
        assert_eq!(DirectBlock::encode(a, block.offset, objects, bytes.len(), &g).unwrap(), bytes);
        let mut bad = bytes;
        bad[100] ^= 1;
        assert!(DirectBlock::decode(bad, entry.address, &g).is_err() || cfg!(fuzzing));
        blocks += 1;
    }
    assert!(blocks > 2);
    assert_eq!(root.entry(0, 4, &g), None);
}

#[test]
fn objects_stay_in_their_block() {
    let (_, h, g) = heap(LINKS10);
    let block = DirectBlock::decode(slice(LINKS10, h.table.root, 512).to_vec(), h.table.root, &g).unwrap();
    assert!(block.object(21, 491, &g).is_some());
    for (offset, length) in [(20, 1), (0, 1), (21, 492), (512, 1), (u64::MAX, 1), (30, u64::MAX)] {
        assert_eq!(block.object(offset, length, &g), None);
    }
    assert!(DirectBlock::encode(Address(0), 0, &[0; 492], 512, &g).is_none());
}

#[test]
fn doubling_table() {
    let (_, _, g) = heap(LINKS10);
    // Rows of 4 blocks: 512, 512, 1024, 2048, ...
    let cases = [(0, (0, 0)), (511, (0, 0)), (512, (0, 1)), (2047, (0, 3)), (2048, (1, 0)), (4095, (1, 3)), (4096, (2, 0)), (8192, (3, 0))];
    for (offset, at) in cases {
        assert_eq!(g.locate(offset), Some(at), "{offset}");
        assert!(g.block_offset(at.0, at.1).unwrap() <= offset);
    }
    assert_eq!(g.block_size(8), Some(65_536));
    // Row 9 has the first indirect blocks: 128 KiB each, with 7 rows.
    assert_eq!(g.child_rows(9), Some(7));
    assert_eq!(g.indirect_size(10), 4 + 1 + 8 + 4 + 40 * 8 + 4);
    assert_eq!(g.block_size(80), None);
    assert_eq!(g.block_offset(70, 1), None);
}

#[test]
fn hostile_tables() {
    let (a, h, _) = heap(LINKS10);
    let change = |f: fn(&mut header::DoublingTable)| {
        let mut bad = h.clone();
        f(&mut bad.table);
        Geometry::new(&bad, a, CTX).is_err()
    };
    assert!(change(|t| t.width = 0) && change(|t| t.width = 3));
    assert!(change(|t| t.start_block_size = 0) && change(|t| t.start_block_size = 1 << 63));
    assert!(change(|t| t.max_direct_size = 256) && change(|t| t.max_direct_size = 1 << 40));
    assert!(change(|t| t.max_heap_bits = 3) && change(|t| t.max_heap_bits = 65) && change(|t| t.root_rows = 60));
}

#[test]
fn ids() {
    let (a, mut h, g) = heap(LINKS10);
    let f = |h: &Header, g: &Geometry| IdFormat::new(h, g, a);
    let seven = f(&h, &g);
    assert_eq!(seven.decode(&[0, 21, 0, 0, 0, 9, 1]).unwrap(), HeapId::Managed { offset: 21, length: 265 });
    assert_eq!(seven.decode(&[0x10, 1, 2, 0, 0, 0, 0, 77]).unwrap(), HeapId::HugeIndirect { key: 513 });
    assert_eq!(seven.decode(&[0x22, 7, 8, 9, 0, 0, 0]).unwrap(), HeapId::Tiny(vec![7, 8, 9]));
    for bad in [&[0x26, 7, 8, 9, 0, 0, 0][..], &[0x30; 7], &[0x40; 7], &[0x80; 7], &[0, 21], &[]] {
        assert!(seven.decode(bad).is_err());
    }
    let round = |format: &IdFormat, id: HeapId| {
        let bytes = format.encode(&id).unwrap();
        assert_eq!(format.decode(&bytes).unwrap(), id);
        bytes
    };
    round(&seven, HeapId::Tiny(vec![1; 6]));
    assert!(seven.encode(&HeapId::Tiny(vec![1; 7])).is_err());
    round(&seven, HeapId::Managed { offset: 0x0102_0304, length: 0x0506 });
    h.id_length = 18;
    round(&f(&h, &g), HeapId::Tiny(vec![1; 16]));
    round(&f(&h, &g), HeapId::HugeDirect { address: Address(5), length: 6, mask: 0, size: 6 });
    h.id_length = 600;
    assert_eq!(round(&f(&h, &g), HeapId::Tiny(vec![1; 598]))[..2], [0x22, 0x55]);
    let (_, mut h, g) = heap(FILTERED);
    h.id_length = 28;
    round(&f(&h, &g), HeapId::HugeIndirect { key: 5 });
    h.id_length = 29;
    round(&f(&h, &g), HeapId::HugeDirect { address: Address(5), length: 6, mask: 7, size: 8 });
}

#[test]
fn huge_records() {
    for kind in 1..=4u8 {
        let filtered = kind % 2 == 0;
        let key = if kind < 3 { 9 } else { 0 };
        let r = HugeRecord { address: Address(5), length: 6, mask: if filtered { 7 } else { 0 }, size: if filtered { 8 } else { 6 }, key };
        let bytes = r.encode(kind, CTX);
        assert_eq!(bytes.len(), [24, 36, 16, 28][usize::from(kind) - 1]);
        assert_eq!(HugeRecord::decode(&bytes, kind, Address(0), CTX).unwrap(), r);
        assert!(HugeRecord::decode(&bytes[1..], kind, Address(0), CTX).is_err());
    }
    assert!(HugeRecord::decode(&[0; 40], 5, Address(0), CTX).is_err());
}
