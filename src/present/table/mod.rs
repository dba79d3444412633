//! Datasets as text: a value a line, tables with columns, JSON lines.
//!
//! | dataset | rows | columns |
//! |---|---|---|
//! | compound | its elements | members, those of nested compounds joined by a dot |
//! | other, 0 or 1 dimensions | its elements | one |
//! | other, more dimensions | rows of the last dimension | elements of a row |
//!
//! ```text
//! dialect  cells and lines      rows  which elements a row has
//! times    numbers as times     text  a whole table as the bytes of a file
//! ```

mod dialect;
mod rows;
mod text;
mod times;

pub use dialect::Dialect;
pub(super) use dialect::plain_number;
pub use text::TableText;

use super::gather::gather;
use super::npy::build;
use super::npy_descr;
use super::parse::SelectionText;
use super::value::json_value;
use crate::base::datatype::{Class, Datatype};
use crate::base::{Address, Error, Result};
use crate::connector::{Connector, Limited, ObjectId, Value};
use rows::Rows;
use std::ops::Range;
pub(super) use times::Times;

/// Most columns of a table.
const COLUMNS_MAX: u64 = 1 << 20;
/// Most bytes of the elements of one row.
const ROW_BYTES_MAX: u64 = 64 << 20;
/// Bytes of elements that are read at once, about.
const BATCH_BYTES: u64 = 1 << 20;
/// Elements with parts outside of them that are read at once.
const BATCH_PARTS: u64 = 256;
/// Most bytes of the text of one row, and of the parts of a batch as JSON.
const TEXT_MAX: u64 = 64 << 20;

/// A column: a member of each element, or the element itself.
pub(super) struct Column {
    /// Names of members, joined by dots; empty: the element itself.
    pub(super) name: Vec<u8>,
    /// First byte in the element.
    pub(super) offset: usize,
    pub(super) datatype: Datatype,
    pub(super) times: Option<Times>,
}

/// A dataset, or selected elements of it, as a table.
pub struct Table {
    id: ObjectId,
    datatype: Datatype,
    columns: Vec<Column>,
    rows: Rows,
    /// It has a null dataspace.
    is_null: bool,
}

impl Table {
    /// The elements of the dataset `id` in `selection` (empty: all). Errors: `EINVAL`, no such
    /// selection; `EFBIG`, a row has too many columns or bytes.
    pub fn of(connector: &dyn Connector, id: ObjectId, selection: SelectionText<'_>) -> Result<Table> {
        let d = connector.dataset(id)?;
        // A null dataspace has no elements, and no dimensions.
        let is_null = d.shape.dims().is_none();
        let dims = d.shape.dims().unwrap_or(&[0]);
        let selected = selection.select(dims)?;
        let times = Times::of(connector, id, &d.datatype)?;
        let mut columns = Vec::new();
        add_columns(&d.datatype, Vec::new(), 0, times.as_ref(), &mut columns)?;
        let of_elements = matches!(d.datatype.class, Class::Compound(_));
        // Elements that are no grid are a list.
        let is_list = selected.shape().len() < 2;
        let rows = Rows::new(selected, of_elements || is_list);
        let large = |what| Error::refused(libc::EFBIG, format!("a row has too many {what} for a table"));
        if rows.len().saturating_mul(columns.len() as u64) > COLUMNS_MAX {
            return Err(large("columns"));
        }
        if rows.len().saturating_mul(d.datatype.element_size()) > ROW_BYTES_MAX {
            return Err(large("bytes"));
        }
        Ok(Table { id, datatype: d.datatype, columns, rows, is_null })
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.rows.count()
    }

    /// Its columns.
    #[cfg(feature = "arrow")]
    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Dimensions of the selection.
    #[cfg(feature = "arrow")]
    pub(super) fn extent(&self) -> Vec<u64> {
        self.rows.extent()
    }

    /// True if its rows are elements, else lines along the last dimension.
    #[cfg(feature = "arrow")]
    pub(super) fn has_rows_of_elements(&self) -> bool {
        !self.rows.are_lines()
    }

    /// Reads the elements of `rows`, which the caller bounds.
    #[cfg(feature = "arrow")]
    pub(super) fn read(&self, connector: &dyn Connector, rows: Range<u64>) -> Result<Option<Value>> {
        self.value(connector, &self.rows.elements(&rows))
    }

    /// Reads the elements at `positions` of the selection, which the caller bounds.
    fn value(&self, connector: &dyn Connector, positions: &Range<u64>) -> Result<Option<Value>> {
        gather(connector, self.id, &self.rows.runs(positions))
    }

    /// Type of its elements.
    pub fn datatype(&self) -> &Datatype {
        &self.datatype
    }

    /// Its elements in batches, each of which is read at once: runs of numbers.
    pub fn batches(&self) -> impl Iterator<Item = Vec<Range<u64>>> + '_ {
        let (step, rows) = (self.batch(), self.rows());
        let at = (0..rows.div_ceil(step)).map(move |n| n.saturating_mul(step)..n.saturating_add(1).saturating_mul(step).min(rows));
        at.map(|rows| self.rows.runs(&self.rows.elements(&rows)))
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> u64 {
        self.rows().saturating_mul(self.rows.len()).saturating_mul(self.datatype.element_size())
    }

    /// Rows that are read at once.
    fn batch(&self) -> u64 {
        self.elements_at_once().checked_div(self.rows.len()).unwrap_or(1).clamp(1, 1 << 16)
    }

    /// Elements that are read at once.
    fn elements_at_once(&self) -> u64 {
        let all = BATCH_BYTES.checked_div(self.datatype.element_size()).unwrap_or(1).max(1);
        if self.has_parts() { all.min(BATCH_PARTS) } else { all }
    }

    /// True if an element may have parts of any length outside of it.
    fn has_parts(&self) -> bool {
        self.datatype.contains_vlen() || self.datatype.contains_reference()
    }

    /// The line with the names of columns; empty if the elements have no members.
    pub fn header(&self, dialect: Dialect) -> Vec<u8> {
        let names = self.columns.iter().map(|column| column.name.as_slice());
        if self.columns.iter().any(|column| !column.name.is_empty()) { dialect.header(names) } else { Vec::new() }
    }

    /// Appends the lines of `rows` to `out`, as far as it has less than `most` bytes. Returns the
    /// row that is next.
    pub fn write(&self, connector: &dyn Connector, rows: Range<u64>, dialect: Dialect, most: usize, out: &mut Vec<u8>) -> Result<u64> {
        let mut at = rows.start;
        while at < rows.end {
            let end = rows.end.min(at.saturating_add(self.batch()));
            if let Some(value) = self.value(connector, &self.rows.elements(&(at..end)))? {
                at = at.saturating_add(self.write_value(&value, dialect, most, out)?);
                if out.len() >= most {
                    return Ok(at);
                }
            }
            at = end;
        }
        Ok(at)
    }

    /// Appends the lines of whole rows, whose elements are `value`, as far as `out` has less than
    /// `most` bytes. Returns how many.
    fn write_value(&self, value: &Value, dialect: Dialect, most: usize, out: &mut Vec<u8>) -> Result<u64> {
        let limited = Limited { parts: &*value.parts, limit: TEXT_MAX };
        let (mut writer, mut done) = (dialect::Writer::new(dialect, &limited, out), 0u64);
        let size = usize::try_from(self.datatype.element_size()).unwrap_or(usize::MAX).max(1);
        let row = size.saturating_mul(usize::try_from(self.rows.len()).unwrap_or(usize::MAX)).max(1);
        let several = self.rows.are_lines();
        for bytes in value.bytes.chunks_exact(row) {
            if writer.len() >= most {
                break;
            }
            writer.begin_row(several);
            for element in bytes.chunks_exact(size) {
                for column in &self.columns {
                    let end = column.offset.saturating_add(usize::try_from(column.datatype.element_size()).unwrap_or(usize::MAX));
                    let outside = || Error::corrupt("value", Address::UNDEF, "a compound member lies outside its element");
                    let cell = element.get(column.offset..end).ok_or_else(outside)?;
                    let text = column.times.as_ref().and_then(|times| times.text(&column.datatype, cell));
                    writer.cell(&column.name, &column.datatype, cell, text)?;
                }
            }
            writer.end_row(several);
            done = done.saturating_add(1);
        }
        Ok(done)
    }

    /// Calls `f` with all elements as one JSON value, in pieces.
    pub fn json(&self, connector: &dyn Connector, f: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if self.is_null {
            return f(b"null\n");
        }
        let lines = self.rows.lines();
        for line in 0..lines {
            let (opened, closed) = self.rows.brackets(line);
            f(if line > 0 { b",\n" } else { b"" })?;
            f("[".repeat(opened).as_bytes())?;
            self.json_line(connector, line, f)?;
            f("]".repeat(closed).as_bytes())?;
        }
        f(if lines == 0 { b"[]\n" } else { b"\n" })
    }

    fn json_line(&self, connector: &dyn Connector, line: u64, f: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let elements = self.rows.line(line);
        let is_list = self.rows.is_list();
        f(if is_list { b"[" } else { b"" })?;
        let step = self.elements_at_once();
        let mut at = elements.start;
        while at < elements.end {
            let end = elements.end.min(at.saturating_add(step));
            let Some(value) = self.value(connector, &(at..end))? else { break };
            let limited = Limited { parts: &*value.parts, limit: TEXT_MAX };
            let text = json_value(&value.elements(), &limited)?;
            // A list of its own.
            let inner = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(&text);
            f(if at > elements.start { b"," } else { b"" })?;
            f(inner)?;
            at = end;
        }
        f(if is_list { b"]" } else { b"" })
    }

    /// Calls `f` with all elements as a numpy file, in pieces. Errors: `EOPNOTSUPP`, numpy has no
    /// notation for them.
    pub fn npy(&self, connector: &dyn Connector, f: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let descr = npy_descr(&self.datatype).filter(|_| !self.datatype.contains_vlen() && !self.is_null);
        let descr = descr.ok_or_else(|| Error::refused(libc::EOPNOTSUPP, "numpy has no notation for its elements"))?;
        let inner = descr.dims.iter().map(|dim| u64::from(*dim));
        f(&build(&descr.descr, &self.rows.extent().iter().copied().chain(inner).collect::<Vec<_>>()))?;
        let step = BATCH_BYTES.checked_div(self.datatype.element_size()).unwrap_or(1).max(1);
        for line in 0..self.rows.lines() {
            let elements = self.rows.line(line);
            let mut at = elements.start;
            while at < elements.end {
                let end = elements.end.min(at.saturating_add(step));
                if let Some(value) = self.value(connector, &(at..end))? {
                    f(&value.bytes)?;
                }
                at = end;
            }
        }
        Ok(())
    }
}

/// The columns of elements of type `t`, which are the members `name` at `offset` of others.
fn add_columns(t: &Datatype, name: Vec<u8>, offset: usize, times: Option<&Times>, columns: &mut Vec<Column>) -> Result<()> {
    // The depth of the recursion is that of the datatype message, which its decoder bounds.
    let Class::Compound(c) = &t.class else {
        if columns.len() as u64 >= COLUMNS_MAX {
            return Err(Error::refused(libc::EFBIG, "its elements have too many members for a table"));
        }
        let times = times.cloned().or_else(|| Times::of_type(t));
        columns.push(Column { name, offset, datatype: t.clone(), times });
        return Ok(());
    };
    for member in &c.members {
        let dot: &[u8] = if name.is_empty() { b"" } else { b"." };
        let name = [&name, dot, &member.name.bytes].concat();
        add_columns(&member.datatype, name, offset.saturating_add(member.offset as usize), None, columns)?;
    }
    Ok(())
}
