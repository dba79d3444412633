//! Garbage collection: deletes what no kept version needs, in two phases.
//!
//! ```text
//! state     what is kept and doomed, `g/<n>`       account   referenced bytes of packs
//! view      pins, tags, unfinished transactions    mark      publishes a floor and doomed packs
//! sweep     deletes after the grace                rewrite   moves live bytes out of sparse packs
//! ```
//!
//! `docs/DESIGN-objectstore.md`, "Garbage collection", has the argument why it is safe.

mod account;
mod mark;
mod rewrite;
pub mod state;
mod sweep;
#[cfg(test)]
mod tag_tests;
#[cfg(test)]
mod tests;
mod view;

use super::Container;
use super::origin::now;
use crate::base::{Error, Result};
#[cfg(test)]
pub(super) use account::node_packs;
use state::GcState;
use view::View;

/// Runs that another run got ahead of.
const ATTEMPTS: usize = 5;

/// Which versions are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Those of the last seconds.
    Seconds(u64),
    /// So many of the newest.
    Versions(u64),
}

/// How garbage is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Which versions are kept.
    pub keep: Keep,
    /// Seconds between publishing and deletion.
    pub grace: u64,
    /// Nothing is changed.
    pub dry_run: bool,
}

/// What a run did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The newest version.
    pub newest: u64,
    /// The oldest version that is kept, but for tags.
    pub floor: u64,
    /// Records and checkpoints that were deleted.
    pub versions: u64,
    /// Packs that were deleted.
    pub packs: u64,
    /// Other objects that were deleted: pins that are over, leftovers of transactions.
    pub others: u64,
    /// Packs that wait for the grace.
    pub doomed: u64,
    /// Versions that wait for the grace.
    pub waiting: u64,
    /// Packs whose live bytes were moved.
    pub rewritten: u64,
    /// Why something is kept.
    pub notes: Vec<String>,
}

/// A run.
struct Run<'a> {
    container: &'a Container,
    options: Options,
    now: u64,
    state: GcState,
    view: View,
    report: Report,
}

/// Collects garbage. Errors: `EAGAIN` if other runs get ahead all the time.
pub fn run(container: &Container, options: &Options) -> Result<Report> {
    run_at(container, options, now())
}

/// [`run`] at `now`, seconds since 1970.
fn run_at(container: &Container, options: &Options, now: u64) -> Result<Report> {
    let done = attempts(container, options, now);
    if let Err(e) = container.unpin() {
        tracing::debug!("the pin of the run: {e}");
    }
    done
}

fn attempts(container: &Container, options: &Options, now: u64) -> Result<Report> {
    for _ in 0..ATTEMPTS {
        let state = GcState::newest(container.store())?.unwrap_or_default();
        let mut run = Run { container, options: *options, now, state, view: View::default(), report: Report::default() };
        if run.mark()? && run.sweep()? {
            return Ok(run.report);
        }
    }
    Err(Error::refused(libc::EAGAIN, "other runs of garbage collection got ahead; try again later"))
}

impl Run<'_> {
    /// Reads pins, tags and unfinished transactions, and then the records since the last run.
    /// Transactions first: one that ends meanwhile is in the records.
    fn look(&mut self) -> Result<()> {
        self.view = View::read(self.container, self.now, self.options.grace)?;
        let versions = self.container.versions_after(self.state.accounted, usize::MAX)?;
        let newest = versions.last().copied().unwrap_or(0).max(self.state.accounted);
        if self.state.number > 0 {
            self.state.catch_up(self.container, newest)?;
        }
        self.report.newest = newest;
        Ok(())
    }

    fn note(&mut self, text: String) {
        if !self.report.notes.contains(&text) {
            self.report.notes.push(text);
        }
    }

    /// Objects of unfinished transactions hold the floor and all packs until they are this old.
    fn is_held(&self) -> bool {
        let grace = self.options.grace;
        let is_old = |name: &String| self.state.leftovers.get(name).is_some_and(|since| since.saturating_add(grace) <= self.now);
        let own = self.container.lease.session();
        let no_writers = self.view.sessions().keys().all(|session| *session > self.state.accounted || *session == own);
        !self.view.unfinished.iter().all(|name| is_old(name) && no_writers)
    }
}
