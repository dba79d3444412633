//! A new, empty file: a superblock and a root group without links.
//!
//! ```text
//! user block | superblock 3 (48 bytes) | extension: B-tree K values, file space info, shared
//!              message table | table of shared messages |
//!              object header 2: link info, group info, reserve for links; creation order of links
//!              and attributes tracked and indexed | rest of the page
//! user block | superblock 0 (96 bytes) or 1 | object header 1: symbol table |
//!              group B-tree node | local heap
//! ```
//!
//! The extension and the table are there if the properties of the file need them. libhdf5 1.10 and
//! newer read the first form, every libhdf5 the second. netCDF changes only files whose groups
//! track creation order.

use crate::base::free_ranges::FreeRanges;
use crate::base::{Address, Error, Result};
use crate::connector::new_file::{NewFile, PAGE_BYTES, Strategy};
use crate::file::host_file::HostFile;
use crate::format::message::btree_k::BTreeK;
use crate::format::message::file_space_info::{self, FileSpaceInfo};
use crate::format::message::group_info::GroupInfo;
use crate::format::message::link_info::LinkInfo;
use crate::format::message::shared_message_table::SharedMessageTable;
use crate::format::message::symbol_table::SymbolTable;
use crate::format::object_header::{Chunk, Message, Prefix, flag, kind};
use crate::format::shared_message::{self, IndexHeader};
use crate::format::superblock::{Legacy, RootEntry, Superblock};
use crate::format::{Context, Writer, free_list};
use std::ops::Range;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const CTX: Context = Context::DEFAULT;
/// The object header tracks and indexes the creation order of attributes, and records times.
const ROOT_FLAGS: u8 = 0x04 | 0x08 | 0x20;
/// Room for links in the root's header, bytes: what libhdf5 leaves.
const ROOM: usize = 126;
/// Names of a new symbol table, bytes; the first 8 are the empty name.
const HEAP: u64 = 88;
/// Smallest message that libhdf5 shares, bytes.
const SHARED_BYTES_MIN: u32 = 50;
/// Most messages of a list, and fewest of a B-tree, by which libhdf5 finds shared messages.
const SHARED_LIST: (u16, u16) = (50, 40);

/// Makes the file `path`, which must not exist. Errors: `EINVAL` for properties that contradict
/// each other.
pub fn create(path: &Path, new: &NewFile) -> Result<()> {
    new.check()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let now = u32::try_from(now).unwrap_or(u32::MAX);
    let bytes = if new.earliest { oldest(new)? } else { newer(new, now)? };
    HostFile::create(path, new.user_block, &bytes).map_err(|e| Error::io("create", Address(0), &e))
}

fn tree_k(new: &NewFile) -> BTreeK {
    let usual = BTreeK::default();
    BTreeK {
        chunk_internal: new.chunk_k.unwrap_or(usual.chunk_internal),
        group_internal: new.group_k.unwrap_or(usual.group_internal),
        group_leaf: new.leaf_k.unwrap_or(usual.group_leaf),
    }
}

/// An object header of version 2 with `messages`.
fn header(flags: u8, times: Option<[u32; 4]>, messages: Vec<Message>) -> Result<Vec<u8>> {
    let chunk = Chunk { messages, gap: Vec::new() };
    let mut prefix = Prefix { version: 2, flags, reference_count: 1, message_count: 0, times, phase_change: None, chunk0_size: 0, len: 0 };
    let messages = prefix.encode_messages(&chunk)?;
    prefix.chunk0_size = messages.len() as u64;
    // Chunks of 256 bytes or more have a wider size.
    if prefix.chunk0_size > u64::from(u8::MAX) {
        prefix.flags |= 1;
    }
    let mut header = Writer::new();
    header.bytes(&prefix.encode()).bytes(&messages).checksum();
    Ok(header.into_bytes())
}

fn root_header(now: u32) -> Result<Vec<u8>> {
    let links = LinkInfo {
        max_creation_order: Some(0),
        fractal_heap: Address::UNDEF,
        name_index: Address::UNDEF,
        creation_index: Some(Address::UNDEF),
    };
    let message = |kind, body| Message { kind, flags: 0, creation_index: Some(0), body };
    let messages = vec![
        message(kind::LINK_INFO, links.encode(&CTX)?),
        // Constant, as libhdf5 has it.
        Message { flags: flag::CONSTANT, ..message(kind::GROUP_INFO, GroupInfo::default().encode(&CTX)?) },
        message(kind::NIL, vec![0; ROOM]),
    ];
    header(ROOT_FLAGS, Some([now; 4]), messages)
}

/// The file space info message of `new`; `None`: it has the default properties.
fn file_space(new: &NewFile) -> Option<FileSpaceInfo> {
    let strategy = match new.strategy {
        Strategy::Fsm => 0,
        Strategy::Page => 1,
        Strategy::Aggregate => 2,
        Strategy::None => 3,
    };
    new.has_file_space().then(|| FileSpaceInfo {
        version: 1,
        strategy,
        persist: new.persist,
        threshold: new.threshold.unwrap_or(1),
        page_size: new.page_size.unwrap_or(PAGE_BYTES),
        page_end: 0,
        eoa: Address::UNDEF,
        managers: vec![Address::UNDEF; if new.persist { file_space_info::MANAGERS } else { 0 }],
    })
}

/// The table of shared messages; empty if none are shared.
fn shared_table(new: &NewFile) -> Vec<u8> {
    if new.shared_messages == 0 {
        return Vec::new();
    }
    let (list_max, btree_min) = SHARED_LIST;
    let index = IndexHeader {
        index_type: 0,
        message_types: new.shared_messages,
        min_message_size: SHARED_BYTES_MIN,
        list_max,
        btree_min,
        messages: 0,
        index: Address::UNDEF,
        heap: Address::UNDEF,
    };
    shared_message::encode_table(&[index], &CTX)
}

/// The superblock extension of `new`, whose table of shared messages is at `table`. Empty if it
/// needs none.
fn extension(new: &NewFile, table: Address) -> Result<Vec<u8>> {
    let constant = flag::CONSTANT | flag::DONT_SHARE;
    let message = |kind, flags, body| Message { kind, flags, creation_index: None, body };
    let mut messages = Vec::new();
    if tree_k(new) != BTreeK::default() {
        messages.push(message(kind::BTREE_K, constant, tree_k(new).encode(&CTX)?));
    }
    if let Some(space) = file_space(new) {
        messages.push(message(kind::FILE_SPACE_INFO, flag::DONT_SHARE | flag::MARK_IF_UNKNOWN, space.encode(&CTX)));
    }
    if new.shared_messages != 0 {
        messages.push(message(kind::SHARED_MESSAGE_TABLE, constant, SharedMessageTable { table, indexes: 1 }.encode(&CTX)));
    }
    if messages.is_empty() { Ok(Vec::new()) } else { header(0, None, messages) }
}

/// Superblock 3; times are `now`.
fn newer(new: &NewFile, now: u32) -> Result<Vec<u8>> {
    let mut superblock = Superblock {
        version: 3,
        ctx: CTX,
        flags: 0,
        base: Address(new.user_block),
        eof: Address(0),
        extension: Address::UNDEF,
        root: Address(0),
        legacy: None,
    };
    let start = superblock.encode()?.len() as u64;
    let (table, root) = (shared_table(new), root_header(now)?);
    // Its length does not depend on the address of the table.
    let table_at = start.saturating_add(extension(new, Address(0))?.len() as u64);
    let extension = extension(new, Address(table_at))?;
    if !extension.is_empty() {
        superblock.extension = Address(start);
    }
    let root_at = table_at.saturating_add(table.len() as u64);
    superblock.root = Address(root_at);
    let used = root_at.saturating_add(root.len() as u64);
    let rest = file_space(new).and_then(|space| space.pages()).map(|page| rest_of_page(used..used.next_multiple_of(page)));
    let rest = rest.unwrap_or_default();
    superblock.eof = Address(new.user_block.saturating_add(used).saturating_add(rest.len() as u64));
    Ok([superblock.encode()?, extension, table, root, rest].concat())
}

/// The bytes of the page after the root group: a free list, in which h5dir finds that it is free.
fn rest_of_page(rest: Range<u64>) -> Vec<u8> {
    let len = rest.end.saturating_sub(rest.start);
    let part = |end: u64| {
        let range = rest.start..end;
        FreeRanges { parts: [Vec::from([range]), Vec::new()], ..FreeRanges::default() }
    };
    let list_len = free_list::encoded_len(&part(rest.end));
    let zeros = |len: u64| vec![0; usize::try_from(len).unwrap_or_default()];
    let Some(before) = len.checked_sub(list_len).filter(|before| *before > 0) else { return zeros(len) };
    let at = rest.start.saturating_add(before);
    [zeros(before), free_list::encode(&part(at), Address(at), list_len)].concat()
}

/// The root group's header of version 1, with the message `table`.
fn old_header(table: &SymbolTable) -> Result<Vec<u8>> {
    let body = table.encode(&CTX)?;
    let mut prefix =
        Prefix { version: 1, flags: 0, reference_count: 1, message_count: 1, times: None, phase_change: None, chunk0_size: 0, len: 0 };
    let message = Message { kind: kind::SYMBOL_TABLE, flags: 0, creation_index: None, body };
    let messages = prefix.encode_messages(&Chunk { messages: vec![message], gap: Vec::new() })?;
    prefix.chunk0_size = messages.len() as u64;
    Ok([prefix.encode(), messages].concat())
}

/// Superblock 0, or 1 if it has to state the K of chunk B-trees.
fn old_superblock(new: &NewFile, root: u64, tree: u64, heap: u64, end: u64) -> Result<Vec<u8>> {
    let mut scratch = Writer::new();
    scratch.u64(tree).u64(heap);
    let scratch = scratch.into_bytes().try_into().unwrap_or_default();
    let root = RootEntry { name_offset: 0, header: Address(root), cache_type: 1, reserved: 0, scratch };
    let k = tree_k(new);
    let version = u8::from(k.chunk_internal != BTreeK::default().chunk_internal);
    let legacy = Legacy {
        free_space_version: 0,
        root_entry_version: 0,
        shared_header_version: 0,
        group_leaf_k: k.group_leaf,
        group_internal_k: k.group_internal,
        chunk_internal_k: k.chunk_internal,
        free_space: Address::UNDEF,
        driver_info: Address::UNDEF,
        root: root.clone(),
    };
    Superblock {
        version,
        ctx: CTX,
        flags: 0,
        base: Address(new.user_block),
        eof: Address(new.user_block.saturating_add(end)),
        extension: Address::UNDEF,
        root: root.header,
        legacy: Some(legacy),
    }
    .encode()
}

/// Superblock 0 or 1.
fn oldest(new: &NewFile) -> Result<Vec<u8>> {
    let node = {
        let mut w = Writer::new();
        w.bytes(b"TREE").u8(0).u8(0).u16(0).addr(Address::UNDEF, &CTX).addr(Address::UNDEF, &CTX);
        // 2K + 1 keys and 2K children.
        w.zeros(usize::from(tree_k(new).group_internal).saturating_mul(4).saturating_add(1).saturating_mul(8));
        w.into_bytes()
    };
    let unknown = SymbolTable { btree: Address(0), heap: Address(0) };
    let root = old_superblock(new, 0, 0, 0, 0)?.len() as u64;
    // Object headers of version 1 begin at multiples of 8.
    let root = root.next_multiple_of(8);
    let tree = root.saturating_add(old_header(&unknown)?.len() as u64);
    let heap = tree.saturating_add(node.len() as u64);
    let names = heap.saturating_add(32);
    let mut w = Writer::new();
    w.bytes(&old_superblock(new, root, tree, heap, names.saturating_add(HEAP))?);
    w.zeros(usize::try_from(root).unwrap_or_default().saturating_sub(w.position()));
    w.bytes(&old_header(&SymbolTable { btree: Address(tree), heap: Address(heap) })?).bytes(&node);
    // One free block after the empty name; 1 ends the list.
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
        create(&dir.path().join("v110.h5"), &NewFile::of_version(false)).unwrap();
        create(&dir.path().join("earliest.h5"), &NewFile::of_version(true)).unwrap();
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
        assert_eq!(
            create(file.path(), &NewFile::default()),
            Err(Error::Io { operation: "create", address: Address(0), errno: libc::EEXIST })
        );
    }
}
