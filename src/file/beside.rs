//! Where the journal of a file of the host lies: `NAME.h5dir-journal` in its directory.
//!
//! While the file is open for writing its name may change. The journal goes with it, as whoever recovers the file looks
//! for one beside the name that it has then.
//!
//! Only a regular file is a journal. Whatever else has its name, perhaps a pipe that somebody made there who may write to the
//! directory, is neither opened nor removed.

use super::posix::{PosixFile, status_of};
use super::{FileDriver, Identity, JournalPlace, WriteDriver};
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the module's description.
#[derive(Debug)]
pub struct BesideFile {
    /// The file's name when it was last looked at.
    name: Mutex<PathBuf>,
    /// The file, if its name may change.
    file: Option<PosixFile>,
    /// The journal made last.
    made: Mutex<Option<(PathBuf, Identity)>>,
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

impl BesideFile {
    /// That of the file named `name`.
    pub fn new(name: &Path) -> Self {
        BesideFile { name: Mutex::new(name.to_owned()), file: None, made: Mutex::default() }
    }

    /// That of `file`, named `name` now.
    pub fn following(name: &Path, file: &PosixFile) -> io::Result<Self> {
        Ok(BesideFile { file: Some(file.again()?), ..Self::new(name) })
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        let file = self.name.lock();
        let mut name = file.file_name().unwrap_or_default().to_os_string();
        name.push(".h5dir-journal");
        directory_of(&file).join(name)
    }

    /// Looks what the file is named now. A journal beside the name that it had goes.
    fn follow(&self) {
        let Some(file) = &self.file else { return };
        let mut name = self.name.lock();
        if file.has_name(&name) {
            return;
        }
        // Without a name it is lost when it is closed, and so is what a journal could restore.
        let Some(now) = file.name_now() else { return };
        tracing::info!("{} is named {} now", name.display(), now.display());
        *name = now;
        drop(name);
        let old = self.made.lock().take();
        if let Some((path, identity)) = old.filter(|(path, identity)| status_of(path).is_some_and(|s| s.identity == *identity)) {
            tracing::debug!("journal {} ({identity:?}) goes", path.display());
            let _ = std::fs::remove_file(path);
        }
    }
}

impl JournalPlace for BesideFile {
    fn open(&self) -> io::Result<Option<Arc<dyn WriteDriver>>> {
        if self.obstacle().is_some() {
            return Ok(None);
        }
        match PosixFile::open_regular(&self.path(), OpenOptions::new().read(true)) {
            Ok(f) => Ok(Some(Arc::new(f))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn create(&self) -> io::Result<Arc<dyn WriteDriver>> {
        use std::os::unix::fs::OpenOptionsExt;
        self.follow();
        if let Some(obstacle) = self.obstacle() {
            tracing::warn!("no journal can be made: {obstacle}");
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let path = self.path();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = PosixFile::open_regular(&path, &mut options)?;
        sync_directory(&path)?;
        let identity = file.status()?.identity;
        *self.made.lock() = Some((path, identity));
        Ok(Arc::new(file))
    }

    fn is_kept(&self) -> bool {
        self.follow();
        let made = self.made.lock();
        made.as_ref().is_some_and(|(path, identity)| *path == self.path() && status_of(path).is_some_and(|s| s.identity == *identity))
    }

    fn obstacle(&self) -> Option<String> {
        use std::os::unix::fs::FileTypeExt;
        let path = self.path();
        let kind = std::fs::symlink_metadata(&path).ok()?.file_type();
        let what = match kind {
            _ if kind.is_file() => return None,
            _ if kind.is_dir() => "directory",
            _ if kind.is_symlink() => "symbolic link",
            _ if kind.is_fifo() => "FIFO",
            _ if kind.is_socket() => "socket",
            _ => "device",
        };
        Some(format!("{} is a {what}", path.display()))
    }

    fn remove(&self) -> io::Result<()> {
        self.follow();
        if self.obstacle().is_some() {
            return Ok(());
        }
        let path = self.path();
        match std::fs::remove_file(&path) {
            Ok(()) => sync_directory(&path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_follows_the_name_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("sub").join("b"));
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(&a, "file").unwrap();
        let place = BesideFile::following(&a, &PosixFile::open_writable(&a).unwrap()).unwrap();
        assert!(!place.is_kept());
        place.create().unwrap();
        assert!(place.is_kept());
        let journal = dir.path().join("a.h5dir-journal");
        std::fs::rename(&a, &b).unwrap();
        // Another file with a journal of its own takes the old name.
        std::fs::write(&a, "another").unwrap();
        assert!(!place.is_kept() && !journal.exists());
        std::fs::write(&journal, "of the other").unwrap();
        place.create().unwrap();
        assert!(place.is_kept());
        assert_eq!(place.path(), dir.path().join("sub/b.h5dir-journal"));
        // Somebody takes it for one that nothing waits for.
        std::fs::remove_file(place.path()).unwrap();
        assert!(!place.is_kept());
        place.create().unwrap();
        place.remove().unwrap();
        assert!(!place.path().exists() && journal.exists());
        std::fs::remove_file(&b).unwrap();
        place.create().unwrap();
        assert!(place.is_kept());
    }

    #[test]
    fn only_a_regular_file_is_a_journal() {
        let dir = tempfile::tempdir().unwrap();
        let place = BesideFile::new(&dir.path().join("f"));
        let path = place.path();
        let target = dir.path().join("target");
        std::fs::write(&target, "target").unwrap();
        let make: [(&str, &dyn Fn()); 4] = [
            ("FIFO", &|| nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap()),
            ("directory", &|| std::fs::create_dir(&path).unwrap()),
            ("symbolic link", &|| std::os::unix::fs::symlink(&target, &path).unwrap()),
            ("socket", &|| drop(std::os::unix::net::UnixListener::bind(&path).unwrap())),
        ];
        for (what, make) in make {
            make();
            assert_eq!(place.obstacle(), Some(format!("{} is a {what}", path.display())));
            assert!(place.open().unwrap().is_none(), "{what}");
            assert_eq!(place.create().err().and_then(|e| e.raw_os_error()), Some(libc::EEXIST), "{what}");
            assert!(!place.is_kept());
            place.remove().unwrap();
            assert!(path.symlink_metadata().is_ok(), "{what}");
            if what == "directory" { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) }.unwrap();
            place.create().unwrap();
            assert!(place.obstacle().is_none() && place.open().unwrap().is_some() && place.is_kept());
            place.remove().unwrap();
            assert!(path.symlink_metadata().is_err());
        }
        assert_eq!(std::fs::read(target).unwrap(), b"target");
    }
}
