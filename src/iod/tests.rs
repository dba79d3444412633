//! Commits, races, faults and checkpoints over stores in memory; damaged records.

use super::cell::{Cell, Data, Extent};
use super::checkpoint::Checkpoint;
use super::container::{Container, Outcome};
use super::delta::Entry;
use super::descriptor::Descriptor;
use super::identity::{Identity, is_name};
use super::keys;
use super::node::Node;
use super::ranges::Ranges;
use super::record::{self, Delta, Record};
use super::session::{PackWriter, Session};
use super::snapshot::Snapshot;
use super::transaction::{Begin, Contribution, Joined, PEERS_MAX, Part, Verdict};
use crate::base::Error;
use crate::file::store::ObjectStore;
use crate::file::store::faulty::{Fault, FaultyStore};
use crate::file::store::memory::MemoryStore;
use std::collections::BTreeMap;
use std::io;
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn entry(key: &[u8], value: Option<&[u8]>) -> Entry {
    Entry { key: key.to_vec(), cell: value.map(Cell::inline), ranges: Ranges::whole() }
}

fn created(store: &MemoryStore) -> Container {
    Container::create(Arc::new(store.clone()), vec![entry(b"root", Some(b"1"))]).unwrap();
    Container::open(Arc::new(store.clone())).unwrap()
}

fn commit(container: &Container, session: &Session, snapshot: &mut Snapshot, entries: Vec<Entry>) {
    loop {
        let record = container.record(snapshot, session.number(), false, Delta::Inline(entries.clone())).unwrap();
        match container.append(snapshot, &record).unwrap() {
            Outcome::Committed(hash) => return snapshot.advance(&record, hash, &entries).unwrap(),
            Outcome::Lost => while container.next(snapshot).unwrap().is_some() {},
        }
    }
}

fn all(container: &Container, snapshot: &Snapshot) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let flow = snapshot.scan(container, &(Bound::Unbounded, Bound::Unbounded), &mut |key, cell| {
        found.insert(key.to_vec(), container.bytes(cell)?);
        Ok(ControlFlow::Continue(()))
    });
    assert!(flow.unwrap().is_continue());
    found
}

#[test]
fn every_writer_commits_each_version_once() {
    let store = MemoryStore::default();
    created(&store);
    std::thread::scope(|scope| {
        for writer in 0..8u8 {
            let store = store.clone();
            scope.spawn(move || {
                let container = Container::open(Arc::new(store)).unwrap();
                let mut snapshot = container.snapshot(None).unwrap();
                let session = container.begin_session(&mut snapshot).unwrap();
                for n in 0..20u8 {
                    commit(&container, &session, &mut snapshot, vec![entry(&[writer, n], Some(&[n]))]);
                }
            });
        }
    });
    let container = Container::open(Arc::new(store)).unwrap();
    let snapshot = container.snapshot(None).unwrap();
    assert_eq!(snapshot.version(), 1 + 8 + 8 * 20);
    assert_eq!(all(&container, &snapshot).len(), 1 + 8 * 20);
    let old = container.snapshot(Some(1)).unwrap();
    assert_eq!(all(&container, &old).len(), 1);
    assert!(container.snapshot(Some(10_000)).is_err());
}

#[test]
fn a_lost_reply_is_resolved_and_a_killed_writer_leaves_a_version() {
    for fault in [Fault::Killed, Fault::LostReply] {
        for number in 0.. {
            let store = MemoryStore::default();
            created(&store);
            let faulty = Arc::new(FaultyStore::new(store.clone(), fault, number));
            let run = || {
                let container = Container::open(faulty.clone() as Arc<dyn ObjectStore>)?;
                let mut snapshot = container.snapshot(None)?;
                let session = container.begin_session(&mut snapshot)?;
                let mut packs = PackWriter::new(&container, &session);
                let data = Data::Extent(packs.add(&[7; 10_000])?);
                packs.finish()?;
                let entries = vec![Entry { key: b"big".to_vec(), cell: Some(Cell { mask: 3, data }), ranges: Ranges::whole() }];
                let record = container.record(&snapshot, session.number(), false, Delta::Inline(entries.clone()))?;
                let Outcome::Committed(hash) = container.append(&snapshot, &record)? else { panic!("no other writer") };
                snapshot.advance(&record, hash, &entries)?;
                container.checkpoint(&mut snapshot, &session)
            };
            let done = run();
            let container = Container::open(Arc::new(store)).unwrap();
            let found = all(&container, &container.snapshot(None).unwrap());
            assert!(found.len() == 1 || found[b"big".as_slice()] == [7; 10_000]);
            if fault == Fault::LostReply || !faulty.is_hit() {
                done.unwrap();
                assert_eq!(found.len(), 2);
            }
            if !faulty.is_hit() {
                assert!(number >= 3);
                break;
            }
        }
    }
}

/// A store in memory whose creations of commit records are answered by `answer`, by their number.
struct Answering {
    store: MemoryStore,
    number: AtomicU64,
    answer: fn(&MemoryStore, u64, &str, &[u8]) -> io::Result<bool>,
    settle: fn() -> io::Result<()>,
}

impl ObjectStore for Answering {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.store.get(key, range)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.store.put(key, bytes)
    }

    fn settle(&self) -> io::Result<()> {
        (self.settle)()
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        (self.answer)(&self.store, self.number.fetch_add(1, Ordering::Relaxed), key, bytes)
    }

    fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
        self.store.list_after(prefix, after)
    }

    fn head(&self, key: &str) -> io::Result<Option<u64>> {
        self.store.head(key)
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        self.store.delete(key)
    }
}

/// The outcome of the first record of a writer whose creations are answered so.
fn outcome(
    answer: fn(&MemoryStore, u64, &str, &[u8]) -> io::Result<bool>,
    settle: fn() -> io::Result<()>,
) -> (MemoryStore, crate::base::Result<Outcome>) {
    let store = MemoryStore::default();
    created(&store);
    let answering = Answering { store: store.clone(), number: AtomicU64::new(0), answer, settle };
    let container = Container::open(Arc::new(answering)).unwrap();
    let snapshot = container.snapshot(None).unwrap();
    let record = container.record(&snapshot, 0, false, Delta::Inline(Vec::new())).unwrap();
    let done = container.append(&snapshot, &record);
    (store, done)
}

/// S3 answers 409 to a creation that meets another request, though there is no object.
#[test]
fn a_creation_that_is_refused_without_an_object_is_repeated() {
    let (store, done) = outcome(|store, number, key, bytes| if number == 0 { Ok(false) } else { store.create(key, bytes) }, || Ok(()));
    assert!(matches!(done, Ok(Outcome::Committed(_))), "{done:?}");
    assert_eq!(store.keys().iter().filter(|key| key.starts_with("v/")).count(), 2);
    let (_, done) = outcome(|_, _, _, _| Ok(false), || Ok(()));
    assert!(matches!(done, Err(Error::Corrupt { .. })), "{done:?}");
}

/// A record whose sync failed was read back, and acknowledged.
#[test]
fn a_record_that_is_not_durable_is_not_acknowledged() {
    let lost = |store: &MemoryStore, _, key: &str, bytes: &[u8]| {
        store.create(key, bytes)?;
        Err(io::Error::from_raw_os_error(libc::EIO))
    };
    let (_, done) = outcome(lost, || Err(io::Error::from_raw_os_error(libc::EROFS)));
    assert!(matches!(done, Err(Error::Io { errno: libc::EROFS, .. })), "{done:?}");
    let (_, done) = outcome(lost, || Ok(()));
    assert!(matches!(done, Ok(Outcome::Committed(_))), "{done:?}");
}

/// Each request to a server that does not answer takes the timeout; a creation a third of it.
#[test]
fn few_requests_of_a_commit_are_sent_to_a_server_that_does_not_answer() {
    for number in 0..3 {
        let store = MemoryStore::default();
        created(&store);
        let silent = Arc::new(FaultyStore::new(store, Fault::Silent, i64::MAX));
        let container = Container::open(silent.clone()).unwrap();
        let snapshot = container.snapshot(None).unwrap();
        let record = container.record(&snapshot, 0, false, Delta::Inline(vec![entry(b"k", Some(b"v"))])).unwrap();
        silent.fail_at(number);
        match container.append(&snapshot, &record) {
            Ok(outcome) => assert!(number > 0 && matches!(outcome, Outcome::Committed(_)), "{number}"),
            Err(e) => assert!(matches!(e, Error::Request { errno: libc::ETIMEDOUT, .. }), "{number}: {e}"),
        }
        assert!(silent.since() <= 2, "{number}: {} requests", silent.since());
        silent.fail_at(0);
        let error = container.put_pack(1, 1, b"x").unwrap_err();
        assert_eq!((error.to_string().as_str(), silent.since()), ("cannot write a pack: the server does not answer", 1));
    }
}

/// A creation that was interrupted after version 1 made the place useless.
#[test]
fn an_interrupted_creation_is_ended_by_the_next_one() {
    for number in 0.. {
        let store = MemoryStore::default();
        let faulty = Arc::new(FaultyStore::new(store.clone(), Fault::Killed, number));
        let done = Container::create(faulty.clone(), vec![entry(b"root", Some(b"1"))]);
        if done.is_ok() {
            break;
        }
        let container = created(&store);
        assert_eq!(all(&container, &container.snapshot(None).unwrap()).len(), 1);
        let again = Container::create(Arc::new(store.clone()), vec![entry(b"root", Some(b"2"))]);
        assert!(matches!(again, Err(Error::Refused { errno: libc::EEXIST, .. })), "{again:?}");
    }
}

/// A record that the store replaced is no part of the chain.
#[test]
fn a_replaced_record_is_refused() {
    let store = MemoryStore::default();
    let container = created(&store);
    let mut snapshot = container.snapshot(None).unwrap();
    let other = container.record(&snapshot, 0, false, Delta::Inline(vec![entry(b"other", Some(b"2"))])).unwrap();
    let session = container.begin_session(&mut snapshot).unwrap();
    commit(&container, &session, &mut snapshot, vec![entry(b"k", Some(b"v"))]);
    store.put(&keys::record_name(other.version), &other.encode()).unwrap();
    // It is a record of this version, alone it is sound.
    assert_eq!(container.read_record(other.version).unwrap().unwrap().0, other);
    assert!(matches!(container.snapshot(None), Err(Error::Corrupt { .. })));
}

/// Random changes with checkpoints in between, compared with a map.
#[test]
fn checkpoints_hold_what_was_committed() {
    let store = MemoryStore::default();
    let container = created(&store);
    let mut snapshot = container.snapshot(None).unwrap();
    let session = container.begin_session(&mut snapshot).unwrap();
    let mut model = all(&container, &snapshot);
    let mut state = 5u64;
    let mut next = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for round in 0..40 {
        let mut entries = BTreeMap::new();
        for _ in 0..next(400) {
            let key = [b"k".as_slice(), &(next(5000) as u32).to_be_bytes()].concat();
            let value = (next(4) > 0).then(|| vec![next(256) as u8; next(300) as usize]);
            entries.insert(key.clone(), entry(&key, value.as_deref()));
            match value {
                Some(value) => drop(model.insert(key, value)),
                None => drop(model.remove(&key)),
            }
        }
        commit(&container, &session, &mut snapshot, entries.into_values().collect());
        if round % 7 == 3 {
            container.checkpoint(&mut snapshot, &session).unwrap();
        }
        if round % 5 == 0 {
            assert_eq!(all(&container, &snapshot), model);
            let fresh = Container::open(Arc::new(store.clone())).unwrap();
            let reopened = fresh.snapshot(None).unwrap();
            assert_eq!(all(&fresh, &reopened), model);
            for _ in 0..50 {
                let key = [b"k".as_slice(), &(next(5000) as u32).to_be_bytes()].concat();
                let found = reopened.get(&fresh, &key).unwrap().map(|cell| fresh.bytes(&cell).unwrap());
                assert_eq!(found.as_ref(), model.get(&key));
            }
            let from = [b"k".as_slice(), &2500u32.to_be_bytes()].concat();
            let mut keys = Vec::new();
            let range = (Bound::Excluded(from.clone()), Bound::Unbounded);
            let _ = reopened
                .scan(&fresh, &range, &mut |key, _| {
                    keys.push(key.to_vec());
                    Ok(if keys.len() < 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
                })
                .unwrap();
            let expected: Vec<_> = model.keys().filter(|k| **k > from).take(20).cloned().collect();
            assert_eq!(keys, expected);
        }
    }
    assert!(store.keys().iter().any(|key| key.starts_with("c/")));
}

#[test]
fn a_commit_costs_the_same_in_a_large_container() {
    let cost = |count: u32| {
        let store = MemoryStore::default();
        let container = created(&store);
        let mut snapshot = container.snapshot(None).unwrap();
        let session = container.begin_session(&mut snapshot).unwrap();
        let entries = (0..count).map(|n| entry(&n.to_be_bytes(), Some(b"value"))).collect();
        commit(&container, &session, &mut snapshot, entries);
        container.checkpoint(&mut snapshot, &session).unwrap();
        let before = store.counters();
        commit(&container, &session, &mut snapshot, vec![entry(&7u32.to_be_bytes(), Some(b"other"))]);
        let after = store.counters();
        [after[0] - before[0], after[2] - before[2]]
    };
    let small = cost(1000);
    assert_eq!(small, cost(20_000));
    assert_eq!(small[0], 1, "a small commit is one request");
}

/// Decodes all truncations and all single flipped bits of `bytes`: each must be an error.
fn damaged<T: std::fmt::Debug>(bytes: &[u8], decode: &dyn Fn(&[u8]) -> crate::base::Result<T>) {
    decode(bytes).unwrap();
    for len in 0..bytes.len() {
        decode(&bytes[..len]).unwrap_err();
    }
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        decode(&changed).unwrap_err();
    }
}

#[test]
fn damaged_objects_of_transactions_are_errors() {
    let extent = Extent { session: 1, pack: 2, offset: 3, len: 4, checksum: 5 };
    let uuid = [3; 16];
    let begin = Begin { uuid, peers: 3, base: 9, seconds: 1, skipped: false, label: "host".into(), after: vec!["a-1".into(), "b".into()] };
    assert_eq!(Begin::decode(&begin.encode()).unwrap(), begin);
    damaged(&begin.encode(), &Begin::decode);
    for bad in [
        Begin { peers: 0, ..begin.clone() },
        Begin { peers: PEERS_MAX + 1, ..begin.clone() },
        Begin { after: vec!["A".into()], ..begin.clone() },
        Begin { after: vec!["a".into(); 65], ..begin.clone() },
    ] {
        Begin::decode(&bad.encode()).unwrap_err();
    }
    let joined = Joined { uuid, session: 7, seconds: 8 };
    assert_eq!(Joined::decode(&joined.encode(), 1).unwrap(), joined);
    damaged(&joined.encode(), &|bytes| Joined::decode(bytes, 1));
    let entries = vec![entry(&keys::key(1, keys::LINK, b"name"), Some(b"link"))];
    for contribution in [
        Contribution::Changes { moves_group: true, delta: Delta::Inline(entries) },
        Contribution::Changes { moves_group: false, delta: Delta::Extent(extent) },
        Contribution::Aborted("a reason".into()),
        Contribution::Skipped(String::new()),
    ] {
        let part = Part { uuid, attempt: [5; 16], session: 2, seconds: 6, contribution };
        assert_eq!(Part::decode(&part.encode(), 1).unwrap(), part);
        damaged(&part.encode(), &|bytes| Part::decode(bytes, 1));
    }
    for verdict in [Verdict::Committed(8), Verdict::Refused("a conflict".into())] {
        assert_eq!(Verdict::decode(&verdict.encode(&uuid)).unwrap(), (uuid, verdict.clone()));
        damaged(&verdict.encode(&uuid), &Verdict::decode);
    }
    assert!(is_name("a-1_z") && !is_name("") && !is_name("a/b") && !is_name(&"x".repeat(65)));
    // A long text is cut between characters.
    let long = Verdict::Refused("\u{e9}".repeat(600) + "x");
    let (_, cut) = Verdict::decode(&long.encode(&uuid)).unwrap();
    assert_eq!(cut, Verdict::Refused("\u{e9}".repeat(512)));
}

#[test]
fn damaged_objects_are_errors() {
    let extent = Extent { session: 1, pack: 2, offset: 3, len: 4, checksum: 5 };
    let mut ranges = Ranges::default();
    ranges.add(1..5);
    ranges.add(9..12);
    let cell = Cell { mask: 1, data: Data::Extent(extent) };
    let entries = vec![
        Entry { key: keys::chunk(1, &[2]), cell: Some(cell.clone()), ranges },
        entry(&keys::key(1, keys::LINK, b"name"), Some(b"link")),
        entry(&keys::key(2, keys::LINK, b"gone"), None),
    ];
    for delta in [Delta::Inline(entries.clone()), Delta::Extent(extent)] {
        let (uuid, label) = ([9; 16], b"host".to_vec());
        let transaction = Some(Identity { uuid: [4; 16], name: "t-1".into() });
        let record = Record { version: 7, uuid, previous: 8, session: 1, seconds: 2, moves_group: true, label, transaction, delta };
        assert_eq!(Record::decode(&record.encode(), 7).unwrap(), record);
        assert!(Record::decode(&record.encode(), 8).is_err());
        damaged(&record.encode(), &|bytes| Record::decode(bytes, 7));
    }
    let delta = record::encode_delta(&entries).unwrap();
    assert_eq!(record::decode_delta(&delta, 1).unwrap(), entries);
    for len in 0..delta.len() {
        record::decode_delta(&delta[..len], 1).unwrap_err();
    }
    for root in [None, Some(extent)] {
        let checkpoint = Checkpoint { version: 3, hash: 4, root };
        assert_eq!(Checkpoint::decode(&checkpoint.encode(), 3).unwrap(), checkpoint);
        damaged(&checkpoint.encode(), &|bytes| Checkpoint::decode(bytes, 3));
    }
    let descriptor = Descriptor { uuid: [1; 16], seconds: 2 };
    assert_eq!(Descriptor::decode(&descriptor.encode()).unwrap(), descriptor);
    damaged(&descriptor.encode(), &Descriptor::decode);
    for node in
        [Node::Leaf(vec![(b"a".to_vec(), Cell::inline(b"v")), (b"b".to_vec(), cell)]), Node::Inner(1, vec![(b"a".to_vec(), extent)])]
    {
        assert_eq!(Node::decode(&node.encode(), &extent).unwrap(), node);
        damaged(&node.encode(), &|bytes| Node::decode(bytes, &extent));
    }
}
