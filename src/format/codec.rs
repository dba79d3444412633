//! Bounded little-endian reader and writer, and the field widths of a file.

use crate::base::{Address, Error, Result, checksum::lookup3};

/// Field widths that a file's superblock sets for every structure in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// Bytes of an address ("size of offsets"): 2, 4 or 8.
    pub sizeof_addr: u8,
    /// Bytes of a length ("size of lengths"): 2, 4 or 8.
    pub sizeof_size: u8,
}

impl Context {
    /// The widths libhdf5 writes by default.
    pub const DEFAULT: Context = Context { sizeof_addr: 8, sizeof_size: 8 };

    /// True when a length field can store `n`; all bits set is reserved.
    pub fn holds(&self, n: u64) -> bool {
        let most = u64::MAX.checked_shr(64u32.saturating_sub(u32::from(self.sizeof_size).saturating_mul(8))).unwrap_or(u64::MAX);
        n < most
    }
}

/// Cursor over the bytes of one structure. Errors name the structure and its address.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    buf: &'a [u8],
    pos: usize,
    structure: &'static str,
    address: Address,
}

impl<'a> Reader<'a> {
    /// A cursor at the start of `buf`, the bytes of `structure` at `address`.
    pub fn new(buf: &'a [u8], structure: &'static str, address: Address) -> Self {
        Reader { buf, pos: 0, structure, address }
    }

    /// Name of the structure being read.
    pub fn structure(&self) -> &'static str {
        self.structure
    }

    /// Address of the structure being read.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Bytes consumed.
    pub fn position(&self) -> usize {
        self.pos
    }

    /// Bytes not yet consumed.
    pub fn remaining(&self) -> usize {
        self.buf.len().saturating_sub(self.pos)
    }

    /// Returns the bytes not yet consumed, without consuming them.
    pub fn rest(&self) -> &'a [u8] {
        self.buf.get(self.pos..).unwrap_or_default()
    }

    /// Returns the bytes consumed since `from`, an earlier `position`.
    pub fn since(&self, from: usize) -> &'a [u8] {
        self.buf.get(from..self.pos).unwrap_or_default()
    }

    /// Builds the error that this structure is corrupt.
    pub fn corrupt(&self, detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        Error::corrupt(self.structure, self.address, detail)
    }

    /// Builds the error that this structure is of an unsupported kind.
    pub fn unsupported(&self, detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        Error::unsupported(self.structure, self.address, detail)
    }

    /// Consumes the next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let end = self.pos.checked_add(n);
        match end.and_then(|end| self.buf.get(self.pos..end)) {
            Some(b) => {
                self.pos = self.pos.saturating_add(n);
                Ok(b)
            }
            None => Err(self.corrupt(format!("ends {} bytes short at byte {}", n.saturating_sub(self.remaining()), self.pos))),
        }
    }

    /// Consumes the next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut a = [0; N];
        a.copy_from_slice(self.bytes(N)?);
        Ok(a)
    }

    /// Skips `n` bytes.
    pub fn skip(&mut self, n: usize) -> Result<()> {
        self.bytes(n).map(drop)
    }

    /// Consumes one byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Consumes a 16-bit number.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Consumes a 32-bit number.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Consumes a 64-bit number.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Consumes an unsigned number of `width` bytes; bytes after the eighth must be zero.
    pub fn uint(&mut self, width: usize) -> Result<u64> {
        let b = self.bytes(width)?;
        if let Ok(all) = <[u8; 8]>::try_from(b) {
            return Ok(u64::from_le_bytes(all));
        }
        let (low, high) = b.split_at(width.min(8));
        if high.iter().any(|&x| x != 0) {
            return Err(self.corrupt("a number exceeds 64 bits"));
        }
        Ok(low.iter().rev().fold(0u64, |n, &x| n << 8 | u64::from(x)))
    }

    /// Consumes an address; all bits set is undefined, at any width.
    pub fn addr(&mut self, ctx: &Context) -> Result<Address> {
        let width = usize::from(ctx.sizeof_addr);
        let b = self.bytes(width)?;
        if let Ok(all) = <[u8; 8]>::try_from(b) {
            // All bits set is `UNDEF` itself.
            return Ok(Address(u64::from_le_bytes(all)));
        }
        if b.iter().all(|&x| x == 0xff) {
            return Ok(Address::UNDEF);
        }
        self.pos = self.pos.saturating_sub(width);
        self.uint(width).map(Address)
    }

    /// Consumes a length; all bits set ("unlimited" or "undefined") becomes `u64::MAX` at any
    /// width.
    pub fn length(&mut self, ctx: &Context) -> Result<u64> {
        let width = usize::from(ctx.sizeof_size);
        let b = self.bytes(width)?;
        if b.iter().all(|&x| x == 0xff) {
            return Ok(u64::MAX);
        }
        self.pos = self.pos.saturating_sub(width);
        self.uint(width)
    }

    /// Consumes a length as an in-memory size; an error if it exceeds the address space.
    pub fn size(&mut self, ctx: &Context) -> Result<usize> {
        let n = self.length(ctx)?;
        usize::try_from(n).map_err(|_| self.corrupt("a length exceeds the address space"))
    }

    /// Consumes bytes up to and including the next NUL; returns them without the NUL.
    pub fn cstr(&mut self) -> Result<&'a [u8]> {
        let rest = self.rest();
        match rest.iter().position(|&b| b == 0) {
            Some(n) => {
                let s = self.bytes(n)?;
                self.skip(1)?;
                Ok(s)
            }
            None => Err(self.corrupt("a name has no terminating NUL")),
        }
    }

    /// Consumes and checks a signature.
    pub fn signature(&mut self, want: &[u8]) -> Result<()> {
        let got = self.bytes(want.len())?;
        if got == want {
            Ok(())
        } else {
            Err(self.corrupt(format!("signature is {:?}, must be {:?}", String::from_utf8_lossy(got), String::from_utf8_lossy(want))))
        }
    }

    /// Consumes a one-byte version; an error if it is not in `range`.
    pub fn version(&mut self, range: std::ops::RangeInclusive<u8>) -> Result<u8> {
        let v = self.u8()?;
        if range.contains(&v) { Ok(v) } else { Err(self.unsupported(format!("version {v}"))) }
    }

    /// Consumes a 4-byte checksum and compares it with lookup3 of all bytes consumed before.
    pub fn checksum(&mut self) -> Result<()> {
        let want = lookup3(self.since(0), 0);
        let got = self.u32()?;
        if got == want || cfg!(fuzzing) { Ok(()) } else { Err(self.corrupt(format!("checksum is {got:#010x}, must be {want:#010x}"))) }
    }

    /// Consumes the next `n` bytes as a cursor of their own.
    pub fn sub(&mut self, n: usize) -> Result<Reader<'a>> {
        Ok(Reader { buf: self.bytes(n)?, pos: 0, structure: self.structure, address: self.address })
    }
}

/// Growing little-endian buffer, the counterpart of [`Reader`].
#[derive(Debug)]
pub struct Writer {
    buf: Vec<u8>,
}

/// Initial capacity of a buffer, bytes: enough for most structures.
const CAPACITY_BYTES: usize = 256;

impl Default for Writer {
    fn default() -> Self {
        Writer { buf: Vec::with_capacity(CAPACITY_BYTES) }
    }
}

impl Writer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer that appends to `bytes`.
    pub fn after(bytes: Vec<u8>) -> Self {
        Writer { buf: bytes }
    }

    /// Returns the bytes written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.buf
    }

    /// Bytes written so far.
    pub fn position(&self) -> usize {
        self.buf.len()
    }

    /// Appends raw bytes.
    pub fn bytes(&mut self, b: &[u8]) -> &mut Self {
        self.buf.extend_from_slice(b);
        self
    }

    /// Appends `n` zero bytes.
    pub fn zeros(&mut self, n: usize) -> &mut Self {
        self.buf.resize(self.buf.len().saturating_add(n), 0);
        self
    }

    /// Appends one byte.
    pub fn u8(&mut self, v: u8) -> &mut Self {
        self.bytes(&[v])
    }

    /// Appends a 16-bit number.
    pub fn u16(&mut self, v: u16) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    /// Appends a 32-bit number.
    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    /// Appends a 64-bit number.
    pub fn u64(&mut self, v: u64) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    /// Appends the low `width` bytes of `v`; bytes after the eighth are 0.
    pub fn uint(&mut self, v: u64, width: usize) -> &mut Self {
        let bytes = v.to_le_bytes();
        match bytes.get(..width) {
            Some(low) => self.bytes(low),
            None => self.bytes(&bytes).zeros(width.saturating_sub(bytes.len())),
        }
    }

    /// Appends an address; undefined is all bits set, at any width.
    pub fn addr(&mut self, v: Address, ctx: &Context) -> &mut Self {
        let width = usize::from(ctx.sizeof_addr);
        match v.defined() {
            Some(v) => self.uint(v, width),
            None => self.ones(width),
        }
    }

    /// Appends a length; `u64::MAX` is all bits set, at any width.
    pub fn length(&mut self, v: u64, ctx: &Context) -> &mut Self {
        let width = usize::from(ctx.sizeof_size);
        if v == u64::MAX { self.ones(width) } else { self.uint(v, width) }
    }

    fn ones(&mut self, n: usize) -> &mut Self {
        self.buf.resize(self.buf.len().saturating_add(n), 0xff);
        self
    }

    /// Appends lookup3 of all bytes written so far.
    pub fn checksum(&mut self) -> &mut Self {
        let c = lookup3(&self.buf, 0);
        self.u32(c)
    }
}
