//! Whether text has all bytes of the elements that it was made of.

use super::elements::{from_json, parse_value};
use super::node::Node;
use crate::base::Result;
use crate::base::datatype::{Class, Datatype};
use crate::base::parts::Parts;
use crate::base::shape::Shape;
use crate::base::value::Elements;
use crate::present::names;

/// True if elements made of `value`, the JSON of `elements`, have other bytes. Types with
/// references are not compared: their bytes are addresses.
pub fn has_lost_bytes(elements: &Elements<'_>, parts: &dyn Parts, value: &[u8]) -> Result<bool> {
    if elements.datatype.contains_reference() || !may_lose(elements.datatype, value) {
        return Ok(false);
    }
    let read = Node::parse(value).and_then(|node| from_json(elements.datatype, elements.shape, &node));
    let exact = elements.exact(parts)?;
    Ok(read.map_or(true, |read| read.form != *exact))
}

/// True if an element made of `text` has another exact form than `exact`. References have none.
pub fn has_lost_element(datatype: &Datatype, text: &[u8], exact: &[u8]) -> bool {
    !datatype.contains_reference() && parse_value(datatype, &Shape::Scalar, text).map_or(true, |read| read.form != exact)
}

/// False for types whose elements are always the bytes that their text gives.
fn may_lose(t: &Datatype, text: &[u8]) -> bool {
    // The depth of the recursion is that of the datatype message, which its decoder bounds.
    match &t.class {
        Class::FixedPoint(f) => f.offset != 0 || u64::from(f.precision) != u64::from(t.size).saturating_mul(8),
        Class::FloatingPoint(_) => names::standard(t).is_none() || text.windows(3).any(|w| w == b"NaN"),
        Class::Enumeration(e) => may_lose(&e.base, text),
        Class::Array(a) => may_lose(&a.base, text),
        Class::Opaque(_) => false,
        _ => true,
    }
}
