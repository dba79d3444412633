//! Where the bytes end that a program makes a file of.
//!
//! A dataset has whole rows of its first dimension, so that the rest of a row that a write extends
//! the file into gets the fill value. Pieces of a row that follow one another fill it. If the last
//! one does not, the program has made a file of another size than it wrote, which closing the file
//! reports.

use crate::base::Error;
use crate::base::locks::Mutex;
use crate::fs::mounted::Mounted;
use crate::fs::namespace::Node;
use crate::fs::types::FsResult;
use crate::fs::views::Host;

/// The bytes that were written through one open file.
#[derive(Debug)]
pub struct WrittenEnd(Mutex<State>);

#[derive(Debug, Clone, Copy)]
struct State {
    /// Count of [`Node::set_size`] when the file was opened.
    opened: u64,
    /// Bytes were written.
    wrote: bool,
    /// The writes since the size was set last.
    reach: Option<Reach>,
}

#[derive(Debug, Clone, Copy)]
struct Reach {
    /// Count of [`Node::set_size`].
    count: u64,
    /// Size of the dataset before them, bytes.
    before: u64,
    /// Offset at which the farthest one ends.
    end: u64,
}

impl WrittenEnd {
    /// Of a file of `node` that is opened.
    pub fn new(node: &Node) -> Self {
        WrittenEnd(Mutex::new(State { opened: node.set_size.get().0, wrote: false, reach: None }))
    }

    /// Called before a write: calls `size` for the size of the dataset if it is the first one since
    /// the size was set. `None`: it is no dataset.
    pub fn begin(&self, node: &Node, size: impl FnOnce() -> Option<u64>) {
        let count = node.set_size.get().0;
        if self.0.lock().reach.is_none_or(|reach| reach.count != count) {
            let before = size().unwrap_or(u64::MAX);
            self.0.lock().reach = Some(Reach { count, before, end: 0 });
        }
    }

    /// Notes a write that ended at `end`.
    pub fn wrote(&self, end: u64) {
        let mut state = self.0.lock();
        state.wrote = true;
        if let Some(reach) = &mut state.reach {
            reach.end = reach.end.max(end);
        }
    }

    /// Where the file ends for the program, if it wrote to it and set its size or extended it.
    fn end(&self, node: &Node) -> Option<u64> {
        let (State { opened, wrote, reach }, (count, set)) = (*self.0.lock(), node.set_size.get());
        let reach = reach.filter(|reach| reach.count == count);
        let set = set.filter(|_| count != opened);
        match (set, reach) {
            _ if !wrote => None,
            (Some(set), reach) => Some(reach.map_or(set, |reach| reach.end.max(set))),
            (None, reach) => reach.filter(|reach| reach.end > reach.before).map(|reach| reach.end),
        }
    }

    /// Errors: `EINVAL`, the program made the file end within a row or an element.
    pub fn check(&self, mounted: &Mounted, node: &Node) -> FsResult<()> {
        let Some((id, end)) = node.item.mapped_dataset().zip(self.end(node)) else { return Ok(()) };
        // An object that cannot be read has other errors.
        let Ok(info) = mounted.connector.dataset(id) else { return Ok(()) };
        let Some(dims) = info.shape.dims().filter(|dims| !dims.is_empty() && !info.datatype.contains_vlen()) else { return Ok(()) };
        let row = dims.iter().skip(1).fold(info.datatype.element_size(), |n, d| n.saturating_mul(*d));
        let size = row.saturating_mul(dims.first().copied().unwrap_or(0));
        if end >= size || end.checked_rem(row).unwrap_or(0) == 0 {
            return Ok(());
        }
        let within = if row == info.datatype.element_size() { "an element" } else { "a row" };
        let reason = format!(
            "the bytes written end at {end}, within {within} of {row} bytes: the dataset has {size} bytes, the rest of which is not what \
             was written"
        );
        Err(mounted.refused(Some(id), &Error::refused(libc::EINVAL, reason)))
    }
}
