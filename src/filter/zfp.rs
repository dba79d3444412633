//! Filter 32013: zfp, by the crate zfp-rs.
//!
//! ```text
//! client data: u32 versions | zfp header as u32s in the writer's byte order: magic 32 bits,
//!              field type and dimensions 52 bits, mode 12 or 64 bits
//! stored:      the zfp stream without header, whole 64-bit words
//! ```
//!
//! Client data of a writer with the other byte order are byte-swapped. Its stream is the same;
//! decoded numbers are swapped back to that order, as the dataset's datatype states.
//! Source: H5Z-ZFP's documentation "endian issues" and "cd_values".

use super::{FilterError, Params, bounded};
use zfp_rs::{ZfpBitStream, ZfpConfig, ZfpField, ZfpFieldMetadata, ZfpFieldMut, ZfpHeaderError, ZfpHeaderMask, ZfpScalar, ZfpScalarType};

/// Name in errors.
const NAME: &str = "zfp";
/// Most client data values: versions and a full header.
const CLIENT_VALUES_MAX: usize = 10;

/// Decodes one stored chunk, in host byte order unless the writer's differed.
///
/// # Errors
/// [`FilterError::Corrupt`] for an invalid header or truncated stream, [`FilterError::Unsupported`]
/// for another codec version, [`FilterError::TooLarge`] if the field is larger than `p.limit`
/// bytes.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let (field, config, swapped) = client_data(p.cd_values)?;
    let item = field.scalar_type.size();
    let Some(length) = length_of(&field).filter(|&n| n <= p.limit) else {
        return Err(FilterError::TooLarge { filter: NAME, limit: p.limit });
    };
    // The crate should not panic; if it does, only this chunk fails, not a thread of the daemon
    // with its locks. The closure changes no outside state, so unwinding is safe.
    let decoded = std::panic::catch_unwind(|| match field.scalar_type {
        ZfpScalarType::I32 => decompress(input, &config, &field, vec![0i32; length / item]),
        ZfpScalarType::I64 => decompress(input, &config, &field, vec![0i64; length / item]),
        ZfpScalarType::F32 => decompress(input, &config, &field, vec![0f32; length / item]),
        ZfpScalarType::F64 => decompress(input, &config, &field, vec![0f64; length / item]),
    });
    let mut out = decoded.map_err(|_| FilterError::corrupt(NAME, "the decoder failed"))??;
    if swapped {
        out.chunks_exact_mut(item).for_each(<[u8]>::reverse);
    }
    Ok(out)
}

/// Size of the chunks that `cd_values` describe, bytes.
///
/// # Errors
/// Those of [`decode`]: they are not the values that the plug-in stores.
pub fn chunk_bytes(cd_values: &[u32]) -> Result<u64, FilterError> {
    let (field, ..) = client_data(cd_values)?;
    length_of(&field).and_then(|n| u64::try_from(n).ok()).ok_or(FilterError::TooLarge { filter: NAME, limit: usize::MAX })
}

/// Encodes one chunk; never declines.
///
/// # Errors
/// Those of [`decode`], and [`FilterError::Corrupt`] if the chunk's size differs from the field's.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let (field, config, swapped) = client_data(p.cd_values)?;
    let item = field.scalar_type.size();
    if length_of(&field) != Some(input.len()) {
        return Err(FilterError::corrupt(NAME, "the chunk's size differs from the client data's"));
    }
    let mut numbers = bounded::copy(NAME, input, input.len())?;
    if swapped {
        numbers.chunks_exact_mut(item).for_each(<[u8]>::reverse);
    }
    // A panic of the crate fails only this chunk, as in `decode`.
    let encoded = std::panic::catch_unwind(|| match field.scalar_type {
        ZfpScalarType::I32 => compress(numbers.as_chunks().0, i32::from_ne_bytes, &config, &field),
        ZfpScalarType::I64 => compress(numbers.as_chunks().0, i64::from_ne_bytes, &config, &field),
        ZfpScalarType::F32 => compress(numbers.as_chunks().0, f32::from_ne_bytes, &config, &field),
        ZfpScalarType::F64 => compress(numbers.as_chunks().0, f64::from_ne_bytes, &config, &field),
    });
    encoded.map_err(|_| FilterError::corrupt(NAME, "the encoder failed"))?.map(Some)
}

/// Parses the client data: field, mode, and whether they are byte-swapped.
fn client_data(cd_values: &[u32]) -> Result<(ZfpFieldMetadata, ZfpConfig, bool), FilterError> {
    let words = match cd_values {
        [_, words @ ..] if !words.is_empty() && words.len() < CLIENT_VALUES_MAX => words,
        _ => return Err(FilterError::corrupt(NAME, format!("{} client data values", cd_values.len()))),
    };
    match header(words, false) {
        Ok((field, config)) => Ok((field, config, false)),
        Err(first) => {
            let (field, config) = header(words, true).map_err(|_| first)?;
            Ok((field, config, true))
        }
    }
}

/// Size of the field, bytes; unused dimensions are 0.
fn length_of(field: &ZfpFieldMetadata) -> Option<usize> {
    field.dims.iter().filter(|&&d| d > 0).try_fold(field.scalar_type.size(), |n, &d| n.checked_mul(d))
}

/// Parses the zfp header in `words`: field and mode.
fn header(words: &[u32], swap: bool) -> Result<(ZfpFieldMetadata, ZfpConfig), FilterError> {
    let bytes: Vec<u8> = words.iter().flat_map(|w| if swap { w.to_be_bytes() } else { w.to_le_bytes() }).collect();
    let mut stream = ZfpBitStream::from_bytes(&bytes).map_err(|e| FilterError::corrupt(NAME, e.to_string()))?;
    match stream.read_header(ZfpHeaderMask::FULL) {
        Ok(h) => match (h.metadata, h.config) {
            (Some(field), Some(config)) => Ok((field, config)),
            _ => Err(FilterError::corrupt(NAME, "an incomplete header")),
        },
        Err(ZfpHeaderError::InvalidMagic) if bytes.starts_with(b"zfp") => {
            Err(FilterError::unsupported(NAME, format!("codec version {}", bytes.get(3).copied().unwrap_or(0))))
        }
        Err(e) => Err(FilterError::corrupt(NAME, e.to_string())),
    }
}

fn decompress<T: ZfpScalar>(
    input: &[u8],
    config: &ZfpConfig,
    field: &ZfpFieldMetadata,
    mut values: Vec<T>,
) -> Result<Vec<u8>, FilterError> {
    let broken = |e: &dyn std::fmt::Display| FilterError::corrupt(NAME, e.to_string());
    let mut stream = ZfpBitStream::from_bytes(input).map_err(|e| broken(&e))?;
    let mut target = ZfpFieldMut::new(&mut values, field.dims).map_err(|e| broken(&e))?;
    stream.decompress(config, &mut target).map_err(|e| broken(&e))?;
    Ok(target.data().to_vec())
}

fn compress<T: ZfpScalar, const N: usize>(
    numbers: &[[u8; N]],
    number: fn([u8; N]) -> T,
    config: &ZfpConfig,
    field: &ZfpFieldMetadata,
) -> Result<Vec<u8>, FilterError> {
    let broken = |e: &dyn std::fmt::Display| FilterError::corrupt(NAME, e.to_string());
    let values: Vec<T> = numbers.iter().map(|n| number(*n)).collect();
    let source = ZfpField::new(&values, field.dims).map_err(|e| broken(&e))?;
    let room = config.maximum_size(field.scalar_type, field.dims).ok_or_else(|| FilterError::corrupt(NAME, "the field is too large"))?;
    let mut stream = ZfpBitStream::new(room).map_err(|e| broken(&e))?;
    stream.compress(config, &source).map_err(|e| broken(&e))?;
    Ok(stream.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;

    #[test]
    fn golden_chunks() {
        golden::check(include_bytes!("../../tests/fixtures/codecs/zfp.pack"));
    }

    #[test]
    fn damage_never_panics() {
        golden::damage(include_bytes!("../../tests/fixtures/codecs/zfp.pack"), 10);
    }

    /// Swapped client data decode to the same numbers in the other byte order.
    #[test]
    fn other_byte_order() {
        for r in golden::records(include_bytes!("../../tests/fixtures/codecs/zfp.pack")).iter().take(4) {
            let plain = decode(r.stored, &r.params()).unwrap();
            let mut cd = r.cd_values.clone();
            cd.iter_mut().skip(1).for_each(|v| *v = v.swap_bytes());
            let swapped = decode(r.stored, &Params { cd_values: &cd, ..r.params() }).unwrap();
            let item = if r.label.contains('8') && (r.label.contains("<f8") || r.label.contains("<i8")) { 8 } else { 4 };
            let back: Vec<u8> = swapped.chunks(item).flat_map(|c| c.iter().rev().copied()).collect();
            assert_eq!(back, plain, "{}", r.label);
        }
    }
}
