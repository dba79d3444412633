//! Filter 4: szip, extended Rice coding (CCSDS 121.0-B) as libaec's szlib interface lays it out for
//! HDF5.
//!
//! ```text
//! client data: options mask, pixels per block, bits per pixel, pixels per scanline
//! stored:      u32 LE length of the decoded bytes | coded stream
//! ```
//!
//! Each scanline is padded to a whole number of blocks and is one reference sample interval. Pixels
//! of 32 and 64 bits are coded as 8-bit samples: first bytes of all pixels, then second bytes, and
//! so on; scanlines still count samples. Narrower pixels take 1, 2 or 4 bytes in memory, in the
//! byte order of the mask.
//! Source: H5Zszip.c; libaec's documentation of its szlib compatibility; CCSDS 121.0-B-3.

mod bits;
mod decode;
mod encode;
mod geometry;
mod rice;

pub use decode::decode;
pub use encode::encode;
