//! Rules of commits and of garbage collection. A test opens a container that breaks one, to see
//! that the checks notice it.

/// A rule of commits or of garbage collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A writer that lost a reply finds its own record by its UUID.
    ReadBack,
    /// A writer finds the record of its commit in doubt by its UUID.
    InDoubt,
    /// Writes to the same bytes of a chunk conflict.
    Overlap,
    /// Of a chunk that both changed, a session writes its own bytes only.
    Ranges,
    /// A session commits an empty record, whose version is its number.
    SessionIds,
    /// A checkpoint has all values of its version.
    Checkpoint,
    /// A writer whose pin is over reads the floor before it commits.
    FloorBeforeCommit,
    /// A writer whose pin is over reads the floor after it committed.
    FloorAfterCommit,
    /// Garbage collection deletes after the grace.
    Grace,
    /// Pins hold the floor.
    Pins,
    /// Tagged versions are kept.
    Tags,
    /// The floor is read after a tag was created.
    FloorAfterTag,
    /// A checkpoint of the floor is written before records are removed.
    FloorCheckpoint,
    /// A commit between publishing and deletion makes older commits fail.
    Fence,
}

/// The rules that a container keeps: all of them, unless a test breaks one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    broken: Option<Rule>,
}

impl Rules {
    /// True if the rule is kept.
    pub fn keep(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    /// All rules but `broken`.
    #[cfg(test)]
    pub fn breaking(broken: Option<Rule>) -> Rules {
        Rules { broken }
    }
}
