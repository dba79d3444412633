//! Objects `t/<name>/...` of a named transaction of several peers.
//!
//! ```text
//! begin    "H5IODB1\n" | UUID 16 | peers u32 | base version u64 | seconds u64 | 0, 1 skipped |
//!          text label | count u16 | names of transactions that it waits for, texts | checksum u32
//! j-<k>    "H5IODJ1\n" | UUID of the transaction 16 | session u64 | seconds u64 | checksum u32
//! p-<k>    "H5IODP1\n" | UUID of the transaction 16 | UUID of the attempt 16 | session u64 |
//!          seconds u64 | 0 changes, 1 aborted, 2 skipped |
//!          changes: flags u8: 1 moves a group | 0, delta | 1, extent of a delta
//!          otherwise: text reason
//!          | checksum u32
//! end      "H5IODE1\n" | UUID of the transaction 16 | 0 refused, 1 committed | version u64 |
//!          text reason | checksum u32
//! text     length u16 | UTF-8
//! ```

use super::cell::Extent;
use super::delta;
use super::identity::{is_name, put_text, text};
use super::record::Delta;
use super::sealed;
use crate::base::Result;

const BEGIN: &[u8; 8] = b"H5IODB1\n";
const JOINED: &[u8; 8] = b"H5IODJ1\n";
const PART: &[u8; 8] = b"H5IODP1\n";
const END: &[u8; 8] = b"H5IODE1\n";
/// Most peers of a transaction.
pub const PEERS_MAX: u32 = 1024;
/// Most transactions that one waits for.
pub const AFTER_MAX: usize = 64;
const NAME: &str = "transaction";

/// What a transaction is, from its beginning on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// Identity of the transaction.
    pub uuid: [u8; 16],
    /// Number of peers, from 1 on.
    pub peers: u32,
    /// Version that all peers see.
    pub base: u64,
    /// Seconds since 1970.
    pub seconds: u64,
    /// Nothing was ever changed in it: its name counts as done.
    pub skipped: bool,
    /// Text of its creator.
    pub label: String,
    /// Names of the transactions that end before it.
    pub after: Vec<String>,
}

impl Begin {
    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = sealed::begin(BEGIN);
        w.bytes(&self.uuid).u32(self.peers).u64(self.base).u64(self.seconds).u8(self.skipped.into());
        put_text(&mut w, &self.label);
        w.uint(self.after.len() as u64, 2);
        self.after.iter().for_each(|name| put_text(&mut w, name));
        sealed::end(w)
    }

    /// Decodes it.
    pub fn decode(bytes: &[u8]) -> Result<Begin> {
        let mut r = sealed::open(bytes, BEGIN, NAME, 0)?;
        let (uuid, peers, base, seconds) = (r.array()?, r.u32()?, r.u64()?, r.u64()?);
        let skipped = match r.u8()? {
            0 => false,
            1 => true,
            n => return Err(r.corrupt(format!("flag {n}"))),
        };
        if peers == 0 || peers > PEERS_MAX {
            return Err(r.corrupt(format!("{peers} peers")));
        }
        let label = text(&mut r)?;
        let count = usize::from(r.u16()?);
        if count > AFTER_MAX {
            return Err(r.corrupt(format!("it waits for {count} others")));
        }
        let after = (0..count).map(|_| text(&mut r)).collect::<Result<Vec<_>>>()?;
        if !after.iter().all(|name| is_name(name)) {
            return Err(r.corrupt("no name of a transaction"));
        }
        sealed::finish(&r)?;
        Ok(Begin { uuid, peers, base, seconds, skipped, label, after })
    }
}

/// A session is a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// Identity of the transaction.
    pub uuid: [u8; 16],
    /// Number of the session.
    pub session: u64,
    /// Seconds since 1970.
    pub seconds: u64,
}

impl Joined {
    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = sealed::begin(JOINED);
        w.bytes(&self.uuid).u64(self.session).u64(self.seconds);
        sealed::end(w)
    }

    /// Decodes that of peer `peer`.
    pub fn decode(bytes: &[u8], peer: u32) -> Result<Joined> {
        let mut r = sealed::open(bytes, JOINED, NAME, peer.into())?;
        let joined = Joined { uuid: r.array()?, session: r.u64()?, seconds: r.u64()? };
        sealed::finish(&r)?;
        Ok(joined)
    }
}

/// How a peer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contribution {
    /// It finished with these changes.
    Changes {
        /// A group got another parent.
        moves_group: bool,
        /// The changes.
        delta: Delta,
    },
    /// The transaction is aborted, for this reason.
    Aborted(String),
    /// The transaction is skipped: nothing is changed, and it counts as done.
    Skipped(String),
}

/// End of one peer. The first that is stored for a peer counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Identity of the transaction.
    pub uuid: [u8; 16],
    /// Identity of the attempt to store it.
    pub attempt: [u8; 16],
    /// Session of the writer; 0: none.
    pub session: u64,
    /// Seconds since 1970.
    pub seconds: u64,
    /// How it ended.
    pub contribution: Contribution,
}

impl Part {
    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = sealed::begin(PART);
        w.bytes(&self.uuid).bytes(&self.attempt).u64(self.session).u64(self.seconds);
        match &self.contribution {
            Contribution::Changes { moves_group, delta } => {
                w.u8(0).u8((*moves_group).into());
                match delta {
                    Delta::Inline(entries) => delta::write(entries, w.u8(0)),
                    Delta::Extent(extent) => extent.write(w.u8(1)),
                }
            }
            Contribution::Aborted(reason) => put_text(w.u8(1), reason),
            Contribution::Skipped(reason) => put_text(w.u8(2), reason),
        }
        sealed::end(w)
    }

    /// Decodes that of peer `peer`.
    pub fn decode(bytes: &[u8], peer: u32) -> Result<Part> {
        let mut r = sealed::open(bytes, PART, "part of a transaction", peer.into())?;
        let (uuid, attempt, session, seconds) = (r.array()?, r.array()?, r.u64()?, r.u64()?);
        let contribution = match r.u8()? {
            0 => {
                let flags = r.u8()?;
                if flags > 1 {
                    return Err(r.unsupported(format!("flags {flags:#x}; a newer h5dir wrote it")));
                }
                let delta = match r.u8()? {
                    0 => Delta::Inline(delta::read(&mut r)?),
                    1 => Delta::Extent(Extent::read(&mut r)?),
                    n => return Err(r.corrupt(format!("a delta of kind {n}"))),
                };
                Contribution::Changes { moves_group: flags == 1, delta }
            }
            1 => Contribution::Aborted(text(&mut r)?),
            2 => Contribution::Skipped(text(&mut r)?),
            n => return Err(r.unsupported(format!("an end of kind {n}; a newer h5dir wrote it"))),
        };
        sealed::finish(&r)?;
        Ok(Part { uuid, attempt, session, seconds, contribution })
    }
}

/// What became of a transaction whose peers all finished. All writers come to the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is this version.
    Committed(u64),
    /// It conflicts with a version, or its peers with each other.
    Refused(String),
}

impl Verdict {
    /// The bytes to store for the transaction `uuid`.
    pub fn encode(&self, uuid: &[u8; 16]) -> Vec<u8> {
        let (kind, version, reason) = match self {
            Verdict::Committed(version) => (1, *version, ""),
            Verdict::Refused(reason) => (0, 0, reason.as_str()),
        };
        let mut w = sealed::begin(END);
        w.bytes(uuid).u8(kind).u64(version);
        put_text(&mut w, reason);
        sealed::end(w)
    }

    /// Decodes it, with the identity of the transaction.
    pub fn decode(bytes: &[u8]) -> Result<([u8; 16], Verdict)> {
        let mut r = sealed::open(bytes, END, NAME, 0)?;
        let (uuid, kind, version, reason) = (r.array()?, r.u8()?, r.u64()?, text(&mut r)?);
        let verdict = match kind {
            0 => Verdict::Refused(reason),
            1 => Verdict::Committed(version),
            n => return Err(r.unsupported(format!("an end of kind {n}; a newer h5dir wrote it"))),
        };
        sealed::finish(&r)?;
        Ok((uuid, verdict))
    }
}
