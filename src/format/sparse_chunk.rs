//! Image of a sparse chunk: its defined elements and where they are.
//!
//! ```text
//! selected  encoded dataspace (H5Sencode) | checksum u32 | values in the order of the selection
//! bitmap    2 u8, 0 u8[3] | bit per element, row-major, low bit first | checksum u32 | values
//! ```
//!
//! The first form is the chunk of HDF5's "structured chunk" proposal (sections 0 and 1); an encoded
//! dataspace begins with 1. The checksum (lookup3) covers what is before it. The second form is for
//! chunks whose selection takes more space than a bit per element; its values are row-major.

use super::codec::{Reader, Writer};
use super::selection::{EncodedDataspace, SerializedSelection};
use crate::base::{Address, Result};

/// Name of the structure in errors.
pub const NAME: &str = "sparse chunk";
/// First byte of the form with a bitmap.
const BITMAP: u8 = 2;
/// Size of a length in the encoded dataspace, bytes.
const LENGTH_BYTES: u8 = 8;
/// The dataspace message has maximum dimensions.
const HAS_MAXIMUM: u8 = 1;

/// A chunk image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SparseChunk<'a> {
    /// The defined elements as a selection.
    Selected {
        /// Which elements are defined.
        selection: SerializedSelection,
        /// Their values, in the order of the selection.
        values: &'a [u8],
    },
    /// The defined elements as bits.
    Bitmap {
        /// A bit per element.
        bitmap: &'a [u8],
        /// The values of the defined elements, row-major.
        values: &'a [u8],
    },
}

impl<'a> SparseChunk<'a> {
    /// Decodes the image of a chunk of `elements` elements, stored at `address`.
    pub fn decode(image: &'a [u8], elements: u64, address: Address) -> Result<Self> {
        let mut r = Reader::new(image, NAME, address);
        if image.first() == Some(&BITMAP) {
            let bits = usize::try_from(elements.div_ceil(8)).map_err(|_| r.corrupt("number of elements"))?;
            r.bytes(4)?;
            let bitmap = r.bytes(bits)?;
            r.checksum()?;
            return Ok(SparseChunk::Bitmap { bitmap, values: r.rest() });
        }
        let selection = decode_selection(&mut r)?;
        Ok(SparseChunk::Selected { selection, values: r.rest() })
    }

    /// The image of a chunk of `dims`.
    pub fn encode(&self, dims: &[u64]) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            SparseChunk::Selected { selection, values } => {
                encode_selection(&mut w, selection.clone(), dims);
                w.bytes(values);
            }
            SparseChunk::Bitmap { bitmap, values } => {
                w.u8(BITMAP).zeros(3).bytes(bitmap).checksum().bytes(values);
            }
        }
        w.into_bytes()
    }
}

/// Decodes an encoded dataspace and its checksum, which begin where `r` begins.
pub fn decode_selection(r: &mut Reader<'_>) -> Result<SerializedSelection> {
    let selection = EncodedDataspace::decode(r)?.selection;
    r.checksum()?;
    Ok(selection)
}

/// Appends the encoded dataspace of a chunk of `dims` with this selection, and the checksum of all
/// that `w` has.
pub fn encode_selection(w: &mut Writer, selection: SerializedSelection, dims: &[u64]) {
    EncodedDataspace { sizeof_size: LENGTH_BYTES, extent: extent(dims), selection }.encode(w);
    w.checksum();
}

/// A dataspace message, version 1, of a fixed extent.
fn extent(dims: &[u64]) -> Vec<u8> {
    let mut w = Writer::new();
    w.u8(1).u8(u8::try_from(dims.len()).unwrap_or(u8::MAX)).u8(HAS_MAXIMUM).zeros(5);
    dims.iter().chain(dims).for_each(|d| {
        w.u64(*d);
    });
    w.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::element_set::ElementSet;
    use crate::format::set_selection::Versions;

    /// Selection bytes by H5Sencode of libhdf5 2.2.0, of rows 0 and 3 of a chunk of 4 x 10.
    const GOLDEN: &str = "0100082800000001020100000000000400000000000000\
        0a0000000000000004000000000000000a00000000000000\
        02000000010000000000000028000000020000000200000000000000020000000000000004000000\
        03000000070000000300000007000000e996b57d\
        0a0000000b0000000c00000063000000";

    fn unhex(s: &str) -> Vec<u8> {
        (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn a_packed_chunk_is_that_of_the_proposal() {
        let set = ElementSet::of_blocks(2, &[0, 2, 0, 4, 3, 7, 3, 7]).unwrap();
        let selection = SerializedSelection::of_set(&set, &[4, 10], Versions::Oldest);
        let values: Vec<u8> = [10u32, 11, 12, 99].iter().flat_map(|n| n.to_le_bytes()).collect();
        let chunk = SparseChunk::Selected { selection, values: &values };
        let bytes = chunk.encode(&[4, 10]);
        assert_eq!(bytes, unhex(&GOLDEN.replace(' ', "")));
        assert_eq!(SparseChunk::decode(&bytes, 40, Address(0)).unwrap(), chunk);
        assert!(SparseChunk::decode(&bytes[..106], 40, Address(0)).is_err());
        let SparseChunk::Selected { selection, .. } = chunk else { unreachable!() };
        assert_eq!(selection.to_set(&[4, 10]).unwrap(), set);
        assert!(selection.to_set(&[4, 7]).is_err() && selection.to_set(&[40]).is_err());
    }

    #[test]
    fn damage_ends_in_an_error() {
        let chunk = SparseChunk::Bitmap { bitmap: &[0b101, 1], values: &[7; 3] };
        let bytes = chunk.encode(&[3, 3]);
        assert_eq!(SparseChunk::decode(&bytes, 9, Address(0)).unwrap(), chunk);
        for n in 0..bytes.len() - 3 {
            let mut bad = bytes.clone();
            bad[n] ^= 4;
            assert!(SparseChunk::decode(&bad, 9, Address(0)).is_err(), "byte {n}");
        }
    }
}
