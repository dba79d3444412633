//! Checks of a container for damage.

use super::Result;
use super::space::SpaceUse;
use std::ops::Range;

/// What is wrong at one place of a container's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// A structure, or data, does not decode, breaks the format, or is beyond a limit of this
    /// program.
    Damaged,
    /// A feature that this program does not read.
    NotChecked,
    /// A file that the container refers to cannot be opened.
    MissingFile,
    /// A structure has bytes that another one has.
    ClaimedTwice,
    /// A structure has bytes past the end of the file.
    PastEnd,
    /// Bytes of a structure are listed as free.
    FreeInUse,
    /// No hard link leads to an object: its space is lost, and nothing else.
    Unnamed,
}

impl Problem {
    /// All kinds.
    pub const ALL: [Problem; 7] = [
        Problem::Damaged,
        Problem::NotChecked,
        Problem::MissingFile,
        Problem::ClaimedTwice,
        Problem::PastEnd,
        Problem::FreeInUse,
        Problem::Unnamed,
    ];

    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Problem::Damaged => "damaged",
            Problem::NotChecked => "not checked",
            Problem::MissingFile => "missing file",
            Problem::ClaimedTwice => "claimed twice",
            Problem::PastEnd => "past end",
            Problem::FreeInUse => "free in use",
            Problem::Unnamed => "unnamed",
        }
    }
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub problem: Problem,
    /// Address of the object; `None`: a structure of the file itself.
    pub object: Option<u64>,
    /// A path of the object, if one leads to it.
    pub path: Option<Vec<u8>>,
    /// Standard name of the structure, where known.
    pub structure: Option<&'static str>,
    /// Address of the structure, where known.
    pub address: Option<u64>,
    /// What is wrong.
    pub detail: String,
}

/// Progress of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Objects checked so far.
    pub objects: u64,
    /// Bytes of structures, of stored data and of elements that were checked so far.
    pub bytes: u64,
    /// As many bytes of the whole file, as far as that is known.
    pub total: u64,
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// The problems, by kind and place; at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// The lengths that a file has and that it records, if it was cut.
    pub cut: Option<(u64, u64)>,
    /// Problems found, also those that are not in the list; without the kinds of the next fields.
    pub count: u64,
    /// Findings of the kind [`Problem::NotChecked`].
    pub not_checked: u64,
    /// Findings of the kind [`Problem::Unnamed`].
    pub unnamed: u64,
    /// Objects that hard links reach.
    pub objects: u64,
    /// Bytes of elements that were decoded.
    pub decoded: u64,
    /// Use of the file's bytes.
    pub space: SpaceUse,
    /// Ranges of the file that no structure has and no list names as free; at most
    /// [`FINDINGS_MAX`].
    pub dead: Vec<Range<u64>>,
}

/// Most findings, and most ranges without an owner, that are listed.
pub const FINDINGS_MAX: usize = 10_000;

/// Problems found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The first ones.
    pub listed: Vec<Finding>,
    /// See [`Checked::count`].
    pub count: u64,
    /// See [`Checked::not_checked`].
    pub not_checked: u64,
    /// See [`Checked::unnamed`].
    pub unnamed: u64,
}

impl Findings {
    /// Adds a problem.
    pub fn add(&mut self, finding: Finding) {
        // A structure that several walks reach fails in each.
        if self.listed.last() == Some(&finding) {
            return;
        }
        let sum = match finding.problem {
            Problem::NotChecked => &mut self.not_checked,
            Problem::Unnamed => &mut self.unnamed,
            _ => &mut self.count,
        };
        *sum = sum.saturating_add(1);
        if self.listed.len() < FINDINGS_MAX {
            self.listed.push(finding);
        }
    }
}

/// Checks of a container that was opened for reading only.
pub trait Check: Send + Sync {
    /// Checks every structure that hard links reach, and those of the file itself; with `data`,
    /// decodes all elements. Continues past damage. Calls `progress` after each object and each
    /// piece of data.
    fn check(&self, data: bool, progress: &mut dyn FnMut(Progress)) -> Result<Checked>;
}
