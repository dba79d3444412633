//! A whole table as the bytes of a file, read at any offset.
//!
//! Lines have no fixed length, so offsets of blocks of rows are noted as far as the text was made.
//! A read beyond that makes the text up to there.

use super::{Dialect, Table};
use crate::base::Result;
use crate::connector::Connector;
use parking_lot::Mutex;
use std::sync::Arc;

/// See the module's description.
pub struct TableText {
    connector: Arc<dyn Connector>,
    table: Table,
    dialect: Dialect,
    progress: Mutex<Progress>,
}

/// How far the text was made.
#[derive(Default)]
struct Progress {
    /// First byte of each block, and of the one that is made next.
    starts: Vec<u64>,
    /// The block that was made last.
    block: Option<(usize, Arc<Vec<u8>>)>,
}

impl TableText {
    /// The text of `table`.
    pub fn new(connector: Arc<dyn Connector>, table: Table, dialect: Dialect) -> TableText {
        TableText { connector, table, dialect, progress: Mutex::new(Progress { starts: vec![0], block: None }) }
    }

    fn blocks(&self) -> u64 {
        self.table.rows().div_ceil(self.table.batch()).max(1)
    }

    /// The text of block `number`; the first one has the header.
    fn make(&self, number: u64) -> Result<Vec<u8>> {
        let mut out = if number == 0 { self.table.header(self.dialect) } else { Vec::new() };
        let start = number.saturating_mul(self.table.batch());
        let end = start.saturating_add(self.table.batch()).min(self.table.rows());
        self.table.write(&*self.connector, start..end, self.dialect, &mut out)?;
        Ok(out)
    }

    /// The block that has byte `offset`, and its first byte; `None`: the text ends before it.
    fn block_at(&self, offset: u64) -> Result<Option<(u64, Arc<Vec<u8>>)>> {
        let mut progress = self.progress.lock();
        loop {
            // Empty blocks begin where the next one does.
            let number = progress.starts.partition_point(|start| *start <= offset).saturating_sub(1);
            let start = progress.starts.get(number).copied().unwrap_or(0);
            let is_new = number.saturating_add(1) == progress.starts.len();
            if is_new && number as u64 >= self.blocks() {
                return Ok(None);
            }
            let made = progress.block.as_ref().filter(|(made, _)| *made == number).map(|(_, text)| text.clone());
            let text = match made {
                Some(text) => text,
                None => Arc::new(self.make(number as u64)?),
            };
            progress.block = Some((number, text.clone()));
            let end = start.saturating_add(text.len() as u64);
            if is_new {
                progress.starts.push(end);
            }
            if offset < end {
                return Ok(Some((start, text)));
            }
            if !is_new {
                // The container changed: the text is shorter than it was.
                return Ok(None);
            }
        }
    }

    /// Fills the front of `buf` from `offset`; fewer bytes only at the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            let Some((start, text)) = self.block_at(at)? else { break };
            let part = usize::try_from(at.saturating_sub(start)).ok().and_then(|skip| text.get(skip..)).unwrap_or_default();
            let n = part.len().min(rest.len());
            rest.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            done = done.saturating_add(n);
            if n == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Size, bytes. Makes all of the text the first time.
    pub fn size(&self) -> Result<u64> {
        let _ = self.block_at(u64::MAX)?;
        Ok(self.progress.lock().starts.last().copied().unwrap_or(0))
    }
}
