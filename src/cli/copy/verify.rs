//! Compares copies in a container with their sources: what was lost is reported.
//!
//! References lead to objects that are copied later. So what differs at first is compared once more
//! at the end, after a commit has resolved the references.

use crate::cli::side::container::{Container, Held, ObjectSource};
use crate::fs::model::io_error;
use std::io;
use std::sync::Arc;

/// Copies that are compared once more at most; of further ones a difference is an error at once.
const PENDING_MAX: usize = 1 << 20;

/// A copy that differs from its source so far.
struct Pending {
    source: ObjectSource,
    copy: Arc<Held>,
    /// The source, for messages.
    path: Vec<u8>,
}

/// See the module's description.
#[derive(Default)]
pub(super) struct Verifier {
    pending: Vec<Pending>,
}

impl Verifier {
    /// Compares `copy` with `source`, which is at `path`, at the end once more if they differ.
    pub(super) fn check(&mut self, source: &ObjectSource, path: &[u8], container: &Container, copy: &Arc<Held>) -> io::Result<()> {
        match compare(source, container, copy) {
            Ok(None) => Ok(()),
            Ok(Some(_)) if self.pending.len() < PENDING_MAX => {
                self.pending.push(Pending { source: source.form(source.path())?, copy: copy.clone(), path: path.to_vec() });
                Ok(())
            }
            Ok(Some(what)) => Err(lost(what)),
            Err(e) => Err(e),
        }
    }

    /// True if `copy` has the type, attributes and references of `source`.
    pub(super) fn is_complete(source: &ObjectSource, container: &Container, copy: &Held) -> io::Result<bool> {
        Ok(compare(source, container, copy)?.is_none())
    }

    /// Paths of the sources whose copies still differ, and what was lost.
    pub(super) fn differences(&mut self, container: &Container) -> Vec<(Vec<u8>, io::Error)> {
        let pending = std::mem::take(&mut self.pending);
        let compared = pending.into_iter().filter_map(|Pending { source, copy, path }| {
            let compared = match compare(&source, container, &copy) {
                Ok(Some(_)) => take_rest(&source, container, &copy).and_then(|()| compare(&source, container, &copy)),
                compared => compared,
            };
            let why = match compared {
                Ok(None) => return None,
                Ok(Some(what)) => lost(what),
                Err(e) => e,
            };
            Some((path, why))
        });
        compared.collect()
    }
}

fn lost(what: &str) -> io::Error {
    io::Error::other(format!("the copy is there, but its {what} differ from the source; 'h5dir diff --storage' shows how"))
}

/// Sets what `copy` has beside its bytes again: too many references may have waited for objects.
fn take_rest(source: &ObjectSource, container: &Container, copy: &Held) -> io::Result<()> {
    let Some((source, copy)) = source.model()?.zip(container.model(copy)?) else { return Ok(()) };
    copy.take_rest(&source).map(drop).map_err(|e| io_error(&e))
}

/// What differs, if anything does. A copy may have more attributes than its source.
fn compare(source: &ObjectSource, container: &Container, copy: &Held) -> io::Result<Option<&'static str>> {
    let (Some(source), Some(copy)) = (source.model()?, container.model(copy)?) else { return Ok(Some("kinds")) };
    source.difference(&copy).map_err(|e| io_error(&e))
}
