//! The lines of a table in one of the dialects.

use crate::base::Result;
use crate::base::datatype::{ByteOrder, Class, Datatype, FloatingPoint, Normalization};
use crate::base::escape;
use crate::base::parts::Limited;
use crate::present::json::write_string;
use crate::present::value::{Renderer, Style};
use std::fmt::Write as _;

/// How rows and cells are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Cells between spaces; control characters are escaped.
    Text,
    /// RFC 4180 with lines that end in LF: cells between commas, in quotes where they need some.
    Csv,
    /// Cells between tabs; tabs, line ends and backslashes in them are `\t`, `\n`, `\r`, `\\`.
    Tsv,
    /// A JSON value a line: an object with the names of columns, a list, or a single value.
    JsonLines,
}

impl Dialect {
    fn separator(self) -> u8 {
        match self {
            Dialect::Text => b' ',
            Dialect::Csv | Dialect::JsonLines => b',',
            Dialect::Tsv => b'\t',
        }
    }

    fn style(self) -> Style {
        if self == Dialect::JsonLines { Style::Lines } else { Style::Text }
    }

    /// The line with the names of columns.
    pub fn header<'a>(self, names: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        if self == Dialect::JsonLines {
            return out;
        }
        for (i, name) in names.enumerate() {
            if i > 0 {
                out.push(self.separator());
            }
            self.text(name, &mut out);
        }
        out.push(b'\n');
        out
    }

    /// Appends a cell with this text.
    fn text(self, text: &[u8], out: &mut Vec<u8>) {
        match self {
            Dialect::Text => match std::str::from_utf8(text) {
                Ok(text) => out.extend_from_slice(escape::line(text).as_bytes()),
                Err(_) => out.extend_from_slice(escape::escaped_bytes(text).to_string().as_bytes()),
            },
            Dialect::Csv if needs_quotes(text) => {
                out.push(b'"');
                for byte in text {
                    out.extend_from_slice(if *byte == b'"' { b"\"\"" } else { std::slice::from_ref(byte) });
                }
                out.push(b'"');
            }
            Dialect::Csv => out.extend_from_slice(text),
            Dialect::Tsv => {
                for byte in text {
                    match byte {
                        b'\t' => out.extend_from_slice(br"\t"),
                        b'\n' => out.extend_from_slice(br"\n"),
                        b'\r' => out.extend_from_slice(br"\r"),
                        b'\\' => out.extend_from_slice(br"\\"),
                        byte => out.push(*byte),
                    }
                }
            }
            Dialect::JsonLines => write_string(text, out),
        }
    }
}

/// An empty cell alone in its line would be no row.
fn needs_quotes(text: &[u8]) -> bool {
    text.is_empty()
        || text.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'))
        || text.first() == Some(&b' ')
        || text.last() == Some(&b' ')
}

/// Writes rows.
pub(super) struct Writer<'a> {
    dialect: Dialect,
    limited: &'a Limited<'a>,
    renderer: Renderer<'a>,
    out: &'a mut Vec<u8>,
    /// Cells of the row so far.
    cells: u64,
    named: bool,
    number: String,
}

impl<'a> Writer<'a> {
    /// Appends to `out`.
    pub(super) fn new(dialect: Dialect, limited: &'a Limited<'a>, out: &'a mut Vec<u8>) -> Self {
        let renderer = Renderer::new(limited, dialect.style());
        Writer { dialect, limited, renderer, out, cells: 0, named: false, number: String::new() }
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Begins a row; `list`: of several elements.
    pub(super) fn begin_row(&mut self, list: bool) {
        self.cells = 0;
        // The limit is that of a row.
        let out = std::mem::take(&mut self.renderer.out);
        self.renderer = Renderer::new(self.limited, self.dialect.style());
        self.renderer.out = out;
        if self.dialect == Dialect::JsonLines && list {
            self.out.push(b'[');
        }
    }

    /// Adds the cell of the column `name` (empty: it has none), whose bytes are `cell`, or that has
    /// this text.
    pub(super) fn cell(&mut self, name: &[u8], datatype: &Datatype, cell: &[u8], text: Option<String>) -> Result<()> {
        let json = self.dialect == Dialect::JsonLines;
        self.named = json && !name.is_empty();
        match (self.cells, self.named) {
            (0, true) => self.out.push(b'{'),
            (0, false) => {}
            _ => self.out.push(self.dialect.separator()),
        }
        self.cells = self.cells.saturating_add(1);
        if self.named {
            write_string(name, self.out);
            self.out.push(b':');
        }
        if let Some(text) = text {
            self.dialect.text(text.as_bytes(), self.out);
            return Ok(());
        }
        self.number.clear();
        if write_number(datatype, cell, &mut self.number) {
            let nonfinite = self.number.ends_with(['N', 'f']);
            self.out.extend_from_slice(if json && nonfinite { b"null" } else { infinite(&self.number).as_bytes() });
            return Ok(());
        }
        self.renderer.out.clear();
        if json {
            self.renderer.element(datatype, cell)?;
            self.out.extend_from_slice(&self.renderer.out);
        } else {
            self.renderer.bare(datatype, cell)?;
            self.dialect.text(&self.renderer.out, self.out);
        }
        Ok(())
    }

    /// Ends a row.
    pub(super) fn end_row(&mut self, list: bool) {
        if self.named {
            self.out.push(b'}');
        }
        if self.dialect == Dialect::JsonLines && list {
            self.out.push(b']');
        }
        self.out.push(b'\n');
    }
}

fn infinite(number: &str) -> &str {
    match number {
        "inf" => "Infinity",
        "-inf" => "-Infinity",
        number => number,
    }
}

/// The bits of an element that is a number of the processor; `None`: it is another one.
pub(in crate::present) fn plain_number(t: &Datatype, bytes: &[u8]) -> Option<u64> {
    let order = match &t.class {
        Class::FixedPoint(f) if f.offset == 0 && u32::from(f.precision) == t.size.saturating_mul(8) => f.order,
        Class::FloatingPoint(f) if is_ieee(f, t.size) => f.order,
        _ => return None,
    };
    let mut wide = [0u8; 8];
    let place = wide.get_mut(..bytes.len()).filter(|_| matches!(t.size, 1 | 2 | 4 | 8))?;
    place.copy_from_slice(bytes);
    match order {
        ByteOrder::LittleEndian => {}
        ByteOrder::BigEndian => place.reverse(),
        ByteOrder::Vax => return None,
    }
    Some(u64::from_le_bytes(wide))
}

/// Writes an element that is a number of the processor. False: it is another one.
fn write_number(t: &Datatype, bytes: &[u8], out: &mut String) -> bool {
    let Some(raw) = plain_number(t, bytes) else { return false };
    let unused = 64u32.saturating_sub(t.size.saturating_mul(8));
    // Writing to a String does not fail.
    let _ = match (&t.class, t.size) {
        (Class::FixedPoint(f), 1 | 2 | 4 | 8) if f.signed => write!(out, "{}", (raw << unused).cast_signed() >> unused),
        (Class::FixedPoint(_), 1 | 2 | 4 | 8) => write!(out, "{raw}"),
        (Class::FloatingPoint(_), 4) => write!(out, "{:?}", f32::from_bits(raw as u32)),
        (Class::FloatingPoint(_), 8) => write!(out, "{:?}", f64::from_bits(raw)),
        _ => return false,
    };
    true
}

fn is_ieee(f: &FloatingPoint, size: u32) -> bool {
    f.normalization == Normalization::Implied
        && matches!((size, f.mantissa_size, f.exponent_size, f.exponent_bias), (4, 23, 8, 127) | (8, 52, 11, 1023))
        && (f.offset, f.mantissa_location) == (0, 0)
        && u32::from(f.exponent_location) == u32::from(f.mantissa_size)
}
