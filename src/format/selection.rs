//! Serialized dataspace selections, and the encoded dataspace that carries one.
//!
//! ```text
//! type u32 (0 none, 1 points, 2 hyperslab, 3 all), version u32, then
//!   none, all            reserved u32, length u32
//!   points v1            reserved u32, length u32, rank u32, count u32, coordinates u32
//!   points v2            width u8, rank u32, count, coordinates
//!   hyperslab v1         reserved u32, length u32, rank u32, count u32, blocks u32
//!   hyperslab v2         flags u8, length u32, rank u32, body of width 8
//!   hyperslab v3         flags u8, width u8, rank u32, body
//! body                   flags bit 0 set: start, stride, count, block per dimension;
//!                        else count, blocks
//! block                  first[rank], last[rank], inclusive
//! ```
//!
//! Numbers of a body have the stated width (2, 4 or 8 bytes); a `count` or `block` with all bits
//! set is unlimited. "Length" counts the bytes after it; libhdf5 and this decoder ignore it.
//! Source: H5.format.4.0 "Dataspace selection", H5Shyper.c, H5Spoint.c, H5S.c (`H5S_encode`).

use super::codec::{Context, Reader, Writer};
use crate::base::budget::Budget;
use crate::base::hyperslab::{HyperslabDim, UNLIMITED};
use crate::base::points::Points;
use crate::base::selection::Selection;
use crate::base::span_tree::SpanTree;
use crate::base::{Address, Result, limits};

/// Most numbers (coordinates) in one decoded selection.
const NUMBERS_MAX: u64 = 1 << 24;
/// Flag of a regular hyperslab.
const REGULAR: u8 = 1;

/// Version and widths of an encoded selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Version 1: two fields that readers ignore, then 4-byte coordinates.
    V1 {
        /// Reserved, 0.
        reserved: u32,
        /// Size of the rest, bytes, as stored.
        length: u32,
    },
    /// Version 2 of a hyperslab: 8-byte coordinates.
    HyperslabV2 {
        /// Size of the rest, bytes, as stored.
        length: u32,
    },
    /// Version 2 of points, version 3 of a hyperslab.
    Compact {
        /// Width of a number, bytes: 2, 4 or 8.
        width: u8,
    },
}

/// A selection as serialized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SerializedSelection {
    /// Nothing.
    None(Form),
    /// The whole extent.
    All(Form),
    /// Single elements.
    Points {
        /// Version and widths.
        form: Form,
        /// Number of dimensions.
        rank: usize,
        /// Coordinates of all points, `rank` numbers each.
        coordinates: Vec<u64>,
    },
    /// An irregular hyperslab.
    Blocks {
        /// Version and widths.
        form: Form,
        /// Number of dimensions.
        rank: usize,
        /// First and last coordinates (inclusive) of all blocks, `2 * rank` numbers each.
        corners: Vec<u64>,
    },
    /// A regular hyperslab.
    Regular {
        /// Version and widths.
        form: Form,
        /// One per dimension.
        dims: Vec<HyperslabDim>,
    },
}

impl Form {
    fn width(self) -> usize {
        match self {
            Form::V1 { .. } => 4,
            Form::HyperslabV2 { .. } => 8,
            Form::Compact { width } => usize::from(width),
        }
    }

    fn v1(r: &mut Reader) -> Result<Self> {
        Ok(Form::V1 { reserved: r.u32()?, length: r.u32()? })
    }

    fn compact(r: &mut Reader) -> Result<Self> {
        match r.u8()? {
            width @ (2 | 4 | 8) => Ok(Form::Compact { width }),
            width => Err(r.corrupt(format!("numbers of {width} bytes in a selection"))),
        }
    }
}

fn rank(r: &mut Reader) -> Result<usize> {
    let rank = r.u32()?;
    let fits = usize::try_from(rank).ok().filter(|&n| n > 0 && n <= limits::RANK_MAX);
    fits.ok_or_else(|| r.corrupt(format!("rank {rank} of a selection")))
}

/// Reads a count, then `each` numbers per counted item.
fn numbers(r: &mut Reader, width: usize, each: usize) -> Result<Vec<u64>> {
    let count = r.uint(width)?;
    let n = count.checked_mul(each as u64).filter(|&n| n.checked_mul(width as u64).is_some_and(|b| b <= r.remaining() as u64));
    let n = n.ok_or_else(|| r.corrupt(format!("{count} blocks or points do not fit in the selection")))?;
    if n > NUMBERS_MAX {
        return Err(crate::base::Error::limit(r.structure(), r.address(), format!("{count} blocks or points in one selection")));
    }
    (0..n).map(|_| r.uint(width)).collect()
}

/// Reads a count or block; all bits set, at any width, is unlimited.
fn extensible(r: &mut Reader, width: usize) -> Result<u64> {
    let all = r.rest().get(..width).is_some_and(|b| b.iter().all(|&x| x == 0xff));
    let n = r.uint(width)?;
    Ok(if all { UNLIMITED } else { n })
}

impl SerializedSelection {
    /// True if it is the whole extent.
    pub fn is_all(&self) -> bool {
        matches!(self, SerializedSelection::All(_))
    }

    /// Decodes one selection and moves the cursor past it.
    pub fn decode(r: &mut Reader) -> Result<Self> {
        let kind = r.u32()?;
        let version = r.u32()?;
        match (kind, version) {
            (0, 1) => Ok(SerializedSelection::None(Form::v1(r)?)),
            (3, 1) => Ok(SerializedSelection::All(Form::v1(r)?)),
            (1, 1 | 2) => {
                let form = if version == 1 { Form::v1(r)? } else { Form::compact(r)? };
                let rank = rank(r)?;
                Ok(SerializedSelection::Points { form, rank, coordinates: numbers(r, form.width(), rank)? })
            }
            (2, 1..=3) => Self::decode_hyperslab(r, version),
            (0..=3, _) => Err(r.unsupported(format!("version {version} of selection type {kind}"))),
            _ => Err(r.corrupt(format!("selection type {kind}"))),
        }
    }

    fn decode_hyperslab(r: &mut Reader, version: u32) -> Result<Self> {
        let flags = if version == 1 { 0 } else { r.u8()? };
        if flags & !REGULAR != 0 {
            return Err(r.corrupt(format!("flags {flags:#x} of a hyperslab selection")));
        }
        let form = match version {
            1 => Form::v1(r)?,
            2 => Form::HyperslabV2 { length: r.u32()? },
            _ => Form::compact(r)?,
        };
        let (rank, width) = (rank(r)?, form.width());
        if flags & REGULAR == 0 {
            return Ok(SerializedSelection::Blocks { form, rank, corners: numbers(r, width, rank.saturating_mul(2))? });
        }
        let mut dims = Vec::with_capacity(rank);
        for _ in 0..rank {
            let (start, stride) = (r.uint(width)?, r.uint(width)?);
            dims.push(HyperslabDim { start, stride, count: extensible(r, width)?, block: extensible(r, width)? });
        }
        Ok(SerializedSelection::Regular { form, dims })
    }

    /// Appends the encoded selection to `w`.
    pub fn encode(&self, w: &mut Writer) {
        match self {
            SerializedSelection::None(form) => encode_head(w, 0, None, *form),
            SerializedSelection::All(form) => encode_head(w, 3, None, *form),
            SerializedSelection::Points { form, rank, coordinates } => {
                encode_head(w, 1, None, *form);
                encode_numbers(w, *form, *rank, *rank, coordinates);
            }
            SerializedSelection::Blocks { form, rank, corners } => {
                encode_head(w, 2, Some(0), *form);
                encode_numbers(w, *form, *rank, rank.saturating_mul(2), corners);
            }
            SerializedSelection::Regular { form, dims } => {
                encode_head(w, 2, Some(REGULAR), *form);
                w.u32(dims.len() as u32);
                for d in dims {
                    for n in [d.start, d.stride, d.count, d.block] {
                        w.uint(n, form.width());
                    }
                }
            }
        }
    }

    /// Converts it to a [`Selection`]. `budget` bounds the work on irregular hyperslabs.
    pub fn to_selection(&self, budget: &Budget) -> Result<Selection> {
        Ok(match self {
            SerializedSelection::None(_) => Selection::None,
            SerializedSelection::All(_) => Selection::All,
            SerializedSelection::Points { rank, coordinates, .. } => {
                budget.spend(coordinates.len() as u64)?;
                Selection::Points(Points::new(*rank, coordinates.clone())?)
            }
            // libhdf5 never writes a hyperslab without blocks. Its decoder would keep the new
            // dataspace's initial selection (everything); here it selects nothing.
            SerializedSelection::Blocks { corners, .. } if corners.is_empty() => Selection::None,
            SerializedSelection::Blocks { rank, corners, .. } => Selection::Blocks(SpanTree::new(*rank, corners, budget)?),
            SerializedSelection::Regular { dims, .. } => Selection::regular(dims.clone())?,
        })
    }
}

fn encode_head(w: &mut Writer, kind: u32, flags: Option<u8>, form: Form) {
    w.u32(kind);
    w.u32(match (form, flags) {
        (Form::V1 { .. }, _) => 1,
        (Form::HyperslabV2 { .. }, _) | (Form::Compact { .. }, None) => 2,
        (Form::Compact { .. }, Some(_)) => 3,
    });
    match form {
        Form::V1 { reserved, length } => w.u32(reserved).u32(length),
        Form::HyperslabV2 { length } => w.u8(flags.unwrap_or(0)).u32(length),
        Form::Compact { width } => {
            if let Some(flags) = flags {
                w.u8(flags);
            }
            w.u8(width)
        }
    };
}

fn encode_numbers(w: &mut Writer, form: Form, rank: usize, each: usize, numbers: &[u64]) {
    w.u32(rank as u32).uint(numbers.len().checked_div(each).unwrap_or(0) as u64, form.width());
    for &n in numbers {
        w.uint(n, form.width());
    }
}

/// A dataspace and its selection in the encoding of `H5Sencode`.
///
/// ```text
/// message id u8 = 1, version u8 = 0, size of lengths u8, extent size u32, extent message,
/// selection
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedDataspace {
    /// Width of a length in the extent message, bytes.
    pub sizeof_size: u8,
    /// The extent as an encoded dataspace message.
    pub extent: Vec<u8>,
    /// Elements selected in the extent.
    pub selection: SerializedSelection,
}

impl EncodedDataspace {
    /// Decodes one dataspace and moves the cursor past it.
    pub fn decode(r: &mut Reader) -> Result<Self> {
        let message = r.u8()?;
        if message != 1 {
            return Err(r.corrupt(format!("message {message} where an encoded dataspace must have 1")));
        }
        r.version(0..=0)?;
        let sizeof_size = r.u8()?;
        if !matches!(sizeof_size, 2 | 4 | 8) {
            return Err(r.corrupt(format!("lengths of {sizeof_size} bytes in an encoded dataspace")));
        }
        let len = usize::try_from(r.u32()?).map_err(|_| r.corrupt("size of the extent"))?;
        let extent = r.bytes(len)?.to_vec();
        Ok(EncodedDataspace { sizeof_size, extent, selection: SerializedSelection::decode(r)? })
    }

    /// Appends the encoded dataspace to `w`.
    pub fn encode(&self, w: &mut Writer) {
        w.u8(1).u8(0).u8(self.sizeof_size).u32(self.extent.len() as u32).bytes(&self.extent);
        self.selection.encode(w);
    }
}

/// Heap object of a dataset region reference (`H5R_DATASET_REGION1`): object address, selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionReference {
    /// Object header of the dataset.
    pub object: Address,
    /// Elements selected in the dataset.
    pub selection: SerializedSelection,
}

impl RegionReference {
    /// Decodes one reference and moves the cursor past it.
    pub fn decode(r: &mut Reader, ctx: &Context) -> Result<Self> {
        Ok(RegionReference { object: r.addr(ctx)?, selection: SerializedSelection::decode(r)? })
    }

    /// Appends the encoded reference to `w`.
    pub fn encode(&self, w: &mut Writer, ctx: &Context) {
        w.addr(self.object, ctx);
        self.selection.encode(w);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn unhex(v: &Value) -> Vec<u8> {
        let s = v.as_str().unwrap();
        (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
    }

    fn numbers(v: &Value) -> Vec<u64> {
        v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
    }

    fn order(selection: &Selection, dims: &[u64]) -> Vec<u64> {
        let mut out = Vec::new();
        selection
            .by_ordinal(dims, 0..u64::MAX, &mut |r| {
                out.extend(r.linear..r.linear + r.len);
                Ok(())
            })
            .unwrap();
        out
    }

    fn budget() -> Budget {
        Budget::new(1 << 20, "test")
    }

    /// Checks all truncations and single-byte changes: no panic, and decoded selections are usable.
    fn damage(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<SerializedSelection>) {
        for n in 0..bytes.len() {
            assert!(decode(&bytes[..n]).is_err(), "truncated to {n}");
            for change in [1, 0x80, 0xff] {
                let mut bad = bytes.to_vec();
                bad[n] ^= change;
                if let Ok(s) = decode(&bad)
                    && let Ok(s) = s.to_selection(&budget())
                {
                    let shape = vec![1 << 20; s.rank().unwrap_or(2).min(3)];
                    let _ = s.runs(&shape, 5..500, &mut |_| Ok(()));
                }
            }
        }
    }

    /// Checks the order of elements: selections from H5Sencode against the data from H5Dread.
    #[test]
    fn libhdf5_order() {
        let cases: Value = serde_json::from_str(include_str!("../../tests/fixtures/selection/orders.json")).unwrap();
        for case in cases.as_array().unwrap() {
            let bytes = unhex(&case["encoded"]);
            let mut r = Reader::new(&bytes, "test", Address(0));
            let space = EncodedDataspace::decode(&mut r).unwrap();
            assert_eq!((r.remaining(), space.sizeof_size), (0, 8));
            let mut w = Writer::new();
            space.encode(&mut w);
            assert_eq!(w.into_bytes(), bytes);
            let dims = numbers(&case["dims"]);
            let selection = space.selection.to_selection(&budget()).unwrap();
            let want = numbers(&case["order"]);
            assert_eq!(order(&selection, &dims), want, "{case}");
            assert_eq!(selection.count(&dims).unwrap(), want.len() as u64);
            let mut ascending = Vec::new();
            selection
                .runs(&dims, 0..u64::MAX, &mut |r| {
                    ascending.extend((0..r.len).map(|i| (r.linear + i, r.ordinal + i)));
                    Ok(())
                })
                .unwrap();
            let mut sorted: Vec<(u64, u64)> = want.iter().copied().zip(0..).collect();
            sorted.sort_unstable();
            assert_eq!(ascending, sorted);
            damage(&bytes, |b| Ok(EncodedDataspace::decode(&mut Reader::new(b, "test", Address(0)))?.selection));
        }
    }

    /// Checks region references: the same selections in four generations of the format.
    #[test]
    fn libhdf5_versions() {
        let cases: Value = serde_json::from_str(include_str!("../../tests/fixtures/selection/regions.json")).unwrap();
        let mut orders: Vec<Vec<Vec<u64>>> = Vec::new();
        let mut forms = std::collections::BTreeSet::new();
        for case in cases.as_array().unwrap() {
            let mut all = Vec::new();
            for (i, object) in case["objects"].as_array().unwrap().iter().enumerate() {
                let bytes = unhex(object);
                let mut r = Reader::new(&bytes, "test", Address(0));
                let reference = RegionReference::decode(&mut r, &Context::DEFAULT).unwrap();
                assert_eq!(r.remaining(), 0);
                let mut w = Writer::new();
                reference.encode(&mut w, &Context::DEFAULT);
                assert_eq!(w.into_bytes(), bytes);
                forms.insert((bytes[8], bytes[12]));
                let selection = reference.selection.to_selection(&budget()).unwrap();
                let dims: &[u64] = if i == 3 { &[1 << 33, 70_000] } else { &[9, 10] };
                all.push(order(&selection, dims));
                damage(&bytes, |b| Ok(RegionReference::decode(&mut Reader::new(b, "test", Address(0)), &Context::DEFAULT)?.selection));
            }
            orders.push(all);
        }
        assert_eq!(orders[0][0], [12, 13, 42, 43, 72, 73]);
        assert_eq!(orders[0][2], [19, 25, 70]);
        assert_eq!((orders[0][3][0], orders[0][3].len()), ((1 << 32) * 70_000 + 66_000, 50));
        assert!(orders.iter().all(|o| *o == orders[0]));
        // Points 1 and 2, hyperslab 1 to 3, all 1.
        assert_eq!(forms.into_iter().collect::<Vec<_>>(), [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 1)]);
    }

    #[test]
    fn hostile_counts_allocate_nothing() {
        let mut w = Writer::new();
        w.u32(2).u32(3).u8(0).u8(8).u32(32).u64(u64::MAX / 32).u64(0);
        let bytes = w.into_bytes();
        assert!(SerializedSelection::decode(&mut Reader::new(&bytes, "test", Address(0))).is_err());
        let mut w = Writer::new();
        w.u32(2).u32(3).u8(1).u8(2).u32(1).bytes(&[0, 0, 1, 0, 0xff, 0xff, 1, 0]);
        let bytes = w.into_bytes();
        let s = SerializedSelection::decode(&mut Reader::new(&bytes, "test", Address(0))).unwrap();
        assert_eq!(s.to_selection(&budget()).unwrap().count(&[77]).unwrap(), 77);
        let mut w = Writer::new();
        s.encode(&mut w);
        assert_eq!(w.into_bytes(), bytes);
    }
}
