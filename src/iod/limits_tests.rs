//! Bounds of what is read of a container.

use super::container::Container;
use super::delta::Entry;
use super::gc::state::GcState;
use super::keys::{self, Key, pack_name};
use super::limits::{
    BATCH_BYTES_MAX, CELLS_BYTES_MAX, DELTA_BYTES_MAX, DELTA_ENTRIES_MAX, HEADER_BYTES_MAX, NODE_BYTES_MAX, VALUE_BYTES_MAX,
};
use super::ranges::Ranges;
use super::record::{self, Delta};
use super::session::PackWriter;
use super::{Cell, Data, Extent, Outcome};
use crate::base::{Error, Result};
use crate::file::store::ObjectStore;
use crate::file::store::memory::MemoryStore;
use std::sync::Arc;

fn created() -> (MemoryStore, Container) {
    let store = MemoryStore::default();
    Container::create(Arc::new(store.clone()), Vec::new()).unwrap();
    (store.clone(), Container::open(Arc::new(store)).unwrap())
}

fn extent(len: u64) -> Extent {
    Extent { session: 1, pack: 0, offset: 0, len: u32::try_from(len).unwrap(), checksum: 0 }
}

fn is_limit<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Limit { .. }))
}

/// Nothing is requested of the store.
#[test]
fn values_past_the_limit_of_their_kind_are_not_read() {
    let (store, container) = created();
    let before = store.counters()[0];
    let value = |key: &[u8], len: u64| container.bytes_of(key, &Cell { mask: 0, data: Data::Extent(extent(len)) });
    assert!(is_limit(container.node(&extent(NODE_BYTES_MAX + 1))));
    assert!(is_limit(container.read_delta(&extent(DELTA_BYTES_MAX + 1))));
    assert!(is_limit(container.read(&extent(VALUE_BYTES_MAX + 1))));
    assert!(is_limit(value(&keys::header(1, 3), HEADER_BYTES_MAX + 1)));
    assert!(is_limit(value(&keys::key(1, keys::CELLS, b"x"), CELLS_BYTES_MAX + 1)));
    assert!(is_limit(value(&keys::key(1, keys::ATTRIBUTE, b"x"), VALUE_BYTES_MAX + 1)));
    assert!(is_limit(container.read_many(&[extent(BATCH_BYTES_MAX / 2), extent(BATCH_BYTES_MAX / 2 + 1)])));
    assert_eq!(store.counters()[0], before);
    store.put(&pack_name(1, 0), b"short").unwrap();
    assert!(!is_limit(container.node(&extent(NODE_BYTES_MAX))) && !is_limit(value(&keys::header(1, 3), HEADER_BYTES_MAX)));
}

#[test]
fn deltas_of_too_many_entries_are_refused_by_readers_and_writers() {
    let count = u32::try_from(DELTA_ENTRIES_MAX).unwrap() + 1;
    let mut bytes = count.to_le_bytes().to_vec();
    for n in 0..count {
        bytes.extend([4, 0]);
        bytes.extend(n.to_be_bytes());
        bytes.extend([0, 0]);
    }
    let found = record::decode_delta(&bytes, 1).unwrap_err().to_string();
    assert!(found.contains(&format!("{count} entries")), "{found}");
    bytes[..4].copy_from_slice(&(count - 1).to_le_bytes());
    bytes.truncate(bytes.len() - 8);
    let mut entries = record::decode_delta(&bytes, 1).unwrap();
    assert_eq!(record::encode_delta(&entries).unwrap(), bytes);
    entries.push(Entry { key: vec![255; 5], cell: None, ranges: Ranges::whole() });
    assert!(matches!(record::encode_delta(&entries), Err(Error::Refused { errno: libc::EFBIG, .. })));
}

/// Deltas of 3 MiB: few records are decoded at once, and all of them are read.
#[test]
fn records_with_long_deltas_are_read_a_few_at_a_time() {
    let (_, container) = created();
    let mut snapshot = container.snapshot(None).unwrap();
    let session = container.begin_session(&mut snapshot).unwrap();
    let first = snapshot.version();
    for n in 0..9u8 {
        let cell = || Some(Cell::inline(&[n; 4000]));
        let entries: Vec<Entry> =
            (0..800u32).map(|k| Entry { key: Key::from(k.to_be_bytes()), cell: cell(), ranges: Ranges::whole() }).collect();
        let mut packs = PackWriter::new(&container, &session);
        let delta = Delta::Extent(packs.add(&record::encode_delta(&entries).unwrap()).unwrap());
        packs.finish().unwrap();
        let record = container.record(&snapshot, session.number(), false, delta).unwrap();
        let Outcome::Committed(hash) = container.append(&snapshot, &record).unwrap() else { panic!("another writer") };
        snapshot.advance(&record, hash, &entries).unwrap();
    }
    let mut seen = Vec::new();
    container
        .each_record(first, snapshot.version(), &mut |record, _, entries| {
            assert_eq!(entries.len(), 800);
            seen.push(record.version);
            Ok(())
        })
        .unwrap();
    assert_eq!(seen, (first + 1..=snapshot.version()).collect::<Vec<_>>());
    assert_eq!(container.snapshot(None).unwrap(), snapshot);
    let mut newer = Vec::new();
    container
        .each_new(first, &mut |record, _, _| {
            newer.push(record.version);
            Ok(())
        })
        .unwrap();
    assert_eq!(newer, seen);
}

/// 2^60 versions, of which few exist.
#[test]
fn a_range_of_versions_costs_those_that_exist() {
    let (_, container) = created();
    let mut state = GcState { accounted: 1, ..GcState::default() };
    assert!(state.catch_up(&container, 1 << 60).is_err());
    let mut snapshot = container.snapshot(None).unwrap();
    assert!(state.pass_to(&container, &mut snapshot, 1 << 60, &[].into(), &mut |_| Ok(())).is_err());
}
