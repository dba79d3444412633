//! What to do about a file that cannot be opened: the last part of a message.

use crate::base::escape::escaped;
use crate::base::remote::is_url;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// First bytes of formats that are taken for HDF5 files, their names, and what converts them.
const FORMATS: [(&[u8], &str, &str); 8] = [
    (b"CDF", "a netCDF-3 file", "'nccopy -k nc4 OLD NEW' converts it"),
    (b"\x0e\x03\x13\x01", "an HDF4 file", "'h4toh5 OLD NEW' converts it"),
    (b"\x1f\x8b", "compressed by gzip", "decompress it first: 'gunzip'"),
    (b"BZh", "compressed by bzip2", "decompress it first: 'bunzip2'"),
    (b"\xfd7zXZ", "compressed by xz", "decompress it first: 'unxz'"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "decompress it first: 'unzstd'"),
    (b"PK\x03\x04", "a zip archive", "unpack it first: 'unzip'"),
    (b"\x93NUMPY", "a numpy file", "'h5dir cp' copies its elements into .h5dir/npy of a mount"),
];

/// What to do about a mount whose daemon has ended.
pub(super) const DEAD_MOUNT: &str = "the daemon of the mount has ended; 'h5dir umount' removes the mount";

/// What to do about the error `source` of opening `path` in order to `verb` it.
pub(super) fn of_error(verb: &str, path: &Path, source: &io::Error) -> String {
    if path.as_os_str().is_empty() {
        return "the argument is empty; name a file".into();
    }
    match source.kind() {
        io::ErrorKind::PermissionDenied if verb == "create" => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            format!("write permission of the directory {} is needed", escaped(parent))
        }
        _ if source.raw_os_error() == Some(libc::ENOTCONN) => DEAD_MOUNT.into(),
        io::ErrorKind::PermissionDenied if path.is_dir() => "read permission of the directory is needed".into(),
        io::ErrorKind::PermissionDenied => "read permission is needed, and write permission to change it".into(),
        io::ErrorKind::AlreadyExists => "remove it first, or choose another name".into(),
        io::ErrorKind::DirectoryNotEmpty => "name a new folder, or an empty one".into(),
        io::ErrorKind::ReadOnlyFilesystem if is_url(path) => "HDF5 files in object stores are only read".into(),
        io::ErrorKind::ReadOnlyFilesystem => "'h5dir mount' without --read-write can show it".into(),
        io::ErrorKind::InvalidInput => "only regular files and block devices can be opened".into(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => absent(path),
        _ => "check the path".into(),
    }
}

/// What to do where there is no file `path`.
fn absent(path: &Path) -> String {
    // A file with a path in it, without the colon.
    let file = path.ancestors().skip(1).find(|above| above.is_file());
    if let Some((file, inner)) = file.and_then(|file| Some((file, path.strip_prefix(file).ok()?))) {
        return format!("a path in a file follows a colon: {}:/{}", escaped(file), escaped(inner));
    }
    if names_group(path) { "a path in a file starts with a slash: FILE:/PATH".into() } else { "check the path".into() }
}

/// True if `path` is that of a file, a colon, and something that could be a path in it.
fn names_group(path: &Path) -> bool {
    let text = path.as_os_str().as_bytes();
    let colons = text.iter().enumerate().filter(|(_, b)| **b == b':').map(|(at, _)| at);
    colons.filter_map(|at| text.get(..at)).any(|file| Path::new(OsStr::from_bytes(file)).is_file())
}

/// What the local file `path` is, and what to do with it; `None`: that is not known.
pub(super) fn of_format(path: &Path) -> Option<(&'static str, &'static str)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    let meta = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    if meta.len() == 0 {
        return Some(("empty", "'h5dir create' makes a new file"));
    }
    let mut first = Vec::new();
    file.take(8).read_to_end(&mut first).ok()?;
    FORMATS.iter().find(|(magic, ..)| first.starts_with(magic)).map(|(_, name, advice)| (*name, *advice))
}
