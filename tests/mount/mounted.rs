//! A mounted fixture: files are read through the kernel, and the daemon ends with the guard.

use super::expected;
use super::support::{Place, eventually, h5dir, is_mounted};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A file mounted by the built command in the foreground.
pub struct Mount {
    /// Temporary folder with the file and the mountpoint.
    pub place: Place,
    child: Child,
}

impl Mount {
    /// Mounts a copy of the fixture NAME.h5 or NAME.h5.z.
    pub fn fixture(name: &str) -> Self {
        Self::with(name, "", &[])
    }

    /// The same, with something after the file name (`:/group`) and options.
    pub fn with(name: &str, after: &str, options: &[&str]) -> Self {
        let place = Place::new();
        let file = copy_fixture(name, place.dir());
        let mut target = file.into_os_string();
        target.push(after);
        Self::start(place, Path::new(&target), options)
    }

    /// Mounts `target` at the mountpoint of `place`.
    pub fn start(place: Place, target: &Path, options: &[&str]) -> Self {
        Self::start_by(h5dir(&["mount", "-f"]), place, target, options)
    }

    /// The same by a `command` that has more to it.
    pub fn start_by(mut command: Command, place: Place, target: &Path, options: &[&str]) -> Self {
        let log = std::fs::File::create(place.dir().join("log")).unwrap();
        command.args(options).arg(target).arg(place.mnt()).stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().unwrap();
        eventually("the mount answers", || is_mounted(&place.mnt()) || child.try_wait().unwrap().is_some());
        let this = Mount { place, child };
        assert!(is_mounted(&this.place.mnt()), "not mounted: {}", this.log());
        this
    }

    /// Ends the daemon by SIGTERM; its exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        eventually("the daemon ends", || self.child.try_wait().unwrap().is_some());
        self.child.try_wait().unwrap().and_then(|status| status.code())
    }

    /// A path on the mount.
    pub fn path(&self, path: &str) -> PathBuf {
        self.place.mnt().join(path)
    }

    /// What the daemon logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.place.dir().join("log")).unwrap()
    }

    /// Content of a file.
    pub fn read(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path(path)).unwrap_or_else(|e| panic!("{path}: {e}; log: {}", self.log()))
    }

    /// Content of a text file.
    pub fn text(&self, path: &str) -> String {
        String::from_utf8(self.read(path)).unwrap()
    }

    /// Names in a directory, sorted.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Target of a symbolic link.
    pub fn link(&self, path: &str) -> String {
        let target = std::fs::read_link(self.path(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        target.into_os_string().into_string().unwrap()
    }

    /// Value of the extended attribute `user.NAME`.
    pub fn xattr(&self, path: &str, name: &str) -> String {
        let value = getxattr(&self.path(path), &format!("user.{name}")).unwrap_or_else(|e| panic!("{path} user.{name}: {e}"));
        String::from_utf8(value).unwrap()
    }

    /// The number behind `name` in `.h5dir/status`.
    pub fn counter(&self, name: &str) -> u64 {
        let status = self.text(".h5dir/status");
        let line = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in {status}")).parse().unwrap()
    }

    /// The daemon.
    pub fn daemon(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = h5dir(&["umount", "--lazy"]).arg(self.place.mnt()).stderr(Stdio::null()).status();
        for _ in 0..500 {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(std::time::Duration::from_millis(10)),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies the fixture NAME.h5, unpacked if it is packed, into `directory`.
pub fn copy_fixture(name: &str, directory: &Path) -> PathBuf {
    let source = expected::folder().join(format!("{name}.h5"));
    let target = directory.join(source.file_name().unwrap());
    if source.exists() {
        std::fs::copy(source, &target).unwrap();
    } else {
        let packed = std::fs::File::open(expected::folder().join(format!("{name}.h5.z"))).unwrap();
        io::copy(&mut flate2::read::ZlibDecoder::new(packed), &mut std::fs::File::create(&target).unwrap()).unwrap();
    }
    target
}

fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap()
}

fn checked(n: isize) -> io::Result<usize> {
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// lgetxattr into a buffer of `size` bytes.
pub fn getxattr_sized(path: &Path, name: &str, size: usize) -> io::Result<Vec<u8>> {
    let (path, name) = (c_string(path.as_os_str().as_bytes()), c_string(name.as_bytes()));
    let mut value = vec![0u8; size];
    // SAFETY: both strings end in NUL, and the buffer has the length passed.
    let n = checked(unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), size) })?;
    // A size of zero asks for the length.
    value.resize(n, 0);
    Ok(value)
}

/// The value of an extended attribute.
pub fn getxattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    getxattr_sized(path, name, 1 << 16)
}

/// llistxattr into a buffer of `size` bytes: the length returned, and the list.
pub fn listxattr_sized(path: &Path, size: usize) -> io::Result<Vec<u8>> {
    let path = c_string(path.as_os_str().as_bytes());
    let mut list = vec![0u8; size];
    // SAFETY: the string ends in NUL, and the buffer has the length passed.
    let n = checked(unsafe { libc::llistxattr(path.as_ptr(), list.as_mut_ptr().cast(), size) })?;
    list.resize(n, 0);
    Ok(list)
}

/// Names of the extended attributes.
pub fn listxattr(path: &Path) -> Vec<String> {
    let list = listxattr_sized(path, 1 << 16).unwrap();
    list.split(|b| *b == 0).filter(|n| !n.is_empty()).map(|n| String::from_utf8(n.to_vec()).unwrap()).collect()
}

/// Runs a shell command in `directory` with a time limit; its output, having required success.
pub fn shell(directory: &Path, script: &str) -> String {
    let mut command = Command::new("timeout");
    command.args(["60", "bash", "-euo", "pipefail", "-c", script]).current_dir(directory).stdin(Stdio::null()).env("LC_ALL", "C");
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}: {}\n{out}\n{err}", output.status);
    out
}

/// Runs to the end: exit code, standard output and standard error.
pub(super) fn printed(command: &mut Command) -> (i32, String) {
    let output = command.output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}
