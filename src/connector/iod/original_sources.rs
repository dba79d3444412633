//! Files that chunks of a container may refer to. Their names are relative to its place, so that
//! both can be moved together.

use super::external::Place;
use crate::base::escape::escaped;
use crate::base::remote::{container_folder, container_parent, container_url, is_url};
use crate::base::{Address, Error, Result};
use crate::connector::open::{ExternalPolicy, Objects};
use crate::connector::stored::Original;
use crate::file::FileDriver;
use crate::file::objects::ObjectError;
use crate::file::posix::PosixFile;
use crate::iod::OriginalFiles;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The files that a container may refer to.
pub(super) trait OriginalSources: OriginalFiles {
    /// The name by which the container refers to a file. Errors: `EXDEV` if it cannot.
    fn name_of(&self, original: &Original) -> Result<Vec<u8>>;
}

fn missing(name: &Path, reason: String) -> Error {
    Error::Missing { what: "original", name: name.to_string_lossy().into_owned(), reason: reason.into() }
}

/// The error of a file that the container cannot refer to.
pub(super) fn refused(reason: String) -> Error {
    Error::refused(libc::EXDEV, reason)
}

impl Place {
    /// The name of the file `path`, a canonical path. `None`: it is not beneath the directory that
    /// may be read.
    fn name_of(&self, path: &Path) -> Option<PathBuf> {
        if !path.starts_with(self.root.path()) {
            return None;
        }
        let common = self.from.components().zip(path.components()).take_while(|(a, b)| a == b).count();
        let up = self.from.components().skip(common).map(|_| Component::ParentDir);
        Some(up.chain(path.components().skip(common)).collect())
    }

    fn open_file(&self, name: &Path) -> Result<PosixFile> {
        let outside = || missing(name, "it lies outside the directory that may be read (--external-root)".into());
        let relative = self.root.resolve(&self.from, name).ok_or_else(outside)?;
        self.root.check_visible(&self.from, &relative)?;
        let opened = self.root.open_file_for(&relative, &self.owner).and_then(PosixFile::from_file);
        opened.map_err(|e| match e.raw_os_error() {
            Some(libc::EACCES) => {
                let (shown, uid) = (escaped(&self.root.path().join(&relative)).to_string(), self.owner.uid());
                let reason = "chunks of a container refer only to files that the owner of its folder may read";
                Error::refused(libc::EACCES, format!("{shown} may not be read by user {uid}; {reason}"))
            }
            _ => missing(name, e.to_string()),
        })
    }
}

/// Files for a container in a folder: beneath the directory of external links.
pub(super) struct FolderSources(pub Arc<Place>);

impl OriginalFiles for FolderSources {
    fn open(&self, name: &[u8]) -> Result<Arc<dyn FileDriver>> {
        Ok(Arc::new(self.0.open_file(Path::new(OsStr::from_bytes(name)))?))
    }
}

impl OriginalSources for FolderSources {
    fn name_of(&self, original: &Original) -> Result<Vec<u8>> {
        let (shown, beneath) = (original.path.display(), self.0.root.path().display());
        let hint = "name a directory that is above both by --external-root, here and at mounts";
        let outside = || refused(format!("{shown} is not beneath {beneath}; {hint}"));
        let name = self.0.name_of(&original.path).ok_or_else(outside)?;
        let status = self.0.open_file(&name)?.status().map_err(|e| Error::io("stat", Address(0), &e))?;
        if status.identity != original.identity {
            return Err(refused(format!("{shown} is not the file that was opened any more")));
        }
        Ok(name.into_os_string().into_encoded_bytes())
    }
}

/// Objects for a container in an object store: below the prefix that the container's is in.
pub(super) struct PrefixSources {
    /// URL of the prefix, without a slash at its end.
    pub url: String,
    pub objects: Arc<dyn Objects>,
}

impl OriginalFiles for PrefixSources {
    fn open(&self, name: &[u8]) -> Result<Arc<dyn FileDriver>> {
        let shown = Path::new(OsStr::from_bytes(name));
        let failed = |e: ObjectError| missing(shown, e.message);
        let key = std::str::from_utf8(name).map_err(|_| missing(shown, "its key is not UTF-8".into()))?;
        let version = self.objects.find(key).map_err(failed)?.ok_or_else(|| missing(shown, "there is no such object".into()))?;
        self.objects.open(key, &version).map_err(failed)
    }
}

impl OriginalSources for PrefixSources {
    fn name_of(&self, original: &Original) -> Result<Vec<u8>> {
        let below = original.path.to_str().and_then(|url| url.strip_prefix(&self.url)?.strip_prefix('/'));
        let outside = || refused(format!("{} is not an object below {}/", original.path.display(), self.url));
        below.filter(|name| !name.is_empty()).map(|name| name.as_bytes().to_vec()).ok_or_else(outside)
    }
}

/// Checks that the container at `target` may refer to the HDF5 file `original`. Error: why not.
pub(super) fn check(target: &Path, original: &Path, external: &ExternalPolicy) -> std::result::Result<(), String> {
    let shown = escaped(original);
    match (container_folder(target), container_url(target)) {
        _ if *external == ExternalPolicy::Off => Err("it excludes --external=off; leave out one of them".into()),
        (Some(folder), _) => {
            if is_url(original) {
                return Err(format!("{shown} is no file of this machine, as the container is"));
            }
            let (file, root) = (canonical(original)?, root_of(folder, external)?);
            let hint = "name a directory above both by --external-root, here and at each mount";
            let outside = || format!("{} is not beneath {}; {hint}", escaped(&file), escaped(&root));
            file.starts_with(&root).then_some(()).ok_or_else(outside)
        }
        (None, url) => {
            let url = url.unwrap_or_default();
            let parent = container_parent(&url);
            let rest = original.to_str().and_then(|original| original.strip_prefix(parent));
            let outside = || format!("{shown} is not below {parent}/; put the container there");
            rest.is_some_and(|rest| rest.starts_with('/')).then_some(()).ok_or_else(outside)
        }
    }
}

/// The directory beneath which a container in `folder`, which need not exist, may read other files.
fn root_of(folder: &Path, external: &ExternalPolicy) -> std::result::Result<PathBuf, String> {
    match external {
        ExternalPolicy::Beneath(Some(root)) | ExternalPolicy::Written(root) => canonical(root),
        ExternalPolicy::Beneath(None) | ExternalPolicy::Off => Ok(canonical(folder)?.parent().unwrap_or(Path::new("/")).to_owned()),
    }
}

/// The canonical path of `path`, or of its parent and its name if it does not exist.
fn canonical(path: &Path) -> std::result::Result<PathBuf, String> {
    let failed = |e| format!("{} cannot be found: {e}", escaped(path));
    match (path.canonicalize(), path.file_name()) {
        (Ok(path), _) => Ok(path),
        (Err(_), Some(name)) => {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(parent.canonicalize().map_err(failed)?.join(name))
        }
        (Err(e), None) => Err(failed(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::open::{ConfinedDir, Directory};
    use crate::file::Identity;
    use crate::file::objects::{Found, Version};
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::SystemTime;

    #[test]
    fn names_are_relative_to_the_directory_of_the_folder() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        for directory in ["runs/sets", "data"] {
            std::fs::create_dir_all(top.join(directory)).unwrap();
        }
        std::fs::write(top.join("data/a.h5"), b"bytes").unwrap();
        let owner = crate::file::reader::Reader::owner_of(&Directory::open(&top.join("runs/sets")).unwrap()).unwrap();
        let open = |root: &str| ConfinedDir::open(&top.join(root)).unwrap();
        let place = |root: &str| Place { root: open(root), from: top.join("runs/sets"), owner: owner.clone() };
        let wide = place("");
        for (path, name) in [("data/a.h5", "../../data/a.h5"), ("runs/sets/b.h5", "b.h5"), ("runs/c.h5", "../c.h5")] {
            assert_eq!(wide.name_of(&top.join(path)), Some(name.into()));
        }
        assert!(wide.open_file(Path::new("../../data/a.h5")).is_ok());
        let narrow = place("runs");
        assert_eq!((narrow.name_of(&top.join("data/a.h5")), narrow.name_of(&top.join("runs-2/a.h5"))), (None, None));
        let outside = narrow.open_file(Path::new("../../data/a.h5")).unwrap_err().to_string();
        assert!(outside.contains("--external-root"), "{outside}");
        assert!(wide.open_file(Path::new("../../data/none.h5")).unwrap_err().to_string().contains("none.h5"));
    }

    #[test]
    fn files_beneath_the_root_may_be_referred_to() {
        let top = tempfile::tempdir().unwrap();
        for name in ["a/sub", "b"] {
            std::fs::create_dir_all(top.path().join(name)).unwrap();
        }
        std::fs::write(top.path().join("a/sub/x.h5"), b"").unwrap();
        let at = |name: &str| top.path().join(name);
        let x = at("a/sub/x.h5");
        let of = |original: &Path, folder: &str, external| {
            let target = PathBuf::from(format!("iod:{}", at(folder).display()));
            check(&target, original, &external).err().unwrap_or_default()
        };
        let default = || ExternalPolicy::Beneath(None);
        assert_eq!((of(&x, "a/new", default()), of(&x, "b", default())), (String::new(), String::new()));
        assert!(of(&x, "b/new", default()).contains("--external-root"));
        assert_eq!(of(&x, "b/new", ExternalPolicy::Beneath(Some(at("")))), "");
        assert!(of(&x, "a/new", ExternalPolicy::Off).contains("--external=off"));
        for other in ["iod:other", "s3://bucket/x.h5"] {
            assert!(of(Path::new(other), "a/new", default()).contains("of this machine"), "{other}");
        }
    }

    #[test]
    fn objects_below_the_prefix_of_a_container_may_be_referred_to() {
        let is_right = |original: &str| {
            let target = Path::new("iod+s3://bucket/data/box");
            check(target, Path::new(original), &ExternalPolicy::Beneath(None)).is_ok()
        };
        assert!(is_right("s3://bucket/data/run.h5") && is_right("s3://bucket/data/a/run.h5"));
        for wrong in ["s3://bucket/run.h5", "s3://bucket/data-2/run.h5", "s3://other/data/run.h5", "/data/run.h5", "iod:folder"] {
            assert!(!is_right(wrong), "{wrong}");
        }
    }

    /// One object, `a/run.h5`, that a driver never opens.
    struct Prefix;

    impl Objects for Prefix {
        fn used(&self) -> io::Result<Vec<(OwnedFd, bool)>> {
            Ok(Vec::new())
        }

        fn identity_of(&self, _folder: &str) -> Identity {
            Identity { device: 0, inode: 0 }
        }

        fn list(&self, _folder: &str) -> std::result::Result<Vec<(String, Found)>, ObjectError> {
            Ok(Vec::new())
        }

        fn find(&self, key: &str) -> std::result::Result<Option<Version>, ObjectError> {
            let version = Version { identity: self.identity_of(""), len: 0, modified: SystemTime::UNIX_EPOCH, etag: None };
            Ok((key == "a/run.h5").then_some(version))
        }

        fn head(&self, _key: &str, _version: &Version, _len: u64) -> std::result::Result<Vec<u8>, ObjectError> {
            Ok(Vec::new())
        }

        fn open(&self, _key: &str, _version: &Version) -> std::result::Result<Arc<dyn FileDriver>, ObjectError> {
            Err(ObjectError { errno: libc::EACCES, message: "403".into() })
        }

        fn set_memory(&self, _bytes: u64) {}

        fn counters(&self) -> Vec<(&'static str, u64)> {
            Vec::new()
        }
    }

    #[test]
    fn objects_are_named_from_the_prefix_of_the_container() {
        let sources = PrefixSources { url: "s3://bucket/data".into(), objects: Arc::new(Prefix) };
        let name = |url: &str| sources.name_of(&Original { path: url.into(), identity: Identity { device: 0, inode: 0 } });
        assert_eq!(name("s3://bucket/data/a/run.h5").unwrap(), b"a/run.h5");
        for outside in ["s3://bucket/data", "s3://bucket/data/", "s3://bucket/data-2/x.h5", "s3://other/data/x.h5", "/data/x.h5"] {
            assert!(name(outside).unwrap_err().to_string().contains("not an object below s3://bucket/data/"), "{outside}");
        }
        let open = |name: &[u8]| sources.open(name).err().map(|e| e.to_string()).unwrap();
        assert!(open(b"a/none.h5").contains("no such object") && open(b"a/run.h5").contains("403") && open(b"\xff").contains("UTF-8"));
    }
}
