//! `.h5dir/json`: objects as hdf5-json, `PATH.json`, with their values.
//!
//! A group is a directory, too. The directory of a group whose name ends in `.json` has an escaped
//! name, and the file of the root group is `.json`. The text is rendered when a file is opened, and
//! that of a large dataset as it is read. Opening another object of more than 64 MiB is `EFBIG`.

use super::bytes::Bytes;
use super::context::Context;
use super::links::LinkView;
use super::sizes::SizePlace;
use super::suffixed::{name_of_directory, named};
use super::view::{Child, Class, Extent, Inode, Item, NumberSpace, View, Visit};
use crate::base::{Error, Result};
use crate::connector::{ObjectId, ObjectKind};
use crate::fs::name::{NAME_MAX, file_name_within};
use crate::present::JsonText;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Suffix of the files.
const SUFFIX: &[u8] = b".json";
/// Depth of the directory of the root group, `.h5dir/json`.
const ROOT_DEPTH: usize = 2;
/// Positions of directories begin here; those of files are smaller.
const FIRST_DIRECTORY: u64 = 1 << 61;
/// Position after the file of the root group, which comes last.
const AFTER_ROOT: u64 = 1 << 62;

/// See the module's description.
pub struct Json;

fn file(id: ObjectId) -> Item {
    Item::object_of(&Json, Class::File, id)
}

/// File name of the object that the link `link_name` leads to.
fn name_of_file(link_name: &[u8]) -> Vec<u8> {
    [&file_name_within(link_name, NAME_MAX.saturating_sub(SUFFIX.len())), SUFFIX].concat()
}

/// Name of the directory of the group that the link `link_name` leads to.
fn name_of_group(link_name: &[u8]) -> Vec<u8> {
    name_of_directory(link_name, SUFFIX)
}

/// The file of `child`. A symbolic link, to a group further up, has none.
fn file_of(child: Child) -> Option<Child> {
    let item = match child.item.class {
        Class::Group => file(child.item.owner?),
        Class::Symlink => return None,
        _ => child.item.clone(),
    };
    Some(named(child, item, name_of_file))
}

/// The directory of `child`, if it is a group or a symbolic link to one.
fn directory_of(child: Child) -> Option<Child> {
    let item = Some(child.item.clone()).filter(|item| matches!(item.class, Class::Group | Class::Symlink))?;
    Some(named(child, item, name_of_group))
}

fn root_file(dir: &dyn Inode) -> Option<Child> {
    let group = dir.item().group().filter(|_| dir.depth() == ROOT_DEPTH)?;
    Some(Child { name: SUFFIX.to_vec(), item: file(group), link_name: None })
}

impl LinkView for Json {
    fn map(&'static self, id: ObjectId) -> Option<Item> {
        Some(file(id))
    }

    fn object(&'static self, _cx: &Context<'_>, _kind: ObjectKind, id: ObjectId) -> Option<Item> {
        Some(file(id))
    }

    fn group(&'static self, id: ObjectId) -> Item {
        Item::object_of(self, Class::Group, id)
    }
}

impl View for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("json/PATH.json", "the object as hdf5-json, with its values")
    }

    fn names_targets(&self) -> bool {
        true
    }

    fn root(&self, group: ObjectId) -> Item {
        Json.group(group)
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        let Some(group) = dir.item().group() else { return Ok(None) };
        if name == SUFFIX
            && let Some(child) = root_file(dir)
        {
            return Ok(Some(child));
        }
        if let Some(stem) = name.strip_suffix(SUFFIX) {
            let limit = NAME_MAX.saturating_sub(SUFFIX.len());
            let child = Json.lookup_link(cx, dir, group, stem, limit)?.and_then(file_of);
            if child.is_some() {
                return Ok(child);
            }
        }
        Ok(Json.lookup_shown(cx, dir, group, name, &name_of_group)?.and_then(directory_of))
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        let Some(group) = dir.item().group() else { return Ok(()) };
        let mut take = |child: Option<Child>, next| child.map_or(ControlFlow::Continue(()), |child| f(child, next));
        if start < FIRST_DIRECTORY && !Json.list_links(cx, dir, group, start, &mut |child, next| take(file_of(child), next))? {
            return Ok(());
        }
        if start >= AFTER_ROOT {
            return Ok(());
        }
        let mut directory = |child, next: u64| take(directory_of(child), next.saturating_add(FIRST_DIRECTORY));
        if Json.list_links(cx, dir, group, start.saturating_sub(FIRST_DIRECTORY), &mut directory)? {
            let _ = take(root_file(dir), AFTER_ROOT);
        }
        Ok(())
    }

    /// The size of the text is unknown before it was rendered once.
    fn is_generated(&self, _item: &Item) -> bool {
        true
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        let place = SizePlace::of(cx, inode.item()).filter(|_| inode.item().class == Class::File);
        Ok(Extent::of(place.and_then(|place| place.get()).unwrap_or(0)))
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let item = inode.item();
        let Some(id) = item.object().filter(|_| item.class == Class::File) else { return Ok(None) };
        let Some(place) = SizePlace::of(cx, item) else { return Ok(None) };
        let opened = Opened { text: JsonText::of(cx.connector, id)?, place };
        opened.note_size();
        Ok(Some(Box::new(opened)))
    }

    fn number_space(&self, item: &Item) -> Option<NumberSpace> {
        (item.class == Class::File).then_some(NumberSpace::Json)
    }
}

/// An open text. Its size is noted when it was read to its end.
struct Opened {
    text: JsonText,
    place: SizePlace,
}

impl Opened {
    fn note_size(&self) {
        if let Some(size) = self.text.known_size().filter(|_| self.place.stays()) {
            self.place.set(Some(size));
        }
    }
}

impl Bytes for Opened {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let done = self.text.read(offset, buf)?;
        if done < buf.len() {
            self.note_size();
        }
        Ok(done)
    }

    /// Errors: `EINVAL`, the text is long, and its size is not known.
    fn size(&self) -> Result<u64> {
        let unknown = || Error::refused(libc::EINVAL, "the size of a long text is not known before it was read to its end");
        self.text.known_size().or_else(|| self.place.settled()).ok_or_else(unknown)
    }
}
