//! Where the bytes end of a file that a program overwrites as a whole: `cp text d.h5:/frames`.
//!
//! A dataset has whole rows of its first dimension, so that the rest of a row that a write extends
//! the file into gets the fill value. Pieces of a row that follow one another fill it. A program
//! that emptied the file by `O_TRUNC`, and whose bytes then end within a row, has made a file of
//! another size than it wrote, which closing the file reports. Other writes past the end are those
//! of programs that know what they do.

use crate::base::Error;
use crate::base::locks::Mutex;
use crate::fs::mounted::Mounted;
use crate::fs::namespace::Node;
use crate::fs::set_size::Sizes;
use crate::fs::types::FsResult;
use crate::fs::views::Host;

/// The bytes that were written through one open file.
#[derive(Debug)]
pub struct WrittenEnd(Mutex<State>);

#[derive(Debug, Clone, Copy)]
struct State {
    /// How often the file had been emptied ([`Sizes::cleared`]) when it was opened.
    opened: u64,
    /// What the first write found.
    first: Option<Sizes>,
    /// How often a size had been set when `end` was noted.
    count: u64,
    /// Offset at which the farthest write since then ends.
    end: u64,
}

impl WrittenEnd {
    /// Of a file of `node` that is opened.
    pub fn new(node: &Node) -> Self {
        WrittenEnd(Mutex::new(State { opened: node.set_size.get().cleared, first: None, count: 0, end: 0 }))
    }

    /// Notes a write to `node` that ended at `end`.
    pub fn wrote(&self, node: &Node, end: u64) {
        let sizes = node.set_size.get();
        let mut state = self.0.lock();
        state.first.get_or_insert(sizes);
        let before = if state.count == sizes.count { state.end } else { 0 };
        (state.count, state.end) = (sizes.count, before.max(end));
    }

    /// Where the file ends for the program, if it overwrote it.
    fn end(&self, node: &Node) -> Option<u64> {
        let (State { opened, first, count, end }, now) = (*self.0.lock(), node.set_size.get());
        // Emptied between the opening and the first write, and not since.
        let first = first.filter(|first| first.cleared != opened && first.cleared == now.cleared);
        let last = first.and(now.last)?;
        Some(if count == now.count { end.max(last) } else { last })
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
