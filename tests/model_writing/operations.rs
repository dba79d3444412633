//! What is done to both file systems: operations by path, and how they are chosen.

use super::random::Random;
use h5dir::fs::FileKind;

/// A file by its path, or one that was opened before.
#[derive(Debug, Clone)]
pub enum At {
    Path(String),
    Slot(u8),
}

/// One operation. Paths are relative to the root, which is the empty path.
#[derive(Debug, Clone)]
pub enum Op {
    Create {
        path: String,
        exclusive: bool,
        slot: Option<u8>,
    },
    Mknod(String),
    Mkdir(String),
    Symlink(String, String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, u32),
    Open {
        slot: u8,
        path: String,
        append: bool,
    },
    Close(u8),
    /// Bytes made of the last number; 0 = zeros.
    Write(At, u64, usize, u64),
    Read(At, u64, usize),
    Truncate(At, u64),
    /// Another extent in all dimensions, made of the number.
    Extent(String, u64),
    Allocate(At, u64, u64, i32),
    SetXattr(String, String, String, i32),
    RemoveXattr(String, String),
    /// The kernel keeps a reference to what has the path.
    Pin(u8, String),
    Unpin(u8),
    /// Attributes and names beneath what was pinned, by its number.
    Stat(u8),
    /// As many files in a directory, or attributes of an object.
    Many(String, u8),
    ManyXattrs(String, u8),
    /// Removes every second name of a directory, as far as that can be.
    Thin(String),
    Fsync(String),
    Commit,
    Remount,
    /// The process dies: what was not committed is lost.
    Crash,
}

/// What an operation chooses from: what is there.
pub struct Tree {
    /// Path, kind and size of everything; the root first.
    pub all: Vec<(String, FileKind, u64)>,
    /// Attributes of the objects.
    pub xattrs: Vec<(String, Vec<String>)>,
}

/// What a sequence is mostly about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    Names,
    Data,
    Attributes,
    All,
    /// Data of datasets whose extents change.
    Extents,
}

pub const THEMES: [Theme; 4] = [Theme::Names, Theme::Data, Theme::Attributes, Theme::All];

const ODD_NAMES: [&str; 8] = ["name with spaces", "\u{e9}", "%2E%2E", "%41", "x%20y", "", ".h5dir", "%20soft link to %2Fa"];
const TARGETS: [&str; 7] = ["a", "../b", "/etc/passwd", "a/b/n1", ".", "../../..", "%20soft link to %2Fout"];
const SLOTS: u64 = 4;

pub struct Choice<'a> {
    pub r: &'a mut Random,
    pub tree: &'a Tree,
    pub theme: Theme,
}

impl Choice<'_> {
    fn name(&mut self) -> String {
        match self.r.below(40) {
            0 => "l".repeat(200 + self.r.below(57) as usize),
            1 => self.r.pick(&ODD_NAMES).to_owned(),
            2..12 => self.r.pick(&["a", "b", "c"]).to_owned(),
            _ => format!("n{}", self.r.below(30)),
        }
    }

    fn existing(&mut self, wanted: impl Fn(FileKind) -> bool) -> Option<String> {
        let all: Vec<&String> = self.tree.all.iter().skip(1).filter(|(_, k, _)| wanted(*k)).map(|(p, ..)| p).collect();
        (!all.is_empty()).then(|| self.r.pick(&all).clone())
    }

    fn directory(&mut self) -> String {
        if self.r.chance(45) { String::new() } else { self.existing(|k| k == FileKind::Directory).unwrap_or_default() }
    }

    fn new_path(&mut self) -> String {
        let (dir, name) = (self.directory(), self.name());
        if dir.is_empty() { name } else { format!("{dir}/{name}") }
    }

    fn path(&mut self, wanted: FileKind) -> String {
        let found = match self.r.below(100) {
            0..85 => self.existing(|k| k == wanted),
            85..95 => self.existing(|_| true),
            _ => None,
        };
        found.unwrap_or_else(|| self.new_path())
    }

    fn object(&mut self) -> String {
        if self.r.chance(20) { String::new() } else { self.existing(|k| k != FileKind::Symlink).unwrap_or_default() }
    }

    fn at(&mut self) -> (At, u64) {
        if self.r.chance(25) {
            return (At::Slot(self.r.below(SLOTS) as u8), 5000);
        }
        let path = self.path(FileKind::Regular);
        let size = self.tree.all.iter().find(|(p, ..)| *p == path).map_or(0, |(.., size)| *size);
        (At::Path(path), size)
    }

    fn data(&mut self) -> Op {
        let (at, size) = self.at();
        let within = |r: &mut Random| if r.chance(80) { r.below(size + 1) } else { r.below(20_000) };
        let len = |r: &mut Random| match r.below(20) {
            0 => r.below(100_000),
            1..8 => r.below(9000),
            _ => r.below(200),
        };
        match self.r.below(20) {
            0..8 => {
                let seed = if self.r.chance(10) { 0 } else { self.r.next() };
                let offset = if self.r.chance(30) { size } else { within(self.r) };
                let len = len(self.r) as usize;
                // As most that are overwritten may not grow.
                let fits = (size.saturating_sub(offset)) as usize;
                Op::Write(at, offset, if self.r.chance(40) && fits > 0 { len.min(fits) } else { len }, seed)
            }
            8..10 => Op::Read(at, within(self.r), len(self.r) as usize),
            10..14 => Op::Truncate(at, if self.r.chance(60) { self.r.below(size + 10) } else { self.r.below(30_000) }),
            14..18 => {
                let mode = self.r.pick(&[
                    0,
                    libc::FALLOC_FL_KEEP_SIZE,
                    libc::FALLOC_FL_ZERO_RANGE,
                    libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
                    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    libc::FALLOC_FL_COLLAPSE_RANGE,
                ]);
                Op::Allocate(at, within(self.r), len(self.r), mode)
            }
            18 => Op::Close(self.r.below(SLOTS) as u8),
            _ => Op::Open { slot: self.r.below(SLOTS) as u8, path: self.path(FileKind::Regular), append: self.r.chance(40) },
        }
    }

    fn names(&mut self) -> Op {
        let slot = self.r.below(SLOTS) as u8;
        match self.r.below(28) {
            0..4 => Op::Create { path: self.new_path(), exclusive: self.r.chance(50), slot: self.r.chance(40).then_some(slot) },
            4 => Op::Mknod(self.new_path()),
            5..8 => Op::Mkdir(self.new_path()),
            8..10 => Op::Symlink(self.new_path(), self.r.pick(&TARGETS).to_owned()),
            10..12 => Op::Link(self.path(FileKind::Regular), self.new_path()),
            12..16 => {
                let kind = self.r.pick(&[FileKind::Regular, FileKind::Regular, FileKind::Symlink, FileKind::Directory]);
                Op::Unlink(self.path(kind))
            }
            16..18 => Op::Rmdir(self.path(FileKind::Directory)),
            18..24 => {
                let flags = self.r.pick(&[0, 0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE]);
                let from = self.existing(|_| true).unwrap_or_else(|| self.new_path());
                let onto = flags == libc::RENAME_EXCHANGE || self.r.chance(35);
                let to = if onto { self.existing(|_| true) } else { None };
                let to = to.unwrap_or_else(|| self.new_path());
                Op::Rename(from, to, flags)
            }
            24 if self.r.chance(40) => Op::Many(self.directory(), 5 + self.r.below(60) as u8),
            25 if self.r.chance(40) => Op::Thin(self.directory()),
            24 => Op::Pin(slot, self.existing(|_| true).unwrap_or_default()),
            25 => Op::Unpin(slot),
            26 => Op::Stat(slot),
            _ => Op::Open { slot, path: self.path(FileKind::Regular), append: false },
        }
    }

    fn attributes(&mut self) -> Op {
        let path = self.object();
        let there = self.tree.xattrs.iter().find(|(p, _)| *p == path).map(|(_, n)| n.clone()).unwrap_or_default();
        if self.r.chance(4) {
            return Op::ManyXattrs(path, 5 + self.r.below(90) as u8);
        }
        if self.r.chance(35) && !there.is_empty() {
            return Op::RemoveXattr(path, self.r.pick(&there));
        }
        // Those that were there before have types that the model has not.
        let name = format!("user.{}{}", self.r.pick(&["x", "\u{e9}", "long attribute name "]), self.r.below(12));
        if self.r.chance(5) {
            return Op::RemoveXattr(path, name);
        }
        let flags = self.r.pick(&[0, 0, 0, libc::XATTR_CREATE, libc::XATTR_REPLACE]);
        let len = match self.r.below(20) {
            0 => self.r.below(20_000),
            1..6 => self.r.below(600),
            _ => self.r.below(20),
        };
        let value: String = (0..len).map(|_| self.r.pick(&['a', 'b', '\u{fc}', ' ', '"', '\n', '1'])).collect();
        Op::SetXattr(path, name, value, flags)
    }

    /// The next operation.
    pub fn op(&mut self) -> Op {
        match self.r.below(100) {
            0..2 => return Op::Remount,
            2..5 => return Op::Commit,
            6 if self.r.chance(70) => return Op::Crash,
            5 => return Op::Fsync(self.object()),
            _ => {}
        }
        let theme = if self.r.chance(75) { self.theme } else { Theme::All };
        let theme = if theme == Theme::All { self.r.pick(&[Theme::Names, Theme::Data, Theme::Attributes]) } else { theme };
        match theme {
            Theme::Extents if self.r.chance(40) => Op::Extent(self.path(FileKind::Regular), self.r.next()),
            Theme::Data | Theme::Extents => self.data(),
            Theme::Attributes => self.attributes(),
            Theme::Names | Theme::All => self.names(),
        }
    }
}
