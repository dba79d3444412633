//! `.h5dir/text`, `.h5dir/csv`, `.h5dir/tsv`, `.h5dir/jsonl`: datasets as text, `PATH.txt` and so
//! on.
//!
//! The text is made as it is read, and the page cache is bypassed. Opening a file finds the size of
//! its text if that is not long, which the file then shows. Other files show a size of 0.

use super::bytes::Bytes;
use super::context::Context;
use super::links::LinkView;
use super::object;
use super::view::{Child, Class, Extent, Inode, Item, View, Visit};
use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use crate::connector::{ObjectId, ObjectKind};
use crate::present::{Dialect, Table, TableText};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Files whose sizes are kept.
const SIZES_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Sizes of texts by object and view.
struct Sizes(Mutex<LruCache<(ObjectId, &'static str), u64>>);

impl Default for Sizes {
    fn default() -> Self {
        Sizes(Mutex::new(LruCache::new(SIZES_MAX)))
    }
}

/// A view of datasets in a dialect.
pub struct Tables {
    name: &'static str,
    suffix: &'static [u8],
    dialect: Dialect,
}

/// Values, one a line, or the elements of a row.
pub static TEXT: Tables = Tables { name: "text", suffix: b".txt", dialect: Dialect::Text };
/// Values between commas.
pub static CSV: Tables = Tables { name: "csv", suffix: b".csv", dialect: Dialect::Csv };
/// Values between tabs.
pub static TSV: Tables = Tables { name: "tsv", suffix: b".tsv", dialect: Dialect::Tsv };
/// JSON values, one a line.
pub static JSON_LINES: Tables = Tables { name: "jsonl", suffix: b".jsonl", dialect: Dialect::JsonLines };

impl LinkView for Tables {
    fn object(&'static self, _cx: &Context<'_>, kind: ObjectKind, id: ObjectId) -> Option<Item> {
        Some(match kind {
            ObjectKind::Dataset => Item::object_of(self, Class::File, id),
            _ => object::other(id),
        })
    }

    fn group(&'static self, id: ObjectId) -> Item {
        Item::object_of(self, Class::Group, id)
    }

    fn suffix(&self) -> &'static [u8] {
        self.suffix
    }
}

impl View for Tables {
    fn name(&self) -> &'static str {
        self.name
    }

    fn names_targets(&self) -> bool {
        true
    }

    fn root(&'static self, group: ObjectId) -> Item {
        self.group(group)
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        dir.item().group().map_or(Ok(None), |group| self.lookup_in(cx, dir, group, name))
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        dir.item().group().map_or(Ok(()), |group| self.list_links(cx, dir, group, start, f).map(drop))
    }

    fn is_generated(&self) -> bool {
        true
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        let size = inode.item().object().and_then(|id| cx.buffers.get::<Sizes>().0.lock().peek(&(id, self.name)).copied());
        Ok(Extent::of(size.unwrap_or(0)))
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let item = inode.item();
        let Some(id) = item.object().filter(|_| item.class == Class::File) else { return Ok(None) };
        let text = TableText::new(cx.connector.clone(), Table::of(&**cx.connector, id, "")?, self.dialect);
        let (sizes, key) = (cx.buffers.get::<Sizes>(), (id, self.name));
        let stays = !cx.changing && cx.connector.follow().is_none();
        if !(stays && sizes.0.lock().contains(&key)) {
            match text.size()? {
                Some(size) => drop(sizes.0.lock().put(key, size)),
                // Of a dataset that was smaller.
                None => drop(sizes.0.lock().pop(&key)),
            }
        }
        Ok(Some(Box::new(text)))
    }
}

impl Bytes for TableText {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        TableText::read(self, offset, buf)
    }

    /// Errors: `EINVAL`, the text is long, and its size is not known.
    fn size(&self) -> Result<u64> {
        TableText::size(self)?.ok_or_else(|| Error::refused(libc::EINVAL, "the size of a long text is not known"))
    }
}
