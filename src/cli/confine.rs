//! What the daemon gives up once it has opened its files: capabilities, and access to files that it does not need.
//!
//! Both are properties of a thread, which its later threads inherit. So all threads of the daemon are started by a [`Starter`],
//! a thread that is confined before it reads the first byte of the container. The main thread makes the mount, which needs the
//! rights, and confines itself after that. Unmounting is done by another process (`fuse::unmounter`).

use crate::fs::open::UsedDirectory;
use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// Access rights that are handled: those of Linux 6.10.
const HANDLED: ABI = ABI::V5;
const READ: [AccessFs; 2] = [AccessFs::ReadFile, AccessFs::ReadDir];
// Directories are opened to make new names durable.
const WRITE: [AccessFs; 6] =
    [AccessFs::ReadFile, AccessFs::ReadDir, AccessFs::WriteFile, AccessFs::Truncate, AccessFs::MakeReg, AccessFs::RemoveFile];
const DEVICE: [AccessFs; 3] = [AccessFs::ReadFile, AccessFs::WriteFile, AccessFs::IoctlDev];

/// What threads may do after they are confined.
#[derive(Debug)]
pub struct Rights {
    files: Option<RulesetCreated>,
    capabilities: CapsHashSet,
}

fn rights(of: &[AccessFs]) -> BitFlags<AccessFs> {
    of.iter().copied().collect()
}

fn other(e: impl std::fmt::Display) -> io::Error {
    io::Error::other(e.to_string())
}

fn allow(rules: RulesetCreated, target: impl AsFd, access: &[AccessFs]) -> Result<RulesetCreated, RulesetError> {
    rules.set_compatibility(CompatLevel::BestEffort).add_rule(PathBeneath::new(target, rights(access)))
}

fn allow_path(rules: RulesetCreated, path: &Path, access: &[AccessFs]) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(target) => allow(rules, target, access),
        // What is not there needs no rule.
        Err(_) => Ok(rules),
    }
}

fn file_rules(directories: &[UsedDirectory], stay_awake: bool) -> Result<RulesetCreated, RulesetError> {
    let handled = AccessFs::from_all(HANDLED);
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(handled)?.create()?;
    for used in directories {
        rules = allow(rules, &used.directory, if used.written { &WRITE } else { &READ })?;
    }
    // Event loops open it once each.
    rules = allow_path(rules, Path::new("/dev/fuse"), &DEVICE)?;
    if stay_awake {
        rules = allow_path(rules, Path::new("/dev/cpu_dma_latency"), &[AccessFs::WriteFile])?;
    }
    Ok(rules)
}

/// Capabilities that reading, or changing, files of all users needs, as far as this thread has them.
fn needed_capabilities(written: bool) -> Result<CapsHashSet, CapsError> {
    let mut wanted = CapsHashSet::from([Capability::CAP_DAC_READ_SEARCH]);
    if written {
        // The journal is created, given to the owner of the HDF5 file, and removed, also in directories of others.
        wanted.extend([Capability::CAP_DAC_OVERRIDE, Capability::CAP_CHOWN, Capability::CAP_FOWNER]);
    }
    let permitted = caps::read(None, CapSet::Permitted)?;
    Ok(wanted.intersection(&permitted).copied().collect())
}

impl Rights {
    /// Those of a mount that uses `directories`; `written`: the container is changed; `stay_awake`: /dev/cpu_dma_latency is used.
    pub fn new(directories: &[UsedDirectory], written: bool, stay_awake: bool) -> io::Result<Rights> {
        let files = file_rules(directories, stay_awake).map_err(other)?;
        Ok(Rights { files: Some(files), capabilities: needed_capabilities(written).map_err(other)? })
    }

    /// Those of the process that unmounts: all files, as fusermount3 may be needed, and CAP_SYS_ADMIN.
    pub fn to_unmount() -> io::Result<Rights> {
        let permitted = caps::read(None, CapSet::Permitted).map_err(other)?;
        let capabilities = permitted.into_iter().filter(|c| *c == Capability::CAP_SYS_ADMIN).collect();
        Ok(Rights { files: None, capabilities })
    }

    fn try_clone(&self) -> io::Result<Rights> {
        let files = self.files.as_ref().map(RulesetCreated::try_clone).transpose()?;
        Ok(Rights { files, capabilities: self.capabilities.clone() })
    }

    /// Confines the calling thread, and those that it starts later, for ever.
    pub fn confine_thread(self) -> io::Result<()> {
        if let Some(rules) = self.files {
            let status = rules.restrict_self().map_err(other)?;
            if status.ruleset == RulesetStatus::NotEnforced {
                tracing::info!("this kernel has no Landlock: the daemon can open all files that its user can");
            }
        }
        // Dropping from the bounding set needs a capability itself; without exec it makes no difference.
        caps::clear(None, CapSet::Inheritable).map_err(other)?;
        caps::set(None, CapSet::Effective, &self.capabilities).map_err(other)?;
        caps::set(None, CapSet::Permitted, &self.capabilities).map_err(other)
    }
}

/// Confines a command that parses a container and has started no thread. A command does not live long: where it cannot be
/// confined, it goes on.
pub fn confine_command(directories: &[UsedDirectory], written: bool) {
    if let Err(e) = Rights::new(directories, written, false).and_then(Rights::confine_thread) {
        tracing::debug!("the command keeps its rights: {e}");
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A confined thread that starts the daemon's other threads; without rights to give up, work is done by the caller.
#[derive(Debug)]
pub struct Starter(Option<Sender<Job>>);

impl Starter {
    /// One whose thread keeps only `rights`.
    pub fn confined(rights: &Rights) -> io::Result<Starter> {
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

    /// One that works in the caller's thread.
    pub fn unconfined() -> Starter {
        Starter(None)
    }

    /// Does `work` there and returns its result. Error: it panicked.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let Some(jobs) = &self.0 else { return Ok(work()) };
        let (sender, result) = mpsc::channel();
        let job = Box::new(move || drop(sender.send(work())));
        jobs.send(job).map_err(|_| io::Error::other("the thread that starts others ended"))?;
        result.recv().map_err(|_| io::Error::other("the thread that starts others panicked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::open::locate;
    use crate::fs::spec::MountSpec;
    use std::os::unix::fs::OpenOptionsExt;

    fn starter(path: &Path, written: bool) -> Starter {
        crate::fs::open::create(path, false).unwrap();
        let spec = if written { MountSpec::writable(path) } else { MountSpec::new(path) };
        let directories = locate(&spec).unwrap().directories().unwrap();
        Starter::confined(&Rights::new(&directories, written, false).unwrap()).unwrap()
    }

    /// What a confined thread can do with files: read the container, make names in its directory durable, create a file beside
    /// it, read another file, create a temporary file.
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
