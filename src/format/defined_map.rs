//! Map of the defined elements of a chunk, behind the compressed stream that the chunk's elements
//! are: an extension of this program.
//!
//! ```text
//! zlib stream | body | version u8, form u8, deflated u8, 0 u8 | stream length u64
//!             | body length u64 | inflated body length u64 | checksum u32 | "h5dirMAP"
//! form 0: the body is a serialized selection; form 1: a bit per element, row-major, low bit first
//! ```
//!
//! A zlib stream says where it ends, and libhdf5 ignores what follows, so that stock programs read
//! the elements. One that changes a chunk writes it without a map. The checksum (lookup3) covers
//! everything before it, the stream included. Selections are those of H5Sencode.

use super::codec::{Reader, Writer};
use crate::base::checksum::lookup3;
use crate::base::{Address, Result};

const NAME: &str = "map of defined elements";
const SIGNATURE: &[u8; 8] = b"h5dirMAP";
const VERSION: u8 = 1;
/// Length of everything behind the body, bytes.
pub const FOOTER_BYTES: usize = 40;

/// How a map is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapForm {
    /// A serialized selection.
    Selection,
    /// A bit per element.
    Bitmap,
}

/// A map as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefinedMap<'a> {
    /// The compressed elements.
    pub stream: &'a [u8],
    /// Form of the body.
    pub form: MapForm,
    /// Length of the body before it was deflated, bytes; `None`: it is not deflated.
    pub inflated: Option<u64>,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> DefinedMap<'a> {
    /// The map at the end of `stored`; `None` if there is none, or a damaged one.
    pub fn decode(stored: &'a [u8]) -> Option<Self> {
        let at = stored.len().checked_sub(FOOTER_BYTES)?;
        if !stored.ends_with(SIGNATURE) {
            return None;
        }
        let mut r = Reader::new(stored.get(at..)?, NAME, Address::UNDEF);
        let fields = Self::fields(&mut r).ok()?;
        let (form, deflated, stream_len, body_len, inflated, checksum) = fields;
        if lookup3(stored.get(..stored.len().checked_sub(12)?)?, 0) != checksum || stream_len.checked_add(body_len)? != at {
            return None;
        }
        let (stream, body) = stored.get(..at)?.split_at_checked(stream_len)?;
        Some(DefinedMap { stream, form, inflated: deflated.then_some(inflated), body })
    }

    #[allow(clippy::type_complexity)]
    fn fields(r: &mut Reader<'_>) -> Result<(MapForm, bool, usize, usize, u64, u32)> {
        r.version(VERSION..=VERSION)?;
        let form = match r.u8()? {
            0 => MapForm::Selection,
            1 => MapForm::Bitmap,
            form => return Err(r.unsupported(format!("form {form}"))),
        };
        let deflated = r.u8()? != 0;
        r.u8()?;
        let len = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Ok((form, deflated, len(r.u64()?), len(r.u64()?), r.u64()?, r.u32()?))
    }

    /// The stored bytes of the chunk: stream, body and footer.
    pub fn encode(&self) -> Vec<u8> {
        let form = match self.form {
            MapForm::Selection => 0,
            MapForm::Bitmap => 1,
        };
        let mut w = Writer::new();
        w.bytes(self.stream).bytes(self.body).u8(VERSION).u8(form).u8(u8::from(self.inflated.is_some())).u8(0);
        w.u64(self.stream.len() as u64).u64(self.body.len() as u64).u64(self.inflated.unwrap_or(self.body.len() as u64));
        w.checksum().bytes(SIGNATURE);
        w.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_anywhere_leaves_no_map() {
        let map = DefinedMap { stream: b"stream", form: MapForm::Bitmap, inflated: Some(9), body: b"body" };
        let bytes = map.encode();
        assert_eq!(bytes.len(), 10 + FOOTER_BYTES);
        assert_eq!(DefinedMap::decode(&bytes), Some(map));
        for n in 0..bytes.len() {
            assert_eq!(DefinedMap::decode(&bytes[..n]), None);
            assert_eq!(DefinedMap::decode(&bytes[n + 1..]), None);
            for change in [1, 0x80] {
                let mut bad = bytes.clone();
                bad[n] ^= change;
                assert_eq!(DefinedMap::decode(&bad), None, "byte {n}");
            }
        }
    }
}
