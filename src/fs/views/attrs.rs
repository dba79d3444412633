//! `.h5dir/attrs`: attributes as files of raw bytes.
//!
//! A group is a directory of its links and attributes, another object a directory of its
//! attributes. Written bytes go to a buffer in memory, which readers of the file see too. When a
//! descriptor is closed, or the file is synced, the attribute is set as a whole; until then, and if
//! its type and shape do not take so many bytes, it stays as it was. An attribute created here is a
//! list of bytes and takes any number of them.

use super::buffer::{Key, Part, WrittenParts, refused};
use super::bytes::{Bytes, Text};
use super::context::{Context, Effects};
use super::links::LinkView;
use super::view::{Child, Class, EditView, Extent, Inode, Item, View, Visit};
use crate::base::Result;
use crate::connector::edit::Edit;
use crate::connector::{Connector, ObjectId, ObjectKind};
use crate::fs::cut_names::Names;
use crate::fs::name::{file_name, file_name_escaped, unescape};
use crate::fs::types::{Errno, FsResult, OpenMode};
use crate::present;
use std::sync::Arc;

/// Positions of attributes in a directory begin here; those of links are smaller.
const FIRST_ATTRIBUTE: u64 = 1 << 61;

/// See the module's description.
pub struct Attrs;

/// Attributes as parts that are written as a whole.
struct Attribute;

impl Part for Attribute {
    const NOUN: &'static str = "attribute";

    fn stored(connector: &dyn Connector, (id, name): &Key) -> Result<Option<Vec<u8>>> {
        present::attribute_raw(connector, *id, name)
    }

    fn set(_connector: &dyn Connector, edit: &dyn Edit, (id, name): &Key, bytes: &[u8]) -> Result<()> {
        edit.set_attribute_bytes(*id, name, bytes)
    }
}

fn attribute(id: ObjectId, shown: Vec<u8>, name: &[u8]) -> Child {
    let link_name = (shown != name).then(|| name.into());
    Child { name: shown, item: Item::part_of(&Attrs, Class::File, id, name), link_name }
}

fn lookup_attribute(cx: &Context<'_>, id: ObjectId, name: &[u8]) -> Result<Option<Child>> {
    let all = cx.connector.attributes(id)?;
    let found = match unescape(name) {
        // Another spelling of a name is not its name.
        Some(n) if file_name(&n) != name && file_name_escaped(&n) != name => None,
        // They are sorted unless the object tracks their creation order.
        Some(n) => match all.binary_search_by(|a| a.as_slice().cmp(&n)) {
            Ok(i) => all.get(i).cloned(),
            Err(_) => all.iter().find(|a| **a == *n).cloned(),
        },
        None => {
            let mut visit = |f: &mut dyn FnMut(&[u8]) -> bool| {
                let _ = all.iter().all(|a| f(a));
                Ok(())
            };
            let show = |n: &[u8]| if file_name(n) == name { name.to_vec() } else { file_name_escaped(n) };
            cx.cut_names.find(Names::Attributes(id), name, &show, &mut visit)?
        }
    };
    Ok(found.map(|a| attribute(id, name.to_vec(), &a)))
}

fn list_attributes(cx: &Context<'_>, id: ObjectId, start: u64, f: Visit<'_>) -> Result<()> {
    let group = cx.connector.info(id).is_ok_and(|i| i.kind == ObjectKind::Group);
    let done = usize::try_from(start.saturating_sub(FIRST_ATTRIBUTE)).unwrap_or(usize::MAX);
    let all = cx.connector.attributes(id)?;
    for (i, a) in (1u64..).zip(all.iter()).skip(done) {
        let mut shown = file_name(a).into_owned();
        // A link of the same name comes first.
        if group && cx.connector.lookup(id, a)?.is_some() {
            let second = file_name_escaped(a);
            // Only a name that no link can have has no second form.
            if second == shown {
                continue;
            }
            shown = second;
        }
        if f(attribute(id, shown, a), FIRST_ATTRIBUTE.saturating_add(i)).is_break() {
            break;
        }
    }
    Ok(())
}

impl LinkView for Attrs {
    fn object(&'static self, _cx: &Context<'_>, _kind: ObjectKind, id: ObjectId) -> Option<Item> {
        Some(Item::object_of(self, Class::Directory, id))
    }

    fn group(&'static self, id: ObjectId) -> Item {
        Item::object_of(self, Class::Group, id)
    }

    fn map(&'static self, id: ObjectId) -> Option<Item> {
        Some(Item::object_of(self, Class::Directory, id))
    }
}

impl View for Attrs {
    fn name(&self) -> &'static str {
        "attrs"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("attrs/PATH/NAME", "raw bytes of an attribute")
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Attrs.group(group)
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        let item = dir.item();
        let Some(id) = item.object() else { return Ok(None) };
        let link = item.group().map_or(Ok(None), |group| Attrs.lookup_in(cx, dir, group, name))?;
        if link.is_some() { Ok(link) } else { lookup_attribute(cx, id, name) }
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        let item = dir.item();
        if let Some(group) = item.group().filter(|_| start < FIRST_ATTRIBUTE)
            && !Attrs.list_links(cx, dir, group, start, f)?
        {
            return Ok(());
        }
        item.object().map_or(Ok(()), |id| list_attributes(cx, id, start, f))
    }

    fn names_attributes(&self) -> bool {
        true
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        let Some((id, name)) = key(inode) else { return Ok(Extent::of(0)) };
        if let Some(len) = is_buffered(cx, inode).then(|| buffers(cx).len(&(id, name.clone()))).flatten() {
            return Ok(Extent::of(len));
        }
        Ok(Extent::of(present::attribute_raw(&**cx.connector, id, &name)?.map_or(0, |v| v.len() as u64)))
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let Some((id, name)) = key(&*inode) else { return Ok(None) };
        let bytes = present::attribute_raw(&**cx.connector, id, &name)?.unwrap_or_default();
        Ok(Some(match is_buffered(cx, &*inode) {
            true => Box::new(Buffered { at_open: Text(bytes), inode, buffers: buffers(cx), connector: cx.connector.clone() }),
            false => Box::new(Text(bytes)),
        }))
    }

    fn edit(&self) -> Option<&'static dyn EditView> {
        Some(&Attrs)
    }
}

/// An attribute's bytes in a container that can be changed.
struct Buffered {
    at_open: Text,
    inode: Arc<dyn Inode>,
    buffers: Arc<WrittenParts<Attribute>>,
    connector: Arc<dyn Connector>,
}

impl Bytes for Buffered {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(key) = key(&*self.inode) else { return Ok(0) };
        let stored = || present::attribute_raw(&*self.connector, key.0, &key.1).ok().flatten();
        self.buffers.read(&key, offset, buf, stored).map_or_else(|| self.at_open.read(offset, buf), Ok)
    }

    fn size(&self) -> Result<u64> {
        self.at_open.size()
    }
}

/// The attribute that `inode` stands for, by its present name.
fn key(inode: &dyn Inode) -> Option<Key> {
    let item = inode.item();
    Some((item.owner.filter(|_| item.is_part())?, inode.link_name()))
}

fn is_buffered(cx: &Context<'_>, inode: &dyn Inode) -> bool {
    cx.changing && inode.item().owner.is_some_and(|id| id.is_own())
}

fn buffers(cx: &Context<'_>) -> Arc<WrittenParts<Attribute>> {
    cx.buffers.get()
}

/// The attribute's name for the new file `name` in `dir`.
fn new_attribute(cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> FsResult<Vec<u8>> {
    let plain = unescape(name).filter(|n| !n.is_empty() && !n.contains(&0)).ok_or(Errno(libc::EINVAL))?.into_owned();
    // A link of the same name comes first.
    let taken = dir.item().group().is_some_and(|group| cx.connector.lookup(group, &plain).is_ok_and(|l| l.is_some()));
    let shown = if taken { file_name_escaped(&plain) } else { file_name(&plain).into_owned() };
    if shown == name { Ok(plain) } else { Err(Errno(libc::EINVAL)) }
}

impl EditView for Attrs {
    fn is_editable(&self, _item: &Item) -> bool {
        true
    }

    fn is_buffered(&self) -> bool {
        true
    }

    /// Buffered bytes may make no attribute: the page cache must not hold them.
    fn bypasses_page_cache(&self, mode: OpenMode) -> bool {
        mode.write
    }

    fn size(&self, cx: &Context<'_>, inode: &dyn Inode) -> FsResult<u64> {
        self.extent(cx, inode).map(|e| e.size).map_err(|e| cx.host.failed(inode.item().owner, &e))
    }

    fn write(&self, cx: &Context<'_>, inode: &dyn Inode, offset: u64, data: &[u8]) -> FsResult<Effects> {
        let key = key(inode).ok_or(Errno(libc::EBADF))?;
        // Bytes written to an attribute that was removed are lost, like those of an unlinked file.
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

    fn attribute_removed(&self, cx: &Context<'_>, id: ObjectId) {
        buffers(cx).removed(cx, id);
    }

    fn create(&self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8], _mode: OpenMode) -> FsResult<Effects> {
        let id = dir.item().object().ok_or(Errno(libc::EPERM))?;
        let edit = cx.connector.edit().ok_or(Errno(libc::EROFS))?;
        let plain = new_attribute(cx, dir, name)?;
        edit.set_attribute_bytes(id, &plain, &[]).map_err(|e| refused::<Attribute>(cx, &(id, plain), &e))?;
        Ok(Effects::attributes(id))
    }

    fn remove(&self, cx: &Context<'_>, _dir: &dyn Inode, child: &Child) -> FsResult<Effects> {
        let edit = cx.connector.edit().ok_or(Errno(libc::EROFS))?;
        let id = child.item.owner.ok_or(Errno(libc::EPERM))?;
        let name = child.link_name.as_deref().unwrap_or(&child.name);
        edit.remove_attribute(id, name).map_err(|e| refused::<Attribute>(cx, &(id, name.to_vec()), &e))?;
        Ok(Effects::attributes(id))
    }

    fn rename(
        &self,
        cx: &Context<'_>,
        dir: &dyn Inode,
        inode: &dyn Inode,
        name: &[u8],
        replaced: Option<&Item>,
    ) -> FsResult<Option<(Vec<u8>, Effects)>> {
        let edit = cx.connector.edit().ok_or(Errno(libc::EROFS))?;
        let (id, old) = key(inode).ok_or(Errno(libc::EPERM))?;
        let new = replaced.map_or_else(|| new_attribute(cx, dir, name), |item| Ok(item.key().to_vec()))?;
        if old == new {
            return Ok(None);
        }
        edit.rename_attribute(id, &old, &new, replaced.is_some()).map_err(|e| refused::<Attribute>(cx, &(id, old.clone()), &e))?;
        buffers(cx).renamed(id, old, new.clone());
        Ok(Some((new, Effects::attributes(id))))
    }
}
