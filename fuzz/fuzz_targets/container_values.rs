//! Containers in object stores: the first byte chooses a decoder, the rest is its bytes. What can be encoded again must
//! decode to the same. The last kinds are whole containers: one commit record, or objects by name, which are opened,
//! checked and walked, and whose garbage is collected.
//!
//! A container has at most `OBJECTS_MAX` objects, and a walk ends at `BOUNDS`. Decoded chunks have the memory that
//! `connector::iod::fuzzing` gives a container.
#![no_main]

#[path = "../../tests/walker/mod.rs"]
#[allow(dead_code)]
mod walker;

use h5dir::base::{Address, Result};
use h5dir::connector::iod::fuzzing;
use h5dir::file::store::ObjectStore;
use h5dir::file::store::memory::MemoryStore;
use h5dir::format::{Reader, Writer};
use h5dir::fs::MountSpec;
use h5dir::fs::open::show;
use h5dir::iod::checkpoint::Checkpoint;
use h5dir::iod::descriptor::Descriptor;
use h5dir::iod::gc::state::State;
use h5dir::iod::gc::{self, Keep};
use h5dir::iod::node::Node;
use h5dir::iod::pin::Pin;
use h5dir::iod::record::{Delta, Record, decode_delta, encode_delta};
use h5dir::iod::transaction::{Begin, Joined, Part, Verdict};
use h5dir::iod::{Cell, Container, Extent, Ranges, Tag, keys};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use walker::{Bounds, walk};

/// Most objects of a container.
const OBJECTS_MAX: usize = 48;
/// Bounds of a walk.
const BOUNDS: Bounds = Bounds { nodes: 40, depth: 5, names: 16, xattrs: 16, read: 4096, texts: false };
/// Any extent.
const EXTENT: Extent = Extent { session: 0, pack: 0, offset: 0, len: 0, checksum: 0 };

fuzz_target!(|data: &[u8]| {
    let [kind, bytes @ ..] = data else { return };
    match kind % 32 {
        kind @ 0..=11 => object(kind, bytes),
        kind @ 12..=21 => value(kind, bytes),
        22..=26 => record(bytes),
        _ => objects(bytes),
    }
});

/// What `encode` makes of `value` must decode to it.
fn again<T: PartialEq>(value: Result<T>, encode: impl Fn(&T) -> Vec<u8>, decode: impl Fn(&[u8]) -> Result<T>) {
    if let Ok(value) = value {
        assert!(decode(&encode(&value)).is_ok_and(|again| again == value));
    }
}

/// A stored object. Its number or version is the one that it states.
fn object(kind: u8, b: &[u8]) {
    let stated = b.get(8..16).map_or(0, |n| n.iter().rev().fold(0u64, |all, n| all << 8 | u64::from(*n)));
    match kind {
        0 => again(Record::decode(b, stated), Record::encode, |b| Record::decode(b, stated)),
        1 => again(decode_delta(b, 1), |entries| encode_delta(entries).unwrap_or_default(), |b| decode_delta(b, 1)),
        2 => again(Node::decode(b, &EXTENT), Node::encode, |b| Node::decode(b, &EXTENT)),
        3 => again(Begin::decode(b), Begin::encode, Begin::decode),
        4 => again(Joined::decode(b, 1), Joined::encode, |b| Joined::decode(b, 1)),
        5 => again(Part::decode(b, 1), Part::encode, |b| Part::decode(b, 1)),
        6 => again(Verdict::decode(b), |(uuid, verdict)| verdict.encode(uuid), Verdict::decode),
        7 => again(Tag::decode(b), Tag::encode, Tag::decode),
        8 => again(Pin::decode(b), Pin::encode, Pin::decode),
        9 => again(Checkpoint::decode(b, stated), Checkpoint::encode, |b| Checkpoint::decode(b, stated)),
        10 => again(Descriptor::decode(b), Descriptor::encode, Descriptor::decode),
        _ => again(State::decode(b, stated), State::encode, |b| State::decode(b, stated)),
    }
}

/// A value of the map, or a key.
fn value(kind: u8, b: &[u8]) {
    match kind {
        12 => {
            let decode = |b: &[u8]| Cell::read(&mut Reader::new(b, "fuzzed", Address(0)));
            let encode = |cell: &Cell| {
                let mut w = Writer::new();
                cell.write(&mut w);
                let bytes = w.into_bytes();
                assert_eq!(bytes.len(), cell.size());
                bytes
            };
            again(decode(b), encode, decode);
        }
        13 => key(b),
        14 => {
            if let Ok((facts, encoded)) = fuzzing::link_facts(b) {
                let again = encoded.map(|encoded| fuzzing::link_facts(&encoded).map(|(facts, _)| facts).ok());
                assert!(again.is_none_or(|again| again == Some(facts)));
            }
        }
        15 | 16 => {
            if let Ok((link, Ok(encoded))) = fuzzing::link(b) {
                assert!(fuzzing::link(&encoded).is_ok_and(|(again, _)| again == link), "{link:?}");
            }
        }
        17 => drop(fuzzing::datatype(b)),
        18 => drop(fuzzing::attribute_type(b)),
        19 => {
            if let Ok((payloads, encoded)) = fuzzing::cells(b) {
                assert!(fuzzing::cells(&encoded).is_ok_and(|(again, _)| again == payloads));
            }
        }
        20 => {
            if let [index, block @ ..] = b {
                drop(fuzzing::cell(block, u32::from(*index)));
            }
        }
        _ => ranges(b),
    }
}

fn key(b: &[u8]) {
    if let Some((id, kind, rest)) = keys::parts(b) {
        assert_eq!(keys::key(id, kind, rest), b);
    }
    if let (Some(scaled), Some((id, ..))) = (keys::scaled(b), keys::parts(b)) {
        assert_eq!(keys::chunk(id, &scaled), b);
    }
    drop((keys::message(b), keys::beginning_with(b)));
    let Ok(name) = std::str::from_utf8(b) else { return };
    if let Some((session, pack)) = keys::pack_of(name) {
        assert_eq!(keys::pack_of(&keys::pack_name(session, pack)), Some((session, pack)));
    }
    if let Some(version) = keys::version_of(name) {
        assert_eq!(keys::version_of(&keys::record_name(version)), Some(version));
    }
}

/// A set of written bytes holds what is added.
fn ranges(b: &[u8]) {
    let mut set = Ranges::default();
    for pair in b.chunks_exact(4).take(64) {
        let (start, len) = (u64::from(pair[0]) << 8 | u64::from(pair[1]), u64::from(pair[2]) << 8 | u64::from(pair[3]));
        set.add(start..start + len);
        let one = Ranges::of(vec![(start as u32, (start + len) as u32)]);
        assert!(len == 0 || one.is_some_and(|one| set.overlaps(&one)));
    }
    assert!(set.is_whole() || Ranges::of(set.list().to_vec()).is_some_and(|again| again == set));
}

/// A container of one record, whose changes are the input.
fn record(b: &[u8]) {
    let Ok(entries) = decode_delta(b, 1) else { return };
    let delta = Delta::Inline(entries);
    let record = Record {
        version: 1,
        uuid: [1; 16],
        previous: 0,
        session: 0,
        seconds: 1,
        moves_group: false,
        label: Vec::new(),
        transaction: None,
        delta,
    };
    let store = MemoryStore::default();
    drop(store.put(&keys::record_name(1), &record.encode()));
    container(&store);
}

/// Objects: length of the name u8, name, length u32, bytes.
fn objects(mut b: &[u8]) {
    let store = MemoryStore::default();
    for _ in 0..OBJECTS_MAX {
        let [len, rest @ ..] = b else { break };
        let (name, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        let Some((len, rest)) = rest.split_first_chunk::<4>() else { break };
        let (bytes, rest) = rest.split_at(rest.len().min(u32::from_le_bytes(*len) as usize));
        if let Ok(name) = std::str::from_utf8(name) {
            drop(store.put(name, bytes));
        }
        b = rest;
    }
    container(&store);
}

/// Opens, checks and walks the container in `store`, and collects its garbage.
fn container(store: &MemoryStore) {
    drop(store.create(keys::DESCRIPTOR, &Descriptor { uuid: [1; 16], seconds: 1 }.encode()));
    let shared = Arc::new(store.copied());
    if let Ok(opened) = Container::open(shared.clone()) {
        transactions(&opened);
        for name in opened.tags().unwrap_or_default() {
            drop(opened.tag(&name));
        }
    }
    if let Ok(opened) = fuzzing::open(shared.clone()) {
        if let Some(check) = opened.connector.check() {
            drop(check.check(true, &mut |_| ()));
        }
        let spec = MountSpec { vds_missing_fill: true, ..MountSpec::new("memory") };
        if let Ok(fs) = show(opened, spec) {
            walk(&*fs, BOUNDS);
        }
    }
    if let Ok(opened) = Container::open(shared) {
        drop(gc::run(&opened, &gc::Options { keep: Keep::Versions(1), grace: 0, dry_run: false }));
    }
}

fn transactions(container: &Container) {
    for name in container.transaction_names().unwrap_or_default().into_iter().take(4) {
        let Ok(Some(transaction)) = container.transaction(&name) else { continue };
        drop(container.standing(&transaction));
        drop(transaction.own_standing());
    }
}
