//! Elements from text: the inverse of `value`, both as text and as JSON.
//!
//! What either form writes is read in either: compounds as objects by member names or as lists,
//! enumeration members by name or number, strings of several elements as one flat list or nested.
//! A fixed-length string may fill its element to the last byte whatever its padding is, since
//! files with such null-terminated strings exist and their text must come back.

use super::integer::{self, Layout, raw_hex};
use super::node::Node;
use super::region;
use super::{float, invalid, not_supported, out_of_range, shown};
use crate::base::datatype::{
    Bitfield, Class, Compound, Datatype, Enumeration, FixedPoint, Reference, ReferenceKind, StringPadding, StringType, Time,
    VariableLength, VariableLengthKind,
};
use crate::base::parts::{Part, Target};
use crate::base::shape::Shape;
use crate::base::value::NewValue;
use crate::base::{Error, Result, limits};

/// Most bytes of elements made from one text.
pub const BYTES_MAX: u64 = 64 << 20;
/// Form of a nil reference.
const NIL: [u8; 4] = [0; 4];

/// The value of `datatype` and `shape` that `text` shows.
pub fn parse_value(datatype: &Datatype, shape: &Shape, text: &[u8]) -> Result<NewValue> {
    let input = Input::of(datatype, shape, text)?;
    made(datatype, shape, |out| input.elements(datatype, shape, out))
}

/// The value that the JSON `node` shows (`null` for a null dataspace).
pub fn from_json(datatype: &Datatype, shape: &Shape, node: &Node) -> Result<NewValue> {
    let count = count_of(datatype, shape)?;
    made(datatype, shape, |out| json_elements(datatype, shape, count, node, out))
}

fn made(datatype: &Datatype, shape: &Shape, make: impl FnOnce(&mut Builder) -> Result<Vec<u8>>) -> Result<NewValue> {
    let mut builder = Builder { targets: Vec::new() };
    let form = make(&mut builder)?;
    Ok(NewValue { datatype: datatype.clone(), shape: shape.clone(), form, targets: builder.targets })
}

/// Number of elements whose bytes are within bounds.
fn count_of(t: &Datatype, shape: &Shape) -> Result<u64> {
    let bytes = shape.count().and_then(|n| n.checked_mul(t.element_size()));
    let fine = bytes.is_some_and(|n| n <= BYTES_MAX) && shape.dims().is_none_or(|d| d.len() <= limits::RANK_MAX);
    match shape.count() {
        Some(count) if fine => Ok(count),
        _ => Err(Error::refused(libc::E2BIG, format!("a value of more than {BYTES_MAX} bytes"))),
    }
}

/// A text with what is known about its form.
enum Input<'t> {
    Empty,
    /// One element without quotes.
    Bare(&'t [u8]),
    Tree(u64, Node),
}

impl<'t> Input<'t> {
    fn of(t: &Datatype, shape: &Shape, text: &'t [u8]) -> Result<Self> {
        let count = count_of(t, shape)?;
        let trimmed = text.trim_ascii();
        if count == 0 {
            let empty = matches!(trimmed, b"" | b"[]" | b"null");
            return if empty { Ok(Input::Empty) } else { Err(invalid("a value without elements has no text")) };
        }
        let rank = shape.dims().map_or(0, <[u64]>::len);
        let listed = rank > 0 && trimmed.starts_with(b"[") && !is_string(t);
        if count == 1 && is_atom(t) && !listed {
            return Ok(Input::Bare(text));
        }
        Ok(Input::Tree(count, Node::parse(text)?))
    }

    fn elements(&self, t: &Datatype, shape: &Shape, out: &mut Builder) -> Result<Vec<u8>> {
        match self {
            Input::Empty => Ok(Vec::new()),
            Input::Bare(text) => out.atom(t, text),
            // One element with parts stands without the lists of its dimensions.
            Input::Tree(1, node) => out.element(t, node).or_else(|e| out.list(t, shape.dims().unwrap_or_default(), node).map_err(|_| e)),
            Input::Tree(count, node) => json_elements(t, shape, *count, node, out),
        }
    }
}

fn json_elements(t: &Datatype, shape: &Shape, count: u64, node: &Node, out: &mut Builder) -> Result<Vec<u8>> {
    let rank = shape.dims().map_or(0, <[u64]>::len);
    match (shape.dims(), count, node) {
        (None, ..) if *node == Node::Null => Ok(Vec::new()),
        (Some(_), 0, Node::Array(items)) if items.is_empty() => Ok(Vec::new()),
        (None, ..) | (_, 0, _) => Err(invalid(format!("a value without elements cannot be {}", node.kind()))),
        (Some(_), n, Node::Array(items)) if is_string(t) && items.iter().all(|i| !matches!(i, Node::Array(_))) && rank > 0 => {
            out.list(t, &[n], node)
        }
        (Some(dims), ..) => out.list(t, dims, node),
    }
}

fn is_string(t: &Datatype) -> bool {
    matches!(t.class, Class::String(_)) || t.is_vlen_string()
}

/// True for elements that stand alone without quotes.
fn is_atom(t: &Datatype) -> bool {
    match &t.class {
        Class::Compound(_) | Class::Array(_) | Class::Complex(_) => false,
        Class::VariableLength(v) => v.kind == VariableLengthKind::String,
        _ => true,
    }
}

/// Makes forms of elements (see [`NewValue::form`]).
struct Builder {
    targets: Vec<Target>,
}

impl Builder {
    /// Elements nested by `dims`.
    fn list(&mut self, t: &Datatype, dims: &[u64], node: &Node) -> Result<Vec<u8>> {
        // The depth of the recursion is the text's, which its parser bounds.
        let Some((&n, rest)) = dims.split_first() else { return self.element(t, node) };
        let items = node.array("a dimension")?;
        if items.len() as u64 != n {
            return Err(invalid(format!("a list has {} items where a dimension has {n}", items.len())));
        }
        let mut out = Vec::new();
        for item in items {
            out.extend_from_slice(&self.list(t, rest, item)?);
        }
        Ok(out)
    }

    /// One element inside a list or object.
    fn element(&mut self, t: &Datatype, node: &Node) -> Result<Vec<u8>> {
        match (&t.class, node) {
            (Class::Compound(c), _) => self.compound(t, c, node),
            (Class::Array(a), _) => self.list(&a.base, &a.dims.iter().map(|&d| d.into()).collect::<Vec<u64>>(), node),
            (Class::Complex(c), _) => self.list(&c.base, &[2], node),
            (Class::VariableLength(v), _) if v.kind == VariableLengthKind::Sequence => self.sequence(v, node),
            (Class::Reference(_), Node::Null) => Ok(NIL.to_vec()),
            (Class::Reference(r), Node::Object(_)) => self.part(r, node),
            (Class::String(_) | Class::VariableLength(_) | Class::Opaque(_) | Class::Reference(_), Node::String(s)) => self.atom(t, s),
            (Class::Enumeration(_), Node::Bool(b)) => self.atom(t, if *b { b"TRUE" } else { b"FALSE" }),
            // A number is never a member's name.
            (Class::Enumeration(e), Node::Number(n)) => self.atom(&e.base, n.as_bytes()),
            (Class::Enumeration(e), Node::String(s)) => member(e, s).map_or_else(|| Err(no_member(s)), Ok),
            (Class::FixedPoint(_) | Class::FloatingPoint(_) | Class::Bitfield(_) | Class::Time(_), Node::Number(n)) => {
                self.atom(t, n.as_bytes())
            }
            (Class::FixedPoint(_) | Class::FloatingPoint(_) | Class::Bitfield(_) | Class::Time(_), Node::String(s)) => self.atom(t, s),
            _ => Err(invalid(format!("{} where {} is wanted", node.kind(), wanted(t)))),
        }
    }

    /// An element without parts from its text.
    fn atom(&mut self, t: &Datatype, text: &[u8]) -> Result<Vec<u8>> {
        let size = t.size as usize;
        match &t.class {
            Class::FixedPoint(f) => integer::parse(&fixed(f), size, text),
            Class::Bitfield(b) => integer::parse(&bitfield(b), size, text),
            Class::Time(u) => integer::parse(&time(u), size, text),
            Class::FloatingPoint(f) => match float::parse_ieee(f, size, text) {
                Some(bytes) => bytes,
                None => float::parse(f, size, text),
            },
            Class::String(s) => string(s, size, text),
            Class::Opaque(_) => {
                raw_hex(text.trim_ascii(), size).ok_or_else(|| invalid(format!("{} is not {size} bytes in hexadecimal", shown(text))))
            }
            Class::Enumeration(e) => match member(e, text) {
                Some(value) => Ok(value),
                None => integer_of(e, text).map_err(|error| if is_range(&error) { error } else { no_member(text) }),
            },
            Class::VariableLength(v) if v.kind == VariableLengthKind::String => {
                if text.contains(&0) {
                    return Err(invalid("a variable-length string cannot hold a NUL"));
                }
                let count = u32::try_from(text.len()).map_err(|_| out_of_range("a string is too long"))?;
                Ok([&count.to_le_bytes(), text].concat())
            }
            Class::Reference(r) => self.reference(r, text),
            _ => Err(invalid(format!("{} where {} is wanted", shown(text), wanted(t)))),
        }
    }

    fn reference(&mut self, r: &Reference, path: &[u8]) -> Result<Vec<u8>> {
        if path.is_empty() {
            return Ok(NIL.to_vec());
        }
        if path.starts_with(b"{") {
            return self.part(r, &Node::parse(path)?);
        }
        if r.kind == ReferenceKind::DatasetRegion1 {
            return Err(not_supported("a region reference to a dataset as a whole"));
        }
        self.refer(Target { file: None, object: path.to_vec(), part: Part::Object })
    }

    /// A reference to a part of an object.
    fn part(&mut self, r: &Reference, node: &Node) -> Result<Vec<u8>> {
        let target = region::reference(node)?;
        let fits = match &target.part {
            Part::Region(region) if r.is_standard() && region.rank().is_none() => {
                return Err(not_supported("a reference of this kind to all or nothing of a dataset"));
            }
            Part::Region(_) => r.is_standard() || r.kind == ReferenceKind::DatasetRegion1,
            Part::Attribute(_) | Part::Object => r.is_standard(),
        };
        if fits { self.refer(target) } else { Err(not_supported("the type's references do not name such a part of an object")) }
    }

    /// The number of `target`.
    fn refer(&mut self, target: Target) -> Result<Vec<u8>> {
        self.targets.push(target);
        let number = u32::try_from(self.targets.len()).map_err(|_| out_of_range("a value has too many references"))?;
        Ok(number.to_le_bytes().to_vec())
    }

    fn compound(&mut self, t: &Datatype, c: &Compound, node: &Node) -> Result<Vec<u8>> {
        let mut forms: Vec<(u32, u64, Vec<u8>)> = Vec::new();
        let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match node {
            Node::Array(items) if items.len() != c.members.len() => {
                return Err(invalid(format!("a list of {} values for {} members", items.len(), c.members.len())));
            }
            Node::Object(fields) => {
                for (i, (field, _)) in fields.iter().enumerate() {
                    if !c.members.iter().any(|m| m.name.bytes == *field) {
                        return Err(invalid(format!("the type has no member {:?}", name(field))));
                    }
                    if fields.iter().take(i).any(|(other, _)| other == field) {
                        return Err(invalid(format!("the member {:?} is given twice", name(field))));
                    }
                }
            }
            Node::Array(_) => {}
            other => return Err(invalid(format!("{} where an object with the members' values is wanted", other.kind()))),
        }
        for (i, m) in c.members.iter().enumerate() {
            let value = match node {
                Node::Object(fields) => fields.iter().find(|(field, _)| *field == m.name.bytes).map(|(_, value)| value),
                Node::Array(items) => items.get(i),
                _ => None,
            };
            let value = value.ok_or_else(|| invalid(format!("the member {:?} is missing", name(&m.name.bytes))))?;
            forms.push((m.offset, m.end(), self.element(&m.datatype, value)?));
        }
        // Bytes between members are zeros.
        forms.sort_by_key(|(offset, ..)| *offset);
        let (mut out, mut at) = (Vec::new(), 0u64);
        let outside = || invalid("a member lies outside its element");
        let zeros = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok()).ok_or_else(outside);
        for (offset, end, form) in forms {
            let gap = zeros(u64::from(offset).checked_sub(at))?;
            out.resize(out.len().saturating_add(gap), 0);
            out.extend(form);
            at = end;
        }
        let gap = zeros(t.element_size().checked_sub(at))?;
        out.resize(out.len().saturating_add(gap), 0);
        Ok(out)
    }

    fn sequence(&mut self, v: &VariableLength, node: &Node) -> Result<Vec<u8>> {
        let items = node.array("a sequence")?;
        if (items.len() as u64).saturating_mul(v.base.element_size()) > BYTES_MAX {
            return Err(Error::refused(libc::E2BIG, format!("a sequence of more than {BYTES_MAX} bytes")));
        }
        let count = u32::try_from(items.len()).map_err(|_| out_of_range("a sequence is too long"))?;
        let mut form = count.to_le_bytes().to_vec();
        for item in items {
            form.extend_from_slice(&self.element(&v.base, item)?);
        }
        Ok(form)
    }
}

fn is_range(error: &Error) -> bool {
    matches!(error, Error::Refused { errno: libc::ERANGE, .. })
}

fn no_member(text: &[u8]) -> Error {
    invalid(format!("the enumeration has no member {}", shown(text)))
}

/// Value of the member `name`.
fn member(e: &Enumeration, name: &[u8]) -> Option<Vec<u8>> {
    e.members().iter().find(|m| m.name.bytes == name).map(|m| m.value.clone())
}

/// The integer `text` as an element of the enumeration.
fn integer_of(e: &Enumeration, text: &[u8]) -> Result<Vec<u8>> {
    match &e.base.class {
        Class::FixedPoint(f) => integer::parse(&fixed(f), e.base.size as usize, text),
        _ => Err(invalid("the base of an enumeration is no integer")),
    }
}

/// A string with its padding.
fn string(s: &StringType, size: usize, text: &[u8]) -> Result<Vec<u8>> {
    let pad = if s.padding == StringPadding::SpacePadded { b' ' } else { 0 };
    // Padding that is given adds nothing.
    let end = text.iter().rposition(|&b| b != pad).map_or(0, |n| n.saturating_add(1));
    let text = text.get(..end).unwrap_or(text);
    if s.padding == StringPadding::NullTerminated && text.contains(&0) {
        return Err(invalid("a null-terminated string cannot hold a NUL"));
    }
    if text.len() > size {
        return Err(out_of_range(format!("{} has {} bytes, the type {size}", shown(text), text.len())));
    }
    let mut out = text.to_vec();
    out.resize(size, pad);
    Ok(out)
}

fn wanted(t: &Datatype) -> &'static str {
    match &t.class {
        Class::FixedPoint(_) | Class::Bitfield(_) | Class::Time(_) => "an integer",
        Class::FloatingPoint(_) => "a number",
        Class::Enumeration(_) => "a member's name or number",
        Class::Reference(_) => "the path of an object",
        Class::Opaque(_) => "hexadecimal text",
        Class::Compound(_) => "an object",
        Class::Array(_) | Class::Complex(_) => "a list",
        Class::String(_) | Class::VariableLength(_) => "a string",
    }
}

/// Layout of integers.
pub fn fixed(f: &FixedPoint) -> Layout {
    Layout {
        order: f.order,
        offset: f.offset,
        precision: f.precision,
        signed: f.signed,
        low_padding: f.low_padding,
        high_padding: f.high_padding,
    }
}

fn bitfield(b: &Bitfield) -> Layout {
    Layout {
        order: b.order,
        offset: b.offset,
        precision: b.precision,
        signed: false,
        low_padding: b.low_padding,
        high_padding: b.high_padding,
    }
}

fn time(u: &Time) -> Layout {
    Layout { order: u.order, offset: 0, precision: u.precision, signed: true, low_padding: false, high_padding: false }
}
