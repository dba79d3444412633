//! I/O faults: the n-th operation of a session fails, for every n. Nothing panics, the caller gets the errno, and the
//! file is in a committed state, or in the one that the failed commit was making.

use super::sessions::{self, Recording, digest};
use h5dir::connector::Connector;
use h5dir::connector::native::NativeConnector;
use h5dir::file::fault::{Fault, FaultyFile, FaultyPlace, LENGTH, NAME, Plan, READ, SYNC, WRITE};
use h5dir::file::memory::{GrowingFile, MemoryJournal};
use std::path::PathBuf;
use std::sync::Arc;

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
    let mut committed = 0;
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
        if plan.has_struck() && kind != READ && r.errors.is_empty() && closed.is_ok() && kind & (NAME | LENGTH) == 0 {
            return Some(Err("the fault was told to nobody".into()));
        }
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
    if states.is_empty() || states[committed..].contains(&got) {
        return Some(Ok(()));
    }
    let place = states.iter().position(|s| *s == got);
    Some(Err(format!("state {place:?} after commit {committed} of {}\n{got}\nlast committed\n{}", states.len(), states[committed])))
}

#[test]
fn every_fault_leaves_a_committed_state() {
    let faults = [
        ("write EIO", WRITE, 1, Fault::Errno(libc::EIO)),
        ("write ENOSPC", WRITE, 1, Fault::Errno(libc::ENOSPC)),
        ("write short", WRITE, 1, Fault::Short),
        ("disk full", WRITE | LENGTH, 1_000_000, Fault::Errno(libc::ENOSPC)),
        ("sync EIO", SYNC, 1, Fault::Errno(libc::EIO)),
        ("length EIO", LENGTH, 1, Fault::Errno(libc::EIO)),
        ("journal's name", NAME, 1, Fault::Errno(libc::EACCES)),
        ("read EIO", READ, 1, Fault::Errno(libc::EIO)),
    ];
    let mut count = 0;
    for (base, kind, operations) in sessions::few() {
        for (name, ops, times, fault) in faults {
            for n in 0.. {
                // Reads are many; each needs not be the one.
                let n = if ops == READ { n * 13 } else { n };
                match strike(base, operations, ops, n, times, fault) {
                    None => break,
                    Some(Ok(())) => count += 1,
                    Some(Err(why)) => panic!("{base}, {kind}: {name} number {n}: {why}"),
                }
            }
        }
    }
    println!("{count} faults");
    assert!(count > 500);
}
