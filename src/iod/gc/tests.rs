//! Garbage collection over stores in memory: against models, against writers that stand still, and
//! with each rule that protects a container switched off.

use super::state::{GcState, Table};
use super::{Keep, Options, Report, account, run, run_at};
use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use crate::file::store::ObjectStore;
use crate::file::store::memory::MemoryStore;
use crate::iod::container::{Outcome, now};
use crate::iod::pin::Pin;
use crate::iod::record::{Delta, encode_delta};
use crate::iod::rules::{Rule, Rules};
use crate::iod::{Cell, Container, Data, Entry, Extent, PackWriter, Ranges, Session, Snapshot, keys, sealed};
use std::collections::BTreeMap;
use std::io;
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;

pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Bytes of a value that is in a pack.
pub(super) const LONG: usize = 6000;

pub(super) fn newest(count: u64) -> Options {
    Options { keep: Keep::Versions(count), grace: 0, dry_run: false }
}

pub(super) fn opened(store: &MemoryStore) -> Container {
    Container::open(Arc::new(store.clone())).unwrap()
}

/// A container whose garbage collection keeps only `rules`.
pub(super) fn opened_with(store: &MemoryStore, rules: Rules) -> Container {
    Container::open_with(Arc::new(store.clone()), rules).unwrap()
}

pub(super) fn collect(store: &MemoryStore, options: &Options) -> Report {
    run(&opened(store), options).unwrap()
}

pub(super) fn created() -> MemoryStore {
    let store = MemoryStore::default();
    Container::create(Arc::new(store.clone()), vec![]).unwrap();
    store
}

pub(super) fn read(container: &Container, version: Option<u64>) -> Result<Model> {
    let snapshot = container.snapshot(version)?;
    shown(container, &snapshot)
}

fn shown(container: &Container, snapshot: &Snapshot) -> Result<Model> {
    let mut found = Model::new();
    let _ = snapshot.scan(container, &(Bound::Unbounded, Bound::Unbounded), &mut |key, cell| {
        found.insert(key.to_vec(), container.bytes(cell)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

fn tag(store: &MemoryStore, name: &str, version: u64) {
    let mut w = sealed::begin(b"H5IODT1\n");
    w.u64(version).u64(0).uint(0, 2);
    store.put(&format!("tag/{name}"), &sealed::end(w)).unwrap();
}

/// A writer, whose pins last `seconds`.
pub(super) struct Writer {
    container: Container,
    session: Session,
    snapshot: Snapshot,
}

impl Writer {
    pub(super) fn new(store: Arc<dyn ObjectStore>, seconds: u32) -> Writer {
        Writer::with(store, seconds, Rules::default())
    }

    /// One that keeps only `rules`.
    pub(super) fn with(store: Arc<dyn ObjectStore>, seconds: u32, rules: Rules) -> Writer {
        let container = Container::open_with(store, rules).unwrap();
        container.set_pin_seconds(seconds);
        let mut snapshot = container.snapshot(None).unwrap();
        let session = container.begin_session(&mut snapshot).unwrap();
        Writer { container, session, snapshot }
    }

    /// A cell in a pack of its own.
    fn stored(&self, value: &[u8]) -> Result<Cell> {
        if value.len() <= 4096 {
            return Ok(Cell::inline(value));
        }
        let mut packs = PackWriter::new(&self.container, &self.session);
        let data = Data::Extent(packs.add(value)?);
        packs.finish()?;
        Ok(Cell { mask: 0, data })
    }

    fn commit(&mut self, entries: Vec<Entry>) -> Result<u64> {
        loop {
            // Changes of some keys are in a pack.
            let delta = match entries.first().map(|entry| entry.key.as_slice()) {
                Some([1 | 3 | 5 | 7]) => {
                    let mut packs = PackWriter::new(&self.container, &self.session);
                    let extent = packs.add(&encode_delta(&entries)?)?;
                    packs.finish()?;
                    Delta::Extent(extent)
                }
                _ => Delta::Inline(entries.clone()),
            };
            let record = self.container.record(&self.snapshot, self.session.number(), false, delta)?;
            match self.container.append(&self.snapshot, &record)? {
                Outcome::Committed(hash) => {
                    self.snapshot.advance(&record, hash, &entries)?;
                    self.session.settle();
                    return Ok(record.version);
                }
                Outcome::Lost => while self.container.next(&mut self.snapshot)?.is_some() {},
            }
        }
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64> {
        let cell = Some(self.stored(value)?);
        self.commit(vec![Entry { key: key.to_vec(), cell, ranges: Ranges::whole() }])
    }

    pub(super) fn end(self) {
        self.container.unpin().unwrap();
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// The stored tables are those of a count of everything.
fn check_tables(store: &MemoryStore) {
    let container = opened(store);
    let state = GcState::newest(container.store()).unwrap().unwrap();
    let of = |version: u64| account::references(&container, &container.snapshot(Some(version)).unwrap()).unwrap();
    assert_eq!(account::positive(&state.base), of(state.floor_version()));
    for (version, table) in &state.tags {
        assert_eq!(*table, of(*version), "tag of {version}");
    }
    let mut again = GcState { accounted: state.floor_version(), ..GcState::default() };
    again.catch_up(&container, state.accounted).unwrap();
    assert_eq!(state.recent, again.recent);
}

/// Random commits of several writers, some killed, with tags, checkpoints and runs in between.
#[test]
fn kept_versions_stay_and_all_else_goes() {
    for seed in 0..6 {
        let mut r = Random(seed);
        let store = created();
        let mut models: BTreeMap<u64, Model> = BTreeMap::from([(1, Model::new())]);
        let (mut writers, mut tags) = (Vec::<Writer>::new(), BTreeMap::new());
        let mut model = Model::new();
        for step in 0..150u64 {
            match r.next(12) {
                0 if writers.len() < 3 => writers.push(Writer::new(Arc::new(store.clone()), 3600)),
                1 if !writers.is_empty() => writers.remove(r.next(writers.len() as u64) as usize).end(),
                // A killed writer with a pack that nothing refers to, whose pin is over.
                2 => drop(Writer::new(Arc::new(store.clone()), 0).stored(&[9; LONG]).unwrap()),
                3 if r.next(3) == 0 => {
                    let version = *models.keys().next_back().unwrap();
                    tag(&store, &format!("t{step}"), version);
                    tags.insert(format!("t{step}"), version);
                }
                4 if !tags.is_empty() && r.next(2) == 0 => {
                    let name = tags.keys().next().unwrap().clone();
                    tags.remove(&name);
                    store.delete(&format!("tag/{name}")).unwrap();
                }
                5 => {
                    let keep = 1 + r.next(20);
                    let report = collect(&store, &newest(keep));
                    check_tables(&store);
                    let container = opened(&store);
                    for (version, model) in &models {
                        if *version >= report.floor || tags.values().any(|tagged| tagged == version) {
                            assert_eq!(read(&container, Some(*version)).unwrap(), *model, "seed {seed}, version {version}");
                        }
                    }
                    assert_eq!(read(&container, None).unwrap(), model);
                }
                6 if !writers.is_empty() => {
                    let Writer { container, session, snapshot } = &mut writers[0];
                    container.checkpoint(snapshot, session).unwrap();
                }
                _ if !writers.is_empty() => {
                    let at = r.next(writers.len() as u64) as usize;
                    let key = vec![r.next(8) as u8];
                    let value = vec![step as u8; if r.next(2) == 0 { 10 } else { LONG }];
                    let version = writers[at].put(&key, &value).unwrap();
                    model.insert(key, value);
                    models.insert(version, model.clone());
                }
                _ => {}
            }
        }
        writers.into_iter().for_each(Writer::end);
        tags.keys().for_each(|name| store.delete(&format!("tag/{name}")).unwrap());
        // The last runs move the floor past what the ones before committed.
        (0..4).for_each(|_| drop(collect(&store, &newest(1))));
        assert_eq!(read(&opened(&store), None).unwrap(), model);
        let long = model.values().filter(|value| value.len() == LONG).count();
        let count = |begin: &str| store.keys().iter().filter(|key| key.starts_with(begin)).count();
        assert!(count("d/") <= long + 3, "seed {seed}: {} packs for {long} values", count("d/"));
        assert!(count("v/") <= 6 && count("c/") <= 2 && count("g/") == 1 && count("p/") == 0, "seed {seed}: {:?}", store.keys());
    }
}

#[test]
fn a_run_without_garbage_costs_requests_of_what_is_new() {
    let cost = |values: u8| {
        let store = created();
        let mut writer = Writer::new(Arc::new(store.clone()), 3600);
        for n in 0..values {
            writer.put(&[n], &[n; LONG]).unwrap();
        }
        collect(&store, &newest(1));
        collect(&store, &newest(1));
        let container = opened(&store);
        let before = container.store().counters()[0];
        let report = run(&container, &newest(1)).unwrap();
        let idle = container.store().counters()[0] - before;
        assert_eq!((report.packs, report.versions), (0, 0));
        writer.put(b"k", b"short").unwrap();
        let before = container.store().counters()[0];
        run(&container, &Options { keep: Keep::Versions(1000), ..newest(1) }).unwrap();
        [idle, container.store().counters()[0] - before]
    };
    let small = cost(20);
    assert_eq!(small, cost(200));
    assert!(small[0] <= 8 && small[1] <= 14, "{small:?}");
}

/// A store that calls a function before it creates a record, once.
struct Frozen {
    store: MemoryStore,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Frozen {
    fn new(store: &MemoryStore) -> Arc<Frozen> {
        Arc::new(Frozen { store: store.clone(), meanwhile: Mutex::new(None) })
    }

    fn before_commit(&self, f: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock() = Some(Box::new(f));
    }
}

impl ObjectStore for Frozen {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.store.get(key, range)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.store.put(key, bytes)
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        let meanwhile = if key.starts_with("v/") { self.meanwhile.lock().take() } else { None };
        if let Some(f) = meanwhile {
            f();
        }
        self.store.create(key, bytes)
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

pub(super) fn is_stale<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Refused { errno: libc::ESTALE, .. }))
}

/// Another writer commits, and garbage is collected.
pub(super) fn overtake(store: &MemoryStore) {
    let mut other = Writer::new(Arc::new(store.clone()), 3600);
    for n in 0..5u8 {
        other.put(b"other", &[n; 10]).unwrap();
    }
    other.end();
    collect(store, &newest(1));
}

/// A writer stands still before its record is created, which takes the number of a removed record.
/// Returns what it got, and whether the container has its value then.
fn frozen_in_create(rules: Rules) -> (Result<u64>, bool) {
    let store = created();
    let frozen = Frozen::new(&store);
    let mut writer = Writer::with(frozen.clone(), 0, rules);
    let meanwhile = store.clone();
    frozen.before_commit(move || overtake(&meanwhile));
    let done = writer.put(b"mine", b"value");
    let model = read(&opened(&store), None).unwrap();
    assert_eq!(model[b"other".as_slice()], [4; 10]);
    let left = store.keys().iter().filter(|key| key.starts_with("v/")).count();
    assert!(done.is_ok() || left <= 4, "the record is removed: {:?}", store.keys());
    (done, model.contains_key(b"mine".as_slice()))
}

#[test]
fn a_record_in_place_of_a_removed_one_does_not_count() {
    let (done, there) = frozen_in_create(Rules::default());
    assert!(is_stale(&done) && !there, "{done:?}");
    let (done, there) = frozen_in_create(Rules::breaking(Some(Rule::FloorAfterCommit)));
    assert!(done.is_ok() && !there, "without the rule the commit is lost in silence: {done:?}");
}

/// A session that counts as ended wakes up, with a value in a pack that was removed. True: the
/// container is readable.
fn frozen_before_commit(rules: Rules) -> (Result<u64>, bool) {
    let store = created();
    let mut writer = Writer::with(Arc::new(store.clone()), 0, rules);
    let cell = writer.stored(&[7; LONG]).unwrap();
    overtake(&store);
    while writer.container.next(&mut writer.snapshot).unwrap().is_some() {}
    let done = writer.container.snapshot(None).and_then(|snapshot| {
        writer.snapshot = snapshot;
        writer.commit(vec![Entry { key: b"mine".to_vec(), cell: Some(cell), ranges: Ranges::whole() }])
    });
    let readable = read(&opened(&store), None).is_ok();
    (done, readable)
}

#[test]
fn a_session_that_counts_as_ended_commits_nothing() {
    let (done, readable) = frozen_before_commit(Rules::default());
    assert!(is_stale(&done) && readable, "{done:?}");
    let (done, readable) = frozen_before_commit(Rules::breaking(Some(Rule::FloorBeforeCommit)));
    assert!(done.is_ok() && !readable, "without the rule the container refers to a removed pack: {done:?}");
}

/// A commit under way, by a session whose pack is removed meanwhile, based on the newest version.
fn frozen_at_the_tip(rules: Rules) -> (Result<u64>, bool) {
    let store = created();
    // A floor is there: the run below does not move it.
    collect(&store, &newest(1000));
    let frozen = Frozen::new(&store);
    let mut writer = Writer::new(frozen.clone(), 0);
    let meanwhile = store.clone();
    frozen.before_commit(move || {
        let report = run(&opened_with(&meanwhile, rules), &newest(1000)).unwrap();
        assert_eq!(report.packs, 1, "{report:?}");
    });
    let done = writer.put(b"mine", &[7; LONG]);
    (done, read(&opened(&store), None).is_ok())
}

#[test]
fn commits_under_way_fail_when_their_session_has_ended() {
    let (done, readable) = frozen_at_the_tip(Rules::default());
    assert!(is_stale(&done) && readable, "{done:?}");
    let (done, readable) = frozen_at_the_tip(Rules::breaking(Some(Rule::Fence)));
    assert!(done.is_ok() && !readable, "without the rule the container refers to a removed pack: {done:?}");
}

/// A pinned reader of an old version. True: it is readable after a run.
fn pinned_reader(rules: Rules) -> bool {
    let store = created();
    let mut writer = Writer::new(Arc::new(store.clone()), 3600);
    writer.put(b"k", &[1; LONG]).unwrap();
    writer.container.checkpoint(&mut writer.snapshot, &writer.session).unwrap();
    let reader = opened(&store);
    let snapshot = reader.snapshot(None).unwrap();
    reader.pin(snapshot.pinned(), None).unwrap();
    for n in 2..9 {
        writer.put(b"k", &[n; LONG]).unwrap();
    }
    writer.end();
    run(&opened_with(&store, rules), &newest(1)).unwrap();
    let found = shown(&reader, &snapshot);
    reader.unpin().unwrap();
    if found.is_ok() {
        // Without the pin, the version goes.
        collect(&store, &newest(1));
        let error = opened(&store).snapshot(Some(snapshot.version())).and_then(|s| shown(&reader, &s)).unwrap_err();
        assert!(error.to_string().contains("version") || error.to_string().contains("garbage"), "{error}");
    }
    found.is_ok_and(|model| model[b"k".as_slice()] == [1; LONG])
}

#[test]
fn pinned_versions_stay() {
    assert!(pinned_reader(Rules::default()));
    assert!(!pinned_reader(Rules::breaking(Some(Rule::Pins))));
}

fn tagged(rules: Rules) -> bool {
    let store = created();
    let mut writer = Writer::new(Arc::new(store.clone()), 3600);
    let version = writer.put(b"k", &[1; LONG]).unwrap();
    tag(&store, "release-1", version);
    for n in 2..9 {
        writer.put(b"k", &[n; LONG]).unwrap();
    }
    writer.end();
    run(&opened_with(&store, rules), &newest(1)).unwrap();
    assert!(opened(&store).snapshot(Some(version + 1)).is_err());
    read(&opened(&store), Some(version)).is_ok_and(|model| model[b"k".as_slice()] == [1; LONG])
}

#[test]
fn tagged_versions_stay() {
    assert!(tagged(Rules::default()));
    assert!(!tagged(Rules::breaking(Some(Rule::Tags))));
}

fn opens_after_a_run(rules: Rules) -> bool {
    let store = created();
    let mut writer = Writer::new(Arc::new(store.clone()), 3600);
    for n in 0..9u8 {
        writer.put(&[n], &[n; LONG]).unwrap();
    }
    writer.end();
    assert!(run(&opened_with(&store, rules), &newest(1)).unwrap().versions >= 8);
    read(&opened(&store), None).is_ok_and(|model| model.len() == 9)
}

#[test]
fn a_checkpoint_is_written_before_records_are_removed() {
    assert!(opens_after_a_run(Rules::default()));
    assert!(!opens_after_a_run(Rules::breaking(Some(Rule::FloorCheckpoint))));
}

fn unpinned_reader_in_the_grace(rules: Rules) -> bool {
    let store = created();
    let mut writer = Writer::new(Arc::new(store.clone()), 3600);
    writer.put(b"k", &[1; LONG]).unwrap();
    let reader = opened(&store);
    let snapshot = reader.snapshot(None).unwrap();
    for n in 2..9 {
        writer.put(b"k", &[n; LONG]).unwrap();
    }
    writer.end();
    let day = Options { grace: 86_400, ..newest(1) };
    // Sessions count as ended when they are older than the grace.
    for hours in [25, 26, 40] {
        run_at(&opened_with(&store, rules), &day, now() + hours * 3600).unwrap();
    }
    let found = shown(&reader, &snapshot);
    if found.is_ok() {
        let late = run_at(&opened(&store), &day, now() + 50 * 3600).unwrap();
        assert!(late.versions > 0 && late.packs > 0, "a run after the grace deletes: {late:?}");
        assert!(shown(&reader, &snapshot).unwrap_err().to_string().contains("garbage collection"));
    }
    found.is_ok()
}

#[test]
fn deletion_waits_for_the_grace() {
    assert!(unpinned_reader_in_the_grace(Rules::default()));
    assert!(!unpinned_reader_in_the_grace(Rules::breaking(Some(Rule::Grace))));
}

#[test]
fn a_dry_run_changes_nothing() {
    let store = created();
    let mut writer = Writer::new(Arc::new(store.clone()), 3600);
    for n in 0..9 {
        writer.put(b"k", &[n; LONG]).unwrap();
    }
    writer.end();
    let before = store.keys();
    let report = collect(&store, &Options { dry_run: true, ..newest(1) });
    assert_eq!((store.keys(), report.floor, report.packs), (before, 11, 0));
    assert_eq!(report.doomed, 8, "{report:?}");
}

/// Objects of a transaction hold everything, until they are older than the grace.
#[test]
fn unfinished_transactions_hold_all_packs() {
    let store = created();
    let mut writer = Writer::new(Arc::new(store.clone()), 0);
    let part = writer.stored(&[5; LONG]).unwrap();
    for n in 0..5 {
        writer.put(b"k", &[n; LONG]).unwrap();
    }
    let Data::Extent(part) = part.data else { panic!("it is long") };
    store.put("t/run/begin", b"begin").unwrap();
    store.put("t/run/p-1", b"part").unwrap();
    let day = Options { grace: 86_400, ..newest(1) };
    let at = |hours: u64| run_at(&opened(&store), &day, now() + hours * 3600).unwrap();
    let held = at(30);
    assert_eq!((held.packs, held.doomed, held.versions), (0, 0, 0), "{held:?}");
    assert!(!held.notes.is_empty());
    // It ends: what refers to its packs is committed.
    writer.container.set_pin_seconds(3600);
    let cell = Some(Cell { mask: 0, data: Data::Extent(part) });
    writer.commit(vec![Entry { key: b"part".to_vec(), cell, ranges: Ranges::whole() }]).unwrap();
    writer.end();
    store.put("t/run/end", b"end").unwrap();
    for hours in [31, 56, 81, 106] {
        at(hours);
    }
    assert_eq!(read(&opened(&store), None).unwrap()[b"part".as_slice()], [5; LONG]);
    assert!(store.keys().contains(&"t/run/end".to_owned()));
    // Another one was never finished: it goes, and holds nothing then.
    store.put("t/lost/begin", b"begin").unwrap();
    store.put("q/1", b"part").unwrap();
    assert_eq!(at(200).others, 0);
    assert_eq!(at(225).others, 2);
    assert!(!store.keys().iter().any(|key| key.starts_with("t/lost") || key.starts_with("q/")));
}

#[test]
fn sparse_packs_are_rewritten_beside_writers() {
    let store = created();
    let mut writer = Writer::new(Arc::new(store.clone()), 3600);
    let mut packs = PackWriter::new(&writer.container, &writer.session);
    let cells: Vec<Cell> = (0..10u8).map(|n| Cell { mask: 0, data: Data::Extent(packs.add(&[n; LONG]).unwrap()) }).collect();
    packs.finish().unwrap();
    let entry = |(n, cell): (u8, &Cell)| Entry { key: keys::chunk(1, &[n.into()]), cell: Some(cell.clone()), ranges: Ranges::whole() };
    writer.commit((0u8..).zip(&cells).map(entry).collect()).unwrap();
    for n in 0..7 {
        writer.put(&keys::chunk(1, &[n]), b"short").unwrap();
    }
    writer.end();
    let first = collect(&store, &newest(1));
    assert_eq!((first.rewritten, first.packs), (1, 0));
    // A writer that wrote one of the moved chunks before: no conflict.
    let container = opened(&store);
    let moved = container.snapshot(None).unwrap().version();
    let (record, _) = container.read_record(moved).unwrap().unwrap();
    let entries = container.entries(&record).unwrap();
    assert!(entries.len() == 3 && entries.iter().all(Entry::is_moved));
    let model = read(&container, None).unwrap();
    assert_eq!(model[&keys::chunk(1, &[9])], [9; LONG]);
    let second = collect(&store, &newest(1));
    // The old pack, and the one of the tree that was replaced.
    assert_eq!((second.packs, second.rewritten), (2, 0), "{second:?}");
    let Data::Extent(old) = cells[9].data else { panic!("it is long") };
    assert!(!store.keys().contains(&keys::pack_name(old.session, old.pack)));
    assert_eq!(read(&opened(&store), None).unwrap(), model);
}

/// Decodes all truncations and flipped bits of `bytes`: each must be an error.
fn damaged<T: std::fmt::Debug>(bytes: &[u8], decode: &dyn Fn(&[u8]) -> Result<T>) {
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
fn damaged_states_and_pins_are_errors() {
    let table = Table::from([((1, 2), 3), ((4, 5), 6)]);
    let state = GcState {
        number: 9,
        changed: 8,
        accounted: 10,
        dead_below: 7,
        alive: [3, 5].into(),
        floors: vec![(2, 100), (4, 200)],
        swept: 2,
        doomed: BTreeMap::from([((1, 1), 50)]),
        leftovers: BTreeMap::from([("q/1".to_owned(), 60)]),
        base: table.clone(),
        recent: Table::new(),
        tags: BTreeMap::from([(1, table.clone())]),
        lengths: table,
        rewritten: [(4, 5)].into(),
    };
    assert_eq!(GcState::decode(&state.encode(), 9).unwrap(), state);
    assert!(GcState::decode(&state.encode(), 8).is_err());
    damaged(&state.encode(), &|bytes| GcState::decode(bytes, 9));
    let pin = Pin { version: 1, checkpoint: 2, session: 3, settled: 4, seconds: 5, lasts: 6, label: b"me".to_vec() };
    assert_eq!(Pin::decode(&pin.encode()).unwrap(), pin);
    damaged(&pin.encode(), &Pin::decode);
    assert!(pin.lasts_at(10, 0) && !pin.lasts_at(11, 0) && pin.lasts_at(20, 10));
    let extent = Extent { session: 1, pack: 2, offset: 3, len: 4, checksum: 5 };
    assert!(!Entry { key: vec![], cell: Some(Cell { mask: 0, data: Data::Extent(extent) }), ranges: Ranges::whole() }.is_moved());
}
