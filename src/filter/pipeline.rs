//! A dataset's filter pipeline: applied in order on writing, reversed on reading.

use super::registry::{self, FLETCHER32, SHUFFLE};
use super::{FilterError, Params, bounded, fletcher32, shuffle};
use crate::base::filter_spec::FilterSpec;
use crate::base::{buffers, metrics};
use crate::format::message::filter_pipeline::FilterPipeline;
use std::borrow::Cow;
use std::time::Instant;

pub use super::registry::name_of;

/// Bytes that a decoded stage may exceed twice the chunk size by: checksums, headers of inner
/// filters.
const STAGE_SLACK_BYTES: usize = 64 << 10;

/// Filters that a chunk's filter mask can represent.
const MASK_BITS: usize = 32;

/// True if filter `i` of a pipeline was applied to a chunk with this filter mask.
pub fn is_applied(mask: u32, i: usize) -> bool {
    u32::try_from(i).ok().and_then(|i| mask.checked_shr(i)).unwrap_or(0) & 1 == 0
}

impl FilterSpec {
    /// The name stored in the file, or the registered one if that is empty.
    pub fn display_name(&self) -> Cow<'_, str> {
        if self.name.is_empty() { name_of(self.id).into() } else { String::from_utf8_lossy(&self.name) }
    }

    /// True if a decoder exists; it may still reject variants of the filter.
    pub fn is_known(&self) -> bool {
        registry::decoder(self.id).is_some()
    }

    /// True if decoding returns exactly the bytes that were encoded.
    pub fn is_lossless(&self) -> bool {
        registry::is_lossless(self.id)
    }

    /// Encodes `data`; an empty result is a failure, as in libhdf5.
    fn encode(&self, data: &[u8]) -> Result<Vec<u8>, FilterError> {
        let name = || self.display_name().into_owned();
        let encode = registry::encoder(self.id).ok_or_else(|| FilterError::Unknown { id: self.id, name: name() })?;
        let p = Params { cd_values: &self.cd_values, expected: data.len(), limit: usize::MAX };
        let mut encoded = encode(data, &p)?.filter(|out| !out.is_empty());
        if let Some(store) = registry::storing_encoder(self.id).filter(|_| encoded.is_none() && !self.is_optional()) {
            encoded = store(data, &p)?;
        }
        encoded.ok_or_else(|| FilterError::Declined { id: self.id, name: name() })
    }
}

/// A sequence of filters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pipeline {
    /// In the order of writing; reading applies them in reverse.
    pub filters: Vec<FilterSpec>,
}

impl From<&FilterPipeline> for Pipeline {
    fn from(message: &FilterPipeline) -> Self {
        let spec = |f: &crate::format::message::filter_pipeline::FilterDescription| FilterSpec {
            id: f.id,
            flags: f.flags,
            name: f.name.clone(),
            cd_values: f.cd_values.clone(),
        };
        Pipeline { filters: message.filters.iter().map(spec).collect() }
    }
}

impl Pipeline {
    /// True when chunks are stored unfiltered.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// True when chunks can be written: every mandatory filter has an encoder.
    pub fn can_encode(&self) -> bool {
        self.filters.len() <= MASK_BITS && self.filters.iter().all(|f| f.is_optional() || registry::encoder(f.id).is_some())
    }

    /// Applies the filters to `chunk`; returns the bytes to store and the filter mask.
    ///
    /// Mask bit `i` is set when filter `i` is optional and was not applied: it has no encoder here,
    /// failed, or declined (H5Z_pipeline).
    ///
    /// # Errors
    /// A mandatory filter that has no encoder, fails or declines.
    pub fn encode(&self, chunk: Vec<u8>) -> Result<(Vec<u8>, u32), FilterError> {
        let (mut data, mut mask) = (chunk, 0u32);
        for (i, filter) in self.filters.iter().enumerate() {
            let Some(bit) = u32::try_from(i).ok().and_then(|i| 1u32.checked_shl(i)) else {
                return Err(FilterError::unsupported("pipeline", format!("{} filters", self.filters.len())));
            };
            if filter.id == FLETCHER32 && !data.is_empty() {
                fletcher32::append(&mut data);
                continue;
            }
            if filter.id == SHUFFLE && !data.is_empty() && shuffle::is_identity(&filter.cd_values, data.len()) {
                continue;
            }
            match filter.encode(&data) {
                Ok(encoded) => buffers::give(std::mem::replace(&mut data, encoded)),
                Err(_) if filter.is_optional() => mask |= bit,
                Err(e) => return Err(e),
            }
        }
        Ok((data, mask))
    }

    /// Reverses the filters on `stored`, the bytes of one chunk; the result has exactly
    /// `chunk_bytes` bytes.
    ///
    /// Bit `i` of `filter_mask` means that filter `i` was not applied to this chunk.
    pub fn decode(&self, stored: &[u8], filter_mask: u32, chunk_bytes: usize) -> Result<Vec<u8>, FilterError> {
        let limit = chunk_bytes.saturating_mul(2).saturating_add(STAGE_SLACK_BYTES);
        let data = self.reverse(stored, filter_mask, chunk_bytes, limit)?;
        if data.len() == chunk_bytes {
            return Ok(data);
        }
        Err(FilterError::corrupt("pipeline", format!("{} bytes decoded, the chunk has {chunk_bytes}", data.len())))
    }

    /// Reverses the filters on `stored`; the result has at most `limit` bytes.
    pub fn decode_upto(&self, stored: &[u8], filter_mask: u32, limit: usize) -> Result<Vec<u8>, FilterError> {
        self.reverse(stored, filter_mask, stored.len().saturating_mul(4).min(limit), limit)
    }

    /// True if chunks of the other pipeline are stored alike.
    pub fn is_like(&self, other: &Pipeline) -> bool {
        let alike = |(a, b): (&FilterSpec, &FilterSpec)| a.id == b.id && a.cd_values == b.cd_values;
        self.filters.len() == other.filters.len() && self.filters.iter().zip(&other.filters).all(alike)
    }

    /// Reverses the filters; about `chunk_bytes` bytes are expected.
    fn reverse(&self, stored: &[u8], filter_mask: u32, chunk_bytes: usize, limit: usize) -> Result<Vec<u8>, FilterError> {
        let applied = |i: usize| is_applied(filter_mask, i);
        // The decompressor's output includes a checksum that was appended before compression.
        let mut checksums = self.filters.iter().enumerate().filter(|(i, f)| f.id == FLETCHER32 && applied(*i)).count();
        // Output of the last stage (none: `stored`) and its length without a verified checksum.
        let (mut made, mut len): (Option<Vec<u8>>, _) = (None, stored.len());
        for (_, filter) in self.filters.iter().enumerate().rev().filter(|(i, _)| applied(*i)) {
            let data = made.as_deref().unwrap_or(stored).get(..len).unwrap_or_default();
            if filter.id == FLETCHER32 {
                len = fletcher32::verify(data)?;
                checksums = checksums.saturating_sub(1);
                continue;
            }
            if filter.id == SHUFFLE && shuffle::is_identity(&filter.cd_values, data.len()) {
                continue;
            }
            let Some(decode) = registry::decoder(filter.id) else {
                return Err(FilterError::Unknown { id: filter.id, name: filter.display_name().into_owned() });
            };
            let expected = chunk_bytes.saturating_add(checksums.saturating_mul(4));
            let begun = Instant::now();
            let decoded = decode(data, &Params { cd_values: &filter.cd_values, expected, limit })?;
            metrics::DECODED.record(registry::name_of(filter.id), begun);
            len = decoded.len();
            if let Some(old) = made.replace(decoded) {
                buffers::give(old);
            }
        }
        match made {
            Some(mut data) => {
                data.truncate(len);
                Ok(data)
            }
            None => bounded::copy("pipeline", stored.get(..len).unwrap_or_default(), limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(id: u16, cd_values: &[u32]) -> FilterSpec {
        FilterSpec { id, flags: 0, name: Vec::new(), cd_values: cd_values.to_vec() }
    }

    #[test]
    fn mask_skips_filters() {
        let pipeline = Pipeline { filters: vec![spec(2, &[2]), spec(9999, &[])] };
        assert_eq!(pipeline.decode(&[1, 2, 3, 4], 0b10, 4).unwrap(), [1, 3, 2, 4]);
        assert_eq!(pipeline.decode(&[1, 2, 3, 4], 0b11, 4).unwrap(), [1, 2, 3, 4]);
        let unknown = FilterError::Unknown { id: 9999, name: "unregistered".into() };
        assert_eq!(pipeline.decode(&[1, 2, 3, 4], 0, 4), Err(unknown));
        assert!(matches!(pipeline.decode(&[1, 2, 3], 0b11, 4), Err(FilterError::Corrupt { .. })));
        assert!(Pipeline::default().is_empty());
        assert_eq!(Pipeline::default().decode(&[7], 0, 1).unwrap(), [7]);
    }

    /// Regression: chunks that Blosc does not make smaller were lost where it is mandatory.
    #[test]
    fn mandatory_blosc_stores_what_does_not_shrink() {
        let next = |x: &u32| Some(x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        for (level, len) in [(5, 20_000), (0, 20_000), (5, 12)] {
            let data: Vec<u8> = std::iter::successors(Some(1), next).map(|x| (x >> 24) as u8).take(len).collect();
            for flags in [0, 1] {
                let values = vec![2, 2, 4, len as u32, level, 1, 1];
                let p = Pipeline { filters: vec![FilterSpec { id: 32001, flags, name: Vec::new(), cd_values: values }] };
                let (stored, mask) = p.encode(data.clone()).unwrap();
                assert_eq!((stored.len(), mask), if flags == 0 { (len + 16, 0) } else { (len, 1) });
                assert!(p.decode(&stored, mask, len).unwrap() == data, "level {level}, {len} bytes");
            }
        }
    }

    #[test]
    fn encoding_masks_what_is_optional() {
        let of = |filters: &[(u16, u16, &[u32])]| Pipeline {
            filters: filters.iter().map(|&(id, flags, cd)| FilterSpec { flags, ..spec(id, cd) }).collect(),
        };
        let noise: Vec<u8> = (0..64u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8).collect();
        // LZF declines noise, 9999 is unknown, deflate refuses level 10, shuffle is applied.
        let all = of(&[(32000, 1, &[]), (9999, 1, &[]), (1, 1, &[10]), (2, 1, &[4])]);
        let (stored, mask) = all.encode(noise.clone()).unwrap();
        assert_eq!(mask, 0b0111);
        assert_eq!(all.decode(&stored, mask, 64).unwrap(), noise);
        assert!(all.can_encode());
        let declined = FilterError::Declined { id: 32000, name: "lzf".into() };
        assert_eq!(of(&[(32000, 0, &[])]).encode(noise.clone()), Err(declined));
        assert!(matches!(of(&[(9999, 0, &[])]).encode(noise.clone()), Err(FilterError::Unknown { id: 9999, .. })));
        assert!(matches!(of(&[(1, 0, &[10])]).encode(noise.clone()), Err(FilterError::Corrupt { filter: "deflate", .. })));
        assert!(!of(&[(2, 0, &[4]), (299, 0, &[])]).can_encode() && of(&[(299, 1, &[])]).can_encode());
        // Deflate never declines, whatever becomes of the size; nothing stays nothing.
        for level in 0..=9 {
            let deflate = of(&[(1, 0, &[level]), (3, 0, &[])]);
            let (stored, mask) = deflate.encode(noise.clone()).unwrap();
            assert!(mask == 0 && stored.len() > 64);
            assert_eq!(deflate.decode(&stored, 0, 64).unwrap(), noise);
        }
        assert_eq!(Pipeline::default().encode(vec![7]).unwrap(), (vec![7], 0));
    }

    #[test]
    fn unknown_names() {
        let mut filter = spec(32002, &[]);
        assert_eq!(filter.display_name(), "mafisc");
        filter.name = b"MAFISC filter".to_vec();
        assert_eq!(filter.display_name(), "MAFISC filter");
        assert!(!filter.is_known() && spec(1, &[6]).is_known());
    }

    /// A small stream that inflates endlessly stops at the limit of a small chunk.
    #[test]
    fn bombs_are_stopped() {
        use std::io::Write;
        let mut bomb = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        bomb.write_all(&vec![0; 4 << 20]).unwrap();
        let pipeline = Pipeline { filters: vec![spec(1, &[9])] };
        let result = pipeline.decode(&bomb.finish().unwrap(), 0, 1000);
        assert_eq!(result, Err(FilterError::TooLarge { filter: "deflate", limit: 2000 + STAGE_SLACK_BYTES }));
    }
}
