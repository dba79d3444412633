//! The head of a run file: the log of one of several writers, beside the HDF5 file.
//!
//! ```text
//! "H5DLOG1\n" | number of the writer u32 | 0 u32 | identifier of the file u64 |
//! serial number of the state of the HDF5 file u64 | number of its next run u64 | checksum u32
//! ```
//!
//! Runs follow, as in a log dataset; their numbers begin at 0. The serial number of a run is the
//! number of runs that were durable before its commit.

use super::super::{Reader, Writer};
use crate::base::{Address, Result};

const NAME: &str = "run file of a log writer";
const SIGNATURE: &[u8] = b"H5DLOG1\n";
/// Bytes of the head.
pub(crate) const HEAD_BYTES: usize = 44;

/// The head of a run file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriterHead {
    /// Number of the writer, in the name of the file too.
    pub(crate) writer: u32,
    /// A random number, below 2^63.
    pub(crate) id: u64,
    /// Serial number of the state of the HDF5 file when the run file was made.
    pub(crate) serial: u64,
    /// Number of the run that would have been the next one of the HDF5 file.
    pub(crate) sequence: u64,
}

impl WriterHead {
    /// Decodes the head at the start of `bytes`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<WriterHead> {
        let mut r = Reader::new(bytes, NAME, Address(0));
        r.signature(SIGNATURE)?;
        let (writer, _) = (r.u32()?, r.u32()?);
        let (id, serial, sequence) = (r.u64()?, r.u64()?, r.u64()?);
        r.checksum()?;
        Ok(WriterHead { writer, id, serial, sequence })
    }

    /// True for the first bytes of a run file, also with a damaged signature. Other programs have
    /// files of such names, too: `FILE.log.1` is that of an older log.
    pub(crate) fn begins(bytes: &[u8]) -> bool {
        let Some(rest) = bytes.get(SIGNATURE.len()..HEAD_BYTES) else { return bytes.starts_with(SIGNATURE) };
        bytes.starts_with(SIGNATURE) || WriterHead::decode(&[SIGNATURE, rest].concat()).is_ok()
    }

    /// Encodes the head.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(SIGNATURE).u32(self.writer).u32(0).u64(self.id).u64(self.serial).u64(self.sequence).checksum();
        w.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_round_trip_and_damage_is_an_error() {
        let head = WriterHead { writer: 3, id: 1 << 60, serial: 7, sequence: 9 };
        let bytes = head.encode();
        assert_eq!((bytes.len(), WriterHead::decode(&bytes).unwrap()), (HEAD_BYTES, head));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(WriterHead::decode(&damaged).is_err() && WriterHead::decode(&bytes[..at]).is_err(), "{at}");
            assert!(WriterHead::begins(&damaged) && WriterHead::begins(&bytes[..at]) == (at >= SIGNATURE.len()), "{at}");
        }
        assert!(WriterHead::begins(&bytes) && !WriterHead::begins(&[b'x'; 100]) && !WriterHead::begins(&[0; HEAD_BYTES]));
    }
}
