//! Files of the tree: what their names are, their attributes, and changes of them.

use super::containers::{Located, with_search};
use super::files::Folder;
use super::handles::{OpenHandle, What as OpenWhat};
use super::mirror_fs::{MirrorFs, errno};
use super::node::{Key, Node, What, host_key};
use super::signatures::Class;
use super::spec::{Naming, SUFFIX};
use super::table::Wanted;
use crate::base::escape::escaped;
use crate::file::names::Pinned;
use crate::fs::open::{Directory, Entry, Identity, Stamp};
use crate::fs::types::{Attr, Changes, Creator, Entry as Answer, Errno, FileKind, FsResult, Ino, OpenMode, Opened, ROOT};
use nix::fcntl::{AT_FDCWD, OFlag};
use nix::sys::stat::UtimensatFlags;
use nix::sys::time::TimeSpec;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Units of `st_blocks`, bytes.
const BLOCK_BYTES: u64 = 512;

/// Number of a file's stamp, never 0.
fn stamp_number(stamp: Stamp) -> u64 {
    let nanos = |t: std::time::SystemTime| t.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let parts = [stamp.identity.inode, stamp.len, nanos(stamp.mtime), nanos(stamp.ctime)];
    parts.iter().fold(1u64, |h, part| (h ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)) | 1
}

/// Errors: `ESTALE` if `node` stands for another file than the one with `identity`.
fn check_identity(node: &Node, now: Identity) -> FsResult<()> {
    match *node.key.lock() {
        Key::Host { identity, .. } if identity == now => Ok(()),
        _ => Err(Errno(libc::ESTALE)),
    }
}

/// Reading and looking up.
impl MirrorFs {
    /// The directory of the tree that `node` is.
    pub(super) fn directory(&self, node: &Arc<Node>) -> FsResult<Box<dyn Folder>> {
        let What::Directory = node.what else { return Err(Errno(libc::ENOTDIR)) };
        let (directory, now) = self.tree.folder(&node.names()).map_err(|e| errno(&e))?;
        check_identity(node, now.status.identity)?;
        Ok(directory)
    }

    /// The directory of the host that `node` is. Errors: `EROFS` if the tree is only read.
    pub(super) fn changed_directory(&self, node: &Arc<Node>) -> FsResult<Directory> {
        let What::Directory = node.what else { return Err(Errno(libc::ENOTDIR)) };
        let directory = self.tree.changed_folder(&node.names()).map_err(|e| errno(&e))?;
        check_identity(node, Entry::of(&directory).map_err(|e| errno(&e))?.status.identity)?;
        Ok(directory)
    }

    /// The directory of `node`, which is in the tree, and its properties. Errors: `ESTALE` if its
    /// name has another file now.
    pub(super) fn stat_in(&self, node: &Arc<Node>) -> FsResult<(Box<dyn Folder>, Entry)> {
        let (directory, name) = match node.parent().filter(|parent| matches!(parent.what, What::Directory)) {
            Some(parent) => (self.directory(&parent)?, node.name()),
            None => (self.tree.folder(&[]).map_err(|e| errno(&e))?.0, ".".into()),
        };
        let entry = directory.entry(&name).map_err(|e| errno(&e))?.ok_or(Errno(libc::ESTALE))?;
        check_identity(node, entry.status.identity)?;
        Ok((directory, entry))
    }

    /// The path of a file of the tree, for messages.
    pub(super) fn shown_path(&self, node: &Arc<Node>) -> PathBuf {
        self.root_path.join(node.path())
    }

    /// The name under which `node` is shown.
    pub(super) fn shown_name(&self, node: &Node) -> Box<[u8]> {
        let name = node.place().name;
        match (&node.what, self.spec.naming) {
            (What::Container(_), Naming::Suffix | Naming::Both) => [&name, SUFFIX].concat().into(),
            _ => name,
        }
    }

    /// What the file `name` of `directory` is; `None` = it is not shown. `listed`: for a listing,
    /// which may not read its first bytes.
    pub(super) fn what(&self, directory: &dyn Folder, name: &OsStr, entry: &Entry, original: bool, listed: bool) -> Option<What> {
        if entry.is_directory() {
            return Some(What::Directory);
        }
        if entry.is_symlink() {
            return Some(What::Symlink);
        }
        if !entry.is_regular() {
            return None;
        }
        if original {
            return Some(What::File);
        }
        match self.containers.signatures.class(directory, name, entry, listed) {
            Class::Container => Some(What::Container(self.containers.of(entry.status.identity))),
            Class::Unreadable => Some(What::Unreadable),
            Class::Other => Some(What::File),
        }
    }

    /// The file that is shown as `name` in the directory `parent` of the tree: its name there, its
    /// properties and what it is.
    fn resolve(&self, parent: &Arc<Node>, directory: &dyn Folder, name: &[u8]) -> FsResult<(Box<[u8]>, Entry, What)> {
        let original = parent.original;
        let find = |name: &[u8]| -> FsResult<Option<(Entry, What)>> {
            let os = OsStr::from_bytes(name);
            let Some(entry) = directory.entry(os).map_err(|e| errno(&e))? else { return Ok(None) };
            if self.is_hidden(parent, name, entry.is_directory()) {
                return Ok(None);
            }
            Ok(self.what(directory, os, &entry, original, false).map(|what| (entry, what)))
        };
        if self.spec.naming != Naming::Replace
            && !original
            && let Some(stem) = name.strip_suffix(SUFFIX).filter(|stem| !stem.is_empty())
            && let Some((entry, what @ What::Container(_))) = find(stem)?
        {
            return Ok((stem.into(), entry, what));
        }
        match (find(name)?, self.spec.naming) {
            (Some((_, What::Container(_))), Naming::Suffix) | (None, _) => Err(Errno(libc::ENOENT)),
            (Some((entry, What::Container(_))), Naming::Both) => Ok((name.into(), entry, What::File)),
            (Some((entry, what)), _) => Ok((name.into(), entry, what)),
        }
    }

    /// Looks up `name` in the directory `parent` of the tree.
    pub(super) fn lookup_in_tree(&self, parent: &Arc<Node>, name: &[u8]) -> FsResult<Answer> {
        let directory = self.directory(parent)?;
        let (name, entry, what) = self.resolve(parent, &*directory, name)?;
        Ok(self.enter_in_tree(parent, &name, &entry, what))
    }

    /// The answer to a look-up of the file `name` of the tree, which is `what`.
    pub(super) fn enter_in_tree(&self, parent: &Arc<Node>, name: &[u8], entry: &Entry, what: What) -> Answer {
        let key = host_key(entry, parent.original, &what);
        let (node, _) = self.nodes.enter(Wanted { key, salt: entry.status.identity, what: what.clone(), parent, name });
        Answer { attr: self.attr(node.ino, &what, entry), generation: 0, volatile: false }
    }

    /// Attributes of the file `entry` of the tree.
    pub(super) fn attr(&self, ino: Ino, what: &What, entry: &Entry) -> Attr {
        let status = &entry.status;
        let mode = (entry.mode & 0o7777) as u16;
        let (kind, perm) = match what {
            What::Symlink => (FileKind::Symlink, 0o777),
            What::Container(_) => {
                (FileKind::Directory, self.spec.dir_mode.unwrap_or(with_search(mode & 0o666 & !self.spec.container.umask)))
            }
            What::Directory => (FileKind::Directory, mode),
            What::Unreadable => (FileKind::Regular, 0),
            _ => (FileKind::Regular, mode),
        };
        let directory = kind == FileKind::Directory;
        let container = matches!(what, What::Container(_));
        Attr {
            ino,
            kind,
            perm,
            // The number of subdirectories of a directory is not known: some are containers.
            nlink: if directory { 1 } else { u32::try_from(entry.links).unwrap_or(u32::MAX) },
            size: if directory { 0 } else { status.len },
            blocks: if directory { 0 } else { status.allocated.div_ceil(BLOCK_BYTES) },
            blksize: 4096,
            atime: status.atime,
            mtime: status.mtime,
            ctime: status.ctime,
            btime: status.mtime.min(status.ctime),
            uid: self.spec.uid.filter(|_| container).unwrap_or(entry.uid),
            gid: self.spec.gid.filter(|_| container).unwrap_or(entry.gid),
            is_brief: false,
        }
    }

    /// Opens a file of the tree.
    pub(super) fn open_in_tree(&self, node: &Arc<Node>, mode: OpenMode) -> FsResult<Opened> {
        let (directory, entry) = self.stat_in(node)?;
        match node.what {
            What::Directory | What::Container(_) => return Err(Errno(libc::EISDIR)),
            What::Unreadable => return Err(Errno(libc::EACCES)),
            _ => {}
        }
        if mode.write {
            self.check_not_container(node)?;
        }
        let mut flags = match (mode.read, mode.write) {
            (true, true) => OFlag::O_RDWR,
            (false, true) => OFlag::O_WRONLY,
            _ => OFlag::O_RDONLY,
        };
        flags.set(OFlag::O_APPEND, mode.append);
        flags.set(OFlag::O_DSYNC, mode.sync);
        let (content, now) = directory.open(&node.name(), &entry, flags).map_err(|e| errno(&e))?;
        Ok(self.opened(node, content.into(), &now, mode))
    }

    /// Errors: `EROFS` if the file is a container, whose bytes are changed through it only.
    fn check_not_container(&self, node: &Arc<Node>) -> FsResult<()> {
        let (directory, entry) = match self.stat_in(node) {
            Err(Errno(libc::ESTALE)) if self.handles.file(node.ino).is_some() => return Ok(()),
            found => found?,
        };
        let class = self.containers.signatures.class(&*directory, &node.name(), &entry, false);
        if class == Class::Container { Err(Errno(libc::EROFS)) } else { Ok(()) }
    }

    /// Enters an open file of the tree.
    pub(super) fn opened(&self, node: &Arc<Node>, what: OpenWhat, entry: &Entry, mode: OpenMode) -> Opened {
        if mode.write {
            self.containers.signatures.count_writer(entry.status.identity, true);
        }
        let stamp = stamp_number(entry.status.stamp());
        let same = node.opened.swap(stamp, Ordering::AcqRel) == stamp;
        let handle = self.handles.enter(OpenHandle { node: node.clone(), mode, directory: false, listed: AtomicBool::new(false), what });
        Opened { handle, keep_cache: same, direct_io: false, no_flush: !mode.write }
    }

    /// Changes the file that is open as `open` by `change`. Its pages are those of the kernel's own
    /// writes afterwards, unless another program changed it: were they dropped when it is opened
    /// again, the kernel could read one that a write is about to change.
    pub(super) fn changing_bytes<T>(&self, open: &OpenHandle, change: impl FnOnce(&std::fs::File) -> FsResult<T>) -> FsResult<T> {
        let file = open.file()?;
        let stamp = || Entry::of(file).map_or(0, |entry| stamp_number(entry.status.stamp()));
        let before = stamp();
        let done = change(file)?;
        let _ = open.node.opened.compare_exchange(before, stamp(), Ordering::AcqRel, Ordering::Acquire);
        Ok(done)
    }

    /// Notes that other programs may have changed open files of the tree; calls `changed` with
    /// those that they did.
    pub(super) fn look_at_files(&self, mut changed: impl FnMut(Ino)) {
        for open in self.handles.files() {
            let OpenWhat::File(file) = &open.what else { continue };
            let Ok(entry) = Entry::of(file) else { continue };
            let stamp = stamp_number(entry.status.stamp());
            // Changes through the mount are in the kernel's pages.
            if !open.mode.write && open.node.opened.swap(stamp, Ordering::AcqRel) != stamp {
                changed(open.node.ino);
            }
        }
    }
}

/// Changes.
impl MirrorFs {
    /// True if `name` of the directory `parent` is not shown, nor may be created.
    pub(super) fn is_hidden(&self, parent: &Arc<Node>, name: &[u8], is_directory: bool) -> bool {
        let control = parent.ino == ROOT && name == super::control::NAME;
        control || name.ends_with(JOURNAL_SUFFIX.as_bytes()) || self.spec.hides(&parent.names(), name, is_directory)
    }

    /// The file `node` of the tree by descriptor.
    pub(super) fn pin(&self, node: &Arc<Node>) -> FsResult<Pinned> {
        let (directory, entry) = match self.stat_in(node) {
            // A file that is open may have lost its name.
            Err(Errno(libc::ESTALE)) => return self.handles.file(node.ino).and_then(|f| Pinned::of(&f).ok()).ok_or(Errno(libc::ESTALE)),
            found => found?,
        };
        let name = if node.parent().is_some_and(|p| matches!(p.what, What::Directory)) { node.name() } else { ".".into() };
        drop(directory);
        let directory = match node.parent().filter(|p| matches!(p.what, What::Directory)) {
            Some(parent) => self.changed_directory(&parent)?,
            None => self.tree.changed_folder(&[]).map_err(|e| errno(&e))?,
        };
        let pinned = directory.pin(&name).map_err(|e| errno(&e))?;
        let now = pinned.entry().map_err(|e| errno(&e))?;
        if now.status.identity == entry.status.identity { Ok(pinned) } else { Err(Errno(libc::ESTALE)) }
    }

    /// The name under which a new file `name` of `parent` is created. Errors: `EPERM` if it would
    /// not be shown.
    pub(super) fn new_name<'a>(&self, parent: &Arc<Node>, name: &'a [u8], is_directory: bool) -> FsResult<&'a OsStr> {
        match () {
            () if parent.original => Err(Errno(libc::EROFS)),
            () if name.len() > NAME_MAX => Err(Errno(libc::ENAMETOOLONG)),
            () if self.is_hidden(parent, name, is_directory) => Err(Errno(libc::EPERM)),
            () => Ok(OsStr::from_bytes(name)),
        }
    }

    /// The new file `name` of `parent`, which is open as `new`, given to `creator`.
    pub(super) fn created(
        &self,
        parent: &Arc<Node>,
        directory: &Directory,
        name: &OsStr,
        new: &Pinned,
        creator: Creator,
    ) -> FsResult<Answer> {
        let failed = |e: io::Error| errno(&e);
        if nix::unistd::geteuid().is_root() {
            let of_directory = directory.entry(OsStr::new(".")).map_err(failed)?.filter(|d| d.mode & libc::S_ISGID != 0);
            let gid = of_directory.map_or(Some(creator.gid), |_| None);
            new.set_owner(Some(creator.uid), gid).map_err(failed)?;
        }
        let mut entry = new.entry().map_err(failed)?;
        if !entry.is_symlink() {
            // The umask of the daemon is not that of the process.
            let inherited = entry.mode & libc::S_ISGID;
            std::fs::set_permissions(new.path(), Permissions::from_mode(creator.mode & 0o7777 | inherited)).map_err(failed)?;
            entry = new.entry().map_err(failed)?;
        }
        let what = self.what(directory, name, &entry, false, false).ok_or(Errno(libc::EPERM))?;
        Ok(self.enter_in_tree(parent, name.as_bytes(), &entry, what))
    }

    /// The directory or link `name` that the daemon has just made: another program may have put
    /// another file in its place, which must not be given away.
    pub(super) fn pin_new(&self, directory: &Directory, name: &OsStr, is_link: bool) -> FsResult<Pinned> {
        let pinned = directory.pin(name).map_err(|e| errno(&e))?;
        let entry = pinned.entry().map_err(|e| errno(&e))?;
        let own = entry.uid == nix::unistd::geteuid().as_raw();
        let as_made = match is_link {
            true => entry.is_symlink(),
            // A new directory is empty, and has one name.
            false => {
                entry.is_directory()
                    && entry.mode & 0o777 == 0o700
                    && directory.enter(name).and_then(|d| d.list()).is_ok_and(|n| n.is_empty())
            }
        };
        if own && as_made { Ok(pinned) } else { Err(Errno(libc::ESTALE)) }
    }

    /// Sets attributes of the file `node` of the tree.
    pub(super) fn set_in_tree(&self, node: &Arc<Node>, changes: &Changes) -> FsResult<Attr> {
        let failed = |e: io::Error| errno(&e);
        if node.original {
            return Err(Errno(libc::EROFS));
        }
        let pinned = self.pin(node)?;
        if let Some(size) = changes.size {
            if !matches!(node.what, What::File) {
                return Err(Errno(libc::EINVAL));
            }
            self.check_not_container(node)?;
            let file = std::fs::OpenOptions::new().write(true).open(pinned.path()).map_err(failed)?;
            file.set_len(size).map_err(failed)?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            pinned.set_owner(changes.uid, changes.gid).map_err(failed)?;
        }
        if let Some(mode) = changes.mode {
            // A container is a file: who may read it may search it.
            let mode = if matches!(node.what, What::Container(_)) { mode & 0o666 } else { mode & 0o7777 };
            std::fs::set_permissions(pinned.path(), Permissions::from_mode(mode)).map_err(failed)?;
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let [atime, mtime] = [changes.atime, changes.mtime].map(time);
            nix::sys::stat::utimensat(AT_FDCWD, &pinned.path(), &atime, &mtime, UtimensatFlags::FollowSymlink)
                .map_err(|e| Errno(e as i32))?;
        }
        let entry = pinned.entry().map_err(failed)?;
        Ok(self.attr(node.ino, &node.what, &entry))
    }

    /// Removes the file `name` of the directory `parent`; `directory`: it must be one.
    pub(super) fn remove_in_tree(&self, parent: &Arc<Node>, name: &[u8], is_directory: bool) -> FsResult<()> {
        if parent.original {
            return Err(Errno(libc::EROFS));
        }
        let directory = self.changed_directory(parent)?;
        let (name, entry, what) = self.resolve(parent, &directory, name)?;
        let name = OsStr::from_bytes(&name);
        match (&what, is_directory) {
            (What::Directory, true) => {
                directory.remove_directory(name).map_err(|e| errno(&e))?;
                self.removed(&entry, &what);
                return Ok(());
            }
            (What::Directory | What::Container(_), false) => return Err(Errno(libc::EISDIR)),
            (What::Container(_), true) => self.check_empty(parent, name.as_bytes(), &what)?,
            (_, true) => return Err(Errno(libc::ENOTDIR)),
            (_, false) => {}
        }
        self.close_before(parent, &directory, name, &entry)?;
        directory.remove(name).map_err(|e| errno(&e))?;
        self.removed(&entry, &what);
        Ok(())
    }

    /// Closes the container in the file `name`, before it is moved or removed. If a writer that was
    /// killed left a journal, it is recovered first. Errors: `EBUSY` if something in it is open, or
    /// if the journal stays, which would be left behind.
    fn close_before(&self, parent: &Arc<Node>, directory: &Directory, name: &OsStr, entry: &Entry) -> FsResult<()> {
        self.containers.close_file(entry.status.identity)?;
        let journal = [name.as_bytes(), JOURNAL_SUFFIX.as_bytes()].concat();
        let has_journal = || match directory.entry(OsStr::from_bytes(&journal)) {
            // No journal can have so long a name.
            Err(e) if e.raw_os_error() == Some(libc::ENAMETOOLONG) => Ok(false),
            found => Ok(found.map_err(|e| errno(&e))?.is_some()),
        };
        if !entry.is_regular() || !has_journal()? {
            return Ok(());
        }
        if self.containers.signatures.class(directory, name, entry, false) == Class::Container {
            // Opening it for writing recovers it.
            let container = self.containers.of(entry.status.identity);
            let path = self.shown_path(parent).join(name);
            let located = || Ok(Located { directory: Box::new(directory.clone()), entry: *entry, path });
            let recovered = self.containers.enter(&container, true, located, |open| self.take_over(&container, open)).map(drop);
            recovered.and_then(|()| self.containers.close_file(container.identity)).map_err(|_| Errno(libc::EBUSY))?;
            self.containers.forget(&container);
        }
        if !has_journal()? {
            return Ok(());
        }
        let shown = escaped(Path::new(name)).to_string();
        tracing::warn!("{shown} has the journal of a writer that is gone, and is not moved or removed: h5dir recover {shown}");
        Err(Errno(libc::EBUSY))
    }

    /// Moves a file of the tree.
    pub(super) fn rename_in_tree(&self, from: (&Arc<Node>, &[u8]), to: (&Arc<Node>, &[u8]), flags: u32) -> FsResult<()> {
        let failed = |e: io::Error| errno(&e);
        if from.0.original || to.0.original {
            return Err(Errno(libc::EROFS));
        }
        let (source, target) = (self.changed_directory(from.0)?, self.changed_directory(to.0)?);
        let (name, entry, what) = self.resolve(from.0, &source, from.1)?;
        let new = match (&what, self.spec.naming) {
            (What::Container(_), Naming::Suffix | Naming::Both) => to.1.strip_suffix(SUFFIX).ok_or(Errno(libc::EINVAL))?,
            _ => to.1,
        };
        let new = self.new_name(to.0, new, entry.is_directory())?;
        // What is shown there is replaced, and nothing that is shown by another name.
        let replaced = match self.resolve(to.0, &target, to.1) {
            Ok((shown, entry, what)) if *shown == *new.as_bytes() => Some((entry, what)),
            Ok(_) => return Err(Errno(libc::ENOTEMPTY)),
            Err(Errno(libc::ENOENT)) if target.entry(new).map_err(failed)?.is_none() => None,
            Err(Errno(libc::ENOENT)) => return Err(Errno(libc::EEXIST)),
            Err(e) => return Err(e),
        };
        let kind = |w: &What| matches!(w, What::Directory | What::Container(_));
        if flags & libc::RENAME_EXCHANGE == 0
            && let Some((_, there)) = &replaced
        {
            match (kind(&what), kind(there)) {
                (true, false) => return Err(Errno(libc::ENOTDIR)),
                (false, true) => return Err(Errno(libc::EISDIR)),
                _ => {}
            }
            if matches!(there, What::Container(_)) {
                self.check_empty(to.0, new.as_bytes(), there)?;
            }
        }
        self.close_before(from.0, &source, OsStr::from_bytes(&name), &entry)?;
        if let Some((entry, _)) = &replaced {
            self.close_before(to.0, &target, new, entry)?;
        }
        source.rename(OsStr::from_bytes(&name), &target, new, flags).map_err(failed)?;
        match replaced {
            // Two names of one file: nothing was moved.
            Some((there, _)) if there.status.identity == entry.status.identity => return Ok(()),
            Some((there, what)) if flags & libc::RENAME_EXCHANGE != 0 => self.moved(&there, &what, from.0, &name),
            Some((there, what)) => self.removed(&there, &what),
            None => {}
        }
        self.moved(&entry, &what, to.0, new.as_bytes());
        Ok(())
    }

    /// The node of a file that was moved is at its new place.
    fn moved(&self, entry: &Entry, what: &What, parent: &Arc<Node>, name: &[u8]) {
        if let Some(node) = self.nodes.find(host_key(entry, false, what)) {
            self.nodes.put(&node, parent, name);
        }
    }

    /// A name of a file of the tree was removed. The host may give its inode number to a new file.
    fn removed(&self, entry: &Entry, what: &What) {
        if let Some(node) = self.nodes.find(host_key(entry, false, what)) {
            self.nodes.remove(&node, entry.is_directory() || entry.links <= 1);
        }
    }
}

/// Longest name of a file, bytes.
const NAME_MAX: usize = 255;
/// Ending of the journals that writers of containers create beside them.
const JOURNAL_SUFFIX: &str = crate::file::journal_path::SUFFIX;

/// A time to set; `None` leaves it as it is.
fn time(t: Option<SystemTime>) -> TimeSpec {
    let Some(t) = t else { return TimeSpec::UTIME_OMIT };
    match t.duration_since(UNIX_EPOCH) {
        Ok(after) => TimeSpec::new(i64::try_from(after.as_secs()).unwrap_or(i64::MAX), i64::from(after.subsec_nanos())),
        Err(e) => {
            let before = e.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => TimeSpec::new(seconds.saturating_neg(), 0),
                n => TimeSpec::new(seconds.saturating_neg().saturating_sub(1), 1_000_000_000i64.saturating_sub(i64::from(n))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_1970_are_set_to_the_nanosecond() {
        let parts = |t| {
            let t = time(Some(t));
            (t.tv_sec(), t.tv_nsec())
        };
        assert_eq!(parts(UNIX_EPOCH + Duration::new(5, 6)), (5, 6));
        assert_eq!(parts(UNIX_EPOCH - Duration::new(1, 500_000_000)), (-2, 500_000_000));
        assert_eq!(parts(UNIX_EPOCH - Duration::new(3, 0)), (-3, 0));
        assert_eq!(time(None).tv_nsec(), libc::UTIME_OMIT);
    }
}
