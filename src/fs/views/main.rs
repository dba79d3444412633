//! The main tree: groups are directories, datasets are files of their elements, soft links are
//! symbolic links.

use super::bytes::{Bytes, Elements, Text};
use super::context::{Context, Effects};
use super::elements::{dataset_extent, dataset_resize, dataset_size, dataset_write};
use super::links::LinkView;
use super::map;
use super::object;
use super::view::{Child, Class, EditView, Extent, Inode, Item, NumberSpace, View, Visit};
use crate::base::{Error, Result};
use crate::connector::{Form, ObjectId, ObjectKind};
use crate::fs::types::{Errno, FsResult, OpenMode};
use crate::present;
use std::sync::Arc;

/// See the module's description.
pub struct Main;

/// A new file may be made a named datatype. The kernel knows its node as a dataset until it looks
/// the name up again.
fn became_datatype(cx: &Context<'_>, id: ObjectId) -> bool {
    cx.changing && cx.connector.info(id).is_ok_and(|i| i.kind == ObjectKind::Datatype)
}

impl LinkView for Main {
    fn object(&'static self, _cx: &Context<'_>, kind: ObjectKind, id: ObjectId) -> Option<Item> {
        Some(if kind == ObjectKind::Dataset { Item::object_of(self, Class::Dataset, id) } else { object::other(id) })
    }

    fn group(&'static self, id: ObjectId) -> Item {
        Item::object_of(self, Class::Group, id)
    }

    fn map(&'static self, id: ObjectId) -> Option<Item> {
        Some(map::directory(id))
    }

    fn shows_soft_links(&self) -> bool {
        true
    }
}

impl View for Main {
    fn name(&self) -> &'static str {
        ""
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Main.group(group)
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        let Some(group) = dir.item().group() else { return Ok(None) };
        Main.lookup_in(cx, dir, group, name)
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        let Some(group) = dir.item().group() else { return Ok(()) };
        Main.list_links(cx, dir, group, start, f).map(drop)
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        match inode.item().dataset() {
            Some(id) if became_datatype(cx, id) => Ok(Extent::of(present::datatype_text(&**cx.connector, id)?.len() as u64)),
            Some(id) => dataset_extent(cx, id, Form::Main),
            None => Ok(Extent::of(0)),
        }
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        Ok(match inode.item().dataset() {
            Some(id) if became_datatype(cx, id) => Some(Box::new(Text(present::datatype_text(&**cx.connector, id)?))),
            Some(id) => Some(Box::new(Elements::open(cx.connector, id, Form::Main, cx.changing, None)?.padded())),
            None => None,
        })
    }

    fn number_space(&self, item: &Item) -> Option<NumberSpace> {
        (item.class == Class::Dataset).then_some(NumberSpace::Objects)
    }

    fn edit(&self) -> Option<&'static dyn EditView> {
        Some(&Main)
    }
}

impl EditView for Main {
    fn is_editable(&self, item: &Item) -> bool {
        matches!(item.class, Class::Group | Class::Dataset)
    }

    fn edits_links(&self) -> bool {
        true
    }

    fn maps_ranges(&self) -> bool {
        true
    }

    /// Elements that are only written need no pages.
    /// The kernel puts an append that does not bypass it into a page, and may zero it there before
    /// this daemon reads the request: when it writes back what a mapping stored in that page.
    fn bypasses_page_cache(&self, mode: OpenMode) -> bool {
        mode.write && (!mode.read || mode.append && mode.maps_direct)
    }

    fn size(&self, cx: &Context<'_>, inode: &dyn Inode) -> FsResult<u64> {
        dataset_size(cx, inode, Form::Main)
    }

    fn write(&self, cx: &Context<'_>, inode: &dyn Inode, offset: u64, data: &[u8]) -> FsResult<Effects> {
        let id = inode.item().dataset().ok_or(Errno(libc::EACCES))?;
        let edit = cx.connector.edit().ok_or(Errno(libc::EROFS))?;
        match edit.write_as(id, Form::Main, offset, data) {
            Err(_) if became_datatype(cx, id) => datatype_write(cx, id, offset, data),
            done => dataset_write(cx, id, done),
        }
    }

    fn resize(&self, cx: &Context<'_>, inode: &dyn Inode, size: u64) -> FsResult<Effects> {
        dataset_resize(cx, inode, Form::Main, size)
    }
}

/// Takes bytes written to a file that was made a named datatype if they are its text: `tar` makes
/// it a datatype before it writes the text.
fn datatype_write(cx: &Context<'_>, id: ObjectId, offset: u64, data: &[u8]) -> FsResult<Effects> {
    let text = present::datatype_text(&**cx.connector, id).map_err(|e| cx.host.failed(Some(id), &e))?;
    let there = usize::try_from(offset).ok().and_then(|at| text.get(at..at.checked_add(data.len())?));
    match there == Some(data) {
        true => Ok(Effects::changed(id)),
        false => Err(cx.host.refused(Some(id), &Error::refused(libc::EPERM, "a named datatype is not changed"))),
    }
}
