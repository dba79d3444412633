//! Other files that a container names: opened only beneath one directory, read-only.

use super::file::HdfFile;
use crate::base::{Error, Result};
use crate::dataset::environment::RawFiles;
use crate::file::FileDriver;
use crate::file::confined::ConfinedDir;
use crate::file::posix::PosixFile;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens files named by containers, if at all.
pub struct Neighbours {
    /// The directory they must lie beneath; `None` = none may be opened.
    root: Option<ConfinedDir>,
}

impl Neighbours {
    /// Files beneath `root`, or none.
    pub fn new(root: Option<ConfinedDir>) -> Self {
        Neighbours { root }
    }

    fn missing(what: &'static str, name: &[u8], reason: String) -> Error {
        Error::Missing { what, name: String::from_utf8_lossy(name).into_owned(), reason: reason.into() }
    }

    /// Opens the file `name` that a file in directory `from` names, and tells the directory it lies in.
    ///
    /// Places, as libhdf5 has them: an absolute name as it is and then its last component beside
    /// `from`; a relative name beside `from`. Each only beneath the root.
    pub fn open(&self, from: &Path, name: &[u8], what: &'static str) -> Result<(PosixFile, PathBuf)> {
        let Some(root) = &self.root else {
            return Err(Self::missing(what, name, "other files are not opened (--external=off)".into()));
        };
        let path = Path::new(OsStr::from_bytes(name));
        let last = path.file_name().filter(|_| path.is_absolute()).map(Path::new);
        let mut reason = "it lies outside the directory that may be read (--external-root)".to_string();
        for candidate in [Some(path), last].into_iter().flatten() {
            let Some(relative) = root.resolve(from, candidate) else { continue };
            match root.open_file(&relative).and_then(PosixFile::from_file) {
                Ok(file) => {
                    let directory = root.path().join(&relative).parent().map_or_else(|| root.path().to_path_buf(), Path::to_path_buf);
                    return Ok((file, directory));
                }
                Err(e) => reason = e.to_string(),
            }
        }
        Err(Self::missing(what, name, reason))
    }
}

/// Raw files of one container file.
pub struct RawNeighbours {
    /// Where they may lie.
    pub neighbours: Arc<Neighbours>,
    /// Directory of the file that names them.
    pub directory: PathBuf,
}

impl RawFiles for RawNeighbours {
    fn open_raw(&self, name: &[u8]) -> Result<Arc<dyn FileDriver>> {
        let (file, _) = self.neighbours.open(&self.directory, name, "external raw file")?;
        Ok(Arc::new(file))
    }
}

/// The surroundings of `file`.
pub fn raw_files(neighbours: &Arc<Neighbours>, file: &HdfFile) -> Arc<dyn RawFiles> {
    Arc::new(RawNeighbours { neighbours: neighbours.clone(), directory: file.directory.clone() })
}
