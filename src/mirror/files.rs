//! The tree of files that a mirror shows: a directory of the host, or objects below a prefix.

use crate::file::names::Listed;
use crate::fs::open::{
    self, ContainerPlace, Directory, Entry, FileDriver, Identity, LocatedContainer, OpenError, Recognized, Shared, UsedDirectory,
};
use crate::fs::types::Statfs;
use crate::fs::{MountSpec, Operations};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A tree of files. Paths are the names from its root.
pub trait Tree: Send + Sync {
    /// Its path, for messages.
    fn path(&self) -> io::Result<PathBuf>;

    /// Directories of the host that it uses. `written`: its files are changed.
    fn used(&self, written: bool) -> io::Result<Vec<UsedDirectory>>;

    /// Checks that the tree can be read. Called once, before the first request.
    fn check(&self) -> Result<(), OpenError> {
        Ok(())
    }

    /// The directory at `path`, and its properties.
    fn folder(&self, path: &[Vec<u8>]) -> io::Result<(Box<dyn Folder>, Entry)>;

    /// The directory of the host at `path`, where names are changed. Errors: `EROFS` if the tree is
    /// only read.
    fn changed_folder(&self, _path: &[Vec<u8>]) -> io::Result<Directory> {
        Err(io::Error::from_raw_os_error(libc::EROFS))
    }

    /// Totals of the file system.
    fn space(&self) -> io::Result<Statfs>;

    /// True if its files are files of the host.
    fn has_host_files(&self) -> bool {
        true
    }

    /// A listing with attributes takes no longer than one without them.
    fn lists_attributes(&self) -> bool {
        true
    }

    /// Takes its part of `bytes` of memory for caches; returns what is left for decoded chunks.
    fn divide_cache(&self, bytes: u64) -> u64 {
        bytes
    }

    /// Counters by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A name in a listing.
pub struct Name {
    /// The name.
    pub name: OsString,
    /// It is a regular file, or may be one.
    pub may_be_file: bool,
    /// Its properties, where the listing has them.
    pub entry: Option<Entry>,
}

/// Bytes of an open file.
pub enum Content {
    /// A file of the host.
    File(File),
    /// A file that is only read.
    Bytes(Arc<dyn FileDriver>),
}

/// A directory of a tree. Names are single components; errors are `ESTALE` where a name has
/// another file than the one asked for.
pub trait Folder {
    /// The file that `name` refers to, if any; `.` is the directory itself.
    fn entry(&self, name: &OsStr) -> io::Result<Option<Entry>>;

    /// Its names.
    fn list(&self) -> io::Result<Vec<Name>>;

    /// The target of the symbolic link `name`.
    fn read_link(&self, name: &OsStr) -> io::Result<OsString>;

    /// Whether the file `name` is a container, by its first bytes.
    fn recognize(&self, name: &OsStr, entry: &Entry) -> io::Result<Recognized>;

    /// Whether the file `name` is listed as a container, where its first bytes are not read for a
    /// listing.
    fn guess(&self, _name: &OsStr) -> Option<Recognized> {
        None
    }

    /// Opens the file `name`; returns its present properties, too.
    fn open(&self, name: &OsStr, entry: &Entry, flags: OFlag) -> io::Result<(Content, Entry)>;

    /// Locates the container in the file `name`, to be opened by itself as `spec` states.
    fn locate(&self, name: &OsStr, identity: Identity, spec: &MountSpec) -> Result<LocatedContainer, OpenError>;

    /// Opens the container in the file `name`.
    fn container(&self, name: &OsStr, identity: Identity, spec: &MountSpec, shared: &Shared) -> Result<Arc<dyn Operations>, OpenError>;
}

impl Tree for Directory {
    fn path(&self) -> io::Result<PathBuf> {
        Directory::path(self)
    }

    fn used(&self, written: bool) -> io::Result<Vec<UsedDirectory>> {
        Ok(vec![UsedDirectory { directory: self.as_fd().try_clone_to_owned()?, written, tree: true }])
    }

    fn folder(&self, path: &[Vec<u8>]) -> io::Result<(Box<dyn Folder>, Entry)> {
        let directory = self.changed_folder(path)?;
        let entry = Entry::of(&directory)?;
        Ok((Box::new(directory), entry))
    }

    fn changed_folder(&self, path: &[Vec<u8>]) -> io::Result<Directory> {
        let path: PathBuf = path.iter().map(|name| OsStr::from_bytes(name)).collect();
        self.descend(&path)
    }

    fn space(&self) -> io::Result<Statfs> {
        let s = nix::sys::statvfs::fstatvfs(self)?;
        let (block_size, name_max) = (u32::try_from(s.fragment_size()).unwrap_or(4096), u32::try_from(s.name_max()).unwrap_or(255));
        Ok(Statfs { block_size, blocks: s.blocks(), free: s.blocks_available(), files: s.files(), name_max })
    }
}

impl Folder for Directory {
    fn entry(&self, name: &OsStr) -> io::Result<Option<Entry>> {
        Directory::entry(self, name)
    }

    fn list(&self) -> io::Result<Vec<Name>> {
        let name = |Listed { name, may_be_file, .. }| Name { name, may_be_file, entry: None };
        Ok(Directory::list(self)?.into_iter().map(name).collect())
    }

    fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        Directory::read_link(self, name)
    }

    fn recognize(&self, name: &OsStr, entry: &Entry) -> io::Result<Recognized> {
        open::recognize(&ContainerPlace { directory: self, name, identity: entry.status.identity })
    }

    fn open(&self, name: &OsStr, entry: &Entry, flags: OFlag) -> io::Result<(Content, Entry)> {
        let file = self.open_file(name, flags, Mode::empty())?;
        let now = Entry::of(&file)?;
        if now.status.identity != entry.status.identity {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        Ok((Content::File(file), now))
    }

    fn locate(&self, name: &OsStr, identity: Identity, spec: &MountSpec) -> Result<LocatedContainer, OpenError> {
        open::locate_in(spec, &ContainerPlace { directory: self, name, identity })
    }

    fn container(&self, name: &OsStr, identity: Identity, spec: &MountSpec, shared: &Shared) -> Result<Arc<dyn Operations>, OpenError> {
        open::open_in(spec, &ContainerPlace { directory: self, name, identity }, shared)
    }
}
