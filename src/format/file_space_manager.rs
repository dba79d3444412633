//! Free-space manager of a file: what libhdf5 remembers of its free space ([`super::message::file_space_info`]).
//!
//! ```text
//! header:   "FSHD" | version 0 | client u8 (1: file) | space L | sections L | stored sections L |
//!           ghost sections L | classes u16 | shrink % u16 | expand % u16 | address bits u16 |
//!           largest section L | section list O | bytes of the list L | bytes allocated for it L | checksum
//! sections: "FSSE" | version 0 | header O | per size, ascending:
//!           { number of sections | size | per section: { address | type u8 } } | checksum
//! ```
//!
//! Types: 0 in files without pages; 1 less than a page, 2 more. Numbers of sections, sizes and addresses are as wide as
//! the number of stored sections, the largest section and the address bits need. H5.format.4.0, "Free-space Manager".

use super::btree2::geometry::width;
use super::{Context, Reader};
use crate::base::{Address, Result, limits};

/// Name of the header in errors.
pub const NAME: &str = "free-space manager";
/// Name of the section list in errors.
pub const LIST: &str = "free-space section list";
const TYPE_MAX: u8 = 2;

/// What is needed of a manager to read its sections and to free it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// Sections in the list.
    pub stored: u64,
    address_bits: u16,
    largest: u64,
    /// Where the list is; undefined when there is none.
    pub list: Address,
    /// Bytes of the list.
    pub list_size: u64,
    /// Bytes allocated for the list.
    pub list_allocated: u64,
}

impl Manager {
    /// Bytes of an encoded header.
    pub fn size(ctx: &Context) -> u64 {
        let (o, l) = (u64::from(ctx.sizeof_addr), u64::from(ctx.sizeof_size));
        l.saturating_mul(7).saturating_add(o).saturating_add(18)
    }

    /// Decodes the header at the start of `buf`.
    pub fn decode(buf: &[u8], address: Address, ctx: &Context) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.signature(b"FSHD")?;
        r.version(0..=0)?;
        let client = r.u8()?;
        r.length(ctx)?;
        r.length(ctx)?;
        let stored = r.length(ctx)?;
        r.length(ctx)?;
        r.skip(6)?;
        let manager = Manager {
            stored,
            address_bits: r.u16()?,
            largest: r.length(ctx)?,
            list: r.addr(ctx)?,
            list_size: r.length(ctx)?,
            list_allocated: r.length(ctx)?,
        };
        r.checksum()?;
        if client != 1 || manager.address_bits > 64 {
            return Err(r.corrupt(format!("it is of client {client}, with addresses of {} bits", manager.address_bits)));
        }
        let list = manager.list_size.max(manager.list_allocated);
        if manager.list.is_defined() && (list > limits::METADATA_BLOCK_MAX || manager.list_size > manager.list_allocated) {
            return Err(r.corrupt(format!("a list of {list} bytes")));
        }
        Ok(manager)
    }

    /// The sections (address, bytes) of the list `buf`, found at `self.list`; `address` is that of this header.
    pub fn decode_list(&self, buf: &[u8], address: Address, ctx: &Context) -> Result<Vec<(Address, u64)>> {
        let mut r = Reader::new(buf, LIST, self.list);
        let body = buf.len().checked_sub(4).ok_or_else(|| r.corrupt("too short"))?;
        let mut whole = Reader::new(buf, LIST, self.list);
        whole.skip(body)?;
        whole.checksum()?;
        r.signature(b"FSSE")?;
        r.version(0..=0)?;
        if r.addr(ctx)? != address {
            return Err(r.corrupt("it belongs to another free-space manager"));
        }
        let (count_width, size_width) = (width(self.stored), width(self.largest));
        let address_width = usize::from(self.address_bits).div_ceil(8);
        let mut sections = Vec::new();
        while (sections.len() as u64) < self.stored {
            let (count, size) = (r.uint(count_width)?, r.uint(size_width)?);
            let left = self.stored.saturating_sub(sections.len() as u64);
            if count == 0 || count > left {
                return Err(r.corrupt(format!("{count} sections of {size} bytes, {left} are left")));
            }
            for _ in 0..count {
                let at = Address(r.uint(address_width)?);
                if r.u8()? > TYPE_MAX {
                    return Err(r.corrupt("a section of a type that is not known"));
                }
                sections.push((at, size));
            }
        }
        if r.position() > body {
            return Err(r.corrupt("the sections end in the checksum"));
        }
        Ok(sections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = include_bytes!("../../tests/fixtures/space/persist.h5");
    const CTX: &Context = &Context::DEFAULT;

    #[test]
    fn managers_as_libhdf5_writes_them() {
        let mut seen = 0;
        for at in (0..FILE.len()).filter(|&at| FILE[at..].starts_with(b"FSHD\0\x01")) {
            let (address, bytes) = (Address(at as u64), &FILE[at..at + Manager::size(CTX) as usize]);
            let m = Manager::decode(bytes, address, CTX).unwrap();
            let list = &FILE[m.list.0 as usize..(m.list.0 + m.list_size) as usize];
            // Managers of earlier sessions lie in what is free.
            let Ok(sections) = m.decode_list(list, address, CTX) else { continue };
            let space = u64::from_le_bytes(bytes[6..14].try_into().unwrap());
            assert_eq!(sections.iter().map(|s| s.1).sum::<u64>(), space);
            assert!(sections.len() as u64 == m.stored && sections.iter().all(|s| s.0.0 + s.1 <= FILE.len() as u64));
            for i in 0..bytes.len() {
                let mut bad = bytes.to_vec();
                bad[i] ^= 4;
                assert!(Manager::decode(&bad, address, CTX).is_err() || cfg!(fuzzing), "byte {i}");
                assert!(Manager::decode(&bytes[..i], address, CTX).is_err());
            }
            for i in 0..list.len() {
                let mut bad = list.to_vec();
                bad[i] ^= 4;
                assert!(m.decode_list(&bad, address, CTX).is_err() || cfg!(fuzzing), "byte {i}");
                assert!(m.decode_list(&list[..i], address, CTX).is_err());
                for stored in [0, 1, 255, 1 << 40] {
                    let _ = Manager { stored, ..m.clone() }.decode_list(list, address, CTX);
                }
            }
            seen += 1;
        }
        assert!(seen > 0);
    }
}
