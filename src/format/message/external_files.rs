//! External data files message 0x0007.
//!
//! ```text
//! version 1 | 0 0 0 | allocated slots u16 | used slots u16 | local heap O |
//! slots: name offset L | file offset L | size L
//! ```

use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

/// One external file segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Offset of the file's name in the local heap.
    pub name_offset: u64,
    /// Offset in the file at which the segment starts, bytes.
    pub file_offset: u64,
    /// Size of the segment, bytes; `None`: to the end of the dataset.
    pub size: Option<u64>,
}

/// Location of a contiguous dataset's bytes in external files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalFiles {
    /// Number of allocated slots (only used ones are stored).
    pub allocated: u16,
    /// Local heap with the names.
    pub heap: Address,
    /// Segments in order.
    pub slots: Vec<Slot>,
}

impl ExternalFiles {
    /// Decodes a message body.
    pub fn decode(body: &[u8], ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(body, "external data files message", address);
        r.version(1..=1)?;
        r.skip(3)?;
        let allocated = r.u16()?;
        let used = r.u16()?;
        if used > allocated {
            return Err(r.corrupt("more slots used than allocated"));
        }
        let heap = r.addr(ctx)?;
        let mut slots = Vec::new();
        for _ in 0..used {
            let (name_offset, file_offset, size) = (r.length(ctx)?, r.length(ctx)?, r.length(ctx)?);
            slots.push(Slot { name_offset, file_offset, size: (size != u64::MAX).then_some(size) });
        }
        Ok(ExternalFiles { allocated, heap, slots })
    }

    /// Encodes the body.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(1).zeros(3).u16(self.allocated).uint(self.slots.len() as u64, 2).addr(self.heap, ctx);
        for s in &self.slots {
            w.length(s.name_offset, ctx).length(s.file_offset, ctx).length(s.size.unwrap_or(u64::MAX), ctx);
        }
        w.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_truncation() {
        let e = ExternalFiles {
            allocated: 4,
            heap: Address(800),
            slots: vec![Slot { name_offset: 8, file_offset: 0, size: Some(100) }, Slot { name_offset: 16, file_offset: 5, size: None }],
        };
        let b = e.encode(&Context::DEFAULT);
        assert_eq!(ExternalFiles::decode(&b, &Context::DEFAULT, Address(0)).unwrap(), e);
        for n in 0..b.len() {
            assert!(ExternalFiles::decode(&b[..n], &Context::DEFAULT, Address(0)).is_err());
        }
    }
}
