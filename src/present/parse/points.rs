//! Points and blocks of a selection, in a numpy file or as JSON.
//!
//! | file | has |
//! |---|---|
//! | `.npy` | N x rank integers of any size and order, for one dimension also N |
//! | JSON | `[[1,2],[3,4]]`: points; of one dimension also `[1,3]` |
//! | JSON | `[{"start":[..],"stop":[..]}, ...]`, also as `"blocks"` of what `defined` shows |

use super::{Node, NpyHeader, invalid, shown};
use crate::base::datatype::{ByteOrder, Class};
use crate::base::element_set::ElementSet;
use crate::base::selected::{Selected, Steps};
use crate::base::{Error, Result};
use std::io::Read;

/// Most points.
const POINTS_MAX: u64 = 1 << 27;
/// Most spans that a union of blocks makes.
const SPANS_MAX: u64 = 1 << 22;
/// Longest JSON, bytes.
const JSON_BYTES_MAX: u64 = 8 << 20;
/// Bytes of a file that are read at once.
const PIECE_BYTES: usize = 1 << 16;

/// Adds coordinates to row-major numbers of points.
struct Extent<'a> {
    dims: &'a [u64],
    strides: Vec<u64>,
}

impl<'a> Extent<'a> {
    fn new(dims: &'a [u64]) -> Result<Self> {
        // Errors for extents whose elements have no numbers.
        Selected::all(dims)?;
        let mut strides = vec![1u64; dims.len()];
        for i in (0..dims.len().saturating_sub(1)).rev() {
            let below = i.saturating_add(1);
            let stride = strides.get(below).zip(dims.get(below)).map_or(0, |(s, n)| s.saturating_mul(*n));
            strides.iter_mut().skip(i).take(1).for_each(|s| *s = stride);
        }
        Ok(Extent { dims, strides })
    }

    /// What coordinate `c` of dimension `d` adds to the number of point `point`.
    fn part(&self, point: u64, d: usize, c: i128) -> Result<u64> {
        let size = self.dims.get(d).copied().unwrap_or(0);
        let at = if c < 0 { c.saturating_add(size.into()) } else { c };
        let outside = || invalid(format!("point {point} has coordinate {c} of a dimension of {size}"));
        let at = u64::try_from(at).ok().filter(|at| *at < size).ok_or_else(outside)?;
        Ok(at.saturating_mul(self.strides.get(d).copied().unwrap_or(0)))
    }
}

/// The elements that the file `name` lists.
pub(super) fn from_file(file: &mut dyn Read, name: &str, dims: &[u64]) -> Result<Selected> {
    let failed =
        |e: std::io::Error| Error::refused(e.raw_os_error().unwrap_or(libc::EIO), format!("cannot read {}: {e}", shown(name.as_bytes())));
    let mut head = Vec::new();
    file.take(6).read_to_end(&mut head).map_err(failed)?;
    let named = |e: Error| match e {
        Error::Refused { errno, reason } => Error::refused(errno, format!("the points in {}: {reason}", shown(name.as_bytes()))),
        other => other,
    };
    if head == b"\x93NUMPY" {
        return numpy(file, head, dims, &failed).map_err(named);
    }
    let mut text = head;
    file.take(JSON_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > JSON_BYTES_MAX {
        return Err(named(Error::refused(libc::EFBIG, format!("more than {JSON_BYTES_MAX} bytes of JSON; write a .npy file"))));
    }
    from_json(&text, dims).map_err(named)
}

/// The rest of a numpy file that begins with `head`.
fn numpy(file: &mut dyn Read, head: Vec<u8>, dims: &[u64], failed: &dyn Fn(std::io::Error) -> Error) -> Result<Selected> {
    let mut front = head;
    let header = loop {
        if let Some(header) = NpyHeader::parse(&front)? {
            break header;
        }
        let before = front.len();
        file.take(PIECE_BYTES as u64).read_to_end(&mut front).map_err(failed)?;
        if front.len() == before {
            return Err(invalid("the file ends within its header"));
        }
    };
    let Class::FixedPoint(number) = &header.datatype().class else { return Err(invalid("points are integers")) };
    let (size, signed, order) = (usize::try_from(header.datatype_len()).unwrap_or(0), number.signed, number.order);
    let (count, rank) = match *header.dims() {
        [count] if dims.len() == 1 => (count, 1),
        [count, rank] => (count, rank),
        ref other => return Err(invalid(format!("an array of {} dimensions; points are N x {}", other.len(), dims.len()))),
    };
    if rank != dims.len() as u64 || rank == 0 {
        return Err(invalid(format!("points of {rank} coordinates in a dataset of {} dimensions", dims.len())));
    }
    if count > POINTS_MAX {
        return Err(Error::refused(libc::EFBIG, format!("{count} points; a selection has at most {POINTS_MAX}, select in parts")));
    }
    if !(1..=8).contains(&size) {
        return Err(invalid("points are integers of 1 to 8 bytes"));
    }
    let extent = Extent::new(dims)?;
    let (mut numbers, mut at): (Vec<u64>, u64) = (Vec::new(), 0);
    let mut bytes = front.split_off(header.header_len().min(front.len()));
    let total = count.saturating_mul(rank);
    while at < total {
        // Whole numbers of what is at hand.
        for raw in bytes.chunks_exact(size) {
            let (point, d) = if header.is_fortran() {
                (at.checked_rem(count), at.checked_div(count))
            } else {
                (at.checked_div(rank), at.checked_rem(rank))
            };
            let (point, d) = (point.unwrap_or(0), usize::try_from(d.unwrap_or(0)).unwrap_or(0));
            let part = extent.part(point, d, coordinate(raw, order, signed))?;
            if d == 0 {
                numbers.push(part);
            } else if let Some(number) = numbers.get_mut(usize::try_from(point).unwrap_or(usize::MAX)) {
                *number = number.saturating_add(part);
            }
            at = at.saturating_add(1);
            if at >= total {
                break;
            }
        }
        if at < total {
            bytes.drain(..bytes.len().saturating_sub(bytes.len() % size));
            let before = bytes.len();
            file.take(PIECE_BYTES as u64).read_to_end(&mut bytes).map_err(failed)?;
            if bytes.len() == before {
                return Err(invalid(format!("the file ends after {at} of {total} numbers")));
            }
        }
    }
    Selected::points(dims, numbers)
}

/// An integer of at most 8 bytes.
fn coordinate(raw: &[u8], order: ByteOrder, signed: bool) -> i128 {
    let mut bytes = [0u8; 8];
    for (i, to) in bytes.iter_mut().take(raw.len()).enumerate() {
        let from = if order == ByteOrder::BigEndian { raw.len().saturating_sub(1).saturating_sub(i) } else { i };
        *to = raw.get(from).copied().unwrap_or(0);
    }
    let unused = 64u32.saturating_sub(u32::try_from(raw.len()).unwrap_or(8).saturating_mul(8));
    let n = u64::from_le_bytes(bytes);
    if signed { i128::from((n << unused).cast_signed() >> unused) } else { n.into() }
}

/// The elements that JSON lists.
pub(super) fn from_json(text: &[u8], dims: &[u64]) -> Result<Selected> {
    if text.len() as u64 > JSON_BYTES_MAX {
        return Err(Error::refused(libc::EFBIG, "JSON that is too long; write a .npy file"));
    }
    let node = Node::parse_json(text)?;
    let items = match &node {
        Node::Object(fields) => {
            let blocks = fields.iter().find(|(name, _)| name == b"blocks").map(|(_, node)| node);
            blocks.ok_or_else(|| invalid("an object with a selection has \"blocks\""))?.array("blocks")?
        }
        node => node.array("a selection")?,
    };
    if matches!(node, Node::Object(_)) || matches!(items.first(), Some(Node::Object(_))) {
        return blocks(items, dims);
    }
    let extent = Extent::new(dims)?;
    let mut numbers = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        let one = std::slice::from_ref(item);
        let point = if dims.len() == 1 && matches!(item, Node::Number(_)) { one } else { item.array("a point")? };
        if point.len() != dims.len() || point.is_empty() {
            return Err(invalid(format!("point {n} has {} coordinates in a dataset of {} dimensions", point.len(), dims.len())));
        }
        let mut number = 0u64;
        for (d, c) in point.iter().enumerate() {
            number = number.saturating_add(extent.part(n as u64, d, integer(c)?)?);
        }
        numbers.push(number);
    }
    Selected::points(dims, numbers)
}

fn integer(node: &Node) -> Result<i128> {
    match node {
        Node::Number(n) => n.parse().map_err(|_| invalid(format!("a coordinate is an integer, not {}", shown(n.as_bytes())))),
        other => Err(invalid(format!("a coordinate is an integer, not {}", other.kind()))),
    }
}

/// The union of blocks, each with `start`, `stop` and perhaps `step`.
fn blocks(items: &[Node], dims: &[u64]) -> Result<Selected> {
    let mut sets = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        let Node::Object(fields) = item else { return Err(invalid(format!("block {n} is an object with start and stop"))) };
        let list = |name: &str| -> Result<Option<Vec<u64>>> {
            let Some((_, node)) = fields.iter().find(|(other, _)| other == name.as_bytes()) else { return Ok(None) };
            let numbers = node.array(name)?.iter().map(|n| n.unsigned(name)).collect::<Result<Vec<u64>>>()?;
            if numbers.len() == dims.len() {
                Ok(Some(numbers))
            } else {
                Err(invalid(format!("{name} of block {n} has {} numbers in a dataset of {} dimensions", numbers.len(), dims.len())))
            }
        };
        let need = |name: &str| list(name)?.ok_or_else(|| invalid(format!("block {n} has no {name}")));
        let (start, stop, step) = (need("start")?, need("stop")?, list("step")?.unwrap_or_else(|| vec![1; dims.len()]));
        let ranges = start.iter().zip(&stop).zip(step.iter().zip(dims));
        let steps = ranges.map(|((start, stop), (step, size))| {
            if *step == 0 || stop < start || stop > size {
                return Err(invalid(format!("block {n} is from {start} to {stop} at steps of {step} in a dimension of {size}")));
            }
            Ok(Steps { start: *start, step: *step, count: stop.saturating_sub(*start).div_ceil(*step) })
        });
        sets.push(Selected::grid(dims, steps.collect::<Result<_>>()?)?.to_set()?);
    }
    Selected::set(dims, ElementSet::join(sets, SPANS_MAX)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, dict: &str, data: &[u8]) -> Vec<u8> {
        let width = if version == 1 { 2 } else { 4 };
        [b"\x93NUMPY", &[version, 0][..], &(dict.len() as u32).to_le_bytes()[..width], dict.as_bytes(), data].concat()
    }

    fn numbers(bytes: &[u8], dims: &[u64]) -> Result<Vec<u64>> {
        let (selected, mut all) = (from_file(&mut &*bytes, "x", dims)?, Vec::new());
        selected.for_each_run(0..u64::MAX, &mut |run| {
            all.extend(run);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn numpy_files_of_any_integers_and_order() {
        let of = |version, descr: &str, fortran: &str, shape: &str, data: &[u8]| {
            numbers(&file(version, &format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}}}"), data), &[3, 4])
        };
        assert_eq!(of(1, "|u1", "False", "(2, 2)", &[2, 1, 0, 3]).unwrap(), [9, 3]);
        assert_eq!(of(2, "|u1", "True", "(2, 2)", &[2, 0, 1, 3]).unwrap(), [9, 3]);
        assert_eq!(of(3, ">i2", "False", "(1, 2)", &[0, 1, 0xff, 0xfe]).unwrap(), [6]);
        assert_eq!(of(1, "<i8", "False", "(0, 2)", &[]).unwrap(), [0u64; 0]);
        for (descr, shape, data) in [
            ("|u1", "(1, 2)", &[3, 0][..]),
            ("|i1", "(1, 2)", &[0xfc, 0]),
            ("|u1", "(2, 2)", &[1, 1]),
            ("|u1", "(1, 3)", &[1, 1, 1]),
            ("|u1", "(2,)", &[1, 1]),
            ("<f4", "(1, 2)", &[0; 8]),
            ("|u1", "(4000000000, 2)", &[1, 1]),
            ("|S1", "(1, 2)", &[1, 1]),
        ] {
            assert!(of(1, descr, "False", shape, data).is_err(), "{descr} {shape}");
        }
        let long = "{'descr': '<u4', 'fortran_order': True, 'shape': (100000,)}";
        let data: Vec<u8> = (0..100_000u32).rev().flat_map(u32::to_le_bytes).collect();
        assert_eq!(numbers(&file(1, long, &data), &[100_000]).unwrap(), (0..100_000u64).rev().collect::<Vec<_>>());
        assert!(numbers(&file(1, long, &data), &[99_999]).is_err());
    }

    #[test]
    fn json_has_points_or_blocks() {
        assert_eq!(numbers(b"[[2,1],[0,3]]", &[3, 4]).unwrap(), [9, 3]);
        assert_eq!(numbers(b"[5, 1, -1]", &[9]).unwrap(), [5, 1, 8]);
        assert_eq!(numbers(b"[{\"start\":[0,1],\"stop\":[3,2],\"step\":[2,1]}]", &[3, 4]).unwrap(), [1, 9]);
        assert_eq!(numbers(b"[]", &[3, 4]).unwrap(), [0u64; 0]);
        for wrong in [
            &b"[[1.5,2]]"[..],
            b"[NaN]",
            b"7",
            b"",
            b"[[1,2]",
            b"[{\"start\":[0,1]}]",
            b"[{\"start\":[0,0],\"stop\":[9,9]}]",
            b"\x93NUM",
            b"[{},[1,2]]",
        ] {
            assert!(numbers(wrong, &[3, 4]).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
    }
}
