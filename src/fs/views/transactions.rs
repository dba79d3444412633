//! `.h5dir/tx/NAME`: transactions of a container, a directory each.
//!
//! `tree` is what its peers see, with the changes of this mount; another file system is shown in
//! its place (`fs::trees`). `status` shows a transaction. `finish`, `abort` or `skip`, written to
//! `control`, ends it, or the part of this mount. Making a directory begins a transaction; none is
//! removed, because its name is used once. A transaction belongs to who made its directory, else to
//! the user of the mount.

use super::bytes::{Bytes, Text};
use super::context::{Context, Effects};
use super::view::{Child, Class, EditView, Inode, Item, Owned, View, Visit};
use crate::base::escape::escaped_bytes;
use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::connector::transactions::{Base, Ending, TransactionSpec};
use crate::fs::types::{Creator, Errno, FsResult, OpenMode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module's description.
pub struct Tx;

/// File to which orders are written.
const CONTROL: &str = "control";
/// File that shows the transaction.
const STATUS: &str = "status";
/// Directory of what its peers see.
pub const TREE: &str = "tree";

/// Mode of the directory of a transaction that another mount began.
const MODE: u16 = 0o755;
/// Bits of the mode of a directory that `control` has: who may only read the directory writes
/// nothing to it.
const CONTROL_BITS: u16 = 0o660;
/// Bits of the mode of a directory that `status` has.
const STATUS_BITS: u16 = 0o444;

/// Who began transactions in this mount, by name.
#[derive(Default)]
struct Begun(Mutex<BTreeMap<String, Creator>>);

fn part(class: Class, group: ObjectId, name: &str, key: &str) -> Child {
    Child { name: name.into(), item: Item::part_of(&Tx, class, group, key.as_bytes()), link_name: None }
}

/// The transaction and the file in it that the key of an item names.
fn key(item: &Item) -> (&str, &str) {
    let key = std::str::from_utf8(item.key()).unwrap_or_default();
    key.split_once('/').unwrap_or((key, ""))
}

/// The files of a transaction, and its tree if it has one.
fn files(group: ObjectId, name: &str, has_tree: bool) -> Vec<Child> {
    let all = [(CONTROL, Class::File), (STATUS, Class::File), (TREE, Class::Directory)];
    let shown = all.into_iter().filter(|(file, _)| has_tree || *file != TREE);
    shown.map(|(file, class)| part(class, group, file, &format!("{name}/{file}"))).collect()
}

impl View for Tx {
    fn name(&self) -> &'static str {
        "tx"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("tx/NAME", "transactions (containers in object stores)")
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Item::part_of(self, Class::Directory, group, b"")
    }

    // The kernel caches names of read-only mounts for long.
    fn is_shown(&self, cx: &Context<'_>) -> bool {
        cx.changing && cx.connector.transactions().is_some()
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        let (Some(group), Some(all), Ok(name)) = (dir.item().owner, cx.connector.transactions(), std::str::from_utf8(name)) else {
            return Ok(None);
        };
        match key(dir.item()) {
            ("", _) => match all.contains(name) {
                // No transaction has such a name.
                Err(Error::Refused { errno: libc::EINVAL, .. }) => Ok(None),
                contains => Ok(contains?.then(|| part(Class::Directory, group, name, name))),
            },
            (transaction, "") => {
                let has_tree = name == TREE && cx.trees && all.has_tree(transaction)?;
                Ok(files(group, transaction, has_tree).into_iter().find(|child| child.name == name.as_bytes()))
            }
            _ => Ok(None),
        }
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        let (Some(group), Some(all)) = (dir.item().owner, cx.connector.transactions()) else { return Ok(()) };
        let children = match key(dir.item()) {
            ("", _) => all.names()?.iter().map(|name| part(Class::Directory, group, name, name)).collect(),
            (transaction, "") => files(group, transaction, cx.trees && all.has_tree(transaction)?),
            _ => Vec::new(),
        };
        for (next, child) in (1u64..).zip(children).filter(|(next, _)| *next > start) {
            if f(child, next).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn is_generated(&self, _item: &Item) -> bool {
        true
    }

    fn owned(&self, cx: &Context<'_>, item: &Item) -> Option<Owned> {
        let (name, file) = key(item);
        if name.is_empty() {
            return None;
        }
        let by = cx.buffers.get::<Begun>().0.lock().get(name).copied();
        let directory = by.and_then(|by| u16::try_from(by.mode & 0o777).ok()).unwrap_or(MODE);
        let mode = match file {
            CONTROL => directory & CONTROL_BITS,
            STATUS => directory & STATUS_BITS,
            _ => directory,
        };
        Some(Owned { by: by.map(|by| (by.uid, by.gid)), mode })
    }

    fn tree(&self, item: &Item) -> Option<String> {
        let (name, file) = key(item);
        (file == TREE).then(|| name.to_owned())
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let Some(all) = cx.connector.transactions() else { return Ok(None) };
        let text = match key(inode.item()) {
            (name, STATUS) => all.status(name)?.unwrap_or_default(),
            _ => String::new(),
        };
        Ok(Some(Box::new(Text(text.into_bytes()))))
    }

    fn edit(&self) -> Option<&'static dyn EditView> {
        Some(&Tx)
    }
}

impl EditView for Tx {
    fn is_editable(&self, item: &Item) -> bool {
        // The tree has the permissions of a group; the file system in its place is changed.
        matches!(key(item), ("", "") | (_, CONTROL | TREE))
    }

    fn bypasses_page_cache(&self, _mode: OpenMode) -> bool {
        true
    }

    fn size(&self, _cx: &Context<'_>, _inode: &dyn Inode) -> FsResult<u64> {
        Ok(0)
    }

    fn resize(&self, _cx: &Context<'_>, _inode: &dyn Inode, _size: u64) -> FsResult<Effects> {
        Ok(Effects::default())
    }

    fn make_directory(&self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8], creator: Creator) -> FsResult<Effects> {
        if key(dir.item()) != ("", "") {
            return Err(Errno(libc::EPERM));
        }
        let name = std::str::from_utf8(name).map_err(|_| Errno(libc::EINVAL))?;
        let spec = TransactionSpec { name: name.to_owned(), peers: Some(1), base: Some(Base::Last), after: Vec::new() };
        let none = || Error::refused(libc::EOPNOTSUPP, "the container has no transactions");
        let begun = cx.connector.transactions().ok_or_else(none).and_then(|all| all.begin(&spec));
        begun.map_err(|e| {
            tracing::warn!("transaction {}: {e}", escaped_bytes(name.as_bytes()));
            crate::fs::errno::errno(&e)
        })?;
        cx.buffers.get::<Begun>().0.lock().insert(name.to_owned(), creator);
        Ok(Effects::default())
    }

    fn write(&self, cx: &Context<'_>, inode: &dyn Inode, _offset: u64, data: &[u8]) -> FsResult<Effects> {
        let (name, _) = key(inode.item());
        let ending = match data.trim_ascii() {
            b"finish" => Ok(Ending::Finish),
            b"abort" => Ok(Ending::Abort),
            b"skip" => Ok(Ending::Skip),
            _ => Err(Error::refused(libc::EINVAL, "a transaction takes one of the words finish, abort, skip")),
        };
        let none = || Error::refused(libc::EOPNOTSUPP, "the container has no transactions");
        let done = ending.and_then(|ending| cx.connector.transactions().ok_or_else(none)?.end(name, ending));
        done.map(|()| Effects::default()).map_err(|e| {
            tracing::warn!("transaction {name}: {e}");
            crate::fs::errno::errno(&e)
        })
    }
}
