//! A container's bytes by address: base address, end of file, cache image overlay, decoded-entry cache.
//!
//! Every read is bounded by the file's real length before anything is allocated, so that a
//! length taken from a hostile file costs nothing.

use super::cache::MetadataCache;
use super::trace;
use crate::base::{Address, Error, Result, limits};
use crate::file::{FileDriver, memory::MemoryFile, transaction::Transaction};
use crate::format::{
    Context,
    superblock::{SIGNATURE, SIZE_MAX, Superblock},
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Budget of the decoded metadata cache, bytes.
const METADATA_CACHE_BYTES: usize = 16 << 20;

/// Bytes that any file may be taken to hold beyond what it does.
const ROOM_MIN: u64 = 4 << 20;

/// Undoes a filter pipeline: (encoded pipeline message, stored bytes, filter mask, bytes expected
/// and at most allowed) to unfiltered bytes.
pub type Unfilter = dyn Fn(&[u8], Vec<u8>, u32, usize) -> Result<Vec<u8>> + Send + Sync;

/// Read access to one HDF5 file by address.
pub struct Store {
    pub(super) driver: Arc<dyn FileDriver>,
    pub(super) superblock: Superblock,
    /// Absolute offset of address 0: where the superblock was found.
    pub(super) base: u64,
    /// Entries of a metadata cache image: newer than the bytes at their home addresses.
    overlay: BTreeMap<u64, Arc<[u8]>>,
    /// Longest entry of the overlay, bytes.
    overlay_longest: u64,
    /// The overlay counts: not any more when it was written to the addresses.
    overlay_counts: AtomicBool,
    pub(super) cache: MetadataCache,
    /// For heaps with I/O filters; the filters lie in a layer above.
    unfilter: Option<Arc<Unfilter>>,
    /// Only of a file that may be changed; it is the driver then.
    pub(super) transaction: Option<Arc<Transaction>>,
}

impl Store {
    /// Finds and decodes the superblock of `driver`.
    pub fn open(driver: Arc<dyn FileDriver>) -> Result<Self> {
        let len = driver.status().map_err(|e| Error::io("stat", Address(0), &e))?.len;
        let mut offset = 0u64;
        loop {
            let mut buf = [0u8; SIZE_MAX];
            let n = driver.read_at(&mut buf, offset).map_err(|e| Error::io("read", Address(offset), &e))?;
            let head = buf.get(..n).unwrap_or_default();
            if head.starts_with(&SIGNATURE) {
                let superblock = Superblock::decode(head, Address(offset))?;
                return Self::with_superblock(driver, superblock, offset);
            }
            offset = if offset == 0 { 512 } else { offset.saturating_mul(2) };
            if offset >= len {
                return Err(Error::corrupt("superblock", Address(0), "no HDF5 signature at 0, 512, 1024, ...: not an HDF5 file"));
            }
        }
    }

    fn with_superblock(driver: Arc<dyn FileDriver>, superblock: Superblock, base: u64) -> Result<Self> {
        let c = superblock.ctx;
        if c.sizeof_addr > 8 || c.sizeof_size > 8 {
            return Err(Error::unsupported(
                "superblock",
                Address(base),
                format!("size of offsets {}, of lengths {}", c.sizeof_addr, c.sizeof_size),
            ));
        }
        Ok(Store {
            driver,
            superblock,
            base,
            overlay: BTreeMap::new(),
            overlay_longest: 0,
            overlay_counts: AtomicBool::new(true),
            cache: MetadataCache::new(METADATA_CACHE_BYTES),
            unfilter: None,
            transaction: None,
        })
    }

    /// A store over `bytes` with 8-byte widths and no superblock: for tests of single structures.
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
            driver: Arc::new(MemoryFile::new(bytes)),
            superblock,
            base: 0,
            overlay: BTreeMap::new(),
            overlay_longest: 0,
            overlay_counts: AtomicBool::new(true),
            cache: MetadataCache::new(METADATA_CACHE_BYTES),
            unfilter: None,
            transaction: None,
        }
    }

    /// Adds metadata cache image entries (address to bytes).
    pub fn set_overlay(&mut self, overlay: BTreeMap<u64, Arc<[u8]>>) {
        self.overlay_longest = overlay.values().map(|b| b.len() as u64).max().unwrap_or(0);
        self.overlay = overlay;
        self.cache.clear();
    }

    /// Metadata cache image entries, by address.
    pub fn image(&self) -> impl Iterator<Item = (u64, &Arc<[u8]>)> {
        self.overlay.iter().map(|(at, bytes)| (*at, bytes))
    }

    /// Whether the entries of the metadata cache image count, or the bytes at their addresses.
    pub fn set_image(&self, counts: bool) {
        self.overlay_counts.store(counts, Ordering::Release);
        self.cache.clear();
    }

    /// Tells how filtered metadata is decoded.
    pub fn set_unfilter(&mut self, unfilter: Arc<Unfilter>) {
        self.unfilter = Some(unfilter);
    }

    /// How filtered metadata is decoded, if that is known.
    pub fn unfilter(&self) -> Option<&Arc<Unfilter>> {
        self.unfilter.as_ref()
    }

    /// Field widths.
    pub fn ctx(&self) -> &Context {
        &self.superblock.ctx
    }

    /// The superblock as found.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Absolute file offset of address 0 (size of the user block).
    pub fn base(&self) -> u64 {
        self.base
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

    /// Bytes of structures that the file can hold: as `held`, and a few MiB. Bounds the work of walks.
    pub fn room(&self) -> Result<u64> {
        Ok(self.held()?.saturating_add(ROOM_MIN).min(self.file_len()?))
    }

    /// Bytes that the file holds: its length, but not that of its holes (whatever compresses files may
    /// make it look smaller than it is).
    pub fn held(&self) -> Result<u64> {
        let (len, allocated) = self.driver.extent().map_err(|e| Error::io("stat", Address(0), &e))?;
        // Where a file system does not tell what a file takes, its length has to do.
        let allocated = if allocated == 0 { len } else { allocated };
        Ok(len.min(allocated.saturating_mul(16)))
    }

    /// Absolute offset of `address`.
    pub fn offset(&self, address: Address, structure: &'static str) -> Result<u64> {
        let a = address.defined().and_then(|a| a.checked_add(self.base));
        a.ok_or_else(|| Error::corrupt(structure, address, "the address is undefined or beyond 2^64"))
    }

    /// Exactly `len` bytes of metadata at `address`.
    pub fn read(&self, address: Address, len: u64, structure: &'static str) -> Result<Vec<u8>> {
        let b = self.read_upto(address, len, structure)?;
        if b.len() as u64 == len {
            Ok(b)
        } else {
            Err(Error::corrupt(structure, address, format!("{len} bytes are needed, the file ends after {}", b.len())))
        }
    }

    /// Up to `len` bytes of metadata at `address`; fewer only where the file ends.
    pub fn read_upto(&self, address: Address, len: u64, structure: &'static str) -> Result<Vec<u8>> {
        let offset = self.offset(address, structure)?;
        if self.transaction.is_some() {
            trace::note(address.0..address.0.saturating_add(len));
        }
        if len > limits::METADATA_BLOCK_MAX {
            return Err(Error::limit(structure, address, format!("{len} bytes of metadata in one block")));
        }
        // Small reads trust `pread` to say where the file ends; large ones ask first, so that a
        // hostile length allocates nothing.
        let len = if len > 1 << 16 { len.min(self.file_len()?.saturating_sub(address.0)) } else { len };
        let mut buf = vec![0u8; usize::try_from(len).map_err(|_| Error::limit(structure, address, "block size"))?];
        let mut n = self.driver.read_at(&mut buf, offset).map_err(|e| Error::io("read", address, &e))?;
        if !self.overlay.is_empty() && self.overlay_counts.load(Ordering::Acquire) {
            n = n.max(self.patch(address.0, &mut buf));
        }
        buf.truncate(n);
        Ok(buf)
    }

    /// Copies cache image entries over `buf`; returns the end of the last byte written.
    fn patch(&self, address: u64, buf: &mut [u8]) -> usize {
        let end = address.saturating_add(buf.len() as u64);
        let mut reach = 0;
        // Entries do not overlap, but those of a hostile image may: all that can reach here are looked at.
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

    /// Fills `buf` with raw data at `address`; bytes past the end of the file are an error.
    pub fn read_raw(&self, address: Address, buf: &mut [u8]) -> Result<()> {
        let offset = self.offset(address, "raw data")?;
        if self.transaction.is_some() {
            trace::note(address.0..address.0.saturating_add(buf.len() as u64));
        }
        let n = self.driver.read_at(buf, offset).map_err(|e| Error::io("read", address, &e))?;
        if n == buf.len() {
            Ok(())
        } else {
            Err(Error::corrupt("raw data", address, format!("{} bytes are needed, the file ends after {n}", buf.len())))
        }
    }

    /// The decoded entry of type `T` at `address`: from the cache, or loaded (value, bytes to charge).
    pub fn cached<T: Send + Sync + 'static>(&self, address: Address, load: impl FnOnce() -> Result<(T, usize)>) -> Result<Arc<T>> {
        self.cache.get_or_load(address, load)
    }

    /// Keeps the decoded entry of type `T` at `address`, made of `extents` (address, bytes) that were written in this moment.
    pub fn keep<T: Send + Sync + 'static>(&self, address: Address, value: T, charge: usize, extents: &[(Address, u64)]) {
        let ranges: Vec<_> = extents.iter().map(|(at, len)| at.0..at.0.saturating_add(*len)).collect();
        self.cache.keep(address, value, charge, &ranges);
    }

    /// Takes the decoded entry of type `T` at `address` out of the cache, if it is there: to be changed, and kept again.
    pub fn take<T: Send + Sync + 'static>(&self, address: Address) -> Option<T> {
        self.cache.take(address)
    }

    /// As [`Store::cached`], for entries most of which are wanted only for a moment.
    pub fn tried<T: Send + Sync + 'static>(&self, address: Address, load: impl FnOnce() -> Result<(T, usize)>) -> Result<Arc<T>> {
        self.cache.get_or_try(address, load)
    }

    /// Drops every cached entry.
    pub fn forget(&self) {
        self.cache.clear();
    }
}
