//! Chooses the encoding of chunk records.

use crate::base::{Address, Error, Result};
use crate::format::Context;
use crate::format::chunk_record::{RecordFormat, RecordShape};

/// Properties of a dataset that determine the encoding of its chunk records.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records {
    /// Version of the layout message.
    pub(super) version: u8,
    /// Bytes of a chunk's elements.
    pub(super) chunk_bytes: u64,
    /// Fields of a record.
    pub(super) shape: RecordShape,
}

impl Records {
    /// The record format.
    pub(super) fn format(&self, ctx: &Context) -> RecordFormat {
        RecordFormat::new(self.version, self.chunk_bytes, self.shape, ctx)
    }

    /// The record format. Errors: the header of an array index contradicts it.
    pub(super) fn array_format(
        &self,
        ctx: &Context,
        client: u8,
        element_size: u8,
        structure: &'static str,
        address: Address,
    ) -> Result<RecordFormat> {
        let format = self.format(ctx);
        if client == format.client() && usize::from(element_size) == format.element_size(ctx) {
            return Ok(format);
        }
        let detail = format!(
            "client {client} with elements of {element_size} bytes, the dataset implies client {} and {} bytes",
            format.client(),
            format.element_size(ctx)
        );
        Err(Error::corrupt(structure, address, detail))
    }
}
