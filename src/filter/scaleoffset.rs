//! Filter 6, scale-offset: each value minus the chunk's minimum, in as few bits as the range needs.
//!
//! ```text
//! minbits u32 | size of minval u8 (8) | minval u64 | 8 bytes unused |
//! values, minbits each, most significant bit first
//! ```
//!
//! Client data (20 values): scale type (0 D-scale, 1 E-scale, 2 integer), scale factor, elements,
//! class (0 integer, 1 float), size, sign, byte order (0 LE, 1 BE), fill value defined, fill value
//! (32 bits each, least significant first).
//!
//! A stored value with all bits set is the fill value, if one is defined. `minbits` equal to the
//! type's width means that values are stored unchanged, in the writer's byte order; little-endian
//! is assumed, as on the machines that wrote nearly every file. Floats are `value / 10^factor +
//! minimum`, with the minimum's bit pattern in `minval`. E-scale was never implemented by libhdf5
//! and is refused. (H5Zscaleoffset.c)

use super::bits::{BitWriter, Bits};
use super::{FilterError, Params, bounded};

const NAME: &str = "scaleoffset";
/// Number of client data values.
const CLIENT_VALUES: usize = 20;
/// Bytes before the packed values.
const HEADER_BYTES: usize = 21;

fn corrupt(detail: &'static str) -> FilterError {
    FilterError::corrupt(NAME, detail)
}

fn short() -> FilterError {
    corrupt("the stored bits end early")
}

/// Scale type and factor of the client data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// Integers of this many bits (0: the fewest that suffice).
    Integer(u32),
    /// Floats multiplied by 10 to this power.
    Decimal(i32),
}

/// Decoded client data.
#[derive(Debug, Clone, Copy)]
struct Settings {
    scale: Scale,
    elements: usize,
    /// Bytes of an element: 1, 2, 4 or 8.
    size: usize,
    big_endian: bool,
    /// Bit pattern of the fill value.
    fill: Option<u64>,
}

/// Header of a stored chunk.
#[derive(Debug, Clone, Copy)]
struct Header {
    minbits: u32,
    minval: u64,
}

impl Settings {
    fn new(cd_values: &[u32]) -> Result<Self, FilterError> {
        let values: &[u32; CLIENT_VALUES] = cd_values.try_into().map_err(|_| corrupt("client data must be 20 values"))?;
        let [scale_type, factor, elements, class, size, _sign, order, fill, fill_low, fill_high, ..] = *values;
        let scale = match (class, scale_type) {
            (0, 2..) => Scale::Integer(if factor > i32::MAX as u32 { 0 } else { factor }),
            (1, 0) => Scale::Decimal(factor.cast_signed()),
            (1, 1) => return Err(FilterError::unsupported(NAME, "E-scale")),
            _ => return Err(corrupt("the scale type does not fit the class")),
        };
        match (scale, size) {
            (Scale::Integer(_), 1 | 2 | 4 | 8) | (Scale::Decimal(_), 4 | 8) => {}
            _ => return Err(FilterError::unsupported(NAME, format!("elements of {size} bytes"))),
        }
        let big_endian = order == 1;
        let fill = (fill == 1).then_some(u64::from(fill_high) << 32 | u64::from(fill_low));
        let too_large = |_| corrupt("a size exceeds the address space");
        Ok(Settings {
            scale,
            elements: elements.try_into().map_err(too_large)?,
            size: size.try_into().map_err(too_large)?,
            big_endian,
            fill,
        })
    }

    /// Bits of an element.
    fn width(&self) -> u32 {
        (self.size as u32).saturating_mul(8)
    }
}

impl Header {
    fn new(input: &[u8]) -> Result<Self, FilterError> {
        let Some(([m0, m1, m2, m3, size], rest)) = input.split_first_chunk::<5>() else {
            return Err(corrupt("shorter than its header"));
        };
        let minval = rest.get(..usize::from(*size).min(8)).ok_or_else(|| corrupt("shorter than its header"))?;
        Ok(Header { minbits: u32::from_le_bytes([*m0, *m1, *m2, *m3]), minval: minval.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)) })
    }
}

/// Unpacks a chunk.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let settings = Settings::new(p.cd_values)?;
    if let Scale::Integer(bits) = settings.scale {
        if bits > settings.width() {
            return Err(corrupt("the number of bits exceeds the element's"));
        }
        if bits == settings.width() {
            return bounded::copy(NAME, input, p.limit);
        }
    }
    let header = Header::new(input)?;
    if header.minbits > settings.width() {
        return Err(corrupt("the number of bits exceeds the element's"));
    }
    let len = settings.elements.saturating_mul(settings.size);
    let values = input.get(HEADER_BYTES..).unwrap_or_default();
    let mut out = bounded::zeroed(NAME, len, p.limit)?;
    if header.minbits == settings.width() {
        out.copy_from_slice(values.get(..len).ok_or_else(short)?);
        if settings.big_endian {
            out.chunks_exact_mut(settings.size).for_each(<[u8]>::reverse);
        }
        return Ok(out);
    }
    unpack(&settings, header, values, &mut out).ok_or_else(short)?;
    Ok(out)
}

/// Unpacks `values` into `out`, whole elements; `None` when the stored bits end early.
fn unpack(s: &Settings, h: Header, values: &[u8], out: &mut [u8]) -> Option<()> {
    let minval = h.minval;
    match (s.scale, s.size) {
        (Scale::Integer(_), 1) => elements::<1>(s, h, values, out, |v| v.wrapping_add(minval)),
        (Scale::Integer(_), 2) => elements::<2>(s, h, values, out, |v| v.wrapping_add(minval)),
        (Scale::Integer(_), 4) => elements::<4>(s, h, values, out, |v| v.wrapping_add(minval)),
        (Scale::Integer(_), _) => elements::<8>(s, h, values, out, |v| v.wrapping_add(minval)),
        (Scale::Decimal(factor), 4) => {
            let (power, min) = (ten().powf(f64::from(factor) as f32), f32::from_bits(minval as u32));
            elements::<4>(s, h, values, out, |v| u64::from(((v as u32).cast_signed() as f32 / power + min).to_bits()))
        }
        (Scale::Decimal(factor), _) => {
            let (power, min) = (f64::from(ten()).powf(f64::from(factor)), f64::from_bits(minval));
            elements::<8>(s, h, values, out, |v| (v.cast_signed() as f64 / power + min).to_bits())
        }
    }
}

/// Returns 10, opaque to the optimiser, which would turn `pow(10, x)` into `exp10(x)`.
///
/// libhdf5 calls `pow`; the results may differ in the last bit.
fn ten() -> f32 {
    std::hint::black_box(10.0)
}

/// Unpacks elements of `N` bytes; `value` converts a stored number to the element's bits.
fn elements<const N: usize>(s: &Settings, h: Header, values: &[u8], out: &mut [u8], value: impl Fn(u64) -> u64) -> Option<()> {
    let mut bits = Bits::new(values);
    let fill_mark = 1u64.checked_shl(h.minbits).unwrap_or(0).wrapping_sub(1);
    for element in out.as_chunks_mut::<N>().0 {
        let stored = bits.take(h.minbits)?;
        let value = match s.fill {
            Some(fill) if stored == fill_mark => fill,
            _ => value(stored),
        };
        for (slot, byte) in element.iter_mut().zip(value.to_le_bytes()) {
            *slot = byte;
        }
        if s.big_endian {
            element.reverse();
        }
    }
    Some(())
}

/// A chunk's values, scaled for storage.
struct Packed {
    header: Header,
    /// Numbers to store, `minbits` each; unused when values are stored unchanged.
    stored: Vec<u64>,
}

/// Packs a chunk; never declines.
///
/// # Errors
/// [`FilterError::Corrupt`] if the client data are invalid or state another chunk size,
/// [`FilterError::Unsupported`] for E-scale and other element sizes.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let s = Settings::new(p.cd_values)?;
    if s.elements.checked_mul(s.size) != Some(input.len()) {
        return Err(corrupt("the chunk's size differs from the client data's"));
    }
    if let Scale::Integer(bits) = s.scale {
        if bits > s.width() {
            return Err(corrupt("the number of bits exceeds the element's"));
        }
        if bits == s.width() {
            return bounded::copy(NAME, input, input.len()).map(Some);
        }
    }
    let packed = match (s.scale, s.size) {
        (Scale::Integer(bits), _) => {
            let signed = match p.cd_values.get(5) {
                Some(0) => false,
                Some(1) => true,
                _ => return Err(corrupt("unknown sign")),
            };
            integers(&s, bits, signed, values(&s, input))
        }
        (Scale::Decimal(factor), 4) => decimal_32(&s, factor, values(&s, input)),
        (Scale::Decimal(factor), _) => decimal_64(&s, factor, values(&s, input)),
    };
    let Header { minbits, minval } = packed.header;
    let as_is = minbits >= s.width();
    let mut out = bounded::buffer(NAME, input.len().saturating_add(HEADER_BYTES), usize::MAX)?;
    out.extend_from_slice(&minbits.min(s.width()).to_le_bytes());
    out.push(8);
    out.extend_from_slice(&minval.to_le_bytes());
    out.resize(HEADER_BYTES, 0);
    if as_is {
        out.extend_from_slice(input);
        if s.big_endian {
            out.get_mut(HEADER_BYTES..).unwrap_or_default().chunks_exact_mut(s.size).for_each(<[u8]>::reverse);
        }
        return Ok(Some(out));
    }
    let mut bits = BitWriter::new(out);
    packed.stored.iter().for_each(|&v| bits.put(v, minbits));
    // libhdf5's length includes the byte that the next bit would go to.
    let len = (bits.len() / 8).saturating_add(1);
    let mut out = bits.finish();
    out.resize(len, 0);
    Ok(Some(bounded::fitted(out)))
}

/// The bit patterns of the elements.
fn values(s: &Settings, input: &[u8]) -> Vec<u64> {
    let fold = |v: u64, b: &u8| v << 8 | u64::from(*b);
    let one = |e: &[u8]| if s.big_endian { e.iter().fold(0, fold) } else { e.iter().rev().fold(0, fold) };
    input.chunks_exact(s.size).map(one).collect()
}

/// log2, rounded up; 1 for 0, as in H5Z__scaleoffset_log2.
fn log2(n: u64) -> u32 {
    match n.checked_ilog2() {
        Some(v) if n.is_power_of_two() => v,
        Some(v) => v.saturating_add(1),
        None => 1,
    }
}

/// Subtracts the minimum from integers. `bits` 0: as few bits as needed; else numbers are cut to
/// `bits` bits.
fn integers(s: &Settings, bits: u32, signed: bool, mut stored: Vec<u64>) -> Packed {
    let all = u64::MAX >> 64u32.saturating_sub(s.width());
    // XOR with `flip` maps signed order to unsigned order.
    let flip = if signed { all ^ all >> 1 } else { 0 };
    let fill = s.fill.map(|f| f & all);
    let range = stored.iter().filter(|&&v| Some(v) != fill).map(|v| v ^ flip).fold(None, |range, v| match range {
        None => Some((v, v)),
        Some((min, max)) => Some((v.min(min), v.max(max))),
    });
    let (min, max) = range.unwrap_or((flip, flip));
    let span = max.saturating_sub(min);
    let extend = |v: u64| if signed && v & flip != 0 { v | !all } else { v };
    let minval = extend(min ^ flip);
    let mut minbits = bits;
    if bits == 0 {
        if span > all.saturating_sub(2) {
            // For one signed byte libhdf5 takes another path and stores the minimum, though
            // decoders ignore it.
            let kept = if signed && s.size == 1 && fill.is_none() { minval } else { 0 };
            return Packed { header: Header { minbits: s.width(), minval: kept }, stored };
        }
        // The fill value takes one more code.
        minbits = log2(span.saturating_add(1).saturating_add(u64::from(fill.is_some())));
    }
    let mark = 1u64.checked_shl(minbits).unwrap_or(0).wrapping_sub(1);
    for v in &mut stored {
        *v = if Some(*v) == fill { mark } else { v.wrapping_sub(min ^ flip) };
    }
    Packed { header: Header { minbits, minval }, stored }
}

/// Nearest integer as C's `lround` returns it on x86-64: values out of range become `i64::MIN`.
fn lround(x: f64) -> i64 {
    let rounded = x.round();
    // The range of i64, its end excluded.
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded) { rounded as i64 } else { i64::MIN }
}

macro_rules! decimal {
    ($name:ident, $float:ty, $bits:ty, $doc:literal) => {
        #[doc = $doc]
        fn $name(s: &Settings, factor: i32, mut stored: Vec<u64>) -> Packed {
            let number = |v: u64| <$float>::from_bits(v as $bits);
            let (power, inverse) = (<$float>::from(ten()).powf(factor as $float), <$float>::from(ten()).powf(-(factor as $float)));
            let fill = s.fill.map(number);
            // As in libhdf5: the range excludes fill values by a double-precision test, marking
            // them uses the type's own precision.
            let near = f64::from(ten()).powf(-f64::from(factor));
            let (mut min, mut max) = (0.0, 0.0);
            let counted = stored.iter().map(|&v| number(v)).filter(|v| !fill.is_some_and(|f| f64::from(*v - f).abs() < near));
            for (i, v) in counted.enumerate() {
                if i == 0 {
                    (min, max) = (v, v);
                }
                max = if v > max { v } else { max };
                min = if v < min { v } else { min };
            }
            let range = max * power - min * power;
            if range.round() > (2.0 as $float).powi(<$bits>::BITS as i32 - 1) {
                return Packed { header: Header { minbits: s.width(), minval: 0 }, stored };
            }
            let span = lround(f64::from(range)).wrapping_add(1).cast_unsigned();
            let minbits = log2(span.wrapping_add(u64::from(fill.is_some())));
            let header = Header { minbits, minval: u64::from(min.to_bits()) };
            if minbits >= s.width() {
                // More bits than the width, when the minimum is NaN: libhdf5 writes an undecodable
                // chunk.
                return Packed { header, stored };
            }
            let mark = 1u64.checked_shl(minbits).unwrap_or(0).wrapping_sub(1);
            for v in &mut stored {
                let x = number(*v);
                let marked = fill.is_some_and(|f| (x - f).abs() < inverse);
                *v = if marked { mark } else { lround(f64::from(x * power - min * power)).cast_unsigned() };
            }
            Packed { header, stored }
        }
    };
}

decimal!(decimal_32, f32, u32, "Multiplies 4-byte floats by a power of 10 and subtracts their minimum.");
decimal!(decimal_64, f64, u64, "Multiplies 8-byte floats by a power of 10 and subtracts their minimum.");

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(scale_type: u32, factor: u32, elements: u32, class: u32, size: u32) -> [u32; CLIENT_VALUES] {
        let mut cd = [0; CLIENT_VALUES];
        cd[..5].copy_from_slice(&[scale_type, factor, elements, class, size]);
        cd
    }

    fn run(cd: &[u32], input: &[u8]) -> Result<Vec<u8>, FilterError> {
        decode(input, &Params { cd_values: cd, expected: 64, limit: 64 })
    }

    /// Values are stored unchanged where libhdf5 writes a chunk that it cannot read.
    #[test]
    fn a_minimum_that_is_no_number() {
        let data: Vec<u8> = [f32::NAN, 1.0, 2.0, f32::INFINITY].iter().flat_map(|f| f.to_le_bytes()).collect();
        let p = Params { cd_values: &settings(0, 2, 4, 1, 4), expected: 16, limit: 64 };
        let stored = encode(&data, &p).unwrap().unwrap();
        assert_eq!((stored.len(), stored.first()), (HEADER_BYTES + 16, Some(&32)));
        assert_eq!(decode(&stored, &p).unwrap(), data);
        assert!(encode(&data[..12], &p).is_err(), "another size");
    }

    #[test]
    fn refuses() {
        let chunk = [[4, 0, 0, 0, 8].as_slice(), &[0; 16], &[0xab; 8]].concat();
        assert_eq!(run(&settings(2, 0, 2, 0, 4), &chunk).unwrap(), [10, 0, 0, 0, 11, 0, 0, 0]);
        assert!(matches!(run(&settings(1, 0, 2, 1, 4), &chunk), Err(FilterError::Unsupported { .. })), "E-scale");
        assert!(matches!(run(&settings(2, 0, 2, 0, 3), &chunk), Err(FilterError::Unsupported { .. })));
        assert!(matches!(run(&settings(0, 0, 2, 1, 2), &chunk), Err(FilterError::Unsupported { .. })));
        assert!(run(&settings(0, 0, 2, 0, 4), &chunk).is_err(), "class and scale type");
        assert!(run(&settings(2, 0, 2, 1, 4), &chunk).is_err(), "class and scale type");
        assert!(run(&settings(2, 0, 2, 2, 4), &chunk).is_err(), "class");
        assert!(run(&settings(2, 33, 2, 0, 4), &chunk).is_err(), "too many bits");
        assert!(run(&settings(2, 0, u32::MAX, 0, 8), &chunk).is_err(), "too many elements");
        assert!(run(&settings(2, 0, 2, 0, 4)[..19], &chunk).is_err(), "client data");
        assert!(run(&settings(2, 0, 2, 0, 4), &[33, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]).is_err(), "too many bits");
        for len in 0..HEADER_BYTES + 1 {
            assert!(run(&settings(2, 0, 2, 0, 4), &chunk[..len]).is_err(), "{len} bytes");
        }
        // A factor of the full width means unchanged storage, a negative one means 0.
        assert_eq!(run(&settings(2, 32, 2, 0, 4), &chunk).unwrap(), chunk);
        assert_eq!(run(&settings(2, -1i32 as u32, 1, 0, 4), &chunk).unwrap(), [10, 0, 0, 0]);
    }
}
