//! Pages that other descriptors have of a file, after bytes were written past them.
//!
//! A descriptor that only writes bypasses the page cache. The kernel drops the pages of what it writes before it hands the
//! bytes on; a reader may bring one back in between, with the old bytes. So where a file is open more than once, its pages
//! are dropped again when the bytes are in their place, and only then the write is answered. (Linux 6.18 drops them itself,
//! behind the answer: what it knows of the size would still be the old then, if somebody just asks for it.)
//!
//! A dataset may also be open under more than one inode: in the main tree and below `.h5dir`. What is changed through one is dropped from
//! the pages of the others, soon after a write, and before the answer when a descriptor is closed.
//!
//! The kernel waits for reads of those pages, and for dirty ones to be written; both wait for event loops: a thread of its
//! own asks for it. No answer that it owes is waited for: while pages are written they are locked, and such writes are answered at once;
//! those that bypass the page cache lock none, nor does a close.
//!
//! The page of a file's old end is dropped before a change is answered that left bytes out behind it. A write through pages
//! holds the page that it writes to until it is answered, but only where that was not read: there is nothing old in it, and it
//! is not waited for long.

use super::kernel::Kernel;
use crate::base::waiting::may_wait;
use crate::fs::Ino;
use fuser::INodeNo;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long is waited for a page to be dropped that a write may hold.
const HELD: Duration = Duration::from_millis(100);

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

    /// These bytes of `ino` were written: `answer` says so once no page has the old ones.
    pub fn wrote(&self, ino: INodeNo, range: Range<u64>, answer: impl FnOnce() + Send + 'static) {
        self.wait(Waiting { pages: vec![(ino, range)], answer: Box::new(answer) });
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

/// Has the kernel drop pages; returns when it did.
fn forget(kernel: &Kernel, ino: INodeNo, range: Range<u64>) {
    let (offset, len) = (i64::try_from(range.start), i64::try_from(range.end.saturating_sub(range.start)));
    let (Some(kernel), Ok(offset), Ok(len)) = (kernel.get(), offset, len) else { return };
    if let Err(e) = kernel.inval_inode(ino, offset, len) {
        tracing::debug!("the kernel keeps pages of inode {ino}: {e}");
    }
}
