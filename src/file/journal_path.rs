//! Path of a host file's journal: `NAME.h5dir-journal` in the file's directory.
//!
//! The file may be renamed while it is open for writing. The journal is renamed with it, because
//! recovery looks for a journal beside the file's present name.
//!
//! Other users may be able to create files in the directory. A journal is used only if it is a
//! regular file with one hard link, owned by the owner of the HDF5 file or by the caller, and
//! writable only by users who may write the HDF5 file. Any other file with that name is left
//! untouched.

use super::directory::{Directory, Entry};
use super::host_file::HostFile;
use super::journal::{self, JournalKind};
use super::posix::PosixFile;
use super::{FileDriver, Identity, JournalPlace, WriteDriver};
use crate::base::escape::escaped;
use crate::base::locks::Mutex;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;

/// Suffix appended to the file's name.
pub const SUFFIX: &str = ".h5dir-journal";
/// Permission bits that allow group and others to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A journal that this process created or opened.
#[derive(Debug, Clone)]
struct Known {
    directory: Directory,
    name: OsString,
    identity: Identity,
    /// Descriptor for writing, if this process created the journal.
    file: Option<Arc<PosixFile>>,
}

impl Known {
    /// Removes the journal, if the name still refers to it.
    fn remove(&self) -> io::Result<()> {
        if !refers_to(&self.directory, &self.name, self.identity) {
            return Ok(());
        }
        match self.directory.remove(&self.name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => self.directory.sync(),
        }
    }
}

/// Journal place beside a host file.
#[derive(Debug)]
pub struct JournalPath {
    file: PosixFile,
    identity: Identity,
    /// Last known directory and name of the file.
    place: Mutex<(Directory, OsString)>,
    known: Mutex<Option<Known>>,
}

/// The file with the journal's name.
enum Found {
    Nothing,
    Journal(PosixFile, Known),
    /// A file that cannot be the journal, and why.
    Obstacle(&'static str),
}

/// True if `name` in `directory` is the file `identity`.
fn refers_to(directory: &Directory, name: &OsStr, identity: Identity) -> bool {
    directory.entry(name).is_ok_and(|found| found.is_some_and(|e| e.status.identity == identity))
}

fn journal_name(name: &OsStr) -> OsString {
    let mut name = name.to_owned();
    name.push(SUFFIX);
    name
}

/// Why the file `journal` cannot be the journal of `file`.
pub(super) fn rejection(journal: &Entry, file: &Entry) -> Option<&'static str> {
    let caller = nix::unistd::geteuid().as_raw();
    if !journal.is_regular() {
        return Some(journal.kind_name());
    }
    if journal.links != 1 {
        return Some("file with more than one name");
    }
    if journal.uid != file.uid && journal.uid != caller {
        return Some("file of another user");
    }
    if journal.mode & WRITABLE_BY_OTHERS & !file.mode != 0 {
        return Some("file that more users may write than the HDF5 file");
    }
    None
}

impl JournalPath {
    /// The place beside `host`.
    pub fn new(host: &HostFile) -> io::Result<Self> {
        Self::of(&host.reader()?, host)
    }

    /// The place of `file`, which has the name of `host`.
    pub fn of(file: &PosixFile, host: &HostFile) -> io::Result<Self> {
        let place = Mutex::new((host.directory().clone(), host.name().to_owned()));
        Ok(JournalPath { file: file.again()?, identity: file.status()?.identity, place, known: Mutex::default() })
    }

    /// Present directory and name of the file. Error: `ESTALE` if it has no name any more.
    fn place(&self) -> io::Result<(Directory, OsString)> {
        let mut place = self.place.lock();
        if refers_to(&place.0, &place.1, self.identity) {
            return Ok(place.clone());
        }
        let stale = || io::Error::from_raw_os_error(libc::ESTALE);
        let path = self.file.path_now()?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(stale()) };
        // Checks that the directory holds the file under that name.
        let directory = Directory::open(parent).map_err(|_| stale())?;
        if !refers_to(&directory, name, self.identity) {
            return Err(stale());
        }
        tracing::info!("{} is now named {}", escaped(&place.1), escaped(&path));
        *place = (directory, name.to_owned());
        Ok(place.clone())
    }

    fn find(&self) -> io::Result<Found> {
        let (directory, name) = match self.place() {
            Ok((directory, name)) => (directory, journal_name(&name)),
            Err(e) if e.raw_os_error() == Some(libc::ESTALE) => return Ok(Found::Nothing),
            Err(e) => return Err(e),
        };
        let Some(entry) = directory.entry(&name)? else { return Ok(Found::Nothing) };
        let file = self.file.entry()?;
        // Checked before the open, which may block or have effects.
        if let Some(reason) = rejection(&entry, &file) {
            return Ok(Found::Obstacle(reason));
        }
        let journal = match directory.open_file(&name, OFlag::O_RDONLY, Mode::empty()).and_then(PosixFile::from_file) {
            Ok(journal) => journal,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(e) => return Err(e),
        };
        let entry = journal.entry()?;
        if let Some(reason) = rejection(&entry, &file) {
            return Ok(Found::Obstacle(reason));
        }
        if journal::kind(&journal)? == JournalKind::Other {
            return Ok(Found::Obstacle("file that is not a journal of h5dir"));
        }
        Ok(Found::Journal(journal, Known { directory, name, identity: entry.status.identity, file: None }))
    }

    /// Creates the file `name` with the owner and at most the permissions of the HDF5 file.
    fn create_in(&self, directory: &Directory, name: &OsStr) -> io::Result<PosixFile> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let journal = PosixFile::from_file(directory.open_file(name, flags, Mode::from_bits_truncate(0o600))?)?;
        let prepared = self.file.entry().and_then(|file| {
            let made = journal.entry()?;
            let foreign = (made.uid, made.gid) != (file.uid, file.gid);
            let given = !foreign || nix::unistd::geteuid().is_root() && journal.set_owner(file.uid, file.gid).is_ok();
            // Without the file's group, the group bits would apply to another group.
            journal.set_mode(file.mode & if given { 0o666 } else { 0o600 })?;
            journal.write_at(&journal::void_head(self.identity), 0)?;
            directory.sync()
        });
        match prepared {
            Ok(()) => Ok(journal),
            Err(e) => {
                let _ = directory.remove(name);
                Err(e)
            }
        }
    }
}

impl JournalPlace for JournalPath {
    fn open(&self) -> io::Result<Option<Arc<dyn WriteDriver>>> {
        match self.find()? {
            Found::Nothing | Found::Obstacle(_) => Ok(None),
            Found::Journal(journal, known) => {
                let mut old = self.known.lock();
                if old.as_ref().is_none_or(|old| old.identity != known.identity) {
                    *old = Some(known);
                }
                Ok(Some(Arc::new(journal)))
            }
        }
    }

    fn create(&self) -> io::Result<Arc<dyn WriteDriver>> {
        let (directory, name) = self.place()?;
        let name = journal_name(&name);
        let mut known = self.known.lock();
        if let Some(old) = known.take() {
            if let Some(file) = old.file.clone().filter(|_| refers_to(&directory, &name, old.identity)) {
                *known = Some(old);
                return Ok(file);
            }
            // The file was renamed: removes the journal beside its old name.
            old.remove()?;
        }
        let journal = match self.create_in(&directory, &name) {
            Ok(journal) => Arc::new(journal),
            Err(e) => {
                let found = directory.entry(&name).ok().flatten().filter(|_| e.kind() == io::ErrorKind::AlreadyExists);
                if let Some(found) = found {
                    tracing::warn!("cannot create the journal: {} is a {}", escaped(&name), found.kind_name());
                }
                return Err(e);
            }
        };
        *known = Some(Known { directory, name, identity: journal.status()?.identity, file: Some(journal.clone()) });
        Ok(journal)
    }

    fn is_kept(&self) -> bool {
        let Ok((directory, name)) = self.place() else { return false };
        let known = self.known.lock();
        known.as_ref().is_some_and(|k| k.file.is_some() && refers_to(&directory, &journal_name(&name), k.identity))
    }

    fn check_name(&self) -> io::Result<()> {
        self.place().map(drop)
    }

    fn obstacle(&self) -> Option<String> {
        let path = || {
            let (directory, name) = &*self.place.lock();
            directory.path().unwrap_or_default().join(journal_name(name))
        };
        match self.find() {
            Ok(Found::Nothing | Found::Journal(..)) => None,
            Ok(Found::Obstacle(what)) => Some(format!("{} is a {what}", escaped(&path()))),
            Err(e) => Some(format!("{} cannot be opened: {e}", escaped(&path()))),
        }
    }

    fn remove(&self) -> io::Result<()> {
        self.known.lock().take().map_or(Ok(()), |known| known.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn beside(path: &Path) -> JournalPath {
        JournalPath::new(&HostFile::open(path).unwrap()).unwrap()
    }

    fn code<T>(result: io::Result<T>) -> Option<i32> {
        result.err().and_then(|e| e.raw_os_error())
    }

    #[test]
    fn the_journal_follows_the_name_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("sub").join("a"));
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(&a, "file").unwrap();
        let place = beside(&a);
        assert!(!place.is_kept());
        place.create().unwrap();
        assert!(place.is_kept());
        let journal = dir.path().join("a.h5dir-journal");
        std::fs::rename(&a, &b).unwrap();
        assert!(!place.is_kept());
        place.create().unwrap();
        assert!(place.is_kept() && !journal.exists() && dir.path().join("sub/a.h5dir-journal").exists());
        // The user deletes the journal.
        std::fs::remove_file(dir.path().join("sub/a.h5dir-journal")).unwrap();
        assert!(!place.is_kept());
        place.create().unwrap();
        place.remove().unwrap();
        assert!(!dir.path().join("sub/a.h5dir-journal").exists());
    }

    /// Regression: the journal of another file with the same name was truncated and removed.
    #[test]
    fn the_journal_of_another_file_of_the_same_name_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (path, journal) = (dir.path().join("a"), dir.path().join("a.h5dir-journal"));
        std::fs::write(&path, "file").unwrap();
        let place = beside(&path);
        place.create().unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&journal).unwrap();
        std::fs::write(&path, "another").unwrap();
        let other = beside(&path);
        let file = other.create().unwrap();
        file.write_at(b"precious", 100).unwrap();
        assert_eq!((place.is_kept(), code(place.create()), code(place.check_name())), (false, Some(libc::ESTALE), Some(libc::ESTALE)));
        place.remove().unwrap();
        assert!(other.is_kept() && std::fs::read(&journal).unwrap().ends_with(b"precious"));
    }

    #[test]
    fn only_a_journal_of_the_owner_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "file").unwrap();
        let path = dir.path().canonicalize().unwrap().join("f.h5dir-journal");
        let target = dir.path().join("target");
        std::fs::write(&target, "target").unwrap();
        let write = |mode: u32, content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        let own = |uid| {
            write(0o600, journal::MAGIC);
            std::os::unix::fs::chown(&path, Some(uid), None).unwrap();
        };
        let root = nix::unistd::geteuid().is_root();
        let cases: [(&str, &dyn Fn()); 8] = [
            ("FIFO", &|| nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap()),
            ("directory", &|| std::fs::create_dir(&path).unwrap()),
            ("symbolic link", &|| std::os::unix::fs::symlink(&target, &path).unwrap()),
            ("socket", &|| drop(std::os::unix::net::UnixListener::bind(&path).unwrap())),
            ("file with more than one name", &|| std::fs::hard_link(&target, &path).unwrap()),
            ("file that is not a journal of h5dir", &|| write(0o600, b"notes of the user")),
            ("file that more users may write than the HDF5 file", &|| write(0o666, journal::MAGIC)),
            ("file of another user", &|| own(if root { 65534 } else { nix::unistd::geteuid().as_raw() })),
        ];
        for (what, make) in &cases[..if root { 8 } else { 7 }] {
            let place = beside(&file);
            make();
            assert_eq!(place.obstacle(), Some(format!("{} is a {what}", path.display())));
            assert!(place.open().unwrap().is_none(), "{what}");
            assert_eq!(code(place.create()), Some(libc::EEXIST), "{what}");
            assert!(!place.is_kept());
            place.remove().unwrap();
            assert!(path.symlink_metadata().is_ok(), "{what}");
            if *what == "directory" { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) }.unwrap();
            place.create().unwrap();
            assert!(place.obstacle().is_none() && place.open().unwrap().is_some() && place.is_kept());
            place.remove().unwrap();
            assert!(path.symlink_metadata().is_err());
        }
        assert_eq!(std::fs::read(target).unwrap(), b"target");
    }

    #[test]
    fn a_new_journal_has_the_owner_and_mode_of_its_file() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let (path, journal) = (dir.path().join("f"), dir.path().join("f.h5dir-journal"));
        std::fs::write(&path, "file").unwrap();
        let owner = if nix::unistd::geteuid().is_root() { 65534 } else { nix::unistd::geteuid().as_raw() };
        std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
        for mode in [0o600, 0o640, 0o664] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let place = beside(&path);
            place.create().unwrap();
            let made = std::fs::metadata(&journal).unwrap();
            assert_eq!((made.uid(), made.mode() & 0o7777), (owner, mode));
            place.remove().unwrap();
        }
    }
}
