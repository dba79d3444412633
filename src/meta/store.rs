//! Reads a container by address: base address, end of file, cache image overlay, metadata cache.
//!
//! Every read is bounded by the file's real length before memory is allocated, so that a hostile
//! length field costs nothing.

use super::cache::{Loaded, MetadataCache};
use super::dependencies::Reads;
use crate::base::limits::{self, IO_PIECE_BYTES};
use crate::base::{Address, Error, Result};
use crate::file::{FileDriver, transaction::Transaction};
use crate::format::{
    Context,
    superblock::{SIGNATURE, SIZE_MAX, Superblock},
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Budget of the decoded metadata cache, bytes.
pub const METADATA_CACHE_BYTES: usize = 16 << 20;

/// Added to the bytes a file holds by [`Store::room`].
const ROOM_EXTRA_BYTES: u64 = 4 << 20;

/// Most structures announced by one call.
const EXPECTED_MAX: usize = 1 << 18;

/// Reverses a filter pipeline: (encoded pipeline message, stored bytes, filter mask, expected and
/// maximum length) to unfiltered bytes.
pub type Unfilter = dyn Fn(&[u8], Vec<u8>, u32, usize) -> Result<Vec<u8>> + Send + Sync;

/// The superblock of `driver` and its offset; `None` = there is no signature at 0, 512, 1024, ...
pub fn find_superblock(driver: &dyn FileDriver) -> Result<Option<(Superblock, u64)>> {
    let len = driver.status().map_err(|e| Error::io("stat", Address(0), &e))?.len;
    let mut offset = 0u64;
    loop {
        let mut buf = [0u8; SIZE_MAX];
        let n = driver.read_at(&mut buf, offset).map_err(|e| Error::io("read", Address(offset), &e))?;
        let head = buf.get(..n).unwrap_or_default();
        if head.starts_with(&SIGNATURE) {
            return Ok(Some((Superblock::decode(head, Address(offset))?, offset)));
        }
        offset = if offset == 0 { 512 } else { offset.saturating_mul(2) };
        if offset >= len {
            return Ok(None);
        }
    }
}

/// One HDF5 file, read by address; writable ones have a transaction.
pub struct Store {
    pub(super) driver: Arc<dyn FileDriver>,
    pub(super) superblock: Superblock,
    /// Absolute offset of address 0, where the superblock was found.
    pub(super) base: u64,
    recorded_base: u64,
    /// Metadata cache image entries by address: newer than the bytes in the file.
    overlay: Arc<BTreeMap<u64, Arc<[u8]>>>,
    /// Longest overlay entry, bytes.
    overlay_longest: u64,
    /// True while the overlay is used; false once its entries are written to the file.
    overlay_in_use: Arc<AtomicBool>,
    pub(super) cache: Arc<MetadataCache>,
    /// Decodes filtered heap blocks; supplied by a higher layer, which has the filters.
    unfilter: Option<Arc<Unfilter>>,
    /// Present only if the file is writable; it is also the driver then.
    pub(super) transaction: Option<Arc<Transaction>>,
    /// What the load of an entry reads, if the store is that of one.
    reads: Option<Reads>,
    /// Structures are read from the memory of the host alone.
    only_memory: bool,
    /// [`Store::in_memory`] of this one. Made when the store is shared, and does not change any
    /// more.
    in_memory: OnceLock<Box<Store>>,
}

impl Store {
    /// Opens a file read-only: finds and decodes the superblock of `driver`.
    pub fn open(driver: Arc<dyn FileDriver>) -> Result<Self> {
        let absent = || Error::corrupt("superblock", Address(0), "no HDF5 signature at 0, 512, 1024, ...: not an HDF5 file");
        let (superblock, offset) = find_superblock(&*driver)?.ok_or_else(absent)?;
        Self::with_superblock(driver, superblock, offset)
    }

    /// Reads `driver` by `superblock`, which is, or should be, at `base`, whatever base address it
    /// records.
    pub fn with_superblock(driver: Arc<dyn FileDriver>, superblock: Superblock, base: u64) -> Result<Self> {
        let c = superblock.ctx;
        if c.sizeof_addr > 8 || c.sizeof_size > 8 {
            return Err(Error::unsupported(
                "superblock",
                Address(base),
                format!("size of offsets {}, of lengths {}", c.sizeof_addr, c.sizeof_size),
            ));
        }
        let recorded_base = superblock.base.0;
        let (len, _) = driver.extent().map_err(|e| Error::io("stat", Address(0), &e))?;
        // The EOF of a marked superblock is no place.
        let superblock = if superblock.is_marked(len) { superblock } else { superblock.moved_to(base) };
        Ok(Store {
            driver,
            superblock,
            base,
            recorded_base,
            overlay: Arc::default(),
            overlay_longest: 0,
            overlay_in_use: Arc::new(AtomicBool::new(true)),
            cache: Arc::new(MetadataCache::new(METADATA_CACHE_BYTES)),
            unfilter: None,
            transaction: None,
            reads: None,
            only_memory: false,
            in_memory: OnceLock::new(),
        })
    }

    /// A store over `bytes` with 8-byte widths and no superblock: for tests of single structures.
    #[cfg(test)]
    pub fn over_bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        let superblock = Superblock {
            version: 3,
            ctx: Context::DEFAULT,
            flags: 0,
            base: Address(0),
            eof: Address(0),
            extension: Address::UNDEF,
            root: Address::UNDEF,
            legacy: None,
        };
        Store {
            driver: Arc::new(crate::file::memory::MemoryFile::new(bytes)),
            superblock,
            base: 0,
            recorded_base: 0,
            overlay: Arc::default(),
            overlay_longest: 0,
            overlay_in_use: Arc::new(AtomicBool::new(true)),
            cache: Arc::new(MetadataCache::new(METADATA_CACHE_BYTES)),
            unfilter: None,
            transaction: None,
            reads: None,
            only_memory: false,
            in_memory: OnceLock::new(),
        }
    }

    /// Limits the cache of decoded metadata to `bytes` bytes.
    pub fn limit_cache(&self, bytes: usize) {
        self.cache.limit(bytes);
    }

    /// Sets the metadata cache image entries (address to bytes).
    pub fn set_overlay(&mut self, overlay: BTreeMap<u64, Arc<[u8]>>) {
        self.overlay_longest = overlay.values().map(|b| b.len() as u64).max().unwrap_or(0);
        self.overlay = Arc::new(overlay);
        self.cache.clear();
    }

    /// Metadata cache image entries, by address.
    pub fn image(&self) -> impl Iterator<Item = (u64, &Arc<[u8]>)> {
        self.overlay.iter().map(|(at, bytes)| (*at, bytes))
    }

    /// Enables or disables the metadata cache image; disabled, reads see the bytes in the file.
    pub fn set_image(&self, enabled: bool) {
        self.overlay_in_use.store(enabled, Ordering::Release);
        self.cache.clear();
    }

    /// Sets the decoder of filtered metadata.
    pub fn set_unfilter(&mut self, unfilter: Arc<Unfilter>) {
        self.unfilter = Some(unfilter);
    }

    /// The decoder of filtered metadata, if set.
    pub fn unfilter(&self) -> Option<&Arc<Unfilter>> {
        self.unfilter.as_ref()
    }

    /// Sizes of addresses and lengths.
    pub fn ctx(&self) -> &Context {
        &self.superblock.ctx
    }

    /// The superblock as decoded, moved to its place, or as extended over bytes past the recorded
    /// EOF.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Absolute file offset of address 0 (size of the user block).
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Base address that the superblock recorded when the file was opened. It differs from
    /// [`Store::base`] after a program without libhdf5 changed the size of the user block.
    pub fn recorded_base(&self) -> u64 {
        self.recorded_base
    }

    /// The backing file.
    pub fn driver(&self) -> &Arc<dyn FileDriver> {
        &self.driver
    }

    /// Length of the backing file from address 0 on, bytes.
    pub fn file_len(&self) -> Result<u64> {
        let (len, _) = self.driver.extent().map_err(|e| Error::io("stat", Address(0), &e))?;
        Ok(len.saturating_sub(self.base))
    }

    /// Upper bound on the bytes of structures in the file: [`Store::held`] plus 4 MiB. Bounds tree
    /// walks.
    pub fn room(&self) -> Result<u64> {
        Ok(self.held()?.saturating_add(ROOM_EXTRA_BYTES).min(self.file_len()?))
    }

    /// Bytes that the file holds: its length, or 16 times its allocated size if that is less.
    ///
    /// Holes do not count; the factor allows for file systems that compress.
    pub fn held(&self) -> Result<u64> {
        let (len, allocated) = self.driver.extent().map_err(|e| Error::io("stat", Address(0), &e))?;
        // Some file systems report no allocated size: use the length.
        let allocated = if allocated == 0 { len } else { allocated };
        Ok(len.min(allocated.saturating_mul(16)))
    }

    /// Absolute file offset of `address`.
    pub fn offset(&self, address: Address, structure: &'static str) -> Result<u64> {
        let a = address.defined().and_then(|a| a.checked_add(self.base));
        a.ok_or_else(|| Error::corrupt(structure, address, "the address is undefined or beyond 2^64"))
    }

    /// Announces structures of at most `len` bytes each, which are likely to be read soon. Does
    /// nothing for files of the host.
    pub fn announce(&self, addresses: impl Iterator<Item = Address>, len: u64) {
        if self.driver.is_remote() {
            let starts = addresses.filter_map(|address| address.defined()?.checked_add(self.base));
            let ranges: Vec<_> = starts.take(EXPECTED_MAX).map(|start| start..start.saturating_add(len)).collect();
            if ranges.len() > 1 {
                self.driver.announce(&ranges);
            }
        }
    }

    /// Reads exactly `len` bytes of metadata at `address`.
    pub fn read(&self, address: Address, len: u64, structure: &'static str) -> Result<Vec<u8>> {
        let b = self.read_upto(address, len, structure)?;
        if b.len() as u64 == len { Ok(b) } else { Err(Error::past_end(structure, address, len, b.len() as u64)) }
    }

    /// Reads up to `len` bytes of metadata at `address`; fewer only at the end of the file.
    pub fn read_upto(&self, address: Address, len: u64, structure: &'static str) -> Result<Vec<u8>> {
        let offset = self.offset(address, structure)?;
        self.note_read(address, len);
        if len > limits::METADATA_BLOCK_MAX {
            return Err(Error::limit(structure, address, format!("{len} bytes of metadata in one block")));
        }
        // Small reads rely on `pread` to report EOF; large ones check the length first, so that a
        // hostile length allocates nothing.
        let len = if len > 1 << 16 { len.min(self.file_len()?.saturating_sub(address.0)) } else { len };
        let mut buf = vec![0u8; usize::try_from(len).map_err(|_| Error::limit(structure, address, "block size"))?];
        let mut n = self.read_driver(address, &mut buf, offset)?;
        if !self.overlay.is_empty() && self.overlay_in_use.load(Ordering::Acquire) {
            n = n.max(self.patch(address.0, &mut buf));
        }
        buf.truncate(n);
        Ok(buf)
    }

    /// Copies cache image entries over `buf`; returns the offset after the last byte copied.
    fn patch(&self, address: u64, buf: &mut [u8]) -> usize {
        let end = address.saturating_add(buf.len() as u64);
        let mut reach = 0;
        // Entries of a hostile image may overlap: check every entry long enough to reach `address`.
        let first = address.saturating_sub(self.overlay_longest);
        for (&at, bytes) in self.overlay.range(first..end.max(first)).rev() {
            let stop = at.saturating_add(bytes.len() as u64);
            if stop <= address {
                continue;
            }
            let from = at.max(address);
            let to = stop.min(end);
            let source = bytes.get((from.saturating_sub(at)) as usize..(to.saturating_sub(at)) as usize);
            let target = buf.get_mut((from.saturating_sub(address)) as usize..(to.saturating_sub(address)) as usize);
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
                reach = reach.max(to.saturating_sub(address) as usize);
            }
        }
        reach
    }

    /// Fills `buf` with raw data at `address`; a read past EOF is an error.
    pub fn read_raw(&self, address: Address, buf: &mut [u8]) -> Result<()> {
        let offset = self.offset(address, "raw data")?;
        self.note_read(address, buf.len() as u64);
        let n = self.driver.read_at(buf, offset).map_err(|e| Error::io("read", address, &e))?;
        if n == buf.len() { Ok(()) } else { Err(Error::past_end("raw data", address, buf.len() as u64, n as u64)) }
    }

    /// [`Store::read_raw`] of bytes that the memory of the host has. False: a disk must be read,
    /// and `buf` is undefined.
    pub fn read_raw_in_memory(&self, address: Address, buf: &mut [u8]) -> Result<bool> {
        let offset = self.offset(address, "raw data")?;
        self.note_read(address, buf.len() as u64);
        let n = self.driver.read_in_memory(buf, offset).map_err(|e| Error::io("read", address, &e))?;
        Ok(n == buf.len())
    }

    /// Has the host read `len` bytes into its memory. A read that follows finds errors.
    pub fn warm(&self, address: Address, len: usize) {
        let Ok(offset) = self.offset(address, "bytes") else { return };
        let mut piece = vec![0; len.min(IO_PIECE_BYTES)];
        let mut done = 0usize;
        while let Some(part) = piece.get_mut(..len.saturating_sub(done).min(IO_PIECE_BYTES)).filter(|part| !part.is_empty()) {
            match self.driver.read_at(part, offset.saturating_add(done as u64)) {
                Ok(n) if n > 0 => done = done.saturating_add(n),
                _ => return,
            }
        }
    }

    fn note_read(&self, address: Address, len: u64) {
        if let Some(reads) = &self.reads {
            reads.add(address.0..address.0.saturating_add(len));
        }
    }

    /// Returns the decoded entry of type `T` at `address`; loads it (value, bytes to charge) if not
    /// cached. `load` must read the file by the store that it gets: a write to these bytes
    /// invalidates the entry.
    pub fn cached<T: Send + Sync + 'static>(&self, address: Address, load: impl FnOnce(&Store) -> Result<(T, usize)>) -> Result<Arc<T>> {
        self.cache.get_or_load(address, self.reads.as_ref(), || self.load(load))
    }

    /// Runs `load` with a store that records what it reads, which counts as read by this one, too.
    fn load<T>(&self, load: impl FnOnce(&Store) -> Result<(T, usize)>) -> Loaded<T> {
        if !self.cache.tracks_sources() {
            return (load(self), None);
        }
        let store = self.recording();
        let loaded = load(&store);
        let sources = store.reads.unwrap_or_default().into_sources();
        if let Some(reads) = &self.reads {
            reads.add_sources(&sources);
        }
        (loaded, Some(sources))
    }

    /// This store for one load.
    fn recording(&self) -> Store {
        Store {
            driver: self.driver.clone(),
            superblock: self.superblock.clone(),
            base: self.base,
            recorded_base: self.recorded_base,
            overlay: self.overlay.clone(),
            overlay_longest: self.overlay_longest,
            overlay_in_use: self.overlay_in_use.clone(),
            cache: self.cache.clone(),
            unfilter: self.unfilter.clone(),
            transaction: self.transaction.clone(),
            reads: Some(Reads::default()),
            only_memory: self.only_memory,
            in_memory: OnceLock::new(),
        }
    }

    /// This store for readers that do not wait for a disk: where only a disk has a structure, they
    /// get [`Error::OnDisk`], release their locks, and call [`Store::warm`].
    pub fn in_memory(&self) -> &Store {
        self.in_memory.get_or_init(|| Box::new(Store { reads: None, only_memory: true, ..self.recording() }))
    }

    /// Fills the front of `buf` with metadata from `offset`.
    fn read_driver(&self, address: Address, buf: &mut [u8], offset: u64) -> Result<usize> {
        let failed = |e: std::io::Error| Error::io("read", address, &e);
        if !self.only_memory {
            return self.driver.read_at(buf, offset).map_err(failed);
        }
        // What is past the end is on no disk.
        let there = usize::try_from(self.file_len()?.saturating_sub(address.0)).unwrap_or(usize::MAX).min(buf.len());
        let part = buf.get_mut(..there).unwrap_or_default();
        let n = self.driver.read_in_memory(part, offset).map_err(failed)?;
        if n < there { Err(Error::OnDisk { address, len: there }) } else { Ok(n) }
    }

    /// Caches an entry of type `T` decoded from `extents` (address, bytes), which the caller has
    /// just written.
    pub fn keep<T: Send + Sync + 'static>(&self, address: Address, value: T, charge: usize, extents: &[(Address, u64)]) {
        let ranges: Vec<_> = extents.iter().map(|(at, len)| at.0..at.0.saturating_add(*len)).collect();
        self.cache.keep(address, value, charge, &ranges);
    }

    /// Removes and returns the cached entry of type `T` at `address`, if the cache holds the only
    /// reference.
    pub fn take<T: Send + Sync + 'static>(&self, address: Address) -> Option<T> {
        self.cache.take(address)
    }

    /// Like [`Store::cached`], but the entry starts on probation: for entries most of which are
    /// used once.
    pub fn cached_on_probation<T: Send + Sync + 'static>(
        &self,
        address: Address,
        load: impl FnOnce(&Store) -> Result<(T, usize)>,
    ) -> Result<Arc<T>> {
        self.cache.get_or_load_on_probation(address, self.reads.as_ref(), || self.load(load))
    }

    /// Drops every cached entry.
    pub fn forget(&self) {
        self.cache.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Error;
    use std::cell::Cell;

    fn tracking() -> Store {
        Store { cache: Arc::new(MetadataCache::tracking(1 << 20)), ..Store::over_bytes(vec![0u8; 4096]) }
    }

    /// Reads 8 bytes at `at`.
    fn read(store: &Store, at: u64) {
        store.read(Address(at), 8, "test").unwrap();
    }

    #[test]
    fn an_entry_depends_on_what_the_entries_that_it_uses_were_decoded_from() {
        let (store, loads) = (tracking(), Cell::new((0, 0)));
        let inner = |store: &Store| {
            store.cached(Address(100), |store| {
                loads.set((loads.get().0 + 1, loads.get().1));
                // A thread that works for the load.
                std::thread::scope(|scope| scope.spawn(|| read(store, 200)).join()).unwrap();
                Ok((1u8, 1))
            })
        };
        let outer = || {
            store.cached(Address(0), |store| {
                loads.set((loads.get().0, loads.get().1 + 1));
                read(store, 8);
                inner(store)?;
                Ok((1u16, 1))
            })
        };
        let loaded = |want: (u32, u32)| {
            outer().unwrap();
            assert_eq!(loads.replace((0, 0)), want);
        };
        loaded((1, 1));
        loaded((0, 0));
        store.cache.invalidate(&(16..200), false);
        loaded((0, 0));
        // A read of the outer entry: the inner one stays, and the outer one depends on it again.
        store.cache.invalidate(&(10..11), false);
        loaded((0, 1));
        store.cache.invalidate(&(207..300), false);
        loaded((1, 1));
        inner(&store).unwrap();
        assert_eq!(loads.get(), (0, 0));
    }

    #[test]
    fn an_entry_depends_on_what_a_failed_load_read() {
        let store = tracking();
        let outer = |value: u8| {
            *store
                .cached(Address(0), |store| {
                    let failed = store.cached(Address(100), |store| {
                        read(store, 200);
                        Err::<(u16, usize), _>(Error::corrupt("test", Address(200), "damaged"))
                    });
                    assert!(failed.is_err());
                    Ok((value, 1))
                })
                .unwrap()
        };
        assert_eq!((outer(1), outer(2)), (1, 1));
        store.cache.invalidate(&(200..201), false);
        assert_eq!(outer(3), 3);
    }
}
