//! Transactions: the changes of a mount are the part of one peer, all parts together one version.
//!
//! A peer shows the base version and its own part. The last peer that finishes commits: it merges
//! the parts as commits are merged, in a state of its own, so that an error changes nothing here
//! and any writer comes to the same record.

use super::access::IodConnector;
use super::commit::{entries, session};
use super::commits::Commits;
use super::image::{Body, Changes};
use super::peer::Peer;
use super::state::State;
use crate::base::{Error, Result};
use crate::connector::Connector;
use crate::connector::transactions::{Base, Ending, TransactionSpec, Transactions, TreeUse};
use crate::dataset::environment::Environment;
use crate::iod::merge::Merged;
use crate::iod::record::Delta;
use crate::iod::transaction::{Contribution, Verdict};
use crate::iod::transactions::ended;
use crate::iod::{Container, Entry, Key, NewTransaction, Outcome, Ranges, Record, Session, Snapshot, Standing, Transaction};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of the newest version.
fn newest(container: &Container) -> Result<u64> {
    Ok(container.snapshot(None)?.version())
}

/// Begins a transaction.
fn begin(container: &Container, spec: &TransactionSpec) -> Result<()> {
    let base = match spec.base.unwrap_or_default() {
        Base::Last => newest(container)?,
        Base::Next => newest(container)?.saturating_add(1),
        Base::Exact(version) => match container.read_record(version)? {
            Some(_) => version,
            None => return Err(Error::refused(libc::ENOENT, format!("the container has no version {version}"))),
        },
    };
    let (name, after, peers) = (spec.name.clone(), spec.after.clone(), spec.peers.unwrap_or(1));
    container.begin_transaction(&NewTransaction { name, peers, base, after })
}

/// The transaction of a new peer, begun if there is none of its name.
fn begun(container: &Container, spec: &TransactionSpec) -> Result<Transaction> {
    let name = &spec.name;
    let found = match container.transaction(name)? {
        Some(found) => found,
        None => match begin(container, spec) {
            // Another peer began it meanwhile.
            Err(Error::Refused { errno: libc::EEXIST, .. }) => container.known_transaction(name)?,
            done => done.and_then(|()| container.known_transaction(name))?,
        },
    };
    let other = |what: String| Err(Error::refused(libc::EINVAL, format!("transaction {name} was begun with {what}; leave it out")));
    match (spec.peers, spec.base) {
        (Some(peers), _) if peers.max(1) != found.begin.peers => other(format!("{} peers", found.begin.peers)),
        (_, Some(Base::Exact(base))) if base != found.begin.base => other(format!("version {}", found.begin.base)),
        _ if !spec.after.is_empty() && spec.after != found.begin.after => other("other transactions that it waits for".into()),
        _ => Ok(found),
    }
}

/// The version that the peers of a transaction see.
pub(super) fn base_snapshot(container: &Arc<Container>, transaction: &Transaction) -> Result<Snapshot> {
    let base = transaction.begin.base;
    container.snapshot(Some(base)).map_err(|e| match e {
        Error::Refused { errno: libc::ENOENT, .. } => {
            let reason = format!("transaction {} sees version {base}, which is not committed yet; try again", transaction.name);
            Error::refused(libc::EAGAIN, reason)
        }
        e => e,
    })
}

/// Opens a container as a peer of a transaction; returns it and the time of the version it shows.
pub(super) fn open_peer(
    container: Arc<Container>,
    spec: &TransactionSpec,
    peer: Option<u32>,
    env: Arc<Environment>,
) -> Result<(Arc<IodConnector>, u64)> {
    let transaction = begun(&container, spec)?;
    let snapshot = base_snapshot(&container, &transaction)?;
    let seconds = container.read_record(snapshot.version())?.map_or(0, |(record, _)| record.seconds);
    let session = Commits::first_session(&container, &mut container.snapshot(None)?)?;
    let member = container.join_transaction(&transaction, session.number(), peer)?;
    let joined = Peer::joined(transaction.name, member);
    let state = State::new(container.clone(), snapshot, Some(session));
    let connector = IodConnector::of_peer(container, state, true, env, Some(joined));
    connector.pins.keep_base(&connector.states.shown())?;
    Ok((connector, seconds))
}

impl Commits {
    /// Errors: the part of this peer is finished.
    pub(super) fn check_unfinished(&self) -> Result<()> {
        match &self.joined {
            Some(peer) if peer.is_finished.load(Ordering::Acquire) => {
                let reason = format!("the part of this mount in transaction {} has ended; mount again to change more", peer.name);
                Err(Error::refused(libc::EROFS, reason))
            }
            _ => Ok(()),
        }
    }

    /// Adds the part of a peer to the changes, which are those of other peers; returns a conflict
    /// as a sentence.
    fn combine(&self, state: &mut State, transaction: &Transaction, peer: u32, moves_group: bool, delta: &Delta) -> Result<Option<String>> {
        let part = self.container.part_entries(transaction, delta)?;
        let label = format!("peer {peer}").into_bytes();
        let (uuid, version) = (transaction.begin.uuid, transaction.begin.base);
        let record = Record {
            version,
            uuid,
            previous: 0,
            session: 0,
            seconds: 0,
            moves_group,
            label,
            transaction: None,
            delta: Delta::Inline(vec![]),
        };
        let Merged { chunks, values } = match self.merge_entries(state, &record, &part)? {
            Ok(merged) => merged,
            Err(conflict) => return Ok(Some(self.conflict_text(state, &conflict, &format!("peer {peer}")))),
        };
        let merged = |key: Key| self.objects.merged_chunk(state, &key, &part).map(|image| (key, image));
        let mut images = chunks.into_iter().map(merged).collect::<Result<BTreeMap<_, _>>>()?;
        values.into_iter().for_each(|(key, cell)| state.change(key, Body::Cell(cell), Ranges::whole()));
        for Entry { key, cell, ranges } in part {
            match images.remove(&key) {
                Some(image) => {
                    let written = united(state.written(&key), &ranges);
                    state.put_chunk(key, image, written);
                }
                // Other values that both changed are merged already.
                None if state.changes.contains_key(&key) => {}
                None => state.change(key, cell.map_or(Body::Removed, Body::Cell), ranges),
            }
        }
        state.moves_group |= moves_group;
        state.all_changed();
        Ok(None)
    }
}

impl IodConnector {
    /// Ends a peer without finishing it. Errors: it has changes, and the transaction is open.
    pub(super) fn leave(&self, state: &State) -> Result<()> {
        let Some((peer, member)) = self.joined.as_ref().and_then(|peer| Some((peer, peer.member()?))) else { return Ok(()) };
        let has_ended = || matches!(self.container.known_transaction(&peer.name), Ok(t) if !matches!(t.own_standing(), Standing::Open(_)));
        if peer.is_finished.load(Ordering::Acquire) || has_ended() {
            return Ok(());
        }
        if let Err(e) = self.container.leave_transaction(&peer.name, member) {
            tracing::debug!("the place of peer {} in transaction {} stays taken: {e}", member.peer, peer.name);
        }
        if state.changes.is_empty() {
            return Ok(());
        }
        let (name, number) = (&peer.name, member.peer);
        let reason = format!("peer {number} of transaction {name} was not finished: its changes are dropped, and its place is free");
        Err(Error::refused(libc::EIO, reason))
    }

    /// The changes of this peer, without objects that have no names: no other mount could delete
    /// those later.
    fn part(&self, state: &mut State) -> Result<Delta> {
        state.begin();
        let part = state.delete_nameless().and_then(|()| self.commits.delta(session(state)?, &entries(state)));
        state.end(false);
        part
    }

    /// Stores the part of this peer; the last one commits.
    fn finish_peer(&self, peer: &Peer) -> Result<()> {
        if let Err(e) = self.values.store_ahead() {
            tracing::debug!("finishing stores the chunks: {e}");
        }
        let mut state = self.states.next();
        self.join(&mut state)?;
        let Some(member) = peer.member() else { return Err(Error::refused(libc::EBUSY, "the mount is no peer")) };
        let transaction = self.container.known_transaction(&peer.name)?;
        if !transaction.has_part_of(member) {
            match transaction.own_standing() {
                Standing::Open(missing) if missing.contains(&member.peer) => {}
                Standing::Open(_) => {
                    let reason = format!("another mount finished peer {} of transaction {}", member.peer, peer.name);
                    return Err(Error::refused(libc::EALREADY, reason));
                }
                standing => return Err(ended(&peer.name, &standing)),
            }
            self.container.check_dependencies(&transaction)?;
            if !peer.is_finished.load(Ordering::Acquire) {
                self.objects.lead(&mut state)?;
            }
            self.values.store(&mut state)?;
            let delta = self.part(&mut state)?;
            // After an error it is not known whether the part is stored: it stays as it is.
            peer.is_finished.store(true, Ordering::Release);
            self.container.finish_peer(&transaction, member, state.moves_group, delta)?;
        }
        self.complete(&mut state, &peer.name)
    }

    /// Commits a transaction whose peers all finished.
    fn complete(&self, state: &mut State, name: &str) -> Result<()> {
        let transaction = self.container.known_transaction(name)?;
        if transaction.verdict.is_some() || transaction.own_standing() != Standing::Complete {
            return match transaction.own_standing() {
                Standing::Open(_) | Standing::Committed(_) => Ok(()),
                standing => Err(ended(name, &standing)),
            };
        }
        let session = match &state.session {
            Some(session) => session.clone(),
            None => Arc::new(Commits::first_session(&self.container, &mut self.container.snapshot(None)?)?),
        };
        let (verdict, snapshot) = publish(&self.container, &self.env, &transaction, session)?;
        match self.container.end_transaction(&transaction, verdict)? {
            Verdict::Committed(version) => {
                tracing::info!("transaction {name} is version {version}");
                if self.joined.as_ref().is_some_and(|peer| peer.name == name) {
                    // Objects without names that are open are nowhere else.
                    if !state.has_nameless() {
                        state.changes = Changes::new_sync();
                        (state.dirty_bytes, state.moves_group, state.snapshot) = (0, false, snapshot);
                        state.all_changed();
                    }
                    self.end_peer();
                }
                Ok(())
            }
            Verdict::Refused(reason) => Err(ended(name, &Standing::Aborted(reason))),
        }
    }
}

/// The bytes of a chunk that either of two peers wrote.
fn united(mut ours: Ranges, theirs: &Ranges) -> Ranges {
    if theirs.is_whole() {
        return Ranges::whole();
    }
    theirs.list().iter().for_each(|(start, end)| ours.add(u64::from(*start)..u64::from(*end)));
    ours
}

/// Merges the parts of a transaction and commits them; returns what became of it, and the version
/// that it made. All writers come to the same verdict: the parts and the versions in order decide.
fn publish(
    container: &Arc<Container>,
    env: &Arc<Environment>,
    transaction: &Transaction,
    session: Arc<Session>,
) -> Result<(Verdict, Snapshot)> {
    let mut state = State::new(container.clone(), container.snapshot(Some(transaction.begin.base))?, None);
    state.session = Some(session);
    let scratch = IodConnector::new(container.clone(), state, true, env.clone());
    // The session may have packs of other changes: the commit does not settle them.
    let _storing = scratch.values.stop();
    let mut state = scratch.states.next();
    let refused = |reason: String, state: &State| {
        tracing::error!("transaction {} is refused: {reason}", transaction.name);
        Ok((Verdict::Refused(reason), state.snapshot.clone()))
    };
    for (peer, part) in &transaction.parts {
        let Contribution::Changes { moves_group, delta } = &part.contribution else { continue };
        if let Some(reason) = scratch.commits.combine(&mut state, transaction, *peer, *moves_group, delta)? {
            return refused(reason, &state);
        }
    }
    loop {
        while let Some((record, hash)) = container.read_record(state.snapshot.version().saturating_add(1))? {
            let entries = container.entries(&record)?;
            if record.transaction.as_ref().is_some_and(|t| t.uuid == transaction.begin.uuid) {
                state.snapshot.advance(&record, hash, &entries)?;
                return Ok((Verdict::Committed(record.version), state.snapshot.clone()));
            }
            if let Some(reason) = scratch.commits.merge_record(&mut state, &record, hash, &entries)? {
                return refused(reason, &state);
            }
        }
        scratch.values.store(&mut state)?;
        let entries = entries(&state);
        let mut record = scratch.commits.new_record(&state, &entries)?;
        record.transaction = Some(transaction.identity());
        record.label = format!("transaction {}, {}", transaction.name, String::from_utf8_lossy(&record.label)).into_bytes();
        if let Outcome::Committed(hash) = container.append(&state.snapshot, &record)? {
            scratch.commits.committed(&mut state, &record, hash, &entries)?;
            return Ok((Verdict::Committed(record.version), state.snapshot.clone()));
        }
    }
}

/// Numbers, divided by spaces.
fn numbers<'a>(all: impl Iterator<Item = &'a u32>) -> String {
    let texts: Vec<String> = all.map(u32::to_string).collect();
    if texts.is_empty() { "none".into() } else { texts.join(" ") }
}

impl Transactions for IodConnector {
    fn names(&self) -> Result<Vec<String>> {
        self.container.transaction_names()
    }

    fn status(&self, name: &str) -> Result<Option<String>> {
        let Some(transaction) = self.container.transaction(name)? else { return Ok(None) };
        let (begin, mut text) = (&transaction.begin, String::new());
        let (state, detail) = match self.container.standing(&transaction)? {
            Standing::Open(_) => ("open", None),
            Standing::Complete => ("complete", Some(("reason", "all peers finished, and it is not committed yet".to_owned()))),
            Standing::Committed(version) => ("committed", Some(("version", version.to_string()))),
            Standing::Aborted(reason) => ("aborted", Some(("reason", reason))),
            Standing::Skipped(reason) => ("skipped", Some(("reason", reason))),
        };
        let after = if begin.after.is_empty() { "none".to_owned() } else { begin.after.join(" ") };
        let mut lines = vec![("name", name.to_owned()), ("state", state.to_owned())];
        lines.extend(detail);
        lines.extend([("base", begin.base.to_string()), ("peers", begin.peers.to_string())]);
        lines.push(("joined", numbers(transaction.joined.keys())));
        lines.push(("finished", numbers(transaction.parts.keys())));
        lines.extend([("after", after), ("label", begin.label.clone())]);
        let tree = self.opened_tree(name);
        let peer = tree.as_ref().and_then(|tree| tree.joined.as_ref()).or(self.joined.as_ref());
        if let Some(member) = peer.filter(|peer| peer.name == name).and_then(|peer| peer.member()) {
            lines.push(("this_peer", member.peer.to_string()));
        }
        for (name, value) in lines {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name} {}", crate::base::escape::line(&value));
        }
        Ok(Some(text))
    }

    fn contains(&self, name: &str) -> Result<bool> {
        Ok(self.known_use(name) == TreeUse::Joined || self.container.transaction(name)?.is_some())
    }

    fn has_tree(&self, name: &str) -> Result<bool> {
        self.shows_tree(name)
    }

    fn tree_use(&self, name: &str) -> TreeUse {
        self.known_use(name)
    }

    fn look_at_tree(&self, name: &str) -> Result<TreeUse> {
        self.use_of_tree(name)
    }

    fn tree(&self, name: &str) -> Result<Arc<dyn Connector>> {
        Ok(self.open_tree(name)?)
    }

    fn begin(&self, spec: &TransactionSpec) -> Result<()> {
        begin(&self.container, spec)
    }

    fn end(&self, name: &str, ending: Ending) -> Result<()> {
        let tree = self.opened_tree(name);
        let ended = tree.as_deref().unwrap_or(self).end_here(name, ending);
        if ended.is_err() && tree.is_some() {
            // It may have ended elsewhere.
            let _ = self.use_of_tree(name);
        }
        ended?;
        // What was published is shown, or is when the next request finds it.
        if let Err(e) = self.advance_if_clean() {
            tracing::debug!("the version of transaction {name} is not shown yet: {e}");
        }
        Ok(())
    }
}

impl IodConnector {
    /// Ends a transaction, or the part of the peer that this is.
    fn end_here(&self, name: &str, ending: Ending) -> Result<()> {
        let peer = self.joined.as_ref().filter(|peer| peer.name == name);
        let by = format!("process {}", std::process::id());
        match (ending, peer) {
            (Ending::Finish, Some(peer)) if self.is_or_becomes(peer)? => self.finish_peer(peer),
            (Ending::Finish, _) => {
                let transaction = self.container.known_transaction(name)?;
                if let Standing::Open(missing) = transaction.own_standing() {
                    let missing = numbers(missing.iter());
                    let reason = format!("peers {missing} of transaction {name} have not finished; finish them where they are mounted");
                    return Err(Error::refused(libc::EAGAIN, reason));
                }
                self.complete(&mut self.states.next(), name)
            }
            (Ending::Abort, _) => {
                let number = peer.and_then(|peer| peer.member()).map(|member| member.peer);
                self.container.cancel_transaction(name, number, false, &format!("aborted by {by}"))
            }
            (Ending::Skip, _) => self.container.skip_transaction(name, newest(&self.container)?, &format!("skipped by {by}")),
        }?;
        if peer.is_some() && ending != Ending::Finish {
            self.end_peer();
        }
        Ok(())
    }
}
