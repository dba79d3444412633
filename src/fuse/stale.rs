//! Drops pages of the kernel that do not hold what the file holds.
//!
//! A dataset may be open under more than one inode: in the main tree and below `.h5dir`. After a change through one inode the pages of
//! the others are dropped, soon after a write, and before the answer when a descriptor is closed.
//!
//! To drop a page the kernel waits for reads of it, and writes it back if it is dirty; both need an event loop, so a thread of its own
//! asks for it. A write that is not answered may lock the last of its pages, unless that was up to date or the write bypasses the page
//! cache. So no write waits for the pages of another inode, and an append that the kernel has in the wrong pages (`fs::page_guard`) waits
//! for its last page a limited time only: a page that is locked so long holds nothing that a reader could see.
//!
//! The page of a file's old end is dropped before a change is answered that left bytes out behind it. A write through pages
//! holds the page that it writes to until it is answered, but only where that was not read: there is nothing old in it, and it
//! is not waited for long.

use super::kernel::Kernel;
use crate::base::waiting::may_wait;
use crate::fs::Ino;
use crate::fs::page_guard::Hidden;
use fuser::INodeNo;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long is waited for a page to be dropped that a write may hold.
const HELD: Duration = Duration::from_millis(100);
/// How long an append waits for pages that no write of its own holds.
const NOT_HELD: Duration = Duration::from_secs(5);
/// Pages are no larger than this, bytes.
const PAGE_MAX: u64 = 64 << 10;

/// All pages of a file.
const ALL: Range<u64> = 0..i64::MAX as u64;

/// Who is answered once pages are dropped, which are these.
struct Waiting {
    pages: Vec<(INodeNo, Range<u64>)>,
    answer: Box<dyn FnOnce() + Send>,
}

#[derive(Default)]
struct State {
    /// Not answered yet.
    waiting: Vec<Waiting>,
    /// The thread is at work on what waited before.
    busy: bool,
    started: bool,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

/// See the module's description. Dropped, its thread ends.
pub struct Stale {
    kernel: Kernel,
    shared: Arc<Shared>,
}

impl Drop for Stale {
    fn drop(&mut self) {
        self.shared.state.lock().ended = true;
        self.shared.more.notify_all();
    }
}

impl Stale {
    /// Tells `kernel`.
    pub fn new(kernel: Kernel) -> Self {
        Stale { kernel, shared: Arc::default() }
    }

    /// Bytes of `ino` were written that its pages do not have, or have in the wrong place: `answer` once those are dropped.
    pub fn wrote(&self, ino: INodeNo, write: Hidden, answer: impl FnOnce() + Send + 'static) {
        let Some(wrong) = write.pages else {
            return self.wait(Waiting { pages: vec![(ino, write.file)], answer: Box::new(answer) });
        };
        let kernel = self.kernel.clone();
        let drop = move || drop_misplaced(&kernel, ino, [write.file, wrong], answer);
        self.wait(Waiting { pages: Vec::new(), answer: Box::new(drop) });
    }

    /// The bytes of these files were changed through others that show the same dataset: their pages are dropped soon.
    pub fn changed(&self, files: Vec<Ino>) {
        if !files.is_empty() {
            self.wait(Waiting { pages: files.into_iter().map(|ino| (INodeNo(ino.0), ALL)).collect(), answer: Box::new(|| ()) });
        }
    }

    /// `answer` once their pages are dropped, and those of all that was changed before.
    pub fn dropped(&self, files: Vec<Ino>, answer: impl FnOnce() + Send + 'static) {
        let state = self.shared.state.lock();
        if files.is_empty() && state.waiting.is_empty() && !state.busy {
            drop(state);
            return answer();
        }
        drop(state);
        self.wait(Waiting { pages: files.into_iter().map(|ino| (INodeNo(ino.0), ALL)).collect(), answer: Box::new(answer) });
    }

    fn wait(&self, waiting: Waiting) {
        let mut state = self.shared.state.lock();
        if !state.started {
            let (kernel, shared) = (self.kernel.clone(), self.shared.clone());
            let thread = std::thread::Builder::new().name("h5dir-pages".into()).spawn(move || tell(&kernel, &shared));
            // Tried again by the next.
            state.started = thread.is_ok();
        }
        if !state.started {
            drop(state);
            return (waiting.answer)();
        }
        state.waiting.push(waiting);
        drop(state);
        self.shared.more.notify_one();
    }

    /// Drops the page of byte `at` of `ino` before a change of it is answered.
    pub fn drop_page(&self, ino: INodeNo, at: u64) {
        let (kernel, (dropped, wait)) = (self.kernel.clone(), mpsc::channel());
        let drop = move || {
            forget(&kernel, ino, at..at.saturating_add(1));
            // Whoever waited may have gone on.
            let _ = dropped.send(());
        };
        // What mapped descriptors stored in it is written by another event loop first.
        may_wait();
        match std::thread::Builder::new().name("h5dir-page".into()).spawn(drop) {
            Ok(_) if wait.recv_timeout(HELD).is_ok() => {}
            Ok(_) => tracing::debug!("the page of the old end of inode {ino} is held by what writes to it"),
            Err(e) => tracing::debug!("the kernel keeps the page of the old end of inode {ino}: {e}"),
        }
    }
}

fn tell(kernel: &Kernel, shared: &Shared) {
    loop {
        let mut state = shared.state.lock();
        state.busy = false;
        while state.waiting.is_empty() && !state.ended {
            shared.more.wait(&mut state);
        }
        let waiting = std::mem::take(&mut state.waiting);
        state.busy = true;
        drop(state);
        if waiting.is_empty() {
            return;
        }
        // Put together: many who write to one file wait once.
        let mut files: BTreeMap<u64, Range<u64>> = BTreeMap::new();
        for (ino, range) in waiting.iter().flat_map(|w| &w.pages) {
            let all = files.entry(ino.0).or_insert_with(|| range.clone());
            *all = all.start.min(range.start)..all.end.max(range.end);
        }
        for (ino, range) in files {
            forget(kernel, INodeNo(ino), range);
        }
        waiting.into_iter().for_each(|w| (w.answer)());
    }
}

/// Drops the pages of an append before `answer`: those of its place in the file, and those that the kernel put it in, of which the last
/// one may be locked until then.
fn drop_misplaced(kernel: &Kernel, ino: INodeNo, [file, pages]: [Range<u64>; 2], answer: impl FnOnce()) {
    let last = pages.end.saturating_sub(1) / PAGE_MAX * PAGE_MAX;
    let (kernel, (dropped, wait)) = (kernel.clone(), mpsc::channel());
    let drop = move || {
        for range in [&file, &pages] {
            let before = range.start..range.end.min(last);
            let after = range.start.max(last.saturating_add(PAGE_MAX))..range.end;
            [before, after].into_iter().filter(|r| !r.is_empty()).for_each(|r| forget(&kernel, ino, r));
        }
        let _ = dropped.send(());
        let start = file.start.min(pages.start).max(last);
        forget(&kernel, ino, start..last.saturating_add(PAGE_MAX));
        let _ = dropped.send(());
    };
    match std::thread::Builder::new().name("h5dir-page".into()).spawn(drop) {
        Ok(_) if wait.recv_timeout(NOT_HELD).is_ok() && wait.recv_timeout(HELD).is_ok() => {}
        Ok(_) => tracing::debug!("the last page of an append to inode {ino} is held by it"),
        Err(e) => tracing::debug!("the kernel keeps pages of inode {ino}: {e}"),
    }
    answer();
}

/// Has the kernel drop pages; returns when it did.
fn forget(kernel: &Kernel, ino: INodeNo, range: Range<u64>) {
    let (offset, len) = (i64::try_from(range.start), i64::try_from(range.end.saturating_sub(range.start)));
    let (Some(kernel), Ok(offset), Ok(len)) = (kernel.get(), offset, len) else { return };
    if let Err(e) = kernel.inval_inode(ino, offset, len) {
        tracing::debug!("the kernel keeps pages of inode {ino}: {e}");
    }
}
