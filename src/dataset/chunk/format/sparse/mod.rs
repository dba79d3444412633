//! Sparse chunks: a chunk knows which of its elements were written. One file per profile, the way
//! they are stored; docs/DESIGN-sparse.md has the reasons.

mod coded;
mod image;
mod mapped;
mod packed;
mod profile;
mod structured;

pub(crate) use packed::{FILTER_ID, decode_image, encode_dense};
pub(crate) use profile::{NewChunks, PROFILES, SparseProfile};
use {mapped::Map, packed::Filter, structured::Structured};
pub(super) use {mapped::open as open_mapped, packed::open as open_packed, structured::open as open_structured};
