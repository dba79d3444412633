//! What differs between two versions, by the keys that changed between both.

use super::dataset::Dataset;
use super::paths;
use super::state::{State, kind_of};
use crate::base::{Address, Result};
use crate::connector::versions::{ChunkDifference, Difference, ObjectDifference};
use crate::connector::{LinkTarget, ObjectKind};
use crate::format::Context;
use crate::format::message::dataspace::Dataspace;
use crate::format::object_header::kind::{DATASPACE, DATATYPE, MTIME, REFERENCE_COUNT};
use crate::iod::{Cell, Key, Ranges, keys};
use foldhash::{HashMap, HashSet};
use std::collections::BTreeMap;

/// What is known of an object.
#[derive(Default)]
struct Found {
    differences: Vec<Difference>,
    chunks: Vec<ChunkDifference>,
    cells: u64,
    other: u64,
    storage: bool,
    ownership: bool,
    /// Hard links in the first and in the second version only: group and name.
    links: [Vec<(u64, Vec<u8>)>; 2],
}

/// Two versions of one value, of which one at least is there.
struct Pair<'a> {
    key: &'a Key,
    cells: [Option<Cell>; 2],
}

/// The objects that differ between the versions of `from` and `to`, by path.
pub(super) fn differences(from: &State, to: &State) -> Result<Vec<ObjectDifference>> {
    let states = [from, to];
    let touched = from.container.touched(&from.snapshot, &to.snapshot)?;
    let mut all = BTreeMap::<u64, Found>::new();
    for (key, ranges) in &touched {
        let cells = [from.get(key)?, to.get(key)?];
        if cells[0] != cells[1] {
            note(&mut all, states, &Pair { key, cells }, ranges)?;
        }
    }
    let links = |side: usize| all.values().filter_map(move |found| found.links.get(side)).flatten().map(|(group, _)| *group);
    let wanted: [HashSet<u64>; 2] = [0, 1].map(|side| all.keys().copied().chain(links(side)).collect());
    let paths = [paths::paths_of(from, &wanted[0])?, paths::paths_of(to, &wanted[1])?];
    let mut objects = Vec::new();
    for (id, found) in all {
        objects.extend(object(states, &paths, id, found)?);
    }
    objects.sort_by(|a, b| (&a.path, a.object).cmp(&(&b.path, b.object)));
    Ok(objects)
}

/// Adds what a value says that differs.
fn note(all: &mut BTreeMap<u64, Found>, states: [&State; 2], pair: &Pair<'_>, ranges: &Ranges) -> Result<()> {
    let Some((id, kind, rest)) = keys::parts(pair.key) else { return Ok(()) };
    if kind == keys::LINK {
        return note_link(all, states, pair, id, rest);
    }
    let found = all.entry(id).or_default();
    let there = pair.cells[1].is_some();
    match kind {
        keys::ATTRIBUTE if there => found.differences.push(Difference::AttributeSet(rest.to_vec())),
        keys::ATTRIBUTE => found.differences.push(Difference::AttributeRemoved(rest.to_vec())),
        keys::MAP if there => found.differences.push(Difference::PairSet(states[1].shown_key(id, rest))),
        keys::MAP => found.differences.push(Difference::PairRemoved(states[0].shown_key(id, rest))),
        keys::LINK_OWNER => found.ownership = true,
        keys::CELLS => found.cells = found.cells.saturating_add(1),
        keys::CHUNK => {
            let written = (!ranges.is_whole()).then(|| ranges.list().to_vec());
            found.chunks.push(ChunkDifference { scaled: keys::scaled(pair.key).unwrap_or_default(), written });
        }
        keys::HEADER => note_header(found, states, pair, id)?,
        _ => found.other = found.other.saturating_add(1),
    }
    Ok(())
}

fn note_header(found: &mut Found, states: [&State; 2], pair: &Pair<'_>, id: u64) -> Result<()> {
    match keys::message(pair.key) {
        // Times and the number of names follow from other changes.
        Some(MTIME | REFERENCE_COUNT | keys::ACCESS_TIME | keys::OBJECT_TYPE) => {}
        Some(keys::OWNERSHIP) => found.ownership = true,
        Some(DATATYPE) => found.differences.push(Difference::Datatype),
        Some(DATASPACE) => {
            if let [Some(from), Some(to)] = &pair.cells {
                let shape = |state: &State, cell: &Cell| {
                    Ok(Dataspace::decode(&state.container.bytes(cell)?, &Context::DEFAULT, Address(id))?.shape())
                };
                let (from, to) = (shape(states[0], from)?, shape(states[1], to)?);
                found.differences.push(Difference::Shape { from, to });
            }
        }
        Some(_) => found.storage = true,
        None => found.other = found.other.saturating_add(1),
    }
    Ok(())
}

/// Notes a hard link by its target, another link by its group.
fn note_link(all: &mut BTreeMap<u64, Found>, states: [&State; 2], pair: &Pair<'_>, group: u64, name: &[u8]) -> Result<()> {
    let mut soft = [false; 2];
    for side in [0, 1] {
        let Some(cell) = &pair.cells[side] else { continue };
        match paths::decode_link(&states[side].container.bytes(cell)?, group)? {
            LinkTarget::Hard(target) => all.entry(target.serial()).or_default().links[side].push((group, name.to_vec())),
            _ => soft[side] = true,
        }
    }
    let found = all.entry(group).or_default();
    match soft {
        [_, true] => found.differences.push(Difference::LinkSet(name.to_vec())),
        [true, false] => found.differences.push(Difference::LinkRemoved(name.to_vec())),
        [false, false] => {}
    }
    Ok(())
}

/// What differs of the object `id`; `None`: nothing that counts.
fn object(states: [&State; 2], paths: &[HashMap<u64, Vec<u8>>; 2], id: u64, found: Found) -> Result<Option<ObjectDifference>> {
    let kind = |state: &State| Ok(state.header(id, keys::OBJECT_TYPE)?.map(|body| kind_of(&body)));
    let kinds: [Option<ObjectKind>; 2] = [kind(states[0])?, kind(states[1])?];
    let path = paths[1].get(&id).or_else(|| paths[0].get(&id)).cloned();
    let known =
        |kind, differences: Vec<Difference>| (!differences.is_empty()).then_some(ObjectDifference { path, object: id, kind, differences });
    match kinds {
        [None, None] => Ok(None),
        [None, Some(kind)] => Ok(known(kind, vec![Difference::Created])),
        [Some(kind), None] => Ok(known(kind, vec![Difference::Removed])),
        [Some(before), Some(kind)] => {
            let mut differences = names(paths, &found);
            differences.extend(found.differences);
            let retyped = before != kind;
            if retyped && !differences.contains(&Difference::Datatype) {
                differences.push(Difference::Datatype);
            }
            if found.storage {
                differences.push(Difference::Storage);
            }
            if found.ownership {
                differences.push(Difference::Ownership);
            }
            if !found.chunks.is_empty() {
                differences.push(elements(states, id, found.chunks));
            }
            differences.extend((found.cells > 0).then_some(Difference::Cells(found.cells)));
            differences.extend((found.other > 0).then_some(Difference::Other(found.other)));
            Ok(known(kind, differences))
        }
    }
}

/// Chunks whose ranges are those of a decoded chunk only if the datasets agree.
fn elements(states: [&State; 2], id: u64, mut chunks: Vec<ChunkDifference>) -> Difference {
    let [from, to] = states.map(|state| Dataset::open(state, id).ok());
    let same = matches!((&from, &to), (Some(a), Some(b)) if a.storage == b.storage && a.element_size == b.element_size);
    if !same {
        chunks.iter_mut().for_each(|chunk| chunk.written = None);
    }
    Difference::Elements(chunks)
}

/// Differences of the hard links of an object.
fn names(paths: &[HashMap<u64, Vec<u8>>; 2], found: &Found) -> Vec<Difference> {
    let path = |side: usize, (group, name): &(u64, Vec<u8>)| {
        let above = paths[side].get(group).filter(|path| path.as_slice() != b"/").cloned().unwrap_or_default();
        [above.as_slice(), b"/", name].concat()
    };
    let [gone, new] = [0, 1].map(|side| found.links[side].iter().map(move |link| path(side, link)).collect::<Vec<_>>());
    let moved = gone.len().min(new.len());
    let mut all: Vec<_> = gone.iter().zip(&new).map(|(from, to)| Difference::Renamed { from: from.clone(), to: to.clone() }).collect();
    all.extend(gone.into_iter().skip(moved).map(Difference::Unlinked));
    all.extend(new.into_iter().skip(moved).map(Difference::Linked));
    all
}
