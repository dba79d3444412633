//! Random sequences of changes, done to an HDF5 file and to the in-memory reference model, must have the same
//! results and leave the same tree; what is written is then read by stock h5py.
//!
//! `H5DIR_SEED` adds sequences of a seed of one's own, `H5DIR_SEQUENCES` says how many of each start there are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod compare;
mod first_change;
mod netcdf;
mod operations;
mod oracle;
#[path = "../support/python.rs"]
mod python;
#[path = "../support/random.rs"]
mod random;
mod regressions;
mod side;
mod start;

use h5dir::fs::Operations as _;
use operations::{Choice, Op, THEMES, Theme, Tree};
use oracle::Oracle;
use random::Random;
use side::Side;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Operations of a sequence.
const LENGTH: usize = 60;
/// Sequences of each start and seed.
const SEEDS: u64 = 8;
/// Sequences with changes of extents of each start.
const EXTENT_SEEDS: u64 = 4;
/// Failures after which no more are looked for.
const ENOUGH: usize = 6;
/// Operations between two looks at the whole tree.
const LOOK: usize = 4;

/// What is done next, given the tree.
type Next<'a> = &'a mut dyn FnMut(usize, &Tree) -> Option<Op>;

/// What a sequence leaves: the file at the start, the file, the model.
type Left = (Vec<u8>, Vec<u8>, Side);

/// Does operations until there are no more.
fn run(start: &str, next: Next<'_>) -> Result<Left, String> {
    let (bytes, model) = start::both(start);
    let first = bytes.clone();
    let (mut file, mut model) = (Side::of_file(bytes), Side::of_model(model));
    let mut tree = compare::trees(&file, &model).map_err(|e| format!("at the start: {e}"))?;
    for n in 0.. {
        let Some(op) = next(n, &tree) else { break };
        let (did, wanted) = (file.apply(&op), model.apply(&op));
        if did != wanted {
            return Err(format!("operation {n}: {op:?}: the file says {did:.300?}, the model {wanted:.300?}"));
        }
        if n % LOOK == 0 {
            tree = compare::trees(&file, &model).map_err(|e| format!("after operation {n}: {op:?}: {e}"))?;
        }
    }
    compare::trees(&file, &model)?;
    file.apply(&Op::Remount).unwrap();
    model.apply(&Op::Remount).unwrap();
    compare::trees(&file, &model).map_err(|e| format!("after the last remount: {e}"))?;
    file.fs.shutdown().map_err(|e| e.message)?;
    Ok((first, file.bytes(), model))
}

/// The same with panics as errors.
fn guarded(start: &str, next: Next<'_>) -> Result<Left, String> {
    catch_unwind(AssertUnwindSafe(|| run(start, next))).unwrap_or_else(|e| {
        let text = e.downcast_ref::<String>().cloned().or(e.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Does these operations.
fn replay(start: &str, ops: &[Op]) -> Result<Left, String> {
    guarded(start, &mut |n, _| ops.get(n).cloned())
}

/// Leaves out what is not needed to fail.
fn shrink(start: &str, mut ops: Vec<Op>) -> (Vec<Op>, String) {
    let end = Instant::now() + Duration::from_secs(20);
    let mut why = replay(start, &ops).err().unwrap_or_else(|| "it does not fail again".into());
    let mut step = (ops.len() / 2).max(1);
    loop {
        let mut at = 0;
        let before = ops.len();
        while at < ops.len() && Instant::now() < end {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + step).min(ops.len()));
            match replay(start, &fewer) {
                Err(e) => (ops, why) = (fewer, e),
                Ok(_) => at += step,
            }
        }
        if step == 1 && ops.len() == before || Instant::now() >= end {
            return (ops, why);
        }
        step = (step / 2).max(1);
    }
}

fn sequence(start: &str, theme: Theme, seed: u64) -> Result<Left, String> {
    let mut r = Random(seed);
    let mut done = Vec::new();
    let result = guarded(start, &mut |n, tree| {
        let mut choice = Choice { r: &mut r, tree, theme };
        let op = (n < LENGTH)
            .then(|| std::iter::repeat_with(|| choice.op()).find(|op| netcdf::allows(start, op) && start::allows(start, op)).unwrap());
        done.extend(op.clone());
        op
    });
    result.map_err(|first| {
        let (ops, why) = shrink(start, done);
        let lines: Vec<String> = ops.iter().map(|op| format!("    {op:?},")).collect();
        format!("{start}, {theme:?}, seed {seed}: {why}\n  (first seen: {first})\n  {} operations:\n{}", ops.len(), lines.join("\n"))
    })
}

/// Does what `jobs` say, on two threads.
fn all(jobs: &[(&str, Theme, u64)]) -> (Vec<String>, Oracle) {
    let (failures, oracle) = (Mutex::new(Vec::new()), Mutex::new(Oracle::new()));
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((start, theme, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            match sequence(start, *theme, *seed) {
                Ok(_) if *start == start::UNREADABLE => {}
                Ok((first, bytes, model)) => {
                    oracle.lock().unwrap().keep(&format!("{start}, {theme:?}, seed {seed}"), &first, &bytes, &model)
                }
                Err(why) => failures.lock().unwrap().push(why),
            }
            if failures.lock().unwrap().len() >= ENOUGH {
                break;
            }
        }
    };
    std::thread::scope(|s| {
        s.spawn(work);
        s.spawn(work);
    });
    (failures.into_inner().unwrap(), oracle.into_inner().unwrap())
}

/// The number that the environment variable has.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|s| s.parse().ok())
}

/// Extents of all dimensions, over layouts and chunk indexes.
#[test]
fn extents_change_as_those_of_the_model() {
    let mut jobs = Vec::new();
    for n in 0..number("H5DIR_SEQUENCES").unwrap_or(EXTENT_SEEDS) {
        // The extents of netCDF's variables are those of its dimensions.
        let starts = (0..).zip(start::STARTS.iter()).filter(|(_, (start, _))| !netcdf::is(start));
        jobs.extend(starts.map(|(i, (start, _))| (*start, Theme::Extents, number("H5DIR_SEED").unwrap_or(1 << 20) + n * 1000 + i)));
    }
    let (failures, oracle) = all(&jobs);
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    oracle.check();
}

#[test]
fn the_file_system_does_what_the_model_does() {
    let own = number("H5DIR_SEED");
    let mut jobs = Vec::new();
    for n in 0..number("H5DIR_SEQUENCES").unwrap_or(SEEDS) {
        for (i, (start, _)) in (0..).zip(start::STARTS.iter()) {
            let theme = THEMES[(n + i) as usize % THEMES.len()];
            let seeds = std::iter::once(n * 1000 + i).chain(own.map(|own| (own + n) * 7919 + i));
            jobs.extend(seeds.map(|seed| (*start, theme, seed)));
        }
    }
    let (failures, oracle) = all(&jobs);
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    oracle.check();
}
