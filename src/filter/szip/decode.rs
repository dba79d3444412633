//! Decodes szip streams.

use super::bits::BitError;
use super::geometry::{Geometry, NAME};
use super::rice::{Rice, RiceError};
use crate::filter::{FilterError, Params};

/// Decodes one stored chunk.
///
/// # Errors
/// [`FilterError::Corrupt`] for an invalid or truncated stream, [`FilterError::TooLarge`] if the
/// stated size exceeds `p.limit` bytes.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let geometry = Geometry::new(p.cd_values)?;
    let Some((prefix, stream)) = input.split_first_chunk::<4>() else {
        return Err(FilterError::corrupt(NAME, "no length prefix"));
    };
    let length = usize::try_from(u32::from_le_bytes(*prefix)).unwrap_or(usize::MAX);
    if length > p.limit {
        return Err(FilterError::TooLarge { filter: NAME, limit: p.limit });
    }
    if length % geometry.planes != 0 {
        return Err(FilterError::corrupt(NAME, format!("{length} bytes are not whole pixels of {} bytes", geometry.planes)));
    }
    let mut out = vec![0; length];
    let samples = length.div_ceil(geometry.sample);
    let blocks = geometry.scanline.div_ceil(geometry.block);
    let mut rice = Rice::new(stream, geometry.width, geometry.block, blocks, geometry.preprocess);
    let mut interval = Vec::with_capacity(blocks.saturating_mul(geometry.block));
    let mut at = 0usize;
    while at < samples {
        let wanted = geometry.scanline.min(samples - at);
        rice.interval(&mut interval, wanted).map_err(|e| explain(e, at))?;
        geometry.store(interval.get(..wanted).unwrap_or(&interval), at, &mut out);
        at = at.saturating_add(wanted);
    }
    Ok(out)
}

fn explain(e: RiceError, at: usize) -> FilterError {
    let what = match e {
        RiceError::Bits(BitError::End) => "the stream ends early",
        RiceError::Bits(BitError::Unary) => "a code is too long",
        RiceError::Sample => "a sample exceeds its width",
        RiceError::ZeroRun => "a run of zero blocks leaves its interval",
        RiceError::SecondExtension => "an unknown second-extension code",
    };
    FilterError::corrupt(NAME, format!("{what} in the interval at sample {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::golden;

    #[test]
    fn golden_chunks() {
        golden::check(include_bytes!("../../../tests/fixtures/codecs/szip.pack"));
        golden::check(include_bytes!("../../../tests/fixtures/codecs/szip_precision.pack"));
    }

    #[test]
    fn damage_never_panics() {
        golden::damage(include_bytes!("../../../tests/fixtures/codecs/szip.pack"), 12);
    }

    #[test]
    fn hostile_client_data() {
        for cd in
            [&[][..], &[32, 8, 8], &[32, 0, 8, 64], &[32, 7, 8, 64], &[32, 8, 0, 64], &[32, 8, 33, 64], &[32, 8, 8, 0], &[32, 8, 65, 64]]
        {
            let p = Params { cd_values: cd, expected: 64, limit: 64 };
            assert!(matches!(decode(&[64, 0, 0, 0, 0x12, 0x34], &p), Err(FilterError::Corrupt { .. })), "{cd:?}");
        }
        let p = Params { cd_values: &[32, 8, 8, u32::MAX], expected: 64, limit: 64 };
        assert!(matches!(decode(&[64, 0, 0, 0, 0x12, 0x34], &p), Err(FilterError::Unsupported { .. })));
        let p = Params { cd_values: &[32, 8, 8, 64], expected: 64, limit: 63 };
        assert_eq!(decode(&[64, 0, 0, 0, 0x12], &p), Err(FilterError::TooLarge { filter: NAME, limit: 63 }));
        assert_eq!(decode(&[0, 0, 0, 0], &p), Ok(vec![]));
    }
}
