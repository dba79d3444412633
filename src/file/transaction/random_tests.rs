//! Random operations on structures and elements, some of which fail: reads agree with a model, and
//! durable bytes do not change in the file before the next commit.

use super::tests::bytes;
use super::*;
use crate::file::commit::Root;
use crate::file::fault::{Fault, FaultyFile, FaultyPlace, LENGTH, Plan, READ, UNSURE, WRITE};
use crate::file::memory::{GrowingFile, MemoryJournal};

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n
    }

    fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// An allocation and its expected bytes; `None` is unknown.
#[derive(Clone)]
struct Extent {
    at: u64,
    pool: Pool,
    live: bool,
    bytes: Vec<Option<u8>>,
}

impl Extent {
    fn check(&self, found: &[u8], what: &str) {
        for (i, wanted) in self.bytes.iter().enumerate().filter_map(|(i, b)| b.map(|b| (i, b))) {
            let found = found.get(i).copied().unwrap_or(0);
            assert_eq!(found, wanted, "{what}: byte {i} of {} at {} ({:?})", self.bytes.len(), self.at, self.pool);
        }
    }
}

fn check(t: &Transaction, all: &[Extent], what: &str) {
    all.iter().for_each(|e| e.check(&bytes(t, e.at, e.bytes.len()), what));
}

fn on_disk(file: &GrowingFile, durable: &[Extent], what: &str) {
    let bytes = file.bytes();
    durable.iter().for_each(|e| e.check(&bytes[e.at as usize..], what));
}

/// Elements that an operation wrote: extent, offset in it, bytes, and whether the write succeeded.
type Written = (u64, usize, Vec<u8>, bool);

/// Makes the changes of one operation; false if one of them failed.
fn changes(t: &Transaction, r: &mut Random, all: &mut Vec<Extent>, elements: &mut Vec<Written>) -> bool {
    for _ in 0..r.below(20) {
        let kind = r.below(8);
        if kind < 2 || all.is_empty() {
            let len = match r.below(12) {
                0 => 70_000 + r.below(100_000),
                1..=3 => 4096 * (1 + r.below(3)),
                4 => 1 + r.below(9000),
                _ => 1 + r.below(700),
            };
            let pool = r.of(&[Pool::Metadata, Pool::Metadata, Pool::Raw]);
            let Ok((at, zeros)) = t.allocate(len as u64, r.of(&[8, 8, 1, 512, 4096]), pool) else { return false };
            all.push(Extent { at, pool, live: false, bytes: vec![zeros.then_some(0); len] });
        } else if kind == 2 {
            let e = all.remove(r.below(all.len()));
            t.free(e.at..e.at + e.bytes.len() as u64, e.pool);
        } else {
            let i = r.below(all.len());
            let e = &mut all[i];
            let from = if r.below(2) == 0 { 0 } else { r.below(e.bytes.len()) };
            let most = e.bytes.len() - from;
            let data = vec![r.below(255) as u8 + 1; if r.below(2) == 0 { most } else { 1 + r.below(most) }];
            let raw = e.pool == Pool::Raw;
            let at = e.at + from as u64;
            let done = if raw { t.write_data(at, &data) } else { t.write(at, &data) }.is_ok();
            e.bytes[from..from + data.len()].fill(done.then_some(data[0]));
            if raw {
                elements.push((e.at, from, data, done));
            }
            if !done {
                return false;
            }
        }
    }
    true
}

/// Keeps elements of a rolled back operation, except for those over live bytes, whose content is
/// unknown.
fn keep_elements(all: &mut [Extent], elements: Vec<Written>) {
    for (at, from, data, done) in elements {
        if let Some(e) = all.iter_mut().find(|e| e.at == at && e.pool == Pool::Raw && from + data.len() <= e.bytes.len()) {
            e.bytes[from..from + data.len()].fill((done && !e.live).then_some(data[0]));
        }
    }
}

fn session(seed: u64) {
    let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let fault = r.of(&[Fault::Short, Fault::Errno(libc::ENOSPC), Fault::Errno(libc::EIO)]);
    // A short read is not a failure.
    let kinds = r.of(&[WRITE, LENGTH, WRITE | LENGTH, READ | WRITE | LENGTH]) & if fault == Fault::Short { !READ } else { u8::MAX };
    let plan = Plan::new(kinds | r.of(&[0, 0, 0, UNSURE]), 0, r.of(&[1, 2, 3, 1000]), fault);
    plan.pause(true);
    let file = Arc::new(GrowingFile::new(vec![0x11; 4096]));
    let place = Box::new(FaultyPlace::new(MemoryJournal::default(), plan.clone()));
    let t = Transaction::new(Arc::new(FaultyFile::new(file.clone(), plan.clone())), place, 4096).unwrap();
    if r.below(3) == 0 {
        t.set_pages(Pages { size: 4096, origin: 0 });
    }
    let arm = |r: &mut Random, one_in: usize, within: usize| {
        if r.below(one_in) == 0 {
            plan.arm(r.below(within) as i64);
            plan.pause(false);
        }
    };
    let (mut all, mut durable) = (Vec::new(), Vec::new());
    for operation in 0..200 {
        let what = format!("seed {seed}, operation {operation}");
        let (before, mut elements) = (all.clone(), Vec::new());
        arm(&mut r, 3, 12);
        t.begin();
        let done = changes(&t, &mut r, &mut all, &mut elements) && r.below(5) > 0;
        t.finish(done);
        plan.pause(true);
        if !done {
            all = before;
            keep_elements(&mut all, elements);
        }
        if t.has_failed() {
            return;
        }
        check(&t, &all, &what);
        on_disk(&file, &durable, &what);
        if r.below(12) > 0 {
            continue;
        }
        arm(&mut r, 3, 6);
        let committed = t.commit(&|_, _| Ok(Root { offset: 0, extended: vec![1; 48], marked: vec![2; 48], settled: vec![1; 48] })).is_ok();
        plan.pause(true);
        if t.has_failed() {
            return;
        }
        check(&t, &all, &format!("{what}, a commit"));
        if committed {
            all.iter_mut().for_each(|e| e.live = true);
            durable = all.clone();
            on_disk(&file, &durable, &what);
        }
    }
}

#[test]
fn failed_operations_change_nothing() {
    let sessions = if std::env::var_os("H5DIR_LONG").is_some() { 2000 } else { 40 };
    (1..=sessions).for_each(session);
}
