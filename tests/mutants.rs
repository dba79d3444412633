//! Damaged copies of small valid files, walked in-process: no panic, no hang, no large allocation.
//!
//! `H5DIR_MUTANTS=N` walks N mutants (default: 100,000, fewer in a debug build), `H5DIR_SEED=S` others,
//! `H5DIR_MUTANT=I` mutant number I only, which it also writes to `$TMPDIR`; `H5DIR_MUTANT_FILES=DIR`
//! takes other files, up to 64 KiB each, in place of the fixtures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod walker;

use h5dir::base::checksum::lookup3;
use h5dir::dataset::environment::Environment;
use std::alloc::{GlobalAlloc, Layout, System};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use walker::{Bounds, Seen, open_and_walk};

/// Most bytes of one allocation and of all.
const MEMORY_MAX: usize = 256 << 20;
/// Most CPU time of one walk.
const CPU_MAX: Duration = Duration::from_secs(2);
/// Time after which a walk counts as hanging whatever else runs on the machine.
const WALL_MAX: Duration = Duration::from_secs(60);
const CACHE_BYTES: u64 = 8 << 20;

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);
/// Says, once, where a large allocation comes from.
static TELL: AtomicBool = AtomicBool::new(false);

fn count(size: usize) {
    if size > MEMORY_MAX / 2 && TELL.swap(false, Relaxed) {
        eprintln!("{} MiB:\n{}", size >> 20, std::backtrace::Backtrace::force_capture());
    }
    LARGEST.fetch_max(size, Relaxed);
    PEAK.fetch_max(NOW.fetch_add(size, Relaxed).saturating_add(size), Relaxed);
}

// SAFETY: every call is the system allocator's, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        NOW.fetch_sub(layout.size(), Relaxed);
        count(size);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// A stretch of the file that ends in, or holds, its own checksum.
struct Sealed {
    start: usize,
    end: usize,
    checksum: usize,
}

impl Sealed {
    /// The checksum of the bytes now; a direct block's is taken with its own field zero.
    fn sum(&self, file: &[u8]) -> u32 {
        if self.checksum + 4 == self.end {
            return lookup3(&file[self.start..self.checksum], 0);
        }
        let mut bytes = file[self.start..self.end].to_vec();
        bytes[self.checksum - self.start..][..4].fill(0);
        lookup3(&bytes, 0)
    }

    fn holds(&self, file: &[u8]) -> bool {
        file[self.checksum..self.checksum + 4] == self.sum(file).to_le_bytes()
    }
}

struct Fixture {
    name: String,
    bytes: Vec<u8>,
    sealed: Vec<Sealed>,
}

const SIGNATURES: [&[u8]; 18] = [
    b"OHDR", b"OCHK", b"BTHD", b"BTIN", b"BTLF", b"FRHP", b"FHIB", b"FAHD", b"FADB", b"EAHD", b"EAIB", b"EASB", b"EADB", b"SMTB", b"SMLI",
    b"FSHD", b"MDCI", b"\x89HDF",
];

/// Finds the checksummed structures by their signatures, and their ends by trying.
fn find_sealed(file: &[u8]) -> Vec<Sealed> {
    let mut sealed = Vec::new();
    for start in 0..file.len().saturating_sub(8) {
        let rest = &file[start..];
        if SIGNATURES.iter().any(|s| rest.starts_with(s)) {
            let most = rest.len().min(if rest.starts_with(b"MDCI") { 1 << 14 } else { 3000 });
            let found = (8..=most).map(|n| Sealed { start, end: start + n, checksum: start + n - 4 }).find(|s| s.holds(file));
            sealed.extend(found);
        } else if rest.starts_with(b"FHDB") {
            let sizes = (6..14).map(|n| 1usize << n).filter(|n| *n <= rest.len());
            let all = sizes.flat_map(|n| (13..30).map(move |at| Sealed { start, end: start + n, checksum: start + at }));
            sealed.extend(all.into_iter().find(|s| s.holds(file)));
        }
    }
    // Inner ones (of a cache image) before what is around them.
    sealed.sort_by_key(|s| s.end - s.start);
    sealed
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else if path.extension().is_some_and(|e| e == "h5" || e == "nc" || e == "hdf5")
            && (1..=64 << 10).contains(&path.metadata().unwrap().len())
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn fixtures() -> Vec<Fixture> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mutants");
    let paths = files_below(&std::env::var_os("H5DIR_MUTANT_FILES").map_or(own, PathBuf::from));
    let load = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        Fixture { name: path.file_stem().unwrap().to_string_lossy().into_owned(), sealed: find_sealed(&bytes), bytes }
    };
    paths.iter().map(load).collect()
}

const VALUES: [u64; 22] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    64,
    255,
    256,
    4096,
    0x7fff,
    0xffff,
    1 << 20,
    1 << 28,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 40,
    1 << 62,
    i64::MAX as u64,
    u64::MAX,
];

/// One damaged copy.
fn mutant(f: &Fixture, r: &mut Random) -> Vec<u8> {
    let mut file = f.bytes.clone();
    let mut touched = Vec::new();
    for _ in 0..=r.below(5) {
        let n = file.len();
        // Half of the damage goes where metadata is dense: into checksummed structures.
        let at = match f.sealed.get(r.below(f.sealed.len() * 2)) {
            Some(s) => s.start + r.below(s.end - s.start),
            None => r.below(n),
        };
        let at = at.min(n.saturating_sub(1));
        let len = match r.below(12) {
            0..=2 => {
                file[at] ^= 1 << r.below(8);
                1
            }
            3 | 4 => {
                file[at] = r.next() as u8;
                1
            }
            5..=8 => {
                let width = [1, 2, 4, 8][r.below(4)].min(n - at);
                let value = VALUES[r.below(VALUES.len())];
                let value = if r.below(4) == 0 { value.wrapping_sub(1) } else { value };
                file[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
                width
            }
            // An address or a length from elsewhere in the file.
            9 => {
                let width = [2, 4, 8, 8][r.below(4)].min(n - at);
                let from = r.below(n - width);
                file.copy_within(from..from + width, at);
                width
            }
            // A place in the file.
            10 => {
                let width = 8.min(n - at);
                file[at..at + width].copy_from_slice(&(r.below(n) as u64).to_le_bytes()[..width]);
                width
            }
            _ if r.below(3) == 0 => {
                file.truncate(1 + r.below(n));
                break;
            }
            _ => {
                let width = (1 + r.below(200)).min(n - at);
                let from = r.below(n - width);
                file.copy_within(from..from + width, at);
                width
            }
        };
        touched.push(at..at + len);
    }
    // Mostly made right again, or nothing behind the checksum would ever be reached.
    if r.below(8) != 0 {
        let end = file.len();
        for s in f.sealed.iter().filter(|s| s.end <= end && touched.iter().any(|t| t.start < s.end && s.start < t.end)) {
            let sum = s.sum(&file);
            file[s.checksum..s.checksum + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
    file
}

fn thread_cpu() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
}

fn text(payload: &(dyn Any + Send)) -> String {
    let s = payload.downcast_ref::<&str>().map(ToString::to_string);
    s.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

#[derive(Default)]
struct Totals {
    opened: AtomicU64,
    nodes: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    slowest: Mutex<(Duration, u64)>,
    failures: Mutex<Vec<String>>,
}

impl Totals {
    fn add(&self, s: Seen) {
        self.opened.fetch_add(1, Relaxed);
        self.nodes.fetch_add(s.nodes, Relaxed);
        self.errors.fetch_add(s.errors, Relaxed);
        self.bytes.fetch_add(s.bytes, Relaxed);
        self.lost.fetch_add(s.lost, Relaxed);
    }

    fn fail(&self, text: String) {
        eprintln!("{text}");
        self.failures.lock().unwrap().push(text);
    }
}

/// What a worker does now, for the watchdog.
#[derive(Default)]
struct Work(Mutex<Option<(Instant, String)>>);

fn pool() -> Arc<rayon::ThreadPool> {
    Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap())
}

fn one(fixtures: &[Fixture], seed: u64, i: u64, pool: &Arc<rayon::ThreadPool>, totals: &Totals, work: &Work) {
    let mut r = Random(seed.wrapping_add(i.wrapping_mul(0x1234_5678_9abc_def1)));
    let f = &fixtures[(i % fixtures.len() as u64) as usize];
    let file = mutant(f, &mut r);
    let label = format!("mutant {i} (of {}, H5DIR_SEED={seed} H5DIR_MUTANT={i})", f.name);
    *work.0.lock().unwrap() = Some((Instant::now(), label.clone()));
    LARGEST.store(0, Relaxed);
    PEAK.store(NOW.load(Relaxed), Relaxed);
    let start = thread_cpu();
    let environment = Arc::new(Environment::with_pool(CACHE_BYTES, 16 * CACHE_BYTES, pool.clone()));
    let result = catch_unwind(AssertUnwindSafe(|| open_and_walk(&file, environment, Bounds::SMALL)));
    let spent = thread_cpu().saturating_sub(start);
    *work.0.lock().unwrap() = None;
    match result {
        Ok(Some(seen)) => totals.add(seen),
        Ok(None) => {}
        Err(payload) => totals.fail(format!("{label}: {}", text(&*payload))),
    }
    if spent > CPU_MAX {
        totals.fail(format!("{label}: {spent:?} of CPU time"));
    }
    // With two walks at a time either may be the one: both are named.
    for (what, n) in [("one allocation", &LARGEST), ("memory", &PEAK)] {
        let n = n.load(Relaxed);
        if n > MEMORY_MAX {
            totals.fail(format!("{label} or one beside it: {what} of {} MiB", n >> 20));
        }
    }
    let mut slowest = totals.slowest.lock().unwrap();
    *slowest = (*slowest).max((spent, i));
}

/// The valid files themselves: nothing in them fails.
fn walk_originals(fixtures: &[Fixture], pool: &Arc<rayon::ThreadPool>) {
    for f in fixtures {
        let environment = Arc::new(Environment::with_pool(CACHE_BYTES, 16 * CACHE_BYTES, pool.clone()));
        let seen = open_and_walk(&f.bytes, environment, Bounds::SMALL).unwrap_or_else(|| panic!("{} cannot be opened", f.name));
        assert!(seen.nodes > 3 && seen.lost == 0, "{}: {seen:?}", f.name);
        // What other files would supply is missing here, and nothing else.
        let foreign = f.name.starts_with("layouts") || f.name.starts_with("chunks2");
        assert!(seen.errors == 0 || foreign, "{}: {seen:?}", f.name);
    }
}

#[test]
fn no_mutant_panics_hangs_or_swallows_memory() {
    let fixtures = fixtures();
    assert!(fixtures.iter().map(|f| f.sealed.len()).sum::<usize>() > 200, "checksummed structures are found");
    let seed = number("H5DIR_SEED").unwrap_or(20_240_229);
    let count = number("H5DIR_MUTANTS").unwrap_or(if cfg!(debug_assertions) { 4000 } else { 100_000 });
    println!("seed {seed}, {count} mutants of {} files", fixtures.len());
    if std::env::var_os("H5DIR_MUTANT_FILES").is_none() {
        walk_originals(&fixtures, &pool());
    }
    let totals = Totals::default();
    if let Some(i) = number("H5DIR_MUTANT") {
        let mut r = Random(seed.wrapping_add(i.wrapping_mul(0x1234_5678_9abc_def1)));
        let path = std::env::temp_dir().join(format!("mutant-{i}.h5"));
        std::fs::write(&path, mutant(&fixtures[(i % fixtures.len() as u64) as usize], &mut r)).unwrap();
        println!("written to {}", path.display());
        TELL.store(true, Relaxed);
        one(&fixtures, seed, i, &pool(), &totals, &Work::default());
        println!("{:?}", totals.slowest.lock().unwrap());
        assert!(totals.failures.lock().unwrap().is_empty());
        return;
    }
    let started = Instant::now();
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get().min(4));
    let works: Vec<Work> = (0..workers).map(|_| Work::default()).collect();
    let (next, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|s| {
        let (fixtures, totals, next) = (&fixtures, &totals, &next);
        let running: Vec<_> = works
            .iter()
            .map(|work| {
                s.spawn(move || {
                    let pool = pool();
                    loop {
                        let i = next.fetch_add(1, Relaxed);
                        if i >= count || totals.failures.lock().unwrap().len() > 20 {
                            break;
                        }
                        one(fixtures, seed, i, &pool, totals, work);
                    }
                })
            })
            .collect();
        let (works, done) = (&works, &done);
        s.spawn(move || watch(works, done));
        running.into_iter().for_each(|r| r.join().unwrap());
        done.store(true, Relaxed);
    });
    let (slowest, which) = *totals.slowest.lock().unwrap();
    let n = |a: &AtomicU64| a.load(Relaxed);
    println!(
        "{count} mutants in {:.0?}: {} opened, {} nodes, {} clean errors, {} bytes read, {} names listed and not found; slowest {slowest:.0?} (mutant {which})",
        started.elapsed(),
        n(&totals.opened),
        n(&totals.nodes),
        n(&totals.errors),
        n(&totals.bytes),
        n(&totals.lost),
    );
    let failures = totals.failures.lock().unwrap();
    assert!(failures.is_empty(), "{} mutants failed:\n{}", failures.len(), failures.join("\n"));
}

/// Ends the process when a walk takes too long: it could not be stopped otherwise.
fn watch(works: &[Work], done: &AtomicBool) {
    while !done.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(200));
        for w in works {
            if let Some((since, label)) = &*w.0.lock().unwrap()
                && since.elapsed() > WALL_MAX
            {
                eprintln!("{label}: hangs");
                std::process::exit(101);
            }
        }
    }
}
