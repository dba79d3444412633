//! Failure of a command: exit code and one sentence (what failed, where, what to do).

use super::hints;
use crate::base;
use crate::base::escape::{escaped, escaped_bytes};
use crate::base::request_error::RequestError;
use crate::config::UsageError;
use crate::fs::OpenError;
use crate::fuse::{DeviceDefect, MountError, UnmountError};
use std::io;
use std::path::Path;

/// Exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Any other failure.
    General = 1,
    /// Wrong option, value or configuration file.
    Usage = 2,
    /// The file cannot be opened or is not HDF5.
    File = 3,
    /// Mounting or unmounting failed.
    Mount = 4,
    /// No such path inside the file.
    Path = 5,
}

impl Exit {
    /// The exit code of a command that ended in both ways: the higher one.
    pub(crate) fn worse(self, other: Exit) -> Exit {
        if self as u8 >= other as u8 { self } else { other }
    }

    /// Converts a number; unknown ones are [`Exit::General`].
    pub(crate) fn from_code(code: u8) -> Exit {
        [Exit::Usage, Exit::File, Exit::Mount, Exit::Path].into_iter().find(|e| *e as u8 == code).unwrap_or(Exit::General)
    }
}

/// Failure of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Exit code.
    pub(crate) exit: Exit,
    /// What failed, where, and what to do.
    pub(crate) message: String,
}

impl Failure {
    /// Makes a failure.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure { exit, message: message.into() }
    }

    /// A failure whose message was printed.
    pub(crate) fn reported(exit: Exit) -> Self {
        Failure::new(exit, "")
    }

    /// Failure to open a container in order to `verb` it.
    pub(crate) fn open(verb: &str, error: &OpenError) -> Self {
        match error {
            OpenError::Open { path, source } if RequestError::of(source).is_some() => {
                Self::new(Exit::File, format!("cannot {verb} {}: {source}", escaped(path)))
            }
            OpenError::Open { path, source } => {
                let hint = hints::of_error(verb, path, source);
                Self::new(Exit::File, format!("cannot {verb} {}: {}; {hint}", escaped(path), reason(source)))
            }
            OpenError::NotHdf5 { path } => {
                let (what, advice) = hints::of_format(path).map_or_else(
                    || ("not an HDF5 file (no HDF5 signature at 0, 512, 1024, ...)".into(), "check the path"),
                    |(what, advice)| (format!("{what}, not an HDF5 file"), advice),
                );
                Self::new(Exit::File, format!("cannot {verb} {}: it is {what}; {advice}", escaped(path)))
            }
            OpenError::Engine { path, source } => {
                let hint = match source {
                    base::Error::Corrupt { .. } if verb == "recover" => "; 'h5dir mount --rescue' shows what is left",
                    base::Error::Corrupt { .. } => "; the file is damaged",
                    base::Error::Unsupported { .. } | base::Error::Limit { .. } => "; h5dir does not support such files",
                    base::Error::Io { .. } | base::Error::OnDisk { .. } => "; check the storage",
                    base::Error::Request { .. } | base::Error::Missing { .. } | base::Error::Refused { .. } => "",
                };
                Self::new(Exit::File, format!("cannot {verb} {}: {source}{hint}", escaped(path)))
            }
            OpenError::Remote { path, message } => Self::new(Exit::File, format!("cannot {verb} {}: {message}", escaped(path))),
            OpenError::NoSuchGroup { path, group, kind } => {
                let group = escaped_bytes(group);
                let file = escaped(path);
                if let Some(kind) = kind {
                    let message = format!("cannot {verb} {file}:{group}: it is {kind}, not a group; 'h5dir cat' prints a dataset");
                    return Self::new(Exit::Path, message);
                }
                Self::new(Exit::Path, format!("cannot {verb} {file}: it has no group {group}; 'h5dir ls -R {file}' lists its groups"))
            }
        }
    }

    /// Failure to mount `source`.
    pub(crate) fn mount(source: &str, error: &MountError) -> Self {
        let hint = match error {
            MountError::Mountpoint { source, .. } if source.kind() == io::ErrorKind::NotFound => "; create it with mkdir",
            MountError::NotDirectory { .. } => "; give an existing directory",
            MountError::AlreadyMounted { .. } => "; unmount it first with 'h5dir umount'",
            MountError::Device { defect, .. } => device_hint(*defect),
            _ => "",
        };
        let text = match error {
            MountError::Mountpoint { path, source } => format!("the mountpoint {} cannot be used: {}", escaped(path), reason(source)),
            MountError::Device { defect: DeviceDefect::NoKernelSupport, source } => {
                format!("the kernel has no FUSE (/dev/fuse: {})", reason(source))
            }
            MountError::Device { defect: DeviceDefect::NoFile, .. } => "/dev/fuse is missing, although the kernel has FUSE".into(),
            MountError::Device { source, .. } => format!("/dev/fuse cannot be opened: {}", reason(source)),
            MountError::NoAnswer { path, source } => format!("the mount at {} does not answer: {}", escaped(path), reason(source)),
            other => other.to_string(),
        };
        Self::new(Exit::Mount, format!("cannot mount {}: {text}{hint}", escaped(source)))
    }

    /// Failure to unmount `mountpoint`.
    pub(crate) fn unmount(mountpoint: &Path, error: &UnmountError) -> Self {
        let at = escaped(mountpoint);
        let message = match error {
            UnmountError::NotMounted => format!("cannot unmount {at}: nothing is mounted there; 'findmnt -t fuse.h5dir' lists the mounts"),
            UnmountError::Busy => {
                format!("cannot unmount {at}: it is in use; 'fuser -vm {at}' lists the processes, 'h5dir umount --lazy {at}' detaches it")
            }
            UnmountError::System(e) => format!("cannot unmount {at}: {}", reason(e)),
            other => format!("cannot unmount {at}: {other}"),
        };
        Self::new(Exit::Mount, message)
    }
}

impl From<UsageError> for Failure {
    fn from(e: UsageError) -> Self {
        Failure::new(Exit::Usage, e.0)
    }
}

/// What to do about /dev/fuse.
fn device_hint(defect: DeviceDefect) -> &'static str {
    match defect {
        DeviceDefect::NoKernelSupport => "; load its module with 'modprobe fuse', or use a kernel with CONFIG_FUSE_FS",
        DeviceDefect::NoFile => {
            "; start a container with --device /dev/fuse --cap-add SYS_ADMIN, elsewhere run 'mknod -m 666 /dev/fuse c 10 229' as root"
        }
        DeviceDefect::Mode => "; run 'chmod 666 /dev/fuse' as root",
        DeviceDefect::ControlGroup => "; start the container with --device /dev/fuse --cap-add SYS_ADMIN",
        DeviceDefect::Other => "; 'ls -l /dev/fuse' should show the device 10, 229",
    }
}

/// Text of an I/O error, without the errno number.
pub(crate) fn reason(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), errno_text)
}

/// Text of an errno.
pub(crate) fn errno_text(errno: i32) -> String {
    nix::errno::Errno::from_raw(errno).desc().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_object_and_a_remedy() {
        let f = Failure::open("mount", &OpenError::NotHdf5 { path: "/x/y.h5".into() });
        assert_eq!(f.message, "cannot mount /x/y.h5: it is not an HDF5 file (no HDF5 signature at 0, 512, 1024, ...); check the path");
        let f = Failure::open("list", &OpenError::Open { path: "/x".into(), source: io::Error::from_raw_os_error(libc::ENOENT) });
        assert_eq!((f.exit, f.message.as_str()), (Exit::File, "cannot list /x: No such file or directory; check the path"));
        let f = Failure::open("mount", &OpenError::Open { path: "/x".into(), source: io::Error::from_raw_os_error(libc::EROFS) });
        assert!(f.message.contains("Read-only file system; ") && f.message.contains("without --read-write"), "{}", f.message);
        let f = Failure::unmount(Path::new("/m"), &UnmountError::Busy);
        assert!(f.message.contains("in use") && f.message.contains("--lazy"));
        assert_eq!(Exit::from_code(5), Exit::Path);
        assert_eq!(Exit::from_code(77), Exit::General);
    }
}
