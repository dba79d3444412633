//! Names of the dimensions of arrays, from dimension scales as netCDF has them.
//!
//! Dimensions of datasets without scales have the names of `phony`. Others without a scale are
//! called after their length, so that dimensions of the same name have the same length:
//! `phony_dim_24`, the second one of an array `phony_dim_24_2`.

use super::phony::Phony;
use super::scales::{has_list, is_dimension_only, is_scale};
use crate::base::Result;
use crate::base::datatype::Class;
use crate::connector::{Budget, Connector, LinkTarget, ObjectId};
use crate::present::number;
use std::ops::ControlFlow;

/// Most bytes of references of one dataset.
const REFERENCES_BYTES_MAX: u64 = 1 << 20;
/// Links of a group that are looked at for dimensions.
const LINKS_MAX: usize = 4096;
/// Groups further up that are looked at for dimensions.
const LEVELS_MAX: usize = 64;
/// Start of the name of a variable that is not the coordinates of the dimension of that name.
pub const NOT_COORDINATES: &[u8] = b"_nc4_non_coord_";

/// Name in netCDF of what the link `name` of `group` leads to: a variable that has the name of a
/// dimension, but is not its coordinates, has a prefix in the file.
pub fn variable_name<'a>(connector: &dyn Connector, group: ObjectId, name: &'a [u8]) -> &'a [u8] {
    let Some(rest) = name.strip_prefix(NOT_COORDINATES).filter(|rest| !rest.is_empty()) else { return name };
    let other = match connector.lookup(group, rest) {
        Ok(None) => return rest,
        Ok(Some(link)) => link.target,
        Err(_) => return name,
    };
    match other {
        LinkTarget::Hard(id) if is_dimension_only(connector, id).unwrap_or(false) => rest,
        _ => name,
    }
}

/// The names of the dimensions of the array `id` with this shape. `phony`: those of datasets
/// without scales.
pub(super) fn names(connector: &dyn Connector, id: ObjectId, shape: &[u64], phony: Phony<'_>) -> Result<Vec<Vec<u8>>> {
    let mut named = scales(connector, id, shape.len())?;
    if named.iter().all(Option::is_none) && !shape.is_empty() && !has_list(connector, id)? {
        let found = phony().and_then(|all| Some(all.of_dataset(id)?.to_vec()));
        named = found.unwrap_or_default().into_iter().map(Some).collect();
    }
    named.resize(shape.len(), None);
    let mut all: Vec<Vec<u8>> = Vec::new();
    for (name, len) in named.into_iter().zip(shape) {
        let made = || {
            let first = format!("phony_dim_{len}").into_bytes();
            let next = (2..).map(|n: u32| format!("phony_dim_{len}_{n}").into_bytes());
            std::iter::once(first).chain(next).find(|name| !all.contains(name)).unwrap_or_default()
        };
        let name = name.unwrap_or_else(made);
        all.push(name);
    }
    Ok(all)
}

/// Last part of a path.
fn last(path: &[u8]) -> Option<Vec<u8>> {
    path.rsplit(|b| *b == b'/').next().filter(|name| !name.is_empty() && !path.starts_with(b"#")).map(<[u8]>::to_vec)
}

/// Names of the scales of a dataset, by dimension.
fn scales(connector: &dyn Connector, id: ObjectId, rank: usize) -> Result<Vec<Option<Vec<u8>>>> {
    let attributes = connector.attributes(id)?;
    let has = |name: &[u8]| attributes.iter().any(|a| a == name);
    if has(b"CLASS") && is_scale(connector, id)? {
        if has(b"_Netcdf4Coordinates") {
            return by_number(connector, id);
        }
        if rank == 1 {
            return Ok(vec![connector.path_of(id).as_deref().and_then(last)]);
        }
    }
    if !has(b"DIMENSION_LIST") {
        return Ok(Vec::new());
    }
    let Some(list) = connector.attribute(id, b"DIMENSION_LIST")? else { return Ok(Vec::new()) };
    let Class::VariableLength(sequence) = &list.datatype.class else { return Ok(Vec::new()) };
    let (Class::Reference(reference), size) = (&sequence.base.class, sequence.base.size) else { return Ok(Vec::new()) };
    let mut budget = Budget::tight(REFERENCES_BYTES_MAX);
    let element = usize::try_from(list.datatype.size).unwrap_or(usize::MAX).max(1);
    let mut all = Vec::new();
    for item in list.bytes.chunks_exact(element).take(rank) {
        let references = list.parts.sequence(item, size, &mut budget)?;
        // Of several scales the last one, as in netCDF.
        let last_one = references.rchunks_exact(usize::try_from(size).unwrap_or(1).max(1)).next();
        let target = last_one.map(|one| list.parts.reference(reference, one, &mut budget)).transpose()?.flatten();
        all.push(target.filter(|t| t.file.is_none()).and_then(|t| last(&t.object)));
    }
    Ok(all)
}

/// Integers in an attribute.
fn integers(connector: &dyn Connector, id: ObjectId, name: &[u8]) -> Result<Vec<String>> {
    let Some(value) = connector.attribute(id, name)? else { return Ok(Vec::new()) };
    let Class::FixedPoint(f) = &value.datatype.class else { return Ok(Vec::new()) };
    let size = usize::try_from(value.datatype.size).unwrap_or(usize::MAX).max(1);
    let integer = |bytes: &[u8]| number::integer(bytes, f.order, f.offset.into(), f.precision.into(), f.signed);
    Ok(value.bytes.chunks_exact(size).filter_map(integer).collect())
}

/// Names of the dimensions of a coordinate variable that has their numbers. The scales are in its
/// group, or further up.
fn by_number(connector: &dyn Connector, id: ObjectId) -> Result<Vec<Option<Vec<u8>>>> {
    let wanted = integers(connector, id, b"_Netcdf4Coordinates")?;
    let mut found = vec![None; wanted.len()];
    let path = connector.path_of(id).unwrap_or_default();
    let parents = path.iter().enumerate().rev().filter(|(_, b)| **b == b'/').take(LEVELS_MAX);
    for (end, _) in parents {
        let parent = path.get(..end).unwrap_or_default();
        let group = if parent.is_empty() { Some(connector.root()) } else { connector.resolve(connector.root(), parent)? };
        if let Some(group) = group {
            scales_of_group(connector, group, &wanted, &mut found)?;
        }
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    Ok(found)
}

/// Finds scales of a group by their numbers.
fn scales_of_group(connector: &dyn Connector, group: ObjectId, wanted: &[String], found: &mut [Option<Vec<u8>>]) -> Result<()> {
    let mut links = Vec::new();
    connector.list(group, 0, &mut |link, _| {
        if let LinkTarget::Hard(to) = link.target {
            links.push((link.name, to));
        }
        if links.len() < LINKS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    for (name, to) in links {
        let number = integers(connector, to, b"_Netcdf4Dimid")?;
        let is_wanted = number.first().is_some_and(|number| wanted.contains(number));
        // Variables have the number of their first dimension.
        if !is_wanted || !is_scale(connector, to)? {
            continue;
        }
        for (found, _) in found.iter_mut().zip(wanted).filter(|(found, wanted)| found.is_none() && number.first() == Some(wanted)) {
            *found = Some(name.clone());
        }
    }
    Ok(())
}
