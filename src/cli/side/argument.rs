//! An argument of `cp`, `cat` and `diff`: `FILE:/PATH`, a local path, or `-`.

use crate::base::remote::is_container;
use crate::config::target::Target;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What an argument names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Argument {
    /// Standard input or output.
    Standard,
    /// A local file or directory.
    Local(PathBuf),
    /// A path in an HDF5 file.
    Object {
        /// The HDF5 file.
        file: PathBuf,
        /// Path of the view, with its leading slash.
        path: Vec<u8>,
    },
}

impl Argument {
    /// Parses an argument. The name of a local file that exists, or a new name in a local directory
    /// that exists, is that file: `dir:/new` where there is a directory `dir:`.
    pub(crate) fn parse(text: &OsStr) -> Argument {
        Self::parse_with(text, |path| path.is_dir(), Target::parse)
    }

    fn parse_with(text: &OsStr, is_directory: impl Fn(&Path) -> bool, parse: impl Fn(&OsStr) -> Target) -> Argument {
        if text == "-" {
            return Argument::Standard;
        }
        let target = parse(text);
        match target.inner {
            // A container in an object store is never a local file.
            None if is_container(&target.file) => Argument::Object { file: target.file, path: b"/".to_vec() },
            None => Argument::Local(target.file),
            Some(path) => {
                let beside = [target.file.as_os_str().as_bytes(), b":"].concat();
                if is_directory(Path::new(&OsString::from_vec(beside))) {
                    return Argument::Local(text.into());
                }
                Argument::Object { file: target.file, path }
            }
        }
    }

    /// The last name of the path; `None` where it has none, as the root, or ends in `.` or `..`.
    pub(crate) fn name(&self) -> Option<Vec<u8>> {
        let path = match self {
            Argument::Standard => return None,
            Argument::Local(path) => path.as_os_str().as_bytes(),
            Argument::Object { path, .. } => path,
        };
        let name = path.split(|b| *b == b'/').rfind(|name| !name.is_empty())?;
        (!matches!(name, b"." | b"..")).then(|| name.to_vec())
    }

    /// The argument as typed, for messages.
    pub(crate) fn text(&self) -> Vec<u8> {
        match self {
            Argument::Standard => b"-".to_vec(),
            Argument::Local(path) => path.as_os_str().as_bytes().to_vec(),
            Argument::Object { file, path } => [file.as_os_str().as_bytes(), b":", path].concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, directories: &[&str]) -> Argument {
        Argument::parse_with(OsStr::new(text), |p| directories.iter().any(|d| p == Path::new(d)), Target::parse)
    }

    #[test]
    fn a_colon_and_a_slash_divide_unless_the_directory_exists() {
        let object = |file: &str, path: &str| Argument::Object { file: file.into(), path: path.into() };
        assert_eq!(parsed("-", &[]), Argument::Standard);
        assert_eq!(parsed("./-", &[]), Argument::Local("./-".into()));
        assert_eq!(parsed("./a:b", &[]), Argument::Local("./a:b".into()));
        assert_eq!(parsed("f.h5:/g/d", &[]), object("f.h5", "/g/d"));
        assert_eq!(parsed("d:/new", &["d:"]), Argument::Local("d:/new".into()));
        assert_eq!(parsed("d:/new", &["d"]), object("d", "/new"));
        assert_eq!(parsed("f.h5:/", &[]), object("f.h5", "/"));
    }

    #[test]
    fn names_are_the_last_component() {
        let name = |text: &str| parsed(text, &[]).name();
        assert_eq!(name("f.h5:/g/d/"), Some(b"d".to_vec()));
        assert_eq!(name("a/b.raw"), Some(b"b.raw".to_vec()));
        for without in ["f.h5:/", "f.h5:/g/.", "..", "-", "/"] {
            assert_eq!(name(without), None, "{without}");
        }
        assert_eq!(parsed("f.h5:/g", &[]).text(), b"f.h5:/g");
    }
}
