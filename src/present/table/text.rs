//! A whole table as the bytes of a file, read at any offset.

use super::{Dialect, Table};
use crate::base::Result;
use crate::connector::Connector;
use crate::present::blocks::{BlockText, Blocks};
use std::sync::Arc;

/// Bytes of text of a block, about: it ends with the row that reaches them.
const BLOCK_BYTES: usize = 1 << 20;
/// Most bytes of elements for whose size the text is made.
const SIZED_BYTES_MAX: u64 = 8 << 20;
/// Most bytes of text that are made for its size.
const SIZED_TEXT_MAX: u64 = 32 << 20;

/// See the module's description. Lines have no fixed length.
pub struct TableText(BlockText<Lines>);

/// The lines of a table; the first block has the header.
struct Lines {
    connector: Arc<dyn Connector>,
    table: Table,
    dialect: Dialect,
}

impl Blocks for Lines {
    fn make(&self, row: u64, starts: &[(u64, u64)]) -> Result<(Vec<u8>, u64)> {
        let mut out = if starts.len() <= 1 { self.table.header(self.dialect) } else { Vec::new() };
        let next = self.table.write(&*self.connector, row..self.table.rows(), self.dialect, BLOCK_BYTES, &mut out)?;
        Ok((out, next))
    }

    fn is_end(&self, row: u64) -> bool {
        row >= self.table.rows()
    }
}

impl TableText {
    /// The text of `table`.
    pub fn new(connector: Arc<dyn Connector>, table: Table, dialect: Dialect) -> TableText {
        TableText(BlockText::new(Lines { connector, table, dialect }))
    }

    /// Fills the front of `buf` from `offset`; fewer bytes only at the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.0.read(offset, buf)
    }

    /// Size, bytes; `None`: it is not known, and the text is long. Makes the text the first time if
    /// the elements have at most 8 MiB, and at most 32 MiB of it.
    pub fn size(&self) -> Result<Option<u64>> {
        if self.known_size().is_none() && self.0.source.table.bytes() <= SIZED_BYTES_MAX {
            self.0.make_up_to(SIZED_TEXT_MAX)?;
        }
        Ok(self.known_size())
    }

    /// Size of a text that was made to its end, bytes.
    pub fn known_size(&self) -> Option<u64> {
        self.0.known_size()
    }
}
