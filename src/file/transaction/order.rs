//! Commits in order, for readers without locks (`file::write_order`).

use super::{Transaction, TransactionState};
use crate::file::write_order::WriteOrder;
use std::io;
use std::ops::Range;

impl TransactionState {
    /// Adds live bytes, which change, to the order. Error: `EPERM` if they have no level.
    pub(super) fn order_live(&mut self, range: &Range<u64>, level: Option<u8>) -> io::Result<()> {
        let Some(order) = &mut self.order else { return Ok(()) };
        let level = level.ok_or_else(|| io::Error::from_raw_os_error(libc::EPERM))?;
        order.add(range.clone(), level);
        Ok(())
    }
}

impl Transaction {
    /// From now on commits replace live bytes in order, and freed space is not reused. Changes of
    /// live bytes without a level are refused. Called after a commit.
    pub fn begin_order(&self) {
        let mut state = self.state.write();
        state.order = Some(WriteOrder::default());
        state.space.retain_freed();
    }

    /// Ends what [`Transaction::begin_order`] began, except that freed space stays unused. Returns
    /// whether commits were ordered. Called after a commit.
    pub fn end_order(&self) -> bool {
        self.state.write().order.take().is_some()
    }

    /// True if commits replace live bytes in order.
    pub fn is_ordered(&self) -> bool {
        self.state.read().order.is_some()
    }

    /// True if readers without locks may be reading some of `range`.
    pub fn is_published(&self, range: Range<u64>) -> bool {
        let state = self.state.read();
        state.order.is_some() && state.space.split_fresh(range).iter().any(|(_, fresh)| !fresh)
    }
}
