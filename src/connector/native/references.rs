//! The references of a dataset as facts: `user.h5dir.references`, and `references2`, `references3`, ... of those behind.
//!
//! Each is a JSON list of so many references in stored order, as `types::value` shows them: the path of the object, an object for a
//! part of one, `null`. Bytes of references are addresses of their file and mean nothing in another one; a copy is made from these.

use super::dataset::Dataset;
use crate::base::{Address, Error, Result, limits};
use crate::dataset::environment::Environment;
use crate::dataset::storage::Storage;
use crate::dataset::types::references::References;
use crate::dataset::types::{self, Elements, Shape, json_value};
use crate::format::message::datatype::Datatype;
use std::borrow::Cow;

/// References of one fact: 64 KiB hold those to regions, too.
pub const PER_FACT: u64 = 128;
/// Most facts of one dataset: a list of extended attributes has no room for more.
const FACTS_MAX: u64 = 1024;
/// Most references of one element.
const PER_ELEMENT_MAX: u64 = 1 << 16;
/// Name of the first fact.
const NAME: &str = "references";

/// Number of the fact `name`, from 0 on; `None` if it is another one.
pub fn number(name: &str) -> Option<u64> {
    match name.strip_prefix(NAME)? {
        "" => Some(0),
        rest => rest.parse::<u64>().ok().filter(|n| *n >= 2 && n.to_string() == rest).map(|n| n.saturating_sub(1)),
    }
}

/// Names of the facts of `dataset`.
pub fn names(dataset: &Dataset) -> Vec<Cow<'static, str>> {
    let facts = table(dataset).map_or(0, |t| t.total.div_ceil(PER_FACT).min(FACTS_MAX));
    let name = |n: u64| if n == 0 { NAME.into() } else { format!("{NAME}{}", n.saturating_add(1)).into() };
    (0..facts).map(name).collect()
}

/// Places of the references of a dataset, numbered through.
pub struct Table {
    /// References.
    pub total: u64,
    element_size: u64,
    of_element: Vec<(u64, Datatype)>,
}

impl Table {
    /// Byte and type of reference `n`.
    pub fn place(&self, n: u64) -> Option<(u64, &Datatype)> {
        let per = self.of_element.len() as u64;
        let (offset, t) = self.of_element.get(usize::try_from(n.checked_rem(per)?).ok()?)?;
        let at = n.checked_div(per)?.checked_mul(self.element_size)?.checked_add(*offset)?;
        (n < self.total).then_some((at, t))
    }
}

/// The references of `dataset`; `None` if it has none that can be told.
pub fn table(dataset: &Dataset) -> Option<Table> {
    // The addresses in elements of other files are theirs.
    let elsewhere = matches!(dataset.bytes.storage, Storage::Virtual(_));
    let references = References::of(&dataset.datatype).filter(|r| !elsewhere && (1..=PER_ELEMENT_MAX).contains(&r.count()))?;
    let mut of_element = Vec::new();
    references
        .each(&mut |at, t| {
            of_element.push((at as u64, t.clone()));
            Ok(())
        })
        .ok()?;
    let fits = dataset.element_size <= limits::ELEMENT_BYTES_MAX;
    let total = dataset.elements().checked_mul(of_element.len() as u64).filter(|n| fits && *n > 0)?;
    Some(Table { total, element_size: dataset.element_size, of_element })
}

/// Text of the fact with number `number`.
pub fn text(dataset: &Dataset, number: u64, environment: &types::Environment<'_>, env: &Environment) -> Result<Option<Vec<u8>>> {
    let Some(table) = table(dataset).filter(|_| number < FACTS_MAX) else { return Ok(None) };
    let first = number.saturating_mul(PER_FACT);
    if first >= table.total {
        return Ok(None);
    }
    let mut out = b"[".to_vec();
    for n in first..table.total.min(first.saturating_add(PER_FACT)) {
        let Some((at, t)) = table.place(n) else { break };
        let mut bytes = vec![0; t.size as usize];
        dataset.bytes.read(env, at, &mut bytes)?;
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend(json_value(&Elements { datatype: t, shape: &Shape::Scalar, bytes: &bytes }, environment)?);
        if out.len() as u64 > environment.limit {
            return Err(Error::limit("value", Address::UNDEF, "the references of one fact take more than its reader allows"));
        }
    }
    out.push(b']');
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_numbered_from_two() {
        let names =
            ["references", "references2", "references10", "references1", "references02", "references0", "reference", "references+3"];
        assert_eq!(names.map(number), [Some(0), Some(1), Some(9), None, None, None, None, None]);
    }
}
