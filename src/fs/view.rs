//! What a directory holds: the children of each kind of directory, in every view.

use super::cut_names::{CutNames, Names};
use super::name::{NAME_MAX, file_name, file_name_escaped, file_name_within, unescape};
use super::nodes::{Node, NodeKind, View};
use super::symlink;
use crate::base::{Error, Result};
use crate::connector::{Connector, Link, LinkTarget, ObjectId, ObjectKind};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Name of the control directory, not listed.
pub const CONTROL: &[u8] = b".h5dir";
/// Suffix of datasets in the npy view.
const NPY: &[u8] = b".npy";
/// Positions of attributes in a directory of the attrs view begin here.
const ATTRIBUTES: u64 = 1 << 61;

/// A child of a directory: the name shown, what it is, and its link name where that differs.
pub struct Child {
    /// File name.
    pub name: Vec<u8>,
    /// Node.
    pub kind: NodeKind,
    /// Link name where the file name differs from it.
    pub link_name: Option<Box<[u8]>>,
}

impl Child {
    /// The node of this child in directory `parent`.
    pub fn node(self, parent: &Arc<Node>) -> (Vec<u8>, Node) {
        let node = Node::new(parent, &self.name, self.link_name, self.kind);
        (self.name, node)
    }
}

/// Resolves directories against a connector.
pub struct Tree<'a> {
    /// The container.
    pub connector: &'a dyn Connector,
    /// Path of the mounted group in its file, as link names.
    pub prefix: &'a [Vec<u8>],
    /// The mounted group.
    pub root: Option<ObjectId>,
    /// Names that are shown cut.
    pub cut_names: &'a CutNames,
    /// Told of objects that cannot be read.
    pub failures: &'a dyn Failures,
}

/// Who is told that an object cannot be read; tells it once, however often it is met.
pub trait Failures {
    /// `id` failed with `error`.
    fn note(&self, id: ObjectId, error: &Error);
}

impl Tree<'_> {
    /// The child `name` of directory `parent`.
    pub fn lookup(&self, parent: &Arc<Node>, name: &[u8]) -> Result<Option<Child>> {
        match &parent.kind {
            NodeKind::Group(view, id) => {
                if *view == View::Main && parent.parent().is_none() && name == CONTROL {
                    return Ok(Some(Child { name: name.to_vec(), kind: NodeKind::Control, link_name: None }));
                }
                self.lookup_in_group(parent, *view, *id, name)
            }
            NodeKind::Control => Ok(self.control().into_iter().find(|c| c.name == name)),
            NodeKind::AttrDir(id) => self.lookup_attribute(*id, name),
            NodeKind::ChunkDir(id) => self.lookup_chunk(*id, name),
            _ => Ok(None),
        }
    }

    fn lookup_in_group(&self, parent: &Arc<Node>, view: View, id: ObjectId, name: &[u8]) -> Result<Option<Child>> {
        if view == View::Npy
            && let Some(stem) = name.strip_suffix(NPY)
        {
            let child = self.lookup_link(parent, view, id, stem, NAME_MAX.saturating_sub(NPY.len()))?;
            if let Some(c) = child.filter(|c| matches!(c.kind, NodeKind::Dataset(..) | NodeKind::Broken(_))) {
                return Ok(Some(Child { name: name.to_vec(), ..c }));
            }
        }
        let child = self.lookup_link(parent, view, id, name, NAME_MAX)?;
        let child = child.filter(|c| view != View::Npy || !matches!(c.kind, NodeKind::Dataset(..) | NodeKind::Broken(_)));
        if child.is_none() && view == View::Attrs { self.lookup_attribute(id, name) } else { Ok(child) }
    }

    /// The child of group `id` whose name is shown as `name` where a name has `limit` bytes.
    fn lookup_link(&self, parent: &Arc<Node>, view: View, id: ObjectId, name: &[u8], limit: usize) -> Result<Option<Child>> {
        let link = match unescape(name) {
            Some(link_name) if self.shown(parent, view, &link_name, limit) == name => self.connector.lookup(id, &link_name)?,
            // Another spelling of a name is not its name.
            Some(_) => None,
            None => {
                let mut visit = |f: &mut dyn FnMut(&[u8]) -> bool| {
                    self.connector
                        .list(id, 0, &mut |link, _| if f(&link.name) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
                };
                let show = |n: &[u8]| file_name_within(n, limit).into_owned();
                match self.cut_names.find(Names::Links(id), name, &show, &mut visit)? {
                    Some(link_name) => self.connector.lookup(id, &link_name)?,
                    None => None,
                }
            }
        };
        Ok(link.and_then(|l| self.child(parent, view, l)))
    }

    /// Link name for the new file name `name` in `parent`, a directory of the main view; `None` where no link can
    /// have it: another spelling of a name, or a name that no path within the container could hold.
    pub fn new_name(&self, parent: &Node, name: &[u8]) -> Option<Vec<u8>> {
        let link_name = unescape(name)?.into_owned();
        let fine = !matches!(link_name.as_slice(), b"" | b".") && !link_name.iter().any(|b| matches!(b, b'/' | 0));
        (fine && self.shown(parent, View::Main, &link_name, NAME_MAX) == name).then_some(link_name)
    }

    /// File name of a link in `parent`.
    fn shown(&self, parent: &Node, view: View, link_name: &[u8], limit: usize) -> Vec<u8> {
        if view == View::Main && parent.parent().is_none() && link_name == CONTROL {
            return file_name_escaped(link_name);
        }
        file_name_within(link_name, limit).into_owned()
    }

    /// How a link of `parent` is shown; `None` when this view has nothing to show for it.
    fn child(&self, parent: &Arc<Node>, view: View, link: Link) -> Option<Child> {
        let NodeKind::Group(_, group) = parent.kind else { return None };
        let name = self.shown(parent, view, &link.name, NAME_MAX);
        let kind = match &link.target {
            LinkTarget::Hard(id) => self.object(parent, view, *id),
            LinkTarget::Soft(path) if view == View::Main && group.file == 0 => {
                NodeKind::Symlink(symlink::soft(path, parent.depth(), self.prefix).into())
            }
            LinkTarget::Soft(path) => match self.connector.resolve(group, path) {
                Ok(Some(id)) => self.object(parent, view, id),
                _ => NodeKind::Symlink(symlink::dangling(b"soft", path).into()),
            },
            LinkTarget::External { file, object } => match self.connector.external(group.file, file, object) {
                Ok(Some(id)) => self.object(parent, view, id),
                Ok(None) => NodeKind::Symlink(symlink::dangling(b"external", &[file.as_slice(), b":", object].concat()).into()),
                Err(e) => {
                    tracing::warn!("external link to {:?}: {e}", String::from_utf8_lossy(file));
                    NodeKind::Symlink(symlink::dangling(b"external", &[file.as_slice(), b":", object].concat()).into())
                }
            },
            LinkTarget::UserDefined(class) => NodeKind::Symlink(symlink::dangling(b"link class", class.to_string().as_bytes()).into()),
        };
        if view == View::Npy
            && let NodeKind::Dataset(_, id) = kind
            && matches!(self.connector.npy_header(id), Ok(None))
        {
            return None;
        }
        // Views below .h5dir show objects only.
        if view != View::Main && matches!(kind, NodeKind::Symlink(_)) && !matches!(link.target, LinkTarget::Hard(_)) {
            return None;
        }
        let link_name = (name != link.name).then(|| link.name.into_boxed_slice());
        Some(Child { name, kind, link_name })
    }

    /// How the object `id` is shown in directory `parent`.
    fn object(&self, parent: &Arc<Node>, view: View, id: ObjectId) -> NodeKind {
        let kind = match self.connector.info(id) {
            Ok(info) => info.kind,
            Err(e) => {
                self.failures.note(id, &e);
                return NodeKind::Broken(id);
            }
        };
        match (kind, view) {
            (ObjectKind::Group, _) => match parent.levels_up_to(id) {
                Some(up) => NodeKind::Symlink(symlink::up(up).into()),
                None => NodeKind::Group(view, id),
            },
            (ObjectKind::Dataset, View::Chunks) => NodeKind::ChunkDir(id),
            (_, View::Attrs) => NodeKind::AttrDir(id),
            (ObjectKind::Dataset, _) => NodeKind::Dataset(view, id),
            (ObjectKind::Datatype, _) => NodeKind::Datatype(id),
            (ObjectKind::Unknown, _) => NodeKind::Unknown(id),
        }
    }

    fn control(&self) -> Vec<Child> {
        let root = self.root.unwrap_or_else(|| self.connector.root());
        let mut all: Vec<Child> = View::NAMED
            .iter()
            .map(|(n, v)| Child { name: n.as_bytes().to_vec(), kind: NodeKind::Group(*v, root), link_name: None })
            .collect();
        all.push(Child { name: b"status".to_vec(), kind: NodeKind::Status, link_name: None });
        all
    }

    fn lookup_attribute(&self, id: ObjectId, name: &[u8]) -> Result<Option<Child>> {
        let all = self.connector.attributes(id)?;
        let found = match unescape(name) {
            // Another spelling of a name is not its name.
            Some(n) if file_name(&n) != name && file_name_escaped(&n) != name => None,
            Some(n) => all.binary_search_by(|a| a.as_slice().cmp(&n)).ok().and_then(|i| all.get(i).cloned()),
            None => {
                let mut visit = |f: &mut dyn FnMut(&[u8]) -> bool| {
                    let _ = all.iter().all(|a| f(a));
                    Ok(())
                };
                let show = |n: &[u8]| if file_name(n) == name { name.to_vec() } else { file_name_escaped(n) };
                self.cut_names.find(Names::Attributes(id), name, &show, &mut visit)?
            }
        };
        Ok(found.map(|a| self.attribute(id, name.to_vec(), &a)))
    }

    fn attribute(&self, id: ObjectId, shown: Vec<u8>, name: &[u8]) -> Child {
        let link_name = (shown != name).then(|| name.into());
        Child { name: shown, kind: NodeKind::AttrFile(id, name.into()), link_name }
    }

    fn lookup_chunk(&self, id: ObjectId, name: &[u8]) -> Result<Option<Child>> {
        let Some(chunks) = self.connector.chunks(id)? else { return Ok(None) };
        let parse = |part: &[u8]| {
            let text = std::str::from_utf8(part).ok()?;
            let n: u64 = text.parse().ok()?;
            // One spelling per chunk: no sign, no leading zero.
            (n.to_string() == text).then_some(n)
        };
        let Some(scaled) = name.split(|b| *b == b'.').map(parse).collect::<Option<Vec<u64>>>() else { return Ok(None) };
        if scaled.len() != chunks.rank() || chunks.stored_len(&scaled)?.is_none() {
            return Ok(None);
        }
        Ok(Some(Child { name: name.to_vec(), kind: NodeKind::ChunkFile(id, scaled.into()), link_name: None }))
    }

    /// Children of `parent` from position `start` (0 = first), each with the position after it.
    pub fn list(&self, parent: &Arc<Node>, start: u64, f: &mut dyn FnMut(Child, u64) -> ControlFlow<()>) -> Result<()> {
        match &parent.kind {
            NodeKind::Group(view, id) => self.list_group(parent, *view, *id, start, f),
            NodeKind::Control => {
                for (i, c) in (1u64..).zip(self.control()).filter(|(i, _)| *i > start) {
                    if f(c, i).is_break() {
                        break;
                    }
                }
                Ok(())
            }
            NodeKind::AttrDir(id) => self.list_attributes(*id, start, f).map(drop),
            NodeKind::ChunkDir(id) => self.list_chunks(*id, start, f),
            _ => Ok(()),
        }
    }

    fn list_group(
        &self,
        parent: &Arc<Node>,
        view: View,
        id: ObjectId,
        start: u64,
        f: &mut dyn FnMut(Child, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut stopped = false;
        if start < ATTRIBUTES {
            self.connector.list(id, start, &mut |link, next| {
                let Some(mut child) = self.child(parent, view, link) else { return ControlFlow::Continue(()) };
                if view == View::Npy && matches!(child.kind, NodeKind::Dataset(..) | NodeKind::Broken(_)) {
                    let name = child.link_name.as_deref().unwrap_or(&child.name);
                    child.name = [&file_name_within(name, NAME_MAX.saturating_sub(NPY.len())), NPY].concat();
                }
                let flow = f(child, next);
                stopped |= flow.is_break();
                flow
            })?;
        }
        if view == View::Attrs && !stopped {
            self.list_attributes(id, start, f)?;
        }
        Ok(())
    }

    fn list_attributes(&self, id: ObjectId, start: u64, f: &mut dyn FnMut(Child, u64) -> ControlFlow<()>) -> Result<()> {
        let group = self.connector.info(id).is_ok_and(|i| i.kind == ObjectKind::Group);
        let done = start.saturating_sub(ATTRIBUTES);
        let all = self.connector.attributes(id)?;
        for (i, a) in (1u64..).zip(all.iter()).skip(usize::try_from(done).unwrap_or(usize::MAX)) {
            let mut shown = file_name(a).into_owned();
            // A link of the same name comes first.
            if group && self.connector.lookup(id, a)?.is_some() {
                let second = file_name_escaped(a);
                // Only of a name that no link can have there is no second one.
                if second == shown {
                    continue;
                }
                shown = second;
            }
            if f(self.attribute(id, shown, a), ATTRIBUTES.saturating_add(i)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn list_chunks(&self, id: ObjectId, start: u64, f: &mut dyn FnMut(Child, u64) -> ControlFlow<()>) -> Result<()> {
        let Some(chunks) = self.connector.chunks(id)? else { return Ok(()) };
        chunks.list(start, &mut |scaled, _, next| {
            let name: Vec<String> = scaled.iter().map(u64::to_string).collect();
            f(Child { name: name.join(".").into_bytes(), kind: NodeKind::ChunkFile(id, scaled.into()), link_name: None }, next)
        })
    }
}
