//! Damaged copies of small valid files, walked and changed in-process: no panic, no hang, no large allocation.
//!
//! `H5DIR_MUTANTS=N` walks N mutants (default: 100,000, fewer in a debug build), `H5DIR_SEED=S` others,
//! `H5DIR_MUTANT=I` mutant number I only, which it also writes to `$TMPDIR`; `H5DIR_MUTANT_FILES=DIR`
//! takes other files, up to 64 KiB each, in place of the fixtures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod counting;
mod damage;
#[path = "../support/random.rs"]
mod random;
#[path = "../walker/mod.rs"]
mod walker;
mod writing;

use counting::{LARGEST, NOW, PEAK, TELL};
use damage::{Fixture, fixtures, mutant};
use h5dir::dataset::environment::Environment;
use random::Random;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use walker::{Bounds, Seen, open_and_walk};

/// Most bytes of one allocation and of all.
const MEMORY_MAX: usize = 256 << 20;
/// Most CPU time of one walk.
const CPU_MAX: Duration = Duration::from_secs(2);
/// Time after which a walk counts as hanging whatever else runs on the machine.
const WALL_MAX: Duration = Duration::from_secs(60);
const CACHE_BYTES: u64 = 8 << 20;

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

/// What is done with a mutant: bytes, environment, a seed. `None` when it cannot be opened.
type Use = fn(&[u8], Arc<Environment>, u64) -> Option<Seen>;

fn one(fixtures: &[Fixture], (seed, i): (u64, u64), pool: &Arc<rayon::ThreadPool>, totals: &Totals, work: &Work, done: Use) {
    let mut r = Random(seed.wrapping_add(i.wrapping_mul(0x1234_5678_9abc_def1)));
    let f = &fixtures[(i % fixtures.len() as u64) as usize];
    let file = mutant(f, &mut r);
    let label = format!("mutant {i} (of {}, H5DIR_SEED={seed} H5DIR_MUTANT={i})", f.name);
    *work.0.lock().unwrap() = Some((Instant::now(), label.clone()));
    LARGEST.store(0, Relaxed);
    PEAK.store(NOW.load(Relaxed), Relaxed);
    let start = thread_cpu();
    let environment = Arc::new(Environment::with_pool(CACHE_BYTES, 16 * CACHE_BYTES, pool.clone()));
    let result = catch_unwind(AssertUnwindSafe(|| done(&file, environment, r.next())));
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
        let seen = open_and_walk(&f.bytes, environment, Bounds { texts: true, ..Bounds::SMALL })
            .unwrap_or_else(|| panic!("{} cannot be opened", f.name));
        assert!(seen.nodes > 3 && seen.lost == 0, "{}: {seen:?}", f.name);
        // What other files would supply is missing here, and nothing else.
        let foreign = f.name.starts_with("layouts") || f.name.starts_with("chunks2");
        assert!(seen.errors == 0 || foreign, "{}: {seen:?}", f.name);
    }
}

#[test]
fn no_mutant_panics_hangs_or_swallows_memory() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let count = number("H5DIR_MUTANTS").unwrap_or(if cfg!(debug_assertions) { 4000 } else { 100_000 });
    if std::env::var_os("H5DIR_MUTANT_FILES").is_none() {
        walk_originals(&fixtures(), &pool());
    }
    all(count, |bytes, environment, seed| open_and_walk(bytes, environment, Bounds { texts: seed.is_multiple_of(32), ..Bounds::SMALL }));
}

#[test]
fn no_mutant_panics_hangs_or_swallows_memory_when_it_is_changed() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let count = number("H5DIR_MUTANTS").unwrap_or(if cfg!(debug_assertions) { 3000 } else { 60_000 });
    all(count, writing::open_and_change);
}

/// Memory is counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn all(count: u64, done: Use) {
    let fixtures = fixtures();
    assert!(fixtures.iter().map(|f| f.sealed.len()).sum::<usize>() > 200, "checksummed structures are found");
    let seed = number("H5DIR_SEED").unwrap_or(20_240_229);
    println!("seed {seed}, {count} mutants of {} files", fixtures.len());
    let totals = Totals::default();
    if let Some(i) = number("H5DIR_MUTANT") {
        let mut r = Random(seed.wrapping_add(i.wrapping_mul(0x1234_5678_9abc_def1)));
        let path = std::env::temp_dir().join(format!("mutant-{i}.h5"));
        std::fs::write(&path, mutant(&fixtures[(i % fixtures.len() as u64) as usize], &mut r)).unwrap();
        println!("written to {}", path.display());
        TELL.store(true, Relaxed);
        one(&fixtures, (seed, i), &pool(), &totals, &Work::default(), done);
        println!("{:?}", totals.slowest.lock().unwrap());
        assert!(totals.failures.lock().unwrap().is_empty());
        return;
    }
    let started = Instant::now();
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get().min(4));
    let works: Vec<Work> = (0..workers).map(|_| Work::default()).collect();
    let (next, ended) = (AtomicU64::new(0), AtomicBool::new(false));
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
                        one(fixtures, (seed, i), &pool, totals, work, done);
                    }
                })
            })
            .collect();
        let (works, ended) = (&works, &ended);
        s.spawn(move || watch(works, ended));
        running.into_iter().for_each(|r| r.join().unwrap());
        ended.store(true, Relaxed);
    });
    report(&totals, count, started.elapsed());
}

fn report(totals: &Totals, count: u64, spent: Duration) {
    let (slowest, which) = *totals.slowest.lock().unwrap();
    let n = |a: &AtomicU64| a.load(Relaxed);
    println!(
        "{count} mutants in {spent:.0?}: {} opened, {} nodes or changes, {} clean errors, {} bytes read, {} names not found or closes failed; slowest {slowest:.0?} (mutant {which})",
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
