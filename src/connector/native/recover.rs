//! `h5dir recover`: what an interrupted writer left behind is made good.

use crate::base::{Address, Error, Result};
use crate::container::first_change::FirstChange;
use crate::file::beside::BesideFile;
use crate::file::journal::Finished;
use crate::file::posix::PosixFile;
use crate::file::{FileDriver, JournalPlace, WriteDriver, journal};
use crate::format::superblock::{IN_USE, Superblock};
use crate::meta::Store;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What was found and done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// An interrupted commit was finished from its journal.
    pub finished: bool,
    /// A journal that nothing waited for was removed.
    pub removed: bool,
    /// The mark of a writer that is gone was taken off.
    pub unmarked: bool,
    /// Bytes behind the end of the file that the superblock told: it tells them now, as a writer that is gone may have put data there.
    pub kept: u64,
    /// The file remembered free space, which a writer that is gone may have taken: it remembers none now.
    pub forgotten: bool,
}

/// How files are locked: `HDF5_USE_FILE_LOCKING`; `None` if they are not.
fn locking() -> Option<String> {
    let rule = std::env::var("HDF5_USE_FILE_LOCKING").unwrap_or_default();
    (!matches!(rule.as_str(), "FALSE" | "0")).then_some(rule)
}

/// Takes libhdf5's lock on `file`, as `HDF5_USE_FILE_LOCKING` has it. Held until `file` is closed.
fn lock(file: &PosixFile) -> Result<()> {
    locking().map_or(Ok(()), |rule| locked(&rule, file.lock_exclusive()))
}

/// Opens `path` to change it for a while. Other programs that write it, with a lock or without, are an obstacle unless
/// `HDF5_USE_FILE_LOCKING` says that they are none.
pub fn open_to_change(path: &Path, failed: impl Fn(io::Error) -> Error + Copy) -> Result<PosixFile> {
    if locking().is_some() { open_unused(path, failed) } else { PosixFile::open_writable(path).map_err(failed) }
}

fn in_use() -> Error {
    let reason = "another program has it open; end that program first, or unmount the file ('findmnt -t fuse.h5dir' lists mounts)";
    Error::refused(libc::EWOULDBLOCK, reason)
}

/// What the outcome of locking means under `rule`.
fn locked(rule: &str, outcome: io::Result<()>) -> Result<()> {
    match outcome {
        Ok(()) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EWOULDBLOCK) => Err(in_use()),
        // The file system has no locks.
        Err(e) if rule == "BEST_EFFORT" && matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP)) => Ok(()),
        Err(e) => Err(Error::io("lock", Address(0), &e)),
    }
}

/// Opens `path` for reading and writing, and locks it, if no other program writes it. A lock alone does not tell: libhdf5 gives its
/// own up when SWMR writing starts.
fn open_unused(path: &Path, failed: impl Fn(io::Error) -> Error + Copy) -> Result<PosixFile> {
    let reader = PosixFile::open(path).map_err(failed)?;
    let stamp = reader.status().map_err(failed)?.stamp();
    if reader.is_written() {
        return Err(in_use());
    }
    let file = PosixFile::open_writable(path).map_err(failed)?;
    lock(&file)?;
    // Whoever began to write between the two has flagged the file.
    if file.status().map_err(failed)?.stamp() != stamp {
        return Err(in_use());
    }
    Ok(file)
}

/// What the file `file` remembers as free space, in the superblock `extension`, may be in use. Returns whether it remembered some.
fn forget_space(file: &Arc<PosixFile>, place: BesideFile, extension: Address) -> Result<bool> {
    if !extension.is_defined() {
        return Ok(false);
    }
    let store = Store::open_writable(file.clone(), Box::new(place))?;
    let some = FirstChange::forget_space(&store, extension)?;
    if some {
        store.close()?;
    }
    Ok(some)
}

/// Finishes what an interrupted writer of the file `path` began.
pub fn recover(path: &Path) -> Result<Recovered> {
    let failed = |operation| move |e: io::Error| Error::io(operation, Address(0), &e);
    // The journal lies beside the file itself, not beside a link to it.
    let path = path.canonicalize().map_err(failed("open"))?;
    let file = open_unused(&path, failed("open"))?;
    let place = BesideFile::new(&path);
    let file = Arc::new(file);
    let finished = journal::recover(&*file, &place).map_err(failed("recover"))?;
    // Without a journal that counts the file must at least be one, and wait for none.
    let mut store = Store::open(file.clone())?;
    store.refuse_marked(&place)?;
    let told = store.superblock().clone();
    let len = file.status().map_err(failed("stat"))?.len;
    let unmarked = told.is_in_use();
    // No session of ours leaves a file flagged.
    let ours = !told.is_unclosed() && (finished || place.open().map_err(failed("recover"))?.is_some());
    if let Some(end) = store.told_end(len).filter(|&end| ours && !finished && end < len) {
        // Never committed. The journal goes after it, as without one it would be taken for somebody's data.
        file.set_len(end).and_then(|()| file.sync()).map_err(failed("recover"))?;
    }
    let removed = !finished && journal::discard(&place).map_err(failed("recover"))?;
    let longer = store.with_tail(&*file, len).filter(|_| !ours);
    let kept = longer.as_ref().map_or(0, |s| s.eof.0.saturating_sub(told.eof.0));
    if let Some(longer) = longer {
        store.replace_superblock(&*file, longer)?;
    }
    let forgotten = told.is_unclosed() && forget_space(&file, place, told.extension)?;
    // Last: stopped before, it is all done again.
    if unmarked || forgotten {
        let mut store = Store::open(file.clone())?;
        let now = store.superblock().clone();
        store.replace_superblock(&*file, Superblock { flags: now.flags & !IN_USE, ..now })?;
    }
    Ok(Recovered { finished, removed, unmarked, kept, forgotten })
}

/// The file `path` for reading, as it is after an interrupted commit was finished: in the file if it may be written, else
/// in memory only.
pub fn open_for_reading(path: &Path) -> Result<Arc<dyn FileDriver>> {
    let failed = |operation| move |e: io::Error| Error::io(operation, Address(0), &e);
    let file = PosixFile::open(path).map_err(failed("open"))?;
    let place = BesideFile::new(&path.canonicalize().map_err(failed("open"))?);
    // A journal that can't be read concerns nobody unless the file waits for it.
    let Ok(Some(pending)) = journal::pending(&file, &place) else {
        if let Ok(store) = Store::open(Arc::new(PosixFile::open(path).map_err(failed("open"))?)) {
            store.refuse_marked(&place)?;
        }
        return Ok(Arc::new(file));
    };
    match recover(path) {
        Ok(_) => PosixFile::open(path).map(|f| Arc::new(f) as Arc<dyn FileDriver>).map_err(failed("open")),
        Err(e) => {
            tracing::warn!("{}: an interrupted commit is finished in memory only: {e}", path.display());
            Ok(Arc::new(Finished::new(file, &pending).map_err(failed("read"))?))
        }
    }
}

/// The open file `file`, named `path`, as it is after an interrupted commit was finished in memory; so is a commit that is under way.
pub fn as_finished(file: PosixFile, path: &Path) -> Result<Arc<dyn FileDriver>> {
    let place = BesideFile::new(path);
    if let Ok(Some(pending)) = journal::pending(&file, &place) {
        return Ok(Arc::new(Finished::new(file, &pending).map_err(|e| Error::io("read", Address(0), &e))?));
    }
    let file = Arc::new(file);
    Store::open(file.clone())?.refuse_marked(&place)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::native::create::create;
    use crate::connector::native::external::Neighbours;
    use crate::connector::native::{NativeConnector, Options};
    use crate::dataset::environment::Environment;
    use crate::dataset::virtual_::MissingPolicy;
    use crate::file::journal::Journal;
    use crate::file::memory::MemoryFile;
    use std::path::PathBuf;

    #[test]
    fn a_file_system_without_locks_is_no_obstacle_to_best_effort() {
        let outcome = |errno| Err(io::Error::from_raw_os_error(errno));
        for rule in ["", "TRUE", "1", "BEST_EFFORT"] {
            assert_eq!(locked(rule, outcome(libc::ENOSYS)).is_ok(), rule == "BEST_EFFORT");
            assert_eq!(locked(rule, outcome(libc::EOPNOTSUPP)).is_ok(), rule == "BEST_EFFORT");
            assert!(locked(rule, outcome(libc::EWOULDBLOCK)).is_err() && locked(rule, Ok(())).is_ok());
        }
    }

    /// The file `whole` after a commit that stopped when the file was marked, and the journal.
    fn interrupted(whole: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut settled = whole.to_vec();
        settled.resize(512, 0);
        let store = Store::open(Arc::new(MemoryFile::new(whole.to_vec()))).unwrap();
        let mut superblock = store.superblock().clone();
        (superblock.eof, superblock.flags) = (Address(superblock.eof.0 | 1 << 62), 1);
        let marked = [superblock.encode().unwrap(), settled[48..].to_vec()].concat();
        let journal = Journal { root: 0, marked: marked.clone(), settled, records: vec![(512, vec![7; 512])] };
        ([marked, vec![0; 512]].concat(), journal.encode())
    }

    fn open_for_writing(path: &Path) -> Result<()> {
        let environment = Arc::new(Environment::new(1 << 20, 0, 1).unwrap());
        let options = Options { environment, neighbours: Arc::new(Neighbours::new(None)), missing: MissingPolicy::Error };
        NativeConnector::open_writable(path, PathBuf::from("/"), options).map(|_| ())
    }

    /// Regression: whoever opened the file for writing removed what was beside it, then refused the file.
    #[test]
    fn a_file_that_waits_keeps_a_journal_that_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.h5");
        create(&path, false).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let place = BesideFile::new(&path).path();
        let (waiting, journal) = interrupted(&whole);
        let mut flipped = journal.clone();
        flipped[600] ^= 1;
        let of_another = Journal { root: 0, marked: vec![1; 512], settled: vec![2; 512], records: Vec::new() }.encode();
        for other in [journal[..1000].to_vec(), flipped, of_another, Vec::new()] {
            std::fs::write(&path, &waiting).unwrap();
            std::fs::write(&place, &other).unwrap();
            let refused = recover(&path).unwrap_err();
            assert!(refused.to_string().contains("an interrupted commit awaits its journal"), "{refused}");
            assert_eq!(open_for_writing(&path), Err(refused.clone()));
            assert_eq!(open_for_reading(&path).err(), Some(refused));
            assert_eq!((std::fs::read(&place).unwrap(), std::fs::read(&path).unwrap()), (other.clone(), waiting.clone()));
            // One that waits for none is opened, and has the name for its own.
            std::fs::write(&path, &whole).unwrap();
            assert_eq!(open_for_writing(&path), Ok(()));
            assert!(!place.exists());
        }
        // What is no file is none, and is named.
        nix::unistd::mkfifo(&place, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let is_told = |e: Option<Error>| e.is_some_and(|e| e.to_string().contains(&format!("{} is a FIFO", place.display())));
        assert!(is_told(open_for_writing(&path).err()), "the name is needed");
        assert!(open_for_reading(&path).is_ok() && recover(&path) == Ok(Recovered::default()));
        std::fs::write(&path, &waiting).unwrap();
        assert!(is_told(open_for_writing(&path).err()) && is_told(open_for_reading(&path).err()) && is_told(recover(&path).err()));
        std::fs::remove_file(&place).unwrap();

        std::fs::write(&place, &journal).unwrap();
        assert_eq!(open_for_writing(&path), Ok(()));
        assert_eq!((place.exists(), std::fs::read(&path).unwrap()[512..].to_vec()), (false, vec![7; 512]));
        // It has done what it was for.
        std::fs::write(&place, &journal).unwrap();
        assert_eq!(open_for_writing(&path), Ok(()));
        assert!(!place.exists());
    }

    #[test]
    fn a_marked_file_is_finished_or_unmarked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.h5");
        create(&path, false).unwrap();
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(recover(&path), Ok(Recovered::default()));

        let place = BesideFile::new(&path);
        let (waiting, journal) = interrupted(&whole);
        std::fs::write(place.path(), journal).unwrap();
        std::fs::write(&path, waiting).unwrap();
        assert_eq!(recover(&path), Ok(Recovered { finished: true, ..Recovered::default() }));
        assert!(!place.path().exists());
        assert_eq!(std::fs::read(&path).unwrap()[512..], [7; 512]);

        std::fs::write(place.path(), b"cut short").unwrap();
        assert_eq!(recover(&path), Ok(Recovered { removed: true, ..Recovered::default() }));

        // A writer that died.
        std::fs::write(&path, &whole).unwrap();
        let mut superblock = Store::open(Arc::new(PosixFile::open(&path).unwrap())).unwrap().superblock().clone();
        superblock.flags = 5;
        std::fs::write(&path, [superblock.encode().unwrap(), whole[48..].to_vec()].concat()).unwrap();
        assert_eq!(recover(&path), Ok(Recovered { unmarked: true, ..Recovered::default() }));
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }

    /// Regression: the mark was taken off, and the next mount that wrote gave away what the superblock had not told of.
    #[test]
    fn what_a_writer_had_not_told_the_end_of_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.h5");
        create(&path, false).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let superblock = Store::open(Arc::new(PosixFile::open(&path).unwrap())).unwrap().superblock().clone();
        let place = BesideFile::new(&path);
        // (flags, a journal of ours lies beside it, what is kept)
        for (flags, journal, kept) in [(5, false, 1000), (5, true, 1000), (1, false, 1000), (0, false, 1000), (0, true, 0)] {
            let told = Superblock { flags, ..superblock.clone() };
            let long = [told.encode().unwrap(), whole[48..].to_vec(), vec![7; 1000]].concat();
            std::fs::write(&path, &long).unwrap();
            if journal {
                std::fs::write(place.path(), b"").unwrap();
            }
            assert_eq!(recover(&path), Ok(Recovered { removed: journal, unmarked: flags != 0, kept, ..Recovered::default() }));
            let now = Store::open(Arc::new(PosixFile::open(&path).unwrap())).unwrap().superblock().clone();
            assert_eq!(now, Superblock { eof: Address(superblock.eof.0 + kept), ..superblock.clone() });
            let end = now.eof.0 as usize;
            assert!(std::fs::read(&path).unwrap()[48..] == long[48..end], "what was never committed is cut off");
            assert_eq!(recover(&path), Ok(Recovered::default()));
        }
        // A terabyte that nobody wrote.
        std::fs::write(&path, [&whole[..], &[7; 10_000]].concat()).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let kept = recover(&path).unwrap().kept;
        assert!((10_000..10_000 + 65_536).contains(&kept), "{kept}");
    }

    #[test]
    fn a_file_in_use_or_of_another_kind_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.h5");
        create(&path, false).unwrap();
        let other = PosixFile::open(&path).unwrap();
        other.lock_exclusive().unwrap();
        assert!(matches!(recover(&path), Err(Error::Refused { errno: libc::EWOULDBLOCK, .. })));
        drop(other);
        // A writer without a lock.
        let other = PosixFile::open_writable(&path).unwrap();
        assert!(matches!(recover(&path), Err(Error::Refused { errno: libc::EWOULDBLOCK, .. })));
        drop(other);
        assert_eq!(recover(&path), Ok(Recovered::default()));
        std::fs::write(dir.path().join("text"), "text").unwrap();
        assert!(matches!(recover(&dir.path().join("text")), Err(Error::Corrupt { .. })));
    }
}
