//! One of the two file systems, and how operations are done to it.

use super::operations::{At, Op};
use super::random::Random;
use super::start;
use h5dir::connector::Connector;
use h5dir::connector::memory::MemoryConnector;
use h5dir::connector::native::NativeConnector;
use h5dir::file::memory::{GrowingFile, MemoryJournal};
use h5dir::file::{JournalPlace, WriteDriver};
use h5dir::fs::container::{Backing, ContainerFs};
use h5dir::fs::types::{Handle, Ino, ROOT};
use h5dir::fs::{Changes, Creator, Errno, FileKind, MountSpec, OpenMode, Operations};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// What an operation tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Nothing,
    Bytes(Vec<u8>),
    Number(u64),
    /// Kind, names, size, permissions.
    Attributes(FileKindText, u32, u64, u16),
    Names(Vec<Vec<u8>>),
}

pub type FileKindText = &'static str;
pub type Answer = Result<Told, i32>;

/// A journal that outlives the connector which uses it.
#[derive(Clone, Default)]
pub struct Kept(Arc<MemoryJournal>);

/// The process that creates files.
fn creator(mode: u32) -> Creator {
    Creator { uid: 0, gid: 0, mode }
}

impl JournalPlace for Kept {
    fn open(&self) -> std::io::Result<Option<Arc<dyn WriteDriver>>> {
        self.0.open()
    }

    fn create(&self) -> std::io::Result<Arc<dyn WriteDriver>> {
        self.0.create()
    }

    fn remove(&self) -> std::io::Result<()> {
        self.0.remove()
    }
}

enum Behind {
    File(Arc<GrowingFile>, Kept),
    /// Now, and at the last commit.
    Model(Arc<MemoryConnector>, MemoryConnector),
}

/// See the module's description.
pub struct Side {
    pub fs: ContainerFs,
    behind: Behind,
    slots: BTreeMap<u8, (Ino, Handle)>,
    pins: BTreeMap<u8, Ino>,
}

fn file_system(connector: Arc<dyn Connector>) -> ContainerFs {
    let t = SystemTime::UNIX_EPOCH;
    let spec = MountSpec { cache_bytes: 1 << 16, ..MountSpec::writable("model.h5") };
    let root = connector.root();
    ContainerFs::new(connector, root, Vec::new(), Backing { atime: t, mtime: t, ctime: t, len: 0 }, spec)
}

pub fn kind(kind: FileKind) -> FileKindText {
    match kind {
        FileKind::Directory => "directory",
        FileKind::Regular => "file",
        FileKind::Symlink => "symlink",
    }
}

/// Opens a file for writing.
pub fn connect(file: &Arc<GrowingFile>, journal: &Kept) -> Arc<NativeConnector> {
    NativeConnector::writable_over(file.clone(), Box::new(journal.clone()), PathBuf::from("/"), start::options()).unwrap()
}

impl Side {
    /// The file system of a file that holds `bytes`.
    pub fn of_file(bytes: Vec<u8>) -> Side {
        let file = Arc::new(GrowingFile::new(bytes));
        let journal = Kept::default();
        let fs = file_system(connect(&file, &journal));
        Side { fs, behind: Behind::File(file, journal), slots: BTreeMap::new(), pins: BTreeMap::new() }
    }

    /// The same of the model.
    pub fn of_model(model: MemoryConnector) -> Side {
        let model = Arc::new(model);
        let committed = model.reopened();
        Side { fs: file_system(model.clone()), behind: Behind::Model(model, committed), slots: BTreeMap::new(), pins: BTreeMap::new() }
    }

    /// The file as it is now.
    pub fn bytes(&self) -> Vec<u8> {
        match &self.behind {
            Behind::File(file, _) => file.bytes(),
            Behind::Model(..) => Vec::new(),
        }
    }

    fn remount(&mut self) {
        self.fs.shutdown().unwrap();
        self.committed();
        self.restart();
    }

    fn committed(&mut self) {
        if let Behind::Model(model, committed) = &mut self.behind {
            *committed = model.reopened();
        }
    }

    /// Opens what was committed.
    fn restart(&mut self) {
        self.slots.clear();
        self.pins.clear();
        let connector: Arc<dyn Connector> = match &mut self.behind {
            Behind::File(file, journal) => {
                // The one that died may still be writing to its own.
                *file = Arc::new(GrowingFile::new(file.bytes()));
                connect(file, journal)
            }
            Behind::Model(model, committed) => {
                *model = Arc::new(committed.reopened());
                model.clone()
            }
        };
        self.fs = file_system(connector);
    }

    /// What has the path, with a reference unless it is the root.
    pub fn find(&self, path: &str) -> Result<Ino, i32> {
        let mut at = ROOT;
        for name in path.split('/').filter(|_| !path.is_empty()) {
            let next = self.fs.lookup(at, name.as_bytes()).map(|e| e.attr.ino);
            self.fs.forget(at, 1);
            at = next.map_err(|e| e.0)?;
        }
        Ok(at)
    }

    fn with<T>(&self, path: &str, f: impl FnOnce(Ino) -> Result<T, Errno>) -> Result<T, i32> {
        let ino = self.find(path)?;
        let result = f(ino);
        self.fs.forget(ino, 1);
        result.map_err(|e| e.0)
    }

    /// The directory of the path, and the name in it.
    fn within<T>(&self, path: &str, f: impl FnOnce(Ino, &[u8]) -> Result<T, Errno>) -> Result<T, i32> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.with(dir, |ino| f(ino, name.as_bytes()))
    }

    fn made(&self, path: &str, f: impl FnOnce(Ino, &[u8]) -> Result<h5dir::fs::Entry, Errno>) -> Answer {
        let entry = self.within(path, f)?;
        self.fs.forget(entry.attr.ino, 1);
        Ok(Told::Attributes(kind(entry.attr.kind), entry.attr.nlink, entry.attr.size, entry.attr.perm))
    }

    fn stat(&self, ino: Ino) -> Answer {
        let a = self.fs.getattr(ino).map_err(|e| e.0)?;
        if a.kind == FileKind::Directory {
            let mut names = Vec::new();
            let listed = self.fs.readdir(ino, Handle(0), 0, &mut |e| {
                names.push(e.name.to_vec());
                ControlFlow::Continue(())
            });
            names.sort();
            return listed.map(|()| Told::Names(names)).map_err(|e| e.0);
        }
        Ok(Told::Attributes(kind(a.kind), a.nlink, a.size, a.perm))
    }

    fn close(&mut self, slot: u8) {
        if let Some((ino, handle)) = self.slots.remove(&slot) {
            self.fs.release(ino, handle);
            self.fs.forget(ino, 1);
        }
    }

    fn opened(&mut self, slot: u8, ino: Ino, handle: Handle) {
        self.close(slot);
        self.slots.insert(slot, (ino, handle));
    }

    /// Does `f` with an open file.
    fn file(&self, at: &At, f: impl FnOnce(Ino, Handle) -> Result<Told, Errno>) -> Answer {
        match at {
            At::Slot(slot) => match self.slots.get(slot) {
                Some((ino, handle)) => f(*ino, *handle).map_err(|e| e.0),
                None => Ok(Told::Nothing),
            },
            At::Path(path) => self.with(path, |ino| {
                let opened = self.fs.open(ino, OpenMode { read: true, write: true, ..OpenMode::default() })?;
                let result = f(ino, opened.handle);
                self.fs.release(ino, opened.handle);
                result
            }),
        }
    }

    fn data(&self, op: &Op) -> Answer {
        match op {
            Op::Write(at, offset, len, seed) => self.file(at, |ino, handle| {
                let mut r = Random(*seed);
                let bytes: Vec<u8> = (0..*len).map(|_| if *seed == 0 { 0 } else { r.next() as u8 }).collect();
                self.fs.write(ino, handle, *offset, &bytes, OpenMode::default()).result.map(|n| Told::Number(n as u64))
            }),
            Op::Read(at, offset, len) => self.file(at, |ino, handle| {
                let mut bytes = vec![0x55; *len];
                let n = self.fs.read(ino, handle, *offset, &mut bytes)?;
                bytes.truncate(n);
                Ok(Told::Bytes(bytes))
            }),
            Op::Truncate(at, size) => {
                let truncate =
                    |ino| self.fs.setattr(ino, &Changes { size: Some(*size), ..Changes::default() }).result.map(|a| Told::Number(a.size));
                match at {
                    At::Path(path) => self.with(path, truncate),
                    At::Slot(_) => self.file(at, |ino, _| truncate(ino)),
                }
            }
            Op::Allocate(at, offset, len, mode) => self.file(at, |ino, handle| {
                self.fs.fallocate(ino, handle, *offset, *len, *mode).result?;
                Ok(Told::Number(self.fs.getattr(ino)?.size))
            }),
            _ => Ok(Told::Nothing),
        }
    }

    fn names(&mut self, op: &Op) -> Answer {
        let done = |r: Result<(), i32>| r.map(|()| Told::Nothing);
        match op {
            Op::Create { path, exclusive, slot } => {
                let mode = OpenMode { read: true, write: true, ..OpenMode::default() };
                let (entry, opened) = self.within(path, |dir, name| self.fs.create(dir, name, creator(0o644), mode, *exclusive).result)?;
                self.opened(slot.unwrap_or(u8::MAX), entry.attr.ino, opened.handle);
                if slot.is_none() {
                    self.close(u8::MAX);
                }
                Ok(Told::Number(entry.attr.size))
            }
            Op::Mknod(path) => self.made(path, |dir, name| self.fs.mknod(dir, name, creator(0o644)).result),
            Op::Mkdir(path) => self.made(path, |dir, name| self.fs.mkdir(dir, name, creator(0o755)).result),
            Op::Symlink(path, target) => {
                let made = self.made(path, |dir, name| self.fs.symlink(dir, name, target.as_bytes(), creator(0o777)).result)?;
                let ino = self.find(path)?;
                assert_eq!(self.fs.readlink(ino).unwrap(), target.as_bytes(), "the text of {path}");
                self.fs.forget(ino, 1);
                Ok(made)
            }
            Op::Link(from, to) => {
                let ino = self.find(from)?;
                let made = self.made(to, |dir, name| self.fs.link(ino, dir, name).result);
                self.fs.forget(ino, 1);
                made
            }
            Op::Unlink(path) => done(self.within(path, |dir, name| self.fs.unlink(dir, name).result)),
            Op::Rmdir(path) => done(self.within(path, |dir, name| self.fs.rmdir(dir, name).result)),
            Op::Rename(from, to, flags) => {
                let (dir, name) = from.rsplit_once('/').unwrap_or(("", from));
                let from = self.find(dir)?;
                let moved = self.within(to, |dir, to| self.fs.rename((from, name.as_bytes()), (dir, to), *flags).result);
                self.fs.forget(from, 1);
                done(moved)
            }
            _ => Ok(Told::Nothing),
        }
    }

    /// Does `op`.
    pub fn apply(&mut self, op: &Op) -> Answer {
        match op {
            Op::Open { slot, path, append } => {
                let ino = self.find(path)?;
                match self.fs.open(ino, OpenMode { read: true, write: true, append: *append, ..OpenMode::default() }) {
                    Ok(opened) => self.opened(*slot, ino, opened.handle),
                    Err(e) => {
                        self.fs.forget(ino, 1);
                        return Err(e.0);
                    }
                }
            }
            Op::Close(slot) => self.close(*slot),
            Op::Pin(slot, path) => {
                let ino = self.find(path)?;
                self.unpin(*slot);
                self.pins.insert(*slot, ino);
            }
            Op::Unpin(slot) => self.unpin(*slot),
            Op::Stat(slot) => return self.pins.get(slot).map_or(Ok(Told::Nothing), |ino| self.stat(*ino)),
            Op::Extent(path, seed) => return self.extend(path, *seed),
            Op::SetXattr(path, name, value, flags) => {
                self.with(path, |ino| self.fs.setxattr(ino, name.as_bytes(), value.as_bytes(), *flags).result)?;
            }
            Op::RemoveXattr(path, name) => self.with(path, |ino| self.fs.removexattr(ino, name.as_bytes()).result)?,
            Op::Fsync(path) => {
                self.with(path, |ino| self.fs.fsync(ino).result)?;
                self.committed();
            }
            Op::Commit => {
                self.fs.fsync(ROOT).result.map_err(|e| e.0)?;
                self.committed();
            }
            Op::Crash => self.restart(),
            Op::Remount => self.remount(),
            Op::Write(..) | Op::Read(..) | Op::Truncate(..) | Op::Allocate(..) => return self.data(op),
            Op::Many(..) | Op::ManyXattrs(..) | Op::Thin(..) => return self.many(op),
            _ => return self.names(op),
        }
        Ok(Told::Nothing)
    }

    /// Sets the extent of a dataset, within its maximum; tells its size.
    fn extend(&self, path: &str, seed: u64) -> Answer {
        let mut r = Random(seed);
        let fact = |ino, name: &str| self.fs.getxattr(ino, name.as_bytes());
        self.with(path, |ino| {
            let now: Vec<u64> = serde_json::from_slice(&fact(ino, "user.h5dir.shape")?).unwrap_or_default();
            let max: Vec<Option<u64>> = serde_json::from_slice(&fact(ino, "user.h5dir.maxshape").unwrap_or_default()).unwrap_or_default();
            if now.is_empty() {
                return Ok(Told::Nothing);
            }
            let mut elements = 1u64;
            let mut next = |(d, now): (usize, &u64)| {
                let n = match r.below(5) {
                    0 => 0,
                    1 => r.below(now + 1),
                    2 => now + r.below(10),
                    3 => r.below(30),
                    _ => *now,
                };
                let n = n.min(max.get(d).copied().unwrap_or(Some(*now)).unwrap_or(u64::MAX)).min((1 << 16) / elements.max(1));
                elements *= n;
                n
            };
            let next: Vec<u64> = now.iter().enumerate().map(&mut next).collect();
            let text = serde_json::to_vec(&next).unwrap_or_default();
            self.fs.setxattr(ino, b"user.h5dir.shape", &text, 0).result?;
            Ok(Told::Number(self.fs.getattr(ino)?.size))
        })
    }

    /// Several of a kind; tells how many succeeded.
    fn many(&self, op: &Op) -> Answer {
        let mut done = 0;
        match op {
            Op::Many(dir, n) => {
                for i in 0..*n {
                    let name = format!("m{i}");
                    let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
                    done += u64::from(self.made(&path, |dir, name| self.fs.mknod(dir, name, creator(0o644)).result).is_ok());
                }
            }
            Op::ManyXattrs(path, n) => {
                for i in 0..*n {
                    let value = "v".repeat(usize::from(i) * 3);
                    let set = |ino| self.fs.setxattr(ino, format!("user.x{i}").as_bytes(), value.as_bytes(), 0).result;
                    done += u64::from(self.with(path, set).is_ok());
                }
            }
            Op::Thin(path) => {
                let ino = self.find(path)?;
                let Told::Names(names) = self.stat(ino)? else { return Ok(Told::Nothing) };
                for name in names.iter().step_by(2) {
                    done += u64::from(self.fs.unlink(ino, name).result.or_else(|_| self.fs.rmdir(ino, name).result).is_ok());
                }
                self.fs.forget(ino, 1);
            }
            _ => {}
        }
        Ok(Told::Number(done))
    }

    fn unpin(&mut self, slot: u8) {
        if let Some(ino) = self.pins.remove(&slot) {
            self.fs.forget(ino, 1);
        }
    }
}
