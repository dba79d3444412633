//! Filter 5, n-bit: only the significant bits of integers and floats, packed without gaps.
//!
//! Client data: a flattened description of the element's type.
//!
//! ```text
//! [0] number of values  [1] 1: stored as is  [2] elements in the chunk  [3..] type
//! type      atomic    1, size, order (0 LE, 1 BE), precision bits, bit offset
//!           array     2, size, base type
//!           compound  3, size, member count, { offset, type } per member
//!           other     4, size                                     (whole bytes)
//! ```
//!
//! Each value's significant bits are stored most significant bit first; decoded padding bits, and
//! bytes between members, are 0. Other types at the top level are always "stored as is".
//! (H5Znbit.c)

use super::bits::{BitWriter, Bits};
use super::{FilterError, Params, bounded};
use crate::base::limits;

const NAME: &str = "nbit";

/// Type classes in the client data.
const ATOMIC: u32 = 1;
const ARRAY: u32 = 2;
const COMPOUND: u32 = 3;
const OTHER: u32 = 4;

fn corrupt(detail: &'static str) -> FilterError {
    FilterError::corrupt(NAME, detail)
}

fn short() -> FilterError {
    corrupt("the stored bits end early")
}

/// Type of an element or a part of one, from the client data. Sizes are bytes.
#[derive(Debug, PartialEq, Eq)]
enum NbitType {
    Atomic(Atomic),
    Array(Box<Type>),
    Compound(Vec<(usize, Type)>),
    /// Whole bytes.
    Other,
    /// An array too small for one base element.
    Empty,
}

#[derive(Debug, PartialEq, Eq)]
struct Type {
    size: usize,
    kind: NbitType,
}

#[derive(Debug, PartialEq, Eq)]
struct Atomic {
    big_endian: bool,
    precision: u32,
    offset: u32,
}

/// Cursor over the client data.
struct Parser<'a> {
    values: std::slice::Iter<'a, u32>,
    /// Types that may still be parsed: the array quirk (see `array`) lets few values describe many
    /// types.
    budget: usize,
}

impl Parser<'_> {
    fn next(&mut self) -> Result<u32, FilterError> {
        self.values.next().copied().ok_or_else(|| corrupt("client data end early"))
    }

    fn size(&mut self) -> Result<usize, FilterError> {
        match usize::try_from(self.next()?) {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(corrupt("a type has size 0")),
        }
    }

    /// Parses a type whose class has been read.
    fn parse(&mut self, class: u32, depth: usize) -> Result<Type, FilterError> {
        self.budget = self.budget.checked_sub(1).ok_or_else(|| FilterError::unsupported(NAME, "types of too many parts"))?;
        if depth > limits::DATATYPE_DEPTH_MAX {
            return Err(FilterError::unsupported(NAME, "types nested too deeply"));
        }
        let size = self.size()?;
        let kind = match class {
            ATOMIC => self.atomic(size)?,
            ARRAY => self.array(size, depth)?,
            COMPOUND => self.compound(size, depth)?,
            OTHER => NbitType::Other,
            _ => return Err(corrupt("unknown class of type")),
        };
        Ok(Type { size, kind })
    }

    fn atomic(&mut self, size: usize) -> Result<NbitType, FilterError> {
        let big_endian = match self.next()? {
            0 => false,
            1 => true,
            _ => return Err(corrupt("unknown byte order")),
        };
        let (precision, offset) = (self.next()?, self.next()?);
        let used = u64::from(precision).saturating_add(u64::from(offset));
        if precision == 0 || used > (size as u64).saturating_mul(8) {
            return Err(corrupt("precision and offset do not fit the size"));
        }
        Ok(NbitType::Atomic(Atomic { big_endian, precision, offset }))
    }

    /// Parses an array type, with a quirk of encoder and decoder in H5Znbit.c.
    ///
    /// After an array of arrays or compounds, parsing continues at the base type's size instead of
    /// after the base type. Later members are misread and lose bits, but that is the stored format.
    fn array(&mut self, size: usize, depth: usize) -> Result<NbitType, FilterError> {
        let class = self.next()?;
        let begin = self.values.clone();
        if matches!(class, ARRAY | COMPOUND) && self.size()? > size {
            self.values = begin;
            return Ok(NbitType::Empty);
        }
        self.values = begin.clone();
        let base = self.parse(class, depth.saturating_add(1))?;
        if matches!(class, ARRAY | COMPOUND) {
            self.values = begin;
        }
        Ok(NbitType::Array(Box::new(base)))
    }

    fn compound(&mut self, size: usize, depth: usize) -> Result<NbitType, FilterError> {
        let count = self.next()?;
        let mut members = Vec::new();
        let mut used = 0usize;
        for _ in 0..count {
            let offset = usize::try_from(self.next()?).map_err(|_| corrupt("a member lies outside its compound"))?;
            let class = self.next()?;
            let member = self.parse(class, depth.saturating_add(1))?;
            used = used.saturating_add(member.size);
            if used > size || offset.saturating_add(member.size) > size {
                return Err(corrupt("a member lies outside its compound"));
            }
            members.push((offset, member));
        }
        Ok(NbitType::Compound(members))
    }
}

impl Atomic {
    /// Unpacks a row of elements of `size` bytes into `out`.
    fn unpack(&self, bits: &mut Bits<'_>, size: usize, out: &mut [u8]) -> Result<(), FilterError> {
        if size > 8 {
            return out.chunks_exact_mut(size).try_for_each(|e| self.unpack_wide(bits, e)).map_err(|()| short());
        }
        // Write only the bytes with significant bits.
        let bytes = usize::from(self.offset as u8 / 8)..usize::from((self.offset.saturating_add(self.precision) as u8).div_ceil(8));
        let place = if self.big_endian { size.saturating_sub(bytes.end)..size.saturating_sub(bytes.start) } else { bytes.clone() };
        for element in out.chunks_exact_mut(size) {
            let mut value = (bits.take(self.precision).ok_or_else(short)? << self.offset).to_le_bytes();
            let value = value.get_mut(bytes.clone()).unwrap_or_default();
            if self.big_endian {
                value.reverse();
            }
            element.get_mut(place.clone()).unwrap_or_default().copy_from_slice(value);
        }
        Ok(())
    }

    /// Unpacks one element of more than 8 bytes, byte by byte from the most significant one.
    fn unpack_wide(&self, bits: &mut Bits<'_>, element: &mut [u8]) -> Result<(), ()> {
        let top = self.offset.saturating_add(self.precision);
        for byte in (self.offset / 8..top.div_ceil(8)).rev() {
            let low = byte.saturating_mul(8);
            let from = self.offset.max(low).saturating_sub(low);
            let to = top.saturating_sub(low).min(8);
            let value = bits.take(to.saturating_sub(from)).ok_or(())? << from;
            let index = usize::try_from(byte).map_err(|_| ())?;
            let index = if self.big_endian { element.len().checked_sub(index).and_then(|i| i.checked_sub(1)) } else { Some(index) };
            *index.and_then(|i| element.get_mut(i)).ok_or(())? = value as u8;
        }
        Ok(())
    }
}

impl Atomic {
    /// Packs the significant bits of `row`, elements of `size` bytes.
    fn pack(&self, bits: &mut BitWriter, size: usize, row: &[u8]) {
        if size > 8 {
            row.chunks_exact(size).for_each(|e| self.pack_wide(bits, e));
            return;
        }
        for element in row.chunks_exact(size) {
            let value = if self.big_endian {
                element.iter().fold(0, |v, &b| v << 8 | u64::from(b))
            } else {
                element.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b))
            };
            bits.put(value.checked_shr(self.offset).unwrap_or(0), self.precision);
        }
    }

    /// Packs one element of more than 8 bytes, byte by byte from the most significant one.
    fn pack_wide(&self, bits: &mut BitWriter, element: &[u8]) {
        let top = self.offset.saturating_add(self.precision);
        for byte in (self.offset / 8..top.div_ceil(8)).rev() {
            let low = byte.saturating_mul(8);
            let from = self.offset.max(low).saturating_sub(low);
            let to = top.saturating_sub(low).min(8);
            let index = usize::try_from(byte).unwrap_or(usize::MAX);
            let place = if self.big_endian { element.len().wrapping_sub(index).wrapping_sub(1) } else { index };
            let value = element.get(place).copied().unwrap_or(0);
            bits.put(u64::from(value) >> from, to.saturating_sub(from));
        }
    }
}

impl Type {
    /// Packs `row`, whole elements of this type. Recursion and work are bounded as in
    /// [`Type::unpack`].
    fn pack(&self, bits: &mut BitWriter, row: &[u8]) {
        match &self.kind {
            NbitType::Atomic(atomic) => atomic.pack(bits, self.size, row),
            NbitType::Other => bits.bytes(row),
            NbitType::Empty => {}
            NbitType::Array(base) => {
                let used = self.used(base);
                row.chunks_exact(self.size).for_each(|element| base.pack(bits, element.get(..used).unwrap_or_default()));
            }
            NbitType::Compound(members) => {
                for element in row.chunks_exact(self.size) {
                    for (offset, member) in members {
                        let field = element.get(*offset..offset.saturating_add(member.size)).unwrap_or_default();
                        member.pack(bits, field);
                    }
                }
            }
        }
    }

    /// Bytes of an array that its whole base elements occupy.
    fn used(&self, base: &Type) -> usize {
        match base.kind {
            // One run of bytes, whatever the base type's size.
            NbitType::Other => self.size,
            _ => self.size.saturating_sub(self.size.checked_rem(base.size).unwrap_or(0)),
        }
    }

    /// Unpacks a row of whole elements of this type into `out`, which is zero on entry.
    ///
    /// Recursion is as deep as the parsed type. Work is bounded: the parts of an array or compound
    /// are together no larger than itself.
    fn unpack(&self, bits: &mut Bits<'_>, out: &mut [u8]) -> Result<(), FilterError> {
        match &self.kind {
            NbitType::Atomic(atomic) => atomic.unpack(bits, self.size, out),
            NbitType::Other => bits.bytes(out).ok_or_else(short),
            NbitType::Empty => Ok(()),
            NbitType::Array(base) => {
                let used = self.used(base);
                if used == self.size {
                    return base.unpack(bits, out);
                }
                out.chunks_exact_mut(self.size).try_for_each(|element| base.unpack(bits, element.get_mut(..used).unwrap_or_default()))
            }
            NbitType::Compound(members) => out.chunks_exact_mut(self.size).try_for_each(|element| {
                members.iter().try_for_each(|(offset, member)| {
                    let field = element.get_mut(*offset..offset.saturating_add(member.size)).unwrap_or_default();
                    member.unpack(bits, field)
                })
            }),
        }
    }
}

/// Parses the client data: number of elements and their type; `None` if stored as is.
fn layout(cd_values: &[u32]) -> Result<Option<(usize, Type)>, FilterError> {
    let [count, as_is, rest @ ..] = cd_values else {
        return Err(corrupt("client data end early"));
    };
    if usize::try_from(*count).ok() != Some(cd_values.len()) {
        return Err(corrupt("the number of client data values is wrong"));
    }
    if *as_is != 0 {
        return Ok(None);
    }
    let mut parser = Parser { values: rest.iter(), budget: limits::DATATYPE_MEMBERS_MAX };
    let (elements, class) = (parser.next()?, parser.next()?);
    let element = parser.parse(class, 1)?;
    if element.kind == NbitType::Other {
        return Err(corrupt("a type without bits to pack must be stored as is"));
    }
    Ok(Some((usize::try_from(elements).unwrap_or(usize::MAX), element)))
}

/// Unpacks a chunk.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let Some((elements, element)) = layout(p.cd_values)? else {
        return bounded::copy(NAME, input, p.limit);
    };
    let len = elements.saturating_mul(element.size);
    let mut out = bounded::zeroed(NAME, len, p.limit)?;
    element.unpack(&mut Bits::new(input), &mut out)?;
    Ok(out)
}

/// Packs a chunk; never declines.
///
/// # Errors
/// [`FilterError::Corrupt`] if the client data are invalid or state another chunk size.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let Some((elements, element)) = layout(p.cd_values)? else {
        return bounded::copy(NAME, input, input.len()).map(Some);
    };
    if elements.checked_mul(element.size) != Some(input.len()) {
        return Err(corrupt("the chunk's size differs from the client data's"));
    }
    let mut bits = BitWriter::new(bounded::buffer(NAME, input.len(), input.len())?);
    element.pack(&mut bits, input);
    // libhdf5's length includes the byte that the next bit would go to.
    let len = (bits.len() / 8).saturating_add(1);
    let mut out = bits.finish();
    out.resize(len, 0);
    Ok(Some(bounded::fitted(out)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cd: &[u32], input: &[u8]) -> Result<Vec<u8>, FilterError> {
        let mut cd_values = vec![cd.len() as u32 + 1];
        cd_values.extend_from_slice(cd);
        decode(input, &Params { cd_values: &cd_values, expected: 64, limit: 4096 })
    }

    #[test]
    fn wide_equals_narrow() {
        // The same bits as 8-byte and, through the wide path, as the low half of 16-byte elements.
        let input: Vec<u8> = (0..40).map(|i| (i * 89 + 7) as u8).collect();
        for (precision, offset) in [(1, 0), (7, 3), (8, 8), (13, 5), (33, 31), (64, 0), (17, 40)] {
            for order in [0, 1] {
                let narrow = run(&[0, 4, 1, 8, order, precision, offset], &input).unwrap();
                let wide = run(&[0, 4, 1, 16, order, precision, offset], &input).unwrap();
                for (n, w) in narrow.chunks(8).zip(wide.chunks(16)) {
                    let (low, high) = if order == 0 { w.split_at(8) } else { (&w[8..], &w[..8]) };
                    assert_eq!((n, [0; 8].as_slice()), (low, high), "{precision} bits at {offset}, order {order}");
                }
            }
        }
    }

    #[test]
    fn hostile_client_data() {
        assert!(decode(&[], &Params { cd_values: &[], expected: 1, limit: 1 }).is_err());
        assert!(decode(&[], &Params { cd_values: &[3, 0, 1], expected: 1, limit: 1 }).is_err());
        assert!(decode(&[0; 9], &Params { cd_values: &[9, 0, 1, 1, 1, 0, 8, 0], expected: 1, limit: 1 }).is_err());
        for cd in [
            &[0, 1, 1, 4, 2, 8, 0][..],         // byte order
            &[0, 1, 1, 4, 0, 0, 0],             // no bits
            &[0, 1, 1, 4, 0, 33, 0],            // too many
            &[0, 1, 1, 4, 0, 1, u32::MAX],      // too far
            &[0, 1, 1, 0, 0, 8, 0],             // no size
            &[0, 1, 5, 4],                      // class
            &[0, 1, 4, 4],                      // nothing to pack
            &[0, 1, 3, 4, 1, 2, 1, 4, 0, 8, 0], // member outside
            &[0, 1, 3, 4, 2, 0, 4, 3, 0, 4, 3], // members larger than the compound together
            &[0, 1, 3, 4, u32::MAX, 0, 4, 1],   // members missing
            &[0, u32::MAX, 1, 4, 0, 8, 0],      // too large
            &[0, 2, 1, 4, 0, 32, 0],            // bits missing
            &[0, 2, 1, 16, 0, 128, 0],          // bits missing, wide
            &[0, 2, 2, 4, 4, 4],                // bytes missing
        ] {
            assert!(run(cd, &[0; 7]).is_err(), "{cd:?}");
        }
        let mut deep = vec![0, 1];
        deep.extend([2, 1].repeat(1000));
        deep.extend([1, 1, 0, 8, 0]);
        assert!(matches!(run(&deep, &[0; 8]), Err(FilterError::Unsupported { .. })));
        // Compounds of arrays of compounds: each level is parsed twice.
        let mut bushy = vec![0, 1];
        bushy.extend([3, 1000, 1000, 0, 2, 1000].repeat(200));
        assert!(run(&bushy, &[0; 8]).is_err());
        // An array smaller than its base, a compound without members: all padding.
        assert_eq!(run(&[0, 1, 2, 4, 1, 8, 0, 8, 0], &[]).unwrap(), [0; 4]);
        assert_eq!(run(&[0, 1, 2, 4, 3, 8], &[]).unwrap(), [0; 4]);
        assert_eq!(run(&[0, 2, 3, 3, 0], &[]).unwrap(), [0; 6]);
    }
}
