//! A new, empty file: a superblock and a root group without links.
//!
//! ```text
//! superblock 3 (48 bytes) | object header 2: link info, group info, reserve for links;
//!                           creation order of links and attributes tracked and indexed
//! superblock 0 (96 bytes) | object header 1: symbol table | group B-tree node | local heap
//! ```
//!
//! libhdf5 1.10 and newer read the first form, every libhdf5 the second. netCDF changes only files
//! whose groups track creation order.

use crate::base::{Address, Error, Result};
use crate::file::host_file::HostFile;
use crate::format::message::group_info::GroupInfo;
use crate::format::message::link_info::LinkInfo;
use crate::format::message::symbol_table::SymbolTable;
use crate::format::object_header::{Chunk, Message, Prefix};
use crate::format::superblock::{Legacy, RootEntry, Superblock};
use crate::format::{Context, Writer};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const CTX: Context = Context::DEFAULT;
/// Object header message types.
const LINK_INFO: u16 = 0x02;
const GROUP_INFO: u16 = 0x0a;
const SYMBOL_TABLE: u16 = 0x11;
/// The object header tracks and indexes the creation order of attributes, and records times.
const ROOT_FLAGS: u8 = 0x04 | 0x08 | 0x20;
/// Room for links in the root's header, bytes: what libhdf5 leaves.
const ROOM: usize = 126;
/// K values of group B-trees in a superblock 0: leaves, nodes.
const LEAF_K: u16 = 4;
const NODE_K: u16 = 16;
/// Names of a new symbol table, bytes; the first 8 are the empty name.
const HEAP: u64 = 88;

/// Makes the file `path`, which must not exist. `earliest`: one that libhdf5 1.8 reads and changes.
pub fn create(path: &Path, earliest: bool) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let bytes = if earliest { oldest()? } else { newer(u32::try_from(now).unwrap_or(u32::MAX))? };
    HostFile::create(path, &bytes).map_err(|e| Error::io("create", Address(0), &e))
}

/// Superblock 3; times are `now`.
fn newer(now: u32) -> Result<Vec<u8>> {
    let links = LinkInfo {
        max_creation_order: Some(0),
        fractal_heap: Address::UNDEF,
        name_index: Address::UNDEF,
        creation_index: Some(Address::UNDEF),
    };
    let message = |kind, body| Message { kind, flags: 0, creation_index: Some(0), body };
    let chunk = Chunk {
        messages: vec![
            message(LINK_INFO, links.encode(&CTX)?),
            // Constant, as libhdf5 has it.
            Message { flags: 1, ..message(GROUP_INFO, GroupInfo::default().encode(&CTX)?) },
            message(0, vec![0; ROOM]),
        ],
        gap: Vec::new(),
    };
    let mut prefix = Prefix {
        version: 2,
        flags: ROOT_FLAGS,
        reference_count: 1,
        message_count: 0,
        times: Some([now; 4]),
        phase_change: None,
        chunk0_size: 0,
        len: 0,
    };
    let messages = prefix.encode_messages(&chunk)?;
    prefix.chunk0_size = messages.len() as u64;
    let mut header = Writer::new();
    header.bytes(&prefix.encode()).bytes(&messages).checksum();
    let header = header.into_bytes();
    let mut superblock = Superblock {
        version: 3,
        ctx: CTX,
        flags: 0,
        base: Address(0),
        eof: Address(0),
        extension: Address::UNDEF,
        root: Address(0),
        legacy: None,
    };
    let start = superblock.encode()?.len() as u64;
    superblock.root = Address(start);
    superblock.eof = Address(start.saturating_add(header.len() as u64));
    Ok([superblock.encode()?, header].concat())
}

/// Superblock 0.
fn oldest() -> Result<Vec<u8>> {
    let node = {
        let mut w = Writer::new();
        w.bytes(b"TREE").u8(0).u8(0).u16(0).addr(Address::UNDEF, &CTX).addr(Address::UNDEF, &CTX);
        // 2K + 1 keys and 2K children.
        w.zeros((4 * usize::from(NODE_K)).saturating_add(1).saturating_mul(8));
        w.into_bytes()
    };
    let header = |table: &SymbolTable| -> Result<Vec<u8>> {
        let body = table.encode(&CTX)?;
        let mut prefix =
            Prefix { version: 1, flags: 0, reference_count: 1, message_count: 1, times: None, phase_change: None, chunk0_size: 0, len: 0 };
        let message = Message { kind: SYMBOL_TABLE, flags: 0, creation_index: None, body };
        let messages = prefix.encode_messages(&Chunk { messages: vec![message], gap: Vec::new() })?;
        prefix.chunk0_size = messages.len() as u64;
        Ok([prefix.encode(), messages].concat())
    };
    let superblock = |root: u64, tree: u64, heap: u64, eof: u64| -> Result<Vec<u8>> {
        let mut scratch = Writer::new();
        scratch.u64(tree).u64(heap);
        let scratch = scratch.into_bytes().try_into().unwrap_or_default();
        let root = RootEntry { name_offset: 0, header: Address(root), cache_type: 1, reserved: 0, scratch };
        let legacy = Legacy {
            free_space_version: 0,
            root_entry_version: 0,
            shared_header_version: 0,
            group_leaf_k: LEAF_K,
            group_internal_k: NODE_K,
            chunk_internal_k: 32,
            free_space: Address::UNDEF,
            driver_info: Address::UNDEF,
            root: root.clone(),
        };
        Superblock {
            version: 0,
            ctx: CTX,
            flags: 0,
            base: Address(0),
            eof: Address(eof),
            extension: Address::UNDEF,
            root: root.header,
            legacy: Some(legacy),
        }
        .encode()
    };
    let unknown = SymbolTable { btree: Address(0), heap: Address(0) };
    let root = superblock(0, 0, 0, 0)?.len() as u64;
    let tree = root.saturating_add(header(&unknown)?.len() as u64);
    let heap = tree.saturating_add(node.len() as u64);
    let names = heap.saturating_add(32);
    let mut w = Writer::new();
    w.bytes(&superblock(root, tree, heap, names.saturating_add(HEAP))?);
    w.bytes(&header(&SymbolTable { btree: Address(tree), heap: Address(heap) })?).bytes(&node);
    // One free block behind the empty name; 1 ends the list.
    w.bytes(b"HEAP").uint(0, 4).u64(HEAP).u64(8).u64(names);
    w.u64(0).u64(1).u64(HEAP.saturating_sub(8)).zeros(64);
    Ok(w.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// libhdf5 makes the same bytes itself (but for the times), and goes on with ours.
    #[test]
    fn libhdf5_makes_the_same_and_goes_on_with_ours() {
        let dir = tempfile::tempdir().unwrap();
        create(&dir.path().join("v110.h5"), false).unwrap();
        create(&dir.path().join("earliest.h5"), true).unwrap();
        let script = "
import h5py, sys
for name, libver in (('v110', ('v110', 'v110')), ('earliest', ('earliest', 'latest'))):
    h5py.File(f'ref-{name}.h5', 'w', libver=libver, fs_strategy=None, track_order=name == 'v110').close()
    ours, ref = (bytearray(open(p + name + '.h5', 'rb').read()) for p in ('', 'ref-'))
    if name == 'v110':
        # h5py asks for no times.
        assert ours[53] == ref[53] | 0x20
        ours, ref = ours[:28] + ours[48:53] + ours[70:-4], ref[:28] + ref[48:53] + ref[54:-4]
    assert ours == ref, (name, len(ours), len(ref), [i for i, (a, b) in enumerate(zip(ours, ref)) if a != b])
    for i in range(60):
        with h5py.File(name + '.h5', 'r+') as f:
            assert len(f) == i
            f.create_group(f'group number {i}')['d'] = list(range(i))
    with h5py.File(name + '.h5', 'r+') as f:
        for k in list(f):
            del f[k]
";
        let output = Command::new(crate::python::with_h5py()).args(["-c", script]).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn nothing_is_overwritten() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(create(file.path(), false), Err(Error::Io { operation: "create", address: Address(0), errno: libc::EEXIST }));
    }
}
