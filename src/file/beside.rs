//! Where the journal of a file of the host lies: `NAME.h5dir-journal` in its directory.
//!
//! While the file is open for writing its name may change. The journal goes with it, as whoever recovers the file looks
//! for one beside the name that it has then.

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
        match PosixFile::open(&self.path()) {
            Ok(f) => Ok(Some(Arc::new(f))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn create(&self) -> io::Result<Arc<dyn WriteDriver>> {
        use std::os::unix::fs::OpenOptionsExt;
        self.follow();
        let path = self.path();
        let mut options = OpenOptions::new();
        // Whatever lies there under this name is not followed elsewhere.
        options.read(true).write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = PosixFile::from_file(options.open(&path)?)?;
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

    fn remove(&self) -> io::Result<()> {
        self.follow();
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
}
