//! Objects of a container: bytes of packs, nodes of trees, with caches and repeated attempts.

use super::cell::{Cell, Data, Extent};
use super::keys;
use super::node::Node;
use crate::base::{Address, Error, Result};
use crate::file::store::ObjectStore;
use lru::LruCache;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Attempts to store an object before the error counts.
pub(super) const ATTEMPTS: u32 = 4;
/// Pause after the first failed attempt; it doubles each time.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// Most bytes of decoded tree nodes.
const NODES_BYTES: usize = 64 << 20;

/// See the module's description.
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    nodes: Mutex<Nodes>,
}

struct Nodes {
    cache: LruCache<Extent, Arc<Node>>,
    bytes: usize,
}

/// The error of a request of a store.
pub(super) fn failed(operation: &'static str, at: u64) -> impl Fn(io::Error) -> Error {
    move |e| Error::io(operation, Address(at), &e)
}

/// Errors of a network and of servers, after which another attempt may succeed.
pub(super) fn is_transient(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ETIMEDOUT | libc::EIO | libc::ECONNRESET | libc::ECONNREFUSED | libc::EAGAIN))
}

impl Objects {
    /// Those of `store`.
    pub(super) fn new(store: Arc<dyn ObjectStore>) -> Objects {
        Objects { store, nodes: Mutex::new(Nodes { cache: LruCache::unbounded(), bytes: 0 }) }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// The bytes of an extent. Errors: another checksum.
    pub fn read(&self, extent: &Extent) -> Result<Vec<u8>> {
        let name = keys::pack_name(extent.session, extent.pack);
        let end = extent.offset.saturating_add(extent.len.into());
        let bytes = self.store.get(&name, extent.offset..end).map_err(failed("read a pack", extent.offset))?;
        if extent.is_of(&bytes) {
            return Ok(bytes);
        }
        Err(Error::corrupt("pack", Address(extent.offset), format!("{} bytes of {name} have another checksum", extent.len)))
    }

    /// The bytes of a value.
    pub fn bytes(&self, cell: &Cell) -> Result<Vec<u8>> {
        match &cell.data {
            Data::Inline(bytes) => Ok(bytes.to_vec()),
            Data::Extent(extent) => self.read(extent),
        }
    }

    /// The node of a tree in an extent.
    pub(super) fn node(&self, extent: &Extent) -> Result<Arc<Node>> {
        if let Some(node) = self.nodes.lock().cache.get(extent) {
            return Ok(node.clone());
        }
        let node = Arc::new(Node::decode(&self.read(extent)?, extent)?);
        let mut nodes = self.nodes.lock();
        nodes.bytes = nodes.bytes.saturating_add(node.memory());
        if let Some(old) = nodes.cache.put(*extent, node.clone()) {
            nodes.bytes = nodes.bytes.saturating_sub(old.memory());
        }
        while nodes.bytes > NODES_BYTES
            && let Some((_, old)) = nodes.cache.pop_lru()
        {
            nodes.bytes = nodes.bytes.saturating_sub(old.memory());
        }
        Ok(node)
    }

    pub(super) fn put_pack(&self, session: u64, pack: u32, bytes: &[u8]) -> Result<()> {
        let name = keys::pack_name(session, pack);
        self.again("write a pack", || self.store.put(&name, bytes))
    }

    pub(super) fn settle(&self) -> Result<()> {
        self.store.settle().map_err(failed("write a pack", 0))
    }

    /// Calls `f` until it succeeds or the last attempt failed. `f` may be repeated after a lost
    /// reply.
    pub(super) fn again<T>(&self, operation: &'static str, mut f: impl FnMut() -> io::Result<T>) -> Result<T> {
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            match f() {
                Err(e) if is_transient(&e) => tracing::debug!("cannot {operation}: {e}; trying again"),
                result => return result.map_err(failed(operation, 0)),
            }
            std::thread::sleep(pause);
            pause = pause.saturating_mul(2);
        }
        f().map_err(failed(operation, 0))
    }
}
