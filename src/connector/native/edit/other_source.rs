//! Sources of virtual datasets in other files, of those that were written.

use super::super::virtual_::read_source;
use super::super::{NativeConnector, OpenDataset};
use super::connector_parts::OtherFileWrites;
use crate::base::{Address, Error, Result};
use crate::connector::ObjectId;
use crate::dataset::layout::SourceReads;
use crate::dataset::layout::virtual_::Source;
use std::sync::{Arc, Weak};

impl OtherFileWrites<'_> {
    /// The dataset `id` of another file as a source, if it was written.
    pub(in super::super) fn source_elsewhere(&self, id: ObjectId) -> Option<Result<Arc<dyn Source>>> {
        let (other, there) = self.written_elsewhere(id)?;
        let opened = other.access().dataset(there);
        let source = |open: Arc<OpenDataset>| {
            let (space, datatype) = (&open.dataset.space, &open.dataset.datatype);
            let (shape, element_size) = (space.dims.clone(), open.dataset.element_size);
            OtherSource { connector: self.connector.this.clone(), id, shape, element_size, datatype: datatype.to_bytes() }
        };
        Some(opened.map(|open| Arc::new(source(open)) as Arc<dyn Source>))
    }
}

/// A source that was written, in another file. Its extent and its type stay. It keeps nothing of
/// that file, which may be closed. Its elements are of fixed size.
struct OtherSource {
    connector: Weak<NativeConnector>,
    id: ObjectId,
    shape: Vec<u64>,
    element_size: u64,
    datatype: Vec<u8>,
}

impl Source for OtherSource {
    fn shape(&self) -> Vec<u64> {
        self.shape.clone()
    }

    fn element_size(&self) -> u64 {
        self.element_size
    }

    fn datatype_bytes(&self) -> Vec<u8> {
        self.datatype.clone()
    }

    fn place(&self) -> (u32, Address) {
        (self.id.file, self.id.address)
    }

    fn read(&self, reads: SourceReads<'_>, byte_offset: u64, buf: &mut [u8]) -> Result<()> {
        let lost = || Error::corrupt("virtual dataset source", Address::UNDEF, "it is not open");
        let connector = self.connector.upgrade().ok_or_else(lost)?;
        let (other, id) = connector.other_files().written_elsewhere(self.id).ok_or_else(lost)?;
        let access = other.access();
        let open = access.dataset(id)?;
        read_source((self.place(), &open.dataset), &other.options.environment, reads, byte_offset, buf)
    }
}
