//! Objects of global heap collections.
//!
//! A collection of ordinary size is read and cached whole, and objects are views of it. One larger
//! than [`WHOLE_MAX`] (libhdf5 makes them for single large objects) is walked by its object
//! headers; only its directory is cached and each wanted object is read by itself.

use super::extent;
use crate::base::{Address, Error, Result};
use crate::format::global_heap::{Directory, NAME, ObjectHeader, Position, SIZE_MIN, decode_header, header_size};
use crate::meta::Store;
use std::mem::size_of;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Largest collection read as a whole, bytes.
pub const WHOLE_MAX: u64 = 1 << 20;
/// Bytes read at once where object headers are walked.
const WINDOW: u64 = 4096;

#[derive(Debug)]
struct Collection {
    /// The collection from its first byte; empty if it is larger than [`WHOLE_MAX`].
    bytes: Vec<u8>,
    directory: Directory,
}

/// An object's bytes.
#[derive(Debug, Clone)]
pub struct GlobalObject(Source);

#[derive(Debug, Clone)]
enum Source {
    View(Arc<Collection>, Range<usize>),
    Owned(Arc<[u8]>),
}

impl Deref for GlobalObject {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Source::View(c, range) => c.bytes.get(range.clone()).unwrap_or_default(),
            Source::Owned(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for GlobalObject {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// The object `index` of the collection at `collection`.
/// Errors: corrupt (no such object, damaged collection), limit (over 64 MiB), I/O.
pub fn object(store: &Store, collection: Address, index: u32) -> Result<GlobalObject> {
    let (c, at) = find(store, collection, index)?;
    if c.bytes.is_empty() {
        let data = extent::read(store, address_of(collection, &at)?, at.size, NAME)?;
        return Ok(GlobalObject(Source::Owned(data.into())));
    }
    let start = usize::try_from(at.start).ok();
    let end = usize::try_from(at.size).ok().and_then(|n| n.checked_add(start?)).filter(|&e| e <= c.bytes.len());
    match (start, end) {
        (Some(start), Some(end)) => Ok(GlobalObject(Source::View(c, start..end))),
        _ => Err(Error::corrupt(NAME, collection, format!("object {index} lies past the end of the file"))),
    }
}

/// Where the data of object `index` lies in the file, and its length in bytes, without reading it:
/// for objects too large to hold.
pub fn locate(store: &Store, collection: Address, index: u32) -> Result<(Address, u64)> {
    let (_, at) = find(store, collection, index)?;
    Ok((address_of(collection, &at)?, at.size))
}

fn address_of(collection: Address, at: &Position) -> Result<Address> {
    collection.checked_add(at.start).ok_or_else(|| Error::corrupt(NAME, collection, "an object lies beyond 2^64"))
}

fn find(store: &Store, collection: Address, index: u32) -> Result<(Arc<Collection>, Position)> {
    let c = store.cached(collection, || load(store, collection))?;
    let at = u16::try_from(index).ok().filter(|&i| i > 0).and_then(|i| c.directory.get(i)).copied();
    let at = at.ok_or_else(|| {
        let damage = c.directory.damage.map(|o| format!(" (damaged from byte {o} on)")).unwrap_or_default();
        Error::corrupt(NAME, collection, format!("it holds no object {index}{damage}"))
    })?;
    Ok((c, at))
}

fn load(store: &Store, address: Address) -> Result<(Collection, usize)> {
    let ctx = store.ctx();
    let mut bytes = store.read_upto(address, SIZE_MIN, NAME)?;
    let size = decode_header(&bytes, address, ctx)?;
    if size > WHOLE_MAX {
        let directory = walk_large(store, address, size)?;
        let charge = charge(&directory);
        return Ok((Collection { bytes: Vec::new(), directory }, charge));
    }
    if size > bytes.len() as u64 {
        bytes = store.read_upto(address, size, NAME)?;
    }
    bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
    let directory = Directory::of(&bytes, address, ctx)?;
    let charge = charge(&directory).saturating_add(bytes.len());
    Ok((Collection { bytes, directory }, charge))
}

fn charge(d: &Directory) -> usize {
    d.positions.len().saturating_mul(size_of::<Position>()).saturating_add(size_of::<Collection>())
}

/// The directory of a large collection, by small reads.
fn walk_large(store: &Store, address: Address, size: u64) -> Result<Directory> {
    let ctx = store.ctx();
    let need = header_size(ctx);
    let (mut window, mut start) = (Vec::new(), 0u64);
    Directory::walk(size, ctx, &mut |offset| {
        let inside = |w: &[u8], start: u64| {
            let at = usize::try_from(offset.checked_sub(start)?).ok()?;
            w.get(at..at.checked_add(need)?).map(|b| ObjectHeader::decode(b, address, ctx))
        };
        if let Some(header) = inside(&window, start) {
            return header.map(Some);
        }
        let Some(at) = address.checked_add(offset) else { return Ok(None) };
        (window, start) = (store.read_upto(at, WINDOW, NAME)?, offset);
        inside(&window, start).transpose()
    })
}
