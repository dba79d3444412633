//! Pages that other descriptors have of a file, after bytes were written past them.
//!
//! A descriptor that only writes bypasses the page cache. The kernel drops the pages of what it writes before it hands the
//! bytes on; a reader may bring one back in between, with the old bytes. So where a file is open more than once, its pages
//! are dropped again when the bytes are in their place. (Linux 6.18 does so itself.)
//!
//! The kernel waits for reads of those pages, and reads wait for event loops: a thread of its own asks for it.

use super::adapter::Kernel;
use fuser::INodeNo;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

#[derive(Default)]
struct State {
    /// What was written, by inode, put together.
    written: BTreeMap<u64, Range<u64>>,
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

    /// These bytes of `ino` are others now.
    pub fn wrote(&self, ino: INodeNo, offset: u64, len: u64) {
        let mut state = self.shared.state.lock();
        let new = offset..offset.saturating_add(len);
        let all = state.written.entry(ino.0).or_insert_with(|| new.clone());
        *all = all.start.min(new.start)..all.end.max(new.end);
        if !state.started {
            let (kernel, shared) = (self.kernel.clone(), self.shared.clone());
            let thread = std::thread::Builder::new().name("h5dir-pages".into()).spawn(move || tell(&kernel, &shared));
            // Tried again by the next write.
            state.started = thread.is_ok();
        }
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
        if state.ended {
            return;
        }
        let written = std::mem::take(&mut state.written);
        drop(state);
        for (ino, range) in written {
            let (offset, len) = (i64::try_from(range.start), i64::try_from(range.end.saturating_sub(range.start)));
            let (Some(kernel), Ok(offset), Ok(len)) = (kernel.get(), offset, len) else { continue };
            if let Err(e) = kernel.inval_inode(INodeNo(ino), offset, len) {
                tracing::debug!("the kernel keeps pages of inode {ino}: {e}");
            }
        }
    }
}
