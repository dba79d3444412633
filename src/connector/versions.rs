//! Versions of a container, and what is stored of one.

use super::Result;
pub use crate::iod::gc::{Keep, Options as Collection, Report as Collected};
use std::ops::ControlFlow;

/// A committed version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its number, from 1 on.
    pub number: u64,
    /// When it was committed, seconds since 1970, by the clock of the writer.
    pub seconds: u64,
    /// Number of the session that committed it; 0: it began a session.
    pub session: u64,
    /// Text of the writer.
    pub label: Vec<u8>,
    /// Values that it changed.
    pub changes: u64,
}

/// Called with one version.
pub type VersionVisitor<'a> = dyn FnMut(Version) -> ControlFlow<()> + 'a;
/// Called with one line of text, without its end.
pub type LineVisitor<'a> = dyn FnMut(&str) -> ControlFlow<()> + 'a;

/// Inspection of a container that has versions.
pub trait Versions: Send + Sync {
    /// Visits the versions from that which is shown on, the newest first, until `f` breaks.
    fn log(&self, f: &mut VersionVisitor<'_>) -> Result<()>;

    /// Visits all stored values of the version that is shown, a line each, by object.
    fn dump(&self, f: &mut LineVisitor<'_>) -> Result<()>;
}
