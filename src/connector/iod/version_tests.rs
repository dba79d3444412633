//! Other versions, differences, reverting and following, over stores in memory.

use super::access::IodConnector;
use super::state::State;
use super::tests::{Random, bytes, empty, environment, errno, open, open_in, operation, shown, shown_below};
use crate::base::Error;
use crate::connector::edit::{Edit, Taken};
use crate::connector::memory::{MemoryConnector, MemoryObject};
use crate::connector::open::Backing;
use crate::connector::versions::{Difference, VersionName, Versions};
use crate::connector::{Connector, Follow, Form, LinkTarget, Shape};
use crate::file::store::ObjectStore;
use crate::file::store::memory::MemoryStore;
use crate::iod::gc::{self, Keep};
use crate::iod::{Container, keys};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

type Shown = BTreeMap<String, String>;

fn newest(c: &IodConnector) -> u64 {
    c.states.shown().snapshot.version()
}

/// A container with a random history, and what the reference model had at each version.
fn history(seed: u64) -> (MemoryStore, BTreeMap<u64, Shown>) {
    let model = MemoryConnector::writable(vec![MemoryObject { links: Some(BTreeMap::new()), ..MemoryObject::default() }]).unwrap();
    let store = empty();
    let c = open(&store);
    let (mut random, mut all) = (Random(seed), BTreeMap::new());
    for n in 1..=3000 {
        let seed = random.next(1 << 30);
        assert_eq!(operation(&*c, seed), operation(&model, seed), "operation {n}");
        if n % 100 == 0 {
            Edit::commit(&*c).unwrap();
            all.insert(newest(&c), shown(&model));
        }
    }
    c.close().unwrap();
    (store, all)
}

fn reader(store: &MemoryStore) -> Arc<IodConnector> {
    let container = Arc::new(Container::open(Arc::new(store.clone())).unwrap());
    let snapshot = container.snapshot(None).unwrap();
    IodConnector::new(container.clone(), State::new(container, snapshot, None), false, environment())
}

fn follower(store: &MemoryStore, group: Option<&[u8]>) -> Arc<IodConnector> {
    let c = reader(store);
    let backing = Backing { atime: UNIX_EPOCH, mtime: UNIX_EPOCH, ctime: UNIX_EPOCH, len: 0 };
    c.begin_following(group.map(<[u8]>::to_vec), backing);
    c
}

#[test]
fn every_version_is_shown_as_the_model_had_it() {
    let (store, all) = history(5);
    assert!(all.len() > 15 && all.values().collect::<std::collections::BTreeSet<_>>().len() > 15);
    let c = reader(&store);
    for (number, want) in &all {
        assert_eq!(&shown_below(&*c, c.root_of(*number).unwrap()), want, "version {number} beside the newest");
        let old = open_in(Arc::new(store.clone()), Some(*number)).unwrap();
        assert_eq!(&shown(&*old), want, "version {number} opened");
    }
    let absent = c.root_of(9999).unwrap();
    assert_eq!((errno(&c.info(absent)), c.committed_at(9999).unwrap()), (libc::ENOENT, None));
    assert_eq!((c.root_of(0), c.root_of(1 << 40)), (None, None));
}

#[test]
fn objects_of_versions_stay_readable_and_are_not_changed() {
    let store = empty();
    let c = open(&store);
    let file = c.create_file(c.root(), b"f").unwrap();
    let mut contents = Vec::new();
    for n in 1..=20u8 {
        c.write(file, 0, &vec![n; 9000]).unwrap();
        Edit::commit(&*c).unwrap();
        let root = c.root_of(newest(&c)).unwrap();
        let Some(LinkTarget::Hard(id)) = c.lookup(root, b"f").unwrap().map(|l| l.target) else { panic!() };
        assert!(!id.is_own() && id.serial() == file.serial());
        assert_eq!(c.version_of(id), Some(newest(&c)));
        contents.push((n, id, c.content(id, Form::Main).unwrap()));
    }
    // More than are kept open.
    for (n, id, content) in &contents {
        let mut buf = [0; 9000];
        assert_eq!(content.read(0, &mut buf).unwrap(), 9000);
        assert_eq!((buf.to_vec(), bytes(&*c, *id)), (vec![*n; 9000], vec![*n; 9000]));
        assert!(c.write(*id, 0, b"x").is_err() && c.set_size(*id, 0).is_err());
        assert!(c.set_attribute_bytes(*id, b"a", b"x").is_err());
        assert!(c.create_file(c.root_of(c.version_of(*id).unwrap()).unwrap(), b"g").is_err());
    }
    assert_eq!(bytes(&*c, file), vec![20; 9000]);
}

#[test]
fn a_listing_of_versions_asks_the_store_once_and_reads_none() {
    let store = empty();
    let c = open(&store);
    for n in 0..300u64 {
        c.set_attribute_bytes(c.root(), b"n", &n.to_le_bytes()).unwrap();
        Edit::commit(&*c).unwrap();
    }
    let before = store.counters();
    let (mut listed, mut last) = (Vec::new(), 0);
    for _ in 0..30 {
        let part = c.after(last).unwrap();
        listed.extend(part.iter().take(10).copied());
        last = *listed.last().unwrap();
    }
    let requests = store.counters()[0] - before[0];
    assert_eq!(listed, (1..=300).collect::<Vec<_>>());
    assert_eq!((requests, store.counters()[1] - before[1]), (1, 0));
    assert!(c.after(newest(&c)).unwrap().is_empty());
}

#[test]
fn tags_name_versions_and_an_unknown_one_is_an_error_that_lists_them() {
    let (store, all) = history(6);
    let c = reader(&store);
    let (number, want) = all.iter().nth(3).unwrap();
    assert_eq!(c.create_tag("good", &VersionName::Number(*number)).unwrap(), *number);
    assert_eq!(c.create_tag("also", &VersionName::Tag("good".into())).unwrap(), *number);
    assert_eq!(c.create_tag("now", &VersionName::Newest).unwrap(), newest(&c));
    assert_eq!(errno(&c.create_tag("good", &VersionName::Number(*number))), libc::EEXIST);
    let found = super::versions::number_of(&c.container, &VersionName::Tag("also".into())).unwrap();
    assert_eq!(&shown(&*open_in(Arc::new(store.clone()), found).unwrap()), want);
    let unknown = super::versions::number_of(&c.container, &VersionName::Tag("bad".into())).unwrap_err();
    assert_eq!(unknown.to_string(), "the container has no tag 'bad'; it has also, good, now");
    for n in 0..30 {
        c.create_tag(&format!("t{n:02}"), &VersionName::Newest).unwrap();
    }
    let unknown = super::versions::number_of(&c.container, &VersionName::Tag("bad".into())).unwrap_err();
    assert!(unknown.to_string().ends_with("t16 and 13 more"), "{unknown}");
}

/// What differs, by path.
fn differences(c: &dyn Versions, from: u64, to: u64) -> BTreeMap<String, Vec<Difference>> {
    let found = c.diff(&VersionName::Number(from), &VersionName::Number(to)).unwrap();
    let path = |path: Option<Vec<u8>>| path.map_or_else(|| "-".into(), |p| String::from_utf8(p).unwrap());
    found.into_iter().map(|o| (path(o.path), o.differences)).collect()
}

#[test]
fn differences_are_those_that_were_made() {
    let store = empty();
    let c = open(&store);
    let root = c.root();
    let group = c.create_group(root, b"g").unwrap();
    let [a, b, gone] = [b"a", b"b", b"x"].map(|name| c.create_file(group, name).unwrap());
    c.write(a, 0, &[1; 100]).unwrap();
    c.set_attribute_bytes(a, b"old", b"1").unwrap();
    c.symlink(root, b"s", b"g/a").unwrap();
    Edit::commit(&*c).unwrap();
    let first = newest(&c);
    c.write(a, 10, &[2; 5]).unwrap();
    Edit::commit(&*c).unwrap();
    c.write(a, 50, &[2; 7]).unwrap();
    c.set_attribute_bytes(a, b"new", b"2").unwrap();
    c.remove_attribute(a, b"old").unwrap();
    c.rename((group, b"b"), (root, b"c"), Taken::Refuse).unwrap();
    c.link(root, b"h", b).unwrap();
    c.unlink(group, b"x", false).unwrap();
    c.unlink(root, b"s", false).unwrap();
    c.symlink(root, b"t", b"c").unwrap();
    let made = c.create_file(root, b"n").unwrap();
    c.write(made, 0, b"n").unwrap();
    Edit::commit(&*c).unwrap();
    c.write(made, 0, b"m").unwrap();
    c.set_size(made, 9).unwrap();
    Edit::commit(&*c).unwrap();
    assert_ne!((gone, b), (a, made));
    let last = newest(&c);
    let found = differences(&*c, first, last);
    let paths: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(paths, ["/", "/c", "/g/a", "/g/x", "/n"]);
    assert_eq!(found["/"], [Difference::LinkRemoved(b"s".to_vec()), Difference::LinkSet(b"t".to_vec())]);
    let moved = Difference::Renamed { from: b"/g/b".to_vec(), to: b"/c".to_vec() };
    assert_eq!(found["/c"], [moved, Difference::Linked(b"/h".to_vec())]);
    let [Difference::AttributeSet(new), Difference::AttributeRemoved(old), Difference::Elements(chunks)] = &found["/g/a"][..] else {
        panic!("{:?}", found["/g/a"]);
    };
    assert_eq!((new.as_slice(), old.as_slice(), chunks.len()), (&b"new"[..], &b"old"[..], 1));
    assert_eq!((chunks[0].scaled.as_slice(), chunks[0].written.as_deref()), (&[0][..], Some(&[(10, 15), (50, 57)][..])));
    assert_eq!((&found["/g/x"], &found["/n"]), (&vec![Difference::Removed], &vec![Difference::Created]));
    // The other way, and between versions that differ in one object.
    let back = differences(&*c, last, first);
    assert_eq!((&back["/g/x"], &back["/n"]), (&vec![Difference::Created], &vec![Difference::Removed]));
    let grown = differences(&*c, last - 1, last);
    let shape = |n| Shape::Simple { dims: vec![n], max: Some(vec![u64::MAX]) };
    assert_eq!(grown.keys().collect::<Vec<_>>(), ["/n"]);
    assert_eq!(grown["/n"][0], Difference::Shape { from: shape(1), to: shape(9) });
    assert_eq!(differences(&*c, last, last), BTreeMap::new());
}

#[test]
fn reverting_restores_what_the_model_had_and_keeps_the_history() {
    let (store, all) = history(7);
    let mut random = Random(3);
    for _ in 0..12 {
        let c = open(&store);
        let (number, want) = all.iter().nth(random.next(all.len() as u64) as usize).unwrap();
        let reverted = c.revert(&VersionName::Number(*number)).unwrap();
        assert_eq!(&shown(&*c), want, "reverted to {number}");
        c.close().unwrap();
        let again = open(&store);
        assert_eq!((&shown(&*again), again.revert(&VersionName::Number(*number)).unwrap()), (want, None));
        if let Some(reverted) = reverted {
            assert!(differences(&*again, *number, reverted).is_empty());
        }
    }
    let c = reader(&store);
    assert!(all.iter().all(|(number, want)| &shown_below(&*c, c.root_of(*number).unwrap()) == want));
    assert_eq!(errno(&c.revert(&VersionName::Number(1))), libc::EROFS);
    let c = open(&store);
    assert_eq!(errno(&c.revert(&VersionName::Number(99999))), libc::ENOENT);
    // A reverted container is written as before.
    let file = c.create_file(c.root(), b"after").unwrap();
    c.write(file, 0, b"on").unwrap();
    c.close().unwrap();
    assert!(shown(&*open(&store)).contains_key("/after"));
}

/// Collects garbage but for the newest version and tagged ones; twice if `deletes`.
fn collect(store: &MemoryStore, deletes: bool) {
    for key in store.keys().iter().filter(|key| key.starts_with(keys::PINS)) {
        store.delete(key).unwrap();
    }
    let options = gc::Options { keep: Keep::Versions(1), grace: if deletes { 0 } else { 86_400 }, dry_run: false };
    for _ in 0..1 + u32::from(deletes) {
        gc::run(&Container::open(Arc::new(store.clone())).unwrap(), &options).unwrap();
    }
}

/// [`differences`] without the bytes of chunks that were written: trees do not have them.
fn unwritten(c: &dyn Versions, from: u64, to: u64) -> BTreeMap<String, Vec<Difference>> {
    let mut found = differences(c, from, to);
    for difference in found.values_mut().flatten() {
        if let Difference::Elements(chunks) = difference {
            chunks.iter_mut().for_each(|chunk| chunk.written = None);
        }
    }
    found
}

/// The records between are gone then; both failed, and reported damage.
#[test]
fn tagged_versions_are_compared_and_reverted_to_after_garbage_collection() {
    let (store, all) = history(11);
    let tagged: Vec<u64> = all.keys().copied().step_by(all.len() / 4).take(4).collect();
    let c = reader(&store);
    let last = newest(&c);
    let pairs: Vec<(u64, u64)> = tagged.iter().flat_map(|a| tagged.iter().chain([&last]).map(move |b| (*a, *b))).collect();
    let before: Vec<_> = pairs.iter().map(|(a, b)| (unwritten(&*c, *a, *b), unwritten(&*c, *b, *a))).collect();
    tagged.iter().for_each(|version| c.container.create_tag(&format!("v{version}"), *version).unwrap());
    collect(&store, true);
    let c = reader(&store);
    let versions = c.container.versions_after(0, usize::MAX).unwrap();
    let is_gone = |version: &u64| !versions.contains(version);
    assert!(tagged.iter().all(|version| !is_gone(version) && is_gone(&(version + 1))) && !is_gone(&last), "{versions:?}");
    for ((a, b), want) in pairs.iter().zip(before) {
        assert_eq!((unwritten(&*c, *a, *b), unwritten(&*c, *b, *a)), want, "versions {a} and {b}");
    }
    for version in &tagged {
        let c = open(&store);
        assert!(c.revert(&VersionName::Tag(format!("v{version}"))).unwrap().is_some());
        assert_eq!(&shown(&*c), &all[version]);
        c.close().unwrap();
        collect(&store, true);
        assert_eq!(&shown(&*open(&store)), &all[version]);
    }
}

/// A record that is missing for another reason than garbage collection is damage.
#[test]
fn a_lost_record_is_damage() {
    let (store, all) = history(12);
    let first = *all.keys().next().unwrap();
    let c = open(&store);
    {
        let mut state = c.states.next();
        let session = state.session.clone().unwrap();
        c.container.checkpoint(&mut state.snapshot, &session).unwrap();
    }
    store.delete(&keys::record_name(first + 1)).unwrap();
    let found = reader(&store).diff(&VersionName::Number(first), &VersionName::Newest);
    assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}");
}

/// Garbage collection may delete the bytes that the reverted version would have.
#[test]
fn a_version_that_may_be_deleted_is_not_reverted_to() {
    let store = empty();
    let c = open(&store);
    let file = c.create_file(c.root(), b"f").unwrap();
    let mut numbers = Vec::new();
    for n in 0..3u8 {
        c.write(file, 0, &[n; 9000]).unwrap();
        Edit::commit(&*c).unwrap();
        numbers.push(newest(&c));
    }
    c.container.create_tag("kept", numbers[0]).unwrap();
    c.close().unwrap();
    collect(&store, false);
    let c = open(&store);
    assert_eq!(errno(&c.revert(&VersionName::Number(numbers[1]))), libc::ESTALE);
    assert_eq!(bytes(&*c, file), [2; 9000]);
    assert!(c.revert(&VersionName::Tag("kept".into())).unwrap().is_some());
    assert_eq!(bytes(&*c, file), [0; 9000]);
}

#[test]
fn reverting_beside_writers_makes_versions_equal_to_the_earlier_one() {
    let store = empty();
    let c = open(&store);
    c.create_file(c.root(), b"base").unwrap();
    c.close().unwrap();
    let base = newest(&c);
    let want = shown(&*open_in(Arc::new(store.clone()), Some(base)).unwrap());
    let made: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u8)
            .map(|n| {
                let store = store.clone();
                scope.spawn(move || {
                    let mut made = Vec::new();
                    for i in 0..10u8 {
                        let c = open(&store);
                        // The name may be there; a revert of another writer may remove it again.
                        let _ = c.create_file(c.root(), &[b'a' + n, b'a' + i]);
                        if Edit::commit(&*c).is_ok() && n < 2 {
                            made.extend(c.revert(&VersionName::Number(base)).unwrap());
                        }
                    }
                    made
                })
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    assert!(made.len() >= 10, "{made:?}");
    for version in made {
        assert_eq!(shown(&*open_in(Arc::new(store.clone()), Some(version)).unwrap()), want, "version {version}");
    }
}

#[test]
fn a_follower_shows_new_versions_and_asks_once_when_there_is_none() {
    let store = empty();
    let a = open(&store);
    let file = a.create_file(a.root(), b"f").unwrap();
    a.write(file, 0, &[1; 50_000]).unwrap();
    Edit::commit(&*a).unwrap();
    let b = follower(&store, None);
    let content = b.content(file, Form::Main).unwrap();
    assert_eq!((b.state(), b.follow().is_some(), bytes(&*b, file)), (0, true, vec![1; 50_000]));
    let before = store.counters()[0];
    assert!(!b.look(false));
    assert_eq!(store.counters()[0] - before, 1);
    // A failed read looks once a second at most.
    assert!(!b.look(true) && !b.look(true));
    assert_eq!(store.counters()[0] - before, 1);
    a.write(file, 0, &[2; 10]).unwrap();
    a.create_file(a.root(), b"g").unwrap();
    Edit::commit(&*a).unwrap();
    assert_eq!((bytes(&*b, file), b.lookup(b.root(), b"g").unwrap()), (vec![1; 50_000], None));
    assert!(b.look(false));
    assert_eq!((b.state(), newest(&b)), (1, newest(&a)));
    let mut front = [0; 20];
    content.read(0, &mut front).unwrap();
    assert_eq!(front, [[2; 10], [1; 10]].concat()[..]);
    assert!(b.lookup(b.root(), b"g").unwrap().is_some());
    // A session that begins changes nothing.
    drop(open(&store));
    assert!(!b.look(false));
    assert_eq!((b.state(), newest(&b)), (1, newest(&a) + 1));
}

#[test]
fn a_follower_of_a_group_keeps_the_last_version_that_has_it() {
    let store = empty();
    let a = open(&store);
    let group = a.create_group(a.root(), b"g").unwrap();
    Edit::commit(&*a).unwrap();
    let b = follower(&store, Some(b"/g"));
    assert_eq!(b.mounted().0, group);
    a.rename((a.root(), b"g"), (a.root(), b"h"), Taken::Refuse).unwrap();
    Edit::commit(&*a).unwrap();
    assert!(!b.look(false) && b.info(group).is_ok());
    a.unlink(a.root(), b"h", true).unwrap();
    let other = a.create_group(a.root(), b"g").unwrap();
    Edit::commit(&*a).unwrap();
    assert!(b.look(false));
    assert_eq!(b.mounted().0, other);
}

/// It kept all changes since it was opened.
#[test]
fn a_follower_of_many_versions_takes_checkpoints() {
    let store = empty();
    let a = open(&store);
    let b = follower(&store, None);
    for n in 0..1100u64 {
        a.set_attribute_bytes(a.root(), b"n", &n.to_le_bytes()).unwrap();
        Edit::commit(&*a).unwrap();
        if n % 100 == 0 {
            b.look(false);
        }
    }
    b.look(false);
    assert!(!b.states.shown().snapshot.wants_checkpoint());
    assert_eq!((newest(&b), shown(&*b)), (newest(&a), shown(&*a)));
    assert_eq!(b.attribute(b.root(), b"n").unwrap().unwrap().bytes, 1099u64.to_le_bytes());
}

#[test]
fn a_writer_without_changes_catches_up() {
    let store = empty();
    let (a, b) = (open(&store), open(&store));
    let file = a.create_file(a.root(), b"f").unwrap();
    a.write(file, 0, b"one").unwrap();
    Edit::commit(&*a).unwrap();
    b.catch_up().unwrap();
    assert_eq!(bytes(&*b, file), b"one");
    let before = store.counters()[0];
    b.catch_up().unwrap();
    assert_eq!(store.counters()[0] - before, 1);
    a.write(file, 0, b"two").unwrap();
    Edit::commit(&*a).unwrap();
    let own = b.create_file(b.root(), b"own").unwrap();
    b.catch_up().unwrap();
    assert_eq!(bytes(&*b, file), b"one", "it has changes");
    Edit::commit(&*b).unwrap();
    assert_eq!(bytes(&*b, file), b"two");
    a.catch_up().unwrap();
    assert!(matches!(a.lookup(a.root(), b"own").unwrap().map(|l| l.target), Some(LinkTarget::Hard(id)) if id == own));
    assert!(a.follow().is_none(), "a writer is not followed");
}
