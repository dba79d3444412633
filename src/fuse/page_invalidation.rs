//! Drops stale pages of the kernel.
//!
//! A dataset may be open under more than one inode: in the main tree and below `.h5dir`. After a
//! change through one inode the pages of the others are dropped, soon after a write, and before the
//! answer when a descriptor is closed.
//!
//! To drop a page the kernel waits for reads of it, and writes it back if it is dirty; both need an
//! event loop, so another thread asks for it. A write that is not answered may lock the last of its
//! pages, unless that was up to date or the write bypasses the page cache. So no write waits for
//! the pages of another inode, and an append that the kernel has in the wrong pages
//! (`fs::page_guard`) waits for its last page a limited time only: a page that is locked so long
//! holds nothing that a reader could see.
//!
//! The page at the old EOF is dropped before the answer to a change that extended the file past a
//! gap. A write through pages locks the page that it writes to until it is answered, but only if
//! the page was not read: then it holds nothing stale, and the wait is short.

use super::kernel::{Kernel, Memory};
use crate::base::waiting::may_wait;
use crate::fs::page_guard::PageGuard;
use crate::fs::{Ino, KernelMemory};
use fuser::INodeNo;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long to wait for a page that a write may have locked.
const LOCKED_PAGE_WAIT: Duration = Duration::from_millis(100);
/// How long an append waits for pages that it has not locked.
const UNLOCKED_PAGE_WAIT: Duration = Duration::from_secs(5);
/// Pages are no larger, bytes.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// Pages to drop, and the answer that waits for it.
struct Waiting {
    pages: Vec<(Ino, Range<u64>)>,
    answer: Box<dyn FnOnce() + Send>,
}

#[derive(Default)]
struct InvalidationQueue {
    /// Not begun yet.
    waiting: Vec<Waiting>,
    /// The thread is dropping pages.
    busy: bool,
    started: bool,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<InvalidationQueue>,
    more: Condvar,
}

/// See the module's description. Its thread ends when it is dropped.
pub struct PageInvalidation {
    kernel: Kernel,
    shared: Arc<Shared>,
}

impl Drop for PageInvalidation {
    fn drop(&mut self) {
        self.shared.state.lock().ended = true;
        self.shared.more.notify_all();
    }
}

impl PageInvalidation {
    /// Drops pages of `kernel`.
    pub fn new(kernel: Kernel) -> Self {
        PageInvalidation { kernel, shared: Arc::default() }
    }

    /// Drops the pages of a write to `ino` that bypassed the page cache, or that are in the wrong
    /// place. Then the guard ends, and `answer` is called.
    pub fn drop_hidden(&self, ino: INodeNo, guard: PageGuard, answer: impl FnOnce() + Send + 'static) {
        let (file, pages) = (guard.write.file.clone(), guard.write.pages.clone());
        let Some(pages) = pages else {
            let answer = move || {
                drop(guard);
                answer();
            };
            return self.wait(Waiting { pages: vec![(Ino(ino.0), file)], answer: Box::new(answer) });
        };
        let kernel = self.kernel.clone();
        let drop = move || drop_misplaced(&kernel, ino, [file, pages], guard, answer);
        self.wait(Waiting { pages: Vec::new(), answer: Box::new(drop) });
    }

    /// Drops pages soon.
    pub fn drop_later(&self, pages: Vec<(Ino, Range<u64>)>) {
        if !pages.is_empty() {
            self.wait(Waiting { pages, answer: Box::new(|| ()) });
        }
    }

    /// Drops names in directories soon. The kernel may have to wait for requests of this daemon.
    pub fn drop_names(&self, names: Vec<(Ino, Vec<u8>)>) {
        if names.is_empty() {
            return;
        }
        let memory = Memory(self.kernel.clone());
        let drop = move || names.iter().for_each(|(parent, name)| memory.forget_name(*parent, name));
        self.wait(Waiting { pages: Vec::new(), answer: Box::new(drop) });
    }

    /// Calls `answer` when `pages`, and those of all earlier changes, are dropped.
    pub fn drop_then(&self, pages: Vec<(Ino, Range<u64>)>, answer: impl FnOnce() + Send + 'static) {
        let state = self.shared.state.lock();
        if pages.is_empty() && state.waiting.is_empty() && !state.busy {
            drop(state);
            return answer();
        }
        drop(state);
        self.wait(Waiting { pages, answer: Box::new(answer) });
    }

    fn wait(&self, waiting: Waiting) {
        let mut state = self.shared.state.lock();
        if !state.started {
            let (kernel, shared) = (self.kernel.clone(), self.shared.clone());
            let thread = std::thread::Builder::new().name("h5dir-pages".into()).spawn(move || run(&kernel, &shared));
            // After a failure the next call retries.
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

    /// Drops pages of `ino` before a change is answered.
    pub fn drop_now(&self, ino: Ino, range: Range<u64>) {
        let (kernel, (dropped, wait)) = (self.kernel.clone(), mpsc::channel());
        let drop = move || {
            drop_pages(&kernel, INodeNo(ino.0), range);
            // The receiver may have timed out.
            let _ = dropped.send(());
        };
        // The kernel first writes back what mappings stored in the page, which needs another event
        // loop.
        may_wait();
        match std::thread::Builder::new().name("h5dir-page".into()).spawn(drop) {
            Ok(_) if wait.recv_timeout(LOCKED_PAGE_WAIT).is_ok() => {}
            Ok(_) => tracing::debug!("the page at the old EOF of inode {} is locked by a write", ino.0),
            Err(e) => tracing::debug!("the kernel keeps the page at the old EOF of inode {}: {e}", ino.0),
        }
    }
}

fn run(kernel: &Kernel, shared: &Shared) {
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
        // Merged: many writers of one file wait once.
        let mut files: BTreeMap<u64, Range<u64>> = BTreeMap::new();
        for (ino, range) in waiting.iter().flat_map(|w| &w.pages) {
            let all = files.entry(ino.0).or_insert_with(|| range.clone());
            *all = all.start.min(range.start)..all.end.max(range.end);
        }
        for (ino, range) in files {
            drop_pages(kernel, INodeNo(ino), range);
        }
        waiting.into_iter().for_each(|w| (w.answer)());
    }
}

/// Drops the pages of an append, then calls `answer`: the pages of its place in the file, and those
/// that the kernel put it in. The last one of these may be locked until the answer; the guard ends
/// when it is dropped.
fn drop_misplaced(kernel: &Kernel, ino: INodeNo, [file, pages]: [Range<u64>; 2], guard: PageGuard, answer: impl FnOnce()) {
    let last = pages.end.saturating_sub(1) / PAGE_BYTES_MAX * PAGE_BYTES_MAX;
    let (kernel, (dropped, wait)) = (kernel.clone(), mpsc::channel());
    let drop = move || {
        for range in [&file, &pages] {
            let before = range.start..range.end.min(last);
            let after = range.start.max(last.saturating_add(PAGE_BYTES_MAX))..range.end;
            [before, after].into_iter().filter(|r| !r.is_empty()).for_each(|r| drop_pages(&kernel, ino, r));
        }
        let _ = dropped.send(());
        let start = file.start.min(pages.start).max(last);
        drop_pages(&kernel, ino, start..last.saturating_add(PAGE_BYTES_MAX));
        std::mem::drop(guard);
        let _ = dropped.send(());
    };
    match std::thread::Builder::new().name("h5dir-page".into()).spawn(drop) {
        Ok(_) if wait.recv_timeout(UNLOCKED_PAGE_WAIT).is_ok() && wait.recv_timeout(LOCKED_PAGE_WAIT).is_ok() => {}
        Ok(_) => tracing::debug!("the last page of an append to inode {ino} is locked by it"),
        Err(e) => tracing::debug!("the kernel keeps pages of inode {ino}: {e}"),
    }
    answer();
}

/// Has the kernel drop pages; returns when they are dropped.
fn drop_pages(kernel: &Kernel, ino: INodeNo, range: Range<u64>) {
    let (offset, len) = (i64::try_from(range.start), i64::try_from(range.end.saturating_sub(range.start)));
    let (Some(kernel), Ok(offset), Ok(len)) = (kernel.get(), offset, len) else { return };
    if let Err(e) = kernel.inval_inode(ino, offset, len) {
        tracing::debug!("the kernel keeps pages of inode {ino}: {e}");
    }
}
