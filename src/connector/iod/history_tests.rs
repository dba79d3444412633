//! Histories of several sessions of one container, checked against each of its versions.
//!
//! Sessions make batches of changes: registers in one chunk, transfers between two datasets, files
//! in a group, files that move, an attribute that counts. What a version changed must be one batch
//! as a whole, and each acknowledged batch one version. `tests/objectstore/history.py` does the
//! same with mounts.

use super::access::IodConnector;
use super::kind::root_entries;
use super::tests::{Random, empty, open_in, open_with};
use crate::base::{Error, Result};
use crate::connector::edit::{Edit, Taken};
use crate::connector::{Connector, LinkTarget, ObjectId};
use crate::file::store::ObjectStore;
use crate::file::store::faulty::{Fault, FaultyStore};
use crate::file::store::local::LocalStore;
use crate::file::store::memory::MemoryStore;
use crate::iod::rules::{Rule, Rules};
use crate::iod::{Container, Snapshot};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Registers, and accounts in each of two datasets.
const CELLS: usize = 8;
/// Value of each account at first.
const START: u64 = 1000;
/// Files that move between two groups.
const MOVED: [&str; 3] = ["o0", "o1", "o2"];
/// Bytes of a file that a batch makes: more than a record takes.
const FILE_BYTES: usize = 5000;

/// The state of a version, by name: a register, an account, a file, the group of a moved file, the
/// count.
type Shown = BTreeMap<String, u64>;

/// What a session changes in one commit, by name; `None`: removed.
type Batch = BTreeMap<String, Option<u64>>;

/// Opens a new session.
type Sessions<'a> = dyn Fn() -> Result<Arc<IodConnector>> + Sync + 'a;

/// How a commit ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Acknowledged,
    Refused,
    /// The store did not answer, and the session ended.
    InDoubt,
}

/// What became of a batch.
struct Done {
    batch: Batch,
    end: End,
}

fn violation(text: impl Into<String>) -> Error {
    Error::refused(libc::EIO, text.into())
}

fn child(c: &IodConnector, group: ObjectId, name: &str) -> Result<ObjectId> {
    match c.lookup(group, name.as_bytes())?.map(|link| link.target) {
        Some(LinkTarget::Hard(id)) => Ok(id),
        _ => Err(violation(format!("{name} is lost"))),
    }
}

fn names(c: &IodConnector, group: ObjectId) -> Result<Vec<String>> {
    let mut all = Vec::new();
    c.list(group, 0, &mut |link, _| {
        all.push(String::from_utf8_lossy(&link.name).into_owned());
        ControlFlow::Continue(())
    })?;
    Ok(all)
}

/// All bytes of a dataset. Errors: a pack of it is lost.
fn read(c: &IodConnector, id: ObjectId) -> Result<Vec<u8>> {
    let content = c.content(id, crate::connector::Form::Main)?;
    let mut all = vec![0; usize::try_from(content.size()?).unwrap()];
    content.read(0, &mut all)?;
    Ok(all)
}

fn numbers(c: &IodConnector, name: &str) -> Result<Vec<u64>> {
    let all = read(c, child(c, c.root(), name)?)?;
    Ok(all.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect())
}

fn prepare(c: &IodConnector) -> Result<()> {
    let root = c.root();
    for (name, value) in [("r", 0), ("x", START), ("y", START)] {
        let id = c.create_file(root, name.as_bytes())?;
        c.write(id, 0, &value.to_le_bytes().repeat(CELLS))?;
    }
    for group in ["a", "b", "s"] {
        c.create_group(root, group.as_bytes())?;
    }
    for name in MOVED {
        c.create_file(child(c, root, "a")?, name.as_bytes())?;
    }
    c.close()
}

/// All of the state.
fn shown(c: &IodConnector) -> Result<Shown> {
    let mut all = Shown::new();
    for name in ["r", "x", "y"] {
        for (i, value) in numbers(c, name)?.into_iter().enumerate() {
            all.insert(format!("{name}{i}"), value);
        }
    }
    for (number, group) in [(1, "a"), (2, "b")] {
        for name in names(c, child(c, c.root(), group)?)? {
            if all.insert(name.clone(), number).is_some() {
                return Err(violation(format!("{name} has two places")));
            }
        }
    }
    let count = c.attribute(c.root(), b"count")?;
    all.insert("count".into(), count.and_then(|value| value.bytes.first().copied()).unwrap_or(0).into());
    let files = child(c, c.root(), "s")?;
    for name in names(c, files)? {
        let number: u64 = name.parse().unwrap();
        let content = read(c, child(c, files, &name)?)?;
        if content != content_of(number) {
            return Err(violation(format!("file {name} has other bytes")));
        }
        all.insert(name, number);
    }
    Ok(all)
}

/// Bytes of the file `number`, which no other file has.
fn content_of(number: u64) -> Vec<u8> {
    number.to_le_bytes().iter().copied().cycle().take(FILE_BYTES).collect()
}

/// Makes a random batch. `number` is of no other batch; the batch writes it to a register.
fn make(c: &IodConnector, random: &mut Random, number: u64) -> Result<Batch> {
    let (state, root) = (shown(c)?, c.root());
    let mut batch = Batch::new();
    let put = |name: &str, i: usize, value: u64| c.write(child(c, root, name)?, 8 * i as u64, &value.to_le_bytes());
    let register = random.next(CELLS as u64) as usize;
    put("r", register, number)?;
    batch.insert(format!("r{register}"), Some(number));
    for _ in 0..random.next(3) {
        match random.next(5) {
            0 => {
                let (i, j) = (random.next(CELLS as u64) as usize, random.next(CELLS as u64) as usize);
                let (from, to) = (format!("x{i}"), format!("y{j}"));
                if batch.contains_key(&from) || batch.contains_key(&to) {
                    continue;
                }
                let amount = 1 + random.next(20).min(state[&from] - 1);
                put("x", i, state[&from] - amount)?;
                put("y", j, state[&to] + amount)?;
                batch.extend([(from.clone(), Some(state[&from] - amount)), (to.clone(), Some(state[&to] + amount))]);
            }
            1 if !batch.contains_key(&number.to_string()) => {
                let id = c.create_file(child(c, root, "s")?, number.to_string().as_bytes())?;
                c.write(id, 0, &content_of(number))?;
                batch.insert(number.to_string(), Some(number));
            }
            2 => {
                let old: Vec<_> = state.keys().filter(|k| k.parse::<u64>().is_ok() && !batch.contains_key(*k)).collect();
                let Some(name) = old.get(random.next(old.len().max(1) as u64) as usize) else { continue };
                c.unlink(child(c, root, "s")?, name.as_bytes(), false)?;
                batch.insert((*name).clone(), None);
            }
            3 => {
                let name = MOVED[random.next(3) as usize];
                if batch.contains_key(name) {
                    continue;
                }
                let (from, to) = if state[name] == 1 { ("a", "b") } else { ("b", "a") };
                let (from, to) = (child(c, root, from)?, child(c, root, to)?);
                c.rename((from, name.as_bytes()), (to, name.as_bytes()), Taken::Refuse)?;
                batch.insert(name.into(), Some(3 - state[name]));
            }
            // Two sessions count to the same number.
            4 if !batch.contains_key("count") => {
                let count = state["count"] + 1;
                c.set_attribute_bytes(root, b"count", &[u8::try_from(count).unwrap()])?;
                batch.insert("count".into(), Some(count));
            }
            _ => {}
        }
    }
    Ok(batch)
}

/// Writes a checkpoint of the session's version.
fn checkpoint(c: &IodConnector) -> Result<()> {
    let mut state = c.states.next();
    let Some(session) = state.session.clone() else { return Ok(()) };
    c.container.checkpoint(&mut state.snapshot, &session)
}

/// Runs sessions in one thread, in a random order of their batches and commits.
fn simulate(sessions: &Sessions<'_>, seed: u64, steps: u64) -> Result<Vec<Done>> {
    let mut random = Random(seed);
    let mut open: [Option<(Arc<IodConnector>, Option<Batch>)>; 3] = Default::default();
    let mut all = Vec::new();
    for step in 0..steps {
        let at = &mut open[random.next(3) as usize];
        let Some((c, batch)) = at else {
            *at = answered(sessions())?.map(|c| (c, None));
            continue;
        };
        let Some(made) = batch.take() else {
            match random.next(12) {
                0 => *at = None,
                1 => drop(answered(checkpoint(c))?),
                // A batch number of 9 digits is no name of a register.
                _ => match answered(make(c, &mut random, 100_000_000 + step))? {
                    Some(made) => *batch = Some(made),
                    None => *at = None,
                },
            }
            continue;
        };
        match Edit::commit(&**c) {
            Ok(()) => all.push(Done { batch: made, end: End::Acknowledged }),
            Err(Error::Io { .. }) if random.next(5) > 0 => *batch = Some(made),
            Err(e) => {
                let end = if matches!(e, Error::Io { .. }) { End::InDoubt } else { End::Refused };
                all.push(Done { batch: made, end });
                *at = None;
            }
        }
    }
    for (_, batch) in open.into_iter().flatten() {
        all.extend(batch.map(|batch| Done { batch, end: End::InDoubt }));
    }
    Ok(all)
}

/// A result; `None`: the store did not answer.
fn answered<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(Error::Io { .. }) => Ok(None),
        result => result.map(Some),
    }
}

/// Runs sessions in threads.
fn race(sessions: &Sessions<'_>, seed: u64, batches: u64) -> Result<Vec<Done>> {
    let number = AtomicU64::new(100_000_000);
    let run = |thread: u64| {
        let (mut random, mut all, mut session) = (Random(seed + thread), Vec::new(), None);
        for _ in 0..batches {
            let c = match session.take() {
                Some(c) => c,
                None => sessions()?,
            };
            let batch = make(&c, &mut random, number.fetch_add(1, Ordering::Relaxed))?;
            let acknowledged = Edit::commit(&*c).is_ok();
            all.push(Done { batch, end: if acknowledged { End::Acknowledged } else { End::Refused } });
            session = acknowledged.then_some(c);
        }
        Ok(all)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || run(n))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect::<Result<Vec<_>>>().map(|all| all.into_iter().flatten().collect())
    })
}

/// All values of a version.
fn values(container: &Container, snapshot: &Snapshot) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut all = BTreeMap::new();
    let _ = snapshot.scan(container, &(Bound::Unbounded, Bound::Unbounded), &mut |key, cell| {
        all.insert(key.to_vec(), container.bytes(cell)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(all)
}

/// Checks that the versions after `first` are the acknowledged batches. Returns how many there are.
fn check(store: &Arc<dyn ObjectStore>, first: u64, done: &[Done]) -> Result<usize> {
    let container = Container::open(store.clone())?;
    let last = container.snapshot(None)?.version();
    let open = |version| open_in(store.clone(), Some(version)).and_then(|c| shown(&c));
    let (mut before, mut found) = (open(first)?, BTreeSet::new());
    // By the records alone, without checkpoints.
    let mut replayed = Snapshot::empty();
    for version in 1..=last {
        if container.next(&mut replayed)?.is_none() {
            return Err(violation(format!("version {version} is missing")));
        }
        if version <= first {
            continue;
        }
        if values(&container, &replayed)? != values(&container, &container.snapshot(Some(version))?)? {
            return Err(violation(format!("the checkpoint before version {version} has other values")));
        }
        let after = open(version)?;
        let accounts = |c: char| after.iter().filter(|(name, _)| name.starts_with(c)).map(|(_, n)| *n).sum::<u64>();
        if accounts('x') + accounts('y') != 2 * START * CELLS as u64 {
            return Err(violation(format!("version {version} has another sum of accounts")));
        }
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let changed = names.into_iter().filter(|n| before.get(*n) != after.get(*n)).map(|n| (n.clone(), after.get(n).copied()));
        let changed: Batch = changed.collect();
        if !changed.is_empty() {
            let which = done.iter().position(|d| d.batch == changed);
            let which = which.ok_or_else(|| violation(format!("version {version} is no batch: {changed:?}")))?;
            if done[which].end == End::Refused || !found.insert(which) {
                return Err(violation(format!("version {version} is a batch that was refused, or committed before")));
            }
        }
        before = after;
    }
    match done.iter().enumerate().find(|(i, d)| d.end == End::Acknowledged && !found.contains(i)) {
        Some((_, lost)) => Err(violation(format!("an acknowledged batch is lost: {:?}", lost.batch))),
        None => Ok(found.len()),
    }
}

/// Prepares a container in `store`, runs sessions that keep only `rules` with stores of `wrap`, and
/// checks it.
fn history(
    store: &Arc<dyn ObjectStore>,
    wrap: &(dyn Fn(u64) -> Arc<dyn ObjectStore> + Sync),
    rules: Rules,
    (seed, threads): (u64, bool),
) -> Result<usize> {
    prepare(&*open_in(store.clone(), None)?)?;
    let first = Container::open(store.clone())?.snapshot(None)?.version();
    let number = AtomicU64::new(0);
    let sessions = || open_with(wrap(number.fetch_add(1, Ordering::Relaxed)), None, rules);
    let done = if threads { race(&sessions, seed, 15)? } else { simulate(&sessions, seed, 120)? };
    check(store, first, &done)
}

/// A history over a store in memory, of which each session sees `wrap`.
fn in_memory(wrap: fn(MemoryStore, u64) -> Arc<dyn ObjectStore>, rules: Rules, seed: u64) -> Result<usize> {
    let store = empty();
    let shared: Arc<dyn ObjectStore> = Arc::new(store.clone());
    history(&shared, &|session| wrap(store.clone(), seed * 31 + session), rules, (seed, false))
}

fn plain(store: MemoryStore, _: u64) -> Arc<dyn ObjectStore> {
    Arc::new(store)
}

/// One reply of each session is lost.
fn losing(store: MemoryStore, random: u64) -> Arc<dyn ObjectStore> {
    let number = Random(random).next(30) as i64;
    Arc::new(FaultyStore::new(store, Fault::LostReply, number))
}

/// A store that does not answer now and then, for some requests. The first of them may take effect.
struct Outages {
    store: MemoryStore,
    /// Changing requests until the next outage, and requests until it is over.
    left: crate::base::locks::Mutex<(Random, u64, u64)>,
}

impl Outages {
    fn request<T>(&self, changes: bool, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut left = self.left.lock();
        let (random, until, failing) = &mut *left;
        // An error after which a request is not repeated at once.
        let down = || Err(io::Error::from_raw_os_error(libc::EHOSTUNREACH));
        if *failing > 0 {
            *failing -= 1;
            return down();
        }
        *until = until.saturating_sub(changes.into());
        if *until > 0 {
            drop(left);
            return f();
        }
        (*until, *failing) = (3 + random.next(12), random.next(6));
        if random.next(2) == 0 {
            f()?;
        }
        down()
    }
}

impl ObjectStore for Outages {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.request(false, || self.store.get(key, range))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.request(true, || self.store.put(key, bytes))
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        self.request(true, || self.store.create(key, bytes))
    }

    fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
        self.request(false, || self.store.list_after(prefix, after))
    }

    fn head(&self, key: &str) -> io::Result<Option<u64>> {
        self.request(false, || self.store.head(key))
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        self.request(true, || self.store.delete(key))
    }
}

fn outages(store: MemoryStore, random: u64) -> Arc<dyn ObjectStore> {
    Arc::new(Outages { store, left: crate::base::locks::Mutex::new((Random(random), 8, 0)) })
}

/// Rounds of a random test.
fn rounds(few: u64, many: u64) -> u64 {
    if std::env::var_os("H5DIR_LONG").is_some() { many } else { few }
}

#[test]
fn each_version_is_one_acknowledged_batch() {
    for seed in 1..=rounds(6, 300) {
        for wrap in [plain, losing, outages] {
            let versions = in_memory(wrap, Rules::default(), seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert!(versions > 10, "seed {seed}: {versions}");
        }
    }
}

#[test]
fn racing_threads_commit_each_batch_once() {
    for seed in 1..=rounds(2, 50) {
        let store = empty();
        let shared: Arc<dyn ObjectStore> = Arc::new(store.clone());
        history(&shared, &|_| Arc::new(store.clone()), Rules::default(), (seed, true)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let local = || Arc::new(LocalStore::open(folder.path()).unwrap()) as Arc<dyn ObjectStore>;
        Container::create(local(), root_entries()).unwrap();
        history(&local(), &|_| local(), Rules::default(), (seed, true)).unwrap();
    }
}

/// A server that ignores If-None-Match.
struct Overwriting(MemoryStore);

/// A store that makes what was put durable only at the second creation after it.
struct Late {
    store: MemoryStore,
    waiting: crate::base::locks::Mutex<VecDeque<Vec<(String, Vec<u8>)>>>,
}

impl ObjectStore for Overwriting {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.0.get(key, range)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.put(key, bytes)
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        self.0.put(key, bytes).map(|()| true)
    }

    fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
        self.0.list_after(prefix, after)
    }

    fn head(&self, key: &str) -> io::Result<Option<u64>> {
        self.0.head(key)
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        self.0.delete(key)
    }
}

impl ObjectStore for Late {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.store.get(key, range)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        let mut waiting = self.waiting.lock();
        match waiting.back_mut() {
            Some(newest) => newest.push((key.to_owned(), bytes.to_vec())),
            None => waiting.push_back(vec![(key.to_owned(), bytes.to_vec())]),
        }
        Ok(())
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        let mut waiting = self.waiting.lock();
        waiting.push_back(Vec::new());
        if waiting.len() > 2 {
            for (key, bytes) in waiting.pop_front().unwrap_or_default() {
                self.store.put(&key, &bytes)?;
            }
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

/// A history checker that finds nothing proves nothing: each rule of the protocol is broken once.
#[test]
fn each_broken_rule_is_noticed() {
    let overwriting = |store: MemoryStore, _: u64| Arc::new(Overwriting(store)) as Arc<dyn ObjectStore>;
    let late = |store: MemoryStore, _: u64| Arc::new(Late { store, waiting: crate::base::locks::Mutex::default() }) as Arc<dyn ObjectStore>;
    type Wrap = fn(MemoryStore, u64) -> Arc<dyn ObjectStore>;
    let cases: [(&str, Option<Rule>, Wrap); 8] = [
        ("a record is created once", None, overwriting),
        ("a pack is stored before its record", None, late),
        ("a lost reply is read back", Some(Rule::ReadBack), losing),
        ("an attempt without an answer is the writer's own", Some(Rule::InDoubt), outages),
        ("writes to the same bytes conflict", Some(Rule::Overlap), plain),
        ("a session writes its own bytes only", Some(Rule::Ranges), plain),
        ("a session has a number of its own", Some(Rule::SessionIds), plain),
        ("a checkpoint has all values", Some(Rule::Checkpoint), plain),
    ];
    for (name, rule, wrap) in cases {
        let noticed = (1..=6).find_map(|seed| in_memory(wrap, Rules::breaking(rule), seed).err());
        let noticed = noticed.unwrap_or_else(|| panic!("not noticed: {name}"));
        println!("{name}: {noticed}");
    }
}
