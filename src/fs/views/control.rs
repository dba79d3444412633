//! `.h5dir`: a directory of views.

use super::context::Context;
use super::view::{Child, Class, Inode, Item, View, Visit};
use crate::base::Result;
use crate::connector::ObjectId;

/// A directory of views.
pub struct Control(pub &'static [&'static dyn View]);

/// Those of `views` that the mount has.
pub(super) fn shown<'a>(views: &'a [&'static dyn View], cx: &'a Context<'_>) -> impl Iterator<Item = &'static dyn View> + use<'a> {
    views.iter().copied().filter(|view| cx.views.has(view.name()) && view.is_shown(cx))
}

impl Control {
    fn children(&self, cx: &Context<'_>, dir: &dyn Inode) -> impl Iterator<Item = Child> {
        let group = dir.item().owner;
        let shown = shown(self.0, cx);
        shown.filter_map(move |view| Some(Child { name: view.name().into(), item: view.root(group?), link_name: None }))
    }
}

impl View for Control {
    fn name(&self) -> &'static str {
        ".h5dir"
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Item::part_of(self, Class::Directory, group, b"")
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        Ok(self.children(cx, dir).find(|c| c.name == name))
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        for (next, child) in (1u64..).zip(self.children(cx, dir)).filter(|(next, _)| *next > start) {
            if f(child, next).is_break() {
                break;
            }
        }
        Ok(())
    }
}
