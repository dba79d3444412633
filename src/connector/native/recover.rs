//! `h5dir recover`, and opening a file that an interrupted writer left behind.

use crate::base::escape::escaped;
use crate::base::{Address, Error, Result};
use crate::file::host_file::HostFile;
use crate::file::journal_path::JournalPath;
use crate::file::lock_holder;
use crate::file::memory::MemoryJournal;
use crate::file::posix::PosixFile;
use crate::file::{FileDriver, JournalPlace, WriteDriver};
use crate::format::superblock::{IN_USE, Superblock};
use crate::meta::Store;
use crate::meta::recovery::{self, OldJournals};
use crate::structures::before_first_write::BeforeFirstWrite;
use std::io;
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
    /// Bytes past the recorded EOF: the EOF includes them now, as a writer
    /// that is gone may have put data there.
    pub kept: u64,
    /// The file remembered free space, which a writer that is gone may have taken: it remembers
    /// none now.
    pub forgotten: bool,
}

/// How files are locked: `HDF5_USE_FILE_LOCKING`; `None` if they are not.
fn locking() -> Option<String> {
    let rule = std::env::var("HDF5_USE_FILE_LOCKING").unwrap_or_default();
    (!matches!(rule.as_str(), "FALSE" | "0")).then_some(rule)
}

/// Takes libhdf5's lock on `file`, as `HDF5_USE_FILE_LOCKING` has it. Held until `file` is closed.
fn lock(file: &PosixFile) -> Result<()> {
    locking().map_or(Ok(()), |rule| locked(&rule, file.lock_exclusive(), || in_use(file)))
}

/// Lets readers lock `file`, which [`open_to_change`] locked. The flags of a SWMR writer keep other
/// writers from it.
pub fn share_lock(file: &PosixFile) -> Result<()> {
    locking().map_or(Ok(()), |rule| locked(&rule, file.share_lock(), || in_use(file)))
}

/// Opens `host` for reading, with the lock of readers, if no other process writes it, with or
/// without a lock.
pub fn open_unwritten(host: &HostFile) -> Result<PosixFile> {
    let file = host.reader().map_err(|e| Error::io("open", Address(0), &e))?;
    // SWMR writers share the lock, or have none.
    let check = || if locking().is_some() && file.is_written() { Err(in_use(&file)) } else { Ok(()) };
    check()?;
    share_lock(&file)?;
    check()?;
    if !host.is_in_place() {
        return Err(Error::refused(libc::ESTALE, "it was replaced while it was opened; try again"));
    }
    Ok(file)
}

/// Opens `host` for changes. Other processes that write it, with a lock or without, are an obstacle
/// unless `HDF5_USE_FILE_LOCKING` says that they are none.
pub fn open_to_change(host: &HostFile) -> Result<PosixFile> {
    if locking().is_some() {
        return open_to_recover(host);
    }
    host.open_writable().map_err(|e| Error::io("open", Address(0), &e))
}

fn in_use(file: &PosixFile) -> Error {
    let holder = file.status().ok().and_then(|status| lock_holder::of(status.identity));
    let holder = holder.map_or_else(String::new, |process| format!(", {process}"));
    let remedy = "end that program first, or unmount the file ('findmnt -t fuse.h5dir' lists mounts)";
    Error::refused(libc::EWOULDBLOCK, format!("another program has it open{holder}; {remedy}"))
}

/// What the outcome of locking means under `rule`; `in_use` is the error if it is locked.
fn locked(rule: &str, outcome: io::Result<()>, in_use: impl FnOnce() -> Error) -> Result<()> {
    match outcome {
        Ok(()) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EWOULDBLOCK) => Err(in_use()),
        // The file system has no locks.
        Err(e) if rule == "BEST_EFFORT" && matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP)) => Ok(()),
        Err(e) => Err(Error::io("lock", Address(0), &e)),
    }
}

/// Opens `host` for reading and writing, and locks it, if no other process writes it. A lock alone
/// does not show that: libhdf5 gives its own up when SWMR writing starts.
pub fn open_to_recover(host: &HostFile) -> Result<PosixFile> {
    let failed = |e: io::Error| Error::io("open", Address(0), &e);
    let reader = host.reader().map_err(failed)?;
    let stamp = reader.status().map_err(failed)?.stamp();
    if reader.is_written() {
        return Err(in_use(&reader));
    }
    let file = host.open_writable().map_err(failed)?;
    lock(&file)?;
    // A process that began to write between the two has flagged the file.
    if file.status().map_err(failed)?.stamp() != stamp {
        return Err(in_use(&file));
    }
    // Waiting for a lease or a lock may have taken long.
    if !host.is_in_place() {
        return Err(Error::refused(libc::ESTALE, "it was replaced while it was opened; try again"));
    }
    Ok(file)
}

/// Makes the file forget the free space that its superblock `extension` records: it may be in use.
/// Returns whether it recorded some.
fn forget_space(file: &Arc<PosixFile>, place: JournalPath, extension: Address) -> Result<bool> {
    if !extension.is_defined() {
        return Ok(false);
    }
    let store = Store::open_writable(file.clone(), Box::new(place))?;
    let some = BeforeFirstWrite::forget_space(&store, extension)?;
    if some {
        store.close()?;
    }
    Ok(some)
}

/// Finishes what an interrupted writer of `host` began; `file` is that of [`open_to_recover`].
pub fn recover(host: &HostFile, file: PosixFile) -> Result<Recovered> {
    let failed = |operation| move |e: io::Error| Error::io(operation, Address(0), &e);
    let file = Arc::new(file);
    let place = JournalPath::new(host).map_err(failed("open"))?;
    let driver: Arc<dyn WriteDriver> = file.clone();
    let finished = recovery::finish(&driver, &place, OldJournals::Used)?;
    let mut store = Store::open(file.clone())?;
    let before = store.superblock().clone();
    let status = file.status().map_err(failed("stat"))?;
    let Some(recorded) = store.recorded_end(status.len) else { return Err(store.wrong_length(status.len)) };
    let unmarked = before.is_in_use();
    // No session of ours leaves a file flagged.
    let ours = !before.is_unclosed() && (finished || place.open().map_err(failed("recover"))?.is_some());
    if ours && !finished && recorded < status.len {
        // Never committed. The journal goes after it: without one these bytes would be taken for
        // another writer's.
        file.set_len(recorded).and_then(|()| file.sync()).map_err(failed("recover"))?;
    }
    let removed = !finished && recovery::clear_leftover(&driver, &place)?;
    let longer = store.with_tail(&*file, status.len).filter(|_| !ours);
    let kept = longer.as_ref().map_or(0, |s| s.eof.0.saturating_sub(before.eof.0));
    if let Some(longer) = longer {
        store.replace_superblock(&*file, longer)?;
    }
    let forgotten = before.is_unclosed() && forget_space(&file, place, before.extension)?;
    // Last: if it is interrupted, recovery starts again.
    if unmarked || forgotten {
        let mut store = Store::open(file.clone())?;
        let now = store.superblock().clone();
        store.replace_superblock(&*file, Superblock { flags: now.flags & !IN_USE, ..now })?;
    }
    Ok(Recovered { finished, removed, unmarked, kept, forgotten })
}

/// Recovers `host`, opened as `file`, if a mount with `--swmr` was killed and left its journal. The
/// flags of other writers stay.
pub fn end_killed_swmr_writer(host: &HostFile, file: &PosixFile) -> Result<()> {
    let failed = |operation| move |e: io::Error| Error::io(operation, Address(0), &e);
    let again = || file.again().map_err(failed("open"));
    let place = JournalPath::new(host).map_err(failed("open"))?;
    let identity = file.status().map_err(failed("stat"))?.identity;
    let flagged = Store::open(Arc::new(again()?))?.superblock().is_of_swmr_writer();
    // Without locks such a mount may live.
    if !flagged || file.is_changed_by_mount() || !recovery::is_of_session(&place, identity)? {
        return Ok(());
    }
    tracing::warn!("{}: a mount with --swmr was killed: the file is recovered", escaped(&host.path()));
    recover(host, again()?).map(drop)
}

/// What [`recover`] would do to `host`. Nothing is written.
pub fn examine(host: &HostFile) -> Result<Recovered> {
    let failed = |operation| move |e: io::Error| Error::io(operation, Address(0), &e);
    let reader = host.reader().map_err(failed("open"))?;
    if reader.is_written() {
        return Err(in_use(&reader));
    }
    let place = JournalPath::new(host).map_err(failed("open"))?;
    let file = Arc::new(reader);
    let status = file.status().map_err(failed("stat"))?;
    let after = recovery::committed(file.clone(), &place)?;
    let finished = after.is_some();
    let store = Store::open(after.unwrap_or_else(|| file.clone()))?;
    let superblock = store.superblock();
    let journal = place.open().map_err(failed("recover"))?.is_some();
    if !finished && store.recorded_end(status.len).is_none() {
        return Err(store.wrong_length(status.len));
    }
    let unclosed = superblock.is_unclosed();
    let longer = store.with_tail(&*file, status.len).filter(|_| unclosed || !journal);
    let kept = longer.map_or(0, |s| s.eof.0.saturating_sub(superblock.eof.0));
    let forgotten = unclosed && BeforeFirstWrite::remembers_space(&store, superblock.extension)?;
    Ok(Recovered { finished, removed: journal && !finished, unmarked: superblock.is_in_use(), kept, forgotten })
}

/// The file `host` to be read although it is damaged.
pub fn open_to_rescue(host: &HostFile) -> Result<Arc<dyn FileDriver>> {
    match open_for_reading(host) {
        Err(e) if e.is_about_content() => Ok(Arc::new(host.reader().map_err(|e| Error::io("open", Address(0), &e))?)),
        opened => opened,
    }
}

/// `file`, which was opened as `host` or has its name now, as it is after an interrupted commit; so
/// is a commit under way. Nothing is written.
pub fn committed(file: PosixFile, host: &HostFile) -> Result<Arc<dyn FileDriver>> {
    let place = JournalPath::of(&file, host).map_err(|e| Error::io("open", Address(0), &e))?;
    let file: Arc<dyn FileDriver> = Arc::new(file);
    Ok(recovery::committed(file.clone(), &place)?.unwrap_or(file))
}

/// `file`, which has no name by which a journal could be found. Error: it needs a journal.
pub fn committed_without_journal(file: PosixFile) -> Result<Arc<dyn FileDriver>> {
    let file: Arc<dyn FileDriver> = Arc::new(file);
    Ok(recovery::committed(file.clone(), &MemoryJournal::default())?.unwrap_or(file))
}

/// The file `host` as it is after an interrupted commit, which is logged.
pub fn open_for_reading(host: &HostFile) -> Result<Arc<dyn FileDriver>> {
    let failed = |e: io::Error| Error::io("open", Address(0), &e);
    let file: Arc<dyn FileDriver> = Arc::new(host.reader().map_err(failed)?);
    let place = JournalPath::new(host).map_err(failed)?;
    let after = recovery::committed(file.clone(), &place)?;
    if after.is_some() {
        let path = host.path();
        tracing::warn!("{}: a commit was interrupted: the file is shown as it is after it, and not changed", escaped(&path));
    }
    Ok(after.unwrap_or(file))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::base::checksum::lookup3;
    use crate::connector::native::NativeConnector;
    use crate::connector::native::create::create;
    use crate::connector::native::tests::options;
    use crate::file::journal::Journal;
    use crate::file::memory::MemoryFile;
    use crate::file::{Identity, read_all};
    use std::path::{Path, PathBuf};

    #[test]
    fn a_file_system_without_locks_is_no_obstacle_to_best_effort() {
        let locked = |rule, outcome| locked(rule, outcome, || Error::refused(libc::EWOULDBLOCK, "in use"));
        let outcome = |errno| Err(io::Error::from_raw_os_error(errno));
        for rule in ["", "TRUE", "1", "BEST_EFFORT"] {
            assert_eq!(locked(rule, outcome(libc::ENOSYS)).is_ok(), rule == "BEST_EFFORT");
            assert_eq!(locked(rule, outcome(libc::EOPNOTSUPP)).is_ok(), rule == "BEST_EFFORT");
            assert!(locked(rule, outcome(libc::EWOULDBLOCK)).is_err() && locked(rule, Ok(())).is_ok());
        }
    }

    /// The file `whole` and a sector after a commit that stopped when the file was marked, and the
    /// journal.
    pub fn interrupted(whole: &[u8]) -> (Vec<u8>, Journal) {
        let mut image = whole.to_vec();
        let last = image.len().next_multiple_of(512) as u64;
        image.resize(last as usize + 512, 0);
        let mut superblock = superblock(&image);
        superblock.eof = Address(last + 512);
        let settled = [superblock.encode().unwrap(), image[48..512].to_vec()].concat();
        let marked = [superblock.marked(99).encode().unwrap(), image[48..512].to_vec()].concat();
        image[..512].copy_from_slice(&marked);
        let owner = Identity { device: 1, inode: 2 };
        (image, Journal { owner, nonce: 99, root: 0, marked, settled, records: vec![(last, vec![7; 512])], free_record: None })
    }

    fn superblock(bytes: &[u8]) -> Superblock {
        Store::open(Arc::new(MemoryFile::new(bytes.to_vec()))).unwrap().superblock().clone()
    }

    fn host(path: &Path) -> HostFile {
        HostFile::open(path).unwrap()
    }

    fn recover(path: &Path) -> Result<Recovered> {
        super::recover(&host(path), open_to_recover(&host(path))?)
    }

    fn read(path: &Path) -> Result<Vec<u8>> {
        let file = committed(host(path).reader().unwrap(), &host(path))?;
        let mut bytes = vec![0; file.status().unwrap().len as usize];
        read_all(&*file, &mut bytes, 0).unwrap();
        Ok(bytes)
    }

    fn open_for_writing(path: &Path) -> Result<()> {
        NativeConnector::open_writable(&host(path), open_to_change(&host(path))?, PathBuf::from("/"), options()).map(|_| ())
    }

    /// A new file in a new directory, and the path of its journal.
    fn new_file() -> (tempfile::TempDir, PathBuf, PathBuf, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("f.h5");
        create(&path, &crate::connector::new_file::NewFile::default()).unwrap();
        let (whole, journal) = (std::fs::read(&path).unwrap(), path.with_file_name("f.h5.h5dir-journal"));
        (dir, path, journal, whole)
    }

    /// Like a journal that only its owner may write.
    pub fn write_private(path: &Path, bytes: &[u8]) {
        let _ = std::fs::remove_file(path);
        std::fs::write(path, bytes).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }

    /// Regression: opening the file for writing removed the file at the journal's name, then
    /// refused the HDF5 file.
    #[test]
    fn a_file_that_waits_keeps_a_journal_that_does_not_count() {
        let (_dir, path, place, whole) = new_file();
        let (waiting, journal) = interrupted(&whole);
        let encoded = journal.encode();
        let mut flipped = encoded.clone();
        flipped[650] ^= 1;
        let of_another = Journal { marked: vec![1; 512], settled: vec![2; 512], records: Vec::new(), ..journal.clone() }.encode();
        for (other, blocks) in [(encoded[..1000].to_vec(), true), (flipped, true), (of_another, true), (Vec::new(), false)] {
            std::fs::write(&path, &waiting).unwrap();
            write_private(&place, &other);
            let refused = recover(&path).unwrap_err();
            assert!(refused.to_string().contains("an interrupted commit awaits its journal"), "{refused}");
            assert_eq!((open_for_writing(&path), read(&path).err()), (Err(refused.clone()), Some(refused)));
            assert_eq!((std::fs::read(&place).unwrap(), std::fs::read(&path).unwrap()), (other.clone(), waiting.clone()));
            // A whole file does not need it, but the file that it names may.
            std::fs::write(&path, &whole).unwrap();
            assert!(read(&path).unwrap() == whole);
            assert_eq!(open_for_writing(&path).is_err(), blocks);
            assert_eq!(place.exists(), blocks);
        }
        // Only a regular file can be a journal. The error names what is there.
        let _ = std::fs::remove_file(&place);
        nix::unistd::mkfifo(&place, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let is_named = |e: Option<Error>| e.is_some_and(|e| e.to_string().contains(&format!("{} is a FIFO", place.display())));
        assert!(is_named(open_for_writing(&path).err()), "a journal needs the name");
        assert!(read(&path).is_ok() && recover(&path) == Ok(Recovered::default()));
        std::fs::write(&path, &waiting).unwrap();
        assert!(is_named(open_for_writing(&path).err()) && is_named(read(&path).err()) && is_named(recover(&path).err()));
        std::fs::remove_file(&place).unwrap();

        write_private(&place, &encoded);
        assert_eq!(read(&path).unwrap(), [&journal.settled[..], &[7; 512]].concat());
        assert!(place.exists() && std::fs::read(&path).unwrap() == waiting, "reading writes nothing");
        assert_eq!(open_for_writing(&path), Ok(()));
        assert_eq!((place.exists(), std::fs::read(&path).unwrap()[512..].to_vec()), (false, vec![7; 512]));
    }

    /// Regression: a journal that any user planted beside a whole file was applied to it.
    #[test]
    fn a_planted_journal_is_not_applied() {
        let (_dir, path, place, whole) = new_file();
        let (waiting, journal) = interrupted(&whole);
        let mut sector = whole.clone();
        sector.resize(512, 0);
        let planted = Journal { marked: sector.clone(), settled: sector.clone(), ..journal.clone() };
        let records = |records| Journal { records, ..journal.clone() };
        let settled = |change: fn(&mut Superblock)| {
            let mut other = superblock(&journal.settled);
            change(&mut other);
            Journal { settled: [other.encode().unwrap(), journal.settled[48..].to_vec()].concat(), ..journal.clone() }
        };
        for (file, planted) in [
            (&whole, planted),
            (&waiting, Journal { nonce: 98, ..journal.clone() }),
            (&waiting, Journal { root: 512, ..journal.clone() }),
            (&waiting, records(vec![(1 << 40, vec![7; 512])])),
            (&waiting, records(vec![(0, vec![7; 512])])),
            (&waiting, records(vec![(520, vec![7; 512])])),
            (&waiting, settled(|s| s.eof.0 = 1 << 40)),
            (&waiting, settled(|s| s.root.0 += 8)),
            (&waiting, settled(|s| s.extension.0 = 512)),
        ] {
            std::fs::write(&path, file).unwrap();
            write_private(&place, &planted.encode());
            for outcome in [open_for_writing(&path).err(), recover(&path).err()] {
                assert!(outcome.is_some(), "{planted:?}");
            }
            assert_eq!(read(&path).ok(), (file == &whole).then(|| whole.clone()));
            assert!(std::fs::read(&path).unwrap() == *file && place.exists());
        }
        // Of a stranger, or writable for strangers.
        std::fs::write(&path, &waiting).unwrap();
        write_private(&place, &journal.encode());
        std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert!(open_for_writing(&path).is_err() && read(&path).is_err() && recover(&path).is_err());
        write_private(&place, &journal.encode());
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&place, Some(65534), None).unwrap();
            assert!(open_for_writing(&path).is_err() && read(&path).is_err() && recover(&path).is_err());
            std::os::unix::fs::chown(&place, Some(0), None).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == waiting);
        assert_eq!(open_for_writing(&path), Ok(()));
    }

    /// The journal format before carries no nonce: `recover` applies it, nothing else does.
    #[test]
    fn a_journal_of_format_1_is_applied_by_recover_only() {
        let (_dir, path, place, whole) = new_file();
        let (mut waiting, journal) = interrupted(&whole);
        let marked = superblock(&journal.settled).marked_without_nonce().encode().unwrap();
        waiting[..48].copy_from_slice(&marked);
        let mut old = [b"h5dirjnl".as_slice(), &1u32.to_le_bytes(), &1u32.to_le_bytes(), &[0; 8], &524u64.to_le_bytes()].concat();
        old.extend([&waiting[..512], &journal.settled, &512u64.to_le_bytes(), &512u32.to_le_bytes(), &[7; 512]].concat());
        let sums = [lookup3(&old, 0), lookup3(&old, 0x6835_6469)];
        sums.iter().for_each(|sum| old.extend(sum.to_le_bytes()));
        std::fs::write(&path, &waiting).unwrap();
        write_private(&place, &old);
        for refused in [open_for_writing(&path).err(), read(&path).err()] {
            assert!(refused.is_some_and(|e| e.to_string().contains("'h5dir recover FILE' applies it")));
        }
        assert_eq!(recover(&path), Ok(Recovered { finished: true, ..Recovered::default() }));
        assert_eq!((std::fs::read(&path).unwrap()[512..].to_vec(), place.exists()), (vec![7; 512], false));
    }

    /// Regression: a file that was cut needed nothing, said `recover`.
    #[test]
    fn a_truncated_file_is_damaged() {
        let (_dir, path, _, whole) = new_file();
        std::fs::write(&path, &whole[..whole.len() - 40]).unwrap();
        assert!(matches!(recover(&path), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn a_marked_file_is_finished_or_unmarked() {
        let (_dir, path, place, whole) = new_file();
        assert_eq!(recover(&path), Ok(Recovered::default()));

        let (waiting, journal) = interrupted(&whole);
        write_private(&place, &journal.encode());
        std::fs::write(&path, waiting).unwrap();
        assert_eq!(recover(&path), Ok(Recovered { finished: true, ..Recovered::default() }));
        assert!(!place.exists());
        assert_eq!(std::fs::read(&path).unwrap()[512..], [7; 512]);

        write_private(&place, b"h5dirjnl cut short");
        assert_eq!((recover(&path), place.exists()), (Ok(Recovered::default()), true), "of a later release");
        write_private(&place, b"h5dirjnl");
        assert_eq!(recover(&path), Ok(Recovered { removed: true, ..Recovered::default() }));

        // A writer that died.
        std::fs::write(&path, &whole).unwrap();
        let mut superblock = superblock(&whole);
        superblock.flags = 5;
        std::fs::write(&path, [superblock.encode().unwrap(), whole[48..].to_vec()].concat()).unwrap();
        assert_eq!(recover(&path), Ok(Recovered { unmarked: true, ..Recovered::default() }));
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }

    /// Regression: the mark was taken off, and the next mount that wrote gave away what the
    /// superblock did not include.
    #[test]
    fn data_past_the_eof_of_a_killed_writer_is_kept() {
        let (_dir, path, place, whole) = new_file();
        let superblock = superblock(&whole);
        // (flags, a journal of ours lies beside it, what is kept)
        for (flags, journal, kept) in [(5, false, 1000), (5, true, 1000), (1, false, 1000), (0, false, 1000), (0, true, 0)] {
            let claimed = Superblock { flags, ..superblock.clone() };
            let long = [claimed.encode().unwrap(), whole[48..].to_vec(), vec![7; 1000]].concat();
            std::fs::write(&path, &long).unwrap();
            if journal {
                write_private(&place, b"");
            }
            assert_eq!(recover(&path), Ok(Recovered { removed: journal, unmarked: flags != 0, kept, ..Recovered::default() }));
            let now = self::superblock(&std::fs::read(&path).unwrap());
            assert_eq!(now, Superblock { eof: Address(superblock.eof.0 + kept), ..superblock.clone() });
            let end = now.eof.0 as usize;
            assert!(std::fs::read(&path).unwrap()[48..] == long[48..end], "what was never committed is cut off");
            assert_eq!(recover(&path), Ok(Recovered::default()));
        }
        // A terabyte of hole.
        std::fs::write(&path, [&whole[..], &[7; 10_000]].concat()).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let kept = recover(&path).unwrap().kept;
        assert!((10_000..10_000 + 65_536).contains(&kept), "{kept}");
    }

    #[test]
    fn a_file_in_use_or_of_another_kind_is_left_alone() {
        let (dir, path, ..) = new_file();
        let other = host(&path).reader().unwrap();
        other.lock_exclusive().unwrap();
        assert!(matches!(recover(&path), Err(Error::Refused { errno: libc::EWOULDBLOCK, .. })));
        drop(other);
        // A writer without a lock.
        let other = host(&path).open_writable().unwrap();
        assert!(matches!(recover(&path), Err(Error::Refused { errno: libc::EWOULDBLOCK, .. })));
        drop(other);
        assert_eq!(recover(&path), Ok(Recovered::default()));
        std::fs::write(dir.path().join("text"), "text").unwrap();
        assert!(matches!(recover(&dir.path().join("text")), Err(Error::Corrupt { .. })));
    }
}
