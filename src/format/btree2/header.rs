//! Version 2 B-tree header.
//!
//! ```text
//! "BTHD" | version 0 | type u8 | node size u32 | record size u16 | depth u16 | split % u8 |
//! merge % u8 | root node address O | records in root u16 | records in tree L | checksum
//! ```
//!
//! H5.format.4.0, "Version 2 B-trees", "Version 2 B-tree Header".

use super::{Geometry, NodePointer};
use crate::base::{Address, Error, Result};
use crate::format::{Context, Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "version 2 B-tree header";
const SIGNATURE: &[u8; 4] = b"BTHD";

/// A decoded version 2 B-tree header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Type of the records: 1 to 4 huge heap objects, 5 and 6 links, 7 shared messages, 8 and 9
    /// attributes, 10 and 11 chunks, 12 and 13 structured chunks.
    pub record_type: u8,
    /// Size of every node, bytes.
    pub node_size: u32,
    /// Size of every record, bytes.
    pub record_size: u16,
    /// Levels of internal nodes above the leaves; 0 when the root is a leaf.
    pub depth: u16,
    /// Fill percentage at which a writer splits a node.
    pub split_percent: u8,
    /// Fill percentage at which a writer merges nodes.
    pub merge_percent: u8,
    /// The root node and the number of records in the tree.
    pub root: NodePointer,
}

impl Header {
    /// Size of an encoded header, bytes.
    pub fn size(ctx: &Context) -> usize {
        22usize.saturating_add(usize::from(ctx.sizeof_addr)).saturating_add(usize::from(ctx.sizeof_size))
    }

    /// Decodes the header at the start of `buf`. Errors: wrong signature, version or checksum,
    /// truncation.
    pub fn decode(buf: &[u8], address: Address, ctx: &Context) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.signature(SIGNATURE)?;
        r.version(0..=0)?;
        let record_type = r.u8()?;
        let node_size = r.u32()?;
        let record_size = r.u16()?;
        let depth = r.u16()?;
        let (split_percent, merge_percent) = (r.u8()?, r.u8()?);
        let root = NodePointer { address: r.addr(ctx)?, records: r.u16()?, total: r.length(ctx)? };
        r.checksum()?;
        if root.total < u64::from(root.records) || (root.records > 0 && !root.address.is_defined()) {
            return Err(r.corrupt(format!("root node at {} with {} of {} records", root.address, root.records, root.total)));
        }
        Ok(Header { record_type, node_size, record_size, depth, split_percent, merge_percent, root })
    }

    /// Encodes the exact bytes that `decode` reads.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(SIGNATURE).u8(0).u8(self.record_type).u32(self.node_size).u16(self.record_size).u16(self.depth);
        w.u8(self.split_percent).u8(self.merge_percent);
        w.addr(self.root.address, ctx).u16(self.root.records).length(self.root.total, ctx).checksum();
        w.into_bytes()
    }

    /// Derives the geometry of this tree's nodes; `address` is the header's, for errors.
    pub fn geometry(&self, ctx: &Context, address: Address) -> Result<Geometry> {
        let g = Geometry::new(self.node_size, self.record_size, self.depth, ctx, address)?;
        match g.level(self.depth) {
            Some(level) if u64::from(self.root.records) <= level.max_records => Ok(g),
            _ => Err(Error::corrupt(NAME, address, format!("{} records in the root node do not fit", self.root.records))),
        }
    }
}
