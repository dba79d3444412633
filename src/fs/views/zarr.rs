//! `.h5dir/zarr`, `.h5dir/zarr2`: the container as a Zarr hierarchy of version 3, and of version 2.
//!
//! Groups and arrays are directories with their documents. Links that lead to a group further up
//! are not shown, so that walks end. A link with the name of a document has an escaped name.

use super::bytes::{Bytes, Text, copy};
use super::context::Context;
use super::links::LinkView;
use super::view::{Child, Class, Extent, Inode, Item, Owned, View, Visit};
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::base::{Error, Result};
use crate::connector::{Connector, ObjectId, ObjectKind};
use crate::fs::name::{file_name, file_name_escaped};
use crate::present::{self, ChunkBytes, NOT_COORDINATES, PhonyDimensions, ZarrArray, ZarrFormat};
use lru::LruCache;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Arrays that are kept open.
const ARRAYS_MAX: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Longest chunk that was made and is kept, bytes.
const MADE_BYTES_MAX: usize = 16 << 20;
/// Positions of documents in directories of groups begin here; those of links are smaller.
const FIRST_DOCUMENT: u64 = 1 << 62;
/// Position of `.zmetadata` in the directory of the mounted group.
const AFTER_DOCUMENTS: u64 = FIRST_DOCUMENT + 16;
/// All documents of version 2 in one.
const CONSOLIDATED: &[u8] = b".zmetadata";
/// Key of `zarr.json` of the mounted group.
const ROOT_DOCUMENT: &[u8] = b"/zarr.json";
/// Depth of the directory of the mounted group.
const ROOT_DEPTH: usize = 2;
/// The directory of the chunks of version 3.
const CHUNKS: &[u8] = b"c";

/// A view of a version of the format.
pub struct Zarr {
    name: &'static str,
    format: ZarrFormat,
    /// Documents of a group.
    of_group: &'static [&'static str],
    /// Documents of an array.
    of_array: &'static [&'static str],
}

/// Version 3.
pub static ZARR: Zarr = Zarr { name: "zarr", format: ZarrFormat::V3, of_group: &["zarr.json"], of_array: &["zarr.json"] };
/// Version 2.
pub static ZARR2: Zarr =
    Zarr { name: "zarr2", format: ZarrFormat::V2, of_group: &[".zgroup", ".zattrs"], of_array: &[".zarray", ".zattrs"] };

/// The last chunk that was made as a whole.
type Made = (ObjectId, ZarrFormat, Vec<u64>, Arc<Vec<u8>>);

/// What is kept of a state of a container that the mount does not change.
struct Kept {
    state: Mutex<u64>,
    arrays: Mutex<LruCache<(ObjectId, ZarrFormat), Arc<ZarrArray>>>,
    made: Mutex<Option<Made>>,
    /// `.zmetadata` of a group, or its `zarr.json` with all others, if it has one.
    consolidated: Mutex<HashMap<(ObjectId, ZarrFormat), Option<Arc<Vec<u8>>>>>,
    phony: Mutex<Option<Arc<PhonyDimensions>>>,
}

impl Default for Kept {
    fn default() -> Self {
        Kept {
            state: Mutex::new(0),
            arrays: Mutex::new(lru_cache(ARRAYS_MAX)),
            made: Mutex::default(),
            consolidated: Mutex::default(),
            phony: Mutex::default(),
        }
    }
}

/// What is kept of the state that is shown; `None`: the mount changes the container.
fn kept(cx: &Context<'_>) -> Option<Arc<Kept>> {
    if cx.changing {
        return None;
    }
    let (kept, now) = (cx.buffers.get::<Kept>(), cx.connector.follow().map_or(0, |follow| follow.state()));
    let mut state = kept.state.lock();
    if *state != now {
        kept.arrays.lock().clear();
        kept.consolidated.lock().clear();
        (*kept.made.lock(), *kept.phony.lock()) = (None, None);
        *state = now;
    }
    drop(state);
    Some(kept)
}

/// The names of dimensions without scales; `None`: the mount changes the container.
fn phony(cx: &Context<'_>) -> Option<Arc<PhonyDimensions>> {
    let kept = kept(cx)?;
    let known = kept.phony.lock().clone();
    Some(known.unwrap_or_else(|| {
        let found = Arc::new(PhonyDimensions::of(&**cx.connector));
        *kept.phony.lock() = Some(found.clone());
        found
    }))
}

/// The coordinate in a name: one spelling for each, without sign or leading zero.
fn coordinate(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let n: u64 = text.parse().ok()?;
    (n.to_string() == text).then_some(n)
}

/// True for names of documents.
fn is_reserved(name: &[u8]) -> bool {
    matches!(name, b"zarr.json" | b".zgroup" | b".zarray" | b".zattrs" | b".zmetadata")
}

/// Key of the document `name` in the directory `dir` of a group: that of the mounted group may have
/// all documents.
fn document_key<'a>(dir: &dyn Inode, name: &'a [u8]) -> &'a [u8] {
    if name == b"zarr.json" && dir.depth() == ROOT_DEPTH { ROOT_DOCUMENT } else { name }
}

/// Name in a hierarchy of what the link `link_name` leads to.
pub fn name_of_node(link_name: &[u8]) -> Vec<u8> {
    if is_reserved(link_name) { file_name_escaped(link_name) } else { file_name(link_name).into_owned() }
}

/// The array `id`, which is there.
fn open_array(connector: &Arc<dyn Connector>, id: ObjectId, format: ZarrFormat) -> Result<Arc<ZarrArray>> {
    let array = ZarrArray::open(connector, id, format, false)?;
    array.map(Arc::new).ok_or_else(|| Error::refused(libc::ENOENT, "the dataset is no array of Zarr"))
}

impl Zarr {
    fn array(&self, cx: &Context<'_>, id: ObjectId) -> Result<Arc<ZarrArray>> {
        let Some(kept) = kept(cx) else { return open_array(cx.connector, id, self.format) };
        let key = (id, self.format);
        if let Some(array) = kept.arrays.lock().get(&key) {
            return Ok(array.clone());
        }
        let array = open_array(cx.connector, id, self.format)?;
        kept.arrays.lock().put(key, array.clone());
        Ok(array)
    }

    fn file(&'static self, id: ObjectId, key: &[u8], name: &[u8]) -> Child {
        Child { name: name.to_vec(), item: Item::part_of(self, Class::File, id, key), link_name: None }
    }

    fn directory(&'static self, id: ObjectId, key: &[u8], name: &[u8]) -> Child {
        Child { name: name.to_vec(), item: Item::part_of(self, Class::Directory, id, key), link_name: None }
    }

    /// The coordinates of the chunk, or of the directory of chunks, whose key is `key`.
    fn coordinates(&self, key: &[u8]) -> Option<Vec<u64>> {
        match self.format {
            ZarrFormat::V3 if key == CHUNKS => Some(Vec::new()),
            ZarrFormat::V3 => key.strip_prefix(b"c/")?.split(|b| *b == b'/').map(coordinate).collect(),
            ZarrFormat::V2 => key.split(|b| *b == b'.').map(coordinate).collect(),
        }
    }

    /// The key of a chunk, or of a directory of chunks.
    fn key_of(&self, chunk: &[u64]) -> Vec<u8> {
        let texts: Vec<String> = chunk.iter().map(u64::to_string).collect();
        match self.format {
            ZarrFormat::V3 => std::iter::once("c".to_owned()).chain(texts).collect::<Vec<_>>().join("/").into_bytes(),
            ZarrFormat::V2 if texts.is_empty() => b"0".to_vec(),
            ZarrFormat::V2 => texts.join(".").into_bytes(),
        }
    }

    /// The coordinates of the chunk whose key is `key` in `array`.
    fn chunk_of(&self, array: &ZarrArray, key: &[u8]) -> Option<Vec<u64>> {
        // An array without dimensions has one chunk.
        if array.rank() == 0 && key == self.key_of(&[]) {
            return Some(Vec::new());
        }
        self.coordinates(key).filter(|chunk| chunk.len() == array.rank())
    }

    /// `.zmetadata` of the mounted group `group`, or its `zarr.json` with all others; `None`: it
    /// has none, or a part of it cannot be read. Only of a mount that changes nothing: the whole
    /// container is read.
    fn consolidated(&self, cx: &Context<'_>, group: ObjectId) -> Option<Arc<Vec<u8>>> {
        let (kept, key) = (kept(cx)?, (group, self.format));
        if let Some(text) = kept.consolidated.lock().get(&key) {
            return text.clone();
        }
        // Of a damaged hierarchy, readers look for the documents one by one.
        let made = present::consolidated_document(cx.connector, group, self.format, name_of_node, &|| phony(cx));
        let text = made.ok().flatten().map(Arc::new);
        kept.consolidated.lock().insert(key, text.clone());
        text
    }

    /// How a link of `group` is shown; `None`: not at all.
    fn shown(cx: &Context<'_>, group: ObjectId, child: Child) -> Option<Child> {
        if child.item.class == Class::Symlink {
            return None;
        }
        if !is_reserved(&child.name) && !child.name.starts_with(NOT_COORDINATES) {
            return Some(child);
        }
        let link_name = child.link_name.unwrap_or_else(|| child.name.clone().into());
        let name = name_of_node(present::variable_name(&**cx.connector, group, &link_name));
        Some(Child { name, link_name: Some(link_name), item: child.item })
    }

    /// The child of a directory of chunks, or of an array, that continues `prefix` by `n`.
    fn part(&'static self, array: &ZarrArray, id: ObjectId, prefix: &[u64], n: u64) -> Result<Option<Child>> {
        let chunk = [prefix, &[n]].concat();
        let (key, name) = (self.key_of(&chunk), n.to_string());
        if chunk.len() == array.rank() {
            return Ok(array.has_chunk(&chunk)?.then(|| self.file(id, &key, name.as_bytes())));
        }
        let begins = next_below(array, &chunk)?.is_some();
        Ok(begins.then(|| self.directory(id, &key, name.as_bytes())))
    }

    /// A child of the directory of an array.
    fn lookup_in_array(&'static self, cx: &Context<'_>, id: ObjectId, name: &[u8]) -> Result<Option<Child>> {
        if self.of_array.iter().any(|document| document.as_bytes() == name) {
            return Ok(Some(self.file(id, name, name)));
        }
        let array = self.array(cx, id)?;
        if self.format == ZarrFormat::V3 && array.rank() > 0 {
            let there = name == CHUNKS && next_below(&array, &[])?.is_some();
            return Ok(there.then(|| self.directory(id, CHUNKS, CHUNKS)));
        }
        let Some(chunk) = self.chunk_of(&array, name) else { return Ok(None) };
        Ok(array.has_chunk(&chunk)?.then(|| self.file(id, name, name)))
    }

    /// Children of the directory of an array.
    fn list_array(&'static self, cx: &Context<'_>, id: ObjectId, start: u64, f: Visit<'_>) -> Result<()> {
        for (next, name) in (1..).zip(self.of_array).filter(|(next, _)| *next > start) {
            if f(self.file(id, name.as_bytes(), name.as_bytes()), next).is_break() {
                return Ok(());
            }
        }
        let array = self.array(cx, id)?;
        let documents = self.of_array.len() as u64;
        if self.format == ZarrFormat::V3 {
            let child = if start <= documents { self.lookup_in_array(cx, id, CHUNKS)? } else { None };
            let _ = child.map(|child| f(child, documents.saturating_add(1)));
            return Ok(());
        }
        let mut from = array.chunk_at(start.saturating_sub(documents));
        while let Some(chunk) = from.map(|from| array.next_chunk(&from)).transpose()?.flatten() {
            let Some(number) = array.number_of(&chunk) else { break };
            let (key, next) = (self.key_of(&chunk), number.saturating_add(1));
            if f(self.file(id, &key, &key), documents.saturating_add(next)).is_break() {
                break;
            }
            from = array.chunk_at(next);
        }
        Ok(())
    }

    /// Children of the directory of the chunks that begin with `prefix`.
    fn list_chunks(&'static self, cx: &Context<'_>, id: ObjectId, prefix: &[u64], start: u64, f: Visit<'_>) -> Result<()> {
        let array = self.array(cx, id)?;
        let mut from = start;
        while let Some(n) = next_in(&array, prefix, from)? {
            let chunk = [prefix, &[n]].concat();
            let (key, name) = (self.key_of(&chunk), n.to_string());
            let is_chunk = chunk.len() == array.rank();
            let child = if is_chunk { self.file(id, &key, name.as_bytes()) } else { self.directory(id, &key, name.as_bytes()) };
            from = n.saturating_add(1);
            if f(child, from).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The document `key` of an object; `None`: it is no document.
    fn document(&self, cx: &Context<'_>, id: ObjectId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let is_array = cx.connector.info(id)?.kind == ObjectKind::Dataset;
        Ok(Some(match key {
            b"zarr.json" | b".zarray" if is_array => present::array_document(&*self.array(cx, id)?, &|| phony(cx))?,
            ROOT_DOCUMENT => match self.consolidated(cx, id) {
                Some(text) => text.to_vec(),
                None => present::group_document(&**cx.connector, id, self.format)?,
            },
            b"zarr.json" | b".zgroup" => present::group_document(&**cx.connector, id, self.format)?,
            b".zattrs" if is_array => present::attributes_document(&**cx.connector, id, Some(&*self.array(cx, id)?), &|| phony(cx))?,
            b".zattrs" => present::attributes_document(&**cx.connector, id, None, &|| None)?,
            b".zmetadata" => self.consolidated(cx, id).map_or_else(Vec::new, |text| text.to_vec()),
            _ => return Ok(None),
        }))
    }

    /// The bytes of a chunk, those that are made from what is kept.
    fn chunk(&self, cx: &Context<'_>, array: &ZarrArray, id: ObjectId, chunk: &[u64]) -> Result<Option<Source>> {
        let kept = kept(cx);
        if let Some(kept) = &kept
            && let Some((of, format, at, bytes)) = &*kept.made.lock()
            && (*of, *format, at.as_slice()) == (id, self.format, chunk)
        {
            return Ok(Some(Source::Made(bytes.clone())));
        }
        Ok(array.chunk(chunk)?.map(|bytes| match bytes {
            ChunkBytes::Readable(len) => Source::Readable(len),
            ChunkBytes::Made(bytes) => {
                let bytes = Arc::new(bytes);
                if let Some(kept) = kept.filter(|_| bytes.len() <= MADE_BYTES_MAX) {
                    *kept.made.lock() = Some((id, self.format, chunk.to_vec(), bytes.clone()));
                }
                Source::Made(bytes)
            }
        }))
    }
}

/// The first chunk that begins with `prefix`.
fn next_below(array: &ZarrArray, prefix: &[u64]) -> Result<Option<Vec<u64>>> {
    let mut from = prefix.to_vec();
    from.resize(array.rank().max(prefix.len()), 0);
    Ok(array.next_chunk(&from)?.filter(|chunk| chunk.starts_with(prefix)))
}

/// The first coordinate from `from` on by which a chunk continues `prefix`.
fn next_in(array: &ZarrArray, prefix: &[u64], from: u64) -> Result<Option<u64>> {
    let mut first = [prefix, &[from]].concat();
    first.resize(array.rank().max(first.len()), 0);
    let next = array.next_chunk(&first)?.filter(|chunk| chunk.starts_with(prefix));
    Ok(next.and_then(|chunk| chunk.get(prefix.len()).copied()))
}

/// Where the bytes of an open chunk come from.
enum Source {
    Readable(u64),
    Made(Arc<Vec<u8>>),
}

impl LinkView for Zarr {
    fn object(&'static self, cx: &Context<'_>, kind: ObjectKind, id: ObjectId) -> Option<Item> {
        if kind != ObjectKind::Dataset || present::is_dimension_only(&**cx.connector, id).unwrap_or(false) {
            return None;
        }
        // A damaged one has a directory, whose documents cannot be read.
        let is_none = matches!(ZarrArray::open(cx.connector, id, self.format, false), Ok(None));
        (!is_none).then(|| Item::object_of(self, Class::Directory, id))
    }

    fn group(&'static self, id: ObjectId) -> Item {
        Item::object_of(self, Class::Group, id)
    }
}

impl View for Zarr {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> (&'static str, &'static str) {
        match self.format {
            ZarrFormat::V3 => ("zarr/", "the group as a Zarr hierarchy of version 3"),
            ZarrFormat::V2 => ("zarr2/", "the group as a Zarr hierarchy of version 2"),
        }
    }

    fn root(&'static self, group: ObjectId) -> Item {
        self.group(group)
    }

    /// `.zmetadata` has the attributes of all objects.
    fn owned(&self, _cx: &Context<'_>, item: &Item) -> Option<Owned> {
        (item.key() == CONSOLIDATED).then_some(Owned { by: None, mode: 0o400 })
    }

    fn names_parts_of_bytes(&self) -> bool {
        true
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        let item = dir.item();
        if let Some(group) = item.group() {
            if self.of_group.iter().any(|document| document.as_bytes() == name) {
                return Ok(Some(self.file(group, document_key(dir, name), name)));
            }
            if name == CONSOLIDATED && self.format == ZarrFormat::V2 && dir.depth() == ROOT_DEPTH {
                return Ok(self.consolidated(cx, group).map(|_| self.file(group, name, name)));
            }
            let found = self.lookup_shown(cx, dir, group, name, &name_of_node)?;
            if let Some(child) = found.and_then(|child| Self::shown(cx, group, child)) {
                return Ok(Some(child).filter(|child| child.name == name));
            }
            let stored = [NOT_COORDINATES, name].concat();
            let found = self.lookup_shown(cx, dir, group, &stored, &name_of_node)?;
            return Ok(found.and_then(|child| Self::shown(cx, group, child)).filter(|child| child.name == name));
        }
        if let Some(id) = item.object() {
            return self.lookup_in_array(cx, id, name);
        }
        let (Some(id), Some(prefix), Some(n)) = (item.owner, self.coordinates(item.key()), coordinate(name)) else { return Ok(None) };
        self.part(&*self.array(cx, id)?, id, &prefix, n)
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        let item = dir.item();
        let Some(group) = item.group() else {
            return match (item.object(), item.owner, self.coordinates(item.key())) {
                (Some(id), ..) => self.list_array(cx, id, start, f),
                (None, Some(id), Some(prefix)) => self.list_chunks(cx, id, &prefix, start, f),
                _ => Ok(()),
            };
        };
        let mut take = |child, next| Self::shown(cx, group, child).map_or(ControlFlow::Continue(()), |child| f(child, next));
        if start < FIRST_DOCUMENT && !self.list_links(cx, dir, group, start, &mut take)? {
            return Ok(());
        }
        for (next, name) in (FIRST_DOCUMENT.saturating_add(1)..).zip(self.of_group).filter(|(next, _)| *next > start) {
            if f(self.file(group, document_key(dir, name.as_bytes()), name.as_bytes()), next).is_break() {
                return Ok(());
            }
        }
        if start < AFTER_DOCUMENTS && self.format == ZarrFormat::V2 && dir.depth() == ROOT_DEPTH && self.consolidated(cx, group).is_some() {
            let _ = f(self.file(group, CONSOLIDATED, CONSOLIDATED), AFTER_DOCUMENTS);
        }
        Ok(())
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        let item = inode.item();
        let Some(id) = item.owner.filter(|_| item.is_part()) else { return Ok(Extent::of(0)) };
        let size = match self.document(cx, id, item.key())? {
            Some(text) => text.len() as u64,
            None => {
                let array = self.array(cx, id)?;
                let Some(chunk) = self.chunk_of(&array, item.key()) else { return Ok(Extent::of(0)) };
                match self.chunk(cx, &array, id, &chunk)? {
                    Some(Source::Readable(len)) => len,
                    Some(Source::Made(bytes)) => bytes.len() as u64,
                    None => 0,
                }
            }
        };
        Ok(Extent { allocated: size, ..Extent::of(size) })
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let item = inode.item();
        let Some(id) = item.owner.filter(|_| item.is_part()) else { return Ok(None) };
        if let Some(text) = self.document(cx, id, item.key())? {
            return Ok(Some(Box::new(Text(text))));
        }
        let array = self.array(cx, id)?;
        let Some(chunk) = self.chunk_of(&array, item.key()) else { return Ok(None) };
        let source = self.chunk(cx, &array, id, &chunk)?.unwrap_or(Source::Readable(0));
        let file = Chunk { connector: cx.connector.clone(), id, format: self.format, chunk, array, source };
        Ok(Some(if cx.changing { Box::new(LiveChunk(file)) } else { Box::new(file) }))
    }
}

/// An open chunk.
struct Chunk {
    connector: Arc<dyn Connector>,
    id: ObjectId,
    format: ZarrFormat,
    chunk: Vec<u64>,
    array: Arc<ZarrArray>,
    source: Source,
}

impl Bytes for Chunk {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match &self.source {
            Source::Readable(_) => self.array.read(&self.chunk, offset, buf),
            Source::Made(bytes) => Ok(copy(bytes, offset, buf)),
        }
    }

    fn size(&self) -> Result<u64> {
        Ok(match &self.source {
            Source::Readable(len) => *len,
            Source::Made(bytes) => bytes.len() as u64,
        })
    }
}

/// An open chunk of a container that is changed: as it is at each request.
struct LiveChunk(Chunk);

impl LiveChunk {
    fn now(&self) -> Result<(Arc<ZarrArray>, Option<ChunkBytes>)> {
        let array = open_array(&self.0.connector, self.0.id, self.0.format)?;
        let bytes = array.chunk(&self.0.chunk)?;
        Ok((array, bytes))
    }
}

impl Bytes for LiveChunk {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self.now()? {
            (array, Some(ChunkBytes::Readable(_))) => array.read(&self.0.chunk, offset, buf),
            (_, Some(ChunkBytes::Made(bytes))) => Ok(copy(&bytes, offset, buf)),
            (_, None) => Ok(0),
        }
    }

    fn size(&self) -> Result<u64> {
        Ok(match self.now()?.1 {
            Some(ChunkBytes::Readable(len)) => len,
            Some(ChunkBytes::Made(bytes)) => bytes.len() as u64,
            None => 0,
        })
    }
}
