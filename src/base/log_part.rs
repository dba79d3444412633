//! Parts of a log as they are stored: what a dump of it shows.

use super::{Error, Result};
use std::ops::ControlFlow;

/// A value in a part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogValue {
    /// A number.
    Number(u64),
    /// Coordinates or counts: a number per dimension, of one block or point after the other.
    Numbers(Vec<u64>),
    /// Yes or no.
    Flag(bool),
    /// Why the part cannot be read.
    Problem(String),
}

/// A part of a log: a section, a run, a record, an index entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPart {
    /// What it is.
    pub name: &'static str,
    /// Number of parts that it is within.
    pub depth: usize,
    /// Its values by name.
    pub values: Vec<(&'static str, LogValue)>,
}

/// Receives parts in the order in which they are stored, until it breaks.
pub type LogVisitor<'a> = dyn FnMut(&LogPart) -> ControlFlow<()> + 'a;

impl LogPart {
    /// A part without values.
    pub fn new(name: &'static str, depth: usize) -> Self {
        LogPart { name, depth, values: Vec::new() }
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, name: &'static str, value: impl Into<u64>) -> Self {
        self.with(name, LogValue::Number(value.into()))
    }

    /// Adds numbers.
    #[must_use]
    pub fn numbers(self, name: &'static str, values: &[u64]) -> Self {
        self.with(name, LogValue::Numbers(values.to_vec()))
    }

    /// Adds a flag.
    #[must_use]
    pub fn flag(self, name: &'static str, value: bool) -> Self {
        self.with(name, LogValue::Flag(value))
    }

    /// Adds why it cannot be read.
    #[must_use]
    pub fn problem(self, error: &Error) -> Self {
        self.with("error", LogValue::Problem(error.to_string()))
    }

    fn with(mut self, name: &'static str, value: LogValue) -> Self {
        self.values.push((name, value));
        self
    }

    /// Shows the part. Errors: `f` broke (`ECANCELED`).
    pub fn show(&self, f: &mut LogVisitor<'_>) -> Result<()> {
        if f(self).is_break() { Err(Error::refused(libc::ECANCELED, "the rest is not wanted")) } else { Ok(()) }
    }
}
