//! The elements of a dataset in a form that other programs read.

use super::ObjectModel;
use crate::base::Result;
pub use crate::present::Dialect;
use crate::present::Table;
use std::ops::Range;

/// A form of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A row a line.
    Rows(Dialect),
    /// One JSON value.
    Json,
    /// A numpy file.
    Npy,
}

/// Rows of which the text is passed on at once.
const ROWS: u64 = 4096;

impl ObjectModel {
    /// Passes the elements in `selection` (empty: all) to `f` in pieces. `rows`: of so many rows,
    /// those that are wanted; JSON and numpy files have all.
    pub fn print(
        &self,
        form: Form,
        selection: &str,
        rows: &dyn Fn(u64) -> Range<u64>,
        f: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let connector = &*self.models.mounted.connector;
        let table = self.read(|object| Table::of(object.connector, object.id, selection))?;
        let dialect = match form {
            Form::Rows(dialect) => dialect,
            Form::Json => return table.json(connector, f),
            Form::Npy => return table.npy(connector, f),
        };
        f(&table.header(dialect))?;
        let (wanted, mut text) = (rows(table.rows()), Vec::new());
        let mut at = wanted.start;
        while at < wanted.end {
            let end = wanted.end.min(at.saturating_add(ROWS));
            text.clear();
            table.write(connector, at..end, dialect, &mut text)?;
            f(&text)?;
            at = end;
        }
        Ok(())
    }
}
