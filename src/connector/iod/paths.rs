//! Paths: from a path to an object, and from an object to one of its paths.

use super::derived::Derived;
use super::ids::no_such;
use super::state::{GROUP, MAP, State};
use crate::base::{Address, Error, Result, limits};
use crate::connector::LinkTarget;
use crate::format::Context;
use crate::format::message::link::{Link as LinkMessage, LinkTarget as Stored};
use crate::iod::keys::{self, OBJECT_TYPE};
use foldhash::HashSet;
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// Groups visited to find the path of an object.
const GROUPS_MAX: usize = 1 << 20;

/// Where the link message of a group leads.
pub(super) fn decode_link(body: &[u8], group: u64) -> Result<LinkTarget> {
    let link = LinkMessage::decode(body, &Context::DEFAULT, Address(group))?;
    Ok(match link.target {
        Stored::Hard(at) => LinkTarget::Hard(super::ids::object(at.0)),
        Stored::Soft(path) => LinkTarget::Soft(path),
        Stored::External { file, object } => LinkTarget::External { file, object },
        Stored::UserDefined { class, .. } => LinkTarget::UserDefined(class),
    })
}

/// Name in the link message of a group, and where it leads.
pub(super) fn decode_named(body: &[u8], group: u64) -> Result<(Vec<u8>, LinkTarget)> {
    let link = LinkMessage::decode(body, &Context::DEFAULT, Address(group))?;
    Ok((link.name, decode_link(body, group)?))
}

/// The creation order in the link message of a group: only copied links have one.
pub(super) fn creation_order(body: &[u8], group: u64) -> Result<Option<i64>> {
    Ok(LinkMessage::decode(body, &Context::DEFAULT, Address(group))?.creation_order)
}

/// The link message of a link.
pub(super) fn encode_link(name: &[u8], target: &LinkTarget) -> Result<Vec<u8>> {
    encode_ordered(name, target, None)
}

/// The link message of a link with a creation order. Errors: `EINVAL` for a path that is empty or
/// has a NUL, which is not decoded again.
pub(super) fn encode_ordered(name: &[u8], target: &LinkTarget, creation_order: Option<i64>) -> Result<Vec<u8>> {
    let is_wrong = match target {
        LinkTarget::Soft(path) => path.is_empty() || path.contains(&0),
        LinkTarget::External { file, object } => file.contains(&0) || object.contains(&0),
        LinkTarget::Hard(_) | LinkTarget::UserDefined(_) => false,
    };
    if is_wrong {
        return Err(Error::refused(libc::EINVAL, "the path of a link is empty or has a NUL"));
    }
    let target = match target {
        LinkTarget::Hard(id) => Stored::Hard(Address(id.serial())),
        LinkTarget::Soft(path) => Stored::Soft(path.clone()),
        LinkTarget::External { file, object } => Stored::External { file: file.clone(), object: object.clone() },
        LinkTarget::UserDefined(_) => return Err(Error::refused(libc::EPERM, "links of this class are not made")),
    };
    let utf8 = !name.is_ascii() && std::str::from_utf8(name).is_ok();
    let link = LinkMessage { name: name.to_vec(), utf8, creation_order, target };
    link.encode(&Context::DEFAULT).map_err(|e| Error::refused(libc::EINVAL, e.to_string()))
}

/// The link `name` of a group; a map has none. Errors: it is neither.
pub(super) fn lookup(state: &State, group: u64, name: &[u8]) -> Result<Option<LinkTarget>> {
    match state.bytes(&keys::key(group, keys::LINK, name))? {
        Some(body) => decode_link(&body, group).map(Some),
        None if matches!(state.header(group, OBJECT_TYPE)?.as_deref(), Some([GROUP | MAP])) => Ok(None),
        None => Err(no_such(group, "it is not a group")),
    }
}

/// The object at `path` from the group `start`; soft links are followed, links to other files are
/// not. `hops`: links followed so far for one name, which also bounds the recursion.
pub(super) fn follow(state: &State, start: u64, path: &[u8], hops: &mut usize) -> Result<Option<u64>> {
    let mut at = if path.first() == Some(&b'/') { 0 } else { start };
    for name in path.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".") {
        let body = state.bytes(&keys::key(at, keys::LINK, name))?;
        let next = match body.map(|body| decode_link(&body, at)).transpose()? {
            Some(LinkTarget::Hard(id)) => Some(id.serial()),
            Some(LinkTarget::Soft(path)) => {
                *hops = hops.saturating_add(1);
                if *hops > limits::LINK_HOPS_MAX {
                    return Err(Error::limit(
                        "link",
                        Address(at),
                        format!("more than {} links followed for one name", limits::LINK_HOPS_MAX),
                    ));
                }
                follow(state, at, &path, hops)?
            }
            Some(LinkTarget::External { .. } | LinkTarget::UserDefined(_)) | None => None,
        };
        let Some(next) = next else { return Ok(None) };
        at = next;
    }
    Ok(Some(at))
}

/// A path of an object from the root; for one whose names were all removed, the path in the version
/// that the changes are based on.
pub(super) fn path_of(derived: &Derived, state: &State, id: u64) -> Option<Vec<u8>> {
    let before = || {
        let base = State::new(state.container.clone(), state.snapshot.clone(), None);
        paths_of(&base, &HashSet::from_iter([id])).ok()?.remove(&id)
    };
    present_path_of(derived, state, id).or_else(before)
}

/// A path of an object from the root. The first call after a change walks all groups.
pub(super) fn present_path_of(derived: &Derived, state: &State, id: u64) -> Option<Vec<u8>> {
    let found = derived.path(state, id, || all_paths(state, None));
    found.unwrap_or_else(|e| {
        tracing::debug!("paths of objects are not known: {e}");
        None
    })
}

/// Paths of these objects. Walks the groups until all are found; objects without names have none.
pub(super) fn paths_of(state: &State, wanted: &HashSet<u64>) -> Result<foldhash::HashMap<u64, Vec<u8>>> {
    all_paths(state, Some(wanted))
}

/// A path of each object, or at least of those of `wanted`.
fn all_paths(state: &State, wanted: Option<&HashSet<u64>>) -> Result<foldhash::HashMap<u64, Vec<u8>>> {
    let mut found = foldhash::HashMap::default();
    found.insert(0, b"/".to_vec());
    let mut left = wanted.map_or(usize::MAX, |wanted| wanted.iter().filter(|id| **id != 0).count());
    let mut groups = VecDeque::from([(0u64, Vec::new())]);
    let mut visited = 0usize;
    while let Some((group, path)) = groups.pop_front().filter(|_| left > 0) {
        visited = visited.saturating_add(1);
        if visited > GROUPS_MAX {
            return Err(Error::limit("group", Address(group), "too many groups to find a path"));
        }
        let mut members = Vec::new();
        let _ = state.scan(&keys::of_kind(group, keys::LINK), &mut |key, cell| {
            if let (Some((_, _, name)), LinkTarget::Hard(id)) = (keys::parts(key), decode_link(&state.container.bytes(cell)?, group)?) {
                members.push((id.serial(), name.to_vec()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for (id, name) in members {
            if found.contains_key(&id) {
                continue;
            }
            let path = [path.as_slice(), b"/", &name].concat();
            found.insert(id, path.clone());
            left = left.saturating_sub(usize::from(wanted.is_some_and(|wanted| wanted.contains(&id))));
            if state.header(id, OBJECT_TYPE)?.as_deref() == Some(&[GROUP]) {
                groups.push_back((id, path));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A soft link without a path, as a damaged file has it, was stored in a container, and could
    /// not be read there.
    #[test]
    fn links_that_are_stored_can_be_read() {
        let external = |file: &[u8], object: &[u8]| LinkTarget::External { file: file.to_vec(), object: object.to_vec() };
        for target in [LinkTarget::Soft(b"/a".to_vec()), external(b"f", b"/a"), external(b"f", b"")] {
            assert_eq!(decode_link(&encode_link(b"n", &target).unwrap(), 0).unwrap(), target);
        }
        let soft = |path: &[u8]| LinkTarget::Soft(path.to_vec());
        for target in [soft(b""), soft(b"\0"), soft(b"a\0b"), external(b"f\0", b"/a"), external(b"f", b"/a\0")] {
            let refused = encode_link(b"n", &target);
            assert!(matches!(refused, Err(Error::Refused { errno: libc::EINVAL, .. })), "{target:?}");
        }
    }
}
