//! A walk over the groups and arrays of a container, a node at a time.
//!
//! A group is not visited below itself, so that walks end. A walk over the container's own objects
//! visits each group once, by the first of its names. Memory is that of the numbers of the groups,
//! and of 256 links for each level.

use super::ZarrFormat;
use super::array::ZarrArray;
use super::dimensions::variable_name;
use super::scales::is_dimension_only;
use crate::base::{Error, Result};
use crate::connector::{Connector, LinkTarget, ObjectId, ObjectKind};
use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Links that are read at once.
const BATCH_LINKS: usize = 256;
/// Groups below one another.
const LEVELS_MAX: usize = 256;
/// Groups in all.
const GROUPS_MAX: usize = 1 << 20;

/// Makes the name of a node of the name of a link.
pub type NodeName = fn(&[u8]) -> Vec<u8>;

/// What a walk meets.
pub(super) enum Node {
    /// A group; its path ends with a slash, that of the root is empty.
    Group(Vec<u8>, ObjectId),
    /// An array; its path ends with a slash.
    Array(Vec<u8>, Box<ZarrArray>),
    /// An object that is no array, or is in another file.
    Left(Vec<u8>, String),
    /// An object that cannot be read.
    Damaged(Vec<u8>, Error),
}

/// A group whose links are visited.
struct Level {
    group: ObjectId,
    path: Vec<u8>,
    links: VecDeque<(Vec<u8>, LinkTarget)>,
    position: u64,
    is_read: bool,
}

/// See the module's description.
pub(super) struct Walk {
    connector: Arc<dyn Connector>,
    format: ZarrFormat,
    name: NodeName,
    /// Objects of other files are left out, elements are cut evenly, and groups have one name.
    own: bool,
    levels: Vec<Level>,
    seen: HashSet<ObjectId>,
    first: Option<ObjectId>,
}

impl Walk {
    /// A walk over `group`. `own`: only objects of the container itself, whose elements are cut
    /// into whole chunks; each group once.
    pub fn new(connector: Arc<dyn Connector>, group: ObjectId, format: ZarrFormat, name: NodeName, own: bool) -> Walk {
        Walk { connector, format, name, own, levels: Vec::new(), seen: HashSet::new(), first: Some(group) }
    }

    /// The next node; `None`: there are no more.
    pub fn next(&mut self) -> Result<Option<Node>> {
        if let Some(group) = self.first.take() {
            return self.enter(Vec::new(), group).map(Some);
        }
        while let Some(level) = self.levels.last_mut() {
            if level.links.is_empty() && !level.is_read {
                let (links, mut position) = (&mut level.links, level.position);
                self.connector.list(level.group, position, &mut |link, next| {
                    links.push_back((link.name, link.target));
                    position = next;
                    if links.len() < BATCH_LINKS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
                (level.position, level.is_read) = (position, level.links.len() < BATCH_LINKS);
            }
            let Some((name, target)) = level.links.pop_front() else {
                self.levels.pop();
                continue;
            };
            let shown = variable_name(&*self.connector, level.group, &name);
            let (group, path) = (level.group, [&level.path, &(self.name)(shown), b"/".as_slice()].concat());
            if let Some(node) = self.node(path, group, target) {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    fn enter(&mut self, path: Vec<u8>, group: ObjectId) -> Result<Node> {
        if self.levels.len() >= LEVELS_MAX || self.seen.len() >= GROUPS_MAX {
            return Err(Error::refused(libc::EFBIG, format!("more than {LEVELS_MAX} levels or {GROUPS_MAX} groups")));
        }
        self.seen.insert(group);
        self.levels.push(Level { group, path: path.clone(), links: VecDeque::new(), position: 0, is_read: false });
        Ok(Node::Group(path, group))
    }

    /// What a link of `group` leads to; `None`: nothing that is shown.
    fn node(&mut self, path: Vec<u8>, group: ObjectId, target: LinkTarget) -> Option<Node> {
        let found = match target {
            LinkTarget::Hard(id) => Ok(Some(id)),
            LinkTarget::Soft(to) => self.connector.resolve(group, &to),
            LinkTarget::External { file, object } => self.connector.external(group, &file, &object),
            LinkTarget::UserDefined(_) => Ok(None),
        };
        match found.and_then(|id| id.map(|id| Ok((id, self.connector.info(id)?.kind))).transpose()) {
            Err(e) => Some(Node::Damaged(path, e)),
            Ok(None) => None,
            Ok(Some((id, _))) if self.own && !id.is_own() => Some(Node::Left(path, "it is in another file".into())),
            Ok(Some((id, ObjectKind::Group))) => {
                let is_above = self.levels.iter().any(|level| level.group == id);
                if is_above || self.own && self.seen.contains(&id) {
                    return None;
                }
                Some(self.enter(path.clone(), id).unwrap_or_else(|e| Node::Damaged(path, e)))
            }
            Ok(Some((id, ObjectKind::Dataset))) => self.dataset(path, id),
            Ok(Some(_)) => None,
        }
    }

    fn dataset(&self, path: Vec<u8>, id: ObjectId) -> Option<Node> {
        match is_dimension_only(&*self.connector, id) {
            Ok(true) => return None,
            Ok(false) => {}
            Err(e) => return Some(Node::Damaged(path, e)),
        }
        Some(match ZarrArray::open(&self.connector, id, self.format, self.own) {
            Ok(Some(array)) => Node::Array(path, Box::new(array)),
            Ok(None) => Node::Left(path, "Zarr has no such datatype or dataspace".into()),
            Err(e) => Node::Damaged(path, e),
        })
    }
}
