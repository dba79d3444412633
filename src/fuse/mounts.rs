//! The mount table of this process, `/proc/self/mountinfo`.
//!
//! ```text
//! 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//! id parent maj:min root mountpoint options fields... - type source super-options
//! ```
//! Space, tab, newline and backslash in names are written as `\ooo`. Source: proc_pid_mountinfo(5).
//! Reading it never touches the mounted file system, so it does not hang on a dead one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// File system type of our mounts.
pub const FS_TYPE: &str = "fuse.h5dir";

/// Most processes whose mounts are looked at.
const PROCESSES_MAX: usize = 1 << 16;

/// Device number of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
}

impl Device {
    /// From `st_dev`.
    pub fn from_raw(dev: u64) -> Self {
        Device { major: nix::sys::stat::major(dev), minor: nix::sys::stat::minor(dev) }
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u64,
    /// Number of the mount that it covers a directory of.
    pub parent: u64,
    /// Device number of its file system.
    pub device: Device,
    /// Its mountpoint.
    pub mountpoint: PathBuf,
    /// Type of the file system, with the subtype.
    pub fs_type: OsString,
    /// What is mounted.
    pub source: OsString,
    /// The user who mounted it, of a FUSE mount.
    pub owner: Option<u32>,
    /// It cannot be written.
    pub read_only: bool,
}

impl Mount {
    /// True for a mount of h5dir.
    pub fn is_ours(&self) -> bool {
        self.fs_type == FS_TYPE
    }

    /// True for a FUSE mount.
    pub fn is_fuse(&self) -> bool {
        self.fs_type.as_bytes().starts_with(b"fuse")
    }
}

/// The upper mount at `mountpoint`, an absolute path without links.
pub fn top_at(mountpoint: &Path) -> io::Result<Option<Mount>> {
    Ok(top(&parse(&std::fs::read("/proc/self/mountinfo")?), mountpoint))
}

/// All mounts of h5dir.
pub fn ours() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?).into_iter().filter(Mount::is_ours).collect())
}

/// A process in another mount namespace that has a mount of the file system `device`, of those that
/// the caller may see: its number and name.
pub fn elsewhere(device: Device) -> Option<(u32, String)> {
    let here = std::fs::read_link("/proc/self/ns/mnt").ok();
    let processes = std::fs::read_dir("/proc").ok()?.flatten().take(PROCESSES_MAX);
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut seen: Vec<PathBuf> = here.into_iter().collect();
    for pid in numbers {
        let Ok(namespace) = std::fs::read_link(format!("/proc/{pid}/ns/mnt")) else { continue };
        if seen.contains(&namespace) {
            continue;
        }
        seen.push(namespace);
        let table = std::fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        if parse(&table).iter().any(|m| m.is_ours() && m.device == device) {
            let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
            return Some((pid, String::from_utf8_lossy(name.trim_ascii()).into_owned()));
        }
    }
    None
}

/// The mount with the number `id`, if the table has it.
pub fn by_id(id: u64) -> io::Result<Option<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?).into_iter().find(|m| m.id == id))
}

/// Absolute path of the directory that holds the last part of `path`, and that part. The whole path
/// and `None` where it ends in `..` or is the root.
pub fn split(path: &Path) -> io::Result<(PathBuf, Option<&OsStr>)> {
    let mut path = path;
    // "mnt/" and "mnt/." would ask the mounted file system.
    while let Some(stripped) = strip_end(path) {
        path = stripped;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok((parent.canonicalize()?, Some(name)))
        }
        _ => Ok((path.canonicalize()?, None)),
    }
}

fn strip_end(path: &Path) -> Option<&Path> {
    let bytes = path.as_os_str().as_bytes();
    let shorter = bytes.strip_suffix(b"/").or_else(|| bytes.strip_suffix(b"/."))?;
    (!shorter.is_empty()).then(|| Path::new(OsStr::from_bytes(shorter)))
}

fn top(mounts: &[Mount], mountpoint: &Path) -> Option<Mount> {
    let here = || mounts.iter().filter(|m| m.mountpoint == mountpoint);
    // Mounts may be stacked at one place: the one that is not covered is visible.
    here().find(|m| !here().any(|upper| upper.parent == m.id)).cloned()
}

fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|b| *b == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = fields.next()?;
    let colon = device.iter().position(|b| *b == b':')?;
    let device = Device { major: number(device.get(..colon)?)?, minor: number(device.get(colon + 1..)?)? };
    let mountpoint = unescape(fields.nth(1)?);
    let is_read_only = |options: &[u8]| options.split(|b| *b == b',').any(|option| option == b"ro");
    let mount_read_only = is_read_only(fields.next()?);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = unescape(rest.next()?);
    let source = unescape(rest.next()?);
    let options = rest.next().unwrap_or_default();
    let owner = options.split(|b| *b == b',').find_map(|option| number(option.strip_prefix(b"user_id=")?));
    let owner = owner.and_then(|user| u32::try_from(user).ok());
    let read_only = mount_read_only || is_read_only(options);
    Some(Mount { id, parent, device, mountpoint: mountpoint.into(), fs_type, source, owner, read_only })
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn unescape(mut field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    while let Some((first, rest)) = field.split_first() {
        let octal = rest.get(..3).filter(|d| *first == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match octal.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                field = rest.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                field = rest;
            }
        }
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
        40 22 0:50 / /mnt/a\\040b rw,nosuid - fuse.h5dir /data/x\\134y.h5 ro,user_id=0\n\
        41 40 0:51 / /mnt/a\\040b rw shared:7 master:1 - tmpfs none rw\n\
        broken line\n\n";

    #[test]
    fn stacked_mounts_show_the_upper_one() {
        let mounts = parse(TABLE);
        assert_eq!(mounts.len(), 3);
        let seen = top(&mounts, Path::new("/mnt/a b")).unwrap();
        assert_eq!((seen.id, seen.device, seen.is_ours()), (41, Device { major: 0, minor: 51 }, false));
        assert_eq!(mounts[1].source, "/data/x\\y.h5");
        assert!(mounts[1].is_ours() && mounts[1].is_fuse());
        assert_eq!(mounts.iter().map(|m| m.read_only).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(mounts.iter().map(|m| m.owner).collect::<Vec<_>>(), [None, Some(0), None]);
        assert_eq!(top(&mounts, Path::new("/mnt")), None);
    }

    #[test]
    fn last_part_of_a_path_is_split_off_without_trailing_dots_and_slashes() {
        let dir = tempfile::tempdir().unwrap();
        let full = dir.path().canonicalize().unwrap();
        let name = Some(OsStr::new("absent"));
        for path in ["absent", "absent/", "absent/.//"] {
            assert_eq!(split(&full.join(path)).unwrap(), (full.clone(), name), "{path}");
        }
        assert_eq!(split(Path::new("/")).unwrap(), ("/".into(), None));
        assert_eq!(split(&full.join("..")).unwrap(), (full.parent().unwrap().to_owned(), None));
        assert!(split(&full.join("absent/x")).is_err());
    }

    #[test]
    fn own_table_is_read() {
        assert!(top_at(Path::new("/proc")).unwrap().is_some());
    }
}
