//! What the two arguments of a comparison name.

use crate::base::escape::escaped_bytes;
use crate::base::remote::{is_container, is_prefix, is_url};
use crate::cli::failure::{Exit, Failure, reason};
use crate::cli::side::argument::Argument;
use crate::cli::side::whole::{is_object, recognized, root_of};
use crate::config::target::Target;
use crate::fs::open::Recognized;
use std::ffi::OsStr;
use std::path::Path;

/// Both sides of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sides {
    /// What is compared.
    pub(super) arguments: [Argument; 2],
    /// Both are whole files or directories: everything in them is compared.
    pub(super) whole: bool,
}

/// What an argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    /// A path in a container.
    Inside,
    /// A container, a file or a directory of HDF5 files, as a whole.
    Container,
    /// A local directory.
    Directory,
    /// Another local file.
    Other,
}

/// What `left` and `right` name. Errors: no side is or has an HDF5 file, or one is missing.
pub(super) fn sides(left: &OsStr, right: &OsStr) -> Result<Sides, Failure> {
    let texts = [left, right];
    let arguments = texts.map(Argument::parse);
    if arguments.contains(&Argument::Standard) {
        return Err(Failure::new(Exit::Usage, "standard input cannot be compared; name a file"));
    }
    let mut named = [Named::Other; 2];
    for ((named, argument), text) in named.iter_mut().zip(&arguments).zip(texts) {
        *named = name(argument, text)?;
    }
    let is_local = |named| matches!(named, Named::Other | Named::Directory);
    let whole = |argument: Argument, other: Named, is: Named| match (&argument, is, other) {
        (Argument::Local(path), Named::Container, _) => root_of(path),
        // The HDF5 files of both directories are compared as what they hold.
        (Argument::Local(path), Named::Directory, Named::Directory) => root_of(path),
        _ => argument,
    };
    let [a, b] = named;
    let plain = arguments.iter().zip(named).find(|(_, named)| *named == Named::Other).map(|(argument, _)| argument);
    if let Some(plain) = plain.filter(|_| !matches!((a, b), (Named::Inside, _) | (_, Named::Inside))) {
        let name = escaped_bytes(&plain.text()).to_string();
        let message = if is_local(a) && is_local(b) {
            format!("neither side is an HDF5 file, or an object of one (FILE:/PATH); 'diff' compares {name} with other local files")
        } else {
            format!("cannot compare {name}: it is not an HDF5 file; name one object of the other side, as FILE:/PATH, to compare bytes")
        };
        return Err(Failure::new(Exit::Usage, message));
    }
    let [left, right] = arguments;
    // A local file beside one object of a container is the bytes of that object.
    let is_bytes = |local: &Argument, beside: &Argument| {
        matches!((local, beside), (Argument::Local(path), Argument::Object { path: inside, .. })
            if !is_url(path) && inside.iter().any(|b| *b != b'/'))
    };
    let left_named = if b == Named::Inside && is_bytes(&left, &right) { Named::Other } else { a };
    let right_named = if a == Named::Inside && is_bytes(&right, &left) { Named::Other } else { b };
    let is_whole = a != Named::Inside && b != Named::Inside;
    Ok(Sides { arguments: [whole(left, b, left_named), whole(right, a, right_named)], whole: is_whole })
}

/// What the argument `text` names.
fn name(argument: &Argument, text: &OsStr) -> Result<Named, Failure> {
    let path = match argument {
        Argument::Object { .. } if Target::parse(text).inner.is_some() => return Ok(Named::Inside),
        Argument::Object { .. } => return Ok(Named::Container),
        Argument::Local(path) if is_object(path) || is_prefix(path) || is_container(path) => return Ok(Named::Container),
        Argument::Local(path) => path,
        Argument::Standard => return Ok(Named::Other),
    };
    local(path).map_err(|e| {
        Failure::new(Exit::Path, format!("cannot compare {}: {}; check the path", escaped_bytes(&argument.text()), reason(&e)))
    })
}

fn local(path: &Path) -> std::io::Result<Named> {
    Ok(match (path.metadata()?.is_dir(), recognized(path)) {
        (true, _) => Named::Directory,
        (_, Some(Recognized::Container | Recognized::Damaged)) => Named::Container,
        _ => Named::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::open;

    #[test]
    fn whole_files_are_their_root_groups() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a.h5", "b.h5"] {
            open::create(&path(name), &crate::fs::NewFile::default()).unwrap();
        }
        std::fs::write(path("text"), b"no signature").unwrap();
        std::fs::create_dir(path("d")).unwrap();
        let root = |name: &str| root_of(&path(name));
        let local = |name: &str| Argument::Local(path(name));
        let of = |left: &str, right: &str| {
            let full = |name: &str| if name.contains("iod:") { name.into() } else { path(name).into_os_string() };
            sides(&full(left), &full(right)).map(|s| (s.arguments, s.whole)).map_err(|f| f.exit)
        };
        assert_eq!(of("a.h5", "b.h5"), Ok(([root("a.h5"), root("b.h5")], true)));
        assert_eq!(of("a.h5", "iod:x"), Ok(([root("a.h5"), root_of(Path::new("iod:x"))], true)));
        assert_eq!(of("a.h5", "d"), Ok(([root("a.h5"), local("d")], true)));
        assert_eq!(of("d", "d"), Ok(([root("d"), root("d")], true)));
        assert_eq!(of("a.h5:/", "b.h5"), Ok(([root("a.h5"), root("b.h5")], false)));
        let inside = Argument::Object { file: path("a.h5"), path: b"/x".to_vec() };
        assert_eq!(of("a.h5:/x", "b.h5"), Ok(([inside.clone(), local("b.h5")], false)));
        assert_eq!(of("a.h5:/x", "text"), Ok(([inside.clone(), local("text")], false)));
        assert_eq!(of("a.h5:/x", "d"), Ok(([inside, local("d")], false)));
        for (left, right) in [("a.h5", "text"), ("text", "text"), ("d", "text")] {
            assert_eq!(of(left, right), Err(Exit::Usage), "{left} {right}");
        }
        assert_eq!(of("a.h5", "none.h5"), Err(Exit::Path));
    }
}
