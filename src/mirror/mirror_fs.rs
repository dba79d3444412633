//! The file system of a mirror: which part serves an inode.

use super::containers::Containers;
use super::control::{self, FILES};
use super::files::Tree;
use super::handles::{Handles, OpenHandle, What as OpenWhat};
use super::node::{Key, MirrorPlace, Node, Text, What};
use super::object_tree::ObjectTree;
use super::spec::MirrorSpec;
use super::table::{NodeTable, Wanted};
use crate::base::locks::Mutex;
use crate::base::recent_log;
use crate::base::remote::is_url;
use crate::fs::embedding::Embedding;
use crate::fs::open::{self, Directory, OpenError, Shared, UsedDirectory};
use crate::fs::types::{Attr, Entry as Answer, Errno, FileKind, FsResult, Handle, Ino, OpenMode, Opened, ROOT};
use crate::fs::{ExternalPolicy, Operations};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

/// The errno of a failed system call.
pub fn errno(e: &std::io::Error) -> Errno {
    Errno(e.raw_os_error().unwrap_or(libc::EIO))
}

/// See the module's description.
pub struct MirrorFs {
    pub(super) spec: MirrorSpec,
    pub(super) tree: Box<dyn Tree>,
    /// Path of the root when the mirror began, for messages.
    pub(super) root_path: PathBuf,
    pub(super) nodes: NodeTable,
    pub(super) containers: Containers,
    pub(super) handles: Handles,
    pub(super) changing: bool,
    /// Names whose files are shown as something else now: directory, and name in it.
    pub(super) stale_names: Mutex<Vec<(Ino, Box<[u8]>)>>,
    began: SystemTime,
}

/// A directory to be mirrored, open.
pub struct LocatedMirror {
    spec: MirrorSpec,
    tree: Box<dyn Tree>,
}

/// Opens the directory of `spec`, or finds the store of its prefix. Neither is resolved again
/// afterwards.
pub fn locate(spec: &MirrorSpec) -> Result<LocatedMirror, OpenError> {
    let tree: Box<dyn Tree> = match is_url(&spec.root) {
        true => Box::new(ObjectTree::new(open::objects(&spec.container)?, spec)),
        false => Box::new(Directory::open(&spec.root).map_err(|e| spec.failed(e))?),
    };
    Ok(LocatedMirror { spec: spec.clone(), tree })
}

impl LocatedMirror {
    /// What it shows, and the tree.
    pub(super) fn into_parts(self) -> (MirrorSpec, Box<dyn Tree>) {
        (self.spec, self.tree)
    }

    /// The directories that the mirror uses.
    pub fn directories(&self) -> Result<Vec<UsedDirectory>, OpenError> {
        let own = |directory: &Directory| directory.as_fd().try_clone_to_owned().map_err(|e| self.spec.failed(e));
        let mut all = self.tree.used(self.spec.container.writable).map_err(|e| self.spec.failed(e))?;
        if let ExternalPolicy::Beneath(Some(path)) | ExternalPolicy::Written(path) = &self.spec.container.external {
            let directory = Directory::open(path).map_err(|source| OpenError::Open { path: path.clone(), source })?;
            let written = matches!(self.spec.container.external, ExternalPolicy::Written(_));
            all.push(UsedDirectory { directory: own(&directory)?, written, tree: false });
        }
        if let Some(temporary) = crate::fs::open::temporary_directory() {
            all.push(UsedDirectory { directory: own(&temporary)?, written: true, tree: false });
        }
        Ok(all)
    }
}

/// Builds the file system of a mirror. Starts threads: call it after a fork.
pub fn open(located: LocatedMirror) -> Result<Arc<dyn Operations>, OpenError> {
    let LocatedMirror { spec, tree } = located;
    let failed = |e| spec.failed(e);
    tree.check()?;
    let root_path = tree.path().map_err(failed)?;
    let entry = tree.folder(&[]).map_err(failed)?.1;
    let template = &spec.container;
    let shared = Shared::new(tree.divide_cache(template.cache_bytes), template.threads, spec.open_max);
    let shared = shared.map_err(|source| OpenError::Engine { path: spec.root.clone(), source })?;
    let key = Key::Host { identity: entry.status.identity, original: false, container: false };
    let place = MirrorPlace { parent: None, name: Box::default() };
    let nodes = NodeTable::new(Arc::new(Node::new(ROOT, key, What::Directory, false, place)));
    Ok(Arc::new(Embedding(MirrorFs {
        containers: Containers::new(spec.clone(), root_path.clone(), shared),
        changing: template.writable,
        spec,
        tree,
        root_path,
        nodes,
        handles: Handles::default(),
        stale_names: Mutex::default(),
        began: SystemTime::now(),
    })))
}

impl MirrorFs {
    /// The node of `ino`.
    pub(super) fn node(&self, ino: Ino) -> FsResult<Arc<Node>> {
        self.nodes.get(ino).ok_or(Errno(libc::ESTALE))
    }

    /// Drops one reference that a look-up counted.
    pub(super) fn forget_one(&self, ino: Ino) {
        if let Some(node) = self.nodes.forget(ino, 1) {
            self.forgotten(&node);
        }
    }

    /// Checks that the container `what`, which is `name` in `parent`, has no links.
    pub(super) fn check_empty(&self, parent: &Arc<Node>, name: &[u8], what: &What) -> FsResult<()> {
        let What::Container(container) = what else { return Ok(()) };
        let key = Key::Host { identity: container.identity, original: false, container: true };
        let (node, _) = self.nodes.enter(Wanted { key, salt: container.identity, what: what.clone(), parent, name });
        let mut names = 0usize;
        let listed = self.enter(&node, false).and_then(|(used, ino)| {
            let handle = used.open.operations.opendir(ino)?;
            let listed = used.open.operations.readdir(ino, handle, 0, &mut |_| {
                names = names.saturating_add(1);
                if names > 2 { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
            });
            used.open.operations.releasedir(ino, handle);
            listed
        });
        self.forget_one(node.ino);
        listed?;
        if names > 2 { Err(Errno(libc::ENOTEMPTY)) } else { Ok(()) }
    }
}

/// `.h5dir`.
impl MirrorFs {
    /// Looks up `.h5dir` in the root.
    pub(super) fn lookup_control_directory(&self, root: &Arc<Node>) -> Answer {
        let wanted = Wanted { key: control::KEY, salt: ROOT_IDENTITY, what: What::Control, parent: root, name: control::NAME };
        let (node, _) = self.nodes.enter(wanted);
        Answer { attr: self.control_attr(&node), generation: 0, volatile: false }
    }

    /// Looks up `name` in `.h5dir`.
    pub(super) fn lookup_control(&self, parent: &Arc<Node>, name: &[u8]) -> FsResult<Answer> {
        if name == FILES {
            let entry = self.tree.folder(&[]).map_err(|e| errno(&e))?.1;
            let key = Key::Host { identity: entry.status.identity, original: true, container: false };
            let salt = entry.status.identity;
            let (node, _) = self.nodes.enter(Wanted { key, salt, what: What::Directory, parent, name });
            return Ok(Answer { attr: self.attr(node.ino, &What::Directory, &entry), generation: 0, volatile: false });
        }
        let (key, what) = control::text(name).ok_or(Errno(libc::ENOENT))?;
        let (node, _) = self.nodes.enter(Wanted { key, salt: ROOT_IDENTITY, what, parent, name });
        Ok(Answer { attr: self.control_attr(&node), generation: 0, volatile: false })
    }

    /// Attributes of `.h5dir` and of a text in it.
    pub(super) fn control_attr(&self, node: &Node) -> Attr {
        let (kind, perm) = match &node.what {
            // Messages may name files that others may not see.
            What::Text(Text::Log) => (FileKind::Regular, 0o400),
            What::Text(_) => (FileKind::Regular, 0o444),
            _ => (FileKind::Directory, 0o555),
        };
        let (time, uid, gid) = (self.began, nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        Attr { uid, gid, ..Attr::empty(node.ino, kind, perm, time) }
    }

    /// Opens a text.
    pub(super) fn open_text(&self, node: &Arc<Node>, text: Text, mode: OpenMode) -> FsResult<Opened> {
        if mode.write {
            return Err(Errno(libc::EACCES));
        }
        let bytes = match text {
            Text::Log => recent_log::text(),
            Text::Metrics => crate::fs::measurements(&self.counters(), "").into_bytes(),
            Text::Status => crate::fs::status_text(&self.root_path, &self.counters()).into_bytes(),
        };
        let handle = self.handles.enter(OpenHandle {
            node: node.clone(),
            mode,
            directory: false,
            listed: AtomicBool::new(false),
            what: OpenWhat::Text(bytes),
        });
        Ok(Opened { handle, keep_cache: false, direct_io: true, no_flush: true })
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.containers.counters();
        all.extend(self.tree.counters());
        all.extend([("inodes", self.nodes.len() as u64), ("open_files", self.handles.len() as u64)]);
        all
    }

    /// Opens a directory.
    pub(super) fn open_directory(&self, node: &Arc<Node>) -> FsResult<Handle> {
        let what = match &node.what {
            What::Directory => {
                self.directory(node)?;
                OpenWhat::Directory(Mutex::new(None))
            }
            What::Control => OpenWhat::Directory(Mutex::new(None)),
            _ => return Err(Errno(libc::ENOTDIR)),
        };
        let mode = OpenMode { read: true, ..OpenMode::default() };
        Ok(self.handles.enter(OpenHandle { node: node.clone(), mode, directory: true, listed: AtomicBool::new(false), what }))
    }
}

/// Stands for the identity of nodes that are no files.
const ROOT_IDENTITY: crate::fs::open::Identity = crate::fs::open::Identity { device: 0, inode: 0 };

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fs::{KernelMemory, MountSpec};
    use crate::mirror::Naming;
    use std::sync::mpsc;
    use std::time::Duration;

    /// A mirror of `root` with default options.
    pub fn spec(root: &std::path::Path) -> MirrorSpec {
        let (include, exclude, uid, gid, file_mode, dir_mode) = Default::default();
        let (open_max, idle) = (4, Duration::from_secs(10));
        let container = MountSpec::new(root);
        MirrorSpec {
            root: root.into(),
            naming: Naming::Replace,
            include,
            exclude,
            open_max,
            idle,
            uid,
            gid,
            file_mode,
            dir_mode,
            container,
        }
    }

    /// A kernel that drops a name after a request, as one that holds the lock of a directory.
    struct Kernel {
        fs: Arc<dyn Operations>,
        ino: Ino,
        answered: Mutex<Vec<bool>>,
    }

    impl KernelMemory for Kernel {
        fn forget_inode(&self, _ino: Ino) {}

        fn forget_name(&self, _parent: Ino, _name: &[u8]) {
            let (fs, ino, (sender, answer)) = (self.fs.clone(), self.ino, mpsc::channel());
            std::thread::spawn(move || sender.send(fs.opendir(ino)));
            self.answered.lock().push(answer.recv_timeout(Duration::from_secs(20)).is_ok());
        }
    }

    /// Regression: the list of stale names was locked while the kernel dropped them.
    #[test]
    fn no_request_waits_for_a_notice_to_the_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.h5");
        crate::fs::open::create(&path, &crate::fs::NewFile::default()).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[48..64].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        let fs = open(locate(&spec(dir.path())).unwrap()).unwrap();
        let ino = fs.lookup(ROOT, b"x.h5").unwrap().attr.ino;
        assert_eq!(fs.opendir(ino), Err(Errno(libc::EIO)));
        let kernel = Kernel { fs: fs.clone(), ino, answered: Mutex::default() };
        fs.look(&kernel);
        assert_eq!(*kernel.answered.lock(), [true]);
        assert_eq!(fs.lookup(ROOT, b"x.h5").unwrap().attr.perm, 0);
    }

    /// Regression: containers that were opened for the first time at once were more than allowed.
    #[test]
    fn no_more_containers_are_open_than_allowed() {
        const FILES: usize = 12;
        let dir = tempfile::tempdir().unwrap();
        for n in 0..FILES {
            crate::fs::open::create(&dir.path().join(format!("{n}.h5")), &crate::fs::NewFile::default()).unwrap();
        }
        let mut spec = spec(dir.path());
        spec.open_max = 2;
        let fs = open(locate(&spec).unwrap()).unwrap();
        let count = |fs: &Arc<dyn Operations>| {
            let status = fs.status();
            let line = status.lines().find_map(|line| line.strip_prefix("open_containers "));
            line.unwrap().trim().parse::<usize>().unwrap()
        };
        let start = std::sync::Barrier::new(FILES);
        let most = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..FILES)
                .map(|n| {
                    let (fs, start) = (&fs, &start);
                    scope.spawn(move || {
                        let ino = fs.lookup(ROOT, format!("{n}.h5").as_bytes()).unwrap().attr.ino;
                        start.wait();
                        let handle = fs.opendir(ino).unwrap();
                        let open = count(fs);
                        fs.releasedir(ino, handle);
                        open
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
        });
        assert!((1..=2).contains(&most) && count(&fs) == 2, "{most}, {}", fs.status());
    }
}
