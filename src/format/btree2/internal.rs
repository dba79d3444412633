//! Version 2 B-tree internal node.
//!
//! ```text
//! "BTIN" | version 0 | type u8 | record 0 | ... | record n-1 |
//! n+1 pointers: { child address O | records in the child | total records in and below the child }
//! checksum | zeros up to the node size
//! ```
//!
//! [`Geometry`] defines the widths of the two counts; the total is absent where the children are
//! leaves. Record i is between child i and child i+1. H5.format.4.0, "Version 2 B-tree Internal
//! Node".

use super::{Geometry, Header, NODE_OVERHEAD, NodePointer, geometry::Level};
use crate::base::{Address, Error, Result};
use crate::format::{Context, Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "version 2 B-tree internal node";
const SIGNATURE: &[u8; 4] = b"BTIN";

/// A decoded internal node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Internal {
    /// Type of the tree it belongs to.
    pub record_type: u8,
    /// Levels above the leaves, at least 1. Not stored in the node.
    pub depth: u16,
    /// All records, `Header::record_size` bytes each.
    pub records: Vec<u8>,
    /// One pointer more than records.
    pub children: Vec<NodePointer>,
}

impl Internal {
    fn level(geometry: &Geometry, depth: u16, address: Address) -> Result<&Level> {
        let level = geometry.level(depth).filter(|_| depth > 0);
        level.ok_or_else(|| Error::corrupt(NAME, address, format!("depth {depth} is not in the tree")))
    }

    /// Size of the used part of a node of `depth` with `records` records, bytes.
    pub fn used(header: &Header, geometry: &Geometry, depth: u16, records: u16) -> usize {
        let pointer = geometry.level(depth).map_or(0, |l| l.pointer_size);
        let n = usize::from(records);
        let pointers = n.saturating_add(1).saturating_mul(pointer);
        usize::from(header.record_size).saturating_mul(n).saturating_add(pointers).saturating_add(NODE_OVERHEAD)
    }

    /// Decodes the node of `depth` with `records` records at the start of `buf`; the unused part of
    /// the node may be missing.
    pub fn decode(
        buf: &[u8],
        address: Address,
        header: &Header,
        geometry: &Geometry,
        depth: u16,
        records: u16,
        ctx: &Context,
    ) -> Result<Self> {
        let level = Self::level(geometry, depth, address)?;
        let mut r = Reader::new(buf, NAME, address);
        if u64::from(records) > level.max_records {
            return Err(r.corrupt(format!("{records} records do not fit")));
        }
        r.signature(SIGNATURE)?;
        r.version(0..=0)?;
        let record_type = r.u8()?;
        let bytes = r.bytes(usize::from(header.record_size).saturating_mul(usize::from(records)))?.to_vec();
        let children = (0..=records).map(|_| Self::pointer(&mut r, geometry, level, ctx)).collect::<Result<Vec<_>>>()?;
        r.checksum()?;
        if record_type != header.record_type {
            return Err(r.corrupt(format!("type {record_type} in a tree of type {}", header.record_type)));
        }
        Ok(Internal { record_type, depth, records: bytes, children })
    }

    fn pointer(r: &mut Reader<'_>, geometry: &Geometry, level: &Level, ctx: &Context) -> Result<NodePointer> {
        let address = r.addr(ctx)?;
        let records = r.uint(geometry.count_width)?;
        let total = if level.total_width > 0 { r.uint(level.total_width)? } else { records };
        let records = u16::try_from(records).map_err(|_| r.corrupt("a child with more than 65,535 records"))?;
        if total < u64::from(records) {
            return Err(r.corrupt(format!("a child with {records} of {total} records")));
        }
        Ok(NodePointer { address, records, total })
    }

    /// Encodes the node, zero-padded to the node size. Errors: more than fits, or a depth that the
    /// tree does not have.
    pub fn encode(&self, header: &Header, geometry: &Geometry, ctx: &Context) -> Result<Vec<u8>> {
        let level = Self::level(geometry, self.depth, Address::UNDEF)?;
        let mut w = Writer::new();
        w.bytes(SIGNATURE).u8(0).u8(self.record_type).bytes(&self.records);
        for child in &self.children {
            w.addr(child.address, ctx).uint(u64::from(child.records), geometry.count_width).uint(child.total, level.total_width);
        }
        w.checksum();
        let size = usize::try_from(header.node_size).unwrap_or(usize::MAX);
        match size.checked_sub(w.position()) {
            Some(rest) => w.zeros(rest),
            None => return Err(Error::corrupt(NAME, Address::UNDEF, "more records than fit in the node")),
        };
        Ok(w.into_bytes())
    }
}
