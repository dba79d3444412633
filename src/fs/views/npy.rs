//! `.h5dir/npy`: datasets as numpy files, a header and then the elements.

mod writing;

use super::bytes::{Bytes, Elements};
use super::context::{Context, Effects};
use super::elements::dataset_extent;
use super::links::{LinkView, new_link_name};
use super::object;
use super::view::{Child, Class, EditView, Extent, Inode, Item, NumberSpace, View, Visit};
use crate::base::Result;
use crate::connector::{Connector, Form, LinkTarget, ObjectId, ObjectKind};
use crate::fs::errno::errno;
use crate::fs::types::{Errno, FsResult, OpenMode};
use crate::present;
use std::sync::Arc;
use writing::{Writer, Writings};

/// Suffix of the files.
const SUFFIX: &[u8] = b".npy";

/// See the module's description.
pub struct Npy;

fn header(connector: &dyn Connector, id: ObjectId) -> Result<Vec<u8>> {
    Ok(present::npy_header(connector, id)?.unwrap_or_default())
}

fn leads_to_group(cx: &Context<'_>, from: ObjectId, target: LinkTarget) -> bool {
    let id = match target {
        LinkTarget::Hard(id) => Some(id),
        LinkTarget::Soft(path) => cx.connector.resolve(from, &path).ok().flatten(),
        LinkTarget::External { .. } | LinkTarget::UserDefined(_) => None,
    };
    id.and_then(|id| cx.connector.info(id).ok()).is_some_and(|info| info.kind == ObjectKind::Group)
}

impl LinkView for Npy {
    fn object(&'static self, cx: &Context<'_>, kind: ObjectKind, id: ObjectId) -> Option<Item> {
        match kind {
            ObjectKind::Dataset if matches!(present::npy_header(&**cx.connector, id), Ok(None)) => None,
            ObjectKind::Dataset => Some(Item::object_of(self, Class::Dataset, id)),
            _ => Some(object::other(id)),
        }
    }

    fn group(&'static self, id: ObjectId) -> Item {
        Item::object_of(self, Class::Group, id)
    }

    fn suffix(&self) -> &'static [u8] {
        SUFFIX
    }
}

impl View for Npy {
    fn name(&self) -> &'static str {
        "npy"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("npy/PATH.npy", "the dataset for numpy")
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Npy.group(group)
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        dir.item().group().map_or(Ok(None), |group| Npy.lookup_in(cx, dir, group, name))
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        dir.item().group().map_or(Ok(()), |group| Npy.list_links(cx, dir, group, start, f).map(drop))
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        let Some(id) = inode.item().dataset() else { return Ok(Extent::of(0)) };
        if let Some(len) = writings(cx, id).and_then(|w| w.len(id)) {
            return Ok(Extent::of(len));
        }
        let elements = dataset_extent(cx, id, Form::Exact)?;
        let header = present::npy_header(&**cx.connector, id)?.map_or(0, |h| h.len() as u64);
        Ok(Extent { size: elements.size.saturating_add(header), ..elements })
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let Some(id) = inode.item().dataset() else { return Ok(None) };
        let stored = Elements::open(cx.connector, id, Form::Exact, cx.changing, Some(header))?;
        Ok(Some(match writings(cx, id) {
            Some(writings) => Box::new(Buffered { stored, id, writings, connector: cx.connector.clone() }),
            None => Box::new(stored),
        }))
    }

    fn number_space(&self, item: &Item) -> Option<NumberSpace> {
        (item.class == Class::Dataset).then_some(NumberSpace::Npy)
    }

    fn edit(&self) -> Option<&'static dyn EditView> {
        Some(&Npy)
    }
}

/// A file in a container that can be changed: as it was written while it has writers.
struct Buffered {
    stored: Elements,
    id: ObjectId,
    writings: Arc<Writings>,
    connector: Arc<dyn Connector>,
}

impl Bytes for Buffered {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self.writings.read(&*self.connector, self.id, offset, buf) {
            Some(read) => read,
            None => self.stored.read(offset, buf),
        }
    }

    fn size(&self) -> Result<u64> {
        self.stored.size()
    }

    fn seek(&self, offset: u64, what: crate::connector::Seek) -> Result<Option<u64>> {
        self.stored.seek(offset, what)
    }
}

/// Files that are being written, where `id` can be.
fn writings(cx: &Context<'_>, id: ObjectId) -> Option<Arc<Writings>> {
    (cx.changing && id.is_own()).then(|| cx.buffers.get())
}

/// The writer of `inode`, in a container that can be changed.
fn writer<'a>(cx: &'a Context<'a>, inode: &dyn Inode) -> FsResult<Writer<'a>> {
    let id = inode.item().dataset().filter(|id| id.is_own()).ok_or(Errno(libc::EBADF))?;
    let edit = cx.connector.edit().ok_or(Errno(libc::EROFS))?;
    Ok(Writer { cx, edit, id, writings: cx.buffers.get() })
}

impl EditView for Npy {
    fn is_editable(&self, item: &Item) -> bool {
        matches!(item.class, Class::Group | Class::Dataset)
    }

    fn is_buffered(&self) -> bool {
        true
    }

    fn size(&self, cx: &Context<'_>, inode: &dyn Inode) -> FsResult<u64> {
        self.extent(cx, inode).map(|e| e.size).map_err(|e| cx.host.failed(inode.item().owner, &e))
    }

    fn write(&self, cx: &Context<'_>, inode: &dyn Inode, offset: u64, data: &[u8]) -> FsResult<Effects> {
        writer(cx, inode)?.write(offset, data)
    }

    fn resize(&self, cx: &Context<'_>, inode: &dyn Inode, size: u64) -> FsResult<Effects> {
        writer(cx, inode)?.resize(size)
    }

    fn open_writer(&self, cx: &Context<'_>, inode: &dyn Inode) -> FsResult<()> {
        writer(cx, inode)?.open()
    }

    fn finish(&self, cx: &Context<'_>, inode: &dyn Inode) -> FsResult<Effects> {
        writer(cx, inode).map_or_else(|_| Ok(Effects::default()), |w| w.finish())
    }

    fn unlinked_by_close(&self, cx: &Context<'_>, inode: &dyn Inode) -> Option<ObjectId> {
        let id = inode.item().dataset()?;
        writings(cx, id)?.new_file_in(id)
    }

    fn close_writer(&self, cx: &Context<'_>, inode: &dyn Inode) -> Effects {
        writer(cx, inode).map_or_else(|_| Effects::default(), |w| w.close())
    }

    fn create(&self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8], mode: OpenMode) -> FsResult<Effects> {
        let group = dir.item().group().ok_or(Errno(libc::EPERM))?;
        // Without a writer the file would never get a header.
        let stem = name.strip_suffix(SUFFIX).filter(|_| mode.write);
        let link = stem.and_then(|stem| new_link_name(dir, stem)).ok_or(Errno(libc::EINVAL))?;
        let edit = cx.connector.edit().ok_or(Errno(libc::EROFS))?;
        if let Some(there) = cx.connector.lookup(group, &link).map_err(|e| cx.host.failed(Some(group), &e))? {
            // This view does not show the link: its object has no numpy notation.
            return Err(Errno(if leads_to_group(cx, group, there.target) { libc::EISDIR } else { libc::EEXIST }));
        }
        let id = edit.create_file(group, &link).map_err(|e| errno(&e))?;
        cx.buffers.get::<Writings>().created(id, group, link);
        Ok(Effects::links(group, None))
    }

    fn remove(&self, cx: &Context<'_>, dir: &dyn Inode, child: &Child) -> FsResult<Effects> {
        let edit = cx.connector.edit().ok_or(Errno(libc::EROFS))?;
        let group = dir.item().group().ok_or(Errno(libc::EPERM))?;
        let link = child.link_name.as_deref().or(child.name.strip_suffix(SUFFIX)).ok_or(Errno(libc::EINVAL))?;
        let removed = edit.unlink(group, link, false).map_err(|e| errno(&e))?;
        Ok(Effects::links(group, removed))
    }
}
