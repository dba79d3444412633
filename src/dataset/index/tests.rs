//! Tests of chunk indexes with files of libhdf5 (`tests/fixtures/chunk_index`), intact and damaged.

use super::*;
use crate::base::{Address, Error, Result, checksum::lookup3, limits};
use crate::dataset::chunk::grid::ChunkGrid;
use crate::dataset::chunk::pieces::ByteGrid;
use crate::format::chunk_record::{RecordShape, StoredForm};
use crate::format::message::data_layout::{ChunkedLayout, DataLayout, IndexInfo, Layout, NAME};
use crate::meta::ObjectHeader;
use crate::meta::Store;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;

const LAYOUT: u16 = 8;

macro_rules! fixtures {
    ($($name:literal),*) => {
        [$(($name,
            include_bytes!(concat!("../../../tests/fixtures/chunk_index/", $name, ".h5.z")),
            include_bytes!(concat!("../../../tests/fixtures/chunk_index/", $name, ".json.z")))),*]
    };
}

pub(super) const FIXTURES: [(&str, &[u8], &[u8]); 12] = fixtures![
    "btree1",
    "btree1_deep",
    "fixed_v110",
    "fixed_latest",
    "fixed_paged",
    "extensible_v110",
    "extensible_latest",
    "extensible_paged",
    "btree2_v110",
    "btree2_latest",
    "narrow",
    "narrow_btree1"
];

/// The grid in bytes, which converts between chunk numbers and scaled offsets.
pub(super) fn byte_grid(grid: &ChunkGrid) -> ByteGrid {
    ByteGrid::new(&grid.shape, &grid.chunk_dims, grid.element_size).unwrap()
}

pub(super) fn inflate(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    bytes
}

fn open_store(bytes: Vec<u8>) -> Result<Store> {
    Store::open(Arc::new(crate::file::memory::MemoryFile::new(bytes)))
}

fn numbers(v: &Value) -> Vec<u64> {
    v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

/// The chunks of one dataset according to libhdf5.
pub(super) struct Expected {
    name: String,
    header: Address,
    pub(super) grid: ChunkGrid,
    pub(super) filtered: bool,
    index: String,
    version: u64,
    pub(super) chunks: BTreeMap<Vec<u64>, ChunkRecord>,
}

impl Expected {
    pub(super) fn parse(v: &Value) -> Self {
        let max = v["max"].as_array().unwrap().iter().map(Value::as_u64).collect();
        let grid = ChunkGrid::new(numbers(&v["shape"]), max, numbers(&v["chunk"]), v["itemsize"].as_u64().unwrap()).unwrap();
        let chunk = |row: &Value| {
            let (scaled, rest) = (numbers(row), grid.rank());
            let record = ChunkRecord {
                address: Address(scaled[rest]),
                size: scaled[rest + 1],
                form: StoredForm::Whole { filter_mask: scaled[rest + 2] as u32 },
            };
            (scaled[..rest].to_vec(), record)
        };
        let chunks = v["chunks"].as_array().unwrap().iter().map(chunk).collect();
        Expected {
            name: v["name"].as_str().unwrap().into(),
            header: Address(v["header"].as_u64().unwrap()),
            filtered: v["filtered"].as_bool().unwrap(),
            index: v["index"].as_str().unwrap().into(),
            version: v["layout"].as_u64().unwrap(),
            chunks,
            grid,
        }
    }

    pub(super) fn layout(&self, store: &Store) -> Result<DataLayout> {
        let header = ObjectHeader::load(store, self.header)?;
        let message = header.find(LAYOUT).ok_or_else(|| Error::corrupt(NAME, self.header, "missing"))?;
        let layout = DataLayout::decode(&message.body, store.ctx(), self.header)?;
        let again = layout.encode(store.ctx())?;
        assert!(message.body.starts_with(&again), "{}: encoding differs", self.name);
        Ok(layout)
    }

    /// Fields of the index's records.
    pub(super) fn records(&self) -> RecordShape {
        RecordShape::of_pipeline(self.filtered)
    }

    fn open(&self, store: &Store) -> Result<Box<dyn ChunkIndex>> {
        open(&self.layout(store)?, &self.grid, self.records())
    }
}

fn kind(layout: &DataLayout) -> &'static str {
    let Layout::Chunked(c) = &layout.class else { panic!("not chunked") };
    match c.index {
        IndexInfo::BTree1 { .. } => "btree1",
        IndexInfo::Single { .. } => "single",
        IndexInfo::Implicit { .. } => "implicit",
        IndexInfo::FixedArray { .. } => "farray",
        IndexInfo::ExtensibleArray { .. } => "earray",
        IndexInfo::BTree2 { .. } => "btree2",
    }
}

/// Collects all chunks by `iterate`; asserts that each is visited once.
fn walk(index: &dyn ChunkIndex, store: &Store) -> Result<BTreeMap<Vec<u64>, ChunkRecord>> {
    let mut seen = BTreeMap::new();
    index.iterate(store, &mut |scaled, record| {
        assert!(seen.insert(scaled.to_vec(), record).is_none(), "chunk {scaled:?} was visited twice");
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(seen)
}

/// Up to `most` chunks that `iterate_from` visits.
fn walk_from(index: &dyn ChunkIndex, store: &Store, from: &[u64], most: usize) -> Result<Vec<Vec<u64>>> {
    let mut seen = Vec::new();
    index.iterate_from(store, from, &mut |scaled| {
        seen.push(scaled.to_vec());
        Ok(if seen.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(seen)
}

/// Checks ordered walks from many chunks, and the estimate of their number.
fn walks_in_order(index: &dyn ChunkIndex, store: &Store, e: &Expected, at: &str) {
    let all: Vec<&Vec<u64>> = e.chunks.keys().collect();
    let first = vec![0; e.grid.rank()];
    assert!(walk_from(index, store, &first, usize::MAX).unwrap().iter().eq(all.iter().copied()), "{at}: all");
    let total = e.grid.total().unwrap();
    let starts = (0..total).step_by((total / 300).max(1) as usize).map(|i| byte_grid(&e.grid).scaled(i));
    for from in starts.chain(all.iter().step_by((all.len() / 100).max(1)).map(|s| s.to_vec())) {
        let expected = all.get(all.partition_point(|s| **s < from)..).unwrap();
        let got = walk_from(index, store, &from, 40).unwrap();
        assert!(got.iter().eq(expected.iter().take(40).copied()), "{at}: from {from:?}");
    }
    for number in (0..total).step_by((total / 100).max(1) as usize) {
        let grid = byte_grid(&e.grid);
        let gap = (number..total).find(|n| !e.chunks.contains_key(&grid.scaled(*n))).unwrap_or(total);
        for most in [1, 7, total - number] {
            let run = index.stored_run(store, &grid.scaled(number), most).unwrap();
            assert!(run <= most.min(gap - number), "{at}: {run} from {number}");
            let is_shown = index.name() == "v2 B-tree" || (index.name() == "fixed array" && e.grid.max_total() == Some(total));
            assert!(!is_shown || run == most.min(gap - number), "{at}: {run} from {number}");
        }
    }
    let (estimate, count) = (index.estimate(store).unwrap(), all.len() as u64);
    assert_eq!((estimate.entries > 0, estimate.walked > 0), (count > 0, count > 0), "{at}");
    let is_close = estimate.entries <= count * 3 && estimate.entries >= count / 3;
    assert!(is_close || estimate.walked <= 1 << 16, "{at}: {estimate:?} for {count}");
}

fn check(file: &str, bytes: Vec<u8>, json: &[u8]) {
    let store = open_store(bytes).unwrap();
    let json: Value = serde_json::from_slice(json).unwrap();
    for e in json.as_array().unwrap().iter().map(Expected::parse) {
        let layout = e.layout(&store).unwrap();
        let at = format!("{file}/{}", e.name);
        if e.index != "?" {
            assert_eq!((kind(&layout), u64::from(layout.version)), (e.index.as_str(), e.version), "{at}");
        }
        let index = open(&layout, &e.grid, e.records()).unwrap();
        assert!(walk(&*index, &store).unwrap() == e.chunks, "{at}: iterate");
        let total = e.grid.total().unwrap();
        for i in 0..total.min(200_000) {
            let scaled = byte_grid(&e.grid).scaled(i);
            assert_eq!(index.lookup(&store, &scaled).unwrap().as_ref(), e.chunks.get(&scaled), "{at}: {scaled:?}");
        }
        for (scaled, record) in &e.chunks {
            assert_eq!(index.lookup(&store, scaled).unwrap(), Some(*record), "{at}: {scaled:?}");
        }
        walks_in_order(&*index, &store, &e, &at);
        // Scaled offsets outside the extent, and of another rank.
        assert_eq!(index.lookup(&store, &e.grid.counts()).unwrap(), None);
        assert_eq!(index.lookup(&store, &[]).unwrap(), None);
        // Break ends a walk.
        let mut n = 0;
        let mut stop = |_: &[u64], _| {
            n += 1;
            Ok(ControlFlow::Break(()))
        };
        index.iterate(&store, &mut stop).unwrap();
        assert_eq!(n, e.chunks.len().min(1), "{at}");
    }
}

#[test]
fn every_chunk_is_where_libhdf5_says() {
    for (name, h5, json) in FIXTURES {
        check(name, inflate(h5), &inflate(json));
    }
}

/// Opens, looks up and walks every dataset of `bytes`; errors are fine, panics and endless work are
/// not.
fn survive(bytes: Vec<u8>, sets: &[Expected]) {
    let Ok(store) = open_store(bytes) else { return };
    for e in sets {
        let Ok(index) = e.open(&store) else { continue };
        for scaled in e.chunks.keys().take(2).chain([&vec![0; e.grid.rank()]]) {
            let _ = index.lookup(&store, scaled);
        }
        let mut n = 0u32;
        let _ = index.iterate(&store, &mut |_, _| {
            n += 1;
            assert!(n < 100_000);
            Ok(ControlFlow::Continue(()))
        });
        for scaled in e.chunks.keys().take(2).chain([&vec![0; e.grid.rank()]]) {
            let _ = index.stored_run(&store, scaled, 1 << 40);
            assert!(walk_from(&*index, &store, scaled, 100_000).map_or(0, |seen| seen.len()) < 100_000);
        }
        let _ = index.estimate(&store);
    }
}

#[test]
fn damaged_files_neither_panic_nor_hang() {
    for (name, h5, json) in FIXTURES {
        let (good, json) = (inflate(h5), inflate(json));
        let json: Value = serde_json::from_slice(&json).unwrap();
        let sets: Vec<Expected> = json.as_array().unwrap().iter().map(Expected::parse).collect();
        let step = (good.len() / 400).max(1) | 1;
        for i in (0..good.len()).step_by(step) {
            let mut bad = good.clone();
            bad[i] ^= 1 << (i % 8);
            survive(bad, &sets);
            if i % 8 == 3 {
                survive(good[..i].to_vec(), &sets);
            }
        }
        assert!(!name.is_empty());
    }
}

/// Structures with a checksum: (start, bytes before the checksum).
pub(super) fn checked_structures(file: &[u8]) -> Vec<(usize, usize)> {
    let signatures: [&[u8]; 9] = [b"FAHD", b"FADB", b"EAHD", b"EAIB", b"EASB", b"EADB", b"BTHD", b"BTLF", b"BTIN"];
    let len = |at: usize| {
        let rest = &file[at..];
        (8..rest.len().saturating_sub(4).min(4096)).find(|&n| lookup3(&rest[..n], 0).to_le_bytes() == rest[n..n + 4])
    };
    let starts = (0..file.len() - 4).filter(|&at| signatures.contains(&&file[at..at + 4]));
    starts.filter_map(|at| Some((at, len(at)?))).collect()
}

#[test]
fn forged_structures_with_right_checksums_neither_panic_nor_hang() {
    for (name, h5, json) in FIXTURES.into_iter().filter(|f| !f.0.starts_with("btree1") && !f.0.ends_with("latest")) {
        let (good, json) = (inflate(h5), inflate(json));
        let json: Value = serde_json::from_slice(&json).unwrap();
        let sets: Vec<Expected> = json.as_array().unwrap().iter().map(Expected::parse).collect();
        let structures = checked_structures(&good);
        assert!(structures.is_empty() == (name == "narrow_btree1"), "{name}");
        for (at, len) in structures {
            // Every byte of the leading fields, then a few of each block.
            for i in (5..len).filter(|&i| i < 80 || i % 61 == 0) {
                let mut bad = good.clone();
                bad[at + i] = [0x00, 0x01, 0x7f, 0xff, bad[at + i] ^ 0x08][i % 5];
                let sum = lookup3(&bad[at..at + len], 0).to_le_bytes();
                bad[at + len..at + len + 4].copy_from_slice(&sum);
                survive(bad, &sets);
            }
        }
    }
}

#[test]
fn layouts_that_do_not_fit() {
    let (_, h5, json) = FIXTURES[2];
    let store = open_store(inflate(h5)).unwrap();
    let json: Value = serde_json::from_slice(&inflate(json)).unwrap();
    let sets: Vec<Expected> = json.as_array().unwrap().iter().map(Expected::parse).collect();
    let fa = sets.iter().find(|e| e.name == "fa").unwrap();
    let layout = fa.layout(&store).unwrap();
    // The array has no filtered elements.
    let index = open(&layout, &fa.grid, RecordShape::Filtered).unwrap();
    assert!(index.lookup(&store, &[0, 0]).is_err());
    // Other chunk dimensions, or an unlimited dimension.
    let grid = ChunkGrid { chunk_dims: vec![3, 2], ..fa.grid.clone() };
    assert!(open(&layout, &grid, RecordShape::Plain).is_err());
    let grid = ChunkGrid { max_shape: vec![None, Some(20)], ..fa.grid.clone() };
    assert!(open(&layout, &grid, RecordShape::Plain).is_err());
    let contiguous = Layout::Contiguous { address: Address(0), size: Some(1), dims: vec![] };
    assert!(open(&DataLayout { version: 3, class: contiguous }, &fa.grid, RecordShape::Plain).is_err());
}

#[test]
fn absurd_extents_end_early() {
    let store = Store::over_bytes(vec![0u8; 4096]);
    let grid = ChunkGrid::new(vec![1 << 60], vec![Some(1 << 60)], vec![1], 1).unwrap();
    let chunked = |index| ChunkedLayout { flags: 0, chunk_dims: vec![1], element_size: 1, dim_width: 1, index, sections: None };
    let layout = |index| DataLayout { version: 4, class: Layout::Chunked(chunked(index)) };
    let mut n = 0;
    let mut count = |_: &[u64], _| {
        n += 1;
        Ok(ControlFlow::Continue(()))
    };
    let index = open(&layout(IndexInfo::Implicit { address: Address(96) }), &grid, RecordShape::Plain).unwrap();
    assert!(index.iterate(&store, &mut count).is_err());
    assert_eq!(n, 4000);
    // Zeros are neither an array nor a tree; an undefined address means no chunks.
    for address in [Address(96), Address(1 << 40), Address::UNDEF] {
        for info in [
            IndexInfo::FixedArray { address, page_bits: 10 },
            IndexInfo::BTree2 { address, node_size: 2048, split: 100, merge: 40 },
            IndexInfo::BTree1 { address },
        ] {
            let index = open(&layout(info), &grid, RecordShape::Plain).unwrap();
            assert_eq!(index.lookup(&store, &[7]).is_ok(), !address.is_defined());
            let walk = index.iterate(&store, &mut |_, _| Ok(ControlFlow::Continue(())));
            assert_eq!(walk.is_ok(), !address.is_defined());
        }
    }
    assert!(grid.rank() <= limits::RANK_MAX);
}
