//! `.h5dir/text`, `.h5dir/csv`, `.h5dir/tsv`, `.h5dir/jsonl`: datasets as text, `PATH.txt` and so
//! on.
//!
//! The text is made as it is read, and the page cache is bypassed. Opening a file finds the size of
//! its text if that is not long, and reading a file to its end finds that of any text. The file
//! shows it then. Other files show a size of 0.

use super::bytes::Bytes;
use super::context::Context;
use super::links::LinkView;
use super::object;
use super::sizes::SizePlace;
use super::view::{Child, Class, Extent, Inode, Item, View, Visit};
use crate::base::{Error, Result};
use crate::connector::{ObjectId, ObjectKind};
use crate::present::{Dialect, Table, TableText};
use std::sync::Arc;

/// A view of datasets in a dialect.
pub struct Tables {
    name: &'static str,
    suffix: &'static [u8],
    dialect: Dialect,
    about: (&'static str, &'static str),
}

/// Values, one a line, or the elements of a row.
pub static TEXT: Tables =
    Tables { name: "text", suffix: b".txt", dialect: Dialect::Text, about: ("text/PATH.txt", "values of the dataset as text") };
/// Values between commas.
pub static CSV: Tables =
    Tables { name: "csv", suffix: b".csv", dialect: Dialect::Csv, about: ("csv/PATH.csv", "the dataset as a table, cells between commas") };
/// Values between tabs.
pub static TSV: Tables =
    Tables { name: "tsv", suffix: b".tsv", dialect: Dialect::Tsv, about: ("tsv/PATH.tsv", "a table, cells between tabs") };
/// JSON values, one a line.
pub static JSON_LINES: Tables = Tables {
    name: "jsonl",
    suffix: b".jsonl",
    dialect: Dialect::JsonLines,
    about: ("jsonl/PATH.jsonl", "the dataset with a JSON value a line"),
};

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

    fn about(&self) -> (&'static str, &'static str) {
        self.about
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

    fn is_generated(&self, _item: &Item) -> bool {
        true
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        Ok(Extent::of(SizePlace::of(cx, inode.item()).and_then(|place| place.get()).unwrap_or(0)))
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let item = inode.item();
        let Some(id) = item.object().filter(|_| item.class == Class::File) else { return Ok(None) };
        let Some(place) = SizePlace::of(cx, item) else { return Ok(None) };
        let text = TableText::new(cx.connector.clone(), Table::of(&**cx.connector, id, "".into())?, self.dialect);
        if place.settled().is_none() {
            place.set(text.size()?);
        }
        Ok(Some(Box::new(Sized { text, place })))
    }
}

/// A text whose size is noted when it was read to its end.
struct Sized {
    text: TableText,
    place: SizePlace,
}

impl Bytes for Sized {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let done = self.text.read(offset, buf)?;
        if done < buf.len() && self.place.settled().is_none() {
            self.place.set(self.text.known_size());
        }
        Ok(done)
    }

    /// Errors: `EINVAL`, the text is long, and its size is not known.
    fn size(&self) -> Result<u64> {
        let size = self.place.settled().map_or_else(|| self.text.size(), |size| Ok(Some(size)))?;
        size.ok_or_else(|| Error::refused(libc::EINVAL, "the size of a long text is not known before it was read to its end"))
    }
}
