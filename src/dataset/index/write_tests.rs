//! Tests of changed chunk indexes. libhdf5 writes a file with every kind of index; the test inserts
//! and removes chunks; then libhdf5 reads all values, changes the datasets further and deletes
//! them.

use super::tests::{Expected, FIXTURES, byte_grid, checked_structures, inflate};
use super::write::{delete, insert, plan, remove};
use super::*;
use crate::base::checksum::lookup3;
use crate::base::{Address, Error};
use crate::dataset::chunk::grid::ChunkGrid;
use crate::file::memory::{GrowingFile, MemoryJournal};
use crate::format::chunk_record::{RecordShape, StoredForm};
use crate::format::message::data_layout::{ChunkedLayout, DataLayout, IndexInfo, Layout};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::meta::edit::testing::{empty, writable};
use crate::meta::header_edit::HeaderEdit;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::sync::Arc;

const LAYOUT: u16 = 8;

/// Output of `tests/oracle/chunk_index_write.py`; panics if it fails.
fn oracle(arguments: &[&str], input: &str) -> String {
    let local = concat!(env!("CARGO_MANIFEST_DIR"), "/.venv/bin/python");
    let known = [local, "/opt/venv/bin/python"].into_iter().find(|p| std::path::Path::new(p).exists()).unwrap_or("python3");
    let python = std::env::var("PYTHON").unwrap_or_else(|_| known.into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/chunk_index_write.py");
    let mut child =
        Command::new(python).arg(script).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a Python with h5py");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{arguments:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// Small pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n.max(1)
    }
}

fn numbers(v: &Value) -> Vec<u64> {
    v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

/// A dataset under test, and the expected values of its chunks.
struct Dataset<'a> {
    store: &'a Store,
    name: String,
    header: Address,
    grid: ChunkGrid,
    filtered: bool,
    k: u16,
    layout: DataLayout,
    model: BTreeMap<u64, u16>,
    written: bool,
}

impl<'a> Dataset<'a> {
    fn new(store: &'a Store, v: &Value) -> Self {
        let max = v["max"].as_array().unwrap().iter().map(Value::as_u64).collect();
        let grid = ChunkGrid::new(numbers(&v["shape"]), max, numbers(&v["chunk"]), 2).unwrap();
        let step = v["step"].as_u64().unwrap();
        let filled = (0..grid.total().unwrap()).filter(|i| step > 0 && i % step == 0);
        let model = filled.map(|i| (i, (i % 60000) as u16 + 1)).collect();
        let header = Address(v["header"].as_u64().unwrap());
        let edit = HeaderEdit::load(store, header).unwrap();
        let layout = DataLayout::decode(edit.body(edit.find(LAYOUT).unwrap()), store.ctx(), header).unwrap();
        let (name, filtered) = (v["name"].as_str().unwrap().into(), v["filtered"].as_bool().unwrap());
        let k = store.superblock().legacy.as_ref().map_or(32, |l| l.chunk_internal_k);
        Dataset { store, name, header, grid, filtered, k, layout, model, written: step > 0 }
    }

    fn records(&self) -> RecordShape {
        RecordShape::of_pipeline(self.filtered)
    }

    fn index(&self) -> IndexInfo {
        let Layout::Chunked(c) = &self.layout.class else { panic!("not chunked") };
        c.index
    }

    fn save_layout(&self) {
        let mut edit = HeaderEdit::load(self.store, self.header).unwrap();
        let i = edit.find(LAYOUT).unwrap();
        edit.set_body(i, self.layout.encode(self.store.ctx()).unwrap());
        edit.write(self.store).unwrap();
    }

    fn apply(&mut self, changed: write::Changed, new: Option<ChunkRecord>) {
        if changed.layout {
            self.save_layout();
        }
        if let Some(old) = changed.old.filter(|old| new.is_none_or(|new| new.address != old.address)) {
            self.store.free(old.address, old.size).unwrap();
        }
    }

    fn insert(&mut self, number: u64, value: u16) {
        let scaled = byte_grid(&self.grid).scaled(number);
        let raw = value.to_le_bytes().repeat(self.grid.chunk_elements().unwrap() as usize);
        let (bytes, filter_mask) = match value % 3 {
            _ if !self.filtered => (raw, 0),
            0 => (raw, 1),
            level => {
                let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(u32::from(level) * 4));
                packer.write_all(&raw).unwrap();
                (packer.finish().unwrap(), 0)
            }
        };
        let size = bytes.len() as u64;
        let address = match self.index() {
            IndexInfo::Implicit { .. } => {
                let place =
                    open(&self.layout, &self.grid, RecordShape::Plain).unwrap().lookup(self.store, &scaled).unwrap().unwrap().address;
                self.store.write_raw(place, &bytes).unwrap();
                place
            }
            _ => self.store.put(&bytes, SpaceKind::Raw).unwrap(),
        };
        let record = ChunkRecord { address, size, form: StoredForm::Whole { filter_mask } };
        let changed =
            insert(self.store, &mut self.layout, &self.grid, RecordShape::of_pipeline(self.filtered), self.k, &scaled, record).unwrap();
        assert_eq!(changed.old.is_some(), self.model.contains_key(&number), "{}: {scaled:?}", self.name);
        self.apply(changed, Some(record));
        self.model.insert(number, value);
    }

    fn remove(&mut self, number: u64) {
        let scaled = byte_grid(&self.grid).scaled(number);
        let changed = remove(self.store, &mut self.layout, &self.grid, RecordShape::of_pipeline(self.filtered), self.k, &scaled).unwrap();
        if matches!(self.index(), IndexInfo::Implicit { .. }) {
            assert_eq!(changed, write::Changed { layout: false, old: None });
            return;
        }
        assert_eq!(changed.old.is_some(), self.model.remove(&number).is_some(), "{}: {scaled:?}", self.name);
        self.apply(changed, None);
    }

    fn delete(&mut self) {
        for record in self.chunks().into_values() {
            self.store.free(record.address, record.size).unwrap();
        }
        delete(self.store, &mut self.layout, &self.grid, RecordShape::of_pipeline(self.filtered), self.k).unwrap();
        assert!(!self.index().address().is_defined());
        self.save_layout();
        self.model.clear();
        assert!(self.chunks().is_empty());
    }

    fn chunks(&self) -> BTreeMap<u64, ChunkRecord> {
        let mut all = BTreeMap::new();
        let index = open(&self.layout, &self.grid, self.records()).unwrap();
        let mut add = |scaled: &[u64], record| {
            assert!(all.insert(byte_grid(&self.grid).linear(scaled).unwrap(), record).is_none());
            Ok(ControlFlow::Continue(()))
        };
        index.iterate(self.store, &mut add).unwrap();
        all
    }

    /// Asserts that lookups and walks agree with the model.
    fn check(&self) {
        let index = open(&self.layout, &self.grid, self.records()).unwrap();
        let all = self.chunks();
        assert!(all.keys().eq(self.model.keys()), "{}", self.name);
        let step = (self.grid.total().unwrap() as usize / 3000).max(1);
        for i in (0..self.grid.total().unwrap()).step_by(step) {
            let record = index.lookup(self.store, &byte_grid(&self.grid).scaled(i)).unwrap();
            assert_eq!(record.as_ref(), all.get(&i), "{}", self.name);
        }
        for (i, record) in all {
            let mut bytes = vec![0; record.size as usize];
            self.store.read_raw(record.address, &mut bytes).unwrap();
            if self.filtered && record.filter_mask() == 0 {
                let mut raw = Vec::new();
                flate2::read::ZlibDecoder::new(&bytes[..]).read_to_end(&mut raw).unwrap();
                bytes = raw;
            }
            assert_eq!(bytes.len() as u64, self.grid.chunk_bytes().unwrap());
            // Edge chunks written by libhdf5 contain fill values past the extent.
            assert_eq!(bytes[..2], self.model[&i].to_le_bytes(), "{}: chunk {i}", self.name);
        }
    }
}

/// Inserts and removes chunks at random.
fn change(d: &mut Dataset<'_>, random: &mut Random) {
    let total = d.grid.total().unwrap();
    let steps = (total * 3 / 2).min(1500);
    // The planned index is the one that libhdf5 chose.
    let planned = plan(d.layout.version, &d.grid.shape, &d.grid.max_shape, &d.grid.chunk_dims, 2, d.records()).unwrap();
    if !matches!(d.index(), IndexInfo::Implicit { .. }) {
        let Layout::Chunked(c) = &mut d.layout.class.clone() else { panic!("not chunked") };
        c.index = match c.index {
            IndexInfo::Single { stored, .. } => {
                IndexInfo::Single { address: Address::UNDEF, stored: stored.map(|_| (0, StoredForm::WHOLE)) }
            }
            IndexInfo::BTree1 { .. } => IndexInfo::BTree1 { address: Address::UNDEF },
            IndexInfo::FixedArray { page_bits, .. } => IndexInfo::FixedArray { address: Address::UNDEF, page_bits },
            IndexInfo::BTree2 { node_size, split, merge, .. } => IndexInfo::BTree2 { address: Address::UNDEF, node_size, split, merge },
            _ => planned.index,
        };
        assert_eq!(*c, planned, "{}", d.name);
    }
    assert_eq!(d.written, d.index().address().is_defined(), "{}", d.name);
    d.check();
    if d.name.ends_with("deleted") {
        d.delete();
    }
    for step in 0..steps {
        let number = if step % 4 == 0 { random.below(60) % total } else { random.below(total) };
        // First more inserts than removals, then more removals.
        let share = if step < steps * 2 / 3 { 7 } else { 4 };
        if random.below(10) < share || step == 0 {
            d.insert(number, random.below(60000) as u16 + 1)
        } else {
            d.remove(number)
        }
        if step % 500 == 250 {
            d.store.commit().unwrap();
        }
    }
    d.check();
}

fn against_libhdf5(arguments: &[&str], versions: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.h5");
    let path = path.to_str().unwrap();
    let sets: Value = serde_json::from_str(&oracle(&[&["make", path], arguments].concat(), "")).unwrap();
    let (store, file): (Arc<Store>, Arc<GrowingFile>) = writable(std::fs::read(path).unwrap());
    let mut random = Random(7);
    let mut expected = BTreeMap::new();
    let mut seen = Vec::new();
    for v in sets.as_array().unwrap() {
        let mut d = Dataset::new(&store, v);
        seen.push(d.layout.version);
        change(&mut d, &mut random);
        expected.insert(d.name, d.model);
    }
    assert!(seen.iter().all(|v| versions.contains(v)) && versions.iter().all(|v| seen.contains(v)), "{seen:?}");
    store.close().unwrap();
    std::fs::write(path, file.bytes()).unwrap();
    assert_eq!(oracle(&["check", path], &json!(expected).to_string()).trim(), "same");
}

#[test]
fn indexes_of_layout_version_3() {
    against_libhdf5(&["earliest"], &[3]);
}

#[test]
fn indexes_of_layout_version_4() {
    against_libhdf5(&["v110"], &[4]);
}

#[test]
fn indexes_of_layout_version_5() {
    against_libhdf5(&["latest"], &[4, 5]);
}

#[test]
fn indexes_of_small_nodes_and_narrow_addresses() {
    against_libhdf5(&["earliest", "narrow"], &[3]);
    against_libhdf5(&["v110", "narrow"], &[4]);
}

#[test]
fn what_no_index_holds_is_refused() {
    let (store, _) = empty();
    let grid = ChunkGrid::new(vec![6], vec![None], vec![2], 2).unwrap();
    let mut layout = DataLayout { version: 4, class: Layout::Chunked(plan(4, &[6], &[None], &[2], 2, RecordShape::Plain).unwrap()) };
    let before = (layout.clone(), store.transaction().unwrap().end());
    let record = |size| ChunkRecord { address: Address(48), size, form: StoredForm::WHOLE };
    let put = |layout: &mut _, filtered, scaled: &[u64], record| {
        insert(&store, layout, &grid, RecordShape::of_pipeline(filtered), 32, scaled, record).is_ok()
    };
    assert!(!put(&mut layout, false, &[3], record(4)), "outside");
    assert!(!put(&mut layout, false, &[0, 0], record(4)), "rank");
    assert!(
        !put(&mut layout, false, &[0], record(3))
            && !put(&mut layout, false, &[0], ChunkRecord { form: StoredForm::Whole { filter_mask: 1 }, ..record(4) })
    );
    assert!(!put(&mut layout, false, &[0], ChunkRecord { address: Address::UNDEF, ..record(4) }));
    // The size of the chunk needs more bits than the field has.
    assert!(!put(&mut layout, true, &[0], record(1 << 16)) && !put(&mut layout, true, &[0], record(0)));
    assert_eq!((layout.clone(), store.transaction().unwrap().end()), before, "nothing was written");
    assert!(put(&mut layout, true, &[0], record((1 << 16) - 1)));
    // The array has elements for filtered chunks.
    assert!(!put(&mut layout, false, &[1], record(4)));
    let implicit = ChunkedLayout {
        index: IndexInfo::Implicit { address: Address::UNDEF },
        ..plan(4, &[6], &[Some(8)], &[2], 2, RecordShape::Plain).unwrap()
    };
    let grid = ChunkGrid { max_shape: vec![Some(8)], ..grid.clone() };
    let mut layout = DataLayout { version: 4, class: Layout::Chunked(implicit) };
    assert!(matches!(insert(&store, &mut layout, &grid, RecordShape::Plain, 32, &[0], record(4)), Err(Error::Unsupported { .. })));
    let mut contiguous = DataLayout { version: 4, class: Layout::Contiguous { address: Address(0), size: Some(1), dims: vec![] } };
    assert!(delete(&store, &mut contiguous, &grid, RecordShape::Plain, 32).is_err());
}

/// Changes the datasets of a damaged file; errors are fine, panics and endless work are not.
fn survive(bytes: Vec<u8>, sets: &[Expected]) {
    let Ok(store) = Store::open_writable(Arc::new(GrowingFile::new(bytes)), Box::new(MemoryJournal::default())) else { return };
    for e in sets {
        let Ok(mut layout) = e.layout(&store) else { continue };
        let last: Vec<u64> = e.grid.counts().iter().map(|n| n.saturating_sub(1)).collect();
        for (i, scaled) in e.chunks.keys().take(1).chain([&vec![0; e.grid.rank()], &last]).enumerate() {
            let record = ChunkRecord { address: Address(64), size: e.grid.chunk_bytes().unwrap(), form: StoredForm::WHOLE };
            let _ = insert(&store, &mut layout, &e.grid, e.records(), 32, scaled, record);
            if i % 2 == 0 {
                let _ = remove(&store, &mut layout, &e.grid, e.records(), 32, scaled);
            }
        }
        let _ = delete(&store, &mut layout, &e.grid, e.records(), 32);
    }
    let _ = store.close();
}

#[test]
fn damaged_indexes_neither_panic_nor_hang() {
    for (name, h5, json) in FIXTURES.into_iter().filter(|f| !f.0.ends_with("latest")) {
        let (good, json) = (inflate(h5), inflate(json));
        let json: Value = serde_json::from_slice(&json).unwrap();
        let sets: Vec<Expected> = json.as_array().unwrap().iter().map(Expected::parse).collect();
        let step = (good.len() / if name == "btree1_deep" { 20 } else { 100 }).max(1) | 1;
        for i in (0..good.len()).step_by(step) {
            let mut bad = good.clone();
            bad[i] ^= 1 << (i % 8);
            survive(bad, &sets);
        }
        // With corrected checksums.
        for (at, len) in checked_structures(&good) {
            for i in (5..len).filter(|&i| if i < 60 { i % 2 == 0 } else { i % 301 == 0 }) {
                let mut bad = good.clone();
                bad[at + i] = [0x00, 0x01, 0x7f, 0xff, bad[at + i] ^ 0x08][i % 5];
                let sum = lookup3(&bad[at..at + len], 0).to_le_bytes();
                bad[at + len..at + len + 4].copy_from_slice(&sum);
                survive(bad, &sets);
            }
        }
    }
}
