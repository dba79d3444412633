//! Elements as text: for extended attributes and as JSON.
//!
//! | class | text | JSON |
//! |---|---|---|
//! | integer, bit field, time | decimal | number |
//! | floating-point | see `number`; `NaN`, `Infinity`, `-Infinity` | number; non-finite: string |
//! | string | its bytes without padding | string |
//! | opaque | hexadecimal | string |
//! | enumeration | member's name, or the number when it has none | number |
//! | compound | object by member names | list |
//! | array, sequence | list | list |
//! | complex | `[real,imaginary]` | list |
//! | reference | path, `#ADDRESS` when it has none; nil: nothing | string or null |
//! | region, attribute reference | object | object |
//!
//! Values of JSON lines are those of text in a list, but for non-finite numbers: `null`.
//!
//! As text one element stands bare (strings without quotes), several are a JSON list nested by the
//! dataspace's dimensions, but strings a flat list in stored order; none are nothing. Numbers of
//! more than 128 bits are strings of hexadecimal bytes. Bytes of strings that are not UTF-8 are
//! escaped as `json` says.

use super::json::write_string;
use super::number;
use super::region;
use crate::base::datatype::{Class, Compound, Datatype, FloatingPoint, StringPadding, VariableLength, VariableLengthKind};
use crate::base::parts::{Budget, Limited, Part, Target};
use crate::base::value::Elements;
use crate::base::variable_form::until_nul;
use crate::base::{Address, Error, Result, limits};

/// Number of elements and exactly their bytes.
fn checked<'a>(elements: &Elements<'a>) -> Result<(u64, &'a [u8])> {
    let count = elements.shape.count();
    let len = count.and_then(|n| n.checked_mul(elements.datatype.element_size())).and_then(|n| usize::try_from(n).ok());
    let bytes = len.and_then(|len| elements.bytes.get(..len));
    match (count, bytes) {
        (Some(count), Some(bytes)) if elements.shape.dims().is_none_or(|d| d.len() <= limits::RANK_MAX) => Ok((count, bytes)),
        _ => {
            let have = elements.bytes.len();
            Err(Error::corrupt("value", Address::UNDEF, format!("{have} bytes do not hold the elements of its dataspace")))
        }
    }
}

/// The elements as text (see the module).
pub fn value_text(elements: &Elements<'_>, limited: &Limited<'_>) -> Result<Vec<u8>> {
    let (count, bytes) = checked(elements)?;
    let mut out = Renderer::new(limited, Style::Text);
    match (count, elements.shape.dims()) {
        (0, _) | (_, None) => {}
        (1, _) => out.bare(elements.datatype, bytes)?,
        (n, Some(_)) if is_string(elements.datatype) => out.nested(elements.datatype, &[n], bytes)?,
        (_, Some(dims)) => out.nested(elements.datatype, dims, bytes)?,
    }
    Ok(out.out)
}

/// The elements as JSON (see the module); `null` for a null dataspace. ASCII-safe where bytes are
/// not UTF-8, so the text is always UTF-8.
pub fn json_value(elements: &Elements<'_>, limited: &Limited<'_>) -> Result<Vec<u8>> {
    json_value_within(elements, limited, &mut Budget::tight(limited.limit))
}

/// [`json_value`], which reads no more stored parts than `budget` has left.
pub fn json_value_within(elements: &Elements<'_>, limited: &Limited<'_>, budget: &mut Budget) -> Result<Vec<u8>> {
    let mut out = Renderer { budget: budget.part(limited.limit), ..Renderer::new(limited, Style::Json) };
    let done = json_elements(elements, &mut out);
    budget.join(&out.budget);
    done.map(|()| out.out)
}

fn json_elements(elements: &Elements<'_>, out: &mut Renderer<'_>) -> Result<()> {
    let (count, bytes) = checked(elements)?;
    match (count, elements.shape.dims()) {
        (_, None) => out.push(b"null")?,
        (0, _) => out.push(b"[]")?,
        (_, Some(dims)) => out.nested(elements.datatype, dims, bytes)?,
    }
    Ok(())
}

/// The target of a reference as JSON; `null` for a nil one.
pub fn target_json(target: Option<&Target>, limited: &Limited<'_>) -> Result<Vec<u8>> {
    let mut out = Renderer::new(limited, Style::Json);
    match target {
        None => out.push(b"null")?,
        Some(Target { file: None, object, part: Part::Object }) => out.string(object)?,
        Some(target) => out.target(target)?,
    }
    Ok(out.out)
}

/// Bytes of a fixed-length string without its padding.
pub fn strip(padding: StringPadding, bytes: &[u8]) -> &[u8] {
    let end = match padding {
        StringPadding::NullTerminated => bytes.iter().position(|&b| b == 0),
        StringPadding::NullPadded | StringPadding::Reserved(_) => bytes.iter().rposition(|&b| b != 0).map_or(Some(0), |n| n.checked_add(1)),
        StringPadding::SpacePadded => bytes.iter().rposition(|&b| b != b' ').map_or(Some(0), |n| n.checked_add(1)),
    };
    end.and_then(|end| bytes.get(..end)).unwrap_or(bytes)
}

/// An element that has no parts.
enum Atom {
    Number(String),
    Text(Vec<u8>),
    Target(Target),
    Nil,
}

/// How elements are rendered (see the module).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Text.
    Text,
    /// JSON in the manner of hdf5-json.
    Json,
    /// Values of JSON lines: objects have the names of members, enumerations those of elements.
    Lines,
}

/// Renders elements into `out`.
pub(super) struct Renderer<'a> {
    limited: &'a Limited<'a>,
    style: Style,
    budget: Budget,
    /// The text so far.
    pub(super) out: Vec<u8>,
}

impl<'a> Renderer<'a> {
    /// Renders in `style`.
    pub(super) fn new(limited: &'a Limited<'a>, style: Style) -> Self {
        Renderer { limited, style, budget: Budget::tight(limited.limit), out: Vec::new() }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.budget.output(bytes.len() as u64)?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn string(&mut self, s: &[u8]) -> Result<()> {
        // The text is at least as long as the string and at most 6 times.
        let before = self.out.len();
        self.budget.output(s.len() as u64)?;
        write_string(s, &mut self.out);
        let longer = self.out.len().saturating_sub(before).saturating_sub(s.len());
        self.budget.output(longer as u64)
    }

    /// One element that stands alone.
    pub(super) fn bare(&mut self, t: &Datatype, bytes: &[u8]) -> Result<()> {
        match self.atom(t, bytes)? {
            Some(Atom::Number(n)) => self.push(n.as_bytes()),
            Some(Atom::Text(s)) => self.push(&s),
            Some(Atom::Target(t)) => self.target(&t),
            Some(Atom::Nil) => Ok(()),
            None => self.element(t, bytes),
        }
    }

    /// Elements nested by `dims`, of which none is 0; `bytes` holds exactly them.
    fn nested(&mut self, t: &Datatype, dims: &[u64], bytes: &[u8]) -> Result<()> {
        let Some((&n, rest)) = dims.split_first() else { return self.element(t, bytes) };
        let len = usize::try_from(n).ok().and_then(|n| bytes.len().checked_div(n)).filter(|&len| len > 0);
        let len = len.ok_or_else(|| Error::corrupt("value", Address::UNDEF, "fewer bytes than elements"))?;
        self.push(b"[")?;
        for (i, part) in bytes.chunks_exact(len).enumerate() {
            if i > 0 {
                self.push(b",")?;
            }
            self.nested(t, rest, part)?;
        }
        self.push(b"]")
    }

    /// One element inside a list or object.
    pub(super) fn element(&mut self, t: &Datatype, bytes: &[u8]) -> Result<()> {
        match self.atom(t, bytes)? {
            Some(Atom::Number(n)) => return self.push(n.as_bytes()),
            Some(Atom::Text(s)) => return self.string(&s),
            Some(Atom::Target(t)) => return self.target(&t),
            Some(Atom::Nil) => return self.push(b"null"),
            None => {}
        }
        // The depth of the recursion is that of the datatype message, which its decoder bounds.
        match &t.class {
            Class::Compound(c) => self.compound(c, bytes),
            Class::Array(a) => {
                let dims: Vec<u64> = a.dims.iter().map(|&d| d.into()).collect();
                self.nested(&a.base, &dims, bytes)
            }
            Class::Complex(c) => self.nested(&c.base, &[2], bytes),
            Class::VariableLength(v) => self.sequence(v, bytes),
            _ => self.push(b"null"),
        }
    }

    fn compound(&mut self, c: &Compound, bytes: &[u8]) -> Result<()> {
        let is_list = self.style == Style::Json;
        self.push(if is_list { b"[" } else { b"{" })?;
        for (i, m) in c.members.iter().enumerate() {
            if i > 0 {
                self.push(b",")?;
            }
            if !is_list {
                self.string(&m.name.bytes)?;
                self.push(b":")?;
            }
            let end = usize::try_from(m.end()).unwrap_or(usize::MAX);
            let part = bytes.get(m.offset as usize..end);
            let part = part.ok_or_else(|| Error::corrupt("value", Address::UNDEF, "a compound member lies outside its element"))?;
            self.element(&m.datatype, part)?;
        }
        self.push(if is_list { b"]" } else { b"}" })
    }

    fn payload(&mut self, v: &VariableLength, element: &[u8]) -> Result<Vec<u8>> {
        self.limited.parts.sequence(element, v.base.size, &mut self.budget)
    }

    fn sequence(&mut self, v: &VariableLength, element: &[u8]) -> Result<()> {
        let payload = self.payload(v, element)?;
        self.push(b"[")?;
        for (i, part) in payload.chunks_exact((v.base.size as usize).max(1)).enumerate() {
            if i > 0 {
                self.push(b",")?;
            }
            self.element(&v.base, part)?;
        }
        self.push(b"]")
    }

    /// The element as a number or string; `None` when it has parts.
    fn atom(&mut self, t: &Datatype, bytes: &[u8]) -> Result<Option<Atom>> {
        let integer = |order, offset: u16, precision: u16, signed| {
            number_or_hex(number::integer(bytes, order, offset.into(), precision.into(), signed), bytes)
        };
        Ok(Some(match &t.class {
            Class::FixedPoint(f) => integer(f.order, f.offset, f.precision, f.signed),
            Class::Bitfield(b) => integer(b.order, b.offset, b.precision, false),
            Class::Time(u) => integer(u.order, 0, u.precision, true),
            Class::FloatingPoint(f) => self.float(f, bytes),
            Class::String(s) => Atom::Text(strip(s.padding, bytes).to_vec()),
            Class::Opaque(_) => Atom::Text(number::hex(bytes).into_bytes()),
            Class::Enumeration(e) => match e.name_of(bytes) {
                Some(name) if self.style != Style::Json => Atom::Text(name.to_vec()),
                _ => return self.atom(&e.base, bytes),
            },
            Class::VariableLength(v) if v.kind == VariableLengthKind::String => {
                let mut payload = self.payload(v, bytes)?;
                payload.truncate(until_nul(&payload).len());
                Atom::Text(payload)
            }
            Class::Reference(r) => match self.limited.parts.reference(r, bytes, &mut self.budget)? {
                None => Atom::Nil,
                Some(Target { file: None, object, part: Part::Object }) => Atom::Text(object),
                Some(target) => Atom::Target(target),
            },
            Class::Compound(_) | Class::VariableLength(_) | Class::Array(_) | Class::Complex(_) => return Ok(None),
        }))
    }

    fn float(&self, f: &FloatingPoint, bytes: &[u8]) -> Atom {
        match number::float_text(f, bytes) {
            Some(n) if n.ends_with(['N', 'y']) => match self.style {
                Style::Text => Atom::Number(n),
                Style::Json => Atom::Text(n.into_bytes()),
                Style::Lines => Atom::Nil,
            },
            n => number_or_hex(n, bytes),
        }
    }

    /// A reference to more or less than an object of this file.
    fn target(&mut self, t: &Target) -> Result<()> {
        self.push(b"{")?;
        if let Some(file) = &t.file {
            self.push(b"\"file\":")?;
            self.string(file)?;
            self.push(b",")?;
        }
        let is_region = matches!(t.part, Part::Region(_));
        self.push(if is_region { b"\"dataset\":" } else { b"\"object\":" })?;
        self.string(&t.object)?;
        match &t.part {
            Part::Object => {}
            Part::Attribute(name) => {
                self.push(b",\"attribute\":")?;
                self.string(name)?;
            }
            Part::Region(region) => {
                self.push(b",\"selection\":")?;
                match region::json(region) {
                    Ok(value) => self.push(value.to_string().as_bytes())?,
                    Err(bytes) => self.string(number::hex(bytes).as_bytes())?,
                }
            }
        }
        self.push(b"}")
    }
}

fn number_or_hex(n: Option<String>, bytes: &[u8]) -> Atom {
    n.map_or_else(|| Atom::Text(format!("0x{}", number::hex(bytes)).into_bytes()), Atom::Number)
}

fn is_string(t: &Datatype) -> bool {
    matches!(t.class, Class::String(_)) || t.is_vlen_string()
}
