//! Resumes a copy into a container that was interrupted.
//!
//! Commits show complete objects only. Before the first commit, the destination gets the attribute
//! `h5dir-copy`, which names the source file with its size and modification time; the end of the
//! copy removes it. A copy of the same source that finds the attribute skips files whose copies
//! have the same type, shape, attributes and references.
//!
//! Only a copy of one HDF5 file into a directory that was empty has the attribute: what is in the
//! directory later is of that copy.

use super::sink::SinkDirectory;
use crate::base::escape::escaped_bytes;
use crate::cli::side::argument::Argument;
use crate::cli::side::container::{Container, Held, error};
use crate::fs::Errno;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// The attribute of a destination into which a copy was begun.
const MARKER: &[u8] = b"user.h5dir-copy";

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
    container: Arc<Container>,
    directory: Arc<Held>,
    identity: Vec<u8>,
    /// The attribute is there.
    marked: bool,
    /// An interrupted copy is resumed.
    pub(super) resumed: bool,
}

impl Resume {
    /// Of a copy of `identity` into `directory`; `None`: it cannot be resumed.
    pub(super) fn begin(identity: Option<Vec<u8>>, directory: &dyn SinkDirectory) -> io::Result<Option<Resume>> {
        let (Some(identity), Some((container, held))) = (identity, directory.as_object()) else { return Ok(None) };
        let marked = match container.operations.getxattr(held.ino(), MARKER) {
            Ok(found) => found == identity,
            Err(Errno(libc::ENODATA)) => false,
            Err(e) => return Err(error(e)),
        };
        if !marked && !directory.is_empty()? {
            return Ok(None);
        }
        Ok(Some(Resume { container: container.clone(), directory: held.clone(), identity, marked, resumed: marked }))
    }

    /// Sets the attribute before objects are committed.
    pub(super) fn mark(&mut self) -> io::Result<()> {
        if !self.marked {
            self.container.operations.setxattr(self.directory.ino(), MARKER, &self.identity, 0).result.map_err(error)?;
            self.marked = true;
        }
        Ok(())
    }

    /// Removes the attribute: everything was copied.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.marked) {
            self.container.operations.removexattr(self.directory.ino(), MARKER).result.map_err(error)?;
        }
        Ok(())
    }
}
