//! Objects of a container: bytes of packs, nodes of trees, with caches and repeated attempts.

use super::cell::{Cell, Data, Extent};
use super::keys;
use super::limits::{BATCH_BYTES_MAX, DELTA_BYTES_MAX, NODE_BYTES_MAX, VALUE_BYTES_MAX, check_extent, check_len, value_max};
use super::node::Node;
use super::originals::{self, OriginalFiles, Originals};
use super::room;
use super::rules::Rules;
use crate::base::locks::Mutex;
use crate::base::request_error::{is_absent, is_transient};
use crate::base::{Address, Error, Result};
use crate::file::attempts::Attempts;
use crate::file::store::{ObjectStore, RangeCache};
use lru::LruCache;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Attempts to store an object before the error counts.
pub(super) const ATTEMPTS: u32 = 4;
/// Most bytes of decoded tree nodes.
const NODES_BYTES: usize = 64 << 20;

/// See the module's description.
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    nodes: Mutex<Nodes>,
    /// Bytes of packs kept elsewhere, and the identity of the container.
    cache: Option<(Arc<dyn RangeCache>, u128)>,
    /// A pack that is not there was logged.
    is_reported: AtomicBool,
    originals: Originals,
    rules: Rules,
    /// Takes the room that others leave.
    takes_all_room: bool,
}

struct Nodes {
    cache: LruCache<Extent, Arc<Node>>,
    bytes: usize,
}

/// The error of a request of a store.
pub(super) fn failed(operation: &'static str, at: u64) -> impl Fn(io::Error) -> Error {
    move |e| Error::io(operation, Address(at), &e)
}

impl Objects {
    /// Those of `store`, in which writers and garbage collection keep `rules`.
    pub(super) fn new(store: Arc<dyn ObjectStore>, rules: Rules) -> Objects {
        Objects {
            store,
            nodes: Mutex::new(Nodes { cache: LruCache::unbounded(), bytes: 0 }),
            cache: None,
            is_reported: AtomicBool::new(false),
            originals: Originals::default(),
            rules,
            takes_all_room: false,
        }
    }

    /// The rules that its users keep.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Has originals opened by `files`.
    pub fn set_original_files(&self, files: Arc<dyn OriginalFiles>) {
        self.originals.set_files(files);
    }

    /// Makes the file `name` the original `number`, which no object has.
    pub fn create_original(&self, number: u64, name: &[u8]) -> Result<()> {
        let (key, bytes) = (keys::original_name(number), originals::encode(name)?);
        match self.again("write an original", || self.store.create(&key, &bytes))? {
            true => Ok(()),
            // The reply of an earlier attempt was lost.
            false if self.original_path(number)? == name => Ok(()),
            false => Err(Error::corrupt(originals::STRUCTURE, Address(number), "another one has its number")),
        }
    }

    /// Name of an original.
    pub fn original_path(&self, number: u64) -> Result<Vec<u8>> {
        self.originals.path(&*self.store, number)
    }

    /// Length of an original, bytes.
    pub fn original_len(&self, number: u64) -> Result<u64> {
        self.originals.len(&*self.store, number)
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Keeps bytes of packs of the container `uuid` in `cache`.
    pub(super) fn set_cache(&mut self, cache: Arc<dyn RangeCache>, uuid: [u8; 16]) {
        self.cache = Some((cache, u128::from_be_bytes(uuid)));
    }

    fn cache_name(uuid: u128, e: &Extent) -> String {
        format!("{uuid:032x}-{:x}-{:x}-{:x}-{:x}-{:08x}", e.session, e.pack, e.offset, e.len, e.checksum)
    }

    /// The bytes of an extent in the disk cache.
    fn cached(&self, extent: &Extent) -> Option<Vec<u8>> {
        let (cache, uuid) = self.cache.as_ref()?;
        let name = Objects::cache_name(*uuid, extent);
        let bytes = cache.get(&name, extent.len)?;
        if extent.is_of(&bytes) {
            return Some(bytes);
        }
        tracing::debug!("the file {name} of the disk cache is damaged");
        cache.discard(&name);
        None
    }

    fn keep(&self, extent: &Extent, bytes: &[u8]) {
        if let Some((cache, uuid)) = &self.cache {
            cache.put(&Objects::cache_name(*uuid, extent), bytes);
        }
    }

    /// The bytes of an extent, [`VALUE_BYTES_MAX`] at most. Errors: another checksum.
    pub fn read(&self, extent: &Extent) -> Result<Vec<u8>> {
        self.read_within("value", extent, VALUE_BYTES_MAX)
    }

    /// The bytes of a delta in a pack.
    pub(super) fn read_delta(&self, extent: &Extent) -> Result<Vec<u8>> {
        self.read_within("delta", extent, DELTA_BYTES_MAX)
    }

    /// The bytes of an extent, `max` at most. Errors: another checksum.
    pub fn read_within(&self, structure: &'static str, extent: &Extent, max: u64) -> Result<Vec<u8>> {
        check_extent(structure, extent, max)?;
        self.read_many(std::slice::from_ref(extent))?.pop().unwrap_or_else(|| Err(self.damaged(extent)))
    }

    /// The error of bytes that are not those of an extent.
    pub fn damaged(&self, extent: &Extent) -> Error {
        if let Some(number) = extent.original() {
            return self.originals.changed(&*self.store, number, extent);
        }
        let name = keys::pack_name(extent.session, extent.pack);
        Error::corrupt("pack", Address(extent.offset), format!("{} bytes of {name} have another checksum", extent.len))
    }

    /// The bytes of extents of one pack or original, ascending by offset, by one request. Errors of
    /// single ones: another checksum. Several extents have [`BATCH_BYTES_MAX`] at most.
    pub fn read_many(&self, extents: &[Extent]) -> Result<Vec<Result<Vec<u8>>>> {
        if let [first, _, ..] = extents {
            let all = extents.iter().fold(0u64, |n, extent| n.saturating_add(extent.len.into()));
            check_len("batch of reads", first.offset, all, BATCH_BYTES_MAX)?;
        }
        let cached: Vec<Option<Vec<u8>>> = extents.iter().map(|extent| self.cached(extent)).collect();
        let missing: Vec<&Extent> = extents.iter().zip(&cached).filter(|(_, bytes)| bytes.is_none()).map(|(e, _)| e).collect();
        let mut fetched = self.fetch(&missing)?.into_iter();
        let one = |(extent, cached): (&Extent, Option<Vec<u8>>)| {
            if let Some(bytes) = cached {
                return Ok(bytes);
            }
            let bytes = fetched.next().filter(|bytes| extent.is_of(bytes)).ok_or_else(|| self.damaged(extent))?;
            self.keep(extent, &bytes);
            Ok(bytes)
        };
        Ok(extents.iter().zip(cached).map(one).collect())
    }

    /// The bytes in the place of each of `extents`, of one pack or original.
    fn fetch(&self, extents: &[&Extent]) -> Result<Vec<Vec<u8>>> {
        let Some(first) = extents.first() else { return Ok(Vec::new()) };
        if let Some(number) = first.original() {
            return self.originals.fetch(&*self.store, number, extents);
        }
        let ranges: Vec<Range<u64>> = extents.iter().map(|e| e.offset..e.offset.saturating_add(e.len.into())).collect();
        let name = keys::pack_name(first.session, first.pack);
        match self.store.get_several(&name, &ranges) {
            Err(e) if is_absent(&e) => Err(self.collected(&name)),
            read => read.map_err(failed("read a pack", first.offset)),
        }
    }

    /// The error of a pack that is not there; logged once.
    fn collected(&self, name: &str) -> Error {
        let reason = format!(
            "the pack {name} was removed: garbage collection ('h5dir iod gc') went past the version that is shown; mount again, with \
             --pin to keep the version, or tag it"
        );
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            tracing::error!("{reason}");
        }
        Error::refused(libc::EIO, reason)
    }

    /// True if the bytes of an extent are better read to the buffer of a reader, by
    /// [`Objects::fill`], than several extents by one request, and kept.
    pub fn is_at_hand(&self, extent: &Extent) -> bool {
        self.cache.is_none() && self.store.is_near() && extent.original().is_none()
    }

    /// Fills `buf`, which is as long as the extent. Errors: another checksum.
    pub fn fill(&self, extent: &Extent, buf: &mut [u8]) -> Result<()> {
        self.read_part(extent, 0, buf)?;
        if extent.is_of(buf) { Ok(()) } else { Err(self.damaged(extent)) }
    }

    /// Fills `buf` from `from` within an extent. The checksum is not verified.
    pub fn read_part(&self, extent: &Extent, from: u64, buf: &mut [u8]) -> Result<()> {
        let offset = extent.offset.saturating_add(from);
        if extent.original().is_some() {
            let len = u32::try_from(buf.len()).map_err(|_| self.damaged(extent))?;
            let bytes = self.fetch(&[&Extent { offset, len, ..*extent }])?.pop().filter(|bytes| bytes.len() == buf.len());
            buf.copy_from_slice(&bytes.ok_or_else(|| self.damaged(extent))?);
            return Ok(());
        }
        let name = keys::pack_name(extent.session, extent.pack);
        self.store.fill(&name, offset, buf).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(extent),
            _ if is_absent(&e) => self.collected(&name),
            _ => failed("read a pack", offset)(e),
        })
    }

    /// The bytes of a value.
    pub fn bytes(&self, cell: &Cell) -> Result<Vec<u8>> {
        self.bytes_within(cell, VALUE_BYTES_MAX)
    }

    /// The bytes of the value of `key`, as many as values of its kind may have.
    pub fn bytes_of(&self, key: &[u8], cell: &Cell) -> Result<Vec<u8>> {
        self.bytes_within(cell, value_max(key))
    }

    fn bytes_within(&self, cell: &Cell, max: u64) -> Result<Vec<u8>> {
        match &cell.data {
            Data::Inline(bytes) => Ok(bytes.to_vec()),
            Data::Extent(extent) => self.read_within("value", extent, max),
        }
    }

    /// The node of a tree in an extent.
    pub(super) fn node(&self, extent: &Extent) -> Result<Arc<Node>> {
        if let Some(node) = self.nodes.lock().cache.get(extent) {
            return Ok(node.clone());
        }
        let bytes = self.read_within("tree node", extent, NODE_BYTES_MAX)?;
        let node = Arc::new(Node::decode(&bytes, extent)?);
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
        self.again("write a pack", || {
            if !self.takes_all_room {
                room::for_pack(&*self.store, bytes.len())?;
            }
            self.store.put(&name, bytes)
        })
    }

    /// Stores a pack of `len` bytes, which `read` fills a buffer with from an offset.
    pub(super) fn put_pack_from(
        &self,
        session: u64,
        pack: u32,
        len: u64,
        read: &(dyn Fn(u64, &mut [u8]) -> Result<()> + Sync),
    ) -> Result<()> {
        let (name, failure) = (keys::pack_name(session, pack), Mutex::new(None));
        let read = |at: u64, buf: &mut [u8]| {
            read(at, buf).map_err(|e| {
                let errno = if let Error::Io { errno, .. } = &e { *errno } else { libc::EIO };
                *failure.lock() = Some(e);
                io::Error::from_raw_os_error(errno)
            })
        };
        let stored = self.again("write a pack", || {
            if !self.takes_all_room {
                room::for_pack(&*self.store, usize::try_from(len).unwrap_or(usize::MAX))?;
            }
            self.store.put_from(&name, len, &read)
        });
        let failed = failure.lock().take();
        failed.map_or(stored, Err)
    }

    /// Creates the record `name`; false: another one has its name.
    pub(super) fn put_record(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        if !self.takes_all_room {
            room::for_record(&*self.store, bytes.len())?;
        }
        self.store.create(name, bytes)
    }

    /// Takes the room that others leave, from now on.
    pub(super) fn take_all_room(&mut self) {
        self.takes_all_room = true;
    }

    /// Errors: `ENOSPC`, without the room that others leave.
    pub(super) fn has_room(&self) -> Result<()> {
        room::for_pack(&*self.store, 0).map_err(failed("write a pack", 0))
    }

    /// Deletes a pack that nothing refers to.
    pub fn delete_pack(&self, session: u64, pack: u32) -> Result<()> {
        self.store.delete(&keys::pack_name(session, pack)).map_err(failed("delete a pack", 0))
    }

    pub(super) fn settle(&self) -> Result<()> {
        self.store.settle().map_err(failed("write a pack", 0))
    }

    /// Calls `f` until it succeeds or the last attempt failed. `f` may be repeated after a lost
    /// reply. A request that the store repeated until its timeout is not repeated.
    pub(super) fn again<T>(&self, operation: &'static str, mut f: impl FnMut() -> io::Result<T>) -> Result<T> {
        let mut attempts = Attempts::default();
        for _ in 1..ATTEMPTS {
            match f() {
                Err(e) if is_transient(&e) => tracing::debug!("cannot {operation}: {e}; trying again"),
                result => return result.map_err(failed(operation, 0)),
            }
            std::thread::sleep(attempts.pause());
        }
        f().map_err(failed(operation, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::store::memory::MemoryStore;
    use std::collections::HashMap;

    #[derive(Default)]
    struct Kept(Mutex<HashMap<String, Vec<u8>>>);

    impl RangeCache for Kept {
        fn get(&self, name: &str, len: u32) -> Option<Vec<u8>> {
            self.0.lock().get(name).filter(|bytes| bytes.len() == len as usize).cloned()
        }

        fn discard(&self, name: &str) {
            self.0.lock().remove(name);
        }

        fn put(&self, name: &str, bytes: &[u8]) {
            self.0.lock().insert(name.to_owned(), bytes.to_vec());
        }
    }

    /// Bytes that were read once come from the cache, also in another mount; those of another
    /// checksum are read anew.
    #[test]
    fn extents_come_from_the_cache() {
        let (store, kept) = (MemoryStore::default(), Arc::new(Kept::default()));
        let data: Vec<u8> = (0..30_000u32).map(|n| (n % 253) as u8).collect();
        store.put(&keys::pack_name(1, 2), &data).unwrap();
        let extent = |offset: u64, len: u32| {
            let bytes = data.get(offset as usize..offset as usize + len as usize).unwrap();
            Extent { session: 1, pack: 2, offset, len, checksum: crate::base::checksum::crc32c(bytes) }
        };
        let all = [extent(0, 5000), extent(5000, 10_000), extent(20_000, 7000)];
        let requests = |uuid: u8| {
            let mut objects = Objects::new(Arc::new(store.clone()), Rules::default());
            objects.set_cache(kept.clone(), [uuid; 16]);
            let before = store.counters()[0];
            for (extent, bytes) in all.iter().zip(objects.read_many(&all).unwrap()) {
                assert!(extent.is_of(&bytes.unwrap()) && extent.is_of(&objects.read(extent).unwrap()));
            }
            store.counters()[0] - before
        };
        assert_eq!((requests(1), requests(1), requests(2)), (1, 0, 1));
        kept.0.lock().values_mut().for_each(|bytes| bytes[0] ^= 1);
        assert_eq!((requests(1), requests(1)), (1, 0));
    }
}
