//! Header of a free-space manager.
//!
//! ```text
//! "FSHD" | version 0 | client u8 | space L | sections L | stored sections L | ghost sections L |
//! classes u16 | shrink % u16 | expand % u16 | address bits u16 | largest section L |
//! section list O | bytes of the list L | bytes allocated for the list L | checksum
//! ```

use crate::base::{Address, Result, limits};
use crate::format::{Context, Reader, Writer};

/// Name of the header in errors.
pub const NAME: &str = "free-space manager";

/// Section classes of a fractal heap.
const HEAP_CLASSES: u16 = 4;
/// Section classes of a file.
const FILE_CLASSES: u16 = 3;
/// Bits of an address, and largest section: what a file of the default driver can have.
const FILE_ADDRESS_BITS: u16 = 63;
const FILE_SECTION_BYTES_MAX: u64 = i64::MAX as u64;
/// libhdf5 frees part of a list that is less full, percent.
const SHRINK_PERCENT: u16 = 80;
/// libhdf5 allocates a list larger than needed, percent.
const EXPAND_PERCENT: u16 = 120;

/// Owner of the free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// A fractal heap: offsets are in the heap's address space.
    FractalHeap,
    /// The file: offsets are addresses.
    File,
}

impl Client {
    /// The client ID.
    pub fn code(self) -> u8 {
        match self {
            Client::FractalHeap => 0,
            Client::File => 1,
        }
    }
}

/// A decoded free-space manager header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Owner of the free space.
    pub client: Client,
    /// Bytes of all sections.
    pub space: u64,
    /// Number of sections, ghosts included.
    pub sections: u64,
    /// Number of sections in the list.
    pub stored: u64,
    /// Number of sections that are not stored, because they follow from others.
    pub ghosts: u64,
    /// Number of section classes of the client.
    pub classes: u16,
    /// Fill below which the list shrinks, percent.
    pub shrink: u16,
    /// Size to which the list expands, percent.
    pub expand: u16,
    /// Bits of an offset.
    pub address_bits: u16,
    /// Largest section, bytes.
    pub largest: u64,
    /// Address of the list; undefined if there is none.
    pub list: Address,
    /// Bytes of the list.
    pub list_size: u64,
    /// Bytes allocated for the list.
    pub list_allocated: u64,
}

impl Header {
    /// Header without sections of a fractal heap with direct blocks of up to `largest` bytes, as
    /// libhdf5 creates it.
    pub fn of_heap(largest: u64, address_bits: u16) -> Self {
        Header {
            client: Client::FractalHeap,
            space: 0,
            sections: 0,
            stored: 0,
            ghosts: 0,
            classes: HEAP_CLASSES,
            shrink: SHRINK_PERCENT,
            expand: EXPAND_PERCENT,
            address_bits,
            largest,
            list: Address::UNDEF,
            list_size: 0,
            list_allocated: 0,
        }
    }

    /// Header without sections of a manager of the file, as libhdf5 creates it.
    pub fn of_file() -> Self {
        Header { client: Client::File, classes: FILE_CLASSES, address_bits: FILE_ADDRESS_BITS, ..Self::of_heap(FILE_SECTION_BYTES_MAX, 0) }
    }

    /// Bytes of an encoded header.
    pub fn size(ctx: &Context) -> u64 {
        let (o, l) = (u64::from(ctx.sizeof_addr), u64::from(ctx.sizeof_size));
        l.saturating_mul(7).saturating_add(o).saturating_add(18)
    }

    /// Decodes the header of a manager of `client` at the start of `buf`.
    pub fn decode(buf: &[u8], address: Address, ctx: &Context, client: Client) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.signature(b"FSHD")?;
        r.version(0..=0)?;
        let code = r.u8()?;
        let header = Header {
            client,
            space: r.length(ctx)?,
            sections: r.length(ctx)?,
            stored: r.length(ctx)?,
            ghosts: r.length(ctx)?,
            classes: r.u16()?,
            shrink: r.u16()?,
            expand: r.u16()?,
            address_bits: r.u16()?,
            largest: r.length(ctx)?,
            list: r.addr(ctx)?,
            list_size: r.length(ctx)?,
            list_allocated: r.length(ctx)?,
        };
        r.checksum()?;
        if code != client.code() || header.address_bits > 64 {
            return Err(r.corrupt(format!("client is {code}, must be {}; addresses have {} bits", client.code(), header.address_bits)));
        }
        let (size, allocated) = (header.list_size, header.list_allocated);
        if header.list.is_defined() && (size > allocated || allocated > limits::METADATA_BLOCK_MAX) {
            return Err(r.corrupt(format!("a section list of {size} bytes in {allocated}")));
        }
        Ok(header)
    }

    /// The exact bytes `decode` read.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(b"FSHD").u8(0).u8(self.client.code()).length(self.space, ctx).length(self.sections, ctx);
        w.length(self.stored, ctx).length(self.ghosts, ctx);
        w.u16(self.classes).u16(self.shrink).u16(self.expand).u16(self.address_bits);
        w.length(self.largest, ctx).addr(self.list, ctx).length(self.list_size, ctx).length(self.list_allocated, ctx);
        w.checksum();
        w.into_bytes()
    }
}
