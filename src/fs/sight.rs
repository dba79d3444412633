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
use crate::connector::{LinkTarget, ObjectId};
use crate::present::targets::{self, Paths};
use std::collections::BTreeMap;

/// Checks that `caller` may search all directories of paths that it sees.
pub fn check(mounted: &Mounted, node: &Node, sight: Sight<'_>, caller: Caller, failed: &dyn Fn(&Error) -> Errno) -> FsResult<()> {
    let paths = named(mounted, node, sight).map_err(|e| failed(&e))?;
    let mut directories = Directories { mounted, caller, known: BTreeMap::new() };
    match paths.iter().all(|path| directories.may_reach(path)) {
        true => Ok(()),
        false => Err(Errno(libc::EACCES)),
    }
}

fn named(mounted: &Mounted, node: &Node, sight: Sight<'_>) -> Result<Paths, Error> {
    let connector = &*mounted.connector;
    // Objects of other files have paths of those.
    let is_here = |id: &ObjectId| id.is_own() || connector.versions().is_some();
    match sight {
        Sight::Xattr(name) => match xattr::shown(mounted, node, name)?.filter(|(id, _)| is_here(id)) {
            Some((id, Shown::Fact(fact))) => targets::of_fact(connector, id, &fact),
            Some((id, Shown::Attribute(name))) => targets::of_attribute(connector, id, &name),
            None => Ok(Paths::new()),
        },
        Sight::Bytes => match node.item.object().filter(|id| node.item.view.names_targets() && is_here(id)) {
            Some(id) => targets::of_description(connector, id),
            None => Ok(Paths::new()),
        },
    }
}

/// The directories of a container, as one process may search them.
struct Directories<'a> {
    mounted: &'a Mounted,
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

    /// The group at `path`, if it and all above it may be searched.
    fn group(&mut self, path: &[u8]) -> Option<ObjectId> {
        let connector = &self.mounted.connector;
        let (mut at, mut end) = (Some(connector.root()), 0usize);
        for part in path.split(|b| *b == b'/') {
            end = end.saturating_add(part.len());
            let prefix = path.get(..end).unwrap_or(path);
            at = match self.known.get(prefix) {
                Some(found) => *found,
                None => {
                    let found = if prefix.is_empty() { at } else { at.and_then(|group| self.child(group, part)) };
                    let found = found.filter(|group| self.may_search(*group));
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
