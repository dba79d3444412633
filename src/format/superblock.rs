//! Superblock, versions 0 to 3 (H5.format.4.0, "Disk Format: Level 0A").
//!
//! ```text
//! v0, v1: signature 8 | version | free-space version | root group version | 0 |
//!         shared header version | O | L | 0 | leaf K u16 | internal K u16 | flags u32 |
//!         v1: chunk K u16, 0 u16 | base O | free-space info O | EOF O | driver info O |
//!         root symbol table entry 2xO + 24
//! v2, v3: signature 8 | version | O | L | flags u8 | base O | extension O | EOF O |
//!         root header O | checksum
//! ```

use super::{Context, Reader, Writer};
use crate::base::{Address, Error, Result};

/// Signature of every HDF5 file, at offset 0, 512, 1024, 2048, ...
pub const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
/// Size of the largest superblock with widths up to 8, bytes.
pub const SIZE_MAX: usize = 112;
/// Consistency flags from version 3 on: the file is open for writing (0x01) or SWMR writing (0x04).
pub const IN_USE: u32 = 0x01 | 0x04;
/// Consistency flags of a SWMR writer.
pub const SWMR_WRITER: u32 = IN_USE;
/// Consistency flag: the file is open for writing.
const WRITE_ACCESS: u32 = 0x01;
/// Name of the superblock.
pub const NAME: &str = "superblock";
/// Name of the driver information block.
pub const DRIVER_NAME: &str = "driver information block";

/// The EOF bit that marks a superblock with addresses of `width` bytes: no file is that long.
pub fn mark_bit(width: u8) -> u64 {
    match width {
        8.. => 1 << 62,
        n => 1 << (u32::from(n) * 8 - 2),
    }
}

/// Length in bytes of the driver information block that starts with `prefix` (16 bytes), at
/// `address`.
///
/// `version 0 | 0 u24 | bytes of driver information u32 | driver 8 | driver information`
pub fn driver_block_len(prefix: &[u8], address: Address) -> Result<u64> {
    let mut r = Reader::new(prefix, DRIVER_NAME, address);
    r.version(0..=0)?;
    r.skip(3)?;
    Ok(u64::from(r.u32()?).saturating_add(16))
}

/// Root group entry of a version 0 or 1 superblock (a symbol table entry).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootEntry {
    /// Link name offset: always 0 for the root.
    pub name_offset: u64,
    /// Object header of the root group.
    pub header: Address,
    /// 0 nothing cached, 1 symbol table cached in the scratch pad.
    pub cache_type: u32,
    /// Reserved word, kept.
    pub reserved: u32,
    /// Scratch pad, kept: B-tree and heap address when `cache_type` is 1.
    pub scratch: [u8; 16],
}

/// Fields that only versions 0 and 1 have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Legacy {
    /// Version of the global free-space storage.
    pub free_space_version: u8,
    /// Version of the root group symbol table entry.
    pub root_entry_version: u8,
    /// Version of the shared header message format.
    pub shared_header_version: u8,
    /// Leaf node K of group B-trees.
    pub group_leaf_k: u16,
    /// Internal node K of group B-trees.
    pub group_internal_k: u16,
    /// Internal node K of chunk B-trees (version 1 only, else 32).
    pub chunk_internal_k: u16,
    /// Address of the global free-space index (undefined: not persistent).
    pub free_space: Address,
    /// Driver information block.
    pub driver_info: Address,
    /// The root group.
    pub root: RootEntry,
}

/// A decoded superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// 0 to 3.
    pub version: u8,
    /// Field widths of the whole file.
    pub ctx: Context,
    /// Consistency flags; meaningful from version 3 on (0x01 write access, 0x04 SWMR).
    pub flags: u32,
    /// Base address stored in the file.
    pub base: Address,
    /// End of file, from byte 0 of the backing file if `base` is where the superblock is.
    pub eof: Address,
    /// Superblock extension (versions 2 and 3).
    pub extension: Address,
    /// Root group's object header (versions 2 and 3; for older ones `legacy.root.header`).
    pub root: Address,
    /// Version 0 and 1 fields.
    pub legacy: Option<Legacy>,
}

impl Superblock {
    /// Decodes the superblock at the start of `buf`; `address` is its file offset, for errors.
    pub fn decode(buf: &[u8], address: Address) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.signature(&SIGNATURE)?;
        match r.version(0..=3)? {
            v @ (0 | 1) => Self::decode_legacy(&mut r, v),
            v => Self::decode_checked(&mut r, v),
        }
    }

    /// True when a writer has the file open or crashed with it. False before version 3: the flags
    /// are unused there.
    pub fn is_in_use(&self) -> bool {
        self.version >= 3 && self.flags & IN_USE != 0
    }

    /// True when a SWMR writer has the file open or crashed with it.
    pub fn is_of_swmr_writer(&self) -> bool {
        self.version >= 3 && self.flags & SWMR_WRITER == SWMR_WRITER
    }

    /// True when the last writer may not have closed the file.
    ///
    /// Version 2 has the flags too, but releases before 1.10 left arbitrary bits there. That is
    /// reason to distrust state that only a close writes, not to refuse the file.
    pub fn is_unclosed(&self) -> bool {
        self.version >= 2 && self.flags & IN_USE != 0
    }

    /// This superblock marked for a commit in progress: every reader refuses a file shorter than
    /// its recorded EOF.
    ///
    /// With 8-byte addresses the EOF bits below the mark carry `nonce`; narrower addresses have no
    /// space for it.
    pub fn marked(&self, nonce: u64) -> Superblock {
        let mark = mark_bit(self.ctx.sizeof_addr);
        match self.ctx.sizeof_addr {
            8.. => self.with_mark(mark | nonce & (mark - 1)),
            // The largest address; all ones would be the undefined address.
            _ => self.with_mark((mark - 1) << 2 | 2),
        }
    }

    /// The marked superblock of a journal of format 1, which has no nonce.
    pub fn marked_without_nonce(&self) -> Superblock {
        self.with_mark(self.eof.0 | mark_bit(self.ctx.sizeof_addr))
    }

    /// True when the superblock of a file of `len` bytes is marked for a commit.
    pub fn is_marked(&self, len: u64) -> bool {
        self.eof.defined().is_some_and(|eof| eof & mark_bit(self.ctx.sizeof_addr) != 0 && eof > len)
    }

    /// This superblock as libhdf5 takes one found at `offset`: base address and EOF are moved there
    /// from the recorded base address (`H5F__super_read`).
    ///
    /// They differ when a program without libhdf5 added, removed or resized the user block. An EOF
    /// below the recorded base address becomes undefined.
    pub fn moved_to(self, offset: u64) -> Superblock {
        let moved = self.eof.defined().and_then(|eof| eof.checked_sub(self.base.0)?.checked_add(offset));
        let eof = if self.base.0 == offset { self.eof } else { moved.map_or(Address::UNDEF, Address) };
        Superblock { base: Address(offset), eof, ..self }
    }

    fn with_mark(&self, eof: u64) -> Superblock {
        // Before version 3 the flags are unused.
        let flags = if self.version >= 3 { self.flags | WRITE_ACCESS } else { self.flags };
        Superblock { eof: Address(eof), flags, ..self.clone() }
    }

    /// True when the file is a member of a multi-file address space (it has a driver information
    /// block).
    pub fn is_of_several(&self) -> bool {
        self.legacy.as_ref().is_some_and(|l| l.driver_info.is_defined())
    }

    fn widths(r: &mut Reader<'_>) -> Result<Context> {
        let (sizeof_addr, sizeof_size) = (r.u8()?, r.u8()?);
        let fine = |n| matches!(n, 2 | 4 | 8 | 16 | 32);
        if !fine(sizeof_addr) || !fine(sizeof_size) {
            return Err(r.corrupt(format!("size of offsets {sizeof_addr}, size of lengths {sizeof_size}")));
        }
        Ok(Context { sizeof_addr, sizeof_size })
    }

    fn decode_legacy(r: &mut Reader<'_>, version: u8) -> Result<Self> {
        let free_space_version = r.u8()?;
        let root_entry_version = r.u8()?;
        r.skip(1)?;
        let shared_header_version = r.u8()?;
        let ctx = Self::widths(r)?;
        r.skip(1)?;
        let group_leaf_k = r.u16()?;
        let group_internal_k = r.u16()?;
        if group_leaf_k == 0 || group_internal_k == 0 {
            return Err(r.corrupt("a group B-tree K value is 0"));
        }
        let flags = r.u32()?;
        let chunk_internal_k = if version == 1 {
            let k = r.u16()?;
            r.skip(2)?;
            if k == 0 {
                return Err(r.corrupt("the chunk B-tree K value is 0"));
            }
            k
        } else {
            32
        };
        let base = r.addr(&ctx)?;
        let free_space = r.addr(&ctx)?;
        let eof = r.addr(&ctx)?;
        let driver_info = r.addr(&ctx)?;
        let root = RootEntry {
            name_offset: r.length(&ctx)?,
            header: r.addr(&ctx)?,
            cache_type: r.u32()?,
            reserved: r.u32()?,
            scratch: r.array()?,
        };
        Ok(Superblock {
            version,
            ctx,
            flags,
            base,
            eof,
            extension: Address::UNDEF,
            root: root.header,
            legacy: Some(Legacy {
                free_space_version,
                root_entry_version,
                shared_header_version,
                group_leaf_k,
                group_internal_k,
                chunk_internal_k,
                free_space,
                driver_info,
                root,
            }),
        })
    }

    fn decode_checked(r: &mut Reader<'_>, version: u8) -> Result<Self> {
        let ctx = Self::widths(r)?;
        let flags = u32::from(r.u8()?);
        if version >= 3 && flags & !0x07 != 0 {
            return Err(r.corrupt(format!("consistency flags {flags:#x}")));
        }
        let base = r.addr(&ctx)?;
        let extension = r.addr(&ctx)?;
        let eof = r.addr(&ctx)?;
        let root = r.addr(&ctx)?;
        r.checksum()?;
        Ok(Superblock { version, ctx, flags, base, eof, extension, root, legacy: None })
    }

    /// Size of the encoded superblock, bytes.
    pub fn size(&self) -> u64 {
        let (addr, length) = (u64::from(self.ctx.sizeof_addr), u64::from(self.ctx.sizeof_size));
        match self.version {
            0 => addr.saturating_mul(5).saturating_add(length).saturating_add(48),
            1 => addr.saturating_mul(5).saturating_add(length).saturating_add(52),
            _ => addr.saturating_mul(4).saturating_add(16),
        }
    }

    /// Encodes the exact bytes that `decode` reads.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let ctx = &self.ctx;
        let mut w = Writer::new();
        w.bytes(&SIGNATURE).u8(self.version);
        match &self.legacy {
            Some(l) => {
                w.u8(l.free_space_version).u8(l.root_entry_version).u8(0).u8(l.shared_header_version);
                w.u8(ctx.sizeof_addr).u8(ctx.sizeof_size).u8(0).u16(l.group_leaf_k).u16(l.group_internal_k).u32(self.flags);
                if self.version == 1 {
                    w.u16(l.chunk_internal_k).u16(0);
                }
                w.addr(self.base, ctx).addr(l.free_space, ctx).addr(self.eof, ctx).addr(l.driver_info, ctx);
                w.length(l.root.name_offset, ctx)
                    .addr(l.root.header, ctx)
                    .u32(l.root.cache_type)
                    .u32(l.root.reserved)
                    .bytes(&l.root.scratch);
            }
            None => {
                let flags = u8::try_from(self.flags).map_err(|_| Error::corrupt(NAME, self.base, "flags exceed one byte"))?;
                w.u8(ctx.sizeof_addr).u8(ctx.sizeof_size).u8(flags);
                w.addr(self.base, ctx).addr(self.extension, ctx).addr(self.eof, ctx).addr(self.root, ctx).checksum();
            }
        }
        Ok(w.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Superblock of an empty file written by h5py 3.16 with `libver='latest'`.
    const V3: [u8; 48] = [
        137, 72, 68, 70, 13, 10, 26, 10, 3, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 179, 0, 0, 0, 0, 0, 0,
        0, 48, 0, 0, 0, 0, 0, 0, 0, 149, 85, 86, 139,
    ];
    /// Superblock of an empty file written by h5py 3.16 with its default bounds.
    const V0: [u8; 96] = [
        137, 72, 68, 70, 13, 10, 26, 10, 0, 0, 0, 0, 0, 8, 8, 0, 4, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255,
        255, 255, 255, 32, 3, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 96, 0, 0, 0, 0, 0, 0, 0, 1,
        0, 0, 0, 0, 0, 0, 0, 136, 0, 0, 0, 0, 0, 0, 0, 168, 2, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn v0_round_trip() {
        let s = Superblock::decode(&V0, Address(0)).unwrap();
        assert_eq!((s.version, s.root, s.legacy.as_ref().map(|l| l.group_leaf_k)), (0, Address(96), Some(4)));
        assert_eq!(s.encode().unwrap(), V0);
        for n in 0..V0.len() {
            assert!(Superblock::decode(&V0[..n], Address(0)).is_err());
        }
    }

    #[test]
    fn v3_round_trip() {
        let s = Superblock::decode(&V3, Address(0)).unwrap();
        assert_eq!((s.version, s.root, s.eof.0), (3, Address(48), 179));
        assert_eq!(s.encode().unwrap(), V3);
    }

    #[test]
    fn v3_flipped_bits_are_refused() {
        for i in 0..48 {
            let mut b = V3.to_vec();
            b[i] ^= 0x10;
            assert!(Superblock::decode(&b, Address(0)).is_err(), "byte {i}");
        }
    }

    #[test]
    fn its_size_is_that_of_its_bytes() {
        for (addr, length) in [(2, 2), (2, 8), (4, 2), (4, 8), (8, 4), (8, 8)] {
            for (bytes, version) in [(&V0[..], 0), (&V0[..], 1), (&V3[..], 2), (&V3[..], 3)] {
                let s = Superblock::decode(bytes, Address(0)).unwrap();
                let s = Superblock { version, ctx: Context { sizeof_addr: addr, sizeof_size: length }, ..s };
                assert_eq!(s.size(), s.encode().unwrap().len() as u64, "{version}, {addr}, {length}");
            }
        }
    }

    #[test]
    fn a_superblock_moves_with_its_user_block() {
        for (bytes, version) in [(&V0[..], 0), (&V0[..], 1), (&V3[..], 2), (&V3[..], 3)] {
            let s = Superblock { version, ..Superblock::decode(bytes, Address(0)).unwrap() };
            let end = s.eof.0;
            let moved = s.clone().moved_to(1024);
            assert_eq!((moved.base, moved.eof), (Address(1024), Address(1024 + end)));
            assert_eq!(moved.clone().moved_to(512).moved_to(0), s);
            // Recorded numbers that contradict each other.
            let odd = |base, eof| Superblock { base: Address(base), eof: Address(eof), ..s.clone() }.moved_to(512).eof;
            assert_eq!((odd(1024, 1000), odd(0, u64::MAX - 1), odd(512, 7)), (Address::UNDEF, Address::UNDEF, Address(7)));
            assert!(!s.is_marked(end) && !moved.is_marked(0) && s.marked(5).is_marked(end));
        }
    }

    #[test]
    fn driver_blocks_have_a_prefix() {
        let block = [&[0, 0, 0, 0, 40, 0, 0, 0][..], b"NCSAmult"].concat();
        assert_eq!(driver_block_len(&block, Address(96)), Ok(56));
        assert!(driver_block_len(&block[..7], Address(96)).is_err());
        assert!(driver_block_len(&[1; 16], Address(96)).is_err());
    }

    #[test]
    fn short_is_corrupt() {
        for n in 0..48 {
            assert!(Superblock::decode(&V3[..n], Address(0)).is_err());
        }
    }
}
