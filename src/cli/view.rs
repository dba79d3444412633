//! Opens containers for commands that show them, and reports what fails.

use super::confine::confine_command;
use super::failure::{Exit, Failure, errno_text, reason};
use super::hints::DEAD_MOUNT;
use super::text;
use crate::base::escape::escaped;
use crate::config::value::Level;
use crate::fs::open::LocatedContainer;
use crate::fs::{Errno, MountSpec, Operations, open};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Opens the file system of `spec` in order to `verb` it; logs from `level` on.
///
/// First looks up the names of its owners, then confines the process.
pub(crate) fn open_view(spec: &MountSpec, verb: &str, level: Level) -> Result<(Arc<dyn Operations>, Owners), Failure> {
    let (located, owners) = locate_confined(spec, verb, level)?;
    Ok((open::open_located(spec, located).map_err(|e| Failure::open(verb, &e))?, owners))
}

/// Locates the container of `spec` in order to `verb` it, and confines the process.
pub(crate) fn locate_confined(spec: &MountSpec, verb: &str, level: Level) -> Result<(LocatedContainer, Owners), Failure> {
    super::logging::start_command(level, false)?;
    let failed = |e| Failure::open(verb, &e);
    let located = open::locate(spec).map_err(failed)?;
    let mut owners = Owners::default();
    owners.user(spec.uid);
    owners.group(spec.gid);
    confine_command(&located.directories().map_err(failed)?, spec.writable);
    Ok((located, owners))
}

/// Why a view could not be printed.
#[derive(Debug)]
pub(crate) enum ViewError {
    /// No such path, or it cannot be read.
    Path(Vec<u8>, Errno),
    /// The output takes no more.
    Output(io::Error),
    /// Any other failure.
    Failed(Failure),
}

impl From<io::Error> for ViewError {
    fn from(e: io::Error) -> Self {
        ViewError::Output(e)
    }
}

impl ViewError {
    /// Makes a failure of it. A closed pipe (`| head`) is none.
    pub(crate) fn into_result(self, spec: &MountSpec, asked: &[u8]) -> Result<(), Failure> {
        match self {
            ViewError::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            ViewError::Failed(failure) => Err(failure),
            ViewError::Output(e) => Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e)))),
            ViewError::Path(path, Errno(errno)) => {
                let path = if path.is_empty() { asked } else { &path };
                let (path, file) = (text::name(path), escaped(&spec.file));
                Err(match errno {
                    libc::ENOENT | libc::ENOTDIR | libc::ELOOP => {
                        let message = format!("cannot find {path} in {file}: {}; 'h5dir ls -R {file}' lists its paths", errno_text(errno));
                        Failure::new(Exit::Path, message)
                    }
                    libc::ENOTCONN => Failure::new(Exit::General, format!("cannot read {path} in {file}: {DEAD_MOUNT}")),
                    _ => Failure::new(Exit::General, format!("cannot read {path} in {file}: {}", errno_text(errno))),
                })
            }
        }
    }
}

/// Cached names of users and groups.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Owners {
    pub(crate) fn user(&mut self, id: u32) -> String {
        let find =
            || nix::unistd::User::from_uid(id.into()).ok().flatten().map_or_else(|| id.to_string(), |u| text::name(u.name.as_bytes()));
        self.users.entry(id).or_insert_with(find).clone()
    }

    pub(crate) fn group(&mut self, id: u32) -> String {
        let find =
            || nix::unistd::Group::from_gid(id.into()).ok().flatten().map_or_else(|| id.to_string(), |g| text::name(g.name.as_bytes()));
        self.groups.entry(id).or_insert_with(find).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_path_is_exit_code_5() {
        let spec = MountSpec::new("/f.h5");
        let error = ViewError::Path(b"/g/none".to_vec(), Errno(libc::ENOENT));
        let failure = error.into_result(&spec, b"/g/none").unwrap_err();
        assert_eq!(failure.exit, Exit::Path);
        assert!(failure.message.starts_with("cannot find /g/none in /f.h5: No such file or directory; "), "{}", failure.message);
        let pipe = ViewError::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(pipe.into_result(&spec, b"/"), Ok(()));
    }
}
