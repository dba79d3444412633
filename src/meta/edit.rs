//! Writes, allocates and frees bytes of a container by address; every writer of structures uses it.
//!
//! All readers see a change at once. [`Store::commit`] makes it durable together with all earlier
//! changes. The calls of one operation must not be interleaved with those of another one or with a
//! commit: the connector holds its lock around them.

use super::Store;
use super::level::Level;
use crate::base::free_ranges::FreeRanges;
use crate::base::{Address, Error, Result};
use crate::file::commit::Root;
use crate::file::space::{Pages, Pool};
use crate::file::transaction::Transaction;
use crate::format::superblock::{IN_USE, SWMR_WRITER, Superblock};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Raw data of at least this many bytes starts at a multiple of `RAW_ALIGN`, unless the file has
/// pages.
const RAW_ALIGNED: u64 = 4096;
const RAW_ALIGN: u64 = 4096;
/// Bytes that a disk writes atomically. Metadata of up to this size does not cross a sector
/// boundary, so that one sector write publishes it.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Purpose of allocated space; selects the free list of a paged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpaceKind {
    /// Object headers, B-tree nodes, heaps.
    Metadata,
    /// Raw data of datasets.
    Raw,
    /// Global heap collections: metadata that paged files keep in raw data pages.
    GlobalHeap,
}

impl SpaceKind {
    fn pool(self) -> Pool {
        match self {
            SpaceKind::Metadata => Pool::Metadata,
            SpaceKind::Raw | SpaceKind::GlobalHeap => Pool::Raw,
        }
    }
}

/// Scope guard of one operation: rolls it back on drop unless `done`, also when it panics.
struct OperationGuard<'a> {
    store: &'a Store,
    transaction: &'a Transaction,
    done: bool,
}

impl Drop for OperationGuard<'_> {
    fn drop(&mut self) {
        self.transaction.finish(self.done);
        if !self.done {
            self.store.forget();
        }
    }
}

pub(super) fn failed(operation: &'static str, address: Address) -> impl Fn(io::Error) -> Error {
    move |e| Error::io(operation, address, &e)
}

/// The error of a commit; `ESTALE` if the file was deleted or replaced.
fn uncommitted(operation: &'static str, base: u64) -> impl Fn(io::Error) -> Error {
    move |e| match e.raw_os_error() {
        Some(libc::ESTALE) => Error::refused(libc::ESTALE, "the HDF5 file was deleted or replaced"),
        _ => failed(operation, Address(base))(e),
    }
}

/// Most bytes that raw data of `len` bytes takes in a file without pages.
pub fn most_allocated(len: u64) -> u64 {
    let align = if len >= RAW_ALIGNED { RAW_ALIGN } else { 8 };
    len.checked_next_multiple_of(align).unwrap_or(u64::MAX)
}

impl Store {
    /// True when the file is open for writing and its transaction has not failed.
    pub fn is_writable(&self) -> bool {
        self.transaction.as_ref().is_some_and(|t| !t.has_failed())
    }

    /// The file's transaction. Errors: `EROFS` when the file was opened read-only.
    pub fn transaction(&self) -> Result<&Arc<Transaction>> {
        let read_only = || Error::Io { operation: "write", address: Address::UNDEF, errno: libc::EROFS };
        self.transaction.as_ref().ok_or_else(read_only)
    }

    /// Allocates `len` bytes with undefined content.
    pub fn allocate(&self, len: u64, kind: SpaceKind) -> Result<Address> {
        self.allocate_known(len, kind).map(|(address, _)| address)
    }

    /// Allocates `len` bytes; the flag is true when they read as zeros.
    pub fn allocate_known(&self, len: u64, kind: SpaceKind) -> Result<(Address, bool)> {
        let transaction = self.transaction()?;
        let align = match kind {
            SpaceKind::Raw if len >= RAW_ALIGNED && transaction.pages().is_none() => RAW_ALIGN,
            SpaceKind::Raw => 8,
            // The next power of two: a block of up to a sector never crosses a sector boundary.
            _ if len <= SECTOR_BYTES => len.next_power_of_two().max(8),
            _ => 8,
        };
        let (at, zeros) = transaction.allocate(len.max(1), align, kind.pool()).map_err(failed("allocate", Address::UNDEF))?;
        let address = at.checked_sub(self.base).ok_or_else(|| Error::limit("allocation", Address::UNDEF, "below the base address"))?;
        let widest = self.ctx().sizeof_addr;
        // The recorded EOF counts the user block.
        if widest < 8 && at.saturating_add(len) >> (u32::from(widest) * 8) != 0 {
            transaction.free(at..at.saturating_add(len.max(1)), kind.pool());
            return Err(Error::Io { operation: "allocate", address: Address(address), errno: libc::EFBIG });
        }
        Ok((Address(address), zeros))
    }

    /// Parts of the `len` bytes at `address` that may be nonzero, as ranges relative to `address`.
    pub fn written_in(&self, address: Address, len: u64) -> Result<Vec<Range<u64>>> {
        let start = address.0.saturating_add(self.base);
        let parts = self.transaction()?.written_in(start..start.saturating_add(len));
        Ok(parts.into_iter().map(|r| r.start.saturating_sub(start)..r.end.saturating_sub(start)).collect())
    }

    /// Rejects a change to the superblock's bytes, as a pointer in a damaged file may request.
    fn reject_superblock(&self, start: u64, address: Address) -> Result<()> {
        if start < self.base.saturating_add(self.superblock.size()) {
            return Err(Error::corrupt("address", address, "lies within the superblock"));
        }
        Ok(())
    }

    /// Rejects a write past the allocated end, as a damaged file may request: the commit would
    /// fail.
    fn reject_unallocated(&self, start: u64, len: usize, address: Address) -> Result<()> {
        let end = start.checked_add(len as u64).filter(|end| self.transaction.as_ref().is_none_or(|t| *end <= t.end()));
        end.map(drop).ok_or_else(|| Error::corrupt("address", address, "lies past the end of the file"))
    }

    /// Frees a metadata block of `len` bytes at `address`.
    pub fn free(&self, address: Address, len: u64) -> Result<()> {
        self.free_kind(address, len, SpaceKind::Metadata)
    }

    /// Frees a block that was allocated as `kind`.
    pub fn free_kind(&self, address: Address, len: u64, kind: SpaceKind) -> Result<()> {
        let start = self.offset(address, "free space")?;
        let end = start.checked_add(len.max(1)).ok_or_else(|| Error::corrupt("free space", address, "ends beyond 2^64"))?;
        self.reject_superblock(start, address)?;
        let root = self.superblock.root;
        if root.is_defined() && (address.0..address.0.saturating_add(len)).contains(&root.0) {
            return Err(Error::corrupt("free space", address, "holds the root group's header"));
        }
        self.transaction()?.free(start..end, kind.pool());
        Ok(())
    }

    /// Makes the space of `list` free. Parts of pages need a file with pages, else they are lost.
    pub fn add_free(&self, list: &FreeRanges) -> Result<()> {
        let transaction = self.transaction()?;
        let add = |range: &Range<u64>, pool| {
            let (start, end) = (self.offset(Address(range.start), "free space")?, self.offset(Address(range.end), "free space")?);
            transaction.add_free(start..end, pool);
            Ok(())
        };
        list.whole.iter().try_for_each(|range| add(range, None))?;
        let [metadata, raw] = &list.parts;
        if transaction.pages().is_none() {
            return Ok(());
        }
        metadata.iter().try_for_each(|range| add(range, Some(Pool::Metadata)))?;
        raw.iter().try_for_each(|range| add(range, Some(Pool::Raw)))
    }

    /// All space that is free now.
    pub fn free_list(&self) -> Result<FreeRanges> {
        Ok(self.transaction()?.free_space().relative_to(self.base))
    }

    /// Ends the record of free space of the session, which leaves a list instead.
    pub fn end_free_record(&self) -> Result<()> {
        self.transaction()?.end_free_record();
        Ok(())
    }

    /// Allocates at least `len` bytes past all that is in use; returns their address and number.
    pub fn append(&self, len: u64) -> Result<(Address, u64)> {
        let range = self.transaction()?.append(len).map_err(failed("allocate", Address::UNDEF))?;
        Ok((Address(range.start.saturating_sub(self.base)), range.end.saturating_sub(range.start)))
    }

    /// End of allocated space.
    pub fn end(&self) -> Result<Address> {
        Ok(Address(self.transaction()?.end().saturating_sub(self.base)))
    }

    /// Shrinks a metadata block at `address` from `old` to `new` bytes and frees the rest.
    pub fn free_tail(&self, address: Address, old: u64, new: u64) -> Result<()> {
        let mut from = new;
        if let Some(pages) = self.transaction()?.pages()
            && old >= pages.size
        {
            // A block of a page or more occupies whole pages: only pages after its last one are
            // free.
            from = new.checked_next_multiple_of(pages.size).unwrap_or(old);
        }
        let tail = address.checked_add(from).ok_or_else(|| Error::corrupt("free space", address, "ends beyond 2^64"))?;
        if from < old { self.free(tail, old.saturating_sub(from)) } else { Ok(()) }
    }

    /// Sets the page size of a file with paged allocation, bytes. Call before the first allocation.
    pub fn set_pages(&self, size: u64) -> Result<()> {
        self.transaction()?.set_pages(Pages { size, origin: self.base });
        Ok(())
    }

    /// Writes metadata and invalidates the cache entries decoded from these bytes. Error: `EPERM`
    /// for a SWMR writer, unless the bytes are new.
    pub fn write(&self, address: Address, bytes: &[u8]) -> Result<()> {
        self.write_structure(address, bytes, None)
    }

    /// [`Store::write`] of a whole structure, which a SWMR writer may replace.
    pub fn write_at_level(&self, address: Address, bytes: &[u8], level: Level) -> Result<()> {
        self.write_structure(address, bytes, Some(level))
    }

    fn write_structure(&self, address: Address, bytes: &[u8], level: Option<Level>) -> Result<()> {
        let offset = self.offset(address, "write")?;
        let transaction = self.transaction()?;
        self.reject_superblock(offset, address)?;
        self.reject_unallocated(offset, bytes.len(), address)?;
        let written = transaction.write_at_level(offset, bytes, level.map(Level::rank)).map_err(failed("write", address));
        self.cache.invalidate(&(address.0..address.0.saturating_add(bytes.len() as u64)), false);
        written
    }

    /// Runs `f` as one operation: rolls all its changes back if it fails.
    pub fn atomically<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut attempt = OperationGuard { store: self, transaction: self.transaction()?, done: false };
        attempt.transaction.begin();
        let result = f();
        attempt.done = result.is_ok();
        result
    }

    /// Writes raw data; a rollback does not undo it.
    pub fn write_raw(&self, address: Address, bytes: &[u8]) -> Result<()> {
        self.write_raw_by(address, bytes, Transaction::write_data)
    }

    /// [`Store::write_raw`], of bytes for which `Transaction::promise_journal` found storage.
    pub fn write_promised(&self, address: Address, bytes: &[u8]) -> Result<()> {
        self.write_raw_by(address, bytes, Transaction::write_promised)
    }

    fn write_raw_by(&self, address: Address, bytes: &[u8], write: fn(&Transaction, u64, &[u8]) -> io::Result<()>) -> Result<()> {
        let offset = self.offset(address, "write")?;
        let transaction = self.transaction()?;
        self.reject_superblock(offset, address)?;
        self.reject_unallocated(offset, bytes.len(), address)?;
        let written = write(transaction, offset, bytes).map_err(failed("write", address));
        self.cache.invalidate(&(address.0..address.0.saturating_add(bytes.len() as u64)), true);
        written
    }

    /// Writes raw data to allocated bytes whose content no durable structure uses.
    pub fn write_unused(&self, address: Address, bytes: &[u8]) -> Result<()> {
        let offset = self.offset(address, "write")?;
        self.transaction()?.renew(offset..offset.saturating_add(bytes.len() as u64));
        self.write_raw(address, bytes)
    }

    /// Reserves storage of the disk for `len` bytes of unused space, which later writes need.
    pub fn reserve_storage(&self, address: Address, len: u64) -> Result<()> {
        let offset = self.offset(address, "reserve")?;
        self.transaction()?.reserve_storage(offset..offset.saturating_add(len)).map_err(failed("reserve", address))
    }

    /// Allocates space for `bytes` and writes them to it.
    pub fn put(&self, bytes: &[u8], kind: SpaceKind) -> Result<Address> {
        let address = self.allocate(bytes.len() as u64, kind)?;
        match kind {
            SpaceKind::Metadata | SpaceKind::GlobalHeap => self.write(address, bytes)?,
            SpaceKind::Raw => self.write_raw(address, bytes)?,
        }
        Ok(address)
    }

    /// Encodes the superblock for a commit with end of file `eof`: marked with `nonce`, and
    /// settled.
    fn root(&self, eof: u64, nonce: u64) -> io::Result<Root> {
        let encode = |s: Superblock| s.encode().map_err(|e| io::Error::other(e.to_string()));
        let mut settled = Superblock { eof: Address(eof), ..self.superblock.clone() };
        if settled.version == 2 {
            // Left by a writer that did not close the file; `before_first_write` has repaired the
            // file since.
            settled.flags &= !IN_USE;
        }
        if self.is_swmr_writer() {
            settled.flags |= SWMR_WRITER;
        }
        let marked = encode(settled.marked(nonce))?;
        let settled = encode(settled)?;
        Ok(Root { offset: self.base, extended: settled.clone(), marked, settled })
    }

    /// Makes this session a SWMR writer: flags the superblock, and commits in
    /// order. Called after a commit.
    pub fn begin_swmr(&self) -> Result<()> {
        let transaction = self.transaction()?;
        transaction.begin_order();
        transaction.publish_root(&|eof, nonce| self.root(eof, nonce)).map_err(failed("write", Address(self.base)))
    }

    /// Ends what [`Store::begin_swmr`] began. Called after a commit.
    pub fn end_swmr(&self) -> Result<()> {
        let transaction = self.transaction()?;
        if !transaction.end_order() {
            return Ok(());
        }
        transaction.publish_root(&|eof, nonce| self.root(eof, nonce)).map_err(failed("write", Address(self.base)))
    }

    /// True if this session is a SWMR writer.
    pub fn is_swmr_writer(&self) -> bool {
        self.transaction.as_ref().is_some_and(|t| t.is_ordered())
    }

    /// True if a SWMR reader may be reading some of the `len` bytes at `address`.
    pub fn is_published(&self, address: Address, len: u64) -> bool {
        let start = address.0.saturating_add(self.base);
        self.transaction.as_ref().is_some_and(|t| t.is_published(start..start.saturating_add(len)))
    }

    /// Makes all changes so far durable.
    pub fn commit(&self) -> Result<()> {
        let result = self.transaction()?.commit(&|eof, nonce| self.root(eof, nonce)).map_err(uncommitted("commit", self.base));
        if result.is_err() {
            self.forget();
        }
        result
    }

    /// Commits; returns the end of file that closing the file now would record.
    pub fn commit_end(&self) -> Result<Address> {
        self.commit()?;
        Ok(Address(self.transaction()?.trim().saturating_sub(self.base)))
    }

    /// Commits, then truncates unused space at the end of the file and removes the journal.
    pub fn close(&self) -> Result<()> {
        self.transaction()?.close(&|eof, nonce| self.root(eof, nonce)).map_err(uncommitted("close", self.base))
    }
}

#[cfg(test)]
pub mod testing {
    //! In-memory containers for tests of code that changes structures.

    use super::*;
    use crate::file::memory::{GrowingFile, MemoryJournal};

    /// A writable container with content `bytes`, and its file.
    pub fn writable(bytes: impl Into<Vec<u8>>) -> (Arc<Store>, Arc<GrowingFile>) {
        let file = Arc::new(GrowingFile::new(bytes));
        let store = Store::open_writable(file.clone(), Box::new(MemoryJournal::default())).unwrap();
        (Arc::new(store), file)
    }

    /// An empty file: a version 3 superblock, no root group. 8-byte widths.
    pub fn empty() -> (Arc<Store>, Arc<GrowingFile>) {
        let superblock = Superblock {
            version: 3,
            ctx: crate::format::Context::DEFAULT,
            flags: 0,
            base: Address(0),
            eof: Address(48),
            extension: Address::UNDEF,
            root: Address::UNDEF,
            legacy: None,
        };
        writable(superblock.encode().unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::testing::empty;
    use super::*;
    use crate::file::memory::{GrowingFile, MemoryJournal};
    use crate::format::superblock::{Legacy, RootEntry};

    #[test]
    fn changes_are_seen_at_once_and_durable_with_the_commit() {
        let (store, file) = empty();
        let a = store.put(&[7; 100], SpaceKind::Metadata).unwrap();
        assert_eq!(store.read(a, 100, "t").unwrap(), [7; 100]);
        store.commit().unwrap();
        store.write(a, &[8; 100]).unwrap();
        assert_eq!(store.read(a, 100, "t").unwrap(), [8; 100]);
        let at = a.0 as usize;
        assert_eq!(file.bytes()[at..at + 100], [7; 100], "live bytes wait for the commit");
        store.commit().unwrap();
        assert_eq!(file.bytes()[at..at + 100], [8; 100]);
        store.free(a, 100).unwrap();
        store.close().unwrap();
        assert_eq!(file.bytes().len(), 48, "the tail is truncated");
        assert_eq!(Store::open(file).unwrap().superblock().eof, Address(48));
    }

    #[test]
    fn writes_and_frees_of_invalid_ranges_are_rejected() {
        let (store, file) = empty();
        let a = store.put(&[7; 100], SpaceKind::Metadata).unwrap();
        store.commit().unwrap();
        // Past the allocated end: the commit would fail, and with it all other changes.
        let beyond = store.write_raw(Address(1 << 40), &[1; 10]);
        assert!(matches!(beyond, Err(Error::Corrupt { address: Address(0x100_0000_0000), .. })), "{beyond:?}");
        assert!(store.write(Address(a.0 + 95), &[1; 1000]).is_err());
        for address in [0, 47] {
            assert!(store.write(Address(address), &[1]).is_err() && store.write_raw(Address(address), &[1]).is_err());
            assert!(store.free(Address(address), 1000).is_err());
        }
        // Longer than the file: blocks that follow must survive.
        store.free(a, 1 << 50).unwrap();
        store.commit().unwrap();
        let b = store.put(&[9; 100], SpaceKind::Metadata).unwrap();
        store.close().unwrap();
        assert_eq!(Store::open(file).unwrap().read(b, 100, "t").unwrap(), [9; 100]);
    }

    #[test]
    fn an_end_of_file_that_cuts_the_root_group_is_refused() {
        let superblock = |eof| Superblock {
            version: 3,
            ctx: crate::format::Context::DEFAULT,
            flags: 0,
            base: Address(0),
            eof: Address(eof),
            extension: Address::UNDEF,
            root: Address(100),
            legacy: None,
        };
        for (eof, good) in [(40, false), (100, false), (115, false), (116, true), (600, true), (601, false)] {
            let mut bytes = superblock(eof).encode().unwrap();
            bytes.resize(600, 0);
            let opened = Store::open_writable(Arc::new(GrowingFile::new(bytes)), Box::new(MemoryJournal::default()));
            assert_eq!(opened.is_ok(), good, "{eof}");
            if let Ok(store) = opened {
                assert!(store.free(Address(90), 50).is_err(), "the root group's header is kept");
            }
        }
    }

    /// Regression: bytes that a killed writer had appended past the recorded EOF were freed.
    #[test]
    fn bytes_past_the_recorded_eof_are_kept_unless_ours() {
        let (store, file) = super::testing::empty();
        store.close().unwrap();
        let mut bytes = file.bytes();
        bytes.resize(5000, 7);
        let of_v2 = |flags| Superblock { version: 2, flags, ..store.superblock().clone() }.encode().unwrap();
        let v3 = bytes[..48].to_vec();
        let [none, empty] = [None, Some(Vec::new())];
        let cases = [
            (&v3, none.clone(), false),
            (&v3, empty.clone(), true),
            (&v3, Some(b"stopped early".to_vec()), true),
            (&of_v2(0), none, false),
            (&of_v2(0), empty.clone(), true),
            (&of_v2(1), empty, false),
        ];
        for (superblock, journal, ours) in cases {
            bytes[..48].copy_from_slice(superblock);
            let file = Arc::new(GrowingFile::new(bytes.clone()));
            let store = Store::open_writable(file.clone(), Box::new(MemoryJournal::new(journal))).unwrap();
            assert!(file.bytes() == bytes, "not before it is changed");
            let a = store.put(&[9; 100], SpaceKind::Metadata).unwrap();
            let recorded = Store::open(file.clone()).unwrap().superblock().eof;
            assert_eq!(recorded, Address(if ours { 48 } else { 5000 }), "durable with the first change");
            assert_eq!(a.0 < 5000, ours);
            store.commit().unwrap();
            store.free(a, 100).unwrap();
            store.close().unwrap();
            assert_eq!(file.bytes().len(), if ours { 48 } else { 5000 });
            assert!(ours || file.bytes()[48..].iter().all(|b| *b == 7));
            assert!(!Store::open(file).unwrap().superblock().is_unclosed());
        }
    }

    #[test]
    fn the_recorded_eof_is_not_extended_in_files_in_use_or_multi_file() {
        let plain = empty().0.superblock().clone();
        let root = RootEntry { name_offset: 0, header: Address(100), cache_type: 0, reserved: 0, scratch: [0; 16] };
        let legacy = |driver_info| Legacy {
            free_space_version: 0,
            root_entry_version: 0,
            shared_header_version: 0,
            group_leaf_k: 4,
            group_internal_k: 16,
            chunk_internal_k: 32,
            free_space: Address::UNDEF,
            driver_info,
            root: root.clone(),
        };
        let old = |driver_info| {
            let (eof, root) = (Address(200), Address(100));
            Superblock { version: 0, eof, root, legacy: Some(legacy(driver_info)), ..plain.clone() }
        };
        let in_use = |flags| Superblock { flags, ..plain.clone() };
        let narrow = Superblock { ctx: crate::format::Context { sizeof_addr: 2, sizeof_size: 2 }, ..plain.clone() };
        let cases = [
            (in_use(0), true),
            (in_use(1), false),
            (in_use(5), false),
            (old(Address::UNDEF), true),
            (old(Address(96)), false),
            (Superblock { flags: 5, ..old(Address::UNDEF) }, true),
            (narrow, false),
        ];
        for (superblock, extended) in cases {
            let mut bytes = superblock.encode().unwrap();
            bytes.resize(20_000, 0);
            let file = Arc::new(GrowingFile::new(bytes.clone()));
            let store = Store::open_writable(file.clone(), Box::new(MemoryJournal::default())).unwrap();
            assert!(file.bytes() == bytes);
            store.atomically(|| Ok(())).unwrap();
            assert_eq!(file.bytes() != bytes, extended, "{superblock:?}");
            let eof = if extended { Address(20_000) } else { superblock.eof };
            assert_eq!(Store::open(file).unwrap().superblock(), &Superblock { eof, ..superblock });
        }
    }

    #[test]
    fn a_file_opened_for_reading_is_not_changed() {
        let store = Store::over_bytes(vec![0; 100]);
        assert_eq!(store.write(Address(0), &[1]), Err(Error::Io { operation: "write", address: Address::UNDEF, errno: libc::EROFS }));
        assert!(!store.is_writable());
    }
}
