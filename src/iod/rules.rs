//! Rules of commits and of garbage collection that a test can break, to see that the checks notice
//! it.
//!
//! The program always keeps all of them: [`keeps`] is constant there.

/// A rule of commits or of garbage collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A record has the hash of the one before it.
    HashChain,
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

/// True: the program keeps every rule.
#[cfg(not(test))]
pub const fn keeps(rule: Rule) -> bool {
    // A fuzz target changes one record of a chain.
    !(cfg!(fuzzing) && matches!(rule, Rule::HashChain))
}

#[cfg(test)]
thread_local! {
    /// The rule that this thread breaks.
    static BROKEN: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

/// False if this thread breaks the rule.
#[cfg(test)]
pub fn keeps(rule: Rule) -> bool {
    BROKEN.get() != Some(rule)
}

/// Runs `f` while this thread breaks a rule.
#[cfg(test)]
pub fn breaking<T>(rule: Option<Rule>, f: impl FnOnce() -> T) -> T {
    let outer = BROKEN.replace(rule);
    let done = f();
    BROKEN.set(outer);
    done
}
