//! Aspects of objects as text, for those who compare two.

use super::attributes::shape_json;
use super::describe::type_json;
use super::number::hex;
use super::parse::{ALLOCATION_TIMES, FILL_TIMES, Node};
use super::value::{json_value, target_json};
use super::{defined_fact, facts};
use crate::base::escape::escaped_bytes;
use crate::base::fill::Fill;
use crate::base::shape::Shape;
use crate::base::{Error, Result};
use crate::connector::edit::NewReference;
use crate::connector::exchange::{self, Aspect, AttributePart, Object};
use crate::connector::{Connector, Limited, ObjectId, ObjectKind, Value};

/// Longest text, bytes.
const TEXT_MAX: u64 = 1 << 20;
/// In place of a longer one.
const TOO_LONG: &[u8] = b"(too long to be shown)";

/// Name of an aspect of an object of this kind.
pub fn aspect_name(aspect: &Aspect) -> String {
    let attribute = |name: &[u8], part: &str| format!("attribute {}{part}", escaped_bytes(name));
    match aspect {
        Aspect::Kind => "kind".into(),
        Aspect::Type => "type".into(),
        Aspect::Shape => "shape".into(),
        Aspect::MaxShape => "maxshape".into(),
        Aspect::Chunks => "chunks".into(),
        Aspect::Filters => "filters".into(),
        Aspect::FillValue => "fillvalue".into(),
        Aspect::FillTime => "fill time".into(),
        Aspect::AllocationTime => "allocation time".into(),
        Aspect::Layout => "layout".into(),
        Aspect::Defined => "defined".into(),
        Aspect::Reference(_) | Aspect::Elements => "data".into(),
        Aspect::Comment => "comment".into(),
        Aspect::LinkOrder => "order of links".into(),
        Aspect::NamedType(None) => "named datatype".into(),
        Aspect::NamedType(Some(name)) => attribute(name, " named datatype"),
        Aspect::Attribute(name, AttributePart::Existence | AttributePart::Value) => attribute(name, ""),
        Aspect::Attribute(name, AttributePart::Type) => attribute(name, " type"),
        Aspect::Attribute(name, AttributePart::Shape) => attribute(name, " shape"),
    }
}

/// An aspect of the object `id` as text; `None`: it has none. `exact`: bytes instead of values.
pub fn aspect_text(connector: &dyn Connector, id: ObjectId, aspect: &Aspect, exact: bool) -> Result<Option<Vec<u8>>> {
    match text(connector, id, aspect, exact) {
        Err(Error::Limit { .. }) => Ok(Some(TOO_LONG.to_vec())),
        text => text,
    }
}

fn text(connector: &dyn Connector, id: ObjectId, aspect: &Aspect, exact: bool) -> Result<Option<Vec<u8>>> {
    let fact = |name: &str| facts::fact_within(connector, id, name, TEXT_MAX);
    let word = |words: &[&str], index: Option<u8>| {
        index.and_then(|index| words.get(usize::from(index))).map_or_else(|| b"unknown".to_vec(), |word| word.as_bytes().to_vec())
    };
    Ok(match aspect {
        Aspect::Kind => fact("kind")?,
        Aspect::Type => match connector.info(id)?.kind {
            ObjectKind::Map => fact("map")?,
            ObjectKind::Datatype => fact("datatype")?,
            _ => fact("dtype")?,
        },
        Aspect::FillValue if exact => {
            let fill = connector.dataset(id)?.fill;
            Some(if let Fill::Value(bytes) = fill { hex(&bytes).into_bytes() } else { b"default".to_vec() })
        }
        Aspect::Shape | Aspect::MaxShape | Aspect::Chunks | Aspect::Filters | Aspect::FillValue | Aspect::Layout | Aspect::Comment => {
            fact(&aspect_name(aspect))?
        }
        Aspect::FillTime => Some(word(&FILL_TIMES, Some(connector.dataset(id)?.fill_time))),
        Aspect::AllocationTime => Some(word(&ALLOCATION_TIMES, connector.dataset(id)?.allocation_time.checked_sub(1))),
        Aspect::Defined => match defined_fact::whole(connector, id, TEXT_MAX)? {
            None => Some(b"all".to_vec()),
            some => some,
        },
        Aspect::Reference(number) => match exchange::references(Object { connector, id }, *number)?.into_iter().next() {
            None => None,
            Some(NewReference::To(target)) => {
                Some(plain(&target_json(Some(&target), &Limited { parts: &*connector.dataset(id)?.parts, limit: TEXT_MAX })?))
            }
            Some(NewReference::Nil | NewReference::Unknown) => Some(b"null".to_vec()),
        },
        Aspect::Elements => Some(value_of(&connector.elements(id)?)?),
        Aspect::LinkOrder => fact(super::link_order::NAME)?,
        Aspect::NamedType(user) => connector.named_type(id, user.as_deref())?.and_then(|named| connector.path_of(named)),
        Aspect::Attribute(name, part) => {
            let Some(value) = connector.attribute(id, name)? else { return Ok(None) };
            let mut out = Vec::new();
            match part {
                AttributePart::Type => type_json(&value.datatype).write(&mut out),
                AttributePart::Shape => shape_json(&value.shape).write(&mut out),
                AttributePart::Value if exact => out = hex(&value.exact()?).into_bytes(),
                AttributePart::Existence | AttributePart::Value => out = value_of(&value)?,
            }
            Some(out)
        }
    })
}

/// Element `number` of the dataset `id` as text; strings stand without quotes.
pub fn element_text(connector: &dyn Connector, id: ObjectId, number: u64) -> Result<Vec<u8>> {
    let value = connector.elements_in(id, number..number.saturating_add(1))?;
    match value_of(&Value { shape: Shape::Scalar, ..value }) {
        Err(Error::Limit { .. }) => Ok(TOO_LONG.to_vec()),
        text => text,
    }
}

fn value_of(value: &Value) -> Result<Vec<u8>> {
    Ok(plain(&json_value(&value.elements(), &Limited { parts: &*value.parts, limit: TEXT_MAX })?))
}

/// JSON without quotes around a lone string.
fn plain(json: &[u8]) -> Vec<u8> {
    Node::parse(json).ok().and_then(|tree| tree.text().map(<[u8]>::to_vec)).unwrap_or_else(|| json.to_vec())
}
