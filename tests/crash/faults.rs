//! I/O faults: the n-th operation of a session fails, for every n. Nothing panics, the caller gets the errno, and the
//! file is in a committed state, or in the one that the failed commit was making.

use super::sessions::{self, Recording, digest};
use h5dir::connector::Connector;
use h5dir::connector::native::NativeConnector;
use h5dir::file::fault::{Fault, FaultyFile, FaultyPlace, LENGTH, NAME, Plan, READ, SYNC, WRITE};
use h5dir::file::memory::{GrowingFile, MemoryJournal};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A journal that outlives the connector which uses it.
#[derive(Clone, Default)]
struct Kept(Arc<MemoryJournal>);

impl h5dir::file::JournalPlace for Kept {
    fn open(&self) -> std::io::Result<Option<Arc<dyn h5dir::file::WriteDriver>>> {
        self.0.open()
    }

    fn create(&self) -> std::io::Result<Arc<dyn h5dir::file::WriteDriver>> {
        self.0.create()
    }

    fn remove(&self) -> std::io::Result<()> {
        self.0.remove()
    }
}

/// A session with one fault; `None` when it ended before the fault struck.
fn strike(base: &str, operations: sessions::Operations, kind: u8, n: u64, times: u32, fault: Fault) -> Option<Result<(), String>> {
    let initial = sessions::fixture(base);
    let file = Arc::new(GrowingFile::new(initial));
    let journal = Kept::default();
    let plan = Plan::new(kind, n, times, fault);
    let driver = Arc::new(FaultyFile::new(file.clone(), plan.clone()));
    let place = Box::new(FaultyPlace::new(journal.clone(), plan.clone()));
    let mut states = Vec::new();
    let (mut committed, mut silent) = (0, false);
    if let Ok(connector) = NativeConnector::writable_over(driver, place, PathBuf::from("/"), sessions::options()) {
        plan.pause(true);
        let mut r = Recording::tolerant(connector);
        plan.pause(false);
        r.plan = Some(plan.clone());
        operations(&mut r);
        let closed = r.edit().close();
        if closed.is_ok() {
            r.acknowledge();
        }
        (states, committed) = (r.reached.clone(), r.committed);
        silent = kind != READ && r.errors.is_empty() && closed.is_ok() && kind & (NAME | LENGTH) == 0;
        let wrong = r.errors.iter().find(|e| {
            !matches!(e, h5dir::base::Error::Io { .. } | h5dir::base::Error::Refused { .. } | h5dir::base::Error::Corrupt { .. })
        });
        if let Some(e) = wrong {
            return Some(Err(format!("error {e}")));
        }
    }
    if !plan.has_struck() {
        return None;
    }
    let connector = match sessions::open(file.bytes(), journal.0.bytes()) {
        Ok(c) => c,
        Err(e) => return Some(Err(format!("afterwards the file does not open: {e}"))),
    };
    let got = digest(&*connector as &dyn Connector);
    // Room that was missing at first may have been made.
    if silent && states.last() != Some(&got) {
        return Some(Err("the fault was told to nobody".into()));
    }
    if states.is_empty() || states[committed..].contains(&got) {
        return Some(Ok(()));
    }
    let place = states.iter().position(|s| *s == got);
    Some(Err(format!("state {place:?} after commit {committed} of {}\n{got}\nlast committed\n{}", states.len(), states[committed])))
}

const FAULTS: [(&str, u8, u32, Fault); 13] = [
    ("write EIO", WRITE, 1, Fault::Errno(libc::EIO)),
    ("write ENOSPC", WRITE, 1, Fault::Errno(libc::ENOSPC)),
    ("write EINTR", WRITE, 1, Fault::Errno(libc::EINTR)),
    ("write short", WRITE, 1, Fault::Short),
    ("disk full", WRITE | LENGTH, 1_000_000, Fault::Errno(libc::ENOSPC)),
    ("sync EIO", SYNC, 1, Fault::Errno(libc::EIO)),
    ("sync EINTR", SYNC, 1, Fault::Errno(libc::EINTR)),
    ("length EIO", LENGTH, 1, Fault::Errno(libc::EIO)),
    ("allocation ENOSPC", LENGTH, 1, Fault::Errno(libc::ENOSPC)),
    ("journal's name", NAME, 1, Fault::Errno(libc::EACCES)),
    ("read EIO", READ, 1, Fault::Errno(libc::EIO)),
    ("read EINTR", READ, 1, Fault::Errno(libc::EINTR)),
    ("read short", READ, 1, Fault::Short),
];

/// Reads are many, and each needs not be the one.
fn stride(ops: u8) -> u64 {
    if ops != READ || super::long() { 1 } else { 53 }
}

#[test]
fn every_fault_leaves_a_committed_state() {
    let jobs: Vec<_> = sessions::few().into_iter().flat_map(|s| FAULTS.into_iter().map(move |f| (s, f))).collect();
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(BTreeMap::<&str, u64>::new()));
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from).min(8) {
            s.spawn(|| {
                while let Some(((base, kind, operations), (name, ops, times, fault))) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for n in (0..).map(|n| n * stride(*ops)) {
                        match strike(base, *operations, *ops, n, *times, *fault) {
                            None => break,
                            Some(Ok(())) => *counts.lock().unwrap().entry(name).or_default() += 1,
                            Some(Err(why)) => {
                                failures.lock().unwrap().push(format!("{base}, {kind}: {name} number {n}: {why}"));
                                break;
                            }
                        }
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    for (name, count) in &counts {
        println!("{name:20} {count:7} sessions");
    }
    assert!(counts.len() == FAULTS.len() && counts.values().sum::<u64>() > 500, "{counts:?}");
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} failures, the first: {}", failures.len(), failures[0]);
}
