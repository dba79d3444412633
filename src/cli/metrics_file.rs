//! `--metrics-file`: measurements for the textfile collector of Prometheus' node_exporter.
//!
//! The directory is opened before the daemon drops its rights. A new file replaces the old one by
//! rename(2), so that a reader finds a whole file at any time.

use super::failure::{Exit, Failure, reason};
use crate::base::escape::escaped;
use crate::base::locks::Mutex;
use crate::config::resolve::MetricsPlan;
use crate::fs::open::{Resolved, UsedDirectory};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Permissions of the file: node_exporter runs as another user.
const FILE_MODE: Mode = Mode::from_bits_truncate(0o644);

/// The file of measurements, which is removed at the end.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
    temporary: OsString,
    /// Nothing is written any more.
    has_ended: Mutex<bool>,
}

impl MetricsFile {
    /// Opens the directory of the file.
    pub(crate) fn open(plan: &MetricsPlan) -> Result<MetricsFile, Failure> {
        let path = plan.file.clone();
        if path.file_name().is_none() {
            return Err(failure(&path, "it is no name of a file"));
        }
        let place = |path: &Path| {
            let found = Resolved::new_name(path)?;
            Ok((found.directory.as_fd().try_clone_to_owned()?, found.name))
        };
        let (directory, name) = place(&path).map_err(|e: io::Error| failure(&path, &reason(&e)))?;
        let mut temporary = OsString::from(".");
        temporary.push(&name);
        temporary.push(".h5dir-new");
        Ok(MetricsFile { path, directory, name, temporary, has_ended: Mutex::new(false) })
    }

    /// The directory, for the confinement of the daemon.
    pub(crate) fn directory(&self) -> io::Result<UsedDirectory> {
        Ok(UsedDirectory { directory: self.directory.try_clone()?, written: true, tree: false })
    }

    /// Replaces the file; not after [`MetricsFile::end`].
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let has_ended = self.has_ended.lock();
        if *has_ended { Ok(()) } else { self.replace(text).map_err(|e| failure(&self.path, &reason(&e))) }
    }

    /// Removes the file: measurements of a mount that has ended are none. The thread that writes it
    /// may not be asked before the process ends.
    pub(crate) fn end(&self) {
        *self.has_ended.lock() = true;
        let _ = unlinkat(self.directory.as_fd(), self.name.as_os_str(), UnlinkatFlags::NoRemoveDir);
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let directory = self.directory.as_fd();
        // A daemon that was killed may have left it.
        match unlinkat(directory, self.temporary.as_os_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(directory, self.temporary.as_os_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
        let written = file.write_all(text.as_bytes()).and_then(|()| Ok(fchmod(&file, FILE_MODE)?));
        let renamed = written.and_then(|()| Ok(renameat(directory, self.temporary.as_os_str(), directory, self.name.as_os_str())?));
        renamed.inspect_err(|_| {
            // The error that counts is the first one.
            let _ = unlinkat(directory, self.temporary.as_os_str(), UnlinkatFlags::NoRemoveDir);
        })
    }
}

impl Drop for MetricsFile {
    fn drop(&mut self) {
        self.end();
    }
}

fn failure(path: &Path, why: &str) -> Failure {
    let who = "the daemon needs write permission for the directory, as root without CAP_DAC_OVERRIDE";
    Failure::new(Exit::General, format!("cannot write the metrics file {}: {why}; {who}", escaped(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    #[test]
    fn the_file_is_replaced_and_removed() {
        let place = tempfile::tempdir().unwrap();
        let names = || {
            let mut names: Vec<_> =
                std::fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let file = place.path().join("h5dir.prom");
        std::fs::write(place.path().join(".h5dir.prom.h5dir-new"), "left by a daemon that was killed").unwrap();
        std::fs::write(place.path().join("other"), "x").unwrap();
        std::os::unix::fs::symlink("other", &file).unwrap();
        let metrics = MetricsFile::open(&MetricsPlan { file: file.clone(), every: Duration::from_secs(1) }).unwrap();
        for text in ["a 1\n", "a 2\n"] {
            metrics.write(text).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
            assert_eq!(names(), ["h5dir.prom", "other"]);
        }
        assert_eq!(file.symlink_metadata().unwrap().permissions().mode() & 0o7777, 0o644);
        assert_eq!(std::fs::read_to_string(place.path().join("other")).unwrap(), "x");
        metrics.end();
        // The thread that writes it has not ended yet.
        metrics.write("a 3\n").unwrap();
        assert_eq!(names(), ["other"]);
        drop(metrics);
        std::fs::create_dir(&file).unwrap();
        let metrics = MetricsFile::open(&MetricsPlan { file: file.clone(), every: Duration::from_secs(1) }).unwrap();
        let why = metrics.write("a 1\n").unwrap_err();
        assert!(why.message.contains("h5dir.prom: ") && why.exit == Exit::General, "{why:?}");
        assert_eq!(names(), ["h5dir.prom", "other"]);
        let absent = MetricsPlan { file: place.path().join("absent/x"), every: Duration::from_secs(1) };
        assert!(MetricsFile::open(&absent).unwrap_err().message.contains("No such file or directory"));
    }
}
