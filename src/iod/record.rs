//! Commit record `v/<N>`: makes its changes version N of the container.
//!
//! ```text
//! "H5IODV1\n" | version u64 | UUID 16 | hash of record N-1 u64 | session u64 |
//! seconds since 1970 u64 | flags u8: 1 moves a group, 2 transaction | label length u16, label |
//! [UUID of the transaction 16 | length u16, name] | 0, delta | 1, extent of a delta | checksum u32
//! ```
//!
//! The UUID is that of the attempt: a writer that lost a reply finds its own record by it.

use super::cell::Extent;
use super::delta::{self, Entry};
use super::identity::Identity;
use super::limits;
use super::sealed;
use crate::base::checksum::lookup3;
use crate::base::{Address, Error, Result};
use crate::format::Writer;

const SIGNATURE: &[u8; 8] = b"H5IODV1\n";
const NAME: &str = "commit record";
/// A group got another parent.
const MOVES_GROUP: u8 = 1;
/// It publishes a transaction.
const TRANSACTION: u8 = 2;
/// Longest label, bytes.
pub const LABEL_MAX: usize = 1024;
/// Longest delta within a record, bytes.
pub const DELTA_MAX_BYTES: usize = 64 << 10;
/// Longest record, bytes.
pub const RECORD_MAX_BYTES: u64 = 1 << 20;

/// What a commit changes, or where that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Here.
    Inline(Vec<Entry>),
    /// In a pack.
    Extent(Extent),
}

/// A commit record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Version that it makes.
    pub version: u64,
    /// Identity of the attempt.
    pub uuid: [u8; 16],
    /// Hash of the record before; 0 in record 1.
    pub previous: u64,
    /// Session that wrote it; 0: it begins a session, with the number of its version.
    pub session: u64,
    /// Seconds since 1970, by the clock of the writer.
    pub seconds: u64,
    /// A group got another parent.
    pub moves_group: bool,
    /// Text of the writer.
    pub label: Vec<u8>,
    /// The transaction that it publishes.
    pub transaction: Option<Identity>,
    /// Its changes.
    pub delta: Delta,
}

impl Record {
    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = sealed::begin(SIGNATURE);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.moves_group, MOVES_GROUP) | flag(self.transaction.is_some(), TRANSACTION);
        let label = self.label.get(..self.label.len().min(LABEL_MAX)).unwrap_or_default();
        w.u64(self.version).bytes(&self.uuid).u64(self.previous).u64(self.session).u64(self.seconds).u8(flags);
        w.uint(label.len() as u64, 2).bytes(label);
        if let Some(transaction) = &self.transaction {
            transaction.write(&mut w);
        }
        match &self.delta {
            Delta::Inline(entries) => delta::write(entries, w.u8(0)),
            Delta::Extent(extent) => extent.write(w.u8(1)),
        }
        sealed::end(w)
    }

    /// Decodes the record of `version`.
    pub fn decode(bytes: &[u8], version: u64) -> Result<Record> {
        let mut r = sealed::open(bytes, SIGNATURE, NAME, version)?;
        if r.u64()? != version {
            return Err(r.corrupt("it is of another version"));
        }
        let (uuid, previous, session, seconds, flags) = (r.array()?, r.u64()?, r.u64()?, r.u64()?, r.u8()?);
        if flags & !(MOVES_GROUP | TRANSACTION) != 0 {
            return Err(r.unsupported(format!("flags {flags:#x}; a newer h5dir wrote it")));
        }
        let len = usize::from(r.u16()?);
        let label = r.bytes(len)?.to_vec();
        if label.len() > LABEL_MAX {
            return Err(r.corrupt("the label is too long"));
        }
        let transaction = if flags & TRANSACTION != 0 { Some(Identity::read(&mut r)?) } else { None };
        let delta = match r.u8()? {
            0 => Delta::Inline(delta::read(&mut r)?),
            1 => Delta::Extent(Extent::read(&mut r)?),
            n => return Err(r.corrupt(format!("a delta of kind {n}"))),
        };
        sealed::finish(&r)?;
        let moves_group = flags & MOVES_GROUP != 0;
        Ok(Record { version, uuid, previous, session, seconds, moves_group, label, transaction, delta })
    }
}

/// Hash of the bytes of a record, which the next record has.
pub fn hash(bytes: &[u8]) -> u64 {
    u64::from(lookup3(bytes, 1)) << 32 | u64::from(lookup3(bytes, 2))
}

/// The bytes of a delta in a pack.
///
/// Errors: `EFBIG` if it is longer than readers take.
pub fn encode_delta(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut w = Writer::new();
    delta::write(entries, &mut w);
    let bytes = w.into_bytes();
    limits::check_delta(bytes.len(), entries.len())?;
    Ok(bytes)
}

/// Decodes a delta of a pack.
pub fn decode_delta(bytes: &[u8], version: u64) -> Result<Vec<Entry>> {
    let mut r = crate::format::Reader::new(bytes, NAME, Address(version));
    let entries = delta::read(&mut r)?;
    sealed::finish(&r)?;
    Ok(entries)
}

/// The error of a chain of records that does not fit.
pub fn fork(version: u64) -> Error {
    Error::corrupt(NAME, Address(version), "it does not follow the record before it: the store lost or replaced a record")
}
