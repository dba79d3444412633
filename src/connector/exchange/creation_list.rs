//! The creation property list of an object, as `H5Pencode` writes it.

use super::Object;
use crate::base::storage_class::StorageClass;
use crate::base::{Error, Result};
use crate::connector::{DatasetInfo, Fill, ObjectKind, ObjectProperties};
use crate::dataset::create::datatype_message;
use crate::format::property_list::{DatasetProperties, ListedFile, ListedLayout, encode_dataset, encode_datatype, encode_group};

/// Superblock version whose datatype messages a list has.
const SUPERBLOCK: u8 = 2;
/// Name of the profile whose layout no release of libhdf5 knows.
const STRUCTURED: &str = "structured";

/// The encoded list of `object`; `None`: objects of its kind have none. Errors: `EOPNOTSUPP` for
/// properties that no list has.
pub fn creation_list(object: Object<'_>) -> Result<Option<Vec<u8>>> {
    let Object { connector, id } = object;
    let properties = || connector.properties(id);
    Ok(match connector.info(id)?.kind {
        ObjectKind::Group => Some(encode_group(&properties()?)),
        ObjectKind::Datatype => Some(encode_datatype(&properties()?)),
        ObjectKind::Dataset => Some(of_dataset(&connector.dataset(id)?, properties()?)?),
        ObjectKind::Map | ObjectKind::Unknown => None,
    })
}

fn of_dataset(d: &DatasetInfo, object: ObjectProperties) -> Result<Vec<u8>> {
    let no = |reason| Err(Error::refused(libc::EOPNOTSUPP, reason));
    let segments = d.external.as_deref().unwrap_or_default();
    if d.is_logged || d.class == StorageClass::Log || d.is_elsewhere && segments.is_empty() || d.profile == Some(STRUCTURED) {
        return no("a creation property list has no layout of this kind");
    }
    if d.datatype.contains_vlen() && matches!(d.fill, Fill::Value(_)) {
        return no("a creation property list has no fill value of variable length");
    }
    let layout = match (&d.chunks, d.class) {
        (Some(dims), _) => ListedLayout::Chunked(dims),
        (None, StorageClass::Compact) => ListedLayout::Compact,
        (None, _) => ListedLayout::Contiguous,
    };
    encode_dataset(&DatasetProperties {
        object,
        layout,
        files: segments.iter().map(|s| ListedFile { name: &s.name, offset: s.offset, size: s.size }).collect(),
        filters: &d.stored_filters,
        fill: &d.fill,
        datatype: &datatype_message(SUPERBLOCK, &d.datatype)?,
        allocation_time: d.allocation_time,
        is_usual_allocation: d.usual_allocation_time.is_none_or(|usual| usual == d.allocation_time),
        fill_time: d.fill_time,
    })
}
