//! What a mirror shows and how.

use crate::fs::create_rules::NamePattern;
use crate::fs::{MountSpec, OpenError};
use std::path::PathBuf;
use std::time::Duration;

/// Ending of the directories that show containers beside their files.
pub const SUFFIX: &[u8] = b".d";

/// The names under which containers are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// A directory in place of the file: `x.h5/`.
    Replace,
    /// A directory with the name of the file and an ending: `x.h5.d/`.
    Suffix,
    /// The file, and a directory as with `Suffix`.
    Both,
}

impl Naming {
    /// Its name as an option.
    pub fn name(self) -> &'static str {
        match self {
            Naming::Replace => "replace",
            Naming::Suffix => "suffix",
            Naming::Both => "both",
        }
    }
}

/// A directory to be mirrored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorSpec {
    /// The directory.
    pub root: PathBuf,
    /// Names of containers.
    pub naming: Naming,
    /// If there are any, only files that match one of them are shown.
    pub include: Vec<NamePattern>,
    /// Files and directories that match one of them are hidden.
    pub exclude: Vec<NamePattern>,
    /// Most containers open at a time.
    pub open_max: usize,
    /// Containers that were not used for so long are closed.
    pub idle: Duration,
    /// Owner of what is in containers; `None` = the owner of the file.
    pub uid: Option<u32>,
    /// Group of what is in containers; `None` = the group of the file.
    pub gid: Option<u32>,
    /// Permission bits of files in containers; `None` = those of the container.
    pub file_mode: Option<u16>,
    /// Permission bits of directories in containers; `None` = those of the container, and execution
    /// where reading is permitted.
    pub dir_mode: Option<u16>,
    /// How each container is shown, but for its file, owner and modes.
    pub container: MountSpec,
}

impl MirrorSpec {
    /// The error that `source` is for the directory.
    pub(super) fn failed(&self, source: std::io::Error) -> OpenError {
        OpenError::Open { path: self.root.clone(), source }
    }

    /// True if the file or directory `name` of the directory at `path` is hidden.
    pub(super) fn hides(&self, path: &[Vec<u8>], name: &[u8], is_directory: bool) -> bool {
        let matches = |patterns: &[NamePattern]| patterns.iter().any(|p| p.matches(path, name));
        matches(&self.exclude) || (!is_directory && !self.include.is_empty() && !matches(&self.include))
    }
}
