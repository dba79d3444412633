//! Directories that two writers moved: the moves of both together may make a cycle.
//!
//! The moves of one writer alone make none: the kernel refuses to move a directory below itself. So
//! a cycle has a link of either, and is found from the links of one of them.

use super::image::{Body, Change};
use super::paths::decode_link;
use super::state::State;
use crate::base::Result;
use crate::connector::{LinkTarget, ObjectKind};
use crate::iod::keys::{self, LINK, OBJECT_TYPE};
use crate::iod::{Entry, Ranges};
use foldhash::HashMap;
use std::ops::ControlFlow;

/// Links that are looked at to rule a cycle out.
const LINKS_MAX: u64 = 100_000;

/// True if the groups are a tree with the changes of `state` and `theirs`, which change other keys
/// of the same version; false also if more than [`LINKS_MAX`] links lie below the groups that the
/// changes name.
pub(super) fn make_no_cycle(state: &State, theirs: &[Entry]) -> Result<bool> {
    let mut merged = State::new(state.container.clone(), state.snapshot.clone(), None);
    for entry in theirs.iter().filter(|entry| decides(&entry.key)) {
        let body = entry.cell.clone().map_or(Body::Removed, Body::Cell);
        merged.changes.insert_mut(entry.key.clone(), Change { body, ranges: Ranges::whole() });
    }
    let ours: Vec<_> = state.changes.iter().filter(|(key, _)| decides(key)).collect();
    ours.iter().for_each(|(key, change)| merged.changes.insert_mut((*key).clone(), (*change).clone()));
    let mut search = Search { merged: &merged, seen: HashMap::default(), left: LINKS_MAX };
    for (key, change) in ours {
        if let (Some((group, LINK, _)), Body::Cell(cell)) = (keys::parts(key), &change.body)
            && let Some(below) = search.group_at(&state.container.bytes(cell)?, group)?
            && !search.is_tree(below)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// True for keys of links and of the types of objects.
fn decides(key: &[u8]) -> bool {
    matches!(keys::parts(key), Some((_, LINK, _))) || keys::message(key) == Some(OBJECT_TYPE)
}

/// What is known of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Groups below it are being visited.
    Open,
    /// Nothing below it leads to it.
    Closed,
}

struct Search<'a> {
    merged: &'a State,
    seen: HashMap<u64, Seen>,
    /// Links that may still be looked at.
    left: u64,
}

impl Search<'_> {
    /// The group that the link `body` of `group` leads to.
    fn group_at(&self, body: &[u8], group: u64) -> Result<Option<u64>> {
        let LinkTarget::Hard(id) = decode_link(body, group)? else { return Ok(None) };
        Ok((self.merged.kind(id.serial())? == Some(ObjectKind::Group)).then(|| id.serial()))
    }

    /// Groups right below `group`; `None`: too many links were looked at.
    fn below(&mut self, group: u64) -> Result<Option<Vec<u64>>> {
        let (mut groups, mut left) = (Vec::new(), self.left);
        let scanned = self.merged.scan(&keys::of_kind(group, LINK), &mut |_, cell| {
            let Some(less) = left.checked_sub(1) else { return Ok(ControlFlow::Break(())) };
            left = less;
            groups.extend(self.group_at(&self.merged.container.bytes(cell)?, group)?);
            Ok(ControlFlow::Continue(()))
        })?;
        self.left = left;
        Ok(scanned.is_continue().then_some(groups))
    }

    /// False if a group from `top` on leads to itself.
    fn is_tree(&mut self, top: u64) -> Result<bool> {
        let mut path = vec![(top, vec![top])];
        // Each step has a group and those right below it that are left. The first has `top` below.
        while let Some((group, left)) = path.last_mut() {
            let (group, next) = (*group, left.pop());
            match next.map(|next| (next, self.seen.get(&next))) {
                Some((_, Some(Seen::Open))) => return Ok(false),
                Some((_, Some(Seen::Closed))) => {}
                Some((next, None)) => {
                    self.seen.insert(next, Seen::Open);
                    let Some(below) = self.below(next)? else { return Ok(false) };
                    path.push((next, below));
                }
                None => {
                    self.seen.insert(group, Seen::Closed);
                    path.pop();
                }
            }
        }
        Ok(true)
    }
}
