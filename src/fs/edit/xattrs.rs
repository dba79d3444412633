//! Changes of extended attributes.

use crate::base::Error;
use crate::base::escape::escaped;
use crate::connector::Form;
use crate::fs::changes::ChangeLog;
use crate::fs::done::{ALL_PAGES, Grown, Invalidate};
use crate::fs::errno::errno;
use crate::fs::mounted::Mounted;
use crate::fs::namespace::Node;
use crate::fs::open_files::OpenFiles;
use crate::fs::types::{Errno, FsResult};
use crate::fs::views::{ALL, Class, Host, Inode};
use crate::fs::xattr::{self, Target};
use crate::present::Prepared;
use std::sync::Arc;

/// The fact that makes a directory a map.
const MAP_FACT: &[u8] = b"user.h5dir.map";
/// The fact that sets the extent of a dataset.
const SHAPE_FACT: &[u8] = b"user.h5dir.shape";

/// See the module's description. Callers that change something hold the lock of names alone.
pub struct XattrEditor {
    mounted: Arc<Mounted>,
    changes: Arc<ChangeLog>,
    files: Arc<OpenFiles>,
}

impl XattrEditor {
    /// Changes the attributes of the objects of `files`.
    pub fn new(mounted: Arc<Mounted>, changes: Arc<ChangeLog>, files: Arc<OpenFiles>) -> Self {
        XattrEditor { mounted, changes, files }
    }

    /// Prepares [`XattrEditor::set`] while other requests are served, if it takes long. Needs no
    /// lock of names.
    pub fn prepare<'a>(&'a self, node: &'a Node, name: &[u8], value: &[u8]) -> FsResult<Option<Prepared<'a>>> {
        if !xattr::is_fact(name) || node.item.object().is_none_or(|id| !id.is_own()) {
            return Ok(None);
        }
        if self.changes.size_before(node, name).is_some() {
            self.files.view_writers.check(node)?;
        }
        let edit = self.mounted.editor()?;
        let target = Target { connector: &*self.mounted.connector, edit, cut: &self.mounted.cut_names, node };
        target.prepare(name, value).map_err(|e| self.mounted.refused(node.item.object(), &e))
    }

    /// Sets the extended attribute `name` of `node`; `flags` are those of setxattr(2).
    pub fn set(&self, node: &Node, name: &[u8], value: &[u8], flags: i32, invalidate: &mut Invalidate) -> FsResult<()> {
        let kind = |id| self.mounted.connector.info(id).map(|info| info.kind).ok();
        let before = node.item.group().filter(|_| name == MAP_FACT).map(|id| (id, kind(id)));
        if name == MAP_FACT && node.is_root() {
            let reason = "the root of a mount stays a group; make a directory in it a map";
            return Err(self.mounted.refused(node.item.object(), &Error::refused(libc::EINVAL, reason)));
        }
        let set = |target: &Target<'_>| match xattr::fact_piece(name) {
            Some(piece) => target.add_piece(&self.mounted.long_facts, piece, value),
            None => target.set(name, value, flags),
        };
        self.change(node, name, set, invalidate)?;
        if let Some((id, kind_before)) = before
            && kind(id) != kind_before
        {
            self.changes.kind_changed(id, invalidate);
        }
        if xattr::is_fact(name) {
            node.set_size.set(None);
            invalidate.attributes.push(node.ino);
            // Elements may be elsewhere, have another value or be undefined.
            if node.item.dataset().is_some() {
                invalidate.pages_before_answer.push((node.ino, ALL_PAGES));
            }
        }
        Ok(())
    }

    /// Removes the extended attribute `name` of `node`.
    pub fn remove(&self, node: &Node, name: &[u8], invalidate: &mut Invalidate) -> FsResult<()> {
        self.change(node, name, |target| target.remove(name), invalidate)?;
        let Some(id) = node.item.object() else { return Ok(()) };
        ALL.iter().filter_map(|view| view.edit()).for_each(|view| view.attribute_removed(&self.mounted.context(), id));
        Ok(())
    }

    fn change(
        &self,
        node: &Node,
        name: &[u8],
        f: impl FnOnce(&Target<'_>) -> Result<(), Error>,
        invalidate: &mut Invalidate,
    ) -> FsResult<()> {
        let edit = self.mounted.editor()?;
        let id = node.item.object();
        if id.is_some_and(|id| !id.is_own()) {
            return Err(Errno(libc::EROFS));
        }
        // The views below `.h5dir` show the attributes of the main tree, where they are changed.
        let object = !matches!(node.item.class, Class::Symlink | Class::Broken) && id.is_some();
        if !object || !node.item.view.edit().is_some_and(|view| view.is_object(&node.item)) {
            return Err(Errno(libc::EPERM));
        }
        let before = self.changes.size_before(node, name);
        if before.is_some() {
            self.files.view_writers.check(node)?;
        }
        let target = Target { connector: &*self.mounted.connector, edit, cut: &self.mounted.cut_names, node };
        f(&target).map_err(|e| match &e {
            // Logged each time: the request and the reason may be others.
            Error::Refused { errno: libc::EINVAL | libc::ERANGE | libc::EOPNOTSUPP | libc::E2BIG, .. } => {
                let path = String::from_utf8_lossy(&node.place().name).into_owned();
                tracing::warn!("{}: {path}: {e}", escaped(&self.mounted.spec.file));
                id.inspect(|id| self.mounted.reasons.note(*id, &e));
                errno(&e)
            }
            _ => self.mounted.refused(id, &e),
        })?;
        let Some(id) = id else { return Ok(()) };
        if name == SHAPE_FACT {
            self.changes.changed(&[id], invalidate);
        }
        let size = self.changes.attribute_changed(id, before, invalidate);
        if size.is_some_and(|size| Some(size) < before) {
            self.changes.shortened(id);
        }
        if let Some(last) = size.filter(|size| Some(*size) > before).and_then(|size| size.checked_sub(1)) {
            let content = self.mounted.connector.content(id, Form::Main);
            invalidate.grown.extend(content.map(|content| Grown { ino: node.ino, last, content }));
        }
        Ok(())
    }
}
