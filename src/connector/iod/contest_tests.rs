//! Many writers of one container that commit at the same time: nothing is lost, few attempts are,
//! and each writer gets its share.

use super::access::IodConnector;
use super::tests::{bytes, empty, open_in};
use crate::connector::Connector;
use crate::connector::edit::Edit;
use crate::file::store::ObjectStore;
use crate::file::store::local::LocalStore;
use crate::file::store::memory::MemoryStore;
use crate::iod::Container;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// A store whose requests take a time, half of it before they act. Counts creations of records.
struct Distant {
    store: Arc<dyn ObjectStore>,
    delay: Duration,
    creations: Arc<AtomicU64>,
}

impl Distant {
    fn request<T>(&self, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        std::thread::sleep(self.delay / 2);
        let done = f();
        std::thread::sleep(self.delay / 2);
        done
    }
}

impl ObjectStore for Distant {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.request(|| self.store.get(key, range))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.request(|| self.store.put(key, bytes))
    }

    fn settle(&self) -> io::Result<()> {
        self.store.settle()
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        if key.starts_with("v/") {
            self.creations.fetch_add(1, Ordering::Relaxed);
        }
        self.request(|| self.store.create(key, bytes))
    }

    fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
        self.request(|| self.store.list_after(prefix, after))
    }

    fn head(&self, key: &str) -> io::Result<Option<u64>> {
        self.request(|| self.store.head(key))
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        self.request(|| self.store.delete(key))
    }
}

/// What writers got.
struct Figures {
    total: Duration,
    p50: Duration,
    p99: Duration,
    /// Creations of records for each commit.
    creations: f64,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ratio = self.p99.as_secs_f64() / self.p50.as_secs_f64();
        let Figures { total, p50, p99, creations } = self;
        write!(f, "{total:.2?}, p50 {p50:.1?}, p99 {p99:.1?} ({ratio:.1}), {creations:.2} creations a commit")
    }
}

/// A dataset of one chunk, in which each writer has a byte.
fn container() -> MemoryStore {
    let store = empty();
    let c = open_in(Arc::new(store.clone()), None).unwrap();
    let id = c.create_file(c.root(), b"shared").unwrap();
    c.write(id, 0, &[0; 256]).unwrap();
    c.close().unwrap();
    store
}

/// A change of one writer: an attribute of its own, and a byte of the shared chunk.
fn change(c: &IodConnector, writer: u8, round: u8) {
    let root = c.root();
    let id = c.resolve(root, b"shared").unwrap().unwrap();
    c.write(id, writer.into(), &[round]).unwrap();
    c.set_attribute_bytes(root, format!("w{writer}").as_bytes(), &[round]).unwrap();
}

/// `writers` threads make `rounds` disjoint changes each. Each is a session in its own store.
fn contest(stores: &(dyn Fn() -> Arc<dyn ObjectStore> + Sync), delay: Duration, writers: u8, rounds: u8) -> Figures {
    let creations = Arc::new(AtomicU64::new(0));
    let begin = Barrier::new(usize::from(writers));
    let run = |writer: u8| {
        let store = Arc::new(Distant { store: stores(), delay, creations: creations.clone() });
        let c = open_in(store, None).unwrap();
        let mut latencies = Vec::new();
        if begin.wait().is_leader() {
            creations.store(0, Ordering::Relaxed);
        }
        begin.wait();
        for round in 1..=rounds {
            change(&c, writer, round);
            let start = Instant::now();
            Edit::commit(&*c).unwrap();
            latencies.push((start, Instant::now()));
        }
        latencies
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || run(writer))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let (first, last) = (all.iter().map(|a| a.0).min().unwrap(), all.iter().map(|a| a.1).max().unwrap());
    let mut latencies: Vec<Duration> = all.iter().map(|(start, end)| *end - *start).collect();
    latencies.sort();
    let commits = all.len();
    // Each change of each writer is there.
    let store = stores();
    let c = open_in(store.clone(), None).unwrap();
    let shared = bytes(&*c, c.resolve(c.root(), b"shared").unwrap().unwrap());
    for writer in 0..writers {
        let attribute = c.attribute(c.root(), format!("w{writer}").as_bytes()).unwrap().unwrap();
        assert_eq!((shared[usize::from(writer)], attribute.bytes), (rounds, vec![rounds]), "writer {writer}");
    }
    let container = Container::open(store).unwrap();
    let changed = |version| !container.entries(&container.read_record(version).unwrap().unwrap().0).unwrap().is_empty();
    let versions = container.versions_after(2, usize::MAX).unwrap().into_iter().filter(|version| changed(*version)).count();
    // One for each commit, and that of the shared dataset.
    assert_eq!(versions, commits + 1);
    Figures {
        total: last - first,
        p50: latencies[commits / 2],
        p99: latencies[(commits * 99 / 100).min(commits - 1)],
        creations: creations.load(Ordering::Relaxed) as f64 / commits as f64,
    }
}

fn in_memory(delay: Duration, writers: u8, rounds: u8) -> Figures {
    let store = container();
    contest(&|| Arc::new(store.clone()), delay, writers, rounds)
}

fn in_folder(writers: u8, rounds: u8) -> Figures {
    let folder = tempfile::tempdir().unwrap();
    let local = || Arc::new(LocalStore::open(folder.path()).unwrap()) as Arc<dyn ObjectStore>;
    let store = container();
    for key in store.keys() {
        local().create(&key, &store.get(&key, 0..u64::MAX).unwrap()).unwrap();
    }
    contest(&local, Duration::ZERO, writers, rounds)
}

/// Without turns one of the writers starves the others, which make several attempts for a commit.
#[test]
fn few_attempts_of_many_writers_are_lost() {
    let figures = in_memory(Duration::from_millis(5), 16, 10);
    println!("16 writers, 5 ms: {figures}");
    assert!(figures.creations < 3.0, "{figures}");
}

/// Prints the figures of `docs/DESIGN-objectstore.md`.
#[test]
fn writers_of_a_distant_store_get_their_share() {
    if std::env::var_os("H5DIR_LONG").is_none() {
        return;
    }
    for (writers, rounds) in [(1, 50), (2, 50), (4, 30), (16, 20), (32, 20), (100, 1), (100, 5)] {
        for delay in [15, 40] {
            let figures = in_memory(Duration::from_millis(delay), writers, rounds);
            println!("{writers} writers, {rounds} commits, {delay} ms: {figures}");
        }
        println!("{writers} writers, {rounds} commits, folder: {}", in_folder(writers, rounds));
    }
}
