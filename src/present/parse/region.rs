//! References to parts of objects from the JSON that `value` shows of them.
//!
//! ```text
//! {"dataset": PATH, "selection": {"select_type": ..., ...}}    elements of a dataset
//! {"object": PATH, "attribute": NAME}                          an attribute
//! ```
//!
use super::node::{Fields, Node};
use super::{invalid, not_supported};
use crate::base::hyperslab::HyperslabDim;
use crate::base::parts::{Part, Region, Target};
use crate::base::{Result, limits};

/// The reference that `node` shows. What leads into another file, or was shown without all it says,
/// is `EOPNOTSUPP`.
pub fn reference(node: &Node) -> Result<Target> {
    let target = |object: &[u8], part| Target { file: None, object: object.to_vec(), part };
    let f = Fields::new("a reference", node, &["file", "dataset", "selection", "object", "attribute"])?;
    if f.get("file").is_some() {
        return Err(not_supported("references into other files cannot be made"));
    }
    match (f.get("dataset"), f.get("attribute")) {
        (Some(path), _) => {
            let part = Part::Region(selection(f.need("selection")?)?);
            Ok(target(path.string("a dataset's path")?, part))
        }
        (None, Some(name)) => {
            let part = Part::Attribute(name.string("an attribute's name")?.to_vec());
            Ok(target(f.need("object")?.string("an object's path")?, part))
        }
        (None, None) => Err(not_supported("a reference names a selection of a dataset or an attribute of an object")),
    }
}

/// The inverse of `present::region`. One shown by its count, or by bytes of an unknown form, is
/// `EOPNOTSUPP`.
fn selection(node: &Node) -> Result<Region> {
    if matches!(node, Node::String(_)) {
        return Err(not_supported("a selection of unknown form"));
    }
    let f = Fields::new("a selection", node, &["select_type", "selection", "count", "start", "stride", "block"])?;
    let kind = f.need("select_type")?.string("select_type")?;
    if let (Some(Node::Number(_)), None) = (f.get("count"), f.get("start")) {
        return Err(not_supported("a selection of which only the size is known"));
    }
    match kind {
        b"H5S_SEL_NONE" => Ok(Region::None),
        b"H5S_SEL_ALL" => Ok(Region::All),
        b"H5S_SEL_HYPERSLABS" if f.get("start").is_some() => regular(&f),
        b"H5S_SEL_POINTS" => {
            let (rank, coordinates) = points(f.need("selection")?.array("the points")?.iter())?;
            Ok(Region::Points { rank, coordinates })
        }
        b"H5S_SEL_HYPERSLABS" => {
            let blocks = f.need("selection")?.array("the blocks")?;
            let pairs = blocks.iter().map(|b| match b.array("a block")? {
                pair @ [_, _] => Ok(pair),
                _ => Err(invalid("a block has two corners")),
            });
            let pairs = pairs.collect::<Result<Vec<_>>>()?;
            let (rank, corners) = points(pairs.into_iter().flatten())?;
            Ok(Region::Blocks { rank, corners })
        }
        _ => Err(invalid("a selection is H5S_SEL_NONE, H5S_SEL_ALL, H5S_SEL_POINTS or H5S_SEL_HYPERSLABS")),
    }
}

fn regular(f: &Fields<'_>) -> Result<Region> {
    let list = |name: &str| f.need(name)?.array(name)?.iter().map(|n| n.unsigned(name)).collect::<Result<Vec<u64>>>();
    let (start, stride, count, block) = (list("start")?, list("stride")?, list("count")?, list("block")?);
    let rank = start.len();
    if rank == 0 || rank > limits::RANK_MAX || [&stride, &count, &block].iter().any(|l| l.len() != rank) {
        return Err(invalid("start, stride, count and block of a selection do not fit each other"));
    }
    let dims = start.iter().zip(&stride).zip(count.iter().zip(&block));
    Ok(Region::Regular(dims.map(|((&start, &stride), (&count, &block))| HyperslabDim { start, stride, count, block }).collect()))
}

/// Number of dimensions and the coordinates of all points. There is at least one: without, the
/// dimensions are not given.
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
