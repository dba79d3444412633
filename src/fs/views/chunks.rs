//! `.h5dir/chunks`: a dataset is a directory of its stored chunks, named by their scaled
//! coordinates.

use super::bytes::Bytes;
use super::context::Context;
use super::links::LinkView;
use super::object;
use super::view::{Child, Class, Extent, Inode, Item, View, Visit};
use crate::base::Result;
use crate::connector::{Chunks as StoredChunks, ObjectId, ObjectKind};
use std::sync::Arc;

/// See the module's description.
pub struct Chunks;

/// The coordinates that the file name `name` stands for.
fn coordinates(name: &[u8]) -> Option<Vec<u64>> {
    let parse = |part: &[u8]| {
        let text = std::str::from_utf8(part).ok()?;
        let n: u64 = text.parse().ok()?;
        // One spelling per chunk: no sign, no leading zero.
        (n.to_string() == text).then_some(n)
    };
    name.split(|b| *b == b'.').map(parse).collect()
}

/// The chunk that `inode` stands for, and its dataset's chunks.
fn chunk(cx: &Context<'_>, inode: &dyn Inode) -> Result<Option<Chunk>> {
    let item = inode.item();
    let (Some(id), Some(scaled)) = (item.owner.filter(|_| item.is_part()), coordinates(item.key())) else { return Ok(None) };
    Ok(cx.connector.chunks(id)?.map(|chunks| Chunk { chunks, scaled }))
}

fn file(id: ObjectId, name: Vec<u8>) -> Child {
    let item = Item::part_of(&Chunks, Class::File, id, &name);
    Child { name, item, link_name: None }
}

impl LinkView for Chunks {
    fn object(&'static self, _cx: &Context<'_>, kind: ObjectKind, id: ObjectId) -> Option<Item> {
        Some(if kind == ObjectKind::Dataset { Item::object_of(self, Class::Directory, id) } else { object::other(id) })
    }

    fn group(&'static self, id: ObjectId) -> Item {
        Item::object_of(self, Class::Group, id)
    }
}

impl View for Chunks {
    fn name(&self) -> &'static str {
        "chunks"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("chunks/PATH/I.J.K", "stored bytes of the chunk with these coordinates")
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Chunks.group(group)
    }

    fn names_parts_of_bytes(&self) -> bool {
        true
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        let item = dir.item();
        if let Some(group) = item.group() {
            return Chunks.lookup_in(cx, dir, group, name);
        }
        let Some(id) = item.object() else { return Ok(None) };
        let (Some(chunks), Some(scaled)) = (cx.connector.chunks(id)?, coordinates(name)) else { return Ok(None) };
        if scaled.len() != chunks.rank() || chunks.stored_len(&scaled)?.is_none() {
            return Ok(None);
        }
        Ok(Some(file(id, name.to_vec())))
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        let item = dir.item();
        if let Some(group) = item.group() {
            return Chunks.list_links(cx, dir, group, start, f).map(drop);
        }
        let Some(id) = item.object() else { return Ok(()) };
        let Some(chunks) = cx.connector.chunks(id)? else { return Ok(()) };
        chunks.list(start, &mut |scaled, _, next| {
            let name: Vec<String> = scaled.iter().map(u64::to_string).collect();
            f(file(id, name.join(".").into_bytes()), next)
        })
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        let size = chunk(cx, inode)?.map_or(Ok(0), |chunk| chunk.size())?;
        Ok(Extent { allocated: size, ..Extent::of(size) })
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        Ok(chunk(cx, &*inode)?.map(|chunk| Box::new(chunk) as _))
    }
}

/// The stored bytes of a chunk.
struct Chunk {
    chunks: Arc<dyn StoredChunks>,
    scaled: Vec<u64>,
}

impl Bytes for Chunk {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.chunks.read(&self.scaled, offset, buf)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.chunks.stored_len(&self.scaled)?.unwrap_or(0))
    }
}
