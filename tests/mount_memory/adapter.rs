//! What the kernel and programs see through the adapter.

use crate::support::{Hooked, InProcess, config, eventually, is_mounted};
use h5dir::fs::memory::MemoryFs;
use h5dir::fs::types::ROOT;
use h5dir::fuse::{MountError, Mounted, UnmountError};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn syscall(rc: isize) -> io::Result<usize> {
    usize::try_from(rc).map_err(|_| io::Error::last_os_error())
}

fn getxattr(path: &Path, name: &str, buf: &mut [u8]) -> io::Result<usize> {
    let name = CString::new(name).unwrap();
    // SAFETY: both strings end with NUL and the buffer is as long as said.
    syscall(unsafe { libc::getxattr(c(path).as_ptr(), name.as_ptr(), buf.as_mut_ptr().cast(), buf.len()) })
}

fn listxattr(path: &Path, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the string ends with NUL and the buffer is as long as said.
    syscall(unsafe { libc::listxattr(c(path).as_ptr(), buf.as_mut_ptr().cast(), buf.len()) })
}

fn setxattr(path: &Path) -> io::Result<usize> {
    // SAFETY: strings that end with NUL, and a value of one byte.
    syscall(unsafe { libc::setxattr(c(path).as_ptr(), c"user.a".as_ptr(), c"2".as_ptr().cast(), 1, 0) } as isize)
}

fn removexattr(path: &Path) -> io::Result<usize> {
    // SAFETY: strings that end with NUL.
    syscall(unsafe { libc::removexattr(c(path).as_ptr(), c"user.a".as_ptr()) } as isize)
}

#[test]
fn ten_thousand_names_are_listed() {
    for timeout in [0, 86_400] {
        let mut fs = MemoryFs::new();
        let dir = fs.add_dir(ROOT, b"many").unwrap();
        let names: BTreeSet<String> = (0..10_000).map(|i| format!("name-{i:0width$}", width = 1 + i % 200)).collect();
        for name in &names {
            fs.add_file(dir, name.as_bytes(), vec![0; name.len()]).unwrap();
        }
        let hooked = Hooked::new(fs);
        let calls = Arc::clone(&hooked.calls);
        let mount = InProcess::with(hooked, |c| c.times.entry = Duration::from_secs(timeout));
        let mut seen = BTreeSet::new();
        for entry in fs::read_dir(mount.path("many")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            // readdirplus brought the attributes of the first pages already.
            assert_eq!(entry.metadata().unwrap().len(), name.len() as u64);
            assert!(seen.insert(name), "listed twice");
        }
        assert_eq!(seen, names);
        assert_eq!(fs::read_dir(mount.path("many")).unwrap().count(), 10_000);
        assert!(calls.looked_up.load(Ordering::Relaxed) > 0, "readdirplus is used");
    }
}

#[test]
fn names_and_their_absence_are_remembered_by_the_kernel() {
    let hooked = Hooked::new(MemoryFs::with_data_file(10).unwrap());
    let calls = Arc::clone(&hooked.calls);
    let mount = InProcess::new(hooked);
    for _ in 0..5 {
        assert!(mount.path("data").exists());
        assert_eq!(errno(fs::metadata(mount.path("none"))), Some(libc::ENOENT));
    }
    assert_eq!(calls.lookup.load(Ordering::Relaxed), 2);
}

#[test]
fn bytes_are_read_in_every_way() {
    let data = bytes(5 * (1 << 20) + 13);
    let mut fs = MemoryFs::new();
    fs.add_file(ROOT, b"data", data.clone()).unwrap();
    fs.add_file(ROOT, b"empty", vec![]).unwrap();
    let mount = InProcess::new(fs);
    assert_eq!(fs::read(mount.path("data")).unwrap(), data);
    assert_eq!(fs::read(mount.path("empty")).unwrap(), b"");

    let file = File::open(mount.path("data")).unwrap();
    std::thread::scope(|scope| {
        for start in 0..4usize {
            let (file, data) = (&file, &data);
            scope.spawn(move || {
                for i in 0..200usize {
                    let at = (start * 7_919 + i * 104_729) % data.len();
                    let mut buf = vec![0; 1 + (i * 397) % 70_000];
                    let n = file.read_at(&mut buf, at as u64).unwrap();
                    assert_eq!(n, buf.len().min(data.len() - at));
                    assert_eq!(buf[..n], data[at..at + n]);
                }
            });
        }
    });
    assert_eq!(file.read_at(&mut [0; 10], data.len() as u64).unwrap(), 0);
    assert_eq!(file.read_at(&mut [0; 10], 1 << 62).unwrap(), 0);

    let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(mount.path("data")).unwrap();
    let mut whole = Vec::new();
    (&direct).read_to_end(&mut whole).unwrap();
    assert_eq!(whole, data);
}

#[test]
fn mapped_bytes_are_the_same_and_the_last_page_ends_in_zeros() {
    let data = bytes(3 * 4096 + 100);
    let mut fs = MemoryFs::new();
    fs.add_file(ROOT, b"data", data.clone()).unwrap();
    let mount = InProcess::new(fs);
    let file = File::open(mount.path("data")).unwrap();
    for flags in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
        let len = 4 * 4096;
        // SAFETY: a new read-only mapping of an open file; its result is checked before it is used.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        assert_ne!(address, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        // SAFETY: `len` bytes are mapped until munmap below; the file does not change.
        let mapped = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) };
        assert_eq!(mapped[..data.len()], data);
        assert!(mapped[data.len()..].iter().all(|b| *b == 0));
        // SAFETY: the mapping made above, no longer used.
        assert_eq!(unsafe { libc::munmap(address, len) }, 0);
    }
}

#[test]
fn attributes_links_seeks_and_totals() {
    let mut fs = MemoryFs::new();
    fs.add_file(ROOT, b"data", bytes(1000)).unwrap();
    fs.add_symlink(ROOT, b"link", b"data").unwrap();
    let mount = InProcess::new(fs);
    let meta = fs::metadata(mount.path("data")).unwrap();
    assert_eq!((meta.len(), meta.blocks(), meta.nlink(), meta.mode()), (1000, 2, 1, 0o100444));
    assert_eq!((meta.uid(), meta.mtime()), (nix::unistd::geteuid().as_raw(), 1_704_067_200));
    assert_eq!(fs::read_link(mount.path("link")).unwrap(), Path::new("data"));
    assert_eq!(fs::read(mount.path("link")).unwrap(), bytes(1000));

    let file = File::open(mount.path("data")).unwrap();
    // SAFETY: lseek on an open file.
    let seek = |offset, whence| syscall(unsafe { libc::lseek(file.as_raw_fd(), offset, whence) } as isize);
    assert_eq!(seek(10, libc::SEEK_DATA).unwrap(), 10);
    assert_eq!(seek(10, libc::SEEK_HOLE).unwrap(), 1000);
    assert_eq!(errno(seek(1000, libc::SEEK_DATA)), Some(libc::ENXIO));
    assert_eq!(seek(-1, libc::SEEK_END).unwrap(), 999);

    let totals = nix::sys::statvfs::statvfs(&mount.place.mnt()).unwrap();
    assert_eq!((totals.blocks(), totals.block_size(), totals.name_max(), totals.blocks_free()), (1, 4096, 255, 0));
    let flags = totals.flags();
    use nix::sys::statvfs::FsFlags;
    assert!(flags.contains(FsFlags::ST_RDONLY | FsFlags::ST_NOSUID | FsFlags::ST_NODEV | FsFlags::ST_NOATIME));
}

#[test]
fn extended_attributes_follow_the_size_protocol() {
    let mut fs = MemoryFs::new();
    let f = fs.add_file(ROOT, b"f", vec![]).unwrap();
    fs.set_xattr(f, b"user.a", b"value").unwrap();
    fs.set_xattr(f, b"user.empty", b"").unwrap();
    fs.set_xattr(f, b"user.largest", &[7; 65_536]).unwrap();
    fs.set_xattr(f, b"user.too-large", &[7; 65_537]).unwrap();
    let long = fs.add_file(ROOT, b"long-list", vec![]).unwrap();
    for i in 0..400 {
        fs.set_xattr(long, format!("user.{i:0200}").as_bytes(), b"").unwrap();
    }
    let mount = InProcess::new(fs);
    let path = mount.path("f");
    let mut buf = vec![0; 70_000];

    assert_eq!(getxattr(&path, "user.a", &mut []).unwrap(), 5);
    assert_eq!(errno(getxattr(&path, "user.a", &mut buf[..4])), Some(libc::ERANGE));
    assert_eq!(getxattr(&path, "user.a", &mut buf[..5]).unwrap(), 5);
    assert_eq!(&buf[..5], b"value");
    assert_eq!(getxattr(&path, "user.empty", &mut buf).unwrap(), 0);
    assert_eq!(getxattr(&path, "user.largest", &mut buf).unwrap(), 65_536);
    assert_eq!(errno(getxattr(&path, "user.too-large", &mut [])), Some(libc::E2BIG));
    assert_eq!(errno(getxattr(&path, "user.too-large", &mut buf)), Some(libc::E2BIG));
    assert_eq!(errno(getxattr(&path, "user.none", &mut buf)), Some(libc::ENODATA));

    let list = b"user.a\0user.empty\0user.largest\0user.too-large\0";
    assert_eq!(listxattr(&path, &mut []).unwrap(), list.len());
    assert_eq!(errno(listxattr(&path, &mut buf[..list.len() - 1])), Some(libc::ERANGE));
    assert_eq!(listxattr(&path, &mut buf).unwrap(), list.len());
    assert_eq!(&buf[..list.len()], list);
    assert_eq!(errno(listxattr(&mount.path("long-list"), &mut buf)), Some(libc::E2BIG));
    assert_eq!(listxattr(&mount.place.mnt(), &mut buf).unwrap(), 0);
}

#[test]
fn other_namespaces_never_reach_the_file_system() {
    let hooked = Hooked::new(MemoryFs::with_data_file(10).unwrap());
    let calls = Arc::clone(&hooked.calls);
    let mount = InProcess::new(hooked);
    let mut buf = [0; 100];
    for name in ["security.capability", "security.selinux", "system.posix_acl_access", "trusted.x", "security.ima"] {
        assert_eq!(errno(getxattr(&mount.path("data"), name, &mut buf)), Some(libc::EOPNOTSUPP), "{name}");
    }
    assert_eq!(calls.getxattr.load(Ordering::Relaxed), 0);
    assert_eq!(errno(getxattr(&mount.path("data"), "user.x", &mut buf)), Some(libc::ENODATA));
    assert_eq!(calls.getxattr.load(Ordering::Relaxed), 1);
}

#[test]
fn every_write_is_refused() {
    // Mounted read-only the kernel refuses; mounted writable the adapter does.
    for read_only in [true, false] {
        let mut fs = MemoryFs::new();
        let f = fs.add_file(ROOT, b"f", b"abc".to_vec()).unwrap();
        fs.set_xattr(f, b"user.a", b"1").unwrap();
        fs.add_dir(ROOT, b"d").unwrap();
        let mount = InProcess::with(fs, |c| c.read_only = read_only);
        let (f, d, new) = (mount.path("f"), mount.path("d"), mount.path("new"));
        let open = |options: &mut fs::OpenOptions, path: &Path| errno(options.open(path));
        let now = nix::sys::time::TimeVal::new(0, 0);
        let nix = |result: nix::Result<()>| result.err().map(|e| e as i32);
        let refused = [
            ("create", open(File::options().write(true).create_new(true), &new)),
            ("open to write", open(File::options().write(true), &f)),
            ("open to read and write", open(File::options().read(true).write(true), &f)),
            ("open to append", open(File::options().append(true), &f)),
            ("open and truncate", open(File::options().write(true).truncate(true), &f)),
            ("read with O_TRUNC", open(File::options().read(true).custom_flags(libc::O_TRUNC), &f)),
            ("mkdir", errno(fs::create_dir(&new))),
            ("mkfifo", nix(nix::unistd::mkfifo(&new, nix::sys::stat::Mode::S_IRUSR))),
            ("unlink", errno(fs::remove_file(&f))),
            ("rmdir", errno(fs::remove_dir(&d))),
            ("rename", errno(fs::rename(&f, &new))),
            ("symlink", errno(std::os::unix::fs::symlink("f", &new))),
            ("link", errno(fs::hard_link(&f, &new))),
            ("chmod", errno(fs::set_permissions(&f, fs::Permissions::from_mode(0o600)))),
            ("chown", errno(std::os::unix::fs::chown(&f, Some(1), Some(1)))),
            ("utime", nix(nix::sys::stat::utimes(&f, &now, &now))),
            ("truncate", nix(nix::unistd::truncate(&f, 0))),
            ("setxattr", errno(setxattr(&f))),
            ("removexattr", errno(removexattr(&f))),
        ];
        for (what, result) in refused {
            assert_eq!(result, Some(libc::EROFS), "{what}, read_only {read_only}");
        }
        assert_eq!(fs::read(&f).unwrap(), b"abc");
        // Closing and syncing a file that was read is fine.
        File::open(&f).unwrap().sync_all().unwrap();
    }
}

#[test]
fn panic_is_eio_and_the_mount_lives() {
    for operation in ["read", "open", "getxattr", "readlink", "readdir", "release"] {
        let mut fs = MemoryFs::with_data_file(100).unwrap();
        fs.add_dir(ROOT, b"dir").unwrap();
        fs.add_symlink(ROOT, b"link", b"data").unwrap();
        let mount = InProcess::with(Hooked { panic_in: Some(operation), ..Hooked::new(fs) }, |c| c.threads = 2);
        // More often than there are event loops.
        for _ in 0..5 {
            let result = match operation {
                "read" | "open" => errno(fs::read(mount.path("data"))),
                "getxattr" => errno(getxattr(&mount.path("data"), "user.x", &mut [])),
                "readlink" => errno(fs::read_link(mount.path("link"))),
                "readdir" => {
                    errno(fs::read_dir(mount.path("dir")).and_then(|mut d| d.next().unwrap_or_else(|| Err(io::Error::other("no entry")))))
                }
                // Nobody is told how a release went.
                _ => fs::read(mount.path("data")).is_ok().then_some(libc::EIO),
            };
            assert_eq!(result, Some(libc::EIO), "{operation}");
        }
        nix::sys::statvfs::statvfs(&mount.place.mnt()).unwrap();
        assert_eq!(fs::read_dir(mount.place.mnt()).unwrap().count(), 3);
    }
}

#[test]
fn error_within_a_listing_comes_after_the_entries_before_it() {
    let mut fs = MemoryFs::new();
    for i in 0..20 {
        fs.add_file(ROOT, format!("f{i}").as_bytes(), vec![]).unwrap();
    }
    let mount = InProcess::new(Hooked { break_listing_after: Some(7), ..Hooked::new(fs) });
    let results: Vec<_> = fs::read_dir(mount.place.mnt()).unwrap().take(8).collect();
    // Seven entries, of which two are dots.
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 5);
    assert_eq!(results.into_iter().find_map(errno), Some(libc::EIO));
}

#[test]
fn unmounting_while_files_are_read() {
    let mut mount = InProcess::new(MemoryFs::with_data_file(1 << 20).unwrap());
    let mounted = mount.mounted.take().unwrap();
    let stop = AtomicBool::new(false);
    let path = mount.path("data");
    let file = File::open(&path).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut rounds = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let n = file.read_at(&mut [0; 4096], (rounds * 4096) % (1 << 20)).unwrap();
                assert_eq!(n, 4096);
                rounds += 1;
            }
            rounds
        });
        assert!(matches!(mounted.unmount(false), Err(UnmountError::Busy)));
        assert!(mounted.is_present());
        mounted.unmount(true).unwrap();
        assert!(!is_mounted(&mount.place.mnt()));
        // Detached, it serves the open file on.
        std::thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
    drop(file);
    // With the last file closed the session ends by itself.
    mounted.wait().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_place_is_not_mounted_twice_and_not_on_a_file() {
    let mount = InProcess::new(MemoryFs::new());
    let again = Mounted::new(Arc::new(MemoryFs::new()), &config(mount.place.mnt()));
    assert!(matches!(again, Err(MountError::AlreadyMounted { .. })), "{again:?}");
    let file = mount.place.dir().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(Mounted::new(Arc::new(MemoryFs::new()), &config(file)), Err(MountError::NotDirectory { .. })));
}

#[test]
fn end_of_an_old_session_leaves_a_new_mount_alone() {
    let mut first = InProcess::new(MemoryFs::new());
    let old = first.mounted.take().unwrap();
    let mnt = first.place.mnt();
    h5dir::fuse::unmount::unmount(&mnt, false).unwrap();
    // Its device number may well be the old one's.
    let new = Mounted::new(Arc::new(MemoryFs::with_data_file(1).unwrap()), &config(mnt.clone())).unwrap();
    old.wait().unwrap();
    assert!(is_mounted(&mnt) && mnt.join("data").exists());
    drop(new);
    eventually("the new mount is gone", || !is_mounted(&mnt));
}

#[test]
fn odd_sources_are_shown_as_they_are() {
    let odd = "/data/a b,c\\d\n.h5";
    let mount = InProcess::with(MemoryFs::new(), |c| c.source = odd.into());
    let seen = h5dir::fuse::mounts::top_at(&mount.place.mnt()).unwrap().unwrap();
    assert_eq!(seen.source, odd);
    assert_eq!(seen.fs_type, "fuse.h5dir");
}

#[test]
fn readahead_of_the_mount_is_set() {
    let mount = InProcess::with(MemoryFs::new(), |c| c.readahead = 2 << 20);
    let device = mount.mounted.as_ref().unwrap().device();
    let text = fs::read_to_string(format!("/sys/class/bdi/{device}/read_ahead_kb")).unwrap();
    assert_eq!(text.trim(), "2048");
}
