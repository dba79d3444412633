//! Hides paths that texts name from processes that may not search the directories on the way.
//!
//! References and named datatypes are shown by path. A process that the modes keep from a directory
//! gets `EACCES` instead of a text that names something in it. The kernel passes on the user and
//! the group of a process, not its supplementary groups.

use super::mounted::Mounted;
use super::namespace::Node;
use super::ownership;
use super::types::{Caller, Errno, FsResult, Sight};
use super::xattr::{self, Shown};
use crate::base::Error;
use crate::connector::{Connector, LinkTarget, ObjectId};
use crate::present::targets;
use std::collections::BTreeMap;

/// Fact with the reason of the last failure, which may name anything.
const ERROR_FACT: &str = "error";

/// Checks that `caller` may search all directories of paths that it sees.
pub fn check(mounted: &Mounted, node: &Node, sight: Sight<'_>, caller: Caller, failed: &dyn Fn(&Error) -> Errno) -> FsResult<()> {
    let denied = Err(Errno(libc::EACCES));
    let connector = &*mounted.connector;
    let seen = match sight {
        Sight::Xattr(name) => xattr::shown(mounted, node, name).map_err(|e| failed(&e))?.map(|(id, shown)| (id, Some(shown))),
        Sight::Bytes => node.item.owner.filter(|_| node.item.view.names_targets()).map(|id| (id, None)),
    };
    let Some((id, shown)) = seen else { return Ok(()) };
    if matches!(&shown, Some(Shown::Fact(fact)) if fact == ERROR_FACT) {
        let names_paths = mounted.reasons.last(id).is_some_and(|reason| reason.contains('/'));
        return if names_paths { denied } else { Ok(()) };
    }
    // Objects of other files have paths of those.
    let Some(root) = root_of(connector, id) else { return Ok(()) };
    let paths = match shown {
        Some(Shown::Fact(fact)) => targets::of_fact(connector, id, &fact),
        Some(Shown::Attribute(name)) => targets::of_attribute(connector, id, &name),
        None => targets::of_description(connector, id),
    };
    let paths = paths.map_err(|e| failed(&e))?;
    let mut directories = Directories { mounted, root, caller, known: BTreeMap::new() };
    if paths.iter().all(|path| directories.may_reach(path)) { Ok(()) } else { denied }
}

/// The root group of the version of the container that the object is in.
fn root_of(connector: &dyn Connector, id: ObjectId) -> Option<ObjectId> {
    if id.is_own() {
        return Some(connector.root());
    }
    let versions = connector.versions()?;
    versions.root_of(versions.version_of(id)?)
}

/// The directories of a container, as one process may search them.
struct Directories<'a> {
    mounted: &'a Mounted,
    root: ObjectId,
    caller: Caller,
    /// Groups by path, without the slash at the end; `None`: one that may not be searched.
    known: BTreeMap<Vec<u8>, Option<ObjectId>>,
}

impl Directories<'_> {
    /// True if all directories of the object at `path` may be searched.
    fn may_reach(&mut self, path: &[u8]) -> bool {
        match path.iter().rposition(|b| *b == b'/') {
            Some(end) => self.group(path.get(..end).unwrap_or_default()).is_some(),
            // An object without a path.
            None => true,
        }
    }

    /// The group at `path`, if it and all above it may be searched. Who is in the mount is past the
    /// groups above the mounted one.
    fn group(&mut self, path: &[u8]) -> Option<ObjectId> {
        let (mut at, mut end) = (Some(self.root), 0usize);
        let mut above = self.mounted.prefix.iter();
        let mut is_above = !self.mounted.prefix.is_empty();
        for (depth, part) in path.split(|b| *b == b'/').enumerate() {
            end = end.saturating_add(part.len());
            if depth > 0 {
                is_above = is_above && above.next().is_some_and(|name| name == part) && above.len() > 0;
            }
            let prefix = path.get(..end).unwrap_or(path);
            at = match self.known.get(prefix) {
                Some(found) => *found,
                None => {
                    let found = if depth == 0 { at } else { at.and_then(|group| self.child(group, part)) };
                    let found = found.filter(|group| is_above || self.may_search(*group));
                    self.known.insert(prefix.to_vec(), found);
                    found
                }
            };
            end = end.saturating_add(1);
        }
        at
    }

    fn child(&self, group: ObjectId, name: &[u8]) -> Option<ObjectId> {
        match self.mounted.connector.lookup(group, name).ok()??.target {
            LinkTarget::Hard(id) => Some(id),
            _ => None,
        }
    }

    fn may_search(&self, group: ObjectId) -> bool {
        let info = self.mounted.connector.info(group);
        info.is_ok_and(|info| ownership::directory(self.mounted, &info.ownership).may_be_searched_by(self.caller))
    }
}
