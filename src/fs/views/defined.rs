//! `.h5dir/defined`: which elements of datasets were written, as JSON.
//!
//! The file of a dataset has all of them; `NAME@i:j,k:l` those of a selection, and
//! `NAME@i:j,k:l.values` their bytes, row-major. The latter two are not listed. A file is rendered
//! when it is opened. More than 64 MiB is `EFBIG`.

use super::bytes::{Bytes, Text};
use super::context::Context;
use super::links::LinkView;
use super::view::{Child, Class, Extent, Inode, Item, View, Visit};
use crate::base::Result;
use crate::connector::{ObjectId, ObjectKind};
use crate::present;
use std::sync::Arc;

/// Most bytes of one file.
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
        let item = inode.item();
        let selection = String::from_utf8_lossy(item.key());
        match (item.owner.filter(|_| item.class == Class::File), selection.strip_suffix(VALUES)) {
            (Some(id), Some(selection)) => present::defined_len(&**cx.connector, id, selection.into(), BYTES_MAX).map(Extent::of),
            _ => Ok(Extent::of(0)),
        }
    }

    /// The size of text is unknown before it is rendered.
    fn is_generated(&self, _item: &Item) -> bool {
        true
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let item = inode.item();
        let Some(id) = item.owner.filter(|_| item.class == Class::File) else { return Ok(None) };
        let selection = String::from_utf8_lossy(item.key());
        let bytes = match selection.strip_suffix(VALUES) {
            Some(selection) => present::defined_values(&**cx.connector, id, selection.into(), BYTES_MAX)?,
            None => present::defined_json(&**cx.connector, id, selection.as_ref().into(), BYTES_MAX)?,
        };
        Ok(Some(Box::new(Text(bytes))))
    }
}
