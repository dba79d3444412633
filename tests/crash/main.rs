//! Crash test: sessions of changes are recorded, and every state that the disk may be left in is opened.
//!
//! After recovery a container is in the state of the last acknowledged commit or of the one under way, whole.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod again;
mod alphabet;
mod faults;
mod free_space;
mod images;
mod layouts;
#[path = "../support/python.rs"]
mod python;
#[path = "../support/random.rs"]
mod random;
mod sessions;

use images::Image;
use random::Random;
use sessions::{Session, digest, open};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Variants of each kind at one step; of long runs.
const VARIANTS: [usize; 2] = [4, 24];

/// Of the images every so many are also checked for space that is used and free: a walk of all structures.
const CHECKED_EVERY: u64 = 4;

/// More of everything: `tests/run --long`.
fn long() -> bool {
    std::env::var_os("H5DIR_LONG").is_some_and(|v| !v.is_empty())
}

/// Why an image is wrong, if it is.
fn wrong(session: &Session, image: &Image) -> Option<String> {
    let connector = match open(image.file.clone(), image.journal.clone()) {
        Ok(c) => c,
        Err(e) => return Some(format!("it does not open: {e}")),
    };
    let got = digest(&*connector);
    let first = image.acknowledged as usize;
    let allowed = session.states.get(first..(first + 2).min(session.states.len())).unwrap_or_default();
    if allowed.contains(&got) {
        static SEEN: AtomicU64 = AtomicU64::new(0);
        let is_checked = long() || SEEN.fetch_add(1, Ordering::Relaxed).is_multiple_of(CHECKED_EVERY);
        return is_checked.then(|| free_space::contradiction(&connector)).flatten();
    }
    let known = session.states.iter().position(|s| *s == got);
    Some(match known {
        Some(n) => format!("commit {first} was acknowledged, the file is in state {n}"),
        None => format!("commit {first} was acknowledged, the file is in no known state:\n{got}\nnot\n{}", allowed.join("\nor\n")),
    })
}

/// Keeps every so many images for h5py.
struct Samples {
    folder: tempfile::TempDir,
    /// Images seen: marked ones, and others.
    seen: [AtomicU64; 2],
}

/// Every so many images of either kind are kept.
const EVERY: [u64; 2] = [37, 401];

impl Samples {
    fn keep(&self, session: &Session, number: u64, index: usize, image: &Image) {
        if session.name.contains(sessions::UNREADABLE) {
            return;
        }
        let direct = sessions::opens_directly(image);
        let kind = usize::from(direct);
        if !self.seen[kind].fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY[kind]) {
            return;
        }
        let save =
            |kind: &str, bytes: &[u8]| std::fs::write(self.folder.path().join(format!("{index}-{number}.{kind}.h5")), bytes).unwrap();
        save(if direct { "plain" } else { "marked" }, &image.file);
        if direct {
            for (i, bytes) in sessions::files(session).into_iter().skip(image.acknowledged as usize).take(2).enumerate() {
                save(&i.to_string(), &bytes);
            }
        }
    }

    /// What stock libhdf5 says of them.
    fn check(&self) {
        let status = std::process::Command::new(python::with_h5py())
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/crash_check.py"))
            .arg(self.folder.path())
            .status()
            .unwrap();
        assert!(status.success(), "h5py disagrees");
    }
}

struct Outcome {
    images: u64,
    /// Opened as they are, no journal being waited for.
    direct: u64,
    failure: Option<String>,
}

fn run(session: &Session, seed: u64, stop_at_failure: bool, samples: Option<&Samples>) -> Outcome {
    let mut out = Outcome { images: 0, direct: 0, failure: None };
    let variants = VARIANTS[usize::from(long())];
    images::each(&session.initial, None, &session.log, &mut Random(seed), variants, &mut |image| {
        if stop_at_failure && out.failure.is_some() {
            return;
        }
        out.images += 1;
        if let Some(samples) = samples {
            samples.keep(session, out.images, seed as usize, &image);
        }
        out.direct += u64::from(sessions::opens_directly(&image));
        if let Some(why) = wrong(session, &image)
            && out.failure.is_none()
        {
            out.failure = Some(format!("{}: image {}: {why}", session.name, out.images));
        }
    });
    out
}

#[test]
fn whatever_the_machine_stops_at() {
    let table = Mutex::new(BTreeMap::<String, (u64, u64)>::new());
    let failures = Mutex::new(Vec::new());
    let all = sessions::all();
    let samples = Samples { folder: tempfile::tempdir().unwrap(), seen: Default::default() };
    std::thread::scope(|s| {
        for part in 0..2 {
            let (all, table, failures, samples) = (&all, &table, &failures, &samples);
            s.spawn(move || {
                for (i, make) in all.iter().enumerate().filter(|(i, _)| i % 2 == part) {
                    let session = make();
                    let out = run(&session, i as u64, false, Some(samples));
                    let mut table = table.lock().unwrap();
                    let row = table.entry(session.name.clone()).or_default();
                    (row.0, row.1) = (row.0 + out.images, row.1 + out.direct);
                    failures.lock().unwrap().extend(out.failure);
                }
            });
        }
    });
    let table = table.into_inner().unwrap();
    let total: u64 = table.values().map(|r| r.0).sum();
    for (name, (images, direct)) in &table {
        println!("{name:40} {images:7} images, {:5.1} % opened by any reader as they are", 100.0 * *direct as f64 / *images as f64);
        assert!(*images > 0, "{name} was not tested");
    }
    println!("{total} images");
    assert!(total >= 100_000, "too few images");
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {} sessions failed:\n{}", failures.len(), all.len(), failures.join("\n"));
    samples.check();
}

/// The test is worth something: with any one kind of barrier left out it fails.
#[test]
fn each_barrier_is_needed() {
    for barrier in 0..sessions::BARRIERS {
        let found = sessions::all().iter().any(|make| {
            let mut session = make();
            session.log = sessions::without_barrier(&session.log, barrier);
            run(&session, 7, true, None).failure.is_some()
        });
        assert!(found, "nothing failed without barrier {barrier} ({})", sessions::BARRIER_NAMES[barrier]);
    }
}
