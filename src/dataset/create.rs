//! Header messages of a new dataset, in versions chosen by the file's superblock.
//!
//! Every libhdf5 release that can read the file can read the new messages:
//!
//! ```text
//! superblock   header  dataspace  datatype  fill value  pipeline  layout
//! 0, 1         1       1          1 (2)     2           1         3     and a modification time
//! 2            2       2          3         3           2         3
//! 3            2       2          3         3           2         4 when chunked, else 3
//! ```
//!
//! No raw data is allocated: that happens at the first write. Compact data is in the layout
//! message.

use super::creation::{Creation, MESSAGE_MAX_BYTES, Records, refuse};
use super::parameters::Subject;
use crate::base::datatype::Datatype;
use crate::base::fill::Fill;
use crate::base::filter_spec::FilterSpec;
use crate::base::shape::Extent;
use crate::base::{Address, Error, Result};
use crate::format::Context;
use crate::format::message::dataspace::Dataspace;
use crate::format::message::fill_value::FillValue;
use crate::format::message::filter_pipeline::FilterDescription;
use crate::format::message::times;
use crate::format::object_header::{SharedMessage, flag, kind};
use crate::meta::Store;
use crate::meta::header_edit::HeaderEdit;
use crate::structures::link_count as references;

/// Fill value write time: on allocation, if the user set a fill value.
const FILL_IF_SET: u8 = 2;
/// Space is allocated when the dataset is created.
const EARLY: u8 = 1;
/// Space is allocated chunk by chunk.
const INCREMENTAL: u8 = 3;
/// Fill value write time: on allocation.
const FILL_ON_ALLOCATION: u8 = 0;

/// Header messages in order: type, flags, body.
pub(crate) type Messages = Vec<(u16, u8, Vec<u8>)>;

/// Version of object headers in a file with this superblock.
pub(crate) fn header_version(superblock_version: u8) -> u8 {
    if superblock_version < 2 { 1 } else { 2 }
}

/// Lowest version of datatype messages in a file with this superblock.
fn datatype_version(superblock_version: u8) -> u8 {
    if superblock_version < 2 { 1 } else { 3 }
}

/// Encodes a datatype message of a dataset, an attribute or a committed datatype.
///
/// Errors: a body longer than a message may be.
pub(crate) fn datatype_message(superblock_version: u8, datatype: &Datatype) -> Result<Vec<u8>> {
    let body = datatype.for_file(datatype_version(superblock_version)).to_bytes();
    if body.len() > MESSAGE_MAX_BYTES { refuse("a datatype of more than 64 KiB") } else { Ok(body) }
}

/// When the fill value of a new dataset of the type `datatype` is written.
pub(crate) fn usual_fill_time(datatype: &Datatype) -> u8 {
    // Unwritten storage must not be decoded as variable-length descriptors.
    if datatype.contains_vlen() { FILL_ON_ALLOCATION } else { FILL_IF_SET }
}

/// True if both datatypes have the same message, whatever versions they were read in.
pub(crate) fn is_same_datatype(a: &Datatype, b: &Datatype) -> bool {
    let message = |datatype| datatype_message(2, datatype).ok();
    message(a).is_some_and(|body| Some(body) == message(b))
}

/// Errors: `EINVAL` unless `named`, what is at `path`, is a datatype that equals `own`.
pub(crate) fn refuse_other_datatype(named: Option<&Datatype>, own: &Datatype, path: &[u8]) -> Result<()> {
    let path = String::from_utf8_lossy(path);
    match named {
        Some(named) if is_same_datatype(named, own) => Ok(()),
        Some(_) => Err(Error::refused(libc::EINVAL, format!("the named datatype {path} is another type than the one of the elements"))),
        None => Err(Error::refused(libc::EINVAL, format!("{path} is no named datatype"))),
    }
}

/// True if elements of the type `own` may become elements of the type `named` later: they have the
/// type of new files, or that of attributes whose text was set before their type.
pub(crate) fn awaits_datatype(named: Option<&Datatype>, own: &Datatype) -> bool {
    let is_new = own.is_vlen_string() || [Datatype::byte(), Datatype::utf8(own.size)].iter().any(|new| is_same_datatype(new, own));
    is_new && named.is_some_and(|named| !is_same_datatype(named, own))
}

/// Encodes a dataspace message for a file with this superblock.
pub(crate) fn dataspace_message(
    ctx: &Context,
    superblock_version: u8,
    extent: Extent,
    dims: &[u64],
    max_dims: Option<&[Option<u64>]>,
) -> Vec<u8> {
    // Version 1 has no null extent.
    let version = if superblock_version < 2 && extent != Extent::Null { 1 } else { 2 };
    Dataspace { version, extent, dims: dims.to_vec(), max_dims: max_dims.map(<[_]>::to_vec) }.encode(ctx)
}

/// Encodes the header messages of a dataset for a file with this superblock version.
///
/// Errors: contradicting properties, or ones that no message version can encode.
pub(crate) fn dataset_messages(ctx: &Context, superblock_version: u8, creation: &Creation) -> Result<Messages> {
    creation.check(ctx)?;
    let creation = &Creation { filters: creation.layout.kind.stored_filters(creation)?, ..creation.clone() };
    let old = superblock_version < 2;
    let mut messages = Messages::new();
    let space = match creation.layout.kind.records() {
        Some(Records::Released) => dataspace_message(ctx, superblock_version, Extent::Null, &[], None),
        Some(_) => dataspace_message(ctx, superblock_version, Extent::Scalar, &[], None),
        None => dataspace_message(ctx, superblock_version, creation.extent, &creation.dims, creation.max_dims.as_deref()),
    };
    messages.push((kind::DATASPACE, 0, space));
    messages.push(match creation.committed {
        Some(at) => (kind::DATATYPE, flag::CONSTANT | flag::SHARED, SharedMessage::encode_object(at, ctx)),
        None => (kind::DATATYPE, flag::CONSTANT, datatype_message(superblock_version, &creation.datatype)?),
    });
    creation.fill_messages(old, &mut messages);
    if !creation.filters.is_empty() {
        let (kind, body) = creation.layout.kind.filter_message(creation.filter_descriptions()?, superblock_version)?;
        messages.push((kind, flag::CONSTANT, body));
    }
    messages.push((kind::DATA_LAYOUT, 0, creation.layout.kind.message(ctx, superblock_version, creation)?.encode(ctx)?));
    if let Some(seconds) = creation.modified.filter(|_| old) {
        messages.push((kind::MTIME, 0, times::encode(seconds)));
    }
    match messages.iter().find(|m| m.2.len() > MESSAGE_MAX_BYTES) {
        Some((kind, ..)) => refuse(format!("message {kind:#04x} would be longer than 64 KiB")),
        None => Ok(messages),
    }
}

/// Writes the object header of a new dataset, with reference count 1 and no link to it yet.
///
/// Increments the reference count of a committed datatype. `attribute_order`: whether the creation
/// order of attributes is tracked and indexed (version 2 headers only).
pub(crate) fn create_dataset(store: &Store, creation: &Creation, attribute_order: (bool, bool)) -> Result<Address> {
    let superblock_version = store.superblock().version;
    let mut messages = dataset_messages(store.ctx(), superblock_version, creation)?;
    creation.layout.kind.store(store, creation, &mut messages)?;
    let version = header_version(superblock_version);
    let mut edit = HeaderEdit::new(version, creation.modified.filter(|_| version > 1), attribute_order);
    for (kind, flags, body) in messages {
        edit.add(kind, flags, body);
    }
    if let Some(datatype) = creation.committed {
        references::add_reference(store, datatype)?;
    }
    edit.create(store)
}

impl Creation {
    fn fill_messages(&self, old: bool, messages: &mut Messages) {
        let allocation_time = match self.layout.kind.allocation_time() {
            // The layout has no other.
            EARLY => EARLY,
            usual => self.allocation_time.filter(|t| (EARLY..=INCREMENTAL).contains(t)).unwrap_or(usual),
        };
        let write_time = self.fill_time.unwrap_or(usual_fill_time(&self.datatype));
        let message = FillValue { version: if old { 2 } else { 3 }, allocation_time, write_time, fill: self.fill.clone() };
        messages.push((kind::FILL_VALUE, flag::CONSTANT, message.encode()));
        if old && matches!(self.fill, Fill::Value(_)) {
            // libhdf5 before 1.6 reads only this message.
            messages.push((kind::FILL_VALUE_OLD, flag::CONSTANT, FillValue { version: 0, ..message }.encode()));
        }
    }

    /// The filters with their client data completed.
    fn filter_descriptions(&self) -> Result<Vec<FilterDescription>> {
        let Some(chunk) = self.layout.chunk_dims() else { return refuse("only chunked datasets have filters") };
        let fill = match &self.fill {
            Fill::Undefined => None,
            Fill::Default => Some(&[][..]),
            Fill::Value(v) => Some(v.as_slice()),
        };
        let subject = Subject { datatype: &self.datatype, chunk, fill };
        let describe = |f: FilterSpec| FilterDescription { id: f.id, flags: f.flags, name: f.name, cd_values: f.cd_values, config: None };
        self.filters.iter().map(|f| subject.complete(f).map(describe)).collect()
    }
}

#[cfg(test)]
#[path = "create_tests.rs"]
mod tests;
