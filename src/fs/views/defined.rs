//! `.h5dir/defined`: which elements of datasets were written, as JSON.
//!
//! The file of a dataset has all of them; `NAME@SELECTION` those of a selection, and
//! `NAME@SELECTION.values` (`values`) their bytes. The latter two are not listed. JSON is rendered
//! when a file is opened; more than 64 MiB is `EFBIG`.

mod values;

use super::bytes::{Bytes, Text};
use super::context::{Context, Effects};
use super::links::LinkView;
use super::view::{Child, Class, EditView, Extent, Inode, Item, View, Visit};
use crate::base::Result;
use crate::connector::{ObjectId, ObjectKind};
use crate::fs::types::{Errno, FsResult, OpenMode};
use crate::present;
use std::sync::Arc;

/// Longest name, bytes: a selection may have a block for each spot of a frame.
const NAME_BYTES_MAX: usize = 4000;
/// Most bytes of JSON.
const BYTES_MAX: u64 = 64 << 20;
/// Suffix of a selection whose values are shown.
const VALUES: &str = ".values";
/// What is between the name of a dataset and a selection.
const SEPARATOR: u8 = b'@';

/// See the module's description.
pub struct Defined;

impl LinkView for Defined {
    fn object(&'static self, _cx: &Context<'_>, kind: ObjectKind, id: ObjectId) -> Option<Item> {
        (kind == ObjectKind::Dataset).then(|| Item::object_of(self, Class::File, id))
    }

    fn group(&'static self, id: ObjectId) -> Item {
        Item::object_of(self, Class::Group, id)
    }
}

impl View for Defined {
    fn name(&self) -> &'static str {
        "defined"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("defined/PATH", "which elements were written")
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Defined.group(group)
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        let Some(group) = dir.item().group() else { return Ok(None) };
        if let Some(child) = Defined.lookup_in(cx, dir, group, name)? {
            return Ok(Some(child));
        }
        let Some((dataset, selection)) = name.iter().rposition(|b| *b == SEPARATOR).and_then(|at| name.split_at_checked(at)) else {
            return Ok(None);
        };
        let selection = selection.get(1..).unwrap_or_default();
        let child = Defined.lookup_in(cx, dir, group, dataset)?.filter(|c| c.item.class == Class::File);
        let Some(id) = child.and_then(|c| c.item.object()) else { return Ok(None) };
        let item = Item::part_of(&Defined, Class::File, id, selection);
        Ok(Some(Child { name: name.to_vec(), item, link_name: None }))
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        dir.item().group().map_or(Ok(()), |group| Defined.list_links(cx, dir, group, start, f).map(drop))
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        values::selection(inode.item()).map_or(Ok(Extent::of(0)), |file| values::len(cx, file).map(Extent::of))
    }

    /// The size of text is unknown before it is rendered.
    fn is_generated(&self, _item: &Item) -> bool {
        true
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let item = inode.item();
        let Some(id) = item.owner.filter(|_| item.class == Class::File) else { return Ok(None) };
        if let Some(file) = values::selection(item) {
            return Ok(Some(Box::new(values::Values::open(cx, file)?)));
        }
        let selection = String::from_utf8_lossy(item.key());
        let bytes = present::defined_json(&**cx.connector, id, selection.as_ref().into(), BYTES_MAX)?;
        Ok(Some(Box::new(Text(bytes))))
    }

    fn is_unlisted(&self, item: &Item) -> bool {
        item.is_part()
    }

    fn name_max(&self) -> usize {
        NAME_BYTES_MAX
    }

    fn edit(&self) -> Option<&'static dyn EditView> {
        Some(&Defined)
    }
}

impl EditView for Defined {
    fn is_editable(&self, item: &Item) -> bool {
        item.class == Class::File && values::selection(item).is_some()
    }

    fn is_buffered(&self) -> bool {
        true
    }

    /// The bytes of a selection are those of elements: the page cache must not hold them.
    fn bypasses_page_cache(&self, mode: OpenMode) -> bool {
        mode.write
    }

    fn written_dataset(&self, item: &Item) -> Option<ObjectId> {
        values::selection(item).map(|(id, _)| id)
    }

    fn size(&self, cx: &Context<'_>, inode: &dyn Inode) -> FsResult<u64> {
        values::whole_len(cx, values::selection(inode.item()).ok_or(Errno(libc::EACCES))?)
    }

    fn write(&self, cx: &Context<'_>, inode: &dyn Inode, offset: u64, data: &[u8]) -> FsResult<Effects> {
        values::write(cx, values::selection(inode.item()).ok_or(Errno(libc::EACCES))?, offset, data)
    }

    fn resize(&self, cx: &Context<'_>, inode: &dyn Inode, size: u64) -> FsResult<Effects> {
        values::resize(cx, values::selection(inode.item()).ok_or(Errno(libc::EACCES))?, size)
    }

    fn open_writer(&self, cx: &Context<'_>, inode: &dyn Inode) -> FsResult<()> {
        values::selection(inode.item()).into_iter().for_each(|file| values::open_writer(cx, file));
        Ok(())
    }

    fn finish(&self, cx: &Context<'_>, inode: &dyn Inode) -> FsResult<Effects> {
        values::selection(inode.item()).map_or_else(|| Ok(Effects::default()), |file| values::finish(cx, file))
    }

    fn close_writer(&self, cx: &Context<'_>, inode: &dyn Inode) -> Effects {
        values::selection(inode.item()).map_or_else(Effects::default, |file| values::close_writer(cx, file, inode.is_gone()))
    }
}
