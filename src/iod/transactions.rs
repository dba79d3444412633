//! Named transactions: peers store their parts, and one commit record publishes all of them.
//!
//! All decisions are creations of objects. `begin` decides what the transaction is, `p-<k>` how
//! peer `k` ended. A transaction is aborted if a peer's part says so, and can only be committed if
//! all parts are changes. So `abort` creates the part of a peer that has not finished. The commit
//! record has the identity of the transaction: of several writers that commit it, all but one find
//! that record. `end` spares later readers to look for it.

use super::container::{Container, now};
use super::delta::Entry;
use super::identity::{Identity, is_name};
use super::keys::{TRANSACTIONS, transaction_name};
use super::origin::{label, uuid};
use super::record::{self, Delta, RECORD_MAX_BYTES};
use super::transaction::{AFTER_MAX, Begin, Contribution, Joined, PEERS_MAX, Part, Verdict};
use crate::base::request_error::is_absent;
use crate::base::{Address, Error, Result};
use std::collections::BTreeMap;
use std::io;

/// What a new transaction is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewTransaction {
    /// Its name.
    pub name: String,
    /// Number of peers; 0 is 1.
    pub peers: u32,
    /// Version that all peers see.
    pub base: u64,
    /// Names of transactions that end before it.
    pub after: Vec<String>,
}

/// A session as the peer of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Number of the peer, from 1 on.
    pub peer: u32,
    /// Identity of the part that it stores.
    attempt: [u8; 16],
    /// Number of the session; 0: none.
    session: u64,
}

impl Membership {
    fn new(peer: u32, session: u64) -> Result<Membership> {
        Ok(Membership { peer, attempt: uuid()?, session })
    }
}

/// The stored objects of a transaction.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// Its name.
    pub name: String,
    /// What it is.
    pub begin: Begin,
    /// Sessions that joined, by peer.
    pub joined: BTreeMap<u32, Joined>,
    /// Peers that ended.
    pub parts: BTreeMap<u32, Part>,
    /// What became of it, if that is stored.
    pub verdict: Option<Verdict>,
}

/// How far a transaction is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// These peers have not finished.
    Open(Vec<u32>),
    /// All peers finished. It is committed, or will be.
    Complete,
    /// It is this version.
    Committed(u64),
    /// It is aborted or was refused, for this reason.
    Aborted(String),
    /// It counts as done, and changed nothing.
    Skipped(String),
}

impl Transaction {
    /// Its identity.
    pub fn identity(&self) -> Identity {
        Identity { uuid: self.begin.uuid, name: self.name.clone() }
    }

    /// True if the part of this peer is stored.
    pub fn has_part_of(&self, member: &Membership) -> bool {
        self.parts.get(&member.peer).is_some_and(|part| part.attempt == member.attempt)
    }

    /// Peers without a part.
    fn missing(&self) -> Vec<u32> {
        (1..=self.begin.peers).filter(|peer| !self.parts.contains_key(peer)).collect()
    }

    /// Peers that no session has the place of.
    fn free(&self) -> impl Iterator<Item = u32> + '_ {
        (1..=self.begin.peers).filter(|peer| !self.joined.contains_key(peer) && !self.parts.contains_key(peer))
    }

    fn no_place(&self) -> Error {
        let (name, peers) = (&self.name, self.begin.peers);
        refused(libc::EBUSY, format!("all {peers} peers of transaction {name} joined; give the number of one that was killed"))
    }

    /// Errors: `EBUSY` if all peers joined; `EALREADY`, `ECANCELED` if it ended.
    pub fn check_place(&self) -> Result<()> {
        match self.own_standing() {
            Standing::Open(_) => self.free().next().map(drop).ok_or_else(|| self.no_place()),
            standing => Err(ended(&self.name, &standing)),
        }
    }

    /// How far it is, by its objects alone.
    pub fn own_standing(&self) -> Standing {
        if self.begin.skipped {
            return Standing::Skipped(self.begin.label.clone());
        }
        for part in self.parts.values() {
            match &part.contribution {
                Contribution::Changes { .. } => {}
                Contribution::Aborted(reason) => return Standing::Aborted(reason.clone()),
                Contribution::Skipped(reason) => return Standing::Skipped(reason.clone()),
            }
        }
        match (&self.verdict, self.missing()) {
            (Some(Verdict::Committed(version)), _) => Standing::Committed(*version),
            (Some(Verdict::Refused(reason)), _) => Standing::Aborted(reason.clone()),
            (None, missing) if missing.is_empty() => Standing::Complete,
            (None, missing) => Standing::Open(missing),
        }
    }
}

fn refused(errno: i32, reason: String) -> Error {
    Error::refused(errno, reason)
}

/// Errors: `EINVAL` if no transaction can have the name.
fn check_name(name: &str) -> Result<()> {
    match is_name(name) {
        true => Ok(()),
        false => Err(refused(libc::EINVAL, format!("{name:?} is no name of a transaction: 1 to 64 of a-z, 0-9, '-' and '_'"))),
    }
}

/// The peer in the name of an object `<prefix><peer>`.
fn peer_of(object: &str, prefix: &str) -> Option<u32> {
    object.strip_prefix(prefix)?.parse().ok().filter(|peer| (1..=PEERS_MAX).contains(peer))
}

/// The error of an ended transaction.
pub fn ended(name: &str, standing: &Standing) -> Error {
    match standing {
        Standing::Committed(version) => refused(libc::EALREADY, format!("transaction {name} is committed as version {version}")),
        Standing::Aborted(reason) => refused(libc::ECANCELED, format!("transaction {name} is aborted: {reason}")),
        Standing::Skipped(reason) => refused(libc::ECANCELED, format!("transaction {name} is skipped: {reason}")),
        Standing::Complete => refused(libc::EALREADY, format!("all peers of transaction {name} finished; it is being committed")),
        Standing::Open(_) => refused(libc::EBUSY, format!("transaction {name} is open")),
    }
}

impl Container {
    /// Creates an object; false: another one is there.
    fn create_once(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.again("write an object of a transaction", || {
            let is_ours = || Ok(self.store().get(name, 0..RECORD_MAX_BYTES)? == bytes);
            match self.store().create(name, bytes) {
                Ok(true) => Ok(true),
                // An attempt whose reply was lost may have created it.
                Ok(false) => is_ours(),
                Err(e) => is_ours().map_err(|read: io::Error| if is_absent(&read) { e } else { read }),
            }
        })
    }

    fn read_object(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.again("read an object of a transaction", || match self.store().get(name, 0..RECORD_MAX_BYTES) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        })
    }

    /// Names of all transactions that are stored, in order.
    pub fn transaction_names(&self) -> Result<Vec<String>> {
        let keys = self.again("list transactions", || self.store().list_after(TRANSACTIONS, ""))?;
        let name = |key: &String| key.strip_prefix(TRANSACTIONS).and_then(|rest| rest.split('/').next()).map(str::to_owned);
        let mut names: Vec<String> = keys.iter().filter_map(name).filter(|name| is_name(name)).collect();
        names.dedup();
        Ok(names)
    }

    /// The objects of a transaction; `None`: there is none of this name.
    pub fn transaction(&self, name: &str) -> Result<Option<Transaction>> {
        check_name(name)?;
        let Some(begin) = self.read_object(&transaction_name(name, "begin"))? else { return Ok(None) };
        let begin = Begin::decode(&begin)?;
        let prefix = transaction_name(name, "");
        let keys = self.again("list a transaction", || self.store().list_after(&prefix, ""))?;
        let (mut joined, mut parts, mut verdict) = (BTreeMap::new(), BTreeMap::new(), None);
        for key in &keys {
            let Some(object) = key.strip_prefix(&prefix) else { continue };
            let ours = |uuid: [u8; 16]| uuid == begin.uuid;
            if let Some(peer) = peer_of(object, "j-").filter(|peer| *peer <= begin.peers) {
                let found = self.read_object(key)?.map(|bytes| Joined::decode(&bytes, peer)).transpose()?;
                joined.extend(found.filter(|j| ours(j.uuid)).map(|j| (peer, j)));
            } else if let Some(peer) = peer_of(object, "p-").filter(|peer| *peer <= begin.peers) {
                let found = self.read_object(key)?.map(|bytes| Part::decode(&bytes, peer)).transpose()?;
                parts.extend(found.filter(|p| ours(p.uuid)).map(|p| (peer, p)));
            } else if object == "end" {
                let found = self.read_object(key)?.map(|bytes| Verdict::decode(&bytes)).transpose()?;
                verdict = found.filter(|(uuid, _)| ours(*uuid)).map(|(_, verdict)| verdict);
            }
        }
        Ok(Some(Transaction { name: name.to_owned(), begin, joined, parts, verdict }))
    }

    /// [`Container::transaction`]. Errors: `ENOENT` if there is none.
    pub fn known_transaction(&self, name: &str) -> Result<Transaction> {
        self.transaction(name)?.ok_or_else(|| refused(libc::ENOENT, format!("there is no transaction {name}")))
    }

    /// Begins a transaction. Errors: `EEXIST` if there is one of this name; `ENOENT` if there is
    /// none that it is to wait for, so that none waits for itself.
    pub fn begin_transaction(&self, new: &NewTransaction) -> Result<()> {
        check_name(&new.name)?;
        if new.peers > PEERS_MAX || new.after.len() > AFTER_MAX {
            return Err(refused(
                libc::EINVAL,
                format!("a transaction has at most {PEERS_MAX} peers, and waits for at most {AFTER_MAX} others"),
            ));
        }
        for name in &new.after {
            self.known_transaction(name)?;
        }
        let label = String::from_utf8_lossy(&label()).into_owned();
        let (peers, after) = (new.peers.max(1), new.after.clone());
        self.create_begin(&new.name, &Begin { uuid: uuid()?, peers, base: new.base, seconds: now(), skipped: false, label, after })
    }

    fn create_begin(&self, name: &str, begin: &Begin) -> Result<()> {
        match self.create_once(&transaction_name(name, "begin"), &begin.encode())? {
            true => Ok(()),
            false => Err(refused(libc::EEXIST, format!("there is a transaction {name} already"))),
        }
    }

    /// Makes a session a peer of a transaction: of this number, or of the first one that is free.
    /// Errors: `EBUSY` if there is none; `EALREADY`, `ECANCELED` if the peer or the transaction
    /// ended.
    pub fn join_transaction(&self, transaction: &Transaction, session: u64, peer: Option<u32>) -> Result<Membership> {
        let (name, peers) = (&transaction.name, transaction.begin.peers);
        let Standing::Open(_) = transaction.own_standing() else { return Err(ended(name, &transaction.own_standing())) };
        let bytes = Joined { uuid: transaction.begin.uuid, session, seconds: now() }.encode();
        match peer {
            Some(peer) if !(1..=peers).contains(&peer) => {
                Err(refused(libc::EINVAL, format!("transaction {name} has the peers 1 to {peers}, and no peer {peer}")))
            }
            Some(peer) if transaction.parts.contains_key(&peer) => {
                Err(refused(libc::EALREADY, format!("peer {peer} of transaction {name} has finished")))
            }
            // The first session that finishes is the peer: it may replace one that was killed.
            Some(peer) => {
                self.create_once(&transaction_name(name, &format!("j-{peer}")), &bytes).and_then(|_| Membership::new(peer, session))
            }
            None => {
                // An attempt that failed may have taken a place.
                if let Some((peer, _)) = transaction.joined.iter().find(|(_, joined)| joined.session == session) {
                    return Membership::new(*peer, session);
                }
                for peer in transaction.free() {
                    if self.create_once(&transaction_name(name, &format!("j-{peer}")), &bytes)? {
                        return Membership::new(peer, session);
                    }
                }
                Err(transaction.no_place())
            }
        }
    }

    /// Gives up the place of a peer that has not finished.
    pub fn leave_transaction(&self, name: &str, member: &Membership) -> Result<()> {
        let place = transaction_name(name, &format!("j-{}", member.peer));
        // A peer that took the place by its number needs no such object.
        self.again("remove an object of a transaction", || self.store().delete(&place))
    }

    /// Stores the end of a peer, once. Errors: `EALREADY`, `ECANCELED` if it ended otherwise.
    fn put_part(&self, transaction: &Transaction, member: &Membership, contribution: Contribution) -> Result<()> {
        let Membership { peer, attempt, session } = *member;
        let part = Part { uuid: transaction.begin.uuid, attempt, session, seconds: now(), contribution };
        let name = transaction_name(&transaction.name, &format!("p-{peer}"));
        if self.create_once(&name, &part.encode())? {
            return Ok(());
        }
        let found = self.known_transaction(&transaction.name)?;
        if found.has_part_of(member) {
            return Ok(());
        }
        let standing = found.own_standing();
        Err(match standing {
            Standing::Aborted(_) | Standing::Skipped(_) => ended(&transaction.name, &standing),
            _ => refused(libc::EALREADY, format!("peer {peer} of transaction {} has finished", transaction.name)),
        })
    }

    /// Ends a peer with its changes. Call [`Container::check_dependencies`] before. May be repeated
    /// after an error.
    pub fn finish_peer(&self, transaction: &Transaction, member: &Membership, moves_group: bool, delta: Delta) -> Result<()> {
        self.put_part(transaction, member, Contribution::Changes { moves_group, delta })
    }

    /// The changes of a part.
    pub fn part_entries(&self, transaction: &Transaction, delta: &Delta) -> Result<Vec<Entry>> {
        match delta {
            Delta::Inline(entries) => Ok(entries.clone()),
            Delta::Extent(extent) => record::decode_delta(&self.read_delta(extent)?, transaction.begin.base),
        }
    }

    /// Aborts a transaction for `reason`, or skips it. `peer`: ended first. Errors: `EALREADY` if
    /// all peers finished.
    pub fn cancel_transaction(&self, name: &str, peer: Option<u32>, skip: bool, reason: &str) -> Result<()> {
        let mut transaction = self.known_transaction(name)?;
        loop {
            let missing = match transaction.own_standing() {
                Standing::Open(missing) => missing,
                Standing::Aborted(_) if !skip => return Ok(()),
                Standing::Skipped(_) if skip => return Ok(()),
                standing => return Err(ended(name, &standing)),
            };
            let first = peer.filter(|peer| missing.contains(peer)).or_else(|| missing.first().copied());
            let Some(first) = first else { return Err(ended(name, &Standing::Complete)) };
            let contribution = if skip { Contribution::Skipped(reason.to_owned()) } else { Contribution::Aborted(reason.to_owned()) };
            match self.put_part(&transaction, &Membership::new(first, 0)?, contribution) {
                // That peer finished meanwhile: another one is ended. Each round ends one.
                Err(Error::Refused { .. }) => transaction = self.known_transaction(name)?,
                done => return done,
            }
        }
    }

    /// Skips a transaction that was not begun, or is open.
    pub fn skip_transaction(&self, name: &str, base: u64, reason: &str) -> Result<()> {
        check_name(name)?;
        let (uuid, label) = (uuid()?, reason.to_owned());
        let begin = Begin { uuid, peers: 1, base, seconds: now(), skipped: true, label, after: Vec::new() };
        match self.create_begin(name, &begin) {
            Err(Error::Refused { errno: libc::EEXIST, .. }) => self.cancel_transaction(name, None, true, reason),
            done => done,
        }
    }

    /// How far a transaction is; looks for the commit record of one whose end is not stored.
    pub fn standing(&self, transaction: &Transaction) -> Result<Standing> {
        match transaction.own_standing() {
            Standing::Complete => Ok(self.find_commit(transaction)?.map_or(Standing::Complete, Standing::Committed)),
            standing => Ok(standing),
        }
    }

    /// The version that a transaction is.
    fn find_commit(&self, transaction: &Transaction) -> Result<Option<u64>> {
        let mut version = transaction.begin.base;
        loop {
            version = version.saturating_add(1);
            let Some((record, _)) = self.read_record(version)? else { return Ok(None) };
            if record.transaction.is_some_and(|t| t.uuid == transaction.begin.uuid) {
                return Ok(Some(version));
            }
        }
    }

    /// Errors: `EAGAIN` if a transaction that this one waits for has not ended; `ECANCELED` if one
    /// of them is aborted.
    pub fn check_dependencies(&self, transaction: &Transaction) -> Result<()> {
        for name in &transaction.begin.after {
            let waits = format!("transaction {} waits for transaction {name}", transaction.name);
            let gone = || refused(libc::ECANCELED, format!("{waits}, whose objects were removed"));
            match self.standing(&self.transaction(name)?.ok_or_else(gone)?)? {
                Standing::Committed(_) | Standing::Skipped(_) => {}
                Standing::Aborted(reason) => return Err(refused(libc::ECANCELED, format!("{waits}, which is aborted: {reason}"))),
                Standing::Open(_) | Standing::Complete => return Err(refused(libc::EAGAIN, format!("{waits}, which has not ended"))),
            }
        }
        Ok(())
    }

    /// Stores what became of a transaction; returns the verdict that counts.
    pub fn end_transaction(&self, transaction: &Transaction, verdict: Verdict) -> Result<Verdict> {
        let name = transaction_name(&transaction.name, "end");
        if self.create_once(&name, &verdict.encode(&transaction.begin.uuid))? {
            return Ok(verdict);
        }
        let stored = self.read_object(&name)?.ok_or_else(|| Error::corrupt("transaction", Address::UNDEF, "its end was removed"))?;
        Ok(Verdict::decode(&stored)?.1)
    }
}
