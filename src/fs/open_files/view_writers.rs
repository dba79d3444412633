//! Counts the writers of each dataset, which may be open for writing through one view at a time.
//!
//! Each view of a dataset is an inode of its own with its own pages. If two views had dirty pages
//! of the same elements, writeback of one would undo changes made through the other. The kernel
//! reports that a file was closed after close(2) has returned, so a request that meets the writer
//! of another view waits for a moment.

use crate::base::waiting;
use crate::connector::ObjectId;
use crate::fs::namespace::Node;
use crate::fs::types::{Errno, FsResult};
use foldhash::HashMap;
use parking_lot::{Condvar, Mutex};
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

/// How long a request waits for writers of another view to leave.
const LEAVE_WAIT: Duration = Duration::from_millis(200);

#[derive(Default)]
struct Writers {
    /// Datasets that are open for writing: the name of the view, and how many open files it has.
    datasets: HashMap<ObjectId, (&'static str, u64)>,
    /// Datasets that were closed by their last writer so far.
    closed: u64,
}

/// See the module's description.
#[derive(Default)]
pub struct ViewWriters {
    writers: Mutex<Writers>,
    left: Condvar,
}

fn dataset(node: &Node) -> Option<(ObjectId, &'static str)> {
    Some((node.item.elements_of()?, node.item.view.name()))
}

impl ViewWriters {
    /// Counts a writer of `node`; true if the dataset had writers. Errors: `EBUSY` while another
    /// view of it has writers.
    pub fn enter(&self, node: &Node) -> FsResult<bool> {
        let Some((id, view)) = dataset(node) else { return Ok(false) };
        match self.writers.lock().datasets.entry(id) {
            Entry::Vacant(none) => {
                none.insert((view, 1));
                Ok(false)
            }
            Entry::Occupied(there) if there.get().0 != view => Err(Errno(libc::EBUSY)),
            Entry::Occupied(mut there) => {
                there.get_mut().1 = there.get().1.saturating_add(1);
                Ok(true)
            }
        }
    }

    /// Ends what [`ViewWriters::enter`] counted.
    pub fn leave(&self, node: &Node) {
        let Some((id, _)) = dataset(node) else { return };
        let mut writers = self.writers.lock();
        let Some((_, count)) = writers.datasets.get_mut(&id) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            writers.datasets.remove(&id);
            writers.closed = writers.closed.wrapping_add(1);
            node.writes.end();
            self.left.notify_all();
        }
    }

    /// Errors: `EBUSY` while a view of the dataset other than that of `node` has writers.
    pub fn check(&self, node: &Node) -> FsResult<()> {
        let Some((id, view)) = dataset(node) else { return Ok(()) };
        match self.writers.lock().datasets.get(&id) {
            Some((other, _)) if *other != view => Err(Errno(libc::EBUSY)),
            _ => Ok(()),
        }
    }

    /// The result of `f`, which is called again after writers have left as long as it is `EBUSY`.
    /// Call it without locks that closing a file needs.
    pub fn retry_busy<T>(&self, mut f: impl FnMut() -> FsResult<T>) -> FsResult<T> {
        let start = Instant::now();
        let end = start.checked_add(LEAVE_WAIT).unwrap_or(start);
        loop {
            let closed = self.writers.lock().closed;
            let result = f();
            if !matches!(result, Err(Errno(libc::EBUSY))) {
                return result;
            }
            waiting::may_wait();
            let mut writers = self.writers.lock();
            while writers.closed == closed && !writers.datasets.is_empty() && Instant::now() < end {
                self.left.wait_until(&mut writers, end);
            }
            // Without writers, something else is busy.
            if writers.closed == closed || Instant::now() >= end {
                return result;
            }
        }
    }
}
