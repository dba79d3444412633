//! Attributes and datasets of logs.

use super::NativeConnector;
use super::attribute;
use super::dataset::Dataset;
use super::file::HdfFile;
use super::object::Object;
use super::virtual_;
use crate::base::datatype::Class;
use crate::base::shape::Shape;
use crate::base::{Address, Result, limits};
use crate::connector::ObjectId;
use crate::format::message::link::LinkTarget;
use crate::structures::group;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The shape of these dimensions, of which negative maxima are unlimited. `None`: a dimension is
/// negative.
pub(super) fn shape(dims: &[i64], max: &[i64]) -> Option<Shape> {
    if dims.is_empty() {
        return Some(Shape::Scalar);
    }
    let dims = dims.iter().map(|d| u64::try_from(*d).ok()).collect::<Option<_>>()?;
    let max = max.iter().map(|m| u64::try_from(*m).unwrap_or(u64::MAX)).collect();
    Some(Shape::Simple { dims, max: Some(max) })
}

/// The integers of the attribute `name`; `None` if there is no such attribute of integers.
pub(super) fn integers(object: &Object, name: &[u8]) -> Result<Option<Vec<i64>>> {
    let Some(found) = attribute::find(object, name)? else { return Ok(None) };
    let value = found.value?;
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
pub(super) fn member(connector: &NativeConnector, file: &Arc<HdfFile>, address: Address) -> Result<Dataset> {
    let id = ObjectId { file: file.index, address };
    let surroundings = |object: &Object| virtual_::NativeSurroundings { connector, object: object.clone(), depth: 0 };
    Dataset::open(Object::open(file, address)?, id, surroundings)
}

/// Where the bytes of a data dataset are.
pub(super) fn data_range(dataset: &Dataset) -> std::ops::Range<Address> {
    let at = dataset.layout().describe(&dataset.bytes).address.filter(|a| a.is_defined());
    let range = at.and_then(|a| Some(a..a.checked_add(dataset.bytes.size)?));
    range.unwrap_or(Address(0)..Address(0))
}
