//! Maps: a directory with a file for each pair. The name of a file is the text of its key, escaped
//! as names of links are; its bytes are the value.
//!
//! Written bytes go to a buffer in memory. When a descriptor is closed, or the file is synced, the
//! value is set as a whole; until then, and if it has another length than the type's, it stays as
//! it was.

use super::buffer::{Key, Part, WrittenParts, refused};
use super::bytes::{Bytes, Text};
use super::context::{Context, Effects};
use super::view::{Child, Class, EditView, Extent, Inode, Item, View, Visit};
use crate::base::Result;
use crate::connector::edit::Edit;
use crate::connector::{Connector, ObjectId};
use crate::fs::cut_names::Names;
use crate::fs::name::{file_name, unescape};
use crate::fs::types::{Errno, FsResult, OpenMode};
use crate::present::{self, MapEditor};
use std::ops::ControlFlow;
use std::sync::Arc;

/// See the module's description.
pub struct Map;

/// Values as parts that are written as a whole.
struct Value;

impl Part for Value {
    const NOUN: &'static str = "value";

    fn stored(connector: &dyn Connector, (id, text): &Key) -> Result<Option<Vec<u8>>> {
        present::map_value(connector, *id, text)
    }

    fn set(connector: &dyn Connector, edit: &dyn Edit, (id, text): &Key, bytes: &[u8]) -> Result<()> {
        MapEditor::new(connector, edit, *id)?.put(text, bytes)
    }
}

/// The directory of the map `id`.
pub fn directory(id: ObjectId) -> Item {
    Item::object_of(&Map, Class::Directory, id)
}

/// The file of the pair of the map `id` whose key has the text `text`.
fn pair(id: ObjectId, text: &[u8]) -> Child {
    let name = file_name(text).into_owned();
    let link_name = (name != text).then(|| text.into());
    Child { name, item: Item::part_of(&Map, Class::File, id, text), link_name }
}

/// The text of the key of the file `name`; `None`: no file has this name.
fn text_of(cx: &Context<'_>, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let show = |text: &[u8]| file_name(text).into_owned();
    match unescape(name) {
        // Another spelling of a name is not its name.
        Some(text) => Ok((show(&text) == name).then(|| text.into_owned())),
        None => {
            let mut visit = |f: &mut dyn FnMut(&[u8]) -> bool| {
                let mut take = |text: &[u8], _| if f(text) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
                present::map_keys(&**cx.connector, id, 0, &mut take)
            };
            cx.cut_names.find(Names::Links(id), name, &show, &mut visit)
        }
    }
}

/// The pair that `inode` stands for, by its present name.
fn key(inode: &dyn Inode) -> Option<Key> {
    let item = inode.item();
    Some((item.owner.filter(|_| item.is_part())?, inode.link_name()))
}

fn buffers(cx: &Context<'_>) -> Arc<WrittenParts<Value>> {
    cx.buffers.get()
}

impl View for Map {
    fn name(&self) -> &'static str {
        "map"
    }

    fn root(&'static self, group: ObjectId) -> Item {
        directory(group)
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        let Some(id) = dir.item().object() else { return Ok(None) };
        let Some(text) = text_of(cx, id, name)? else { return Ok(None) };
        Ok(present::map_value_len(&**cx.connector, id, &text)?.map(|_| pair(id, &text)))
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        let Some(id) = dir.item().object() else { return Ok(()) };
        present::map_keys(&**cx.connector, id, start, &mut |text, next| f(pair(id, text), next))
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        let Some(key) = key(inode) else { return Ok(Extent::of(0)) };
        if let Some(len) = buffers(cx).len(&key) {
            return Ok(Extent::of(len));
        }
        let len = present::map_value_len(&**cx.connector, key.0, &key.1)?.unwrap_or(0);
        Ok(Extent { allocated: len, ..Extent::of(len) })
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let Some(key) = key(&*inode) else { return Ok(None) };
        let at_open = Text(Value::stored(&**cx.connector, &key)?.unwrap_or_default());
        Ok(Some(match cx.changing {
            true => Box::new(Buffered { at_open, inode, buffers: buffers(cx), connector: cx.connector.clone() }),
            false => Box::new(at_open),
        }))
    }

    fn edit(&self) -> Option<&'static dyn EditView> {
        Some(&Map)
    }
}

/// A value in a container that can be changed.
struct Buffered {
    at_open: Text,
    inode: Arc<dyn Inode>,
    buffers: Arc<WrittenParts<Value>>,
    connector: Arc<dyn Connector>,
}

impl Bytes for Buffered {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(key) = key(&*self.inode).filter(|_| !self.inode.is_gone()) else { return self.at_open.read(offset, buf) };
        let stored = || Value::stored(&*self.connector, &key).ok().flatten();
        if let Some(n) = self.buffers.read(&key, offset, buf, stored) {
            return Ok(n);
        }
        match stored() {
            Some(bytes) => Text(bytes).read(offset, buf),
            None => self.at_open.read(offset, buf),
        }
    }

    fn size(&self) -> Result<u64> {
        self.at_open.size()
    }
}

fn editor<'a>(cx: &Context<'a>, id: ObjectId) -> FsResult<MapEditor<'a>> {
    let edit = cx.connector.edit().ok_or(Errno(libc::EROFS))?;
    MapEditor::new(&**cx.connector, edit, id).map_err(|e| cx.host.failed(Some(id), &e))
}

impl EditView for Map {
    fn is_editable(&self, _item: &Item) -> bool {
        true
    }

    fn is_object(&self, item: &Item) -> bool {
        item.object().is_some()
    }

    fn is_buffered(&self) -> bool {
        true
    }

    /// Buffered bytes may make no value: the page cache must not hold them.
    fn bypasses_page_cache(&self, mode: OpenMode) -> bool {
        mode.write
    }

    fn size(&self, cx: &Context<'_>, inode: &dyn Inode) -> FsResult<u64> {
        self.extent(cx, inode).map(|e| e.size).map_err(|e| cx.host.failed(inode.item().owner, &e))
    }

    fn write(&self, cx: &Context<'_>, inode: &dyn Inode, offset: u64, data: &[u8]) -> FsResult<Effects> {
        let key = key(inode).ok_or(Errno(libc::EBADF))?;
        // Bytes written to a pair that was removed are lost, like those of an unlinked file.
        let done = if inode.is_gone() { Ok(()) } else { buffers(cx).write(cx, &key, offset, data) };
        done.map(|()| Effects::default())
    }

    fn resize(&self, cx: &Context<'_>, inode: &dyn Inode, size: u64) -> FsResult<Effects> {
        let key = key(inode).ok_or(Errno(libc::EBADF))?;
        if inode.is_gone() { Ok(Effects::default()) } else { buffers(cx).resize(cx, &key, size) }
    }

    fn open_writer(&self, cx: &Context<'_>, inode: &dyn Inode) -> FsResult<()> {
        key(inode).into_iter().for_each(|key| buffers(cx).open(key));
        Ok(())
    }

    fn finish(&self, cx: &Context<'_>, inode: &dyn Inode) -> FsResult<Effects> {
        let key = key(inode).filter(|_| !inode.is_gone());
        key.map_or(Ok(Effects::default()), |key| buffers(cx).finish(cx, &key))
    }

    fn close_writer(&self, cx: &Context<'_>, inode: &dyn Inode) -> Effects {
        key(inode).map_or_else(Effects::default, |key| buffers(cx).close(cx, &key, inode.is_gone()))
    }

    fn create(&self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8], _mode: OpenMode) -> FsResult<Effects> {
        let id = dir.item().object().ok_or(Errno(libc::EPERM))?;
        let text = unescape(name).filter(|text| file_name(text) == name).ok_or(Errno(libc::EINVAL))?.into_owned();
        let key = (id, text);
        editor(cx, id)?.create(&key.1).map_err(|e| refused::<Value>(cx, &key, &e))?;
        buffers(cx).created(key);
        Ok(Effects::links(id, None))
    }

    fn remove(&self, cx: &Context<'_>, _dir: &dyn Inode, child: &Child) -> FsResult<Effects> {
        let id = child.item.owner.ok_or(Errno(libc::EPERM))?;
        let key = (id, child.item.key().to_vec());
        editor(cx, id)?.remove(&key.1).map_err(|e| refused::<Value>(cx, &key, &e))?;
        Ok(Effects::links(id, None))
    }

    fn rename(
        &self,
        cx: &Context<'_>,
        _dir: &dyn Inode,
        inode: &dyn Inode,
        name: &[u8],
        replaced: Option<&Item>,
    ) -> FsResult<Option<(Vec<u8>, Effects)>> {
        let (id, old) = key(inode).ok_or(Errno(libc::EPERM))?;
        let new = match replaced {
            Some(item) => item.key().to_vec(),
            None => unescape(name).filter(|text| file_name(text) == name).ok_or(Errno(libc::EINVAL))?.into_owned(),
        };
        if old == new {
            return Ok(None);
        }
        editor(cx, id)?.rename(&old, &new, replaced.is_some()).map_err(|e| refused::<Value>(cx, &(id, new.clone()), &e))?;
        buffers(cx).renamed(id, old, new.clone());
        Ok(Some((new, Effects::links(id, None))))
    }
}
