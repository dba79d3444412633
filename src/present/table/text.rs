//! A whole table as the bytes of a file, read at any offset.
//!
//! Lines have no fixed length, so rows and offsets of blocks are noted as far as the text was made.
//! A read beyond that makes the text up to there, if that is not far.

use super::{Dialect, Table};
use crate::base::{Error, Result};
use crate::connector::Connector;
use parking_lot::Mutex;
use std::sync::Arc;

/// Bytes of text of a block, about: it ends with the row that reaches them.
const BLOCK_BYTES: usize = 1 << 20;
/// Most bytes of text that are made for one request.
const AHEAD_MAX: u64 = 64 << 20;

/// Most bytes of elements for whose size the text is made.
const SIZED_BYTES_MAX: u64 = 8 << 20;
/// Most bytes of text that are made for its size.
const SIZED_TEXT_MAX: u64 = 32 << 20;

/// See the module's description.
pub struct TableText {
    connector: Arc<dyn Connector>,
    table: Table,
    dialect: Dialect,
    progress: Mutex<Progress>,
}

/// How far the text was made.
struct Progress {
    /// First byte and first row of each block, and of the one that is made next.
    starts: Vec<(u64, u64)>,
    /// The block that was made last.
    block: Option<(usize, Arc<Vec<u8>>)>,
    /// The last of `starts` is the end.
    ended: bool,
}

impl TableText {
    /// The text of `table`.
    pub fn new(connector: Arc<dyn Connector>, table: Table, dialect: Dialect) -> TableText {
        TableText { connector, table, dialect, progress: Mutex::new(Progress { starts: vec![(0, 0)], block: None, ended: false }) }
    }

    /// The text of the block that begins with `row`, and the row after it; the first block has the
    /// header.
    fn make(&self, number: usize, row: u64) -> Result<(Vec<u8>, u64)> {
        let mut out = if number == 0 { self.table.header(self.dialect) } else { Vec::new() };
        let next = self.table.write(&*self.connector, row..self.table.rows(), self.dialect, BLOCK_BYTES, &mut out)?;
        Ok((out, next))
    }

    /// The block that has byte `offset`, and its first byte; `None`: the text ends before it, or
    /// the container changed and it is shorter than it was.
    fn block_at(&self, offset: u64) -> Result<Option<(u64, Arc<Vec<u8>>)>> {
        let mut progress = self.progress.lock();
        let made = |progress: &Progress| progress.starts.last().map_or(0, |(end, _)| *end);
        let before = made(&progress);
        loop {
            if made(&progress).saturating_sub(before) > AHEAD_MAX {
                let reason = format!("no text was made up to byte {offset}; read on from byte {before}, or from one near to it");
                return Err(Error::refused(libc::EFBIG, reason));
            }
            let number = progress.starts.partition_point(|(start, _)| *start <= offset).saturating_sub(1);
            let (start, row) = progress.starts.get(number).copied().unwrap_or_default();
            let is_new = number.saturating_add(1) == progress.starts.len();
            if is_new && progress.ended {
                return Ok(None);
            }
            let made = progress.block.as_ref().filter(|(made, _)| *made == number).map(|(_, text)| text.clone());
            let text = match made {
                Some(text) => text,
                None => {
                    let (text, next) = self.make(number, row)?;
                    if is_new {
                        progress.starts.push((start.saturating_add(text.len() as u64), next));
                        progress.ended = next >= self.table.rows();
                    }
                    Arc::new(text)
                }
            };
            progress.block = Some((number, text.clone()));
            if offset < start.saturating_add(text.len() as u64) {
                return Ok(Some((start, text)));
            }
            if !is_new {
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

    /// Size, bytes; `None`: it is not known, and the text is long. Makes the text the first time if
    /// the elements have at most 8 MiB, and at most 32 MiB of it.
    pub fn size(&self) -> Result<Option<u64>> {
        let found = self.known_size();
        if found.is_none() && self.table.bytes() <= SIZED_BYTES_MAX {
            let _ = self.block_at(SIZED_TEXT_MAX)?;
            return Ok(self.known_size());
        }
        Ok(found)
    }

    /// Size of a text that was made to its end, bytes.
    pub fn known_size(&self) -> Option<u64> {
        let progress = self.progress.lock();
        progress.starts.last().filter(|_| progress.ended).map(|(end, _)| *end)
    }
}
