//! Filters from text: as `user.h5dir.filters` shows them, and in short forms.
//!
//! | text | filter |
//! |---|---|
//! | `{"id":1,"name":"deflate","flags":1,"values":[6],"known":true}` | as shown |
//! | `{"name":"deflate","level":6}` | by name; `level` is the first value |
//! | `{"deflate":6}`, `{"32015":[3]}` | name or number with its value, or a list of them |
//! | `"shuffle"`, `"deflate 6"`, `"gzip 6"`, `"32015 3"` | name or number, and values |
//! | `"shuffle, deflate 6"` instead of the list | several |
//!
//! Values that a filter works out from the datatype and chunk when a dataset is made (shuffle,
//! nbit, scaleoffset, szip and others) are not filled in here.

use super::node::{Fields, Node};
use super::{invalid, shown};
use crate::base::filter_spec::FilterSpec;
use crate::base::{Result, limits};
use crate::connector::filters::{self, DEFLATE, FLETCHER32, RESERVED, encoder, registered_name};

/// Level of deflate when none is given, as h5py's.
const DEFLATE_LEVEL: u32 = 4;
/// Values of one filter.
const VALUES_MAX: usize = 4096;
const KEYS: [&str; 6] = ["id", "name", "flags", "values", "level", "known"];

/// The filters of a list, in the order of writing; `null` is none.
pub fn parse(node: &Node) -> Result<Vec<FilterSpec>> {
    let filters: Vec<FilterSpec> = match node {
        Node::Null => Vec::new(),
        Node::Array(items) => items.iter().map(one).collect::<Result<_>>()?,
        Node::String(s) => text(s)?.split(',').map(str::trim).filter(|s| !s.is_empty()).map(words).collect::<Result<_>>()?,
        other => return Err(invalid(format!("filters must be a list, not {}", other.kind()))),
    };
    if filters.len() > limits::FILTERS_MAX {
        return Err(invalid(format!("{} filters, at most {} are allowed", filters.len(), limits::FILTERS_MAX)));
    }
    Ok(filters)
}

fn text(s: &[u8]) -> Result<&str> {
    std::str::from_utf8(s).map_err(|_| invalid(format!("{} is no filter", shown(s))))
}

fn one(node: &Node) -> Result<FilterSpec> {
    match node {
        Node::String(s) => words(text(s)?),
        Node::Number(_) => checked(default_of(node.small("a filter's number")?)),
        Node::Object(fields) => match fields.as_slice() {
            [(name, values)] if !KEYS.iter().any(|k| k.as_bytes() == name.as_slice()) => named(text(name)?, values),
            _ => object(node),
        },
        _ => object(node),
    }
}

/// `deflate 6`.
fn words(text: &str) -> Result<FilterSpec> {
    let mut words = text.split_ascii_whitespace();
    let name = words.next().ok_or_else(|| invalid("a filter without name"))?;
    let mut filter = default_of(id_of(name).ok_or_else(|| unknown(name))?);
    let values = words.map(|w| w.parse().map_err(|_| invalid(format!("{} is no value of the filter {name}", shown(w.as_bytes())))));
    let values: Vec<u32> = values.collect::<Result<_>>()?;
    if !values.is_empty() {
        filter.cd_values = values;
    }
    checked(filter)
}

/// `{"deflate": 6}`.
fn named(name: &str, values: &Node) -> Result<FilterSpec> {
    let mut filter = default_of(id_of(name).ok_or_else(|| unknown(name))?);
    match values {
        Node::Null => {}
        Node::Number(_) => filter.cd_values = vec![values.small("a filter's value")?],
        other => filter.cd_values = other.array("a filter's values")?.iter().map(|v| v.small("a value")).collect::<Result<_>>()?,
    }
    checked(filter)
}

fn object(node: &Node) -> Result<FilterSpec> {
    let f = Fields::new("a filter", node, &KEYS)?;
    let name = f.get("name").map(|n| text(n.string("a filter's name")?)).transpose()?;
    let mut filter = match (f.get("id"), name) {
        (Some(id), _) => default_of(id.small("a filter's number")?),
        (None, Some(name)) => default_of(id_of(name).ok_or_else(|| unknown(name))?),
        (None, None) => return Err(invalid("a filter has neither id nor name")),
    };
    // Names that say nothing about the filter are shown in place of none.
    if let Some(name) = name.filter(|n| filter.id >= RESERVED && !matches!(*n, "testing" | "private" | "unregistered")) {
        if name.contains('\0') || name.len() > 255 {
            return Err(invalid("a filter's name is too long or holds a NUL"));
        }
        filter.name = name.as_bytes().to_vec();
    }
    if let Some(flags) = f.get("flags") {
        filter.flags = flags.small("flags")?;
    }
    match (f.get("values"), f.get("level")) {
        (Some(_), Some(_)) => return Err(invalid("a filter has values or a level, not both")),
        (Some(values), None) => {
            filter.cd_values = values.array("a filter's values")?.iter().map(|v| v.small("a value")).collect::<Result<_>>()?
        }
        (None, Some(level)) => filter.cd_values = vec![level.small("level")?],
        (None, None) => {}
    }
    checked(filter)
}

fn unknown(name: &str) -> crate::base::Error {
    invalid(format!("there is no filter {}", shown(name.as_bytes())))
}

/// Number of a filter by its registered name, a common other name, or the number itself.
fn id_of(name: &str) -> Option<u16> {
    let name = name.to_ascii_lowercase();
    if let Ok(id) = name.parse::<u16>() {
        return Some(id);
    }
    filters::id_of(&name)
}

/// The filter `id` with the parameters that HDF5 programs use by default.
fn default_of(id: u16) -> FilterSpec {
    // A chunk that a filter cannot make smaller is stored without; a checksum is never left out,
    // nor is a filter that there is no encoder for.
    let optional = id != FLETCHER32 && (id < RESERVED || encoder(id).is_some());
    let name = registered_name(id).filter(|_| id >= RESERVED).unwrap_or_default();
    let cd_values = if id == DEFLATE { vec![DEFLATE_LEVEL] } else { Vec::new() };
    FilterSpec { id, flags: u16::from(optional), name: name.as_bytes().to_vec(), cd_values }
}

fn checked(filter: FilterSpec) -> Result<FilterSpec> {
    if filter.id == 0 {
        return Err(invalid("a filter cannot have the number 0"));
    }
    if filter.cd_values.len() > VALUES_MAX {
        return Err(invalid(format!("a filter has {} values", filter.cd_values.len())));
    }
    if filter.id == DEFLATE && !matches!(filter.cd_values.as_slice(), [0..=9]) {
        return Err(invalid("deflate has one value, its level from 0 to 9"));
    }
    Ok(filter)
}
