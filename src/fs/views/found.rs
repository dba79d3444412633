//! `.h5dir/found/ADDRESS`: objects of a damaged container, found by their headers (`--rescue`).

use super::context::Context;
use super::main::Main;
use super::object;
use super::view::{Child, Class, Inode, Item, View, Visit};
use crate::base::Result;
use crate::connector::{ObjectId, ObjectKind};

/// See the module's description.
pub struct Found;

/// The object `id` as in the main tree.
fn child(cx: &Context<'_>, id: ObjectId) -> Option<Child> {
    let item = match cx.connector.info(id).ok()?.kind {
        ObjectKind::Group => Item::object_of(&Main, Class::Group, id),
        ObjectKind::Dataset => Item::object_of(&Main, Class::Dataset, id),
        _ => object::other(id),
    };
    Some(Child { name: id.to_string().into_bytes(), item, link_name: None })
}

impl View for Found {
    fn name(&self) -> &'static str {
        "found"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("found/ADDRESS", "objects without names (mounts with --rescue)")
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Item::part_of(self, Class::Directory, group, b"")
    }

    fn is_shown(&self, cx: &Context<'_>) -> bool {
        cx.connector.salvage().is_some()
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn lookup(&'static self, cx: &Context<'_>, _dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        Ok(cx.connector.salvage().and_then(|salvage| salvage.named(name)).and_then(|id| child(cx, id)))
    }

    fn list(&'static self, cx: &Context<'_>, _dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        let Some(salvage) = cx.connector.salvage() else { return Ok(()) };
        salvage.found(start, &mut |id, next| match child(cx, id) {
            Some(child) => f(child, next),
            None => std::ops::ControlFlow::Continue(()),
        })
    }
}
