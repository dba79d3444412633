//! Upper bounds on the resources that a file's contents can claim.

/// Largest single metadata block read, bytes (a fractal heap's direct block may be this large).
pub const METADATA_BLOCK_MAX: u64 = 64 << 20;
/// Largest object header chunk, bytes.
pub const OBJECT_HEADER_CHUNK_MAX: u64 = 16 << 20;
/// Total size of all chunks of one object header, bytes.
pub const OBJECT_HEADER_BYTES_MAX: u64 = 64 << 20;
/// Continuation blocks followed for one object header.
pub const OBJECT_HEADER_CHUNKS_MAX: usize = 4096;
/// Messages in one object header.
pub const OBJECT_HEADER_MESSAGES_MAX: usize = 1 << 20;
/// Depth of nested datatypes.
pub const DATATYPE_DEPTH_MAX: usize = 32;
/// Members of one compound or enumeration datatype.
pub const DATATYPE_MEMBERS_MAX: usize = 65_535;
/// Rank of a dataspace.
pub const RANK_MAX: usize = 32;
/// Filters in one pipeline.
pub const FILTERS_MAX: usize = 32;
/// Depth of any on-disk tree.
pub const TREE_DEPTH_MAX: usize = 64;
/// Largest decoded chunk, bytes; larger ones are refused.
pub const CHUNK_BYTES_MAX: u64 = 4 << 30;
/// Soft and external links followed when one name is resolved.
pub const LINK_HOPS_MAX: usize = 16;
/// Nesting depth of virtual datasets whose sources are virtual datasets.
pub const VIRTUAL_DEPTH_MAX: usize = 16;
/// Longest name or soft link path read from an old-style group's local heap, bytes.
pub const HEAP_NAME_MAX: usize = 256 << 10;
/// Mappings in one virtual dataset.
pub const VIRTUAL_MAPPINGS_MAX: u64 = 1 << 19;
/// Source datasets probed to find the end of one mapping with `%b` in its names.
pub const VIRTUAL_BLOCKS_MAX: u64 = 1 << 16;
/// Largest element where elements are handled one by one (virtual and variable-length data), bytes.
pub const ELEMENT_BYTES_MAX: u64 = 16 << 20;
/// Bytes read, written or filled at a time when raw data is copied.
pub const IO_PIECE_BYTES: usize = 1 << 20;
