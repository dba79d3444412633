//! Checkpoint `c/<N>`: the root of a tree with all values of version N.
//!
//! ```text
//! "H5IODC1\n" | version u64 | hash of record N u64 | 0 empty, 1 tree | [extent of the root] |
//! checksum u32
//! ```

use super::cell::Extent;
use super::sealed;
use crate::base::Result;

const SIGNATURE: &[u8; 8] = b"H5IODC1\n";
/// Longest checkpoint, bytes.
pub const CHECKPOINT_MAX_BYTES: u64 = 4096;

/// A checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its version.
    pub version: u64,
    /// Hash of the commit record of the version.
    pub hash: u64,
    /// Root of the tree; `None`: there is no value.
    pub root: Option<Extent>,
}

impl Checkpoint {
    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = sealed::begin(SIGNATURE);
        w.u64(self.version).u64(self.hash).u8(self.root.is_some().into());
        if let Some(root) = &self.root {
            root.write(&mut w);
        }
        sealed::end(w)
    }

    /// Decodes the checkpoint of `version`.
    pub fn decode(bytes: &[u8], version: u64) -> Result<Checkpoint> {
        let mut r = sealed::open(bytes, SIGNATURE, "checkpoint", version)?;
        if r.u64()? != version {
            return Err(r.corrupt("it is of another version"));
        }
        let hash = r.u64()?;
        let root = match r.u8()? {
            0 => None,
            1 => Some(Extent::read(&mut r)?),
            n => return Err(r.corrupt(format!("a root of kind {n}"))),
        };
        sealed::finish(&r)?;
        Ok(Checkpoint { version, hash, root })
    }
}
