//! The head of a run file: the log of one of several writers, beside the HDF5 file.
//!
//! ```text
//! "H5DLOG1\n" | number of the writer u32 | version u32 | identifier of the file u64 |
//! serial number of the state of the HDF5 file u64 | number of its next run u64 |
//! version 1: identity of the log u64 | checksum u32
//! ```
//!
//! Runs follow, as in a log dataset; their numbers begin at 0. The serial number of a run is the
//! number of runs that were durable before its commit. Runs of version 1 may have datasets whose
//! first dimension is longer than in the HDF5 file; those of version 0 have not.

use super::super::{Reader, Writer};
use crate::base::{Address, Result};

const NAME: &str = "run file of a log writer";
const SIGNATURE: &[u8] = b"H5DLOG1\n";
/// Bytes of the head of version 0.
const HEAD_BYTES_MIN: usize = 44;
/// Bytes of the longest head.
pub(crate) const HEAD_BYTES_MAX: usize = 52;
/// The version of new run files.
const VERSION: u32 = 1;

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
    /// Identity of the log, 0 if it has none; `None`: a head of version 0.
    pub(crate) identity: Option<u64>,
}

impl WriterHead {
    /// Bytes of the head that begins with `bytes`. Errors: a later version.
    fn bytes_of(bytes: &[u8]) -> Result<usize> {
        let mut r = Reader::new(bytes, NAME, Address(0));
        r.skip(SIGNATURE.len())?;
        match (r.u32()?, r.u32()?) {
            (_, 0) => Ok(HEAD_BYTES_MIN),
            (_, VERSION) => Ok(HEAD_BYTES_MAX),
            (_, n) => Err(r.unsupported(format!("version {n}: a later h5dir wrote it, which also joins it with the HDF5 file"))),
        }
    }

    /// Decodes the head at the start of `bytes`; `None`: the file ends before the end of the head.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<WriterHead>> {
        if bytes.len() < HEAD_BYTES_MIN || bytes.len() < Self::bytes_of(bytes)? {
            return Ok(None);
        }
        let mut r = Reader::new(bytes, NAME, Address(0));
        r.signature(SIGNATURE)?;
        let (writer, version) = (r.u32()?, r.u32()?);
        let (id, serial, sequence) = (r.u64()?, r.u64()?, r.u64()?);
        let identity = if version == 0 { None } else { Some(r.u64()?) };
        r.checksum()?;
        Ok(Some(WriterHead { writer, id, serial, sequence, identity }))
    }

    /// Bytes of the head.
    pub(crate) fn len(&self) -> u64 {
        (if self.identity.is_some() { HEAD_BYTES_MAX } else { HEAD_BYTES_MIN }) as u64
    }

    /// True for the first bytes of a run file, also with a damaged signature. Other programs have
    /// files of such names, too: `FILE.log.1` is that of an older log.
    pub(crate) fn begins(bytes: &[u8]) -> bool {
        let Some(rest) = bytes.get(SIGNATURE.len()..) else { return false };
        bytes.starts_with(SIGNATURE) || WriterHead::decode(&[SIGNATURE, rest].concat()).is_ok_and(|head| head.is_some())
    }

    /// Encodes the head.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        let version = if self.identity.is_some() { VERSION } else { 0 };
        w.bytes(SIGNATURE).u32(self.writer).u32(version).u64(self.id).u64(self.serial).u64(self.sequence);
        if let Some(identity) = self.identity {
            w.u64(identity);
        }
        w.checksum();
        w.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_round_trip_and_damage_is_an_error() {
        for identity in [None, Some(0), Some(1 << 40)] {
            let head = WriterHead { writer: 3, id: 1 << 60, serial: 7, sequence: 9, identity };
            let bytes = head.encode();
            assert_eq!((bytes.len() as u64, WriterHead::decode(&bytes).unwrap()), (head.len(), Some(head)));
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                // With another version, the head of version 0 may be one that is cut off.
                assert!(!matches!(WriterHead::decode(&damaged), Ok(Some(_))), "{at}");
                let longer = [damaged.as_slice(), &[0; HEAD_BYTES_MAX]].concat();
                assert!(WriterHead::decode(&longer).is_err(), "{at}");
                assert_eq!(WriterHead::decode(&bytes[..at]), Ok(None), "{at}");
                assert!(WriterHead::begins(&damaged) && WriterHead::begins(&bytes[..at]) == (at >= SIGNATURE.len()), "{at}");
            }
            assert!(WriterHead::begins(&bytes));
        }
        assert!(!WriterHead::begins(&[b'x'; 100]) && !WriterHead::begins(&[0; HEAD_BYTES_MIN]) && !WriterHead::begins(b"H5DLOG"));
    }

    /// The bytes of a head of version 0.
    #[test]
    fn golden_head_of_version_0() {
        let mut bytes = b"H5DLOG1\n".to_vec();
        bytes.extend([3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(crate::base::checksum::lookup3(&bytes, 0).to_le_bytes());
        let head = WriterHead { writer: 3, id: 5, serial: 7, sequence: 9, identity: None };
        assert_eq!((WriterHead::decode(&bytes), head.encode() == bytes), (Ok(Some(head)), true));
    }

    /// Files of later versions are refused, not left alone as those of other programs.
    #[test]
    fn later_versions_are_refused() {
        let mut bytes = WriterHead { writer: 3, id: 5, serial: 7, sequence: 9, identity: Some(1) }.encode();
        bytes[12] = 2;
        assert!(WriterHead::begins(&bytes));
        let refused = WriterHead::decode(&bytes).unwrap_err().to_string();
        assert!(refused.contains("version 2: a later h5dir"), "{refused}");
    }
}
