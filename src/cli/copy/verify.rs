//! Compares copies in a container with their sources: what was lost is reported.
//!
//! References lead to objects that are copied later. So what differs at first is compared once more
//! at the end, after a commit has resolved the references.

use super::describe::{COMMENT, LINKS};
use crate::cli::side::container::{Container, Held, ObjectSource};
use crate::cli::side::references::{has_reference, same};
use crate::cli::side::{ALL_DEFINED, FACT_MAX, defined, fact};
use crate::fs::{Errno, JsonTree};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;

/// Copies that are compared once more at most; of further ones a difference is an error at once.
const PENDING_MAX: usize = 1 << 20;
/// Keys of a definition that a copy need not have: the place of the elements.
const STORAGE_KEYS: [&str; 3] = ["layout", "profile", "newlines"];

/// A copy that differs from its source so far.
struct Pending {
    source: ObjectSource,
    copy: Arc<Held>,
    /// The source, for messages.
    path: Vec<u8>,
}

/// See the module's description.
#[derive(Default)]
pub(super) struct Verifier {
    pending: Vec<Pending>,
}

impl Verifier {
    /// Compares `copy` with `source`, which is at `path`, at the end once more if they differ.
    pub(super) fn check(&mut self, source: &ObjectSource, path: &[u8], container: &Container, copy: &Arc<Held>) -> io::Result<()> {
        match compare(source, container, copy) {
            Ok(None) => Ok(()),
            Ok(Some(_)) if self.pending.len() < PENDING_MAX => {
                self.pending.push(Pending { source: source.form(source.path())?, copy: copy.clone(), path: path.to_vec() });
                Ok(())
            }
            Ok(Some(what)) => Err(lost(what)),
            Err(e) => Err(e),
        }
    }

    /// True if `copy` has the type, attributes and references of `source`.
    pub(super) fn is_complete(source: &ObjectSource, container: &Container, copy: &Held) -> io::Result<bool> {
        Ok(compare(source, container, copy)?.is_none())
    }

    /// Paths of the sources whose copies still differ, and what was lost.
    pub(super) fn differences(&mut self, container: &Container) -> Vec<(Vec<u8>, io::Error)> {
        let pending = std::mem::take(&mut self.pending);
        let compared = pending.into_iter().filter_map(|Pending { source, copy, path }| {
            let why = match compare(&source, container, &copy) {
                Ok(None) => return None,
                Ok(Some(what)) => lost(what),
                Err(e) => e,
            };
            Some((path, why))
        });
        compared.collect()
    }
}

fn lost(what: &str) -> io::Error {
    io::Error::other(format!("the copy is there, but its {what} differ from the source; 'h5dir diff --storage' shows how"))
}

fn fact_of(container: &Container, copy: &Held, name: &str) -> io::Result<Option<Vec<u8>>> {
    match container.operations.fact(copy.ino(), name, FACT_MAX) {
        Ok(text) => Ok(Some(text)),
        Err(Errno(libc::ENODATA)) => Ok(None),
        Err(e) => Err(crate::cli::side::container::error(e)),
    }
}

/// What differs, if anything does. A copy may have more attributes than its source.
fn compare(source: &ObjectSource, container: &Container, copy: &Held) -> io::Result<Option<&'static str>> {
    let both = |name: &str| Ok::<_, io::Error>((fact(source, name)?, fact_of(container, copy, name)?));
    let (from, to) = both("dataset")?;
    if from != to && !is_copy(from.as_deref(), to.as_deref(), container) {
        return Ok(Some("type, shape or storage"));
    }
    if differs_in_defined(source, container, copy)? {
        return Ok(Some("defined elements"));
    }
    for number in 1u64.. {
        let name = if number == 1 { "references".to_owned() } else { format!("references{number}") };
        match both(&name)? {
            (None, None) => break,
            (Some(from), Some(to)) if from == to || same(&json(&from), &json(&to), container) => {}
            _ => return Ok(Some("references")),
        }
    }
    if let (Some(from), Some(to)) = both(LINKS)?
        && !is_same_order(&json(&from), &json(&to))
    {
        return Ok(Some("creation orders of links"));
    }
    let (from, to) = both(COMMENT)?;
    if from.is_some() && from != to {
        return Ok(Some("comments"));
    }
    let (from, to) = both("attributes")?;
    if from == to {
        return Ok(None);
    }
    let (from, to) = (attributes(from.as_deref()), attributes(to.as_deref()));
    let kept = from.iter().all(|(name, attribute)| match to.get(name) {
        Some(copy) if has_reference(attribute) => same(attribute, copy, container),
        copy => copy == Some(attribute),
    });
    Ok((!kept).then_some("attributes"))
}

/// True if the names that both lists have are in the same order.
fn is_same_order(from: &JsonTree, to: &JsonTree) -> bool {
    let names = |list: &JsonTree| list.items().into_iter().flatten().filter_map(JsonTree::text).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (from, to) = (names(from), names(to));
    let (in_from, in_to): (HashSet<&Vec<u8>>, HashSet<&Vec<u8>>) = (from.iter().collect(), to.iter().collect());
    from.iter().filter(|name| in_to.contains(name)).eq(to.iter().filter(|name| in_from.contains(name)))
}

/// True if the copy of a dataset that knows its defined elements has others, or does not know them.
fn differs_in_defined(source: &ObjectSource, container: &Container, copy: &Held) -> io::Result<bool> {
    let too_many = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::E2BIG | libc::EFBIG));
    let from = match defined(source) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(false),
        Err(e) if too_many(&e) => return Ok(true),
        Err(e) => return Err(e),
    };
    match fact_of(container, copy, ALL_DEFINED) {
        Ok(Some(to)) => Ok(from != to),
        Ok(None) => Ok(!all_are_defined(&from)),
        Err(e) if too_many(&e) => Ok(true),
        Err(e) => Err(e),
    }
}

/// True if the text of defined elements states no other ones.
fn all_are_defined(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let count = text.split_once(' ').map_or("0", |(range, _)| range).trim_start_matches("0:");
    text == format!("0:{count} 0+{count}") || text == "0:0"
}

fn json(text: &[u8]) -> JsonTree {
    JsonTree::parse(text).unwrap_or(JsonTree::Null)
}

/// True if a copy may have the definition `to` of a dataset with the definition `from`.
fn is_copy(from: Option<&[u8]>, to: Option<&[u8]>, container: &Container) -> bool {
    let (Some(from), Some(to)) = (from.map(json), to.map(json)) else { return from.is_none() && to.is_none() };
    // One that grows without chunks of its own has some where it is copied to, and none in a log.
    let chunked = from.get("chunks").is_some() && to.get("layout").and_then(JsonTree::text) != Some(b"log");
    // A fill value may be a path.
    let refers = from.get("dtype").is_some_and(has_reference);
    let is_chunked = to.get("chunks").is_some();
    let same_layout = from.get("chunks").is_some() == is_chunked && chunked == is_chunked;
    let same_profile = from.get("profile") == to.get("profile");
    let (mut from, mut to) = (definition(from, chunked), definition(to, chunked));
    if !same_profile {
        // A profile may need filters of its own.
        drop((from.remove("filters"), to.remove("filters")));
    }
    if !same_layout {
        drop((from.remove("alloctime"), to.remove("alloctime")));
    }
    if refers { same(&from, &to, container) } else { from == to }
}

/// A definition without what a copy need not have. `chunked`: its source has chunks.
fn definition(mut all: JsonTree, chunked: bool) -> JsonTree {
    STORAGE_KEYS.iter().for_each(|key| drop(all.remove(key)));
    if !chunked {
        ["chunks", "filters"].iter().for_each(|key| drop(all.remove(key)));
    }
    let JsonTree::Object(fields) = &mut all else { return all };
    // Filters set their parameters for each dataset.
    if let Some((_, JsonTree::Array(filters))) = fields.iter_mut().find(|(name, _)| name == b"filters") {
        filters.iter_mut().for_each(|filter| *filter = filter.remove("id").unwrap_or(JsonTree::Null));
    }
    all
}

/// Attributes by name.
fn attributes(text: Option<&[u8]>) -> BTreeMap<Vec<u8>, JsonTree> {
    let Some(Ok(JsonTree::Array(list))) = text.map(JsonTree::parse) else { return BTreeMap::new() };
    let name = |attribute: &JsonTree| attribute.get("name").and_then(JsonTree::text).unwrap_or_default().to_vec();
    list.into_iter().map(|attribute| (name(&attribute), attribute)).collect()
}
