//! Descriptor `iod`: makes a folder or a prefix a container.
//!
//! ```text
//! "H5IODF1\n" | format version u32: 1 | UUID 16 | seconds since 1970 u64 | checksum u32
//! ```

use super::sealed;
use crate::base::Result;

const SIGNATURE: &[u8; 8] = b"H5IODF1\n";
/// Version of the format.
const VERSION: u32 = 1;
/// Longest descriptor, bytes.
pub const DESCRIPTOR_MAX_BYTES: u64 = 4096;

/// A descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Identity of the container.
    pub uuid: [u8; 16],
    /// When it was created, seconds since 1970.
    pub seconds: u64,
}

impl Descriptor {
    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = sealed::begin(SIGNATURE);
        w.u32(VERSION).bytes(&self.uuid).u64(self.seconds);
        sealed::end(w)
    }

    /// Decodes a descriptor.
    pub fn decode(bytes: &[u8]) -> Result<Descriptor> {
        let mut r = sealed::open(bytes, SIGNATURE, "container descriptor", 0)?;
        match r.u32()? {
            VERSION => {}
            n => return Err(r.unsupported(format!("format version {n}; a newer h5dir made it"))),
        }
        let (uuid, seconds) = (r.array()?, r.u64()?);
        sealed::finish(&r)?;
        Ok(Descriptor { uuid, seconds })
    }
}
