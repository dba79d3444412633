//! Bytes with a signature in front and a checksum at the end: all stored objects are sealed so.
//!
//! ```text
//! signature 8 | body | lookup3 of all bytes before, u32
//! ```

use crate::base::checksum::lookup3;
use crate::base::{Address, Error, Result};
use crate::format::{Reader, Writer};

/// Bytes of signature and checksum.
const OVERHEAD: usize = 12;

/// A writer behind the signature.
pub fn begin(signature: &[u8; 8]) -> Writer {
    let mut w = Writer::new();
    w.bytes(signature);
    w
}

/// The sealed bytes.
pub fn end(mut w: Writer) -> Vec<u8> {
    w.checksum();
    w.into_bytes()
}

/// A reader of the body. `at` is for messages. Errors: another signature, a wrong checksum.
pub fn open<'a>(bytes: &'a [u8], signature: &[u8; 8], name: &'static str, at: u64) -> Result<Reader<'a>> {
    let corrupt = |detail: &'static str| Error::corrupt(name, Address(at), detail);
    let end = bytes.len().checked_sub(4).filter(|_| bytes.len() >= OVERHEAD).ok_or_else(|| corrupt("it is too short"))?;
    let (body, sum) = bytes.split_at(end);
    if !body.starts_with(signature) {
        return Err(corrupt("another signature"));
    }
    if sum != lookup3(body, 0).to_le_bytes() && !cfg!(fuzzing) {
        return Err(corrupt("the checksum is wrong"));
    }
    let mut r = Reader::new(body, name, Address(at));
    r.skip(signature.len())?;
    Ok(r)
}

/// Errors: bytes are left.
pub fn finish(r: &Reader<'_>) -> Result<()> {
    if r.remaining() == 0 { Ok(()) } else { Err(r.corrupt("bytes follow its end")) }
}
