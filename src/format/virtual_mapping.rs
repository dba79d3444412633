//! Mappings of a virtual dataset: the global heap object that its layout message points to.
//!
//! ```text
//! version u8, number of mappings L, then per mapping
//!   v1 only: flags u8      1 file name shared, 2 dataset name shared, 4 file is this one (".")
//!   source file name       NUL-terminated; shared: L-byte index of an earlier mapping; ".": absent
//!   source dataset name    NUL-terminated, or the index
//!   source selection, virtual selection
//! checksum u32             lookup3 of everything before
//! ```
//!
//! Source: H5.format.4.0 "Global heap block for virtual datasets", H5Dvirtual.c
//! (`H5D__virtual_load_layout`).

use super::codec::{Context, Reader, Writer};
use super::selection::SerializedSelection;
use crate::base::{Address, Error, Result, limits};
use std::sync::Arc;

const STRUCTURE: &str = "virtual dataset mappings";
const FILE_SHARED: u8 = 1;
const DATASET_SHARED: u8 = 2;
const SAME_FILE: u8 = 4;

/// A source name and its stored form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceName {
    /// The name, without NUL; the file name `.` is the virtual dataset's own file. A name stored
    /// once for several mappings is one allocation.
    pub bytes: Arc<[u8]>,
    /// Index of the earlier mapping that stores the name (version 1).
    pub shared_with: Option<u64>,
}

/// One mapping: a selection of a source dataset that appears as a selection of the virtual one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingEntry {
    /// Flags of version 1; 0 in version 0.
    pub flags: u8,
    /// Name of the source file.
    pub file: SourceName,
    /// Path of the source dataset in it.
    pub dataset: SourceName,
    /// Elements of the source.
    pub source: SerializedSelection,
    /// Elements of the virtual dataset, in the same order.
    pub virtual_: SerializedSelection,
}

/// The mappings of one virtual dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualMappings {
    /// 0, or 1 (HDF5 2.0: shared names).
    pub version: u8,
    /// In stored order; where mappings overlap, the later one takes precedence.
    pub entries: Vec<MappingEntry>,
}

impl VirtualMappings {
    /// Decodes the heap object `bytes`, found at `address`.
    pub fn decode(bytes: &[u8], address: Address, ctx: &Context) -> Result<Self> {
        let mut r = Reader::new(bytes, STRUCTURE, address);
        let version = r.version(0..=1)?;
        let n = r.length(ctx)?;
        // Smallest mapping: two empty names and two selections of 15 bytes.
        if n > r.remaining() as u64 / 32 {
            return Err(r.corrupt(format!("{n} mappings in {} bytes", bytes.len())));
        }
        if n > limits::VIRTUAL_MAPPINGS_MAX {
            return Err(Error::limit(STRUCTURE, address, format!("{n} mappings")));
        }
        let same_file: Arc<[u8]> = Arc::from(&b"."[..]);
        let mut entries: Vec<MappingEntry> = Vec::new();
        for _ in 0..n {
            let flags = if version == 0 { 0 } else { r.u8()? };
            if flags & !(FILE_SHARED | DATASET_SHARED | SAME_FILE) != 0 {
                return Err(r.corrupt(format!("flags {flags:#x} of a mapping")));
            }
            let file = match flags & SAME_FILE != 0 {
                true => SourceName { bytes: same_file.clone(), shared_with: None },
                false => name(&mut r, ctx, flags & FILE_SHARED != 0, |i| Some(&entries.get(i)?.file))?,
            };
            let dataset = name(&mut r, ctx, flags & DATASET_SHARED != 0, |i| Some(&entries.get(i)?.dataset))?;
            let source = SerializedSelection::decode(&mut r)?;
            entries.push(MappingEntry { flags, file, dataset, source, virtual_: SerializedSelection::decode(&mut r)? });
        }
        r.checksum()?;
        match r.remaining() {
            0 => Ok(VirtualMappings { version, entries }),
            n => Err(r.corrupt(format!("{n} bytes after the checksum"))),
        }
    }

    /// Encodes the heap object.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(self.version).length(self.entries.len() as u64, ctx);
        for e in &self.entries {
            if self.version > 0 {
                w.u8(e.flags);
            }
            if e.flags & SAME_FILE == 0 {
                encode_name(&mut w, ctx, &e.file);
            }
            encode_name(&mut w, ctx, &e.dataset);
            e.source.encode(&mut w);
            e.virtual_.encode(&mut w);
        }
        w.checksum();
        w.into_bytes()
    }
}

/// Reads a name; `earlier(i)` returns the corresponding name of mapping `i`.
fn name<'e>(r: &mut Reader, ctx: &Context, shared: bool, earlier: impl Fn(usize) -> Option<&'e SourceName>) -> Result<SourceName> {
    if !shared {
        return Ok(SourceName { bytes: Arc::from(r.cstr()?), shared_with: None });
    }
    let index = r.length(ctx)?;
    let bytes = usize::try_from(index).ok().and_then(earlier).map(|n| n.bytes.clone());
    let bytes = bytes.ok_or_else(|| r.corrupt(format!("a name is shared with mapping {index}, which is not an earlier one")))?;
    Ok(SourceName { bytes, shared_with: Some(index) })
}

fn encode_name(w: &mut Writer, ctx: &Context, name: &SourceName) {
    match name.shared_with {
        Some(index) => w.length(index, ctx),
        None => w.bytes(&name.bytes).u8(0),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::checksum::lookup3;
    use serde_json::Value;

    const FIXTURES: [&str; 4] = [
        include_str!("../../tests/fixtures/selection/vds_fixed.json"),
        include_str!("../../tests/fixtures/selection/vds_scattered.json"),
        include_str!("../../tests/fixtures/selection/vds_growing.json"),
        include_str!("../../tests/fixtures/selection/vds_printf.json"),
    ];

    fn blocks() -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        for text in FIXTURES {
            let cases: Value = serde_json::from_str(text).unwrap();
            for case in cases.as_array().unwrap() {
                let s = case["block"].as_str().unwrap();
                let bytes = (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect();
                all.push((case["name"].as_str().unwrap().to_string(), bytes));
            }
        }
        all
    }

    fn decode(bytes: &[u8]) -> Result<VirtualMappings> {
        VirtualMappings::decode(bytes, Address(0), &Context::DEFAULT)
    }

    #[test]
    fn heap_blocks_of_libhdf5() {
        let mut versions = [0; 2];
        for (name, bytes) in blocks() {
            let m = decode(&bytes).unwrap();
            assert_eq!(m.encode(&Context::DEFAULT), bytes, "{name}");
            versions[usize::from(m.version)] += 1;
            if name == "shared names" {
                let names: Vec<_> = m.entries.iter().map(|e| (&e.file.bytes[..], &e.dataset.bytes[..])).collect();
                let (long, dataset) = (&b"long-file-name.h5"[..], &b"a/long/name"[..]);
                assert_eq!(names, [(&b"."[..], dataset), (b".", dataset), (long, dataset), (long, dataset)]);
                let shared: Vec<_> = m.entries.iter().map(|e| (e.flags, e.file.shared_with, e.dataset.shared_with)).collect();
                assert_eq!(shared, [(4, None, None), (6, None, Some(0)), (2, None, Some(0)), (3, Some(2), Some(0))]);
            }
        }
        assert!(versions[0] > 20 && versions[1] > 3, "{versions:?}");
    }

    #[test]
    fn damaged_blocks_are_refused() {
        for (name, bytes) in blocks() {
            for n in 0..bytes.len() {
                assert!(decode(&bytes[..n]).is_err(), "{name} cut at {n}");
                let mut bad = bytes.clone();
                bad[n] ^= 0xff;
                assert!(decode(&bad).is_err() || cfg!(fuzzing), "{name} changed at {n}");
                // Damaged bytes with a valid checksum must not cause a panic.
                let body = bad.len() - 4;
                let sum = lookup3(&bad[..body], 0);
                bad[body..].copy_from_slice(&sum.to_le_bytes());
                if let Ok(m) = decode(&bad) {
                    assert_eq!(m.encode(&Context::DEFAULT), bad);
                }
            }
        }
    }

    #[test]
    fn shared_names_must_be_earlier() {
        let (_, bytes) = blocks().into_iter().find(|(name, _)| name == "shared names").unwrap();
        let mut m = decode(&bytes).unwrap();
        m.entries[1].dataset.shared_with = Some(1);
        assert!(decode(&m.encode(&Context::DEFAULT)).is_err());
        let empty = VirtualMappings { version: 0, entries: Vec::new() };
        assert_eq!(decode(&empty.encode(&Context::DEFAULT)).unwrap(), empty);
    }
}
