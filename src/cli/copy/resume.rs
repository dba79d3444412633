//! Resumes a copy into a container or a local directory that was interrupted.
//!
//! A copy shows complete objects and files only. The destination has the attribute `h5dir-copy`,
//! which names the source file with its size and modification time: in a container before the first
//! commit, in a local directory from the start. The end of the copy removes it. A copy of the same
//! source that finds the attribute skips local files that are there, and objects of a container
//! whose copies have the same type, shape, attributes and references.
//!
//! Only a copy of one HDF5 file into a directory that was empty has the attribute: what is in the
//! directory later is of that copy.

use super::sink::SinkDirectory;
use crate::base::escape::escaped_bytes;
use crate::cli::side::argument::Argument;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

/// What is copied, as the attribute states it. `None`: the copy cannot be resumed.
pub(super) fn identity(sources: &[Argument]) -> Option<Vec<u8>> {
    let [Argument::Object { file, path, .. }] = sources else { return None };
    let file = file.canonicalize().ok()?;
    let meta = file.metadata().ok().filter(|meta| meta.is_file())?;
    let (size, seconds, nanoseconds) = (meta.len(), meta.mtime(), meta.mtime_nsec());
    let path = escaped_bytes(path).to_string();
    Some(serde_json::json!({"file": file.to_str()?, "path": path, "size": size, "mtime": [seconds, nanoseconds]}).to_string().into_bytes())
}

/// The copy that is under way.
pub(super) struct Resume {
    directory: Rc<dyn SinkDirectory>,
    identity: Vec<u8>,
    /// The attribute is there.
    marked: bool,
    /// An interrupted copy is resumed.
    pub(super) resumed: bool,
}

impl Resume {
    /// Of a copy of `identity` into `directory`; `None`: it cannot be resumed.
    pub(super) fn begin(identity: Option<Vec<u8>>, directory: &Rc<dyn SinkDirectory>) -> io::Result<Option<Resume>> {
        let is_local = directory.local_path().is_some();
        let Some(identity) = identity.filter(|_| is_local || directory.as_object().is_some()) else { return Ok(None) };
        let marked = directory.marker()?.is_some_and(|found| found == identity);
        if !marked && !directory.is_empty()? {
            return Ok(None);
        }
        let mut resume = Resume { directory: directory.clone(), identity, marked, resumed: marked };
        // A local directory has no commits: every file may be the last one.
        Ok((!is_local || resume.mark().is_ok()).then_some(resume))
    }

    /// Sets the attribute before objects are committed.
    pub(super) fn mark(&mut self) -> io::Result<()> {
        if !self.marked {
            self.directory.set_marker(Some(&self.identity))?;
            self.marked = true;
        }
        Ok(())
    }

    /// Removes the attribute: everything was copied.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.marked) { self.directory.set_marker(None) } else { Ok(()) }
    }
}
