//! Lookup of objects in global heap collections.
//!
//! A collection of up to [`WHOLE_MAX`] bytes is read and cached as a whole, and objects are views
//! of it. Of a larger one (libhdf5 creates those for single large objects) only the directory is
//! cached, and each object is read by itself.

use super::load;
use crate::base::{Address, Error, Result};
use crate::format::global_heap::{Directory, NAME, Position, SIZE_MIN, decode_header};
use crate::meta::Store;
use crate::structures::extent;
use std::mem::size_of;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Largest collection read as a whole, bytes.
pub const WHOLE_MAX: u64 = 1 << 20;

#[derive(Debug)]
struct Collection {
    /// The collection from its first byte; empty if it is larger than [`WHOLE_MAX`].
    bytes: Vec<u8>,
    directory: Directory,
}

/// Bytes of an object.
#[derive(Debug, Clone)]
pub struct GlobalObject(ObjectBytes);

#[derive(Debug, Clone)]
enum ObjectBytes {
    View(Arc<Collection>, Range<usize>),
    Owned(Arc<[u8]>),
}

impl Deref for GlobalObject {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            ObjectBytes::View(c, range) => c.bytes.get(range.clone()).unwrap_or_default(),
            ObjectBytes::Owned(bytes) => bytes,
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
        return Ok(GlobalObject(ObjectBytes::Owned(data.into())));
    }
    let start = usize::try_from(at.start).ok();
    let end = usize::try_from(at.size).ok().and_then(|n| n.checked_add(start?)).filter(|&e| e <= c.bytes.len());
    match (start, end) {
        (Some(start), Some(end)) => Ok(GlobalObject(ObjectBytes::View(c, start..end))),
        _ => Err(Error::corrupt(NAME, collection, format!("object {index} ends past EOF"))),
    }
}

/// Address and length in bytes of object `index`, without reading it: for objects too large for
/// memory.
pub fn locate(store: &Store, collection: Address, index: u32) -> Result<(Address, u64)> {
    let (_, at) = find(store, collection, index)?;
    Ok((address_of(collection, &at)?, at.size))
}

fn address_of(collection: Address, at: &Position) -> Result<Address> {
    collection.checked_add(at.start).ok_or_else(|| Error::corrupt(NAME, collection, "an object exceeds 2^64 bytes"))
}

fn find(store: &Store, collection: Address, index: u32) -> Result<(Arc<Collection>, Position)> {
    let c = store.cached(collection, |store| load_collection(store, collection))?;
    let at = u16::try_from(index).ok().filter(|&i| i > 0).and_then(|i| c.directory.get(i)).copied();
    let at = at.ok_or_else(|| {
        let damage = c.directory.damage.map(|o| format!(" (damaged at byte {o})")).unwrap_or_default();
        Error::corrupt(NAME, collection, format!("it holds no object {index}{damage}"))
    })?;
    Ok((c, at))
}

fn load_collection(store: &Store, address: Address) -> Result<(Collection, usize)> {
    let ctx = store.ctx();
    let mut bytes = store.read_upto(address, SIZE_MIN, NAME)?;
    let size = decode_header(&bytes, address, ctx)?;
    if size > WHOLE_MAX {
        let (_, directory) = load::directory(store, address)?;
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
