//! Dense storage changed by this layer and libhdf5 (`tests/oracle/dense_storage.py`) in
//! turn; each reads the other's changes.

use crate::base::Address;
use crate::format::Context;
use crate::format::message::attribute::Attribute;
use crate::format::message::attribute_info::AttributeInfo;
use crate::format::message::link::{Link, LinkTarget};
use crate::format::message::link_info::LinkInfo;
use crate::format::object_header::{Prefix, kind};
use crate::meta::edit::testing::writable;
use crate::meta::{ObjectHeader, Store};
use crate::structures::attributes::dense_edit as dense_attributes_edit;
use crate::structures::dense_storage::DenseStorage;
use crate::structures::group::dense_edit as dense_links_edit;
use std::collections::BTreeMap;

use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/dense_storage.py");
/// Changes of each storage in a round.
const STEPS: usize = match option_env!("H5DIR_ORACLE_STEPS") {
    Some(_) => 1500,
    None => 150,
};
const CTX: &Context = &Context::DEFAULT;

/// Runs the script; returns its output.
fn python(arguments: &[&str]) -> String {
    let done = Command::new(crate::python::with_h5py()).arg(SCRIPT).args(arguments).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Group and kind ("link", "attr") to names and values, as in the state file.
type State = BTreeMap<(String, String), BTreeMap<String, String>>;

fn parse(text: &str) -> State {
    let mut state = State::new();
    for line in text.lines() {
        let [group, kind, name, value] = line.split('\t').collect::<Vec<_>>()[..] else { unreachable!("{line}") };
        state.entry((group.into(), kind.into())).or_default().insert(name.into(), value.into());
    }
    state
}

fn print(state: &State) -> String {
    let lines = state.iter().flat_map(|((g, k), items)| items.iter().map(move |(n, v)| format!("{g}\t{k}\t{n}\t{v}\n")));
    lines.collect()
}

fn storage(store: &Store, group: Address, links: bool) -> DenseStorage {
    let header = ObjectHeader::load(store, group).unwrap();
    if links {
        let info = LinkInfo::decode(&header.find(kind::LINK_INFO).unwrap().body, CTX, group).unwrap();
        return DenseStorage::from(&info);
    }
    let info = AttributeInfo::decode(&header.find(kind::ATTRIBUTE_INFO).unwrap().body, CTX, group).unwrap();
    DenseStorage { heap: info.fractal_heap, name_index: info.name_index, creation_index: info.creation_index }
}

fn link(name: &str, path: &str, order: Option<i64>) -> Vec<u8> {
    let target = LinkTarget::Soft(path.as_bytes().to_vec());
    Link { name: name.as_bytes().to_vec(), utf8: true, creation_order: order, target }.encode(CTX).unwrap()
}

/// Bytes (as in the state file) as an attribute of 8-bit integers.
fn attribute(name: &str, value: &str) -> Vec<u8> {
    let data: Vec<u8> = (0..value.len() / 2).map(|i| u8::from_str_radix(&value[i * 2..i * 2 + 2], 16).unwrap()).collect();
    let dataspace = [&[2, 1, 0, 1][..], &(data.len() as u64).to_le_bytes()].concat();
    let datatype = vec![0x10, 8, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0];
    let name = name.as_bytes().to_vec();
    let (version, charset, name_tail) = (3, 1, vec![0]);
    Attribute { version, datatype_shared: false, dataspace_shared: false, charset, name, name_tail, datatype, dataspace, data }.encode()
}

struct Random(u64);

impl Random {
    fn next(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % n
    }
}

/// One storage under change, of links or attributes.
struct Changes<'a> {
    store: &'a Store,
    at: DenseStorage,
    links: bool,
    /// Creation order of the last insertion.
    order: i64,
    /// Creation orders of the links inserted here, for replacements.
    orders: BTreeMap<String, i64>,
}

impl Changes<'_> {
    fn insert(&mut self, name: &str, value: &str) -> bool {
        self.order += 1;
        let order = self.at.creation_index.map(|_| self.order);
        if !self.links {
            let order = order.map_or(65_535, |o| (o % 60_000) as u32);
            return dense_attributes_edit::insert(self.store, &self.at, &attribute(name, value), 0, order).is_ok();
        }
        let done = dense_links_edit::insert(self.store, &self.at, &link(name, value, order), name.as_bytes(), order).is_ok();
        if done {
            self.orders.insert(name.into(), self.order);
        }
        done
    }

    fn remove(&mut self, name: &str, value: &str) {
        let at = &self.at;
        if self.links {
            let body = dense_links_edit::remove(self.store, at, name.as_bytes()).unwrap().unwrap();
            assert_eq!(Link::decode(&body, CTX, at.heap).unwrap().target, LinkTarget::Soft(value.as_bytes().to_vec()));
            assert_eq!(dense_links_edit::remove(self.store, at, name.as_bytes()).unwrap(), None);
        } else {
            let found = dense_attributes_edit::remove(self.store, at, name.as_bytes()).unwrap().unwrap();
            assert!(found.body.ends_with(&Attribute::decode(&attribute(name, value), at.heap).unwrap().data));
            assert_eq!(dense_attributes_edit::remove(self.store, at, name.as_bytes()).unwrap(), None);
        }
    }

    fn replace(&mut self, name: &str, value: &str) {
        if self.links {
            let order = self.at.creation_index.map(|_| self.orders[name]);
            assert!(dense_links_edit::remove(self.store, &self.at, name.as_bytes()).unwrap().is_some());
            dense_links_edit::insert(self.store, &self.at, &link(name, value, order), name.as_bytes(), order).unwrap();
        } else {
            assert!(dense_attributes_edit::replace(self.store, &self.at, &attribute(name, value)).unwrap());
        }
    }

    fn churn(&mut self, items: &mut BTreeMap<String, String>, random: &mut Random, round: usize) {
        // Names of one hash.
        for name in ["k69209", "k155448"] {
            let there = items.contains_key(name);
            assert_eq!(self.insert(name, "2f61"), !there);
            items.entry(name.into()).or_insert("2f61".into());
        }
        for step in 0..STEPS {
            let size = [1, 20, 300, 2500, 4200][random.next(5)];
            let value = if self.links { "q".repeat(size) } else { format!("{:02x}", random.next(255)).repeat(size) };
            let own: Vec<String> = items.keys().filter(|n| n.starts_with("rs")).cloned().collect();
            match random.next(6) {
                0 if !own.is_empty() => {
                    let name = &own[random.next(own.len())];
                    if self.orders.contains_key(name) || !self.links {
                        self.replace(name, &value);
                        items.insert(name.clone(), value);
                    }
                }
                1 | 2 if items.len() > 12 => {
                    let name = items.keys().nth(random.next(items.len())).unwrap().clone();
                    self.remove(&name, &items.remove(&name).unwrap());
                }
                _ => {
                    let name = format!("rs{round}-{step}{}", "y".repeat([0, 30, 250][random.next(3)]));
                    assert!(self.insert(&name, &value) && !self.insert(&name, &value));
                    items.insert(name, value);
                }
            }
        }
    }
}

/// Checks the headers and nodes of the storage. True if its heap has free block ranges.
fn audit(store: &Store, at: &DenseStorage, links: bool) -> bool {
    let trees = [Some(at.name_index), at.creation_index];
    for tree in trees.into_iter().flatten() {
        crate::structures::btree2::edit::check(store, tree);
    }
    let range = if links { 4..11 } else { 0..8 };
    let mut ids = Vec::new();
    crate::structures::btree2::BTree2::open(store, at.name_index)
        .unwrap()
        .iterate(store, &mut |r| {
            ids.push(r[range.clone()].to_vec());
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
    crate::structures::fractal_heap::edit::audit(store, at.heap, &ids)
}

/// Replaces the addresses of `old` storage by those of `new` in the group's header.
fn set_storage(store: &Store, group: Address, old: &DenseStorage, new: &DenseStorage) {
    let flat = |s: &DenseStorage| {
        let all = [Some(s.heap), Some(s.name_index), s.creation_index];
        all.into_iter().flatten().flat_map(|a| a.0.to_le_bytes()).collect::<Vec<u8>>()
    };
    let head = store.read_upto(group, 512, "t").unwrap();
    let len = Prefix::decode(&head, group).unwrap().chunk0_len();
    let mut bytes = store.read(group, len, "t").unwrap();
    let (old, new) = (flat(old), flat(new));
    let at = bytes.windows(old.len()).position(|w| w == old).unwrap();
    bytes[at..at + new.len()].copy_from_slice(&new);
    let body = bytes.len() - 4;
    let sum = crate::base::checksum::lookup3(&bytes[..body], 0);
    bytes[body..].copy_from_slice(&sum.to_le_bytes());
    store.write(group, &bytes).unwrap();
}

#[test]
fn libhdf5_reads_and_changes_dense_storage() {
    let dir = tempfile::tempdir().unwrap();
    let (file, states) = (dir.path().join("a.h5"), dir.path().join("state"));
    let (file, states) = (file.to_str().unwrap(), states.to_str().unwrap());
    let groups = python(&["make", file]);
    let groups: Vec<Address> = groups.lines().map(|l| Address(l.parse().unwrap())).collect();
    let mut state = State::new();
    for group in ["plain", "ordered"] {
        let links = (0..20).map(|n| (format!("first{n}"), format!("/target{n}"))).collect();
        state.insert((group.into(), "link".into()), links);
        let attributes = (0..20).map(|n| (format!("first{n}"), format!("{:02x}{n:02x}", n + 1))).collect();
        state.insert((group.into(), "attr".into()), attributes);
    }
    let mut random = Random(0x1357_9bdf_2468_ace1);
    let mut rows = 0;
    for round in 0..4 {
        let (store, memory) = writable(std::fs::read(file).unwrap());
        for (&address, group) in groups.iter().zip(["plain", "ordered"]) {
            for kind in ["link", "attr"] {
                let links = kind == "link";
                let mut at = storage(&store, address, links);
                let items = state.get_mut(&(group.into(), kind.into())).unwrap();
                if round >= 2 {
                    // New storage, and storage whose heap and indexes were emptied.
                    let mut changes = Changes { store: &store, at, links, order: 0, orders: BTreeMap::new() };
                    if round == 2 {
                        items.iter().for_each(|(name, value)| changes.remove(name, value));
                        if links {
                            dense_links_edit::delete(&store, &at).unwrap();
                        } else {
                            dense_attributes_edit::delete(&store, &at).unwrap();
                        }
                        let make = if links { dense_links_edit::create } else { dense_attributes_edit::create };
                        let new = make(&store, at.creation_index.is_some()).unwrap();
                        set_storage(&store, address, &at, &new);
                        at = storage(&store, address, links);
                        assert_eq!(at, new);
                    } else {
                        items.iter().for_each(|(name, value)| changes.remove(name, value));
                    }
                    items.clear();
                }
                let order = 40_000 + 2_000 * round as i64;
                let mut changes = Changes { store: &store, at, links, order, orders: BTreeMap::new() };
                audit(&store, &at, links);
                changes.churn(items, &mut random, round);
                rows += usize::from(audit(&store, &at, links));
            }
        }
        store.close().unwrap();
        std::fs::write(file, memory.bytes()).unwrap();
        std::fs::write(states, print(&state)).unwrap();
        python(&["check", file, states]);
        python(&["change", file, states, &round.to_string()]);
        state = parse(&std::fs::read_to_string(states).unwrap());
    }
    assert!(rows > 0, "no changed heap had free block ranges");
}
