//! Requests and bytes of operations do not depend on the number of objects in the container.

use super::access::IodConnector;
use super::kind::root_entries;
use super::paths::encode_link;
use super::state::{GROUP, State};
use super::tests::{bytes, empty, environment, open};
use crate::base::Error;
use crate::connector::edit::Edit;
use crate::connector::{Connector, LinkTarget};
use crate::file::store::ObjectStore;
use crate::file::store::memory::MemoryStore;
use crate::format::object_header::kind::REFERENCE_COUNT;
use crate::iod::record::{Delta, encode_delta};
use crate::iod::{Cell, Container, Entry, Outcome, PackWriter, Ranges, keys, merge};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Objects in each group.
const GROUP_SIZE: u64 = 1000;
/// Objects that are added by one commit.
const COMMITTED: u64 = 50_000;

/// A container of groups with 1,000 empty groups each, `count` in all.
fn container_of(count: u64) -> MemoryStore {
    let store = MemoryStore::default();
    let shared: Arc<dyn ObjectStore> = Arc::new(store.clone());
    Container::create(shared.clone(), root_entries()).unwrap();
    let container = Container::open(shared).unwrap();
    let mut snapshot = container.snapshot(None).unwrap();
    let session = container.begin_session(&mut snapshot).unwrap();
    let value = |key, bytes: &[u8]| Entry { key, cell: Some(Cell::inline(bytes)), ranges: Ranges::whole() };
    // More ids than a session has: those of sessions that never were.
    let id = |n: u64| 1 << 40 | n;
    let mut entries = BTreeMap::new();
    for n in 0..count {
        let (parent, name) =
            if n % GROUP_SIZE == 0 { (0, format!("g{}", n / GROUP_SIZE)) } else { (id(n - n % GROUP_SIZE), format!("o{n}")) };
        let link = encode_link(name.as_bytes(), &LinkTarget::Hard(super::ids::object(id(n)))).unwrap();
        for entry in [
            value(keys::key(parent, keys::LINK, name.as_bytes()), &link),
            value(keys::header(id(n), keys::OBJECT_TYPE), &[GROUP]),
            value(keys::header(id(n), REFERENCE_COUNT), &merge::encode_link_count(1)),
        ] {
            entries.insert(entry.key.clone(), entry);
        }
        if (n + 1) % COMMITTED == 0 || n + 1 == count {
            let delta: Vec<Entry> = std::mem::take(&mut entries).into_values().collect();
            let mut packs = PackWriter::new(&container, &session);
            let extent = packs.add(&encode_delta(&delta).unwrap()).unwrap();
            packs.finish().unwrap();
            let record = container.record(&snapshot, session.number(), false, Delta::Extent(extent)).unwrap();
            let Outcome::Committed(hash) = container.append(&snapshot, &record).unwrap() else { panic!("no other writer") };
            snapshot.advance(&record, hash, &delta).unwrap();
            container.checkpoint(&mut snapshot, &session).unwrap();
        }
    }
    store
}

/// Requests, bytes received and bytes sent of each operation.
fn costs(store: &MemoryStore) -> Vec<(&'static str, [u64; 3])> {
    let mut all = Vec::new();
    let mut last = store.counters();
    let mut note = |what| {
        let now = store.counters();
        all.push((what, [0, 1, 2].map(|i| now[i] - last[i])));
        last = now;
    };
    let open = || {
        let container = Arc::new(Container::open(Arc::new(store.clone())).unwrap());
        let mut snapshot = container.snapshot(None).unwrap();
        let session = container.begin_session(&mut snapshot).unwrap();
        IodConnector::new(container.clone(), State::new(container, snapshot, Some(session)), true, environment())
    };
    let c = open();
    note("open");
    let group = c.resolve(c.root(), b"g0").unwrap().unwrap();
    note("lookup");
    let mut names = 0;
    c.list(group, 0, &mut |_, _| {
        names += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(names, GROUP_SIZE - 1);
    note("list of 999 names");
    c.set_attribute_bytes(group, b"title", b"text").unwrap();
    Edit::commit(&*c).unwrap();
    note("fsync of an attribute");
    let file = c.create_file(group, b"file").unwrap();
    c.write(file, 0, &[3; 1 << 20]).unwrap();
    Edit::commit(&*c).unwrap();
    note("fsync of 1 MiB");
    for n in 0..100 {
        c.create_group(group, format!("new{n}").as_bytes()).unwrap();
    }
    Edit::commit(&*c).unwrap();
    note("fsync of 100 groups");
    let c = open();
    note("open again");
    assert_eq!(bytes(&*c, c.resolve(c.root(), b"g0/file").unwrap().unwrap()).len(), 1 << 20);
    note("read of 1 MiB");
    all
}

/// At 1,000 objects the tree has two levels, at 1,000,000 three: twice the requests and bytes are
/// allowed, and two nodes. 10,000,000 with `H5DIR_LONG`.
#[test]
fn operations_cost_the_same_in_a_large_container() {
    let small = costs(&container_of(1000));
    let many = if std::env::var_os("H5DIR_LONG").is_some() { 10_000_000 } else { 1_000_000 };
    let large = costs(&container_of(many));
    for ((what, small), (_, large)) in small.iter().zip(&large) {
        println!("{what}: {small:?} requests, bytes in, bytes out; with {many} objects {large:?}");
        assert!(large[0] <= 2 * small[0] + 2, "{what}: {small:?} {large:?}");
        let node = 2 * 70_000;
        assert!(large[1] <= 2 * small[1] + node && large[2] <= 2 * small[2], "{what}: {small:?} {large:?}");
    }
    assert_eq!(small.iter().find(|(what, _)| *what == "fsync of an attribute").unwrap().1[0], 1);
}

/// Soft links that name the next one many times took 30^10 steps: only their depth was bounded.
#[test]
fn links_that_multiply_are_refused() {
    let c = open(&empty());
    for n in 0..10 {
        c.symlink(c.root(), format!("n{n}").as_bytes(), format!("n{}/", n + 1).repeat(30).as_bytes()).unwrap();
    }
    c.symlink(c.root(), b"n10", b"/").unwrap();
    assert_eq!(c.resolve(c.root(), b"n10/n10").unwrap(), Some(c.root()));
    assert!(matches!(c.resolve(c.root(), b"n0"), Err(Error::Limit { .. })));
}
