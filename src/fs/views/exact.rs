//! `.h5dir/exact`: the main tree, with variable-length elements as counts and elements.

use super::bytes::{Bytes, Elements};
use super::context::{Context, Effects};
use super::elements::{dataset_extent, dataset_resize, dataset_size, dataset_write};
use super::links::LinkView;
use super::object;
use super::view::{Child, Class, EditView, Extent, Inode, Item, NumberSpace, View, Visit};
use crate::base::Result;
use crate::connector::{Form, ObjectId, ObjectKind};
use crate::fs::types::{Errno, FsResult};
use std::sync::Arc;

/// See the module's description.
pub struct Exact;

impl LinkView for Exact {
    fn object(&'static self, _cx: &Context<'_>, kind: ObjectKind, id: ObjectId) -> Option<Item> {
        Some(if kind == ObjectKind::Dataset { Item::object_of(self, Class::Dataset, id) } else { object::other(id) })
    }

    fn group(&'static self, id: ObjectId) -> Item {
        Item::object_of(self, Class::Group, id)
    }
}

impl View for Exact {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("exact/PATH", "elements with the lengths of strings and sequences")
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Exact.group(group)
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        dir.item().group().map_or(Ok(None), |group| Exact.lookup_in(cx, dir, group, name))
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        dir.item().group().map_or(Ok(()), |group| Exact.list_links(cx, dir, group, start, f).map(drop))
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        inode.item().dataset().map_or(Ok(Extent::of(0)), |id| dataset_extent(cx, id, Form::Exact))
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let Some(id) = inode.item().dataset() else { return Ok(None) };
        Ok(Some(Box::new(Elements::open(cx.connector, id, Form::Exact, cx.changing, None)?)))
    }

    fn number_space(&self, item: &Item) -> Option<NumberSpace> {
        (item.class == Class::Dataset).then_some(NumberSpace::Exact)
    }

    fn edit(&self) -> Option<&'static dyn EditView> {
        Some(&Exact)
    }
}

impl EditView for Exact {
    fn is_editable(&self, item: &Item) -> bool {
        item.class == Class::Dataset
    }

    fn size(&self, cx: &Context<'_>, inode: &dyn Inode) -> FsResult<u64> {
        dataset_size(cx, inode, Form::Exact)
    }

    fn write(&self, cx: &Context<'_>, inode: &dyn Inode, offset: u64, data: &[u8]) -> FsResult<Effects> {
        let id = inode.item().dataset().ok_or(Errno(libc::EACCES))?;
        let edit = cx.connector.edit().ok_or(Errno(libc::EROFS))?;
        dataset_write(cx, id, edit.write_as(id, Form::Exact, offset, data))
    }

    fn resize(&self, cx: &Context<'_>, inode: &dyn Inode, size: u64) -> FsResult<Effects> {
        dataset_resize(cx, inode, Form::Exact, size)
    }
}
