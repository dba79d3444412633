//! Creates chunked datasets: in dense chunks, and in sparse ones of each profile.

use crate::base::fill::Fill;
use crate::base::{Error, Result};
use crate::dataset::chunk::format::sparse::{NewChunks, PROFILES, SparseProfile};
use crate::dataset::chunk::format::{self, ChunkFormat};
use crate::dataset::creation::{CreateLayout, Creation, NewLayout, pipeline_message};
use crate::dataset::fill::FillPattern;
use crate::dataset::index;
use crate::filter::FilterSpec;
use crate::format::Context;
use crate::format::chunk_record::RecordShape;
use crate::format::message::data_layout::{DataLayout, Layout as Class};
use crate::format::message::filter_pipeline::FilterDescription;
use crate::format::object_header::kind;

/// Name of the layout of dense chunks.
pub(in crate::dataset::layout) const NAME: &str = format::DENSE;
/// Name of the layout of sparse chunks.
pub(in crate::dataset::layout) const SPARSE: &str = format::SPARSE;

/// Creates chunked datasets.
pub(in crate::dataset::layout) struct Create;

/// Creates datasets in sparse chunks of a profile.
pub(in crate::dataset::layout) struct CreateSparse(&'static dyn SparseProfile);

/// One for each profile, the default first.
static CREATE_SPARSE: [CreateSparse; PROFILES.len()] = [CreateSparse(PROFILES[0]), CreateSparse(PROFILES[1]), CreateSparse(PROFILES[2])];

/// Data layout message of a new dataset in chunks. `sections`: number of sections of structured
/// chunks.
fn message(ctx: &Context, superblock_version: u8, creation: &Creation, sections: Option<u8>) -> Result<DataLayout> {
    // With lengths of fewer than 8 bytes libhdf5 decodes an unlimited dimension as a limited one,
    // and then rejects the indexes of version 4.
    let narrow = ctx.sizeof_size < 8;
    let filtered = !creation.filters.is_empty();
    let (version, shape) = match sections {
        Some(_) if narrow => return Err(Error::refused(libc::EOPNOTSUPP, "structured chunks need a file with lengths of 8 bytes")),
        Some(count) => (5, RecordShape::Sections { count, filtered }),
        None => (if superblock_version < 3 || narrow { 3 } else { 4 }, RecordShape::of_pipeline(filtered)),
    };
    let size = creation.datatype.element_size();
    let layout = index::write::plan(version, &creation.dims, &creation.max(), &creation.layout.chunk, size, shape)?;
    Ok(DataLayout { version, class: Class::Chunked(layout) })
}

/// Space allocation time of chunked datasets: incremental.
const ALLOCATION_TIME: u8 = 3;

impl CreateLayout for Create {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_chunked(&self) -> bool {
        true
    }

    fn fits_any_container(&self) -> bool {
        true
    }

    fn allocation_time(&self) -> u8 {
        ALLOCATION_TIME
    }

    fn message(&self, ctx: &Context, superblock_version: u8, creation: &Creation) -> Result<DataLayout> {
        message(ctx, superblock_version, creation, None)
    }
}

impl CreateLayout for CreateSparse {
    fn name(&self) -> &'static str {
        SPARSE
    }

    fn profile(&self) -> Option<&'static str> {
        Some(self.0.name())
    }

    fn with_profile(&'static self, name: &str) -> Option<&'static dyn CreateLayout> {
        CREATE_SPARSE.iter().find(|c| c.0.name() == name).map(|c| c as &dyn CreateLayout)
    }

    fn is_chunked(&self) -> bool {
        true
    }

    fn fits_any_container(&self) -> bool {
        // Sections of chunks are fields of records in an index of the file format.
        self.0.sections().is_none()
    }

    fn in_any_container(&self, filters: &[FilterSpec]) -> Option<&'static dyn CreateLayout> {
        let chunks = NewChunks { dims: &[1], element_size: 1, fill: FillPattern::zero() };
        let takes = |c: &&CreateSparse| c.0.sections().is_none() && c.0.stored_filters(&chunks, filters).is_ok();
        CREATE_SPARSE.iter().find(takes).map(|c| c as &dyn CreateLayout)
    }

    fn allocation_time(&self) -> u8 {
        ALLOCATION_TIME
    }

    fn stored_filters(&self, creation: &Creation) -> Result<Vec<FilterSpec>> {
        let element_size = creation.datatype.element_size();
        let fill = match &creation.fill {
            Fill::Value(value) => FillPattern::new(value, element_size),
            Fill::Default | Fill::Undefined => FillPattern::zero(),
        };
        let chunks = NewChunks { dims: &creation.layout.chunk, element_size, fill };
        self.0.stored_filters(&chunks, &creation.filters)
    }

    fn user_filters(&self, filters: &[FilterSpec]) -> Vec<FilterSpec> {
        self.0.user_filters(filters)
    }

    fn message(&self, ctx: &Context, superblock_version: u8, creation: &Creation) -> Result<DataLayout> {
        message(ctx, superblock_version, creation, self.0.sections())
    }

    fn check(&self, creation: &Creation) -> Result<()> {
        self.0.check_type(&creation.datatype)
    }

    fn filter_message(&self, filters: Vec<FilterDescription>, superblock_version: u8) -> Result<(u16, Vec<u8>)> {
        match self.0.section_filters(&filters) {
            Some(sections) => Ok((kind::SECTION_FILTERS, sections.encode()?)),
            None => Ok((kind::FILTER_PIPELINE, pipeline_message(filters, superblock_version))),
        }
    }

    fn warning(&self) -> Option<&'static str> {
        self.0.warning()
    }
}

/// How sparse datasets of the default profile are created.
pub(in crate::dataset::layout) const DEFAULT_SPARSE: &dyn CreateLayout = &CREATE_SPARSE[0];

/// The layout of a new dataset in dense chunks of these dimensions, elements.
pub(crate) fn new(chunk: Vec<u64>) -> NewLayout {
    NewLayout { kind: &Create, chunk }
}

/// The layout of a new dataset in chunks of this format and these dimensions, elements.
pub(crate) fn like(format: &dyn ChunkFormat, chunk: Vec<u64>) -> NewLayout {
    let profile = format.profile().and_then(|p| DEFAULT_SPARSE.with_profile(p.name()));
    NewLayout { kind: profile.unwrap_or(&Create), chunk }
}
