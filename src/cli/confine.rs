//! Confinement of the daemon: drops capabilities and file access after its files are opened.
//!
//! Both are properties of a thread, and threads that it starts inherit them. A [`Starter`] is a
//! thread that is confined before it reads the first byte of the container; it starts all other
//! threads of the daemon. The main thread mounts, which needs the rights, and is confined after
//! that. Another process unmounts (`fuse::unmounter`).

use crate::fs::open::UsedDirectory;
use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// Landlock access rights that the rules restrict: those of Linux 6.10.
const LANDLOCK_ABI: ABI = ABI::V5;
const READ_RIGHTS: [AccessFs; 2] = [AccessFs::ReadFile, AccessFs::ReadDir];
// ReadDir: fsync of a directory needs it open.
const WRITE_RIGHTS: [AccessFs; 6] =
    [AccessFs::ReadFile, AccessFs::ReadDir, AccessFs::WriteFile, AccessFs::Truncate, AccessFs::MakeReg, AccessFs::RemoveFile];
// A copy and a mounted directory also make directories and links, and link files of different
// directories.
const TREE_RIGHTS: [AccessFs; 10] = [
    AccessFs::ReadFile,
    AccessFs::ReadDir,
    AccessFs::WriteFile,
    AccessFs::Truncate,
    AccessFs::MakeReg,
    AccessFs::MakeDir,
    AccessFs::MakeSym,
    AccessFs::RemoveFile,
    AccessFs::RemoveDir,
    AccessFs::Refer,
];
const DEVICE_RIGHTS: [AccessFs; 3] = [AccessFs::ReadFile, AccessFs::WriteFile, AccessFs::IoctlDev];

/// Rights that a confined thread keeps.
#[derive(Debug)]
pub(crate) struct Rights {
    files: Option<RulesetCreated>,
    capabilities: CapsHashSet,
}

fn rights(of: &[AccessFs]) -> BitFlags<AccessFs> {
    of.iter().copied().collect()
}

fn io_error(e: impl std::fmt::Display) -> io::Error {
    io::Error::other(e.to_string())
}

fn allow(rules: RulesetCreated, target: impl AsFd, access: &[AccessFs]) -> Result<RulesetCreated, RulesetError> {
    rules.set_compatibility(CompatLevel::BestEffort).add_rule(PathBeneath::new(target, rights(access)))
}

fn allow_path(rules: RulesetCreated, path: &Path, access: &[AccessFs]) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(target) => allow(rules, target, access),
        // A path that does not exist needs no rule.
        Err(_) => Ok(rules),
    }
}

fn file_rules(directories: &[UsedDirectory], stay_awake: bool) -> Result<RulesetCreated, RulesetError> {
    let handled = AccessFs::from_all(LANDLOCK_ABI);
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(handled)?.create()?;
    for used in directories {
        let access: &[AccessFs] = match (used.written, used.tree) {
            (false, _) => &READ_RIGHTS,
            (true, false) => &WRITE_RIGHTS,
            (true, true) => &TREE_RIGHTS,
        };
        rules = allow(rules, &used.directory, access)?;
    }
    // Each event loop opens it.
    rules = allow_path(rules, Path::new("/dev/fuse"), &DEVICE_RIGHTS)?;
    if stay_awake {
        rules = allow_path(rules, Path::new("/dev/cpu_dma_latency"), &[AccessFs::WriteFile])?;
    }
    Ok(rules)
}

/// Capabilities for reading or changing files of all users, as far as this thread has them.
fn needed_capabilities(written: bool) -> Result<CapsHashSet, CapsError> {
    let mut wanted = CapsHashSet::from([Capability::CAP_DAC_READ_SEARCH]);
    if written {
        // For the journal: create, chown to the owner of the HDF5 file, unlink, in any directory.
        wanted.extend([Capability::CAP_DAC_OVERRIDE, Capability::CAP_CHOWN, Capability::CAP_FOWNER]);
    }
    let permitted = caps::read(None, CapSet::Permitted)?;
    Ok(wanted.intersection(&permitted).copied().collect())
}

impl Rights {
    /// Rights of a mount that uses `directories`.
    ///
    /// `written`: the mount changes the container. `stay_awake`: it writes /dev/cpu_dma_latency.
    pub(crate) fn new(directories: &[UsedDirectory], written: bool, stay_awake: bool) -> io::Result<Rights> {
        let files = file_rules(directories, stay_awake).map_err(io_error)?;
        Ok(Rights { files: Some(files), capabilities: needed_capabilities(written).map_err(io_error)? })
    }

    /// Rights of the process that unmounts: all files, for fusermount3 and the configuration, and
    /// CAP_SYS_ADMIN.
    pub(crate) fn to_unmount() -> io::Result<Rights> {
        let permitted = caps::read(None, CapSet::Permitted).map_err(io_error)?;
        let wanted = [Capability::CAP_SYS_ADMIN, Capability::CAP_DAC_READ_SEARCH];
        let capabilities = permitted.into_iter().filter(|c| wanted.contains(c)).collect();
        Ok(Rights { files: None, capabilities })
    }

    fn try_clone(&self) -> io::Result<Rights> {
        let files = self.files.as_ref().map(RulesetCreated::try_clone).transpose()?;
        Ok(Rights { files, capabilities: self.capabilities.clone() })
    }

    /// Confines the calling thread, and threads that it starts later, permanently.
    pub(crate) fn confine_thread(self) -> io::Result<()> {
        if let Some(rules) = self.files {
            let status = rules.restrict_self().map_err(io_error)?;
            if status.ruleset == RulesetStatus::NotEnforced {
                tracing::info!("this kernel has no Landlock: the daemon keeps the file access of its user");
            }
        }
        // Shrinking the bounding set needs a capability; without exec the set has no effect.
        caps::clear(None, CapSet::Inheritable).map_err(io_error)?;
        caps::set(None, CapSet::Effective, &self.capabilities).map_err(io_error)?;
        caps::set(None, CapSet::Permitted, &self.capabilities).map_err(io_error)
    }
}

/// Confines a command that parses a container and has started no thread.
///
/// Errors are logged only: a command is short-lived.
pub(crate) fn confine_command(directories: &[UsedDirectory], written: bool) {
    if let Err(e) = Rights::new(directories, written, false).and_then(Rights::confine_thread) {
        tracing::debug!("cannot confine the command: {e}");
    }
}

/// A local directory or file that a command copies from or to, with all that is in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tree<'a> {
    /// The file or directory.
    pub(crate) file: BorrowedFd<'a>,
    /// Files in it are created, replaced and removed.
    pub(crate) written: bool,
}

/// Confines a command that parses containers, copies `trees`, and has started no thread.
///
/// Errors are logged only: a command is short-lived.
pub(crate) fn confine_copy(directories: &[UsedDirectory], trees: &[Tree<'_>]) {
    let written = directories.iter().any(|d| d.written) || trees.iter().any(|t| t.written);
    let confine = || {
        let mut rights = Rights::new(directories, written, false)?;
        for tree in trees {
            let access: &[AccessFs] = if tree.written { &TREE_RIGHTS } else { &READ_RIGHTS };
            rights.files = rights.files.map(|rules| allow(rules, tree.file, access)).transpose().map_err(io_error)?;
        }
        rights.confine_thread()
    };
    if let Err(e) = confine() {
        tracing::debug!("cannot confine the command: {e}");
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A confined thread that starts the daemon's other threads, or the calling thread (`None`).
#[derive(Debug)]
pub(crate) struct Starter(Option<Sender<Job>>);

impl Starter {
    /// Starts a thread that keeps only `rights`.
    pub(crate) fn confined(rights: &Rights) -> io::Result<Starter> {
        let rights = rights.try_clone()?;
        let (jobs, receiver): (Sender<Job>, Receiver<Job>) = mpsc::channel();
        let (confined, outcome) = mpsc::channel();
        thread::Builder::new().name("h5dir-start".into()).spawn(move || {
            let done = rights.confine_thread();
            let works = done.is_ok();
            let _ = confined.send(done);
            if works {
                receiver.into_iter().for_each(|job| job());
            }
        })?;
        outcome.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Starter(Some(jobs)))
    }

    /// Runs work in the calling thread.
    pub(crate) fn unconfined() -> Starter {
        Starter(None)
    }

    /// Runs `work` in the thread and returns its result. Error: `work` panicked.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let Some(jobs) = &self.0 else { return Ok(work()) };
        let (sender, result) = mpsc::channel();
        let job = Box::new(move || drop(sender.send(work())));
        jobs.send(job).map_err(|_| io::Error::other("the starter thread ended"))?;
        result.recv().map_err(|_| io::Error::other("the starter thread panicked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::open::locate;
    use crate::fs::spec::MountSpec;
    use std::os::unix::fs::OpenOptionsExt;

    fn starter(path: &Path, written: bool) -> Starter {
        crate::fs::open::create(path, &crate::fs::NewFile::default()).unwrap();
        let spec = if written { MountSpec::writable(path) } else { MountSpec::new(path) };
        let directories = locate(&spec).unwrap().directories().unwrap();
        Starter::confined(&Rights::new(&directories, written, false).unwrap()).unwrap()
    }

    /// File access of a confined thread: read the container, fsync its directory, create a file
    /// beside it, read another file, create a temporary file.
    #[test]
    fn a_confined_thread_has_the_files_that_it_needs() {
        for written in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f.h5");
            let can = move || {
                let temporary = std::fs::OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open("/var/tmp").is_ok();
                let beside = std::fs::write(path.with_extension("new"), "x").is_ok();
                let durable = std::fs::File::open(path.parent().unwrap()).and_then(|d| d.sync_all()).is_ok();
                [std::fs::File::open(&path).is_ok(), durable, beside, std::fs::File::open("/etc/passwd").is_ok(), temporary]
            };
            assert_eq!(starter(&dir.path().join("f.h5"), written).run(can).unwrap(), [true, true, written, false, true]);
        }
    }

    #[test]
    fn a_confined_thread_has_the_capabilities_that_it_needs() {
        let dir = tempfile::tempdir().unwrap();
        let starter = starter(&dir.path().join("f.h5"), false);
        let sets = || [CapSet::Effective, CapSet::Permitted].map(|set| caps::read(None, set).unwrap());
        let read_search = CapsHashSet::from([Capability::CAP_DAC_READ_SEARCH]);
        let threads = starter.run(move || [sets(), thread::spawn(sets).join().unwrap()]).unwrap();
        assert!(threads.iter().flatten().all(|set| set.is_subset(&read_search)), "{threads:?}");
        assert!(starter.run(|| panic!("of the test")).is_err());
    }
}
