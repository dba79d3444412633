//! Commits in doubt: the store did not answer, so their record may be there, or may arrive later.
//!
//! Such a commit fails, and its changes stay in memory for the next commit. All attempts are for
//! the version after the snapshot. When the record of that version is read, its UUID shows whether
//! an attempt in doubt made it.
//!
//! A commit that found no room is not in doubt where the store is near. The packs of the changes
//! that it did not commit stay for the next commit, but for those that nothing refers to any more.

use super::commits::Commits;
use super::image::{Body, Change};
use super::state::State;
use crate::base::{Error, Result};
use crate::iod::rules::Rule;
use crate::iod::{Cell, Data, Entry, Ranges, Record};
use std::collections::BTreeSet;

/// True if a commit that failed may succeed later.
pub(super) fn is_retried(e: &Error) -> bool {
    matches!(e, Error::Io { .. } | Error::Request { .. })
}

/// True if the store has no room.
pub(super) fn is_full(e: &Error) -> bool {
    matches!(e, Error::Io { errno: libc::ENOSPC | libc::EDQUOT, .. })
}

impl State {
    /// Notes that a commit is in doubt: a record may refer to all packs.
    pub(super) fn note_in_doubt(&mut self, record: [u8; 16]) {
        self.in_doubt.push(record);
        self.unpublished.clear();
    }

    /// Notes the pack of a value that was stored.
    pub(super) fn note_pack(&mut self, cell: &Cell) {
        if let Data::Extent(extent) = &cell.data {
            self.unpublished.insert((extent.session, extent.pack));
        }
    }

    /// True if a commit in doubt made `record`.
    pub(super) fn is_in_doubt(&self, record: &Record) -> bool {
        self.container.rules().keep(Rule::InDoubt) && self.in_doubt.contains(&record.uuid)
    }

    /// Rebases the changes on the version of `record`, which a commit in doubt made: drops those
    /// that it committed, keeps those made since.
    pub(super) fn rebase_on_own(&mut self, record: &Record, hash: u64, entries: &[Entry]) -> Result<()> {
        let wanted = entries.iter().map(|entry| self.wanted(entry)).collect::<Result<Vec<_>>>()?;
        self.snapshot.advance(record, hash, entries)?;
        self.unpublished.clear();
        for (entry, wanted) in entries.iter().zip(wanted) {
            match wanted {
                Wanted::Committed => self.forget_change(&entry.key),
                Wanted::Changed => {}
                Wanted::Reverted(body) => self.change(entry.key.clone(), body, Ranges::whole()),
            }
        }
        self.in_doubt.clear();
        Ok(())
    }

    /// What becomes of the change of a committed value.
    fn wanted(&self, entry: &Entry) -> Result<Wanted> {
        let same = |cell: Option<&Cell>| if cell == entry.cell.as_ref() { Wanted::Committed } else { Wanted::Changed };
        Ok(match self.changes.get(&entry.key).map(|change| &change.body) {
            Some(Body::Cell(cell)) => same(Some(cell)),
            Some(Body::Removed) => same(None),
            Some(Body::Dirty(_)) => Wanted::Changed,
            // It was reverted.
            None => match self.snapshot.get(&self.container, &entry.key)? {
                before if before == entry.cell => Wanted::Committed,
                before => Wanted::Reverted(before.map_or(Body::Removed, Body::Cell)),
            },
        })
    }
}

/// What becomes of the change of a value that a commit in doubt had.
enum Wanted {
    /// Dropped: it is committed.
    Committed,
    /// Kept: it was made after the commit.
    Changed,
    /// Replaced: the value was reverted after the commit.
    Reverted(Body),
}

impl Commits {
    /// True if the commit of a version failed with `e` because the store has no room, and its
    /// record does not arrive later.
    pub(super) fn is_without_room(&self, e: &Error, version: u64) -> bool {
        is_full(e) && self.container.store().is_near() && matches!(self.container.read_record(version), Ok(None))
    }

    /// Deletes the packs of changes that were replaced since: the next commit needs their room.
    pub(super) fn free_unused_packs(&self, state: &mut State) {
        if self.joined.is_some() {
            return;
        }
        let used: BTreeSet<(u64, u32)> = state.changes.values().filter_map(pack_of).collect();
        let unused: Vec<(u64, u32)> = state.unpublished.difference(&used).copied().collect();
        for (session, pack) in unused {
            match self.container.delete_pack(session, pack) {
                Ok(()) => drop(state.unpublished.remove(&(session, pack))),
                Err(e) => tracing::debug!("pack {pack} of session {session} stays without use: {e}"),
            }
        }
    }

    /// While a commit is in doubt, checks that the store answers, beside other writers.
    pub(super) fn check_answers(&self) -> Result<()> {
        let state = self.states.shown();
        if state.in_doubt.is_empty() {
            return Ok(());
        }
        let next = state.snapshot.version().saturating_add(1);
        self.container.read_record(next).map(drop)
    }
}

/// The pack that has the value of `change`, with its session.
fn pack_of(change: &Change) -> Option<(u64, u32)> {
    match &change.body {
        Body::Cell(Cell { data: Data::Extent(extent), .. }) => Some((extent.session, extent.pack)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::IodConnector;
    use super::super::check_tests::{checked, details};
    use super::super::tests::{bytes, empty, open, open_with, shown, spec};
    use super::*;
    use crate::connector::edit::Edit;
    use crate::connector::{Connector, LinkTarget, ObjectId};
    use crate::file::store::ObjectStore;
    use crate::file::store::faulty::{Fault, FaultyStore};
    use crate::file::store::memory::MemoryStore;
    use crate::iod::keys;
    use crate::iod::rules::Rules;
    use std::sync::Arc;

    fn names(c: &IodConnector) -> Vec<String> {
        shown(c).into_keys().collect()
    }

    fn object(c: &IodConnector, name: &[u8]) -> ObjectId {
        match c.lookup(c.root(), name).unwrap().unwrap().target {
            LinkTarget::Hard(id) => id,
            other => panic!("{other:?}"),
        }
    }

    fn failed(done: &Result<()>) -> bool {
        matches!(done, Err(Error::Io { .. }))
    }

    fn versions(store: &MemoryStore) -> usize {
        store.keys().iter().filter(|key| key.starts_with(keys::RECORDS)).count()
    }

    /// A container with `old`, open over a store that will fail.
    fn opened(fault: Fault) -> (MemoryStore, Arc<FaultyStore>, Arc<IodConnector>, ObjectId) {
        opened_with(fault, Rules::default())
    }

    fn opened_with(fault: Fault, rules: Rules) -> (MemoryStore, Arc<FaultyStore>, Arc<IodConnector>, ObjectId) {
        let store = empty();
        let first = open(&store);
        first.create_dataset(first.root(), b"old", &spec("u1", &[4])).unwrap();
        first.close().unwrap();
        let faulty = Arc::new(FaultyStore::new(store.clone(), fault, i64::MAX));
        let c = open_with(faulty.clone() as Arc<dyn ObjectStore>, None, rules).unwrap();
        let old = object(&c, b"old");
        (store, faulty, c, old)
    }

    /// The reply is lost, or the request: in both cases the commit fails, and the next one commits
    /// what there is then, once.
    #[test]
    fn changes_stay_until_the_store_answers() {
        for fault in [Fault::Killed, Fault::Outage] {
            let (store, faulty, c, old) = opened(fault);
            c.write(old, 0, b"abcd").unwrap();
            let new = c.create_dataset(c.root(), b"new", &spec("u1", &[4])).unwrap();
            c.create_dataset(c.root(), b"gone", &spec("u1", &[4])).unwrap();
            c.write(new, 0, b"wxyz").unwrap();
            let before = versions(&store);
            faulty.fail_at(0);
            assert!(failed(&c.commit()));
            assert!(failed(&c.commit()), "the store is still not there");
            assert_eq!(versions(&store) - before, usize::from(fault == Fault::Outage), "{fault:?}");
            // Changes are possible meanwhile, and all are shown.
            c.write(new, 1, b"--").unwrap();
            c.unlink(c.root(), b"gone", false).unwrap();
            c.create_dataset(c.root(), b"later", &spec("u1", &[2])).unwrap();
            assert_eq!((bytes(&*c, old), bytes(&*c, new)), (b"abcd".to_vec(), b"w--z".to_vec()));
            faulty.heal();
            c.commit().unwrap();
            assert_eq!(versions(&store) - before, 1 + usize::from(fault == Fault::Outage), "{fault:?}");
            let reader = open(&store);
            let at = |name: &[u8]| bytes(&*reader, object(&reader, name));
            assert_eq!((at(b"old"), at(b"new")), (b"abcd".to_vec(), b"w--z".to_vec()), "{fault:?}");
            assert_eq!(names(&reader), ["/later", "/new", "/old"], "{fault:?}");
            c.write(old, 0, b"1234").unwrap();
            c.close().unwrap();
            assert_eq!(details(&checked(&store, true).unwrap()), Vec::<String>::new());
        }
    }

    /// The user reverts the changes of a commit in doubt before the next commit.
    #[test]
    fn a_record_that_arrives_late_does_not_bring_back_what_was_removed() {
        for fault in [Fault::Outage, Fault::Killed] {
            let (store, faulty, c, _) = opened(fault);
            c.create_dataset(c.root(), b"gone", &spec("u1", &[4])).unwrap();
            faulty.fail_at(0);
            assert!(failed(&c.commit()));
            faulty.heal();
            c.unlink(c.root(), b"gone", false).unwrap();
            let before = versions(&store);
            c.commit().unwrap();
            // Without the record, an empty one takes its version.
            assert_eq!((versions(&store), names(&open(&store))), (before + 1, vec!["/old".to_owned()]), "{fault:?}");
        }
    }

    /// Regression: a read that failed in the middle of a merge left it half done. The next commit
    /// overwrote bytes of the other writer, or counted links twice.
    #[test]
    fn a_merge_without_an_answer_is_repeated_as_a_whole() {
        for number in 0.. {
            let (store, faulty, c, old) = opened(Fault::Unreadable);
            let long = c.create_dataset(c.root(), b"long", &spec("u1", &[20_000])).unwrap();
            c.write(long, 0, &[0; 20_000]).unwrap();
            c.commit().unwrap();
            c.write(long, 0, &[1; 5000]).unwrap();
            c.link(c.root(), b"ours", old).unwrap();
            let other = open(&store);
            other.write(object(&other, b"long"), 10_000, &[2; 10_000]).unwrap();
            other.link(other.root(), b"theirs", object(&other, b"old")).unwrap();
            other.close().unwrap();
            c.env.forget_decoded();
            faulty.fail_at(number);
            let done = c.commit();
            let hit = faulty.is_hit();
            assert_eq!(failed(&done), hit, "{number}: {done:?}");
            faulty.heal();
            c.commit().unwrap();
            let reader = open(&store);
            let merged = [vec![1; 5000], vec![0; 5000], vec![2; 10_000]].concat();
            assert_eq!(bytes(&*reader, object(&reader, b"long")), merged, "read {number}");
            assert_eq!(reader.info(object(&reader, b"old")).unwrap().links, 3, "read {number}");
            if !hit {
                assert!(number > 3, "{number} reads");
                break;
            }
        }
    }

    /// Without the rule, the record of the writer is taken for that of a rival.
    #[test]
    fn the_rule_is_needed() {
        let commit_again = |rules| {
            let (_, faulty, c, old) = opened_with(Fault::Outage, rules);
            c.write(old, 0, b"abcd").unwrap();
            faulty.fail_at(0);
            assert!(failed(&c.commit()));
            faulty.heal();
            c.commit().is_ok()
        };
        assert!(commit_again(Rules::default()) && !commit_again(Rules::breaking(Some(Rule::InDoubt))));
    }

    /// Regression: each attempt on a full store left the packs that it could store, so there was
    /// never room again.
    #[test]
    fn attempts_on_a_full_store_leave_no_packs() {
        const LEN: u64 = 40 << 20;
        let (store, faulty, c, _) = opened(Fault::Full);
        let long = c.create_dataset(c.root(), b"long", &spec("u1", &[LEN])).unwrap();
        let before = store.bytes();
        faulty.fail_at((before + LEN / 2) as i64);
        let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
        // Chunks may be stored before the commit.
        let is_full = |done: &Result<()>| matches!(done, Err(Error::Io { errno: libc::ENOSPC, .. }));
        for (number, piece) in data.chunks(1 << 20).enumerate() {
            let written = c.write(long, (number as u64) << 20, piece);
            assert!(written.is_ok() || is_full(&written), "{written:?}");
        }
        for _ in 0..5 {
            assert!(is_full(&c.commit()));
        }
        assert!(store.bytes() <= before + LEN / 2, "{} bytes", store.bytes());
        let packs = store.bytes();
        assert!(is_full(&c.commit()));
        assert_eq!(store.bytes(), packs, "an attempt leaves nothing");
        faulty.fail_at((before + LEN + (1 << 20)) as i64);
        c.commit().unwrap();
        faulty.heal();
        // Some writes may have been refused.
        for (number, piece) in data.chunks(1 << 20).enumerate() {
            c.write(long, (number as u64) << 20, piece).unwrap();
        }
        c.close().unwrap();
        let reader = open(&store);
        assert!(bytes(&*reader, object(&reader, b"long")) == data);
        assert_eq!(details(&checked(&store, true).unwrap()), Vec::<String>::new());
    }

    /// Regression: packs without a record filled the store when the values in them were gone.
    #[test]
    fn packs_of_values_that_are_gone_make_room_for_the_record() {
        let (store, faulty, c, _) = opened(Fault::Full);
        let before = store.bytes();
        let fill = |name: &[u8]| {
            let d = c.create_dataset(c.root(), name, &spec("u1", &[1 << 20])).unwrap();
            c.write(d, 0, &vec![7; 1 << 20]).unwrap();
        };
        fill(b"a");
        faulty.fail_at((before + (1 << 20) + 16) as i64);
        let done = c.commit();
        assert!(matches!(done, Err(Error::Io { operation: "commit", errno: libc::ENOSPC, .. })), "{done:?}");
        assert!(store.bytes() >= before + (1 << 20), "the pack has room, its record has none");
        c.unlink(c.root(), b"a", false).unwrap();
        c.create_group(c.root(), b"g").unwrap();
        assert!(failed(&c.commit()));
        assert_eq!(store.bytes(), before);
        c.commit().unwrap();
        fill(b"b");
        assert!(failed(&c.commit()));
        faulty.fail_at((before + (3 << 20)) as i64);
        c.close().unwrap();
        let reader = open(&store);
        assert_eq!(
            (names(&reader), bytes(&*reader, object(&reader, b"b"))),
            (vec!["/b".into(), "/g".into(), "/old".into()], vec![7; 1 << 20])
        );
        assert_eq!(details(&checked(&store, true).unwrap()), Vec::<String>::new());
    }

    /// Others commit while the store does not answer this writer.
    #[test]
    fn changes_without_an_answer_merge_with_those_of_others() {
        for fault in [Fault::Killed, Fault::Outage] {
            let (store, faulty, c, old) = opened(fault);
            c.write(old, 0, b"ab").unwrap();
            faulty.fail_at(0);
            assert!(failed(&c.commit()));
            let other = open(&store);
            other.write(object(&other, b"old"), 2, b"yz").unwrap();
            other.create_dataset(other.root(), b"theirs", &spec("u1", &[1])).unwrap();
            other.close().unwrap();
            faulty.heal();
            c.create_dataset(c.root(), b"ours", &spec("u1", &[1])).unwrap();
            c.close().unwrap();
            let reader = open(&store);
            assert_eq!(bytes(&*reader, object(&reader, b"old")), b"abyz", "{fault:?}");
            assert_eq!(names(&reader), ["/old", "/ours", "/theirs"], "{fault:?}");
        }
    }
}
