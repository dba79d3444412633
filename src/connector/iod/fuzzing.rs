//! Containers in memory, and decoders of values, for fuzz targets.

use super::access::IodConnector;
use super::cells::{check_block, encode_block, payload};
use super::kind::root_entries;
use super::state::State;
use super::types::{decode_type, referred};
use super::{attribute, ownership, paths};
use crate::base::datatype::Datatype;
use crate::base::{Address, Error, Result};
use crate::connector::open::{Backing, OpenContainer};
use crate::connector::{LinkFacts, LinkTarget};
use crate::dataset::environment::Environment;
use crate::file::store::ObjectStore;
use crate::file::store::memory::MemoryStore;
use crate::iod::Container;
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

/// Memory for decoded bytes of a container, bytes.
const CACHE_BYTES: u64 = 1 << 20;
/// Temporary files of a container, bytes.
const FILES_BYTES: u64 = 256 << 20;

/// Empty caches, on the threads of the first environment: an input starts none.
fn environment() -> Result<Arc<Environment>> {
    static FIRST: OnceLock<Environment> = OnceLock::new();
    if FIRST.get().is_none() {
        let _ = FIRST.set(Environment::new(CACHE_BYTES, FILES_BYTES, 1)?);
    }
    let first = FIRST.get().ok_or_else(|| Error::limit("environment", Address::UNDEF, "not made"))?;
    Ok(Arc::new(Environment::with_pool(CACHE_BYTES, FILES_BYTES, first.pool.clone())))
}

/// The newest version of the container in `store`, for reading.
pub fn open(store: Arc<dyn ObjectStore>) -> Result<OpenContainer> {
    let container = Arc::new(Container::open(store)?);
    let snapshot = container.snapshot(None)?;
    let state = State::new(container.clone(), snapshot, None);
    let connector = IodConnector::new(container, state, false, environment()?);
    let backing = Backing { atime: UNIX_EPOCH, mtime: UNIX_EPOCH, ctime: UNIX_EPOCH, len: 0 };
    Ok(OpenContainer { connector, backing, free_space: None })
}

/// A new container in memory, for writing.
pub fn create() -> Result<Arc<IodConnector>> {
    let store = Arc::new(MemoryStore::default());
    Container::create(store.clone(), root_entries())?;
    let container = Arc::new(Container::open(store)?);
    let mut snapshot = container.snapshot(None)?;
    let session = container.begin_session(&mut snapshot)?;
    let state = State::new(container.clone(), snapshot, Some(session));
    Ok(IodConnector::new(container, state, true, environment()?))
}

/// Owner, group and text of a link, and the bytes that they are encoded to.
pub fn link_facts(bytes: &[u8]) -> Result<(LinkFacts, Option<Vec<u8>>)> {
    let facts = ownership::decode_facts(bytes, 1)?;
    let encoded = ownership::encode_facts(&facts);
    Ok((facts, encoded))
}

/// Name, target and creation order of a link.
pub type Link = (Vec<u8>, LinkTarget, Option<i64>);

/// A link, and the bytes that it is encoded to.
pub fn link(bytes: &[u8]) -> Result<(Link, Result<Vec<u8>>)> {
    let (name, target) = paths::decode_named(bytes, 1)?;
    let order = paths::creation_order(bytes, 1)?;
    let encoded = paths::encode_ordered(&name, &target, order);
    Ok(((name, target, order), encoded))
}

/// The named datatype that a datatype message refers to, or its datatype.
pub fn datatype(bytes: &[u8]) -> Result<(Option<u64>, Result<Datatype>)> {
    Ok((referred(bytes, 1)?, decode_type(bytes, 1)))
}

/// The named datatype of a stored attribute.
pub fn attribute_type(bytes: &[u8]) -> Result<Option<u64>> {
    attribute::named_type(bytes, 1)
}

/// The payloads of a block of cells, and the bytes that they are encoded to.
pub fn cells(block: &[u8]) -> Result<(Vec<Vec<u8>>, Vec<u8>)> {
    check_block(block, 1)?;
    let count = block.first_chunk::<4>().map_or(0, |count| u32::from_le_bytes(*count));
    let payloads = (0..count).map(|index| payload(block, index, 1).map(<[u8]>::to_vec)).collect::<Result<Vec<_>>>()?;
    let encoded = encode_block(&payloads)?;
    Ok((payloads, encoded))
}

/// One payload of a block that may be damaged.
pub fn cell(block: &[u8], index: u32) -> Result<&[u8]> {
    payload(block, index, 1)
}
