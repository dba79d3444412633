//! Creates chunked datasets.

use crate::base::Result;
use crate::dataset::creation::{CreateLayout, Creation, NewLayout};
use crate::dataset::index;
use crate::format::Context;
use crate::format::message::data_layout::{DataLayout, Layout as Class};

/// Name of the layout.
pub(in crate::dataset::layout) const NAME: &str = "chunked";

/// Creates chunked datasets.
pub(in crate::dataset::layout) struct Create;

impl CreateLayout for Create {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_chunked(&self) -> bool {
        true
    }

    fn allocation_time(&self) -> u8 {
        3
    }

    fn message(&self, ctx: &Context, superblock_version: u8, creation: &Creation) -> Result<DataLayout> {
        // With lengths of fewer than 8 bytes libhdf5 decodes an unlimited dimension as a limited
        // one, and then rejects the indexes of version 4.
        let version = if superblock_version < 3 || ctx.sizeof_size < 8 { 3 } else { 4 };
        let (size, filtered) = (creation.datatype.element_size(), !creation.filters.is_empty());
        let layout = index::write::plan(version, &creation.dims, &creation.max(), &creation.layout.chunk, size, filtered)?;
        Ok(DataLayout { version, class: Class::Chunked(layout) })
    }
}

/// The layout of a new dataset in chunks of these dimensions, elements.
pub(crate) fn new(chunk: Vec<u64>) -> NewLayout {
    NewLayout { kind: &Create, chunk }
}
