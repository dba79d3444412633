//! Chunk formats: the form of one chunk in memory and in the file. One file per format, opened by
//! [`open`].

mod dense;
mod filtered;
mod filtered_chunk;
mod parts;
mod prefix;
mod registry;
pub(crate) mod sparse;
mod streamed;
mod traits;

pub(crate) use parts::{Parts, SectionParts};
pub(crate) use registry::{open, open_value};
pub(crate) use streamed::no_room;
pub(in crate::dataset) use traits::check_stored;
pub(crate) use traits::{ChunkFormat, DENSE, DecodeToFile, Large, LargeReader, READ_AHEAD_CHUNK_MAX_BYTES, SPARSE};
