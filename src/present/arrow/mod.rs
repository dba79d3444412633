//! Datasets as files of Arrow's IPC format.
//!
//! ```text
//! magic | schema | a batch for each dictionary | record batches | footer
//! ```
//!
//! | dataset | rows | columns |
//! |---|---|---|
//! | compound | its elements | members, those of nested compounds joined by a dot |
//! | 0 or 1 dimensions | its elements | `value` |
//! | 2 dimensions, at most 1,024 elements in a row | along the first | `0`, `1`, ... |
//! | others | along the first dimension | `value`, lists of fixed size |
//!
//! Where elements have a fixed size, so do batches, and any part of the file is made on its own.
//! Other files are made from their beginning on.
//!
//! ```text
//! node   Arrow types of datatypes     message  flatbuffers around bodies
//! cells  buffers from elements
//! ```

mod cells;
mod message;
mod node;

use super::blocks::{BlockText, Blocks};
use super::table::Table;
use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use crate::connector::{Connector, Limited, Value};
use arrow_schema::{Field, Schema};
pub use cells::is_fixed;
use cells::{Body, Cells};
use message::Place;
use node::Node;
use std::ops::Range;
use std::sync::Arc;

/// Columns of arrays of two dimensions; longer rows are lists.
const ARRAY_COLUMNS_MAX: u64 = 1024;
/// Most types of a schema, those in other types included.
const TYPES_MAX: u64 = 1 << 16;
/// Bytes of a record batch, about.
const BATCH_BYTES: u64 = 1 << 20;
/// Most bytes of a record batch.
const BATCH_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a record batch for each of its types, so that its metadata is a small part of it.
const BATCH_BYTES_PER_TYPE: u64 = 1024;
/// Most record batches of a file.
const BATCHES_MAX: u64 = 1 << 16;
/// Most rows of a record batch.
const BATCH_ROWS_MAX: u64 = 1 << 20;
/// Rows with parts outside of them that are read at once.
const PART_ROWS: u64 = 256;
/// Most bytes of the parts of an element.
const PARTS_MAX: u64 = 64 << 20;
/// Most bytes of elements for whose size a file of variable length is made, and of that file.
const SIZED_BYTES_MAX: u64 = 8 << 20;
const SIZED_FILE_MAX: u64 = 32 << 20;

/// A column: the bytes of a row from `offset` on.
struct Column {
    offset: usize,
    node: Node,
}

/// What the file of a table has.
struct Plan {
    connector: Arc<dyn Connector>,
    table: Table,
    schema: Schema,
    columns: Vec<Column>,
    /// Lines of the table that are a row of the file.
    lines: u64,
    rows: u64,
    row_bytes: usize,
    /// Rows of a record batch.
    batch_rows: u64,
    /// Magic, schema and dictionaries.
    head: Vec<u8>,
    dictionaries: Vec<Place>,
    /// Bytes of the metadata of a record batch.
    metadata: u64,
}

/// Columns of `table`, and the lines of it that are a row.
fn columns_of(table: &Table) -> Result<(Vec<(String, Column)>, u64)> {
    let (extent, size) = (table.extent(), table.datatype().element_size());
    if table.has_rows_of_elements() {
        let name = |name: &[u8]| if name.is_empty() { "value".into() } else { String::from_utf8_lossy(name).into_owned() };
        let column =
            |c: &super::table::Column| Ok((name(&c.name), Column { offset: c.offset, node: Node::of(&c.datatype, c.times.as_ref())? }));
        return Ok((table.columns().iter().map(column).collect::<Result<_>>()?, 1));
    }
    let node = || Node::of(table.datatype(), table.columns().first().and_then(|c| c.times.as_ref()));
    let (width, inner) = (extent.last().copied().unwrap_or(1), extent.get(1..).unwrap_or_default());
    if extent.len() == 2 && width <= ARRAY_COLUMNS_MAX {
        let offset = |i: u64| usize::try_from(i.saturating_mul(size)).unwrap_or(usize::MAX);
        let columns = (0..width).map(|i| Ok((i.to_string(), Column { offset: offset(i), node: node()? })));
        return Ok((columns.collect::<Result<_>>()?, 1));
    }
    let lists = inner.iter().rev().try_fold(node()?, |item, n| Node::list(*n, item))?;
    let outer = inner.split_last().map_or(&[][..], |(_, outer)| outer);
    Ok((vec![("value".into(), Column { offset: 0, node: lists })], outer.iter().fold(1, |n, dim| dim.saturating_mul(n))))
}

impl Plan {
    fn new(connector: Arc<dyn Connector>, table: Table) -> Result<Plan> {
        let large = |what| Error::refused(libc::EFBIG, format!("it has too many {what} for an Arrow file; 'h5dir cat --csv' prints it"));
        let (named, lines) = columns_of(&table)?;
        let fields: Vec<Field> = named.iter().map(|(name, column)| column.node.field(name)).collect();
        let columns: Vec<Column> = named.into_iter().map(|(_, column)| column).collect();
        let types = columns.iter().map(|column| column.node.types()).fold(0, u64::saturating_add);
        if types > TYPES_MAX {
            return Err(large("columns"));
        }
        let elements = if table.has_rows_of_elements() {
            1
        } else {
            table.extent().get(1..).unwrap_or_default().iter().fold(1, |n, d| d.saturating_mul(n))
        };
        let row_bytes = table.datatype().element_size().saturating_mul(elements);
        let rows = table.rows().checked_div(lines).unwrap_or(0);
        // Buffers are padded: many rows show the bytes of one.
        let converted = columns.iter().map(|c| c.node.body_bytes(BATCH_ROWS_MAX) / BATCH_ROWS_MAX).fold(0, u64::saturating_add);
        let per_row = row_bytes.max(converted).max(1);
        if per_row > BATCH_BYTES_MAX {
            return Err(large("bytes in a row"));
        }
        let wanted = BATCH_BYTES.max(types.saturating_mul(BATCH_BYTES_PER_TYPE)).max(rows.saturating_mul(per_row) / BATCHES_MAX);
        let batch_rows = (wanted.min(BATCH_BYTES_MAX) / per_row).clamp(1, BATCH_ROWS_MAX);
        if rows.div_ceil(batch_rows) > BATCHES_MAX.saturating_add(1) {
            return Err(large("rows"));
        }
        let row_bytes = usize::try_from(row_bytes).map_err(|_| large("bytes in a row"))?;
        let schema = Schema::new(fields);
        let (head, dictionaries) = head(&schema, &columns)?;
        let buffers = columns.iter().map(|column| column.node.buffers()).fold(0, u64::saturating_add);
        let count = |n| usize::try_from(n).map_err(|_| large("columns"));
        let sample = Body { nodes: vec![(0, 0); count(types)?], buffers: vec![(0, 0); count(buffers)?], ..Body::default() };
        let metadata = message::record_batch(&sample, 1).len() as u64;
        Ok(Plan { connector, table, schema, columns, lines, rows, row_bytes, batch_rows, head, dictionaries, metadata })
    }

    fn is_fixed(&self) -> bool {
        self.columns.iter().all(|column| column.node.is_fixed())
    }

    fn read(&self, rows: Range<u64>) -> Result<Option<Value>> {
        let lines = |row: u64| row.saturating_mul(self.lines);
        self.table.read(&*self.connector, lines(rows.start)..lines(rows.end))
    }

    /// Appends the rows of `value` to `cells`, until they have `most` bytes. Returns how many.
    fn append(&self, value: &Value, cells: &mut [Cells], most: usize) -> Result<u64> {
        let limited = Limited { parts: &*value.parts, limit: PARTS_MAX };
        if let ([column], [cells]) = (self.columns.as_slice(), &mut *cells)
            && column.node.size() == self.row_bytes
            && most == usize::MAX
        {
            cells.extend(&column.node, &value.bytes, &limited)?;
            return Ok((value.bytes.len() / self.row_bytes.max(1)) as u64);
        }
        let mut done = 0u64;
        for row in value.bytes.chunks_exact(self.row_bytes.max(1)) {
            if most < usize::MAX && cells.iter().map(Cells::bytes).fold(0, usize::saturating_add) >= most {
                break;
            }
            for (column, cells) in self.columns.iter().zip(&mut *cells) {
                let end = column.offset.saturating_add(column.node.size());
                let outside = || Error::corrupt("value", crate::base::Address::UNDEF, "a compound member lies outside its element");
                cells.extend(&column.node, row.get(column.offset..end).ok_or_else(outside)?, &limited)?;
            }
            done = done.saturating_add(1);
        }
        Ok(done)
    }

    /// The record batch of `cells`.
    fn batch(&self, cells: &[Cells], rows: u64) -> Result<Vec<u8>> {
        let mut body = Body::default();
        self.columns.iter().zip(cells).for_each(|(column, cells)| body.add(&column.node, cells));
        let mut out = message::record_batch(&body, rows);
        if out.len() as u64 != self.metadata {
            return Err(Error::refused(libc::EIO, "the metadata of an Arrow record batch has another length than planned"));
        }
        out.append(&mut body.bytes);
        Ok(out)
    }

    fn no_cells(&self) -> Vec<Cells> {
        self.columns.iter().map(|column| Cells::new(&column.node)).collect()
    }

    /// Record batch `number`, where elements have a fixed size.
    fn fixed_batch(&self, number: u64) -> Result<Vec<u8>> {
        let rows = number.saturating_mul(self.batch_rows)..number.saturating_add(1).saturating_mul(self.batch_rows).min(self.rows);
        let (mut cells, count) = (self.no_cells(), rows.end.saturating_sub(rows.start));
        if let Some(value) = self.read(rows)? {
            self.append(&value, &mut cells, usize::MAX)?;
        }
        self.batch(&cells, count)
    }

    /// Bytes of a record batch of so many rows, where elements have a fixed size.
    fn fixed_bytes(&self, rows: u64) -> u64 {
        self.columns.iter().map(|column| column.node.body_bytes(rows)).fold(self.metadata, u64::saturating_add)
    }

    /// The place of record batch `number`, where elements have a fixed size.
    fn place(&self, number: u64) -> Place {
        let rows = self.rows.saturating_sub(number.saturating_mul(self.batch_rows)).min(self.batch_rows);
        let before = self.fixed_bytes(self.batch_rows).saturating_mul(number);
        let body = self.fixed_bytes(rows).saturating_sub(self.metadata);
        Place { offset: before.saturating_add(self.head.len() as u64), metadata: self.metadata, body }
    }

    fn batches(&self) -> u64 {
        self.rows.div_ceil(self.batch_rows)
    }

    /// First byte after the record batches, where elements have a fixed size.
    fn after(&self) -> u64 {
        let last = self.batches().checked_sub(1).map(|number| self.place(number));
        last.map_or(self.head.len() as u64, |last| last.offset.saturating_add(last.metadata).saturating_add(last.body))
    }

    /// What follows the record batches at `places`.
    fn end(&self, places: impl Iterator<Item = Place>) -> Vec<u8> {
        message::end(&self.schema, &self.dictionaries, places)
    }
}

/// Magic, schema and dictionaries, and the places of these.
fn head(schema: &Schema, columns: &[Column]) -> Result<(Vec<u8>, Vec<Place>)> {
    let mut out = message::BEGIN.to_vec();
    out.extend_from_slice(&message::schema(schema));
    let (mut enumerations, mut places) = (Vec::new(), Vec::new());
    columns.iter().for_each(|column| column.node.dictionaries(&mut enumerations));
    for (id, enumeration) in enumerations.into_iter().enumerate() {
        let (mut body, count) = Body::of_texts(enumeration.members().iter().map(|member| member.name.bytes.as_slice()))?;
        let metadata = message::dictionary(id, &body, count);
        places.push(Place { offset: out.len() as u64, metadata: metadata.len() as u64, body: body.len });
        out.extend_from_slice(&metadata);
        out.append(&mut body.bytes);
        if out.len() as u64 > BATCH_BYTES_MAX {
            return Err(Error::refused(libc::EFBIG, "it has too many names of enumerations for an Arrow file"));
        }
    }
    Ok((out, places))
}

/// A file whose batches have no fixed size.
struct Growing(Plan);

impl Blocks for Growing {
    /// The row after the last one is that of the footer.
    fn make(&self, row: u64, starts: &[(u64, u64)]) -> Result<(Vec<u8>, u64)> {
        let plan = &self.0;
        let mut out = if starts.len() <= 1 { plan.head.clone() } else { Vec::new() };
        if row >= plan.rows {
            let head = plan.head.len() as u64;
            let place = |pair: &[(u64, u64)]| {
                let (start, end) = (pair.first()?.0, pair.get(1)?.0);
                let offset = if start == 0 { head } else { start };
                Some(Place { offset, metadata: plan.metadata, body: end.saturating_sub(offset).saturating_sub(plan.metadata) })
            };
            out.append(&mut plan.end(starts.windows(2).filter_map(place)));
            return Ok((out, plan.rows.saturating_add(1)));
        }
        let (mut cells, mut at) = (plan.no_cells(), row);
        let last = row.saturating_add(plan.batch_rows).min(plan.rows);
        let full = usize::try_from(BATCH_BYTES).unwrap_or(usize::MAX);
        while at < last && cells.iter().map(Cells::bytes).fold(0, usize::saturating_add) < full {
            let end = at.saturating_add(PART_ROWS).min(last);
            let Some(value) = plan.read(at..end)? else { break };
            at = at.saturating_add(plan.append(&value, &mut cells, full)?);
        }
        out.append(&mut plan.batch(&cells, at.saturating_sub(row))?);
        Ok((out, at))
    }

    fn is_end(&self, row: u64) -> bool {
        row > self.0.rows
    }
}

/// A dataset as the bytes of an Arrow file, read at any offset.
pub struct ArrowFile(Made);

enum Made {
    /// Each part is made on its own; the batch that was made last.
    Fixed {
        plan: Box<Plan>,
        last: Mutex<Option<(u64, Arc<Vec<u8>>)>>,
    },
    Growing(Box<BlockText<Growing>>),
}

impl ArrowFile {
    /// The file of `table`. Errors: `EFBIG`, it has too many rows, columns or bytes in a row.
    pub fn new(connector: Arc<dyn Connector>, table: Table) -> Result<ArrowFile> {
        let plan = Plan::new(connector, table)?;
        Ok(ArrowFile(match plan.is_fixed() {
            true => Made::Fixed { plan: Box::new(plan), last: Mutex::default() },
            false => Made::Growing(Box::new(BlockText::new(Growing(plan)))),
        }))
    }

    /// Fills the front of `buf` from `offset`; fewer bytes only at the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (plan, last) = match &self.0 {
            Made::Growing(text) => return text.read(offset, buf),
            Made::Fixed { plan, last } => (plan, last),
        };
        let mut done = 0usize;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            let n = read_fixed(plan, last, at, rest)?;
            if n == 0 {
                break;
            }
            done = done.saturating_add(n);
        }
        Ok(done)
    }

    /// Size, bytes; `None`: it is not known. Costs no elements where they have a fixed size; else
    /// makes the file if the elements have at most 8 MiB, and at most 32 MiB of it.
    pub fn size(&self) -> Result<Option<u64>> {
        match &self.0 {
            Made::Growing(text) => {
                if text.known_size().is_none() && text.source.0.table.bytes() <= SIZED_BYTES_MAX {
                    text.make_up_to(SIZED_FILE_MAX)?;
                }
            }
            Made::Fixed { plan, .. } => {
                let end = plan.end((0..plan.batches()).map(|number| plan.place(number)));
                return Ok(Some(plan.after().saturating_add(end.len() as u64)));
            }
        }
        Ok(self.known_size())
    }

    /// Size of a file of elements of variable length that was made to its end, bytes.
    pub fn known_size(&self) -> Option<u64> {
        match &self.0 {
            Made::Growing(text) => text.known_size(),
            Made::Fixed { .. } => None,
        }
    }
}

/// Copies bytes of one part of the file from `offset`; 0 at its end.
fn read_fixed(plan: &Plan, last: &Mutex<Option<(u64, Arc<Vec<u8>>)>>, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let copy = |part: &[u8], start: u64, buf: &mut [u8]| {
        let part = usize::try_from(offset.saturating_sub(start)).ok().and_then(|skip| part.get(skip..)).unwrap_or_default();
        buf.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        part.len().min(buf.len())
    };
    let head = plan.head.len() as u64;
    if offset < head {
        return Ok(copy(&plan.head, 0, buf));
    }
    let number = offset.saturating_sub(head).checked_div(plan.fixed_bytes(plan.batch_rows)).unwrap_or(0).min(plan.batches());
    let after = plan.after();
    if number >= plan.batches() || offset >= after {
        let end = plan.end((0..plan.batches()).map(|number| plan.place(number)));
        return Ok(copy(&end, after, buf));
    }
    let mut last = last.lock();
    let batch = match &*last {
        Some((made, batch)) if *made == number => batch.clone(),
        _ => {
            let batch = Arc::new(plan.fixed_batch(number)?);
            *last = Some((number, batch.clone()));
            batch
        }
    };
    drop(last);
    Ok(copy(&batch, plan.place(number).offset, buf))
}
