//! Filter Pipeline message, type 0x000B: the filters applied to every chunk of a dataset.
//!
//! ```text
//! version 1:  1 | count u8 | 0 x 6 | filters         everything in multiples of 8 bytes
//! version 2:  2 | count u8 | filters
//! version 3:  3 | count u8 | filters                 (libhdf5 2.3 / 3.0)
//!
//! filter:     id u16 | name length u16 | flags u16 | value count u16 | name | values u32 ...
//!   version 1    name NUL-terminated and padded to a multiple of 8 (included in the length);
//!                an odd number of values is followed by 4 zero bytes
//!   version 2, 3 no name length and name when id < 256; name NUL-terminated, not padded
//!   version 3    config length u16 | config string (no NUL) after the values; a draft, see
//! `decode`
//! ```
//!
//! H5.format.4.0, "The Data Storage - Filter Pipeline Message"; version 3: H5Opline.c of the 2.3
//! branch.

use crate::base::{Address, Result, limits};
use crate::format::{Reader, Writer};

/// Identifiers below this are libhdf5's own: their names are not stored from version 2 on.
const FILTER_RESERVED: u16 = 256;

/// A decoded Filter Pipeline message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterPipeline {
    /// Version of the message, 1 to 3.
    pub version: u8,
    /// The filters in the order of writing.
    pub filters: Vec<FilterDescription>,
}

/// One filter of the message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterDescription {
    /// Registered filter identifier.
    pub id: u16,
    /// Flags; bit 0: optional.
    pub flags: u16,
    /// Name without NUL and padding; empty if none is stored.
    pub name: Vec<u8>,
    /// Client data values.
    pub cd_values: Vec<u32>,
    /// Configuration string of version 3; `None` in other versions.
    pub config: Option<Vec<u8>>,
}

impl FilterPipeline {
    /// Decodes a message body, which may be followed by padding. `address` is the message's, for
    /// errors.
    pub fn decode(body: &[u8], address: Address) -> Result<FilterPipeline> {
        let mut r = Reader::new(body, "filter pipeline message", address);
        let version = r.version(1..=3)?;
        let count = usize::from(r.u8()?);
        if count > limits::FILTERS_MAX {
            return Err(r.corrupt(format!("{count} filters, at most {} are allowed", limits::FILTERS_MAX)));
        }
        if version == 1 {
            r.skip(6)?;
        }
        let filters = (0..count).map(|_| FilterDescription::decode(&mut r, version)).collect::<Result<_>>()?;
        // Version 3 is unreleased, and its drafts differ after the values. Nonzero bytes after the
        // last filter mean another draft, possibly with settings that the filters need.
        if version == 3 && r.rest().iter().any(|&b| b != 0) {
            return Err(r.unsupported("draft of version 3"));
        }
        Ok(FilterPipeline { version, filters })
    }

    /// Encodes the message body as libhdf5 does.
    ///
    /// Lossless for messages that libhdf5 writes; unusual padding of a name is replaced by the
    /// usual one.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(self.version).u8(u8::try_from(self.filters.len()).unwrap_or(u8::MAX));
        if self.version == 1 {
            w.zeros(6);
        }
        for filter in &self.filters {
            filter.encode(&mut w, self.version);
        }
        w.into_bytes()
    }
}

impl FilterDescription {
    /// Decodes a description as in a message of `version`.
    pub(super) fn decode(r: &mut Reader<'_>, version: u8) -> Result<FilterDescription> {
        let id = r.u16()?;
        let name_length = if version == 1 || id >= FILTER_RESERVED { usize::from(r.u16()?) } else { 0 };
        if version == 1 && name_length % 8 != 0 {
            return Err(r.corrupt("the length of a filter's name is not a multiple of 8"));
        }
        let flags = r.u16()?;
        let value_count = usize::from(r.u16()?);
        let name = r.bytes(name_length)?.split(|&b| b == 0).next().unwrap_or_default().to_vec();
        let mut values = r.sub(value_count.saturating_mul(4))?;
        let cd_values = (0..value_count).map(|_| values.u32()).collect::<Result<_>>()?;
        if version == 1 && value_count % 2 != 0 {
            r.skip(4)?;
        }
        let config = match version {
            3 => {
                let length = usize::from(r.u16()?);
                Some(r.bytes(length)?.to_vec())
            }
            _ => None,
        };
        Ok(FilterDescription { id, flags, name, cd_values, config })
    }

    /// Encodes a description as in a message of `version`.
    pub(super) fn encode(&self, w: &mut Writer, version: u8) {
        let terminated = if self.name.is_empty() { 0 } else { self.name.len().saturating_add(1) };
        let name_length = match version {
            1 => terminated.next_multiple_of(8),
            _ if self.id < FILTER_RESERVED => 0,
            _ => terminated,
        };
        w.u16(self.id);
        if version == 1 || self.id >= FILTER_RESERVED {
            w.u16(saturated(name_length));
        }
        w.u16(self.flags).u16(saturated(self.cd_values.len()));
        if name_length > 0 {
            w.bytes(&self.name).zeros(name_length.saturating_sub(self.name.len()));
        }
        for &value in &self.cd_values {
            w.u32(value);
        }
        if version == 1 && !self.cd_values.len().is_multiple_of(2) {
            w.u32(0);
        }
        if version == 3 {
            let config = self.config.as_deref().unwrap_or_default();
            w.u16(saturated(config.len())).bytes(config);
        }
    }
}

/// Converts a count to its 16-bit field, saturating; counts of decoded messages always fit.
fn saturated(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Error;

    /// Bodies written by libhdf5 2.0 with `tests/fixtures/filters/make_filters.py`.
    fn golden() -> Vec<(String, Vec<u8>)> {
        let mut rest = include_bytes!("../../../tests/fixtures/filters/messages.bin").as_slice();
        let mut string = || {
            let (length, tail) = rest.split_first_chunk::<2>()?;
            let (string, tail) = tail.split_at(u16::from_le_bytes(*length).into());
            rest = tail;
            Some(string.to_vec())
        };
        std::iter::from_fn(|| Some((String::from_utf8(string()?).unwrap(), string()?))).collect()
    }

    fn decode(body: &[u8]) -> Result<FilterPipeline> {
        FilterPipeline::decode(body, Address(0x1234))
    }

    fn filter(id: u16, flags: u16, name: &str, cd_values: &[u32]) -> FilterDescription {
        FilterDescription { id, flags, name: name.into(), cd_values: cd_values.to_vec(), config: None }
    }

    #[test]
    fn round_trip() {
        let golden = golden();
        assert_eq!(golden.len(), 18);
        for (name, body) in golden {
            let message = decode(&body).unwrap();
            assert_eq!(message.version, if name.starts_with("latest") { 2 } else { 1 }, "{name}");
            assert_eq!(message.encode(), body, "{name}");
        }
    }

    #[test]
    fn known_answers() {
        for (name, body) in golden() {
            let filters = decode(&body).unwrap().filters;
            let named = |n| if name.starts_with("earliest") { n } else { "" };
            match name.split_once(' ').unwrap().1 {
                "gzip" => assert_eq!(filters, [filter(1, 1, named("deflate"), &[4])]),
                "shuffle gzip fletcher32" => {
                    let shuffle = filter(2, 1, named("shuffle"), &[4]);
                    assert_eq!(filters, [shuffle, filter(1, 1, named("deflate"), &[9]), filter(3, 0, named("fletcher32"), &[])]);
                }
                "lzf" => assert_eq!(filters, [filter(32000, 1, "lzf", &[4, 261, 64])]),
                "nbit" => assert_eq!(filters, [filter(5, 1, named("nbit"), &[8, 0, 16, 1, 4, 0, 17, 5])]),
                "zstd" => assert_eq!((filters[0].id, filters[0].flags, &filters[0].cd_values), (32015, 0, &vec![3])),
                "bzip2" => assert_eq!((filters[0].id, &filters[0].cd_values), (307, &vec![9])),
                "scaleoffset" => assert_eq!((filters[0].id, filters[0].cd_values.len()), (6, 20)),
                "bitshuffle lz4" => assert_eq!((filters[0].id, filters[0].cd_values.len()), (32008, 5)),
                _ => assert_eq!(filters.iter().map(|f| f.id).collect::<Vec<_>>(), [2, 32001, 3]),
            }
        }
    }

    /// No release writes version 3 yet: bytes made by hand after the 2.3 branch's encoder.
    #[test]
    fn version_3() {
        let mut body = vec![3, 2];
        body.extend([1, 0, 1, 0, 1, 0, 6, 0, 0, 0, 0, 0]); // deflate, optional, 1 value: 6, no config
        body.extend([0x0f, 0x7d, 5, 0, 0, 0, 0, 0]); // 32015, name of 5 bytes, no flags, no values
        body.extend(b"zstd\0\x07\0level=3");
        let message = decode(&body).unwrap();
        let deflate = FilterDescription { config: Some(vec![]), ..filter(1, 1, "", &[6]) };
        let zstd = FilterDescription { config: Some(b"level=3".to_vec()), ..filter(32015, 0, "zstd", &[]) };
        assert_eq!(message.filters, [deflate, zstd]);
        assert_eq!(message.encode(), body);
        body.extend([0; 5]);
        assert_eq!(decode(&body).unwrap(), message);
        body.push(1);
        assert!(matches!(decode(&body), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn damaged() {
        for (name, body) in golden() {
            for len in 0..body.len() {
                assert!(decode(&body[..len]).is_err(), "{name}: {len} bytes");
            }
            for at in 0..body.len() {
                for bit in 0..8 {
                    let mut body = body.clone();
                    body[at] ^= 1 << bit;
                    if let Ok(message) = decode(&body) {
                        assert_eq!(decode(&message.encode()).unwrap(), message, "{name}: bit {bit} of byte {at}");
                    }
                }
            }
        }
        assert!(matches!(decode(&[4, 0]), Err(Error::Unsupported { .. })));
        assert!(matches!(decode(&[0, 0]), Err(Error::Unsupported { .. })));
        assert!(matches!(decode(&[2, 33]), Err(Error::Corrupt { .. })));
        assert_eq!(decode(&[2, 0]).unwrap().encode(), [2, 0]);
        // Name length not a multiple of 8 in version 1.
        assert!(decode(&[1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0, 0, b'a', 0, 0, 0]).is_err());
    }
}
