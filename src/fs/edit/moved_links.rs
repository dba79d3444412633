//! Soft links of a group that was moved, to objects in that group.

use crate::base::Result;
use crate::connector::edit::Edit;
use crate::connector::{Connector, Link, LinkTarget, ObjectId, ObjectKind, Ownership};
use crate::fs::symlink;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Links that are looked at below one moved group.
const LINKS_MAX: usize = 1 << 17;

/// Moves absolute soft links in the group `top`, which was moved from the path `from` to the path
/// `to`, so that they lead to the same objects if these are below `top` too. Returns the groups
/// whose links changed. After `LINKS_MAX` links it stops with a warning.
pub fn moved(connector: &dyn Connector, edit: &dyn Edit, top: ObjectId, from: &[Vec<u8>], to: &[Vec<u8>]) -> Vec<ObjectId> {
    let (mut pending, mut seen, mut changed) = (vec![top], HashSet::from([top]), Vec::new());
    let mut left = LINKS_MAX;
    while let Some(group) = pending.pop() {
        let mut soft = Vec::new();
        let mut members = Vec::new();
        let take = &mut |link: Link, _| {
            left = left.saturating_sub(1);
            match link.target {
                LinkTarget::Soft(path) => soft.extend(symlink::moved(&path, from, to).map(|path| (link.name, path))),
                LinkTarget::Hard(id) => members.push(id),
                LinkTarget::External { .. } | LinkTarget::UserDefined(_) => {}
            }
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut done = connector.list(group, 0, take);
        for (name, path) in &soft {
            done = done.and_then(|()| replace(connector, edit, (group, name), path));
        }
        if !soft.is_empty() {
            changed.push(group);
        }
        if let Err(e) = done {
            tracing::warn!("soft links of a moved group lead to its earlier path: {e}");
        }
        if left == 0 {
            tracing::warn!("a moved group has more than {LINKS_MAX} links: soft links of others may lead to its earlier path");
            break;
        }
        let is_group = |id: &ObjectId| connector.info(*id).is_ok_and(|info| info.kind == ObjectKind::Group);
        pending.extend(members.into_iter().filter(|id| id.is_own() && is_group(id) && seen.insert(*id)));
    }
    changed
}

fn replace(connector: &dyn Connector, edit: &dyn Edit, (group, name): (ObjectId, &[u8]), path: &[u8]) -> Result<()> {
    let owner = connector.link_ownership(group, name)?;
    edit.unlink(group, name, false)?;
    edit.symlink(group, name, path)?;
    if owner == Ownership::default() { Ok(()) } else { edit.set_link_ownership(group, name, &owner) }
}
