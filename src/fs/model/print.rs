//! The elements of a dataset in a form that other programs read.

use super::ObjectModel;
use crate::base::Result;
use crate::present::{self, SelectionText, Table};
pub use crate::present::{BARS, Statistics};
pub use crate::present::{Dialect, ImageForm};
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
    /// An Arrow file.
    Arrow,
    /// An image, or a plot.
    Image(ImageForm),
    /// The bytes of elements of fixed size, in the order of the selection.
    Raw,
}

/// Bytes of text that are passed on at once, about.
const PIECE_BYTES: usize = 1 << 20;

impl ObjectModel {
    /// Statistics of the numbers in `selection` (empty: all). Calls `progress` with the bytes that
    /// were read.
    pub fn statistics(&self, selection: SelectionText<'_>, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<Statistics> {
        self.check_elements()?;
        present::statistics(&*self.models.mounted.connector, self.id, selection, progress)
    }

    /// Passes the elements in `selection` (empty: all) to `f` in pieces. `rows`: of so many rows,
    /// those that are wanted; JSON and numpy files have all.
    pub fn print(
        &self,
        form: Form,
        selection: SelectionText<'_>,
        rows: &dyn Fn(u64) -> Range<u64>,
        f: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.check_elements()?;
        let connector = &*self.models.mounted.connector;
        if let Form::Image(form) = form {
            let pictures = present::Pictures::of(self.models.mounted.connector.clone(), self.id, selection)?;
            let frame = (!pictures.is_plot()).then_some(0);
            return f(&pictures.file(frame, form)?);
        }
        if form == Form::Raw {
            return self.print_raw(selection, f);
        }
        let table = self.read(|object| Table::of(object.connector, object.id, selection))?;
        let dialect = match form {
            Form::Rows(dialect) => dialect,
            Form::Json => return table.json(connector, f),
            Form::Npy => return table.npy(connector, f),
            Form::Arrow | Form::Image(_) | Form::Raw => return self.print_arrow(table, f),
        };
        f(&table.header(dialect))?;
        let (wanted, mut text) = (rows(table.rows()), Vec::new());
        let mut at = wanted.start;
        while at < wanted.end {
            text.clear();
            at = table.write(connector, at..wanted.end, dialect, PIECE_BYTES, &mut text)?;
            f(&text)?;
        }
        Ok(())
    }

    #[cfg(feature = "arrow")]
    fn print_arrow(&self, table: Table, f: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let file = present::ArrowFile::new(self.models.mounted.connector.clone(), table)?;
        let (mut piece, mut at) = (vec![0; PIECE_BYTES], 0u64);
        loop {
            let n = file.read(at, &mut piece)?;
            if n == 0 {
                return Ok(());
            }
            f(piece.get(..n).unwrap_or_default())?;
            at = at.saturating_add(n as u64);
        }
    }

    #[cfg(not(feature = "arrow"))]
    fn print_arrow(&self, _table: Table, _f: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        Err(crate::base::Error::refused(libc::EOPNOTSUPP, "this h5dir was built without the feature 'arrow'; use --csv or --npy"))
    }
}
