//! Tests of virtual datasets against libhdf5 (tests/fixtures/selection), and of hostile and large
//! ones.

use super::dataset::*;
use super::read::*;
use crate::base::Result;
use crate::base::hyperslab::{HyperslabDim, UNLIMITED};
use crate::base::{Address, Error};
use crate::dataset::layout::source_reads::{SourceBytes, SourceReads};
use crate::format::Context;
use crate::format::selection::{Form, SerializedSelection};
use crate::format::virtual_mapping::VirtualMappings;
use crate::format::virtual_mapping::{MappingEntry, SourceName};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Memory {
    shape: Vec<u64>,
    size: u64,
    datatype: Vec<u8>,
    data: Vec<u8>,
    reads: AtomicU64,
}

impl Source for Memory {
    fn shape(&self) -> Vec<u64> {
        self.shape.clone()
    }

    fn element_size(&self) -> u64 {
        self.size
    }

    fn datatype_bytes(&self) -> Vec<u8> {
        self.datatype.clone()
    }

    fn place(&self) -> Place {
        (0, Address(0))
    }

    fn read(&self, _: SourceReads<'_>, byte_offset: u64, buf: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let from = byte_offset as usize;
        buf.copy_from_slice(&self.data[from..from + buf.len()]);
        Ok(())
    }
}

#[derive(Default)]
struct Sources {
    all: HashMap<(Vec<u8>, Vec<u8>), Arc<Memory>>,
    opened: AtomicU64,
}

impl SourceOpener for Sources {
    fn open(&self, file: &[u8], dataset: &[u8]) -> Result<Option<Arc<dyn Source>>> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(self.all.get(&(file.to_vec(), dataset.to_vec())).map(|m| m.clone() as Arc<dyn Source>))
    }
}

fn unhex(v: &Value) -> Vec<u8> {
    let s = v.as_str().unwrap();
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
}

fn numbers(v: &Value) -> Vec<u64> {
    v.as_array().unwrap().iter().map(|n| n.as_i64().unwrap() as u64).collect()
}

fn load(case: &Value) -> (VirtualDataset, Sources) {
    let mappings = VirtualMappings::decode(&unhex(&case["block"]), Address(0), &Context::DEFAULT).unwrap();
    let description = Description {
        dims: numbers(&case["dims"]),
        max_dims: numbers(&case["max"]),
        datatype: unhex(&case["type"]),
        element_size: case["size"].as_u64().unwrap(),
        fill: unhex(&case["fill"]),
    };
    let mut sources = Sources::default();
    for s in case["sources"].as_array().unwrap() {
        let name = |key: &str| s[key].as_str().unwrap().as_bytes().to_vec();
        let memory = Memory {
            shape: numbers(&s["dims"]),
            size: s["size"].as_u64().unwrap(),
            datatype: unhex(&s["type"]),
            data: unhex(&s["data"]),
            reads: AtomicU64::new(0),
        };
        sources.all.insert((name("file"), name("name")), Arc::new(memory));
    }
    (VirtualDataset::new(&mappings, description).unwrap(), sources)
}

fn compare(text: &str) {
    let cases: Value = serde_json::from_str(text).unwrap();
    for case in cases.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let (v, sources) = load(case);
        let shape = v.extent(&sources).unwrap();
        assert_eq!(shape, numbers(&case["extent"]), "{name}: extent");
        let want = unhex(&case["data"]);
        let mut got = vec![0xee; want.len()];
        v.read(&sources, SourceReads::new(&SourceBytes::of_read(1 << 30)), &shape, 0, &mut got, MissingPolicy::Fill).unwrap();
        assert_eq!(got, want, "{name}: data");
        // Any range, also of partial elements.
        for step in [1, 3, 7, 16, 50] {
            for from in (0..want.len()).step_by(step) {
                let mut part = vec![0xee; step.min(want.len() - from)];
                v.read(&sources, SourceReads::new(&SourceBytes::of_read(1 << 30)), &shape, from as u64, &mut part, MissingPolicy::Fill)
                    .unwrap();
                assert_eq!(part, want[from..from + part.len()], "{name}: {step} bytes from {from}");
            }
        }
    }
}

#[test]
fn fixed_mappings() {
    compare(include_str!("../../../../tests/fixtures/selection/vds_fixed.json"));
}

#[test]
fn scattered_selections() {
    compare(include_str!("../../../../tests/fixtures/selection/vds_scattered.json"));
}

#[test]
fn growing_sources() {
    compare(include_str!("../../../../tests/fixtures/selection/vds_growing.json"));
}

#[test]
fn numbered_sources() {
    compare(include_str!("../../../../tests/fixtures/selection/vds_printf.json"));
}

#[test]
fn converted_numbers() {
    compare(include_str!("../../../../tests/fixtures/selection/vds_converted.json"));
}

const I32: [u8; 12] = [0x10, 8, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0];
const V1: Form = Form::V1 { reserved: 0, length: 0 };

fn slab(dims: &[(u64, u64, u64, u64)]) -> SerializedSelection {
    let dims = dims.iter().map(|&(start, stride, count, block)| HyperslabDim { start, stride, count, block }).collect();
    SerializedSelection::Regular { form: Form::Compact { width: 8 }, dims }
}

fn entry(dataset: &str, virtual_: SerializedSelection, source: SerializedSelection) -> MappingEntry {
    let name = |s: &str| SourceName { bytes: Arc::from(s.as_bytes()), shared_with: None };
    MappingEntry { flags: 0, file: name("."), dataset: name(dataset), source, virtual_ }
}

fn dataset(dims: &[u64], entries: Vec<MappingEntry>) -> Result<VirtualDataset> {
    let d = Description { dims: dims.to_vec(), max_dims: vec![], datatype: I32.to_vec(), element_size: 4, fill: vec![9, 9, 9, 9] };
    VirtualDataset::new(&VirtualMappings { version: 0, entries }, d)
}

fn source(sources: &mut Sources, name: &str, shape: &[u64]) {
    let n: u64 = shape.iter().product();
    let data = (0..n as u32).flat_map(|i| i.to_le_bytes()).collect();
    let memory = Memory { shape: shape.to_vec(), size: 4, datatype: I32.to_vec(), data, reads: AtomicU64::new(0) };
    sources.all.insert((b".".to_vec(), name.as_bytes().to_vec()), Arc::new(memory));
}

fn elements(v: &VirtualDataset, sources: &Sources, shape: &[u64], from: u64, n: usize) -> Result<Vec<u32>> {
    let mut buf = vec![0; n * 4];
    v.read(sources, SourceReads::new(&SourceBytes::of_read(1 << 30)), shape, from * 4, &mut buf, MissingPolicy::Error)?;
    Ok(buf.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect())
}

const fn shared<T: Send + Sync>() {}
const _: () = shared::<VirtualDataset>();

const FILL: u32 = 0x0909_0909;

/// Only reads that need a missing source fail.
#[test]
fn missing_sources() {
    let part = |k: u64| slab(&[(k * 4, 1, 1, 4)]);
    let v = dataset(&[12], vec![entry("a", part(0), part(0)), entry("b", part(1), part(0))]).unwrap();
    let mut sources = Sources::default();
    source(&mut sources, "a", &[4]);
    assert_eq!(elements(&v, &sources, &[12], 1, 3).unwrap(), [1, 2, 3]);
    assert_eq!(elements(&v, &sources, &[12], 8, 4).unwrap(), [FILL; 4]);
    assert!(matches!(elements(&v, &sources, &[12], 3, 2), Err(Error::Missing { name, .. }) if name == ".:b"));
}

/// A source smaller than its selection: missing elements read as the fill value; different counts
/// are corrupt.
#[test]
fn source_that_shrank() {
    let mut sources = Sources::default();
    source(&mut sources, "s", &[2, 3]);
    let all = SerializedSelection::All(V1);
    let four = slab(&[(0, 1, 1, 4), (0, 1, 1, 4)]);
    let v = dataset(&[4, 4], vec![entry("s", four.clone(), four.clone())]).unwrap();
    let f = FILL;
    assert_eq!(elements(&v, &sources, &[4, 4], 0, 16).unwrap(), [0, 1, 2, f, 3, 4, 5, f, f, f, f, f, f, f, f, f]);
    let v = dataset(&[4, 4], vec![entry("s", four.clone(), all)]).unwrap();
    assert!(matches!(elements(&v, &sources, &[4, 4], 0, 16), Err(Error::Corrupt { .. })));
    let v = dataset(&[4, 4], vec![entry("s", four, slab(&[(0, 1, 1, 16)]))]).unwrap();
    assert!(elements(&v, &sources, &[4, 4], 0, 16).is_err());
}

#[test]
fn mappings_that_make_no_sense() {
    let all = || SerializedSelection::All(V1);
    let open = || slab(&[(0, 1, UNLIMITED, 1)]);
    let one = || slab(&[(0, 1, 1, 1)]);
    for (e, sound) in [
        (entry("s", all(), all()), true),
        (entry("s%b", all(), all()), false),
        (entry("s", open(), one()), false),
        (entry("s%b", open(), one()), true),
        (entry("s%b", slab(&[(0, 1, 1, UNLIMITED)]), one()), false),
        (entry("s", one(), open()), false),
        (entry("s%b", open(), open()), false),
        (entry("s%", one(), one()), false),
        (entry("s", slab(&[(0, 1, 1, 1), (0, 1, 1, 1)]), one()), false),
        (entry("s", slab(&[(0, 1, UNLIMITED, UNLIMITED)]), one()), false),
    ] {
        assert_eq!(dataset(&[4], vec![e.clone()]).is_ok(), sound, "{e:?}");
    }
}

/// Only reads that need a source of another type fail.
#[test]
fn foreign_types() {
    let mut sources = Sources::default();
    source(&mut sources, "s", &[4]);
    let all = || SerializedSelection::All(V1);
    let mut v = dataset(&[4], vec![entry("s", all(), all())]).unwrap();
    v.datatype = vec![0x13, 0, 0, 0, 4, 0, 0, 0];
    assert!(matches!(elements(&v, &sources, &[4], 0, 1), Err(Error::Unsupported { .. })));
    v.datatype = [&[0x30], &I32[1..]].concat();
    assert_eq!(elements(&v, &sources, &[4], 2, 2).unwrap(), [2, 3]);
}

/// 40 000 mappings, in tiles and in columns: a small read opens only the sources it needs.
#[test]
fn many_mappings() {
    let mut sources = Sources::default();
    source(&mut sources, "tile", &[5, 5]);
    let tile = |y: u64, x: u64| entry("tile", slab(&[(y * 5, 1, 1, 5), (x * 5, 1, 1, 5)]), SerializedSelection::All(V1));
    let v = dataset(&[1000, 1000], (0..40_000).map(|i| tile(i / 200, i % 200)).collect()).unwrap();
    let got = elements(&v, &sources, &[1000, 1000], 777_012, 20).unwrap();
    let want: Vec<u32> = (777_012..777_032).map(|l: u32| (l / 1000) % 5 * 5 + l % 5).collect();
    assert_eq!(got, want);
    assert_eq!(sources.opened.load(Ordering::Relaxed), 1);
    // Columns interleaved element by element: one read of the source per window, not per element.
    let mut sources = Sources::default();
    source(&mut sources, "s", &[100_000]);
    let even = slab(&[(0, 2, 50_000, 1)]);
    let v = dataset(&[100_000], vec![entry("s", even.clone(), even)]).unwrap();
    assert_eq!(elements(&v, &sources, &[100_000], 10, 6).unwrap(), [10, FILL, 12, FILL, 14, FILL]);
    elements(&v, &sources, &[100_000], 0, 100_000).unwrap();
    let memory = sources.all.values().next().unwrap();
    assert!(memory.reads.load(Ordering::Relaxed) <= 10);
}

/// Of overlapping mappings with one source the later wins, whatever the order in the source. Too
/// many overlapping mappings are refused.
#[test]
fn overlapping_mappings() {
    let mut sources = Sources::default();
    source(&mut sources, "s", &[8]);
    let part = |from: u64| slab(&[(from, 1, 1, 4)]);
    let mapping = |to, from| entry("s", part(to), part(from));
    let v = dataset(&[6], vec![mapping(0, 4), mapping(2, 0)]).unwrap();
    assert_eq!(elements(&v, &sources, &[6], 0, 6).unwrap(), [4, 5, 0, 1, 2, 3]);
    let v = dataset(&[6], vec![mapping(2, 4), mapping(0, 0)]).unwrap();
    assert_eq!(elements(&v, &sources, &[6], 0, 6).unwrap(), [0, 1, 2, 3, 6, 7]);
    let v = dataset(&[4], (0..1000).map(|_| mapping(0, 0)).collect()).unwrap();
    assert!(matches!(elements(&v, &sources, &[4], 0, 4), Err(Error::Limit { .. })));
}

/// Damaged heap blocks with corrected checksums: no panic, bounded time.
#[test]
fn hostile_mappings() {
    let cases: Value = serde_json::from_str(include_str!("../../../../tests/fixtures/selection/vds_printf.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let (v, sources) = load(case);
        let block = unhex(&case["block"]);
        for at in 0..block.len() - 4 {
            let mut bad = block.clone();
            bad[at] ^= 0xff;
            let sum = crate::base::checksum::lookup3(&bad[..block.len() - 4], 0);
            bad[block.len() - 4..].copy_from_slice(&sum.to_le_bytes());
            let Ok(m) = VirtualMappings::decode(&bad, Address(0), &Context::DEFAULT) else { continue };
            let d = Description {
                dims: v.stored_dims.clone(),
                max_dims: v.max_dims.clone(),
                datatype: v.datatype.clone(),
                element_size: 4,
                fill: vec![],
            };
            let Ok(v) = VirtualDataset::new(&m, d) else { continue };
            let mut buf = [0; 64];
            if let Ok(shape) = v.extent(&sources) {
                let _ = v.read(&sources, SourceReads::new(&SourceBytes::of_read(1 << 30)), &shape, 4, &mut buf, MissingPolicy::Fill);
            }
            let _ = v.read(
                &sources,
                SourceReads::new(&SourceBytes::of_read(1 << 30)),
                &vec![1 << 20; v.stored_dims.len()],
                4,
                &mut buf,
                MissingPolicy::Fill,
            );
        }
    }
}
