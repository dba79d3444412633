//! The kind of container that is an HDF5 file in an object store. It is only read.

use super::kind::{open_driver, recognized};
use crate::base::remote::is_url;
use crate::base::{Error, Result};
use crate::connector::DatasetSpec;
use crate::connector::new_file::NewFile;
use crate::connector::open::{
    ContainerKind, ContainerPlace, FileDriver, Located, Objects, OpenContainer, OpenError, OpenOptions, Recognized, UsedDirectory,
};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// See the module's description.
pub struct RemoteHdf5File;

/// The error of what only files of the host can be.
fn only_read(path: &Path) -> OpenError {
    OpenError::Remote { path: path.to_owned(), message: "objects of object stores are only read; copy the file to this machine".into() }
}

impl ContainerKind for RemoteHdf5File {
    fn claims(&self, target: &Path) -> bool {
        is_url(target)
    }

    fn locate(&self, options: &OpenOptions) -> std::result::Result<Box<dyn Located>, OpenError> {
        if options.writable {
            return Err(OpenError::Open { path: options.target.clone(), source: io::Error::from_raw_os_error(libc::EROFS) });
        }
        located(options)
    }

    fn locate_in(&self, _place: &ContainerPlace<'_>, options: &OpenOptions) -> std::result::Result<Box<dyn Located>, OpenError> {
        Err(only_read(&options.target))
    }

    fn recognize(&self, _place: &ContainerPlace<'_>) -> io::Result<Recognized> {
        Ok(Recognized::Other)
    }

    fn recognize_bytes(&self, driver: &dyn FileDriver, name: &Path) -> io::Result<Recognized> {
        recognized(driver, name)
    }

    fn open_bytes(&self, driver: Arc<dyn FileDriver>, options: &OpenOptions) -> std::result::Result<OpenContainer, OpenError> {
        open_driver(driver, options)
    }

    fn objects(&self, options: &OpenOptions) -> std::result::Result<Arc<dyn Objects>, OpenError> {
        objects_below(options)
    }

    fn create(&self, path: &Path, _new: &NewFile) -> std::result::Result<(), OpenError> {
        Err(only_read(path))
    }

    fn recover(&self, path: &Path, _confine: &mut dyn FnMut(&[UsedDirectory])) -> std::result::Result<String, OpenError> {
        Err(only_read(path))
    }

    fn examine(&self, path: &Path, _confine: &mut dyn FnMut(&[UsedDirectory])) -> std::result::Result<String, OpenError> {
        Err(only_read(path))
    }

    fn check_new_dataset(&self, _spec: &DatasetSpec) -> Result<()> {
        Err(Error::refused(libc::EROFS, "objects of object stores are only read"))
    }

    fn check_part(&self, _spec: &DatasetSpec) -> Result<()> {
        Err(Error::refused(libc::EROFS, "objects of object stores are only read"))
    }
}

#[cfg(not(feature = "remote"))]
fn no_remote(options: &OpenOptions) -> OpenError {
    let message = "this h5dir was built without the feature 'remote', which reads object stores; copy the file to this machine";
    OpenError::Remote { path: options.target.clone(), message: message.into() }
}

#[cfg(not(feature = "remote"))]
fn located(options: &OpenOptions) -> std::result::Result<Box<dyn Located>, OpenError> {
    Err(no_remote(options))
}

#[cfg(not(feature = "remote"))]
fn objects_below(options: &OpenOptions) -> std::result::Result<Arc<dyn Objects>, OpenError> {
    Err(no_remote(options))
}

#[cfg(feature = "remote")]
use with_remote::{located, objects_below};

#[cfg(feature = "remote")]
mod with_remote {
    use super::super::kind::open_driver;
    use crate::connector::open::{Located, Objects, OpenContainer, OpenError, OpenOptions, UsedDirectory, temporary_directory};
    use crate::file::remote::{self, Failure, LocatedObject, RemotePrefix};
    use std::os::fd::AsFd;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    /// The blocks of the object have this part of the cache, the decoded chunks have the rest.
    const BLOCKS_DIVISOR: u64 = 4;

    /// The object of `options`; nothing was sent.
    pub(super) fn located(options: &OpenOptions) -> Result<Box<dyn Located>, OpenError> {
        let object = remote::locate(&options.target, &options.remote).map_err(failed(&options.target))?;
        Ok(Box::new(LocatedRemote(object)))
    }

    /// The objects below the prefix of `options`; nothing was sent.
    pub(super) fn objects_below(options: &OpenOptions) -> Result<Arc<dyn Objects>, OpenError> {
        let path = &options.target;
        let invalid = || OpenError::Remote { path: path.clone(), message: "the URL is not UTF-8; check it".into() };
        let url = path.to_str().ok_or_else(invalid)?;
        let prefix = RemotePrefix::locate(url, &options.remote).map_err(failed(path))?;
        Ok(Arc::new(prefix))
    }

    struct LocatedRemote(LocatedObject);

    fn failed(path: &Path) -> impl Fn(Failure) -> OpenError + '_ {
        |failure| OpenError::Remote { path: path.to_owned(), message: failure.message }
    }

    impl Located for LocatedRemote {
        fn directories(&self) -> Result<Vec<UsedDirectory>, OpenError> {
            let io = |source| OpenError::Open { path: PathBuf::from("the files of the resolver"), source };
            let used = self.0.used().map_err(io)?;
            let mut all: Vec<_> = used.into_iter().map(|(directory, written)| UsedDirectory { directory, written, tree: false }).collect();
            if let Some(temporary) = temporary_directory() {
                let directory = temporary.as_fd().try_clone_to_owned().map_err(io)?;
                all.push(UsedDirectory { directory, written: true, tree: false });
            }
            Ok(all)
        }

        fn open(self: Box<Self>, options: &OpenOptions) -> Result<OpenContainer, OpenError> {
            let path = &options.target;
            let blocks = options.cache_bytes / BLOCKS_DIVISOR;
            let driver = self.0.open(blocks).map_err(failed(path))?;
            let options = OpenOptions { cache_bytes: options.cache_bytes.saturating_sub(blocks), ..options.clone() };
            open_driver(Arc::new(driver), &options)
        }
    }
}
