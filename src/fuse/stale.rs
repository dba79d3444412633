//! Pages that other descriptors have of a file, after bytes were written past them.
//!
//! A descriptor that only writes bypasses the page cache. The kernel drops the pages of what it writes before it hands the
//! bytes on; a reader may bring one back in between, with the old bytes. So where a file is open more than once, its pages
//! are dropped again when the bytes are in their place, and only then the write is answered. (Linux 6.18 drops them itself,
//! behind the answer: what it knows of the size would still be the old then, if somebody just asks for it.)
//!
//! The kernel waits for reads of those pages, and for dirty ones to be written; both wait for event loops: a thread of its
//! own asks for it. No answer that it owes is waited for: what is written back comes from mapped descriptors, and those that
//! bypass the page cache are never mapped shared.

use super::adapter::Kernel;
use fuser::{INodeNo, ReplyWrite};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A write that is done.
struct Written {
    ino: INodeNo,
    range: Range<u64>,
    reply: ReplyWrite,
}

impl Written {
    fn answer(self) {
        let len = self.range.end.saturating_sub(self.range.start);
        self.reply.written(u32::try_from(len).unwrap_or(u32::MAX));
    }
}

#[derive(Default)]
struct State {
    /// Not answered yet.
    written: Vec<Written>,
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

    /// These bytes of `ino` were written: `reply` says so once no page has the old ones.
    pub fn wrote(&self, ino: INodeNo, range: Range<u64>, reply: ReplyWrite) {
        let written = Written { ino, range, reply };
        let mut state = self.shared.state.lock();
        if !state.started {
            let (kernel, shared) = (self.kernel.clone(), self.shared.clone());
            let thread = std::thread::Builder::new().name("h5dir-pages".into()).spawn(move || tell(&kernel, &shared));
            // Tried again by the next write.
            state.started = thread.is_ok();
        }
        if !state.started {
            drop(state);
            return written.answer();
        }
        state.written.push(written);
        drop(state);
        self.shared.more.notify_one();
    }
}

fn tell(kernel: &Kernel, shared: &Shared) {
    loop {
        let mut state = shared.state.lock();
        while state.written.is_empty() && !state.ended {
            shared.more.wait(&mut state);
        }
        let written = std::mem::take(&mut state.written);
        drop(state);
        if written.is_empty() {
            return;
        }
        // Put together: many who write to one file wait once.
        let mut files: BTreeMap<u64, Range<u64>> = BTreeMap::new();
        for w in &written {
            let all = files.entry(w.ino.0).or_insert_with(|| w.range.clone());
            *all = all.start.min(w.range.start)..all.end.max(w.range.end);
        }
        for (ino, range) in files {
            let (offset, len) = (i64::try_from(range.start), i64::try_from(range.end.saturating_sub(range.start)));
            let (Some(kernel), Ok(offset), Ok(len)) = (kernel.get(), offset, len) else { continue };
            if let Err(e) = kernel.inval_inode(INodeNo(ino), offset, len) {
                tracing::debug!("the kernel keeps pages of inode {ino}: {e}");
            }
        }
        written.into_iter().for_each(Written::answer);
    }
}
