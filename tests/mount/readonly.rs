//! Every operation that would change something is EROFS.

use super::mounted::{Mount, shell};
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn refused<T: std::fmt::Debug>(what: &str, result: io::Result<T>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EROFS), "{what}");
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn call(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn nothing_can_be_written() {
    let mount = Mount::fixture("links");
    let (data, new, group) = (mount.path("data"), mount.path("new"), mount.path("group"));
    refused("write", OpenOptions::new().write(true).open(&data));
    refused("append", OpenOptions::new().append(true).open(&data));
    refused("truncate", OpenOptions::new().write(true).truncate(true).open(&data));
    refused("create", std::fs::File::create(&new));
    refused("mkdir", std::fs::create_dir(&new));
    refused("unlink", std::fs::remove_file(&data));
    refused("rmdir", std::fs::remove_dir(&group));
    refused("rename", std::fs::rename(&data, &new));
    refused("rename into", std::fs::rename(&data, group.join("x")));
    refused("link", std::fs::hard_link(&data, &new));
    refused("symlink", std::os::unix::fs::symlink("data", &new));
    refused("chmod", std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o600)));
    refused("chown", std::os::unix::fs::chown(&data, Some(1), Some(1)));
}

#[test]
fn system_calls_that_change_are_refused_too() {
    let mount = Mount::fixture("links");
    let (data, new) = (c(&mount.path("data")), c(&mount.path("new")));
    let name = c"user.new";
    // SAFETY: all strings end in NUL; the value has the length passed.
    unsafe {
        refused("truncate", call(libc::truncate(data.as_ptr(), 1)));
        refused("mknod", call(libc::mknod(new.as_ptr(), libc::S_IFIFO | 0o600, 0)));
        refused("utimes", call(libc::utimes(data.as_ptr(), std::ptr::null())));
        refused("setxattr", call(libc::setxattr(data.as_ptr(), name.as_ptr(), b"v".as_ptr().cast(), 1, 0)));
        refused("removexattr", call(libc::removexattr(data.as_ptr(), name.as_ptr())));
        refused("access", call(libc::access(data.as_ptr(), libc::W_OK)));
    }
    shell(
        mount.place.dir(),
        "if touch mnt/new 2> err; then false; fi; grep -q 'Read-only file system' err; if cp err mnt/ 2> err2; then false; fi; grep -q 'Read-only file system' err2",
    );
}

#[test]
fn the_file_is_not_changed_by_reading_it() {
    let mount = Mount::fixture("layouts_old");
    let script = "sha256sum layouts_old.h5 > before; stat -c '%Y %s' layouts_old.h5 >> before; tar cf /dev/null mnt mnt/.h5dir
        sha256sum layouts_old.h5 > after; stat -c '%Y %s' layouts_old.h5 >> after; cmp before after";
    shell(mount.place.dir(), script);
}
