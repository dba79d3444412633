//! Transactions over stores in memory: peers in threads, faults at each request, conflicts.

use super::access::IodConnector;
use super::commit::{entries, session};
use super::kind::root_entries;
use super::state::State;
use super::tests::environment;
use super::transaction::open_peer;
use crate::base::{Error, Result};
use crate::connector::edit::{Edit, Taken};
use crate::connector::transactions::{Base, Ending, TransactionSpec, Transactions};
use crate::connector::{Connector, Form, LinkTarget, ObjectId};
use crate::file::store::ObjectStore;
use crate::file::store::faulty::{Fault, FaultyStore};
use crate::file::store::memory::MemoryStore;
use crate::iod::pin::Pin;
use crate::iod::{Container, Standing, gc, keys};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Barrier};

/// A container with the file `shared` of 1000 bytes.
fn store() -> MemoryStore {
    let store = MemoryStore::default();
    Container::create(Arc::new(store.clone()), root_entries()).unwrap();
    let c = writer(&store);
    put(&c, b"shared", 0, &[b'-'; 1000]);
    c.commit().unwrap();
    store
}

fn writer(store: &MemoryStore) -> Arc<IodConnector> {
    let container = Arc::new(Container::open(Arc::new(store.clone())).unwrap());
    let mut snapshot = container.snapshot(None).unwrap();
    let session = container.begin_session(&mut snapshot).unwrap();
    let state = State::new(container.clone(), snapshot, Some(session));
    IodConnector::new(container, state, true, environment())
}

fn reader(store: &MemoryStore) -> Arc<IodConnector> {
    let container = Arc::new(Container::open(Arc::new(store.clone())).unwrap());
    let state = State::new(container.clone(), container.snapshot(None).unwrap(), None);
    IodConnector::new(container, state, false, environment())
}

fn spec(name: &str, peers: u32) -> TransactionSpec {
    TransactionSpec { name: name.into(), peers: Some(peers), ..TransactionSpec::default() }
}

fn open(store: Arc<dyn ObjectStore>, spec: &TransactionSpec, peer: Option<u32>) -> Result<Arc<IodConnector>> {
    open_peer(Arc::new(Container::open(store)?), spec, peer, environment()).map(|(connector, _)| connector)
}

fn peer(store: &MemoryStore, name: &str, peers: u32) -> Arc<IodConnector> {
    open(Arc::new(store.clone()), &spec(name, peers), None).unwrap()
}

fn child(c: &IodConnector, name: &[u8]) -> Option<ObjectId> {
    match c.lookup(c.root(), name).unwrap()?.target {
        LinkTarget::Hard(id) => Some(id),
        _ => None,
    }
}

fn put(c: &IodConnector, name: &[u8], offset: u64, bytes: &[u8]) {
    let id = child(c, name).unwrap_or_else(|| c.create_file(c.root(), name).unwrap());
    c.write(id, offset, bytes).unwrap();
}

fn get(c: &IodConnector, name: &[u8]) -> Vec<u8> {
    let content = c.content(child(c, name).unwrap(), Form::Main).unwrap();
    let mut all = vec![0; content.size().unwrap() as usize];
    content.read(0, &mut all).unwrap();
    all
}

fn names(c: &IodConnector) -> Vec<String> {
    let mut all = Vec::new();
    c.list(c.root(), 0, &mut |link, _| {
        all.push(String::from_utf8(link.name).unwrap());
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

fn errno<T>(result: &Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(Error::Refused { errno, .. }) => *errno,
        Err(_) => -1,
    }
}

fn standing(store: &MemoryStore, name: &str) -> Standing {
    let container = Container::open(Arc::new(store.clone())).unwrap();
    let transaction = container.known_transaction(name).unwrap();
    container.standing(&transaction).unwrap()
}

/// Versions that publish the transaction.
fn published(store: &MemoryStore, name: &str) -> Vec<u64> {
    let container = Container::open(Arc::new(store.clone())).unwrap();
    let newest = container.snapshot(None).unwrap().version();
    let publishes = |version: &u64| container.read_record(*version).unwrap().unwrap().0.transaction.is_some_and(|t| t.name == name);
    (1..=newest).filter(publishes).collect()
}

#[test]
fn parts_of_peers_become_one_version() {
    let store = store();
    let (a, b) = (peer(&store, "t", 2), peer(&store, "t", 2));
    let other = writer(&store);
    put(&a, b"shared", 0, &[b'a'; 300]);
    put(&b, b"shared", 600, &[b'b'; 300]);
    put(&a, b"of-a", 0, b"A");
    put(&b, b"of-b", 0, &[7; 100_000]);
    // Another name of one object from each peer: link counts add up.
    for (c, name) in [(&a, b"link-a"), (&b, b"link-b")] {
        c.link(c.root(), name, child(c, b"shared").unwrap()).unwrap();
    }
    a.commit().unwrap();
    b.commit().unwrap();
    put(&other, b"other", 0, b"O");
    put(&other, b"shared", 400, &[b'o'; 10]);
    other.commit().unwrap();
    assert_eq!(names(&reader(&store)), ["other", "shared"]);
    a.end("t", Ending::Finish).unwrap();
    assert_eq!(standing(&store, "t"), Standing::Open(vec![2]));
    assert_eq!(names(&reader(&store)), ["other", "shared"]);
    assert_eq!(errno(&a.create_file(a.root(), b"late")), libc::EROFS);
    assert_eq!(names(&a), ["link-a", "of-a", "shared"], "it still shows its part");
    b.end("t", Ending::Finish).unwrap();
    a.end("t", Ending::Finish).unwrap();
    let found = reader(&store);
    assert_eq!(names(&found), ["link-a", "link-b", "of-a", "of-b", "other", "shared"]);
    assert_eq!(names(&b), names(&found));
    let want = [[b'a'; 300].as_slice(), &[b'-'; 100], &[b'o'; 10], &[b'-'; 190], &[b'b'; 300], &[b'-'; 100]].concat();
    assert_eq!((get(&found, b"shared"), get(&found, b"of-b")), (want, vec![7; 100_000]));
    assert_eq!(found.info(child(&found, b"shared").unwrap()).unwrap().links, 3);
    let versions = published(&store, "t");
    assert_eq!((versions.len(), standing(&store, "t")), (1, Standing::Committed(versions[0])));
    let status = found.status("t").unwrap().unwrap();
    assert!(status.contains("state committed\n") && status.contains("finished 1 2\n"), "{status}");
    a.close().unwrap();
}

/// All peers finish at once: several see that they are the last.
#[test]
fn concurrent_peers_commit_once() {
    for round in 0..4 {
        let (store, peers) = (store(), 8);
        let barrier = Barrier::new(peers as usize);
        std::thread::scope(|scope| {
            for _ in 0..peers {
                scope.spawn(|| {
                    let c = peer(&store, "t", peers);
                    let number = c.status("t").unwrap().unwrap().lines().last().unwrap().to_owned();
                    put(&c, number.as_bytes(), 0, b"x");
                    barrier.wait();
                    c.end("t", Ending::Finish).unwrap();
                });
            }
        });
        let found = names(&reader(&store));
        assert_eq!(found.len(), 1 + peers as usize, "{round}: {found:?}");
        assert_eq!(published(&store, "t").len(), 1);
        assert!(matches!(standing(&store, "t"), Standing::Committed(_)));
    }
}

/// The last peer is killed at each of its requests, or loses a reply: nothing or all is visible,
/// and others end the transaction.
#[test]
fn a_last_peer_that_fails_commits_all_or_nothing() {
    let base = store();
    let a = peer(&base, "t", 2);
    put(&a, b"shared", 0, b"aaa");
    a.end("t", Ending::Finish).unwrap();
    let run = |fault: Fault, number: i64| {
        let store = base.copied();
        let faulty = Arc::new(FaultyStore::new(store.clone(), fault, i64::MAX));
        let b = open(faulty.clone(), &spec("t", 2), None).unwrap();
        put(&b, b"shared", 500, &[b'b'; 5]);
        put(&b, b"long", 0, &[9; 50_000]);
        faulty.fail_at(number);
        let done = b.end("t", Ending::Finish);
        let (hit, shown) = (faulty.is_hit(), reader(&store));
        let visible = names(&shown).contains(&"long".into());
        assert_eq!(visible, get(&shown, b"shared").starts_with(b"aaa"), "{fault:?} {number}: all or nothing");
        assert!(visible || done.is_err(), "{fault:?} {number}");
        if fault == Fault::LostReply || !hit {
            done.unwrap();
        }
        if fault == Fault::Unreadable {
            faulty.heal();
            b.end("t", Ending::Finish).unwrap();
        } else if let Standing::Open(missing) = standing(&store, "t") {
            // Nothing of the killed peer counts: another one takes its place.
            assert_eq!(missing, [2]);
            let again = open(Arc::new(store.clone()), &spec("t", 2), Some(2)).unwrap();
            put(&again, b"long", 0, &[9; 50_000]);
            put(&again, b"shared", 500, &[b'b'; 5]);
            again.end("t", Ending::Finish).unwrap();
        } else {
            shown.end("t", Ending::Finish).unwrap();
        }
        let after = reader(&store);
        assert_eq!((get(&after, b"long"), &get(&after, b"shared")[..4]), (vec![9; 50_000], b"aaa-".as_slice()));
        assert_eq!(published(&store, "t").len(), 1, "{fault:?} {number}");
        hit
    };
    // Failed requests are repeated after pauses: the runs wait at the same time.
    std::thread::scope(|scope| {
        let runs: Vec<_> = [Fault::Killed, Fault::LostReply, Fault::Unreadable]
            .into_iter()
            .flat_map(|fault| (0..if fault == Fault::Unreadable { 60 } else { 8 }).map(move |number| (fault, number)))
            .map(|(fault, number)| (fault, scope.spawn(move || run(fault, number))))
            .collect();
        let hits: Vec<(Fault, bool)> = runs.into_iter().map(|(fault, run)| (fault, run.join().unwrap())).collect();
        for fault in [Fault::Killed, Fault::LostReply, Fault::Unreadable] {
            let count = hits.iter().filter(|(of, hit)| *of == fault && *hit).count();
            let (least, runs) = if fault == Fault::Unreadable { (12, 60) } else { (4, 8) };
            assert!((least..runs).contains(&count), "{fault:?}: each of {count} requests was hit");
        }
    });
}

#[test]
fn an_abort_of_any_peer_aborts() {
    let store = store();
    let (a, b) = (peer(&store, "t", 3), peer(&store, "t", 3));
    put(&a, b"of-a", 0, b"A");
    a.end("t", Ending::Finish).unwrap();
    drop(b);
    // The third never joined, the second is dead: anyone aborts.
    reader(&store).end("t", Ending::Abort).unwrap();
    reader(&store).end("t", Ending::Abort).unwrap();
    assert!(matches!(standing(&store, "t"), Standing::Aborted(_)));
    assert_eq!(errno(&a.end("t", Ending::Finish)), libc::ECANCELED);
    assert_eq!(errno(&open(Arc::new(store.clone()), &spec("t", 3), None)), libc::ECANCELED);
    assert_eq!(names(&reader(&store)), ["shared"]);
    // Committed ones are not aborted.
    let c = peer(&store, "u", 1);
    c.end("u", Ending::Finish).unwrap();
    assert_eq!(errno(&c.end("u", Ending::Abort)), libc::EALREADY);
    assert_eq!(published(&store, "u").len(), 1);
    assert_eq!(errno(&reader(&store).end("none", Ending::Abort)), libc::ENOENT);
}

/// `abort` and the last `finish` race: one of them wins, for all.
#[test]
fn an_abort_and_a_commit_exclude_each_other() {
    for _ in 0..20 {
        let store = store();
        let (a, b) = (peer(&store, "t", 2), peer(&store, "t", 2));
        put(&a, b"of-a", 0, b"A");
        a.end("t", Ending::Finish).unwrap();
        let barrier = Barrier::new(2);
        let (finished, aborted) = std::thread::scope(|scope| {
            let finish = scope.spawn(|| {
                barrier.wait();
                b.end("t", Ending::Finish)
            });
            barrier.wait();
            let aborted = reader(&store).end("t", Ending::Abort);
            (finish.join().unwrap(), aborted)
        });
        assert_ne!(finished.is_ok(), aborted.is_ok(), "{finished:?} {aborted:?}");
        assert_eq!(names(&reader(&store)).len(), if finished.is_ok() { 2 } else { 1 });
    }
}

#[test]
fn a_transaction_waits_for_others() {
    let store = store();
    let manage = reader(&store);
    let after = |name: &str, on: &[&str]| TransactionSpec { after: on.iter().map(|n| (*n).into()).collect(), ..spec(name, 1) };
    assert_eq!(errno(&manage.begin(&after("late", &["first"]))), libc::ENOENT);
    manage.begin(&spec("first", 1)).unwrap();
    assert_eq!(errno(&manage.begin(&spec("first", 1))), libc::EEXIST);
    manage.end("skipped", Ending::Skip).unwrap();
    manage.begin(&after("late", &["first", "skipped"])).unwrap();
    let late = peer(&store, "late", 1);
    put(&late, b"late", 0, b"L");
    assert_eq!(errno(&late.end("late", Ending::Finish)), libc::EAGAIN);
    put(&late, b"late", 1, b"!");
    let first = peer(&store, "first", 1);
    put(&first, b"first", 0, b"F");
    first.end("first", Ending::Finish).unwrap();
    late.end("late", Ending::Finish).unwrap();
    assert_eq!(get(&reader(&store), b"late"), b"L!");
    assert!(published(&store, "first") < published(&store, "late"));
    // One that waits for an aborted one never ends but by abort; skipping is no abort.
    manage.begin(&spec("bad", 1)).unwrap();
    manage.begin(&after("on-bad", &["bad"])).unwrap();
    manage.end("bad", Ending::Abort).unwrap();
    let on_bad = peer(&store, "on-bad", 1);
    assert_eq!(errno(&on_bad.end("on-bad", Ending::Finish)), libc::ECANCELED);
    manage.begin(&spec("open", 2)).unwrap();
    manage.begin(&after("on-open", &["open"])).unwrap();
    manage.end("open", Ending::Skip).unwrap();
    let on_open = peer(&store, "on-open", 1);
    on_open.end("on-open", Ending::Finish).unwrap();
    assert_eq!(manage.names().unwrap(), ["bad", "first", "late", "on-bad", "on-open", "open", "skipped"]);
}

#[test]
fn conflicts_refuse_the_transaction() {
    let (store, setting) = (store(), |c: &IodConnector, value: &[u8]| {
        put(c, b"shared", 0, value);
        put(c, b"good", 0, b"g");
    });
    // Of two peers, and of a peer with a later version.
    let (a, b) = (peer(&store, "t", 2), peer(&store, "t", 2));
    put(&a, b"of-a", 0, b"A");
    setting(&a, b"one");
    put(&b, b"shared", 2, b"two");
    a.end("t", Ending::Finish).unwrap();
    assert_eq!(errno(&b.end("t", Ending::Finish)), libc::ECANCELED);
    let reason = format!("{:?}", standing(&store, "t"));
    assert!(reason.contains("conflict at /shared with peer 2"), "{reason}");
    let c = peer(&store, "u", 1);
    setting(&c, b"mine");
    let other = writer(&store);
    put(&other, b"shared", 1, b"theirs");
    other.commit().unwrap();
    assert_eq!(errno(&c.end("u", Ending::Finish)), libc::ECANCELED);
    let reason = c.status("u").unwrap().unwrap();
    assert!(reason.contains("state aborted\nreason conflict at /shared with version"), "{reason}");
    assert_eq!(names(&reader(&store)), ["shared"]);
    // A name, and a removal of what the other changed.
    let d = peer(&store, "v", 2);
    let e = peer(&store, "v", 2);
    d.rename((d.root(), b"shared"), (d.root(), b"moved"), Taken::Refuse).unwrap();
    e.unlink(e.root(), b"shared", false).unwrap();
    d.end("v", Ending::Finish).unwrap();
    assert_eq!(errno(&e.end("v", Ending::Finish)), libc::ECANCELED);
    assert_eq!(names(&reader(&store)), ["shared"]);
}

#[test]
fn peers_see_the_base_and_join_once() {
    let store = store();
    let newest = Container::open(Arc::new(store.clone())).unwrap().snapshot(None).unwrap().version();
    let on = |name: &str, base| TransactionSpec { base: Some(base), ..spec(name, 2) };
    let manage = reader(&store);
    manage.begin(&on("exact", Base::Exact(1))).unwrap();
    manage.begin(&on("next", Base::Next)).unwrap();
    assert_eq!(errno(&manage.begin(&on("future", Base::Exact(newest + 1)))), libc::ENOENT);
    assert_eq!(names(&open(Arc::new(store.clone()), &spec("exact", 2), None).unwrap()), Vec::<String>::new());
    let store = {
        // The session of the peer above is a version of its own.
        let fresh = self::store();
        reader(&fresh).begin(&on("next", Base::Next)).unwrap();
        fresh
    };
    assert_eq!(errno(&open(Arc::new(store.clone()), &spec("next", 2), None)), libc::EAGAIN);
    let other = writer(&store);
    put(&other, b"other", 0, b"O");
    other.commit().unwrap();
    let first = open(Arc::new(store.clone()), &spec("next", 2), None).unwrap();
    assert_eq!(names(&first), ["shared"], "the next version began the session of the other writer");
    assert_eq!(errno(&open(Arc::new(store.clone()), &spec("next", 3), None)), libc::EINVAL);
    assert_eq!(errno(&open(Arc::new(store.clone()), &spec("next", 2), Some(3))), libc::EINVAL);
    let second = open(Arc::new(store.clone()), &spec("next", 2), None).unwrap();
    assert_eq!(errno(&open(Arc::new(store.clone()), &spec("next", 2), None)), libc::EBUSY);
    // A third mount takes the place of the second, which finishes first.
    let third = open(Arc::new(store.clone()), &spec("next", 2), Some(2)).unwrap();
    put(&second, b"second", 0, b"2");
    put(&third, b"third", 0, b"3");
    second.end("next", Ending::Finish).unwrap();
    assert_eq!(errno(&third.end("next", Ending::Finish)), libc::EALREADY);
    first.end("next", Ending::Finish).unwrap();
    assert_eq!(names(&reader(&store)), ["other", "second", "shared"]);
    for bad in ["", "A", "a.b", "a/b", &"x".repeat(65)] {
        assert_eq!(errno(&manage.begin(&spec(bad, 1))), libc::EINVAL, "{bad}");
    }
}

/// The peer is a tree beside a mount that has no part in the transaction.
#[test]
fn a_tree_joins_with_its_first_change() {
    let store = store();
    let (a, b, c) = (writer(&store), writer(&store), writer(&store));
    a.begin(&spec("t", 2)).unwrap();
    let joined = || Container::open(Arc::new(store.clone())).unwrap().known_transaction("t").unwrap().joined.len();
    let [of_a, of_b, of_c] = [&a, &b, &c].map(|c| c.open_tree("t").unwrap());
    assert_eq!((names(&of_a), get(&of_c, b"shared").len(), joined()), (vec!["shared".into()], 1000, 0));
    put(&of_a, b"of-a", 0, b"A");
    put(&of_b, b"shared", 10, b"B");
    assert_eq!(joined(), 2);
    let versions = || reader(&store).container.snapshot(None).unwrap().version();
    let before = versions();
    // A third one reads, and neither writes nor ends the transaction.
    assert_eq!(errno(&of_c.create_file(of_c.root(), b"of-c")), libc::EBUSY);
    assert_eq!(errno(&c.end("t", Ending::Finish)), libc::EAGAIN);
    assert_eq!((names(&of_c), versions()), (vec!["shared".into()], before), "no session is begun in vain");
    put(&a, b"outside", 0, b"O");
    a.commit().unwrap();
    assert_eq!((names(&of_a), names(&a)), (vec!["of-a".into(), "shared".into()], vec!["outside".into(), "shared".into()]));
    assert!(a.status("t").unwrap().unwrap().contains("this_peer 1") && !c.status("t").unwrap().unwrap().contains("this_peer"));
    a.end("t", Ending::Finish).unwrap();
    assert_eq!(errno(&of_a.create_file(of_a.root(), b"late")), libc::EROFS);
    // It is shown until the others have finished, and finishing may be repeated.
    assert!(a.has_tree("t").unwrap());
    a.end("t", Ending::Finish).unwrap();
    b.end("t", Ending::Finish).unwrap();
    // The mount that ends it shows it, without waiting.
    assert_eq!((names(&b), get(&b, b"shared")[9..12].to_vec()), (vec!["of-a".into(), "outside".into(), "shared".into()], b"-B-".to_vec()));
    assert_eq!(published(&store, "t").len(), 1);
    assert!(!b.has_tree("t").unwrap());
    assert_eq!(errno(&b.open_tree("t").map(drop)), libc::EALREADY);
    assert_eq!(errno(&peer(&store, "u", 1).open_tree("u").map(drop)), libc::EROFS, "a peer has no trees");
}

#[test]
fn a_tree_that_changed_nothing_is_finished_or_aborted() {
    let store = store();
    let a = writer(&store);
    for (name, peers) in [("one", 1), ("two", 2), ("dropped", 1)] {
        a.begin(&spec(name, peers)).unwrap();
    }
    // A mount without the tree is no peer.
    assert_eq!(errno(&a.end("one", Ending::Finish)), libc::EAGAIN);
    let (one, two, dropped) = (a.open_tree("one").unwrap(), a.open_tree("two").unwrap(), a.open_tree("dropped").unwrap());
    a.end("one", Ending::Finish).unwrap();
    assert!(matches!(standing(&store, "one"), Standing::Committed(_)));
    let other = peer(&store, "two", 2);
    put(&other, b"other", 0, b"O");
    a.end("two", Ending::Finish).unwrap();
    other.end("two", Ending::Finish).unwrap();
    assert_eq!(names(&reader(&store)), ["other", "shared"]);
    put(&dropped, b"lost", 0, b"L");
    assert!(Edit::close(&*dropped).is_err(), "its changes are lost");
    drop((one, two, dropped));
    let again = a.open_tree("dropped").unwrap();
    assert_eq!(names(&again), ["shared"]);
    a.end("dropped", Ending::Abort).unwrap();
    assert_eq!(errno(&again.create_file(again.root(), b"late")), libc::EROFS);
    assert!(Edit::close(&*again).is_ok() && !a.has_tree("dropped").unwrap());
}

/// A tree whose first change fails at any request has one place of a peer, and writes later.
#[test]
fn a_tree_takes_one_place_whatever_fails() {
    let base = store();
    reader(&base).begin(&spec("t", 1)).unwrap();
    let run = |fault: Fault, number: i64| {
        let store = base.copied();
        let faulty = Arc::new(FaultyStore::new(store.clone(), fault, i64::MAX));
        let container = Arc::new(Container::open(faulty.clone()).unwrap());
        let mut snapshot = container.snapshot(None).unwrap();
        let session = container.begin_session(&mut snapshot).unwrap();
        let a = IodConnector::new(container.clone(), State::new(container, snapshot, Some(session)), true, environment());
        let tree = a.open_tree("t").unwrap();
        faulty.fail_at(number);
        let first = tree.create_file(tree.root(), b"new").map(drop);
        let hit = faulty.is_hit();
        faulty.heal();
        assert!(first.is_ok() || hit, "{fault:?} {number}: {first:?}");
        put(&tree, b"new", 0, b"N");
        a.end("t", Ending::Finish).unwrap();
        assert_eq!(get(&reader(&store), b"new"), b"N", "{fault:?} {number}");
        (hit, first.is_err())
    };
    std::thread::scope(|scope| {
        for (fault, most) in [(Fault::LostReply, 60), (Fault::Outage, 60), (Fault::Unreadable, 60)] {
            let runs: Vec<_> = (0..most).map(|number| scope.spawn(move || run(fault, number))).collect();
            let done: Vec<(bool, bool)> = runs.into_iter().map(|run| run.join().unwrap()).collect();
            let (hits, failures) = (done.iter().filter(|(hit, _)| *hit).count(), done.iter().filter(|(_, failed)| *failed).count());
            assert!((2..most as usize).contains(&hits), "{fault:?}: {hits} of {most} requests were hit");
            assert!(fault == Fault::LostReply || failures > 0, "{fault:?}: no request failed");
        }
    });
}

/// Regression: the session of a tree took the pin of its mount, whose packs garbage collection
/// then counted as those of a killed writer.
#[test]
fn a_tree_has_a_pin_beside_that_of_its_mount() {
    let store = store();
    let a = writer(&store);
    a.pins.keep_renewed().unwrap();
    let pinned = || {
        let keys = store.keys().into_iter().filter(|key| key.starts_with(keys::PINS));
        let pins = keys.map(|key| Pin::decode(&store.get(&key, 0..1 << 16).unwrap()).unwrap());
        pins.map(|pin| (pin.session, pin.version)).collect::<BTreeSet<_>>()
    };
    let session = |c: &IodConnector| c.states.shown().session.as_ref().unwrap().number();
    let ended = pinned().into_iter().filter(|(of, _)| *of != session(&a)).collect::<BTreeSet<_>>();
    let pinned = || pinned().difference(&ended).copied().collect::<BTreeSet<_>>();
    let of_a = *pinned().first().unwrap();
    a.begin(&spec("t", 2)).unwrap();
    let base = Container::open(Arc::new(store.clone())).unwrap().known_transaction("t").unwrap().begin.base;
    let tree = a.open_tree("t").unwrap();
    let other = peer(&store, "t", 2);
    put(&tree, b"of-tree", 0, &[7; 200_000]);
    tree.values.store_ahead().unwrap();
    put(&other, b"of-other", 0, &[8; 200_000]);
    put(&a, b"outside", 0, &[9; 200_000]);
    a.values.store_ahead().unwrap();
    assert_eq!(pinned(), BTreeSet::from([of_a, (session(&tree), base), (session(&other), base)]));
    let collect = || {
        let options = gc::Options { keep: gc::Keep::Versions(1), grace: 0, dry_run: false };
        (0..3).for_each(|_| drop(gc::run(&Container::open(Arc::new(store.clone())).unwrap(), &options).unwrap()));
    };
    collect();
    other.end("t", Ending::Finish).unwrap();
    collect();
    assert_eq!(get(&tree, b"shared"), [b'-'; 1000]);
    a.end("t", Ending::Finish).unwrap();
    assert_eq!(pinned().iter().filter(|(of, _)| *of == session(&tree)).count(), 0, "a transaction that ended pins nothing");
    a.commit().unwrap();
    Edit::close(&*other).unwrap();
    Edit::close(&*a).unwrap();
    assert!(pinned().is_empty(), "{:?}", pinned());
    collect();
    let after = reader(&store);
    for (name, byte) in [("of-tree", 7), ("of-other", 8), ("outside", 9)] {
        assert!(get(&after, name.as_bytes()) == [byte; 200_000], "{name}");
    }
}

/// Regression: a mount that committed the transaction of others counted its own uncommitted packs
/// as committed, so that garbage collection deleted them.
#[test]
fn packs_of_the_mount_that_commits_for_others_are_kept() {
    let store = store();
    let p = peer(&store, "t", 1);
    put(&p, b"of-p", 0, b"P");
    {
        // It was killed between its part and the commit.
        let state = p.states.shown();
        let transaction = p.container.known_transaction("t").unwrap();
        let delta = p.commits.delta(session(&state).unwrap(), &entries(&state)).unwrap();
        p.container.finish_peer(&transaction, p.joined.as_ref().unwrap().member().unwrap(), false, delta).unwrap();
    }
    let a = writer(&store);
    put(&a, b"of-a", 0, &[7; 200_000]);
    a.values.store_ahead().unwrap();
    a.end("t", Ending::Finish).unwrap();
    assert_eq!((published(&store, "t").len(), a.states.shown().session.as_ref().unwrap().settled()), (1, 0));
    a.commit().unwrap();
    assert!(a.states.shown().session.as_ref().unwrap().settled() > 0);
    assert!(get(&reader(&store), b"of-a") == [7; 200_000]);
}
