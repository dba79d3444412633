//! Opens the dataset of an anchor.

use super::anchor::InLog;
use super::{records, released};
use crate::base::Result;
use crate::base::shape::Extent;
use crate::dataset::layout::parts::Parts;
use crate::dataset::layout::traits::Layout;
use crate::format::message::dataspace::Dataspace;

/// Opens the layout if the dataset object is an anchor, and sets the extent of the dataset.
pub(in crate::dataset::layout) fn open(parts: &mut Parts<'_>) -> Result<Option<Box<dyn Layout>>> {
    if parts.space.extent == Extent::Simple {
        return Ok(None);
    }
    let Some(anchor) = parts.surroundings.anchor()? else { return Ok(None) };
    *parts.space = Dataspace::of(&anchor.shape, 2);
    let (dims, element_size) = (&parts.space.dims, parts.datatype.element_size());
    Ok(Some(match anchor.log {
        InLog::Records(anchor) => {
            // Also one that has grown to its maximum: it can become shorter.
            let resizes = parts.space.max_dims.is_some();
            records::open(anchor, dims, element_size, resizes, parts.number)
        }
        InLog::Released(anchor) => released::open(anchor, dims, element_size, parts.number),
    }))
}
