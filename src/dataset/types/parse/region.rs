//! References to parts of objects from the JSON that `types::value` shows of them.
//!
//! ```text
//! {"dataset": PATH, "selection": {"select_type": ..., ...}}    elements of a dataset
//! {"object": PATH, "attribute": NAME}                          an attribute
//! ```
//!
//! They are made as `types::reference` describes them; selections in the oldest form that can hold them.

use super::node::{Fields, Node};
use super::{invalid, not_supported, out_of_range};
use crate::base::hyperslab::HyperslabDim;
use crate::base::{Result, limits};
use crate::format::Writer;
use crate::format::selection::{Form, SerializedSelection};

/// What a reference names.
pub struct Reference<'n> {
    /// Path of the object.
    pub path: &'n [u8],
    /// Part of it.
    pub part: Part<'n>,
}

/// Part of an object.
pub enum Part<'n> {
    /// What is selected of a dataset.
    Region(SerializedSelection),
    /// The attribute of this name.
    Attribute(&'n [u8]),
}

/// The reference that `node` shows. What leads into another file, or was shown without all it says, is `EOPNOTSUPP`.
pub fn reference(node: &Node) -> Result<Reference<'_>> {
    let f = Fields::new("a reference", node, &["file", "dataset", "selection", "object", "attribute"])?;
    if f.get("file").is_some() {
        return Err(not_supported("references into other files cannot be made"));
    }
    match (f.get("dataset"), f.get("attribute")) {
        (Some(path), _) => {
            let part = Part::Region(selection(f.need("selection")?)?);
            Ok(Reference { path: path.string("a dataset's path")?, part })
        }
        (None, Some(name)) => {
            let part = Part::Attribute(name.string("an attribute's name")?);
            Ok(Reference { path: f.need("object")?.string("an object's path")?, part })
        }
        (None, None) => Err(not_supported("a reference names a selection of a dataset or an attribute of an object")),
    }
}

/// The heap object of a region reference of the old kind: `sizeof_addr` bytes of address, selection.
pub fn old_region(address: u64, sizeof_addr: usize, selection: &SerializedSelection) -> Vec<u8> {
    let mut w = Writer::new();
    w.uint(address, sizeof_addr);
    selection.encode(&mut w);
    w.into_bytes()
}

/// Kind and heap object of an `H5R_ref_t`.
pub fn standard(address: u64, part: &Part<'_>) -> Result<(u8, Vec<u8>)> {
    let mut w = Writer::new();
    w.u8(8).u64(address);
    let kind = match part {
        Part::Region(selection) => {
            let rank = rank(selection).ok_or_else(|| not_supported("a reference of this kind to all or nothing of a dataset"))?;
            let mut bytes = Writer::new();
            selection.encode(&mut bytes);
            let bytes = bytes.into_bytes();
            let len = u32::try_from(bytes.len()).map_err(|_| out_of_range("a selection is too long"))?;
            w.u32(len).u32(u32::try_from(rank).unwrap_or(u32::MAX)).bytes(&bytes);
            3
        }
        Part::Attribute(name) => {
            w.u16(u16::try_from(name.len()).map_err(|_| out_of_range("an attribute's name is too long"))?).bytes(name);
            4
        }
    };
    Ok((kind, w.into_bytes()))
}

fn rank(selection: &SerializedSelection) -> Option<usize> {
    match selection {
        SerializedSelection::None(_) | SerializedSelection::All(_) => None,
        SerializedSelection::Points { rank, .. } | SerializedSelection::Blocks { rank, .. } => Some(*rank),
        SerializedSelection::Regular { dims, .. } => Some(dims.len()),
    }
}

/// The inverse of `connector::native::region`. One shown by its count, or by bytes that nobody understood, is `EOPNOTSUPP`.
fn selection(node: &Node) -> Result<SerializedSelection> {
    if matches!(node, Node::String(_)) {
        return Err(not_supported("a selection of unknown form"));
    }
    let f = Fields::new("a selection", node, &["select_type", "selection", "count", "start", "stride", "block"])?;
    let kind = f.need("select_type")?.string("select_type")?;
    if let (Some(Node::Number(_)), None) = (f.get("count"), f.get("start")) {
        return Err(not_supported("a selection of which only the size is known"));
    }
    let empty = Form::V1 { reserved: 0, length: 0 };
    match kind {
        b"H5S_SEL_NONE" => Ok(SerializedSelection::None(empty)),
        b"H5S_SEL_ALL" => Ok(SerializedSelection::All(empty)),
        b"H5S_SEL_HYPERSLABS" if f.get("start").is_some() => regular(&f),
        b"H5S_SEL_POINTS" => {
            let (rank, coordinates) = points(f.need("selection")?.array("the points")?.iter())?;
            let form = form(&coordinates, Form::Compact { width: 8 });
            Ok(SerializedSelection::Points { form, rank, coordinates })
        }
        b"H5S_SEL_HYPERSLABS" => {
            let blocks = f.need("selection")?.array("the blocks")?;
            let pairs = blocks.iter().map(|b| match b.array("a block")? {
                pair @ [_, _] => Ok(pair),
                _ => Err(invalid("a block has two corners")),
            });
            let pairs = pairs.collect::<Result<Vec<_>>>()?;
            let (rank, corners) = points(pairs.into_iter().flatten())?;
            let form = form(&corners, Form::HyperslabV2 { length: 0 });
            Ok(SerializedSelection::Blocks { form, rank, corners })
        }
        _ => Err(invalid("a selection is H5S_SEL_NONE, H5S_SEL_ALL, H5S_SEL_POINTS or H5S_SEL_HYPERSLABS")),
    }
}

fn regular(f: &Fields<'_>) -> Result<SerializedSelection> {
    let list = |name: &str| f.need(name)?.array(name)?.iter().map(|n| n.unsigned(name)).collect::<Result<Vec<u64>>>();
    let (start, stride, count, block) = (list("start")?, list("stride")?, list("count")?, list("block")?);
    let rank = start.len();
    if rank == 0 || rank > limits::RANK_MAX || [&stride, &count, &block].iter().any(|l| l.len() != rank) {
        return Err(invalid("start, stride, count and block of a selection do not fit each other"));
    }
    let dims = start.iter().zip(&stride).zip(count.iter().zip(&block));
    let dims = dims.map(|((&start, &stride), (&count, &block))| HyperslabDim { start, stride, count, block }).collect();
    // Behind the length: the rank and four numbers of 8 bytes for each dimension.
    let length = u32::try_from(rank.saturating_mul(32).saturating_add(4)).unwrap_or(u32::MAX);
    Ok(SerializedSelection::Regular { form: Form::HyperslabV2 { length }, dims })
}

/// Number of dimensions and the coordinates of all points. There is at least one: without, the dimensions are not told.
fn points<'n>(nodes: impl Iterator<Item = &'n Node>) -> Result<(usize, Vec<u64>)> {
    let (mut rank, mut all) = (0, Vec::new());
    for node in nodes {
        let point = node.array("a point")?;
        if rank == 0 {
            rank = point.len();
        }
        if point.len() != rank || rank == 0 || rank > limits::RANK_MAX {
            return Err(invalid("the points of a selection have different numbers of dimensions, or too many"));
        }
        for n in point {
            all.push(n.unsigned("a coordinate")?);
        }
    }
    if rank == 0 { Err(not_supported("a list without points or blocks")) } else { Ok((rank, all)) }
}

/// Version 1 if its 4-byte numbers are enough, else `large`, with the length that follows it.
fn form(numbers: &[u64], large: Form) -> Form {
    let length = |width: usize| u32::try_from(numbers.len().saturating_mul(width).saturating_add(4).saturating_add(width)).ok();
    match large {
        _ if numbers.iter().all(|&n| n <= u64::from(u32::MAX)) => Form::V1 { reserved: 0, length: length(4).unwrap_or(0) },
        Form::HyperslabV2 { .. } => Form::HyperslabV2 { length: length(8).unwrap_or(0) },
        other => other,
    }
}
