//! What looks the same in every view: named datatypes, objects of unknown kind, objects that cannot
//! be read, and symbolic links.

use super::bytes::{Bytes, Text};
use super::context::Context;
use super::view::{Class, EditView, Extent, Inode, Item, NumberSpace, View};
use crate::base::Result;
use crate::connector::{ObjectId, ObjectKind};
use crate::present;
use std::sync::Arc;

/// See the module's description.
pub struct Objects;

/// A named datatype, as its description, or an object of unknown kind, as an empty file.
pub fn other(id: ObjectId) -> Item {
    Item::object_of(&Objects, Class::File, id)
}

/// An object that cannot be read.
pub fn broken(id: ObjectId) -> Item {
    Item::object_of(&Objects, Class::Broken, id)
}

/// A symbolic link to `target`.
pub fn symlink(target: Vec<u8>) -> Item {
    Item { view: &Objects, class: Class::Symlink, owner: None, key: Some(target.into()) }
}

fn text(cx: &Context<'_>, inode: &dyn Inode) -> Result<Option<Vec<u8>>> {
    let item = inode.item();
    let Some(id) = item.object().filter(|_| item.class == Class::File) else { return Ok(None) };
    let named = cx.connector.info(id)?.kind == ObjectKind::Datatype;
    if named { present::datatype_text(&**cx.connector, id).map(Some) } else { Ok(Some(Vec::new())) }
}

impl View for Objects {
    fn name(&self) -> &'static str {
        "."
    }

    fn root(&'static self, group: ObjectId) -> Item {
        other(group)
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        Ok(Extent::of(text(cx, inode)?.map_or(0, |t| t.len() as u64)))
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        Ok(text(cx, &*inode)?.map(|t| Box::new(Text(t)) as _))
    }

    fn number_space(&self, item: &Item) -> Option<NumberSpace> {
        (item.class == Class::File).then_some(NumberSpace::Objects)
    }

    fn edit(&self) -> Option<&'static dyn EditView> {
        Some(&Objects)
    }
}

/// They have names and attributes like other objects. Their bytes do not change.
impl EditView for Objects {
    fn is_editable(&self, _item: &Item) -> bool {
        false
    }

    fn edits_links(&self) -> bool {
        true
    }
}
