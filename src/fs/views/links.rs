//! Children of a group: its links, under file names, as a view shows them.

use super::context::Context;
use super::object;
use super::view::{Child, Class, Inode, Item, View, Visit};
use crate::base::Result;
use crate::connector::{Link, LinkTarget, ObjectId, ObjectKind};
use crate::fs::cut_names::Names;
use crate::fs::name::{CONTROL, NAME_MAX, file_name, file_name_escaped, file_name_within, unescape};
use crate::fs::symlink;
use std::ops::ControlFlow;

/// A view whose directories are groups.
pub trait LinkView: View {
    /// How an object that is neither a group nor a map is shown; `None`: not at all.
    fn object(&'static self, cx: &Context<'_>, kind: ObjectKind, id: ObjectId) -> Option<Item>;

    /// How the group `id` is shown.
    fn group(&'static self, id: ObjectId) -> Item;

    /// How the map `id` is shown; `None`: not at all.
    fn map(&'static self, _id: ObjectId) -> Option<Item> {
        None
    }

    /// True where soft links are symbolic links and links that lead nowhere are listed. Other views
    /// show objects only.
    fn shows_soft_links(&self) -> bool {
        false
    }

    /// What is appended to the names of datasets and objects that cannot be read.
    fn suffix(&self) -> &'static [u8] {
        b""
    }

    /// The child of group `group`, the directory `dir`, that is shown as `name`.
    fn lookup_in(&'static self, cx: &Context<'_>, dir: &dyn Inode, group: ObjectId, name: &[u8]) -> Result<Option<Child>> {
        let suffix = self.suffix();
        if suffix.is_empty() {
            return self.lookup_link(cx, dir, group, name, NAME_MAX);
        }
        if let Some(stem) = name.strip_suffix(suffix) {
            let child = self.lookup_link(cx, dir, group, stem, NAME_MAX.saturating_sub(suffix.len()))?;
            if let Some(c) = child.filter(|c| has_suffix(&c.item)) {
                return Ok(Some(with_suffix(c, suffix)));
            }
        }
        Ok(self.lookup_link(cx, dir, group, name, NAME_MAX)?.filter(|c| !has_suffix(&c.item)))
    }

    /// The child of `group` whose link name is shown as `name` where names have at most `limit`
    /// bytes.
    fn lookup_link(&'static self, cx: &Context<'_>, dir: &dyn Inode, group: ObjectId, name: &[u8], limit: usize) -> Result<Option<Child>> {
        // In the root of the mount `.h5dir` is the control directory.
        let show = |n: &[u8]| if is_control(dir, n) { file_name_escaped(n) } else { file_name_within(n, limit).into_owned() };
        self.lookup_shown(cx, dir, group, name, &show)
    }

    /// The child of `group` whose link name is shown as `name` by `show`.
    fn lookup_shown(
        &'static self,
        cx: &Context<'_>,
        dir: &dyn Inode,
        group: ObjectId,
        name: &[u8],
        show: &dyn Fn(&[u8]) -> Vec<u8>,
    ) -> Result<Option<Child>> {
        let link = match unescape(name) {
            Some(link_name) if show(&link_name) == name => cx.connector.lookup(group, &link_name)?,
            // Another spelling of a name is not its name.
            Some(_) => None,
            None => {
                let mut visit = |f: &mut dyn FnMut(&[u8]) -> bool| {
                    let mut take = |link: Link, _| if f(&link.name) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
                    cx.connector.list(group, 0, &mut take)
                };
                match cx.cut_names.find(Names::Links(group), name, show, &mut visit)? {
                    Some(link_name) => cx.connector.lookup(group, &link_name)?,
                    None => None,
                }
            }
        };
        Ok(link.and_then(|l| self.child(cx, dir, group, l)))
    }

    /// Links of `group` after position `start`. False: `f` stopped the listing.
    fn list_links(&'static self, cx: &Context<'_>, dir: &dyn Inode, group: ObjectId, start: u64, f: Visit<'_>) -> Result<bool> {
        let mut stopped = false;
        self.list_plain(cx, dir, group, start, &mut |child, next| {
            let suffix = self.suffix();
            let takes_suffix = !suffix.is_empty() && has_suffix(&child.item);
            let child = if takes_suffix { with_suffix(child, suffix) } else { child };
            let flow = f(child, next);
            stopped |= flow.is_break();
            flow
        })?;
        Ok(!stopped)
    }

    /// Links of `group` after position `start`, under their names without the suffix.
    fn list_plain(&'static self, cx: &Context<'_>, dir: &dyn Inode, group: ObjectId, start: u64, f: Visit<'_>) -> Result<()> {
        cx.connector.list(group, start, &mut |link, next| match self.child(cx, dir, group, link) {
            Some(child) => f(child, next),
            None => ControlFlow::Continue(()),
        })
    }

    /// How a link of `group` is shown; `None`: not at all.
    fn child(&'static self, cx: &Context<'_>, dir: &dyn Inode, group: ObjectId, link: Link) -> Option<Child> {
        let name = shown(dir, &link.name);
        let item = match &link.target {
            LinkTarget::Hard(id) => self.found(cx, dir, *id)?,
            LinkTarget::Soft(path) => self.soft(cx, dir, (group, &link.name), path)?,
            LinkTarget::External { file, object } => {
                let dangling = || object::symlink(symlink::dangling(b"external", &[file.as_slice(), b":", object].concat()));
                match cx.connector.external(group, file, object) {
                    Ok(Some(id)) => self.found(cx, dir, id)?,
                    Ok(None) => dangling(),
                    Err(e) => {
                        cx.host.failed(Some(group), &e);
                        dangling()
                    }
                }
            }
            LinkTarget::UserDefined(class) => object::symlink(symlink::dangling(b"link class", class.to_string().as_bytes())),
        };
        if !self.shows_soft_links() && item.class == Class::Symlink && !matches!(link.target, LinkTarget::Hard(_)) {
            return None;
        }
        let link_name = (name != link.name).then(|| link.name.into_boxed_slice());
        Some(Child { name, item, link_name })
    }

    /// How the soft link `link` (group and name) is shown.
    fn soft(&'static self, cx: &Context<'_>, dir: &dyn Inode, link: (ObjectId, &[u8]), path: &[u8]) -> Option<Item> {
        let may_be_shown = |text: &Vec<u8>| cx.outside_links || symlink::stays_inside(text, dir.depth());
        let text = || cx.text_of_link(link, path).filter(may_be_shown);
        if self.shows_soft_links() && link.0.is_own() {
            return Some(object::symlink(text().unwrap_or_else(|| symlink::soft(path, dir.depth(), cx.prefix))));
        }
        // In another version of the container, a text that was given to symlink(2) stays.
        if let Some(text) = cx.connector.versions().and_then(|_| text()) {
            return Some(object::symlink(text));
        }
        match cx.connector.resolve(link.0, path) {
            Ok(Some(id)) => self.found(cx, dir, id),
            _ => Some(object::symlink(symlink::dangling(b"soft", path))),
        }
    }

    /// How the object `id` is shown in `dir`. A group that `dir` lies in is a symbolic link up to
    /// it.
    fn found(&'static self, cx: &Context<'_>, dir: &dyn Inode, id: ObjectId) -> Option<Item> {
        match cx.connector.info(id) {
            Err(e) => {
                cx.host.failed(Some(id), &e);
                Some(object::broken(id))
            }
            Ok(info) if info.kind == ObjectKind::Group => Some(match dir.levels_up_to(id) {
                Some(up) => object::symlink(symlink::up(up)),
                None => self.group(id),
            }),
            Ok(info) if info.kind == ObjectKind::Map => self.map(id),
            Ok(info) => self.object(cx, info.kind, id),
        }
    }
}

/// Datasets have it, also where their files are texts, and objects that cannot be read.
fn has_suffix(item: &Item) -> bool {
    let is_text = item.class == Class::File && item.view.is_generated(item);
    matches!(item.class, Class::Dataset | Class::Broken) || is_text
}

/// `child` under its file name with `suffix`. A name that is cut for the suffix has a link name.
fn with_suffix(child: Child, suffix: &[u8]) -> Child {
    let link_name = child.link_name.unwrap_or_else(|| child.name.into());
    let stem = file_name_within(&link_name, NAME_MAX.saturating_sub(suffix.len())).into_owned();
    let name = [&stem, suffix].concat();
    Child { name, item: child.item, link_name: (stem != *link_name).then_some(link_name) }
}

/// True for the link name of the control directory, in the root of the mount.
fn is_control(dir: &dyn Inode, link_name: &[u8]) -> bool {
    dir.is_root() && link_name == CONTROL
}

/// File name of the link `link_name` in `dir`.
fn shown(dir: &dyn Inode, link_name: &[u8]) -> Vec<u8> {
    if is_control(dir, link_name) { file_name_escaped(link_name) } else { file_name(link_name).into_owned() }
}

/// Link name for the new file name `name` in `dir`; `None` where no link can have it: another
/// spelling of a name, or a name that no path within the container could hold.
pub fn new_link_name(dir: &dyn Inode, name: &[u8]) -> Option<Vec<u8>> {
    let link_name = unescape(name)?.into_owned();
    let fine = !matches!(link_name.as_slice(), b"" | b".") && !link_name.iter().any(|b| matches!(b, b'/' | 0));
    (fine && shown(dir, &link_name) == name).then_some(link_name)
}
