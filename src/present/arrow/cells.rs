//! Elements become the buffers of Arrow arrays.
//!
//! Buffers of elements of fixed size have the room that the number of elements may need, so that
//! their places do not depend on values: strings are shorter than the room for them.

use super::node::{Kind, Node};
use crate::base::datatype::{Class, Datatype};
use crate::base::parts::Budget;
use crate::base::{Address, Error, Result};
use crate::connector::Limited;
use crate::present::number;
use crate::present::value::{Renderer, Style, strip};

/// Bodies and buffers are aligned to so many bytes.
pub(super) const ALIGN: usize = 64;

/// Cells of one type.
#[derive(Default)]
pub(super) struct Cells {
    count: usize,
    nulls: u64,
    /// A bit for each cell, lowest first: it is not null; or it is true.
    bits: Vec<u8>,
    /// Ends of strings and lists.
    ends: Vec<i32>,
    data: Vec<u8>,
    children: Vec<Cells>,
}

/// The body of a record batch.
#[derive(Default)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) len: u64,
    /// Cells and nulls of each type.
    pub(super) nodes: Vec<(u64, u64)>,
    /// Offset and length of each buffer.
    pub(super) buffers: Vec<(u64, u64)>,
}

fn aligned(len: u64) -> u64 {
    len.checked_next_multiple_of(ALIGN as u64).unwrap_or(u64::MAX)
}

fn outside() -> Error {
    Error::corrupt("value", Address::UNDEF, "a member lies outside its element")
}

/// The text of `bytes`: those that are not UTF-8 are question marks, of which each has one byte.
fn push_text(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        out.extend_from_slice(chunk.valid().as_bytes());
        out.resize(out.len().saturating_add(chunk.invalid().len()), b'?');
    }
}

impl Cells {
    /// No cells of `node`.
    pub(super) fn new(node: &Node) -> Cells {
        let children = match &node.kind {
            Kind::List(_, item) | Kind::Sequence(item) => vec![Cells::new(item)],
            Kind::Struct(members) => members.iter().map(|(_, member)| Cells::new(member)).collect(),
            _ => Vec::new(),
        };
        Cells { children, ..Cells::default() }
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> usize {
        let own = self.data.len().saturating_add(self.ends.len().saturating_mul(4));
        self.children.iter().map(Cells::bytes).fold(own, usize::saturating_add)
    }

    fn push_bit(&mut self, bit: bool) {
        if self.count.is_multiple_of(8) {
            self.bits.push(0);
        }
        if let Some(last) = self.bits.last_mut() {
            *last |= u8::from(bit) << (self.count % 8);
        }
    }

    fn push_end(&mut self, end: usize) -> Result<()> {
        let large = |_| Error::refused(libc::EFBIG, "a row has too many bytes for an Arrow file");
        self.ends.push(i32::try_from(end).map_err(large)?);
        Ok(())
    }

    /// Appends cells of `node` for the elements that `bytes` has one after another.
    pub(super) fn extend(&mut self, node: &Node, bytes: &[u8], limited: &Limited<'_>) -> Result<()> {
        let size = node.size().max(1);
        match &node.kind {
            Kind::Copy { swap: false } => {
                self.data.extend_from_slice(bytes);
                self.count = self.count.saturating_add(bytes.len() / size);
                Ok(())
            }
            Kind::List(_, item) => {
                self.count = self.count.saturating_add(bytes.len() / size);
                self.children.first_mut().map_or(Ok(()), |child| child.extend(item, bytes, limited))
            }
            _ => bytes.chunks_exact(size).try_for_each(|element| self.push(node, element, limited)),
        }
    }

    /// Appends the cell of one element.
    fn push(&mut self, node: &Node, element: &[u8], limited: &Limited<'_>) -> Result<()> {
        match &node.kind {
            Kind::Copy { .. } => self.data.extend(element.iter().rev()),
            Kind::Integer { order, offset, precision, signed } => {
                let bits = number::bits(element, *order, (*offset).into(), (*precision).into()).unwrap_or(0);
                let unused = 64u32.saturating_sub((*precision).into());
                let raw = (bits as u64) << unused;
                let value = if *signed { (raw.cast_signed() >> unused).cast_unsigned() } else { raw >> unused };
                self.data.extend_from_slice(&value.to_le_bytes());
            }
            Kind::Float { layout, single } => match number::float_value(layout, element).unwrap_or(f64::NAN) {
                value if *single => self.data.extend_from_slice(&(value as f32).to_le_bytes()),
                value => self.data.extend_from_slice(&value.to_le_bytes()),
            },
            Kind::Bool => self.push_bit(element.first().is_some_and(|byte| *byte != 0)),
            Kind::Text(padding) => {
                push_text(strip(*padding, element), &mut self.data);
                self.push_end(self.data.len())?;
            }
            Kind::Names(indexes) => self.push_nullable(indexes.get(element).map(|index| index.to_le_bytes()), [0; 4]),
            Kind::Time { times, unit } => {
                let nanos = times.nanos(&node.datatype, element).flatten();
                let value = nanos.and_then(|nanos| i64::try_from(nanos.div_euclid(*unit)).ok());
                self.push_nullable(value.map(i64::to_le_bytes), [0; 8]);
            }
            Kind::List(_, item) => {
                self.children.first_mut().map_or(Ok(()), |child| child.extend(item, element, limited))?;
            }
            Kind::Struct(members) => {
                for ((at, member), cells) in members.iter().zip(&mut self.children) {
                    let part = element.get(*at..at.saturating_add(member.size())).ok_or_else(outside)?;
                    cells.extend(member, part, limited)?;
                }
            }
            Kind::Outside => {
                push_text(&text(&node.datatype, element, limited)?, &mut self.data);
                self.push_end(self.data.len())?;
            }
            Kind::Sequence(item) => {
                let base = u32::try_from(item.size()).unwrap_or(u32::MAX);
                let items = limited.parts.sequence(element, base, &mut Budget::tight(limited.limit))?;
                let child = self.children.first_mut().ok_or_else(outside)?;
                child.extend(item, &items, limited)?;
                let end = child.count;
                self.push_end(end)?;
            }
        }
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    fn push_nullable<const N: usize>(&mut self, value: Option<[u8; N]>, null: [u8; N]) {
        self.push_bit(value.is_some());
        self.nulls = self.nulls.saturating_add(u64::from(value.is_none()));
        self.data.extend_from_slice(&value.unwrap_or(null));
    }
}

/// Text of a string of variable length or a reference.
fn text(t: &Datatype, element: &[u8], limited: &Limited<'_>) -> Result<Vec<u8>> {
    let mut renderer = Renderer::new(limited, Style::Text);
    renderer.bare(t, element)?;
    Ok(renderer.out)
}

impl Body {
    /// Appends a buffer that has room for `room` bytes.
    fn buffer(&mut self, bytes: &[u8], room: u64) {
        self.buffers.push((self.len, bytes.len() as u64));
        self.bytes.extend_from_slice(bytes);
        self.len = self.len.saturating_add(aligned(room.max(bytes.len() as u64)));
        self.bytes.resize(usize::try_from(self.len).unwrap_or(usize::MAX).min(1 << 31), 0);
    }

    /// Appends the buffers of `cells`, which are of `node`.
    pub(super) fn add(&mut self, node: &Node, cells: &Cells) {
        let count = cells.count as u64;
        self.nodes.push((count, cells.nulls));
        let room = room(node, count);
        self.buffer(if node.is_nullable() { &cells.bits } else { &[] }, room.bits);
        match &node.kind {
            Kind::Bool => self.buffer(&cells.bits, room.data),
            Kind::Text(_) | Kind::Outside | Kind::Sequence(_) => {
                let ends: Vec<u8> = std::iter::once(0i32).chain(cells.ends.iter().copied()).flat_map(i32::to_le_bytes).collect();
                self.buffer(&ends, room.ends);
                if !matches!(node.kind, Kind::Sequence(_)) {
                    self.buffer(&cells.data, room.data);
                }
            }
            Kind::List(..) | Kind::Struct(_) => {}
            _ => self.buffer(&cells.data, room.data),
        }
        for (node, cells) in node.children().zip(&cells.children) {
            self.add(node, cells);
        }
    }

    /// A body of texts.
    pub(super) fn of_texts<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Result<(Body, u64)> {
        let node = Node { datatype: Datatype::utf8(1), arrow: arrow_schema::DataType::Utf8, kind: Kind::Outside };
        let (mut cells, mut body) = (Cells::new(&node), Body::default());
        for text in texts {
            push_text(text, &mut cells.data);
            cells.push_end(cells.data.len())?;
            cells.count = cells.count.saturating_add(1);
        }
        body.add(&node, &cells);
        Ok((body, cells.count as u64))
    }
}

impl Node {
    fn children(&self) -> Box<dyn Iterator<Item = &Node> + '_> {
        match &self.kind {
            Kind::List(_, item) | Kind::Sequence(item) => Box::new(std::iter::once(&**item)),
            Kind::Struct(members) => Box::new(members.iter().map(|(_, member)| member)),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// Types in it, itself included.
    pub(super) fn types(&self) -> u64 {
        self.children().map(Node::types).fold(1, u64::saturating_add)
    }

    /// Bytes of the buffers of `count` cells, whatever their values; strings and sequences of
    /// variable length are not counted.
    pub(super) fn body_bytes(&self, count: u64) -> u64 {
        let room = room(self, count);
        let own = aligned(room.bits).saturating_add(aligned(room.ends)).saturating_add(aligned(room.data));
        let inner = match &self.kind {
            Kind::List(n, _) => count.saturating_mul(*n as u64),
            Kind::Sequence(_) => 0,
            _ => count,
        };
        self.children().map(|child| child.body_bytes(inner)).fold(own, u64::saturating_add)
    }

    /// Buffers of it, those of types in it included.
    pub(super) fn buffers(&self) -> u64 {
        let own = match &self.kind {
            Kind::Text(_) | Kind::Outside => 3,
            Kind::List(..) | Kind::Struct(_) => 1,
            _ => 2,
        };
        self.children().map(Node::buffers).fold(own, u64::saturating_add)
    }

    /// True if all of its elements have buffers of one size.
    pub(super) fn is_fixed(&self) -> bool {
        !matches!(self.kind, Kind::Outside | Kind::Sequence(_)) && self.children().all(Node::is_fixed)
    }
}

/// Room that buffers have.
#[derive(Default)]
struct Room {
    bits: u64,
    ends: u64,
    data: u64,
}

fn room(node: &Node, count: u64) -> Room {
    let bits = if node.is_nullable() { count.div_ceil(8) } else { 0 };
    let ends = count.saturating_add(1).saturating_mul(4);
    let each = |n: u64| count.saturating_mul(n);
    match &node.kind {
        Kind::Copy { .. } => Room { bits, ends: 0, data: each(node.size() as u64) },
        Kind::Integer { .. } | Kind::Time { .. } | Kind::Float { single: false, .. } => Room { bits, ends: 0, data: each(8) },
        Kind::Float { single: true, .. } | Kind::Names(_) => Room { bits, ends: 0, data: each(4) },
        Kind::Bool => Room { bits, ends: 0, data: count.div_ceil(8) },
        Kind::Text(_) => Room { bits, ends, data: each(node.size() as u64) },
        Kind::Outside | Kind::Sequence(_) => Room { bits, ends, data: 0 },
        Kind::List(..) | Kind::Struct(_) => Room { bits, ..Room::default() },
    }
}

/// True if elements of type `t` have no parts outside of them.
pub fn is_fixed(t: &Datatype) -> bool {
    !t.any(&|t| matches!(t.class, Class::VariableLength(_) | Class::Reference(_)))
}
