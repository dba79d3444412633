//! `.h5dir/arrow`: datasets as Arrow files, `PATH.arrow`.
//!
//! Files of elements of fixed size have an exact size and are cached by the kernel. Others are made
//! as they are read, as texts are.

use super::bytes::Bytes;
use super::context::Context;
use super::links::LinkView;
use super::object;
use super::sizes::SizePlace;
use super::view::{Child, Class, Extent, Inode, Item, View, Visit};
use crate::base::{Error, Result};
use crate::connector::{Connector, ObjectId, ObjectKind};
use crate::present::{ArrowFile, Table, arrow_is_fixed};
use std::sync::Arc;

/// See the module's description.
pub struct Arrow;

fn file(connector: &Arc<dyn Connector>, id: ObjectId) -> Result<ArrowFile> {
    ArrowFile::new(connector.clone(), Table::of(&**connector, id, "".into())?)
}

/// Of a long file of elements of variable length.
fn size_unknown() -> Error {
    Error::refused(libc::EINVAL, "the size of a long file is not known before it was read to its end")
}

impl LinkView for Arrow {
    fn object(&'static self, cx: &Context<'_>, kind: ObjectKind, id: ObjectId) -> Option<Item> {
        let is_fixed = |id| cx.connector.dataset(id).is_ok_and(|dataset| arrow_is_fixed(&dataset.datatype));
        Some(match kind {
            ObjectKind::Dataset if is_fixed(id) => Item::object_of(self, Class::Dataset, id),
            ObjectKind::Dataset => Item::object_of(self, Class::File, id),
            _ => object::other(id),
        })
    }

    fn group(&'static self, id: ObjectId) -> Item {
        Item::object_of(self, Class::Group, id)
    }

    fn suffix(&self) -> &'static [u8] {
        b".arrow"
    }
}

impl View for Arrow {
    fn name(&self) -> &'static str {
        "arrow"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("arrow/PATH.arrow", "the dataset as an Arrow file")
    }

    fn names_targets(&self) -> bool {
        true
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Arrow.group(group)
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        dir.item().group().map_or(Ok(None), |group| Arrow.lookup_in(cx, dir, group, name))
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        dir.item().group().map_or(Ok(()), |group| Arrow.list_links(cx, dir, group, start, f).map(drop))
    }

    fn is_generated(&self, item: &Item) -> bool {
        item.class == Class::File
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        let size = match inode.item().dataset() {
            Some(id) => file(cx.connector, id)?.size()?,
            None => SizePlace::of(cx, inode.item()).and_then(|place| place.get()),
        };
        Ok(Extent::of(size.unwrap_or(0)))
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let item = inode.item();
        let (Some(id), Some(place)) = (item.object(), SizePlace::of(cx, item)) else { return Ok(None) };
        let file = file(cx.connector, id)?;
        if item.class == Class::Dataset {
            let live = cx.changing || cx.connector.follow().is_some();
            return Ok(Some(if live { Box::new(Live { connector: cx.connector.clone(), id }) } else { Box::new(Fixed(file)) }));
        }
        if place.settled().is_none() {
            place.set(file.size()?);
        }
        Ok(Some(Box::new(Growing { file, place })))
    }
}

/// Elements of fixed size that nothing changes.
struct Fixed(ArrowFile);

impl Bytes for Fixed {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.0.read(offset, buf)
    }

    fn size(&self) -> Result<u64> {
        self.0.size()?.ok_or_else(size_unknown)
    }
}

/// Elements of fixed size that may change, and their number with them.
struct Live {
    connector: Arc<dyn Connector>,
    id: ObjectId,
}

impl Bytes for Live {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        file(&self.connector, self.id)?.read(offset, buf)
    }

    fn size(&self) -> Result<u64> {
        file(&self.connector, self.id)?.size()?.ok_or_else(size_unknown)
    }
}

/// Elements of variable length: the size is noted when the file was read to its end.
struct Growing {
    file: ArrowFile,
    place: SizePlace,
}

impl Bytes for Growing {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let done = self.file.read(offset, buf)?;
        if done < buf.len() && self.place.settled().is_none() {
            self.place.set(self.file.known_size());
        }
        Ok(done)
    }

    /// Errors: `EINVAL`, the file is long, and its size is not known.
    fn size(&self) -> Result<u64> {
        self.place.settled().map_or_else(|| self.file.size(), |size| Ok(Some(size)))?.ok_or_else(size_unknown)
    }
}
