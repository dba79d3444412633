//! File Space Info message (type 0x17) of the superblock extension: libhdf5's file space strategy
//! and persistent free space.
//!
//! ```text
//! version 1: 1 | strategy u8 (0 FSM_AGGR, 1 PAGE, 2 AGGR, 3 NONE) | persist u8 | threshold L |
//!            page size L | page end metadata threshold u16 |
//!            end of file when the managers were stored O | persist: 12 managers O
//! version 0: 0 | strategy u8 (1 ALL_PERSIST, 2 ALL, 3 AGGR_VFD, 4 VFD) | threshold L |
//!            strategy 1: 6 managers O
//! ```
//!
//! Managers 0 to 5 list free space of superblock, B-tree, elements, global heap, local heap, object
//! header; managers 6 to 11 list blocks of a page or more for the same types. H5.format.4.0, "The
//! File Space Info Message".

use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "file space info message";
/// Number of managers of small blocks.
pub const SMALL: usize = 6;
/// Number of managers in version 1.
pub const MANAGERS: usize = 12;
const PAGE: u8 = 1;
const ALL_PERSIST: u8 = 1;
/// Page sizes that libhdf5 accepts, bytes.
const PAGE_SIZES: std::ops::RangeInclusive<u64> = 512..=1 << 30;

/// A decoded File Space Info message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpaceInfo {
    /// 0 or 1.
    pub version: u8,
    /// Strategy number: see the module documentation.
    pub strategy: u8,
    /// True if free space is persistent.
    pub persist: bool,
    /// Smallest free section that is tracked, bytes.
    pub threshold: u64,
    /// Size of a page, bytes.
    pub page_size: u64,
    /// Largest free end of a page that is not tracked, bytes.
    pub page_end: u16,
    /// End of file when the managers were stored.
    pub eoa: Address,
    /// Free-space managers, if free space is persistent.
    pub managers: Vec<Address>,
}

impl FileSpaceInfo {
    /// Decodes the message body `buf`; `address` is the object header's, for errors.
    pub fn decode(buf: &[u8], address: Address, ctx: &Context) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        let version = r.version(0..=1)?;
        let strategy = r.u8()?;
        let persist = if version == 0 { u8::from(strategy == ALL_PERSIST) } else { r.u8()? };
        let threshold = r.length(ctx)?;
        let mut info = FileSpaceInfo {
            version,
            strategy,
            persist: persist != 0,
            threshold,
            page_size: 0,
            page_end: 0,
            eoa: Address::UNDEF,
            managers: Vec::new(),
        };
        if version == 1 {
            info.page_size = r.length(ctx)?;
            info.page_end = r.u16()?;
            info.eoa = r.addr(ctx)?;
            if persist > 1 || strategy > 3 {
                return Err(r.corrupt(format!("strategy {strategy}, persist {persist}")));
            }
            if !PAGE_SIZES.contains(&info.page_size) {
                return Err(r.corrupt(format!("pages of {} bytes", info.page_size)));
            }
        } else if !(1..=4).contains(&strategy) {
            return Err(r.corrupt(format!("strategy {strategy}")));
        }
        if info.persist {
            for _ in 0..if version == 0 { SMALL } else { MANAGERS } {
                info.managers.push(r.addr(ctx)?);
            }
        }
        Ok(info)
    }

    /// Encodes the exact bytes that `decode` reads.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(self.version).u8(self.strategy);
        if self.version == 1 {
            w.u8(u8::from(self.persist));
        }
        w.length(self.threshold, ctx);
        if self.version == 1 {
            w.length(self.page_size, ctx).u16(self.page_end).addr(self.eoa, ctx);
        }
        for manager in &self.managers {
            w.addr(*manager, ctx);
        }
        w.into_bytes()
    }

    /// Page size of the file, bytes, if its space is managed in pages.
    pub fn pages(&self) -> Option<u64> {
        (self.version == 1 && self.strategy == PAGE).then_some(self.page_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As libhdf5 2.0.0 writes it: strategy FSM_AGGR, persistent, one manager.
    fn golden() -> Vec<u8> {
        let mut b = vec![1, 0, 1];
        b.extend([1u64, 4096].iter().flat_map(|n| n.to_le_bytes()));
        b.extend([0, 0]);
        b.extend(2963u64.to_le_bytes());
        for i in 0..12 {
            b.extend(if i == 2 { 1234u64 } else { u64::MAX }.to_le_bytes());
        }
        b
    }

    #[test]
    fn both_versions() {
        let ctx = &Context::DEFAULT;
        let b = golden();
        let m = FileSpaceInfo::decode(&b, Address(0), ctx).unwrap();
        assert_eq!(m.encode(ctx), b);
        assert_eq!((m.eoa, m.managers[2], m.pages()), (Address(2963), Address(1234), None));
        for i in 0..b.len() {
            assert!(FileSpaceInfo::decode(&b[..i], Address(0), ctx).is_err());
        }
        let old: Vec<u8> = [&[0, 1][..], &1u64.to_le_bytes(), &[0xff; 48]].concat();
        let m = FileSpaceInfo::decode(&old, Address(0), ctx).unwrap();
        assert_eq!((m.persist, m.managers.len(), m.encode(ctx)), (true, 6, old));
        let mut paged = b.clone();
        paged[1] = 1;
        assert_eq!(FileSpaceInfo::decode(&paged, Address(0), ctx).unwrap().pages(), Some(4096));
        for (i, v) in [(0, 2), (1, 4), (2, 2), (12, 0), (15, 0xff)] {
            let mut bad = b.clone();
            bad[i] = v;
            assert!(FileSpaceInfo::decode(&bad, Address(0), ctx).is_err(), "{i}");
        }
    }
}
