//! Copies a tree: object by object, with links between what was copied.

use super::bytes;
use super::describe::{self, Description};
use super::manner::Manner;
use super::object::{self, INTO_ITSELF, NOT_RECURSIVE, PAIR_WITHOUT_MAP, TYPE_LOST, UNDEFINED_LOST, UNNAMED_TYPE_LOST, check_lists};
use super::report::Report;
use super::resume::Resume;
use super::sink::{Finished, NewFile, NewLink, SinkDirectory, relative, with_context};
use super::verify::Verifier;
use crate::base::escape::escaped_bytes;
use crate::cli::failure::reason;
use crate::cli::process;
use crate::cli::side::container::{Container, Held, ObjectSource, error};
use crate::cli::side::{DEFINED_XATTR, DEPTH_MAX, Meta, SideKind, Source};
use crate::cli::{print_error, tree};
use crate::fs::model::{Definition, Lost, ObjectModel, SharedGroup, StoredLink, io_error};
use crate::fs::types::ROOT;
use std::collections::{HashMap, HashSet};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes copied into a container between two commits.
const COMMIT_BYTES: u64 = 256 << 20;
/// Objects copied into a container between two commits.
const COMMIT_OBJECTS: u64 = 20_000;

/// Copies of one group in local directories: a few groups with several hard links each have very
/// many paths.
pub(super) const COPIES_MAX: u32 = 8;

/// Why a copy ends early.
#[derive(Debug)]
pub(super) enum Stop {
    /// By a signal.
    Interrupted,
    /// No more can be written; the reason was printed.
    Full,
}

/// Copies files into a destination.
pub(super) struct Copier {
    pub(super) manner: Manner,
    /// The container that is changed.
    container: Option<Arc<Container>>,
    /// Finished files with more names to come, by the identity of their source.
    linked: HashMap<(u64, u64), Finished>,
    /// Groups with more names to come, by container and group of their source.
    groups: HashMap<(u64, u64), Arc<Held>>,
    /// First copies of them in a local directory, which has no hard links of directories: paths,
    /// and how many there are.
    directories: HashMap<(u64, u64), (Vec<Vec<u8>>, u32)>,
    /// Directories that were made: a copy of a directory into itself would not end.
    made: HashSet<(u64, u64)>,
    /// How often a copy that changes nothing has walked groups with several hard links.
    pub(super) named: HashMap<SharedGroup, u32>,
    verifier: Verifier,
    /// What is copied, if the directory that is made first can be resumed by the same command.
    pub(super) new_top: Option<Vec<u8>>,
    /// What an interrupted copy needs to be resumed.
    resume: Option<Resume>,
    /// What is printed.
    pub(super) report: Report,
    pub(super) piece: Vec<u8>,
    pub(super) objects: u64,
    uncommitted: (u64, u64),
    /// What was not copied.
    failures: u64,
    /// What is being copied, for messages.
    current: Vec<u8>,
}

impl Copier {
    /// Copies as `manner` states; into `container`, if it is one.
    pub(super) fn new(manner: Manner, container: Option<Arc<Container>>, report: Report) -> Self {
        let (linked, groups, directories, made, named, verifier, new_top, resume, piece, current) = Default::default();
        let (objects, failures, uncommitted) = (0, 0, (0, 0));
        Copier {
            manner,
            container,
            linked,
            groups,
            directories,
            made,
            named,
            verifier,
            new_top,
            resume,
            report,
            piece,
            objects,
            uncommitted,
            failures,
            current,
        }
    }

    /// Objects that were copied, and failures.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.objects, self.failures)
    }

    /// Prints that `path` was not copied, and why.
    pub(super) fn failed(&mut self, path: &[u8], why: &io::Error) -> Result<(), Stop> {
        if why.kind() == io::ErrorKind::Interrupted || process::is_interrupted() {
            return Err(Stop::Interrupted);
        }
        self.failures = self.failures.saturating_add(1);
        self.report.clear();
        let full = matches!(why.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EROFS));
        let hint = match why.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => "; free some space",
            Some(libc::EIO) => "; 'h5dir check' says more",
            Some(libc::E2BIG) => "; its type, shape or attributes are too large for a description",
            _ => "",
        };
        print_error(&format!("cannot copy {}: {}{hint}", escaped_bytes(path), reason(why)));
        if full { Err(Stop::Full) } else { Ok(()) }
    }

    fn warn(&mut self, what: &str) {
        self.report.clear();
        print_error(&format!("{}: {what}", escaped_bytes(&self.current)));
    }

    /// Copies `source`, which is at `path`, to `name` in `to`.
    pub(super) fn copy(
        &mut self,
        source: &dyn Source,
        path: &[u8],
        to: &Rc<dyn SinkDirectory>,
        name: &[u8],
        depth: usize,
    ) -> Result<(), Stop> {
        if process::is_interrupted() {
            return Err(Stop::Interrupted);
        }
        self.current = path.to_vec();
        let kind = source.meta().kind;
        self.report.begin_file(if kind == SideKind::Regular { source.meta().size } else { 0 });
        let done = match self.copy_one(source, path, to, name, depth) {
            Ok(done) => done?,
            Err(e) => return self.failed(path, &e),
        };
        if done {
            self.objects = self.objects.saturating_add(1);
            self.uncommitted.1 = self.uncommitted.1.saturating_add(1);
            // A directory is reported before what is in it.
            if kind != SideKind::Directory {
                self.report.copied(path, kind);
            }
        }
        self.report.end_file();
        self.report.show(self.objects);
        self.commit_some(path)
    }

    /// Copies `source`; returns whether something was copied. Inner errors end the command.
    fn copy_one(
        &mut self,
        source: &dyn Source,
        path: &[u8],
        to: &Rc<dyn SinkDirectory>,
        name: &[u8],
        depth: usize,
    ) -> io::Result<Result<bool, Stop>> {
        let found = to.find(name)?;
        if found.as_ref().is_some_and(|there| there.identity == source.meta().identity) {
            return Err(io::Error::other("it would be copied onto itself"));
        }
        // A link is copied as it is between containers. A top directory may be named by a link.
        let into_container = to.as_object().is_some();
        let stored = if into_container && source.meta().kind != SideKind::Other { source.stored_link()? } else { None };
        let stored = stored.filter(|_| depth > 0 || source.meta().kind == SideKind::Symlink);
        match source.meta().kind {
            _ if stored.is_some() => self.copy_link(source, stored, to, name, found.as_ref()).map(Ok),
            SideKind::Symlink => self.copy_link(source, None, to, name, found.as_ref()).map(Ok),
            SideKind::Regular => self.copy_file(source, to, name, found.as_ref()).map(Ok),
            SideKind::Directory => self.copy_directory(source, path, to, name, found.as_ref(), depth),
            SideKind::Other => Err(io::Error::other("it is a device, pipe or socket")),
        }
    }

    fn copy_link(
        &mut self,
        source: &dyn Source,
        stored: Option<StoredLink>,
        to: &Rc<dyn SinkDirectory>,
        name: &[u8],
        found: Option<&Meta>,
    ) -> io::Result<bool> {
        if !self.manner.may_replace(source.meta(), found)? {
            return Ok(false);
        }
        let link = match stored {
            Some(StoredLink::UserDefined(class)) => {
                return Err(io::Error::other(format!("it is a user-defined link of class {class}, which only its own program can make")));
            }
            Some(stored) => NewLink::Stored(stored),
            None => NewLink::Target(source.target()?),
        };
        if self.manner.dry_run {
            return Ok(true);
        }
        to.make_link(name, &link, source.meta(), self.manner.owner, found.is_some())?;
        Ok(true)
    }

    fn copy_file(&mut self, source: &dyn Source, to: &Rc<dyn SinkDirectory>, name: &[u8], found: Option<&Meta>) -> io::Result<bool> {
        if !self.manner.may_replace(source.meta(), found)? {
            return Ok(false);
        }
        let meta = source.meta();
        if self.manner.dry_run {
            return Ok(true);
        }
        if found.is_some() && to.local_path().is_some() && self.is_resumed() {
            // It has its name: it is complete.
            let finished = to.finished(name)?.filter(|_| meta.links > 1);
            self.linked.extend(finished.map(|finished| (meta.identity, finished)));
            return Ok(false);
        }
        if let Some(first) = self.linked.get(&meta.identity).filter(|_| meta.links > 1) {
            to.link(name, first, found.is_some())?;
            return Ok(true);
        }
        let typed_copy = match source.as_object().filter(|_| to.as_object().is_some() && !to.holds_parts()) {
            Some(object) if !object.is_form() => {
                let model = object.model()?.ok_or_else(|| io::Error::other(PAIR_WITHOUT_MAP))?;
                Some((object, model))
            }
            _ => None,
        };
        if let Some((object, _)) = typed_copy.as_ref().filter(|_| found.is_some())
            && let Some(finished) = self.copied_before(object, to, name)?
        {
            if meta.links > 1 {
                self.linked.insert(meta.identity, finished);
            }
            return Ok(true);
        }
        let meta = &self.manner.attributes(meta, found);
        let (force, resize) = (self.manner.force, self.manner.resize);
        let new = |typed| NewFile { name, meta, exists: found.is_some(), typed, force, resize };
        let finished = match &typed_copy {
            Some((object, model)) => {
                let new = new(true);
                self.fill_object(object, model, &new, to)?
            }
            None => {
                let keeps = self.manner.xattrs && to.takes_xattrs() && !to.holds_parts();
                let description = if keeps { describe::of_xattrs(source)? } else { Description::default() };
                if keeps && let Some(model) = source.as_object().map(ObjectSource::model).transpose()?.flatten() {
                    self.rest_done(Lost { unnamed_type: model.has_unnamed_type().map_err(|e| io_error(&e))?, ..Lost::default() });
                }
                let new = new(to.as_object().is_some() && description.definition.is_some());
                self.fill(source, &new, to, &description)?
            }
        };
        if meta.links > 1 {
            self.linked.insert(meta.identity, finished.clone());
        }
        if let (Some((object, _)), Finished::Object(copy), Some(container)) = (typed_copy, &finished, &self.container) {
            self.verifier.check(object, &self.current, container, copy)?;
        }
        check_lists(source)?;
        Ok(true)
    }

    /// The copy of `object` that an interrupted copy completed, at `name` in `to`.
    fn copied_before(&self, object: &ObjectSource, to: &Rc<dyn SinkDirectory>, name: &[u8]) -> io::Result<Option<Finished>> {
        let Some(container) = self.container.as_ref().filter(|_| self.is_resumed()) else { return Ok(None) };
        let Some(Finished::Object(copy)) = to.finished(name)? else { return Ok(None) };
        Ok(Verifier::is_complete(object, container, &copy)?.then_some(Finished::Object(copy)))
    }

    /// Makes the file `new` a copy of the object `model`, whose bytes `source` reads.
    fn fill_object(
        &mut self,
        source: &ObjectSource,
        model: &ObjectModel,
        new: &NewFile<'_>,
        to: &Rc<dyn SinkDirectory>,
    ) -> io::Result<Finished> {
        let mut file = to.make_file(new)?;
        let manner = self.manner;
        let (piece, mut progress) = self.progress();
        let lost = object::copy((source, model), &mut *file, &manner, piece, &mut *progress)?;
        drop(progress);
        self.rest_done(lost);
        file.set_meta(new.meta, manner.owner)?;
        file.finish()
    }

    /// Makes the file `new` with bytes and attributes of `source`.
    fn fill(
        &mut self,
        source: &dyn Source,
        new: &NewFile<'_>,
        to: &Rc<dyn SinkDirectory>,
        description: &Description,
    ) -> io::Result<Finished> {
        let mut file = to.make_file(new)?;
        let into_container = to.as_object().is_some();
        if let Some((name, value)) = &description.definition {
            let set = file.set_xattr(name, value);
            if into_container { set? } else { self.xattr_done(name, set)? }
        }
        if !(description.without_bytes && into_container) {
            let (piece, mut progress) = self.progress();
            bytes::copy(&mut *source.open()?, &mut *file, piece, &mut *progress)?;
        }
        file.end_content()?;
        for (name, value) in &description.others {
            let set = file.set_xattr(name, value);
            self.xattr_done(name, set)?;
        }
        file.set_meta(new.meta, self.manner.owner)?;
        file.finish()
    }

    /// The buffer of a copy of bytes, and what counts them.
    fn progress(&mut self) -> (&mut Vec<u8>, Box<dyn FnMut(u64) + '_>) {
        let (objects, report) = (self.objects, &mut self.report);
        let uncommitted = &mut self.uncommitted.0;
        let progress = move |n| {
            *uncommitted = uncommitted.saturating_add(n);
            report.add(objects, n);
        };
        (&mut self.piece, Box::new(progress))
    }

    /// Reports what the copy of an object did not get.
    fn rest_done(&mut self, lost: Lost) {
        if lost.undefined {
            self.warn(UNDEFINED_LOST);
            self.failures = self.failures.saturating_add(1);
        }
        if lost.named_type {
            self.warn(TYPE_LOST);
        }
        if lost.unnamed_type {
            self.warn(UNNAMED_TYPE_LOST);
        }
        if let Some(file) = lost.source {
            self.warn(&format!("its source {} is not where the copy is; --dereference copies the elements", escaped_bytes(&file)));
        }
        for (name, why) in lost.attributes {
            self.warn(&format!("attribute {} was not kept: {why}", escaped_bytes(&name)));
        }
    }

    /// Takes the result of setting the extended attribute `name`.
    fn xattr_done(&mut self, name: &[u8], done: io::Result<()>) -> io::Result<()> {
        match done {
            // The destination has no undefined elements.
            Err(e) if name.starts_with(DEFINED_XATTR) && e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.warn(UNDEFINED_LOST);
                self.failures = self.failures.saturating_add(1);
                Ok(())
            }
            Err(e) if self.manner.xattrs_may_fail && e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            Err(e) if self.manner.xattrs_may_fail && !matches!(e.raw_os_error(), Some(libc::EIO | libc::EROFS)) => {
                self.warn(&format!("extended attribute {} was not kept: {}", escaped_bytes(name), reason(&e)));
                Ok(())
            }
            // At its path is another type, or none: the copy has one of its own.
            Err(e) if name == describe::TYPES_XATTR && e.raw_os_error() == Some(libc::EINVAL) => {
                self.warn(TYPE_LOST);
                Ok(())
            }
            Err(e) => Err(with_context(&e, &format!("extended attribute {}", escaped_bytes(name)))),
            Ok(()) => Ok(()),
        }
    }

    fn copy_directory(
        &mut self,
        source: &dyn Source,
        path: &[u8],
        to: &Rc<dyn SinkDirectory>,
        name: &[u8],
        found: Option<&Meta>,
        depth: usize,
    ) -> io::Result<Result<bool, Stop>> {
        if !self.manner.recursive {
            return Err(io::Error::other(NOT_RECURSIVE));
        }
        if self.made.contains(&source.meta().identity) {
            return Err(io::Error::other(INTO_ITSELF));
        }
        if depth >= DEPTH_MAX {
            return Err(io::Error::other(format!("it is {DEPTH_MAX} directories deep")));
        }
        let shared = source.as_object().map(ObjectSource::shared_group).transpose()?.flatten();
        if self.manner.dry_run {
            return self.name_directory((source, path, shared), to, name, found, depth);
        }
        if let Some(((first, copies), here)) = shared.and_then(|group| self.directories.get(&group)).zip(to.local_path())
            && *copies >= COPIES_MAX
            && found.is_none_or(|there| there.kind == SideKind::Symlink)
        {
            let link = NewLink::Target(relative(here, first));
            if self.manner.may_replace(source.meta(), found)? {
                self.report.copied(path, SideKind::Symlink);
                to.make_link(name, &link, source.meta(), self.manner.owner, found.is_some())?;
            }
            return Ok(Ok(true));
        }
        if let Some(first) = shared.and_then(|group| self.groups.get(&group)).filter(|_| found.is_none()) {
            to.make_link(name, &NewLink::Group(first.clone()), source.meta(), self.manner.owner, false)?;
            self.report.copied(path, SideKind::Directory);
            return Ok(Ok(true));
        }
        let model = match source.as_object().filter(|_| to.as_object().is_some()) {
            Some(object) => object.model()?,
            None => None,
        };
        let map = model.map(|model| model.own_definition()).transpose().map_err(|e| io_error(&e))?;
        let map = map.filter(|definition| matches!(definition, Definition::Map(_)));
        let meta = &self.manner.attributes(source.meta(), None);
        let below = match found {
            Some(there) if there.kind != SideKind::Directory => return Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
            found => match (map, found) {
                (Some(map), found) => to.make_map(name, &map, meta, found.is_some())?,
                (None, None) => to.make_directory(name, meta)?,
                (None, Some(_)) => to.enter(name)?,
            },
        };
        self.note_directory(path, shared, &below, found.is_none())?;
        Ok(self.copy_content(source, path, &below, found.is_none() || self.is_resumed(), depth).map(|()| true))
    }

    /// Notes the directory `below`, which is `new` and a copy of the one at `path`.
    fn note_directory(&mut self, path: &[u8], shared: Option<SharedGroup>, below: &Rc<dyn SinkDirectory>, new: bool) -> io::Result<()> {
        if new {
            self.made.insert(below.identity()?);
            self.report.copied(path, SideKind::Directory);
            if let Some(identity) = self.new_top.take().filter(|_| below.local_path().is_some()) {
                self.resume = Resume::begin(Some(identity), below)?;
            }
        }
        if let (Some(group), Some((_, copy))) = (shared, below.as_object()) {
            self.groups.insert(group, copy.clone());
        }
        if let (Some(group), Some(path)) = (shared, below.local_path()) {
            let (_, copies) = self.directories.entry(group).or_insert_with(|| (path.to_vec(), 0));
            *copies = copies.saturating_add(1);
        }
        Ok(())
    }

    /// True if an interrupted copy is resumed: what is in the destination, it made.
    fn is_resumed(&self) -> bool {
        self.resume.as_ref().is_some_and(|r| r.resumed)
    }

    /// Copies what is in `source`, the directory that the user named, into `to`.
    pub(super) fn copy_top(&mut self, source: &dyn Source, path: &[u8], to: &Rc<dyn SinkDirectory>) -> Result<(), Stop> {
        let refused = match (self.manner.recursive, to.identity()) {
            (false, _) => io::Error::other(NOT_RECURSIVE),
            (true, Err(e)) => e,
            (true, Ok(identity)) if identity == source.meta().identity => io::Error::other(INTO_ITSELF),
            (true, Ok(_)) => return self.copy_content(source, path, to, self.manner.new_destination || self.is_resumed(), 0),
        };
        self.failed(path, &refused)
    }

    /// Notes the directory that the user named as the destination, and what is copied into it, if
    /// that can be resumed.
    pub(super) fn note_destination(&mut self, directory: &Rc<dyn SinkDirectory>, source: Option<Vec<u8>>) -> io::Result<()> {
        self.resume = Resume::begin(source, directory)?;
        self.made.insert(directory.identity()?);
        Ok(())
    }

    /// Copies what is in the directory `source`, and its attributes, into `to`, which is `new` or
    /// was there before.
    pub(super) fn copy_content(
        &mut self,
        source: &dyn Source,
        path: &[u8],
        to: &Rc<dyn SinkDirectory>,
        new: bool,
        depth: usize,
    ) -> Result<(), Stop> {
        let names = match source.names() {
            Ok(names) => names,
            Err(e) => return self.failed(path, &e),
        };
        for name in names {
            let below = tree::join(path, &name);
            match source.child(&name) {
                Ok(child) => self.copy(&*child, &below, to, &name, depth.saturating_add(1))?,
                Err(e) => self.failed(&below, &e)?,
            }
        }
        self.current = path.to_vec();
        if self.manner.dry_run {
            return Ok(());
        }
        match self.describe_directory(source, to, new).and_then(|()| check_lists(source)) {
            Ok(()) => Ok(()),
            Err(e) => self.failed(path, &e),
        }
    }

    /// Gives the directory `to` the attributes of `source`.
    fn describe_directory(&mut self, source: &dyn Source, to: &Rc<dyn SinkDirectory>, new: bool) -> io::Result<()> {
        let typed_copy = source.as_object().zip(to.as_object());
        let models = match typed_copy {
            Some((object, (container, copy))) => object.model()?.zip(container.model(copy)?),
            None => None,
        };
        if let Some((object, (container, copy))) = typed_copy
            && let Some((model, model_of_copy)) = models
        {
            let lost = model_of_copy.take_rest(&model).map_err(|e| io_error(&e))?;
            self.rest_done(lost);
            self.verifier.check(object, &self.current, container, copy)?;
        } else if self.manner.xattrs && to.takes_xattrs() {
            for (name, value) in describe::of_xattrs(source)?.into_others() {
                let set = to.set_xattr(&name, &value);
                self.xattr_done(&name, set)?;
            }
        }
        if !new && !self.manner.archive {
            return Ok(());
        }
        to.set_meta(&self.manner.attributes(source.meta(), None), self.manner.owner)
    }

    /// Commits if much was copied since the last commit.
    fn commit_some(&mut self, path: &[u8]) -> Result<(), Stop> {
        let (bytes, objects) = self.uncommitted;
        if bytes < COMMIT_BYTES && objects < COMMIT_OBJECTS {
            return Ok(());
        }
        self.uncommitted = (0, 0);
        let Some(container) = self.container.clone() else { return Ok(()) };
        if let Err(e) = self.resume.as_mut().map_or(Ok(()), Resume::mark) {
            return self.failed(path, &e);
        }
        container.operations.fsync(ROOT).result.or_else(|e| self.failed(path, &error(e)))
    }

    /// Notes that the copy can be resumed, if it can: the container is closed next.
    pub(super) fn interrupt(&mut self) -> bool {
        let Some(resume) = self.resume.as_mut().filter(|resume| self.objects > 0 || resume.resumed) else { return false };
        let marked = resume.mark();
        if let Err(e) = &marked {
            self.warn(&format!("the copy cannot be resumed: {}", reason(e)));
        }
        marked.is_ok()
    }

    /// Commits, and prints which copies differ from their sources.
    pub(super) fn finish(&mut self) -> Result<(), Stop> {
        if let Err(e) = self.resume.as_mut().map_or(Ok(()), Resume::end) {
            self.failed(b"the last objects", &e)?;
        }
        let Some(container) = self.container.clone() else { return Ok(()) };
        // References lead to objects that were copied later.
        container.operations.fsync(ROOT).result.or_else(|e| self.failed(b"the last objects", &error(e)))?;
        for (path, why) in self.verifier.differences(&container) {
            self.failed(&path, &why)?;
        }
        Ok(())
    }
}
