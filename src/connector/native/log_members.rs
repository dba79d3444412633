//! Attributes and datasets of logs.

use super::access::Access;
use super::attribute;
use super::dataset::Dataset;
use super::file::HdfFile;
use super::object::Object;
use crate::base::datatype::Class;
use crate::base::shape::Shape;
use crate::base::{Address, Error, Result, limits};
use crate::connector::ObjectId;
use crate::format::message::link::LinkTarget;
use crate::structures::group;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Name of this structure in errors.
const NAME: &str = "log VOL file";
/// The file has subfiles (`H5VL_FILEI_CONFIG_SUBFILING`).
pub(super) const SUBFILING: i64 = 0x200;

/// The names of the log VOL with this prefix.
pub(super) fn named(prefix: &str, name: &str) -> Vec<u8> {
    [prefix.as_bytes(), name.as_bytes()].concat()
}

/// What the attribute of the root group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Dataset IDs handed out.
    pub(super) datasets: i64,
    /// Data datasets.
    pub(super) data: i64,
    /// Metadata datasets.
    pub(super) metadata: i64,
    /// Flags of the writer.
    pub(super) config: i64,
    /// Subfiles; 1: there are none.
    pub(super) subfiles: i64,
}

/// The counts of `file`.
pub(super) fn counts(file: &Arc<HdfFile>, prefix: &str) -> Result<Counts> {
    let root = Object::open(file, file.root)?;
    let found = integers(&root, &named(prefix, "int_att"))?.unwrap_or_default();
    match *found {
        [datasets, data, metadata, config, ref rest @ ..] => {
            Ok(Counts { datasets, data, metadata, config, subfiles: rest.first().copied().unwrap_or(1) })
        }
        _ => Err(Error::corrupt(NAME, file.root, "there is no log")),
    }
}

/// The shape of these dimensions, of which negative maxima are unlimited; without maxima it is
/// fixed. `None`: a dimension is negative.
pub(super) fn shape(dims: &[i64], max: Option<&[i64]>) -> Option<Shape> {
    if dims.is_empty() {
        return Some(Shape::Scalar);
    }
    let dims = dims.iter().map(|d| u64::try_from(*d).ok()).collect::<Option<_>>()?;
    let max = max.map(|max| max.iter().map(|m| u64::try_from(*m).unwrap_or(u64::MAX)).collect());
    Some(Shape::Simple { dims, max })
}

/// The integers of the attribute `name`; `None` if there is no such attribute of integers.
pub(super) fn integers(object: &Object, name: &[u8]) -> Result<Option<Vec<i64>>> {
    let Some(value) = attribute::find(object, name)? else { return Ok(None) };
    let Class::FixedPoint { .. } = value.datatype.class else { return Ok(None) };
    let size = value.datatype.size as usize;
    if !matches!(size, 4 | 8) || value.bytes.len() / size > limits::RANK_MAX.saturating_mul(2) {
        return Ok(None);
    }
    let one = |bytes: &[u8]| match *bytes {
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        _ => bytes.try_into().map_or(-1, i64::from_le_bytes),
    };
    Ok(Some(value.bytes.chunks_exact(size).map(one).collect()))
}

/// Names and addresses of the objects that the group `object` has.
pub(super) fn members(object: &Object) -> Result<Vec<(Vec<u8>, Address)>> {
    let mut members = Vec::new();
    group::list(&object.file.store, &object.group_storage()?, 0, &mut |link, _| {
        if let LinkTarget::Hard(address) = link.target {
            members.push((link.name, address));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(members)
}

/// A dataset of the log group.
pub(super) fn member(access: &Access<'_>, file: &Arc<HdfFile>, address: Address) -> Result<Dataset> {
    let id = ObjectId { file: file.index, address };
    access.open_dataset(Object::open(file, address)?, id, 0)
}

/// Where the bytes of a data dataset are.
pub(super) fn data_range(dataset: &Dataset) -> std::ops::Range<Address> {
    let at = dataset.layout().describe(&dataset.bytes).address.filter(|a| a.is_defined());
    let range = at.and_then(|a| Some(a..a.checked_add(dataset.bytes.size)?));
    range.unwrap_or(Address(0)..Address(0))
}
