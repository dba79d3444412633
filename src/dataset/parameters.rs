//! Client data values of the filters of a new dataset.
//!
//! libhdf5's filters derive some values from datatype, chunk and fill value ("set local") and
//! store them beside the values that the user chose:
//!
//! ```text
//! shuffle      element size
//! szip         options | pixels per block | bits per pixel | pixels per scanline
//! nbit         number of values | 1 if no bits can be saved | elements | type description
//! scaleoffset  scale type | factor | elements | class | size | sign | order | fill set | fill ..20
//! lzf          revision 4 | LZF version | chunk bytes
//! blosc        2 | 2 | type size | chunk bytes | level | shuffle | compressor
//! blosc2       1 | 0 | type size | chunk bytes | level | shuffle | compressor | rank | chunk dims
//! bitshuffle   0 | 4 | element size | block size | compressor ..
//! ```
//!
//! Complete values (a pipeline copied from another dataset) are computed again from the user's
//! values, which have the same positions. Versions do not decide on stored bytes: those of complete
//! values are kept, and so chunks can be copied as they are stored. Sources: H5Zshuffle.c,
//! H5Zszip.c, H5Znbit.c, H5Zscaleoffset.c; for other filters, their registered plugins.

use crate::base::datatype::{ByteOrder, Class, Datatype};
use crate::base::filter_spec::FilterSpec;
use crate::base::{Address, Error, Result};
use crate::filter::{FilterError, registry, zfp_chunk_bytes};

const STRUCTURE: &str = "filter pipeline message";

/// Properties of a new dataset from which filters derive values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// Type of the elements.
    pub(crate) datatype: &'a Datatype,
    /// Dimensions of a chunk, elements.
    pub(crate) chunk: &'a [u64],
    /// Fill value: `None` when it is undefined, empty for zero bytes.
    pub(crate) fill: Option<&'a [u8]>,
}

fn refuse<T>(filter: &str, detail: &str) -> Result<T> {
    Err(Error::unsupported(STRUCTURE, Address::UNDEF, format!("filter {filter}: {detail}")))
}

impl Subject<'_> {
    /// Number of elements of a chunk; saturates.
    fn elements(&self) -> u64 {
        self.chunk.iter().fold(1, |n, &d| n.saturating_mul(d))
    }

    fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.datatype.element_size())
    }

    /// Completes a filter's values for the pipeline message. Adds a name where libhdf5 stores one.
    pub(crate) fn complete(&self, filter: &FilterSpec) -> Result<FilterSpec> {
        let given = &filter.cd_values;
        let user = |i: usize, default: u32| given.get(i).copied().unwrap_or(default);
        let cd_values = match filter.id {
            1 => vec![match user(0, 6) {
                level @ 0..=9 => level,
                level => return refuse("deflate", &format!("level {level}")),
            }],
            2 => vec![self.datatype.size],
            3 => Vec::new(),
            4 => self.szip(given)?,
            5 => self.nbit()?,
            6 => self.scaleoffset(user(0, 2), user(1, 0))?,
            32000 => {
                let bytes = narrow("lzf", self.bytes())?;
                let [revision, version] = versions(given.get(2) == Some(&bytes), given).unwrap_or([4, 0x105]);
                vec![revision, version, bytes]
            }
            32001 => self.blosc("blosc", [2, 2], given)?,
            32026 => self.blosc2(given)?,
            32008 => self.bitshuffle(given),
            32013 => self.zfp(filter)?,
            _ => given.clone(),
        };
        let name = if filter.name.is_empty() { registry::stored_name(filter.id).into() } else { filter.name.clone() };
        Ok(FilterSpec { id: filter.id, flags: filter.flags, name, cd_values })
    }

    fn szip(&self, given: &[u32]) -> Result<Vec<u32>> {
        const K13: u32 = 1;
        const CHIP: u32 = 2;
        const LSB: u32 = 8;
        const MSB: u32 = 16;
        const RAW: u32 = 128;
        const BLOCKS_PER_SCANLINE: u64 = 128;
        let [mask, block, ..] = *given else { return refuse("szip", "options and pixels per block are needed") };
        if !(2..=32).contains(&block) || block % 2 != 0 {
            return refuse("szip", "pixels per block must be even, 2 to 32");
        }
        let Some(n) = Numeric::of(self.datatype) else { return refuse("szip", "only numbers can be compressed") };
        let mut bits = u32::from(n.precision);
        if u64::from(bits) < u64::from(n.size).saturating_mul(8) && n.offset != 0 {
            bits = n.size.saturating_mul(8);
        }
        bits = match bits {
            25..=32 => 32,
            33..=64 => 64,
            bits => bits,
        };
        let fastest = self.chunk.last().copied().unwrap_or(1);
        let longest = u64::from(block).saturating_mul(BLOCKS_PER_SCANLINE);
        let scanline = if fastest < u64::from(block) {
            if self.elements() < u64::from(block) {
                return refuse("szip", "a chunk has fewer elements than a block");
            }
            self.elements().min(longest)
        } else {
            fastest.min(longest)
        };
        let order = if n.big { MSB } else { LSB };
        Ok(vec![mask & !(LSB | MSB | CHIP) | K13 | RAW | order, block, bits, narrow("szip", scanline)?])
    }

    fn nbit(&self) -> Result<Vec<u32>> {
        let mut values = vec![0, 0, narrow("nbit", self.elements())?];
        let mut no_padding = true;
        if matches!(self.datatype.class, Class::FixedPoint(_) | Class::FloatingPoint(_) | Class::Array(_) | Class::Compound(_)) {
            nbit_type(self.datatype, &mut values, &mut no_padding)?;
        }
        let count = narrow("nbit", values.len() as u64)?;
        for (value, known) in values.iter_mut().zip([count, u32::from(no_padding)]) {
            *value = known;
        }
        Ok(values)
    }

    fn scaleoffset(&self, scale_type: u32, factor: u32) -> Result<Vec<u32>> {
        let (class, signed, big) = match &self.datatype.class {
            Class::FixedPoint(i) => (0, i.signed, i.order == ByteOrder::BigEndian),
            Class::FloatingPoint(f) if f.order != ByteOrder::Vax => (1, false, f.order == ByteOrder::BigEndian),
            _ => return refuse("scaleoffset", "only integers and floating-point numbers can be compressed"),
        };
        let fits = if class == 0 { matches!(self.datatype.size, 1 | 2 | 4 | 8) } else { matches!(self.datatype.size, 4 | 8) };
        match (class, scale_type) {
            _ if !fits => return refuse("scaleoffset", "no C type has this element size"),
            (0, 2) | (1, 0) => {}
            _ => return refuse("scaleoffset", "the scale type does not match the datatype's class"),
        }
        let mut values = vec![scale_type, factor, narrow("scaleoffset", self.elements())?, class, self.datatype.size];
        values.extend([u32::from(signed), u32::from(big), u32::from(self.fill.is_some())]);
        let mut fill = self.fill.unwrap_or_default().to_vec();
        if big {
            fill.reverse();
        }
        for part in fill.chunks(4) {
            values.push(part.iter().rev().fold(0, |n, &b| n << 8 | u32::from(b)));
        }
        values.resize(20, 0);
        Ok(values)
    }

    /// Type size for blosc: of an array its base type's, 1 if above 255 bytes.
    fn type_size(&self) -> u32 {
        let size = if let Class::Array(a) = &self.datatype.class { a.base.size } else { self.datatype.size };
        if size > 255 { 1 } else { size }
    }

    fn blosc(&self, name: &str, usual: [u32; 2], given: &[u32]) -> Result<Vec<u32>> {
        let (size, bytes) = (self.type_size(), narrow(name, self.bytes())?);
        let [revision, version] = versions(given.get(2..4) == Some(&[size, bytes]), given).unwrap_or(usual);
        let mut values = vec![revision, version, size, bytes];
        values.extend(given.iter().skip(4));
        Ok(values)
    }

    fn blosc2(&self, given: &[u32]) -> Result<Vec<u32>> {
        let mut values = self.blosc("blosc2", [1, 0], given.get(..7.min(given.len())).unwrap_or_default())?;
        // The plugin stores the shape only after all three user values, for ranks 2 to 8.
        if values.len() == 7 && (2..=8).contains(&self.chunk.len()) {
            values.push(narrow("blosc2", self.chunk.len() as u64)?);
            for &d in self.chunk {
                values.push(narrow("blosc2", d)?);
            }
        }
        Ok(values)
    }

    /// Values of zfp are those that its plug-in stores, which describe the chunk.
    fn zfp(&self, filter: &FilterSpec) -> Result<Vec<u32>> {
        match zfp_chunk_bytes(&filter.cd_values) {
            Ok(bytes) if bytes != self.bytes() && !filter.is_optional() => {
                refuse("zfp", &format!("its values are for chunks of {bytes} bytes, not {}", self.bytes()))
            }
            // Chunks of a codec that is not known are copied as they are stored.
            Ok(_) | Err(FilterError::Unsupported { .. }) => Ok(filter.cd_values.clone()),
            Err(_) => refuse("zfp", "its values are needed as a program with the plug-in stores them"),
        }
    }

    fn bitshuffle(&self, given: &[u32]) -> Vec<u32> {
        // The plugin stores its version and the element size before the user's values: block size,
        // compressor (0, 2 or 3) and level. So [0, 2, n] are values of a user, and [0, 1, n] are
        // not.
        let (minor, user) = match given {
            [0, minor, _, first, rest @ ..] => (*minor, [&[*first], rest].concat()),
            [0, minor, size] if *size == self.datatype.size && !matches!(minor, 2 | 3) => (*minor, Vec::new()),
            user => (4, user.to_vec()),
        };
        [&[0, minor, self.datatype.size], user.as_slice()].concat()
    }
}

/// The versions at the front of complete values.
fn versions(is_complete: bool, given: &[u32]) -> Option<[u32; 2]> {
    given.first_chunk().copied().filter(|versions| is_complete && *versions != [0, 0])
}

fn narrow(filter: &str, n: u64) -> Result<u32> {
    u32::try_from(n).or_else(|_| refuse(filter, "a chunk of 2^32 bytes or more"))
}

/// Size, byte order and bit position of a number type.
struct Numeric {
    size: u32,
    precision: u16,
    offset: u16,
    big: bool,
}

impl Numeric {
    /// The number type of `datatype`; `None` for other classes and for VAX order.
    fn of(datatype: &Datatype) -> Option<Numeric> {
        let (order, precision, offset) = match &datatype.class {
            Class::FixedPoint(c) => (c.order, c.precision, c.offset),
            Class::FloatingPoint(c) => (c.order, c.precision, c.offset),
            Class::Bitfield(c) => (c.order, c.precision, c.offset),
            Class::Time(c) => (c.order, c.precision, 0),
            Class::Enumeration(e) => return Numeric::of(&e.base),
            _ => return None,
        };
        let big = order == ByteOrder::BigEndian;
        (order != ByteOrder::Vax).then_some(Numeric { size: datatype.size, precision, offset, big })
    }
}

/// Appends nbit's description of `datatype`; clears `no_padding` if a number has unused bits.
///
/// The datatype's decoder bounds the recursion.
fn nbit_type(datatype: &Datatype, values: &mut Vec<u32>, no_padding: &mut bool) -> Result<()> {
    const ATOMIC: u32 = 1;
    const ARRAY: u32 = 2;
    const COMPOUND: u32 = 3;
    const OTHER: u32 = 4;
    match &datatype.class {
        Class::FixedPoint(_) | Class::FloatingPoint(_) => {
            let Some(n) = Numeric::of(datatype) else { return refuse("nbit", "VAX byte order") };
            values.extend([ATOMIC, n.size, u32::from(n.big), n.precision.into(), n.offset.into()]);
            *no_padding &= n.offset == 0 && u64::from(n.precision) == u64::from(n.size).saturating_mul(8);
        }
        Class::Array(a) => {
            if matches!(a.base.class, Class::VariableLength(_)) {
                return refuse("nbit", "arrays of variable-length elements");
            }
            values.extend([ARRAY, datatype.size]);
            nbit_type(&a.base, values, no_padding)?;
        }
        Class::Compound(c) => {
            values.extend([COMPOUND, datatype.size, narrow("nbit", c.members.len() as u64)?]);
            for m in &c.members {
                values.push(m.offset);
                nbit_type(&m.datatype, values, no_padding)?;
            }
        }
        _ => values.extend([OTHER, datatype.size]),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: copies of datasets of other versions of the plugins were encoded again.
    #[test]
    fn versions_of_complete_values_are_kept() {
        let datatype = Datatype::byte();
        let complete = |id: u16, given: &[u32]| {
            let spec = FilterSpec { id, flags: 1, name: Vec::new(), cd_values: given.to_vec() };
            Subject { datatype: &datatype, chunk: &[8], fill: None }.complete(&spec).unwrap().cd_values
        };
        for (id, stored) in
            [(32001, &[3, 10, 1, 8, 3, 1][..]), (32001, &[1, 2, 1, 8]), (32026, &[1, 1, 1, 8, 5, 1, 0]), (32000, &[4, 0x106, 8])]
        {
            assert_eq!(complete(id, stored), stored);
        }
        // Values of a user, or of another type or chunk.
        assert_eq!(complete(32001, &[0, 0, 0, 0, 5]), [2, 2, 1, 8, 5]);
        assert_eq!(complete(32001, &[3, 10, 4, 32, 5]), [2, 2, 1, 8, 5]);
        assert_eq!((complete(32000, &[]), complete(32000, &[4, 0x106, 9])), (vec![4, 0x105, 8], vec![4, 0x105, 8]));
    }

    /// Regression: zfp without values was taken, and all chunks were lost at the commit.
    #[test]
    fn zfp_has_the_values_of_its_plug_in() {
        let complete = |flags, cd_values: &[u32]| {
            let filter = FilterSpec { id: 32013, flags, name: Vec::new(), cd_values: cd_values.to_vec() };
            Subject { datatype: &Datatype::byte(), chunk: &[8], fill: None }.complete(&filter).map(|filter| filter.cd_values)
        };
        for flags in [0, 1] {
            assert!(complete(flags, &[]).is_err() && complete(flags, &[3, 0, 0]).is_err());
            // Of a codec that is not known: its chunks are copied as they are.
            let other = [1, u32::from_le_bytes(*b"zfp\x01"), 0, 0];
            assert_eq!(complete(flags, &other).unwrap(), other);
        }
    }

    /// Regression: values stored by the first releases of bitshuffle were taken for a user's.
    #[test]
    fn stored_values_of_bitshuffle_differ_from_those_of_a_user() {
        let datatype = Datatype::byte();
        let complete = |given: &[u32]| Subject { datatype: &datatype, chunk: &[8], fill: None }.bitshuffle(given);
        for stored in
            [&[0, 0, 1, 64, 2][..], &[0, 1, 1, 64, 2], &[0, 2, 1, 0], &[0, 3, 1, 0, 2], &[0, 4, 1, 0, 3, 9], &[0, 5, 1, 0, 2], &[0, 1, 1]]
        {
            assert_eq!(complete(stored), stored);
        }
        assert_eq!(complete(&[0, 4, 8, 16, 2]), [0, 4, 1, 16, 2], "of elements of another size");
        for user in [&[][..], &[64], &[64, 2], &[0, 2], &[0, 3, 1], &[0, 2, 1], &[64, 3, 9]] {
            assert_eq!(complete(user), [&[0, 4, 1], user].concat());
        }
    }
}
