//! `.h5dir/versions/NUMBER` and `.h5dir/tags/NAME`: other versions of the container, as the main
//! tree shows them. They are never changed.
//!
//! Soft links are shown as what they lead to in their version.

use super::context::Context;
use super::main::Main;
use super::view::{Child, Class, Inode, Item, View, Visit};
use crate::base::Result;
use crate::connector::ObjectId;
use crate::connector::versions;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `.h5dir/versions`: a directory of each version, by its number.
pub struct Versions;
/// `.h5dir/tags`: a directory of each tag.
pub struct Tags;

/// The directory of a version: its root group, or the group that is mounted as it was then.
struct Tree {
    name: &'static str,
    /// Its name may lead to another version at any time.
    moves: bool,
}

static NUMBERED: Tree = Tree { name: "version", moves: false };
static TAGGED: Tree = Tree { name: "tag", moves: true };

/// The group that is mounted, in the version `number`; `None`: that version has none.
fn group(cx: &Context<'_>, number: u64) -> Result<Option<ObjectId>> {
    let Some(root) = cx.connector.versions().and_then(|versions| versions.root_of(number)) else { return Ok(None) };
    if cx.prefix.is_empty() {
        return Ok(Some(root));
    }
    let Some(id) = cx.connector.resolve(root, &cx.prefix.join(&b'/'))? else { return Ok(None) };
    let is_group = cx.connector.info(id)?.kind == crate::connector::ObjectKind::Group;
    Ok(is_group.then_some(id))
}

/// The directory `name` of the version `number`.
fn child(cx: &Context<'_>, tree: &'static Tree, name: &str, number: u64) -> Result<Option<Child>> {
    let item = group(cx, number)?.map(|id| Item::object_of(tree, Class::Group, id));
    Ok(item.map(|item| Child { name: name.into(), item, link_name: None }))
}

/// True if names in `.h5dir/versions` and `.h5dir/tags` have meaning.
fn has_versions(cx: &Context<'_>) -> bool {
    cx.connector.versions().is_some()
}

impl View for Versions {
    fn name(&self) -> &'static str {
        "versions"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("versions/N/PATH", "version N (containers in object stores)")
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Item::part_of(self, Class::Directory, group, b"")
    }

    fn is_shown(&self, cx: &Context<'_>) -> bool {
        has_versions(cx)
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn is_volatile(&self) -> bool {
        true
    }

    fn lookup(&'static self, cx: &Context<'_>, _dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        let Some(versions) = cx.connector.versions() else { return Ok(None) };
        let Some(name) = std::str::from_utf8(name).ok() else { return Ok(None) };
        // One spelling of a number is its name.
        let Some(number) = name.parse::<u64>().ok().filter(|n| *n > 0 && n.to_string() == name) else { return Ok(None) };
        match versions.committed(number)? {
            Some(_) => child(cx, &NUMBERED, name, number),
            None => Ok(None),
        }
    }

    /// The position after a version is its number.
    fn list(&'static self, cx: &Context<'_>, _dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        let Some(versions) = cx.connector.versions() else { return Ok(()) };
        let mut last = start;
        loop {
            let numbers = versions.after(last)?;
            for number in numbers.iter() {
                if let Some(child) = child(cx, &NUMBERED, &number.to_string(), *number)?
                    && f(child, *number).is_break()
                {
                    return Ok(());
                }
            }
            match numbers.last() {
                Some(number) if *number > last => last = *number,
                _ => return Ok(()),
            }
        }
    }
}

impl View for Tags {
    fn name(&self) -> &'static str {
        "tags"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("tags/TAG/PATH", "the version that a tag names (containers in object stores)")
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Item::part_of(self, Class::Directory, group, b"")
    }

    fn is_shown(&self, cx: &Context<'_>) -> bool {
        has_versions(cx)
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn is_volatile(&self) -> bool {
        true
    }

    fn lookup(&'static self, cx: &Context<'_>, _dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        let Some(versions) = cx.connector.versions() else { return Ok(None) };
        let Some(name) = std::str::from_utf8(name).ok().filter(|name| versions::is_name(name)) else { return Ok(None) };
        match versions.tag(name)? {
            Some(tag) => child(cx, &TAGGED, name, tag.version),
            None => Ok(None),
        }
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        let Some(versions) = cx.connector.versions() else { return Ok(()) };
        for (next, name) in (1u64..).zip(versions.tags()?).filter(|(next, _)| *next > start) {
            // A tag that was removed meanwhile is left out.
            if let Some(child) = self.lookup(cx, dir, name.as_bytes())?
                && f(child, next).is_break()
            {
                break;
            }
        }
        Ok(())
    }
}

impl View for Tree {
    fn name(&self) -> &'static str {
        self.name
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Item::object_of(self, Class::Group, group)
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn is_volatile(&self) -> bool {
        self.moves
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        Main.lookup(cx, dir, name)
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        Main.list(cx, dir, start, f)
    }

    /// When the version was committed.
    fn time(&self, cx: &Context<'_>, item: &Item) -> Option<SystemTime> {
        let versions = cx.connector.versions()?;
        let seconds = versions.committed(versions.version_of(item.object()?)?).ok().flatten()?;
        Some(UNIX_EPOCH + Duration::from_secs(seconds.min(u32::MAX.into())))
    }
}
