//! Dataset storage (libhdf5's H5D): layouts, chunk caches, chunk formats, chunk indexes.

pub(crate) mod chunk;
pub(crate) mod create;
pub(crate) mod creation;
pub(crate) mod elsewhere;
pub mod environment;
pub(crate) mod fill;
pub(crate) mod heap;
pub(crate) mod index;
pub mod layout;
pub(crate) mod parameters;
pub(crate) mod parts;
pub(crate) mod reference;

/// Identifier of the filter that packs sparse chunks.
pub const SPARSE_FILTER_ID: u16 = chunk::format::sparse::FILTER_ID;

/// Decodes a sparse chunk for the filter's plugin: its dense elements. `None`: the client data or
/// the chunk are not valid.
pub fn sparse_filter_decode(cd_values: &[u32], image: &[u8]) -> Option<Vec<u8>> {
    chunk::format::sparse::decode_image(cd_values, image)
}

/// Encodes a sparse chunk of `dense` elements for the filter's plugin; those with the fill value
/// are undefined. `None`: the client data are not valid, or those of another chunk.
pub fn sparse_filter_encode(cd_values: &[u32], dense: &[u8]) -> Option<Vec<u8>> {
    chunk::format::sparse::encode_dense(cd_values, dense)
}
