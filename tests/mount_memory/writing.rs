//! Real mounts of the in-memory model that is changed: system calls, and the usual programs.

use crate::support::InProcess;
use h5dir::connector::memory::{MemoryConnector, MemoryObject, Rows};
use h5dir::connector::{Connector, LinkTarget, ObjectId};
use h5dir::fs::MountSpec;
use h5dir::fs::container::{Backing, ContainerFs};
use h5dir::present;
use nix::fcntl::{AT_FDCWD, FallocateFlags, Flock, FlockArg, RenameFlags, fallocate, renameat2};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

struct Writable {
    mount: InProcess,
    model: Arc<MemoryConnector>,
}

/// Root with `fixed` (8 bytes, never another number), `rows` (rows of 4 bytes, at most 3) and `g/d`.
fn writable() -> Writable {
    let links = |names: &[(&str, u64)]| {
        let links: BTreeMap<_, _> =
            names.iter().map(|(n, id)| (n.as_bytes().to_vec(), LinkTarget::Hard(MemoryConnector::id(*id)))).collect();
        MemoryObject { links: Some(links), ..MemoryObject::default() }
    };
    let data = |bytes: &[u8], rows| MemoryObject { bytes: Some(bytes.to_vec()), rows, ..MemoryObject::default() };
    let objects = vec![
        links(&[("fixed", 1), ("rows", 2), ("g", 3)]),
        data(b"01234567", None),
        data(b"aaaa", Some(Rows { bytes: 4, max: Some(3) })),
        links(&[("d", 4)]),
        data(b"in g", None),
    ];
    let model = Arc::new(MemoryConnector::writable(objects).unwrap());
    let mount = InProcess::with(file_system(&model), |c| {
        c.read_only = false;
        (c.times.entry, c.times.attr) = (Duration::from_secs(1), Duration::from_secs(1));
    });
    Writable { mount, model }
}

fn file_system(model: &Arc<MemoryConnector>) -> ContainerFs {
    let t = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let spec = MountSpec { cache_bytes: 1 << 20, uid, gid, ..MountSpec::writable("model.h5") };
    ContainerFs::new(model.clone(), model.root(), Vec::new(), Backing { atime: t, mtime: t, ctime: t, len: 0 }, spec)
}

impl Writable {
    fn path(&self, name: &str) -> PathBuf {
        self.mount.path(name)
    }

    fn id(&self, path: &str) -> Option<ObjectId> {
        self.model.resolve(self.model.root(), path.as_bytes()).unwrap()
    }

    /// The path that the soft link `path` holds.
    fn soft_link(&self, path: &str) -> String {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        match self.model.lookup(self.id(dir).unwrap(), name.as_bytes()).unwrap().unwrap().target {
            LinkTarget::Soft(path) => String::from_utf8(path).unwrap(),
            other => panic!("{path} is {other:?}"),
        }
    }

    /// Runs a shell script in the mount; its standard output.
    fn shell(&self, script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(self.mount.place.mnt()).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn errno<T>(result: io::Result<T>) -> i32 {
    result.err().and_then(|e| e.raw_os_error()).unwrap_or(0)
}

fn nix_errno<T>(result: nix::Result<T>) -> i32 {
    result.err().map_or(0, |e| e as i32)
}

fn rename2(from: &Path, to: &Path, flags: RenameFlags) -> i32 {
    nix_errno(renameat2(AT_FDCWD, from, AT_FDCWD, to, flags))
}

fn setxattr(path: &Path, name: &str, value: &[u8], flags: i32) -> i32 {
    let (path, name) = (std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap(), std::ffi::CString::new(name).unwrap());
    // SAFETY: both strings end with NUL and the value is as long as said.
    let rc = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) };
    if rc == 0 { 0 } else { errno::<()>(Err(io::Error::last_os_error())) }
}

fn removexattr(path: &Path, name: &str) -> i32 {
    let (path, name) = (std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap(), std::ffi::CString::new(name).unwrap());
    // SAFETY: both strings end with NUL.
    let rc = unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) };
    if rc == 0 { 0 } else { errno::<()>(Err(io::Error::last_os_error())) }
}

#[test]
fn files_are_made_written_and_read_back() {
    let w = writable();
    let new = w.path("new");
    fs::write(&new, b"hello").unwrap();
    assert_eq!(fs::read(&new).unwrap(), b"hello");
    let big: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 / 3) as u8).collect();
    fs::write(&new, &big).unwrap();
    assert!(fs::read(&new).unwrap() == big && fs::metadata(&new).unwrap().len() == 3_000_000);
    let file = File::options().read(true).write(true).open(&new).unwrap();
    file.write_all_at(b"XYZ", 1_000_000).unwrap();
    let mut back = [0; 5];
    file.read_exact_at(&mut back, 999_999).unwrap();
    assert_eq!(&back[1..4], b"XYZ");
    file.write_all_at(b"end", 3_100_000).unwrap();
    assert_eq!(fs::metadata(&new).unwrap().len(), 3_100_003);
    file.read_exact_at(&mut back, 3_000_100).unwrap();
    assert_eq!(back, [0; 5]);
    file.set_len(10).unwrap();
    assert_eq!(fs::read(&new).unwrap(), &big[..10]);
    assert_eq!(errno(File::options().write(true).create_new(true).open(&new)), libc::EEXIST);
    assert_eq!(fs::metadata(&new).unwrap().mode(), 0o100644);
    assert_eq!((errno(File::create(w.path("g"))), errno(fs::write(w.path("none/x"), ""))), (libc::EISDIR, libc::ENOENT));
}

#[test]
fn appended_bytes_go_on_where_the_last_ended() {
    let w = writable();
    let mut log = File::options().append(true).create(true).open(w.path("log")).unwrap();
    fs::write(w.path("log"), "0").unwrap();
    log.write_all(b"1").unwrap();
    log.write_all(b"2").unwrap();
    assert_eq!(fs::read(w.path("log")).unwrap(), b"012");
    // A row is completed, but the next bytes fill it.
    let mut rows = File::options().append(true).open(w.path("rows")).unwrap();
    rows.write_all(b"bb").unwrap();
    assert_eq!(fs::metadata(w.path("rows")).unwrap().len(), 8);
    rows.write_all(b"bbc").unwrap();
    assert_eq!(fs::read(w.path("rows")).unwrap(), b"aaaabbbbc\0\0\0");
    // Regression: another open file began a new row only if the kernel had told of the first one's
    // end in time.
    assert_eq!(errno(File::options().append(true).open(w.path("rows")).unwrap().write_all(b"d")), libc::EFBIG);
    rows.try_clone().unwrap().write_all(b"ccc").unwrap();
    assert_eq!(fs::read(w.path("rows")).unwrap(), b"aaaabbbbcccc");
    assert_eq!(w.shell("for i in 1 2 3; do echo $i >>many; done; cat many"), "1\n2\n3\n");
}

#[test]
fn what_cannot_grow_or_shrink_says_so() {
    let w = writable();
    let fixed = File::options().read(true).write(true).open(w.path("fixed")).unwrap();
    fixed.write_all_at(b"ab", 6).unwrap();
    assert_eq!(errno(fixed.write_all_at(b"abc", 6)), libc::EFBIG);
    assert_eq!((errno(fixed.set_len(9)), errno(fixed.set_len(7)), errno(fixed.set_len(8))), (libc::EFBIG, libc::EPERM, 0));
    assert_eq!(fs::read(w.path("fixed")).unwrap(), b"012345ab");
    w.shell("truncate -s 5 rows");
    assert_eq!(fs::read(w.path("rows")).unwrap(), b"aaaa\0\0\0\0", "whole rows");
    assert_eq!(errno(File::options().write(true).open(w.path("rows")).unwrap().set_len(13)), libc::EFBIG);
}

#[test]
fn ranges_are_zeroed_and_allocated() {
    let w = writable();
    fs::write(w.path("f"), b"0123456789").unwrap();
    let f = File::options().write(true).open(w.path("f")).unwrap();
    let call = |flags, offset, len| nix_errno(fallocate(&f, flags, offset, len));
    let read = || fs::read(w.path("f")).unwrap();
    assert_eq!(call(FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE, 2, 3), 0);
    assert_eq!(read(), b"01\x00\x00\x0056789");
    assert_eq!(call(FallocateFlags::FALLOC_FL_ZERO_RANGE, 9, 3), 0);
    assert_eq!(read(), b"01\x00\x00\x005678\x00\x00\x00");
    assert_eq!(call(FallocateFlags::empty(), 0, 14), 0);
    assert_eq!(call(FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, 100), 0);
    assert_eq!(read().len(), 14);
    assert_eq!(call(FallocateFlags::FALLOC_FL_COLLAPSE_RANGE, 0, 4096), libc::EOPNOTSUPP);
}

#[test]
fn mapped_writes_arrive() {
    let w = writable();
    fs::write(w.path("f"), vec![0; 5000]).unwrap();
    let file = File::options().read(true).write(true).open(w.path("f")).unwrap();
    use std::os::fd::AsRawFd;
    // SAFETY: a new mapping of an open file, checked before use, 5000 bytes of it used, then unmapped.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 5000, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        std::slice::from_raw_parts_mut(at.cast::<u8>(), 5000)[4990..].fill(7);
        assert_eq!(libc::msync(at, 5000, libc::MS_SYNC), 0);
        assert_eq!(libc::munmap(at, 5000), 0);
    }
    let mut now = vec![0; 5000];
    w.model.content(w.id("f").unwrap(), h5dir::connector::Form::Main).unwrap().read(0, &mut now).unwrap();
    assert!(now[4990..] == [7; 10] && now[..4990].iter().all(|b| *b == 0));
    assert_eq!(fs::metadata(w.path("f")).unwrap().len(), 5000);
}

#[test]
fn directories_come_and_go() {
    let w = writable();
    fs::create_dir_all(w.path("a/b/c")).unwrap();
    assert_eq!(errno(fs::create_dir(w.path("a"))), libc::EEXIST);
    assert_eq!(errno(fs::remove_dir(w.path("a"))), libc::ENOTEMPTY);
    assert_eq!((errno(fs::remove_dir(w.path("fixed"))), errno(fs::remove_file(w.path("a")))), (libc::ENOTDIR, libc::EISDIR));
    let before = w.model.len();
    w.shell("touch a/x a/b/y a/b/c/z; rm -r a; test ! -e a; mkdir -p a/b; rmdir -p a/b; test ! -e a");
    assert_eq!(w.model.len(), before - 3, "nothing is left of them");
    assert_eq!(errno(fs::remove_dir(w.path(".h5dir"))), libc::EPERM);
    // A directory that is gone, and another one with its name and address.
    w.shell("mkdir q; cd q; rmdir ../q; mkdir ../q; touch ../q/new; if touch here 2>/dev/null; then false; fi; ls ../q | grep -q new");
}

#[test]
fn an_open_file_outlives_its_name_and_its_address_is_not_mistaken() {
    let w = writable();
    fs::write(w.path("old"), b"old bytes").unwrap();
    let mut open = File::options().read(true).write(true).open(w.path("old")).unwrap();
    let id = w.id("old").unwrap();
    fs::remove_file(w.path("old")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    fs::write(w.path("new"), b"new").unwrap();
    assert_ne!(w.id("new"), Some(id));
    open.write_all_at(b"OLD", 0).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "OLD bytes");
    let ino = open.metadata().unwrap().ino();
    drop(open);
    crate::support::eventually("the object goes", || w.model.info(id).is_err());
    fs::write(w.path("again"), b"same address").unwrap();
    assert_eq!(w.id("again"), Some(id));
    let _ = ino;
    assert_eq!(fs::read(w.path("again")).unwrap(), b"same address");
    assert_eq!(fs::read(w.path("new")).unwrap(), b"new");
    // Replaced by a rename while it is open.
    let open = File::open(w.path("again")).unwrap();
    fs::rename(w.path("new"), w.path("again")).unwrap();
    let mut bytes = [0; 12];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((&bytes, fs::read(w.path("again")).unwrap().as_slice()), (b"same address", &b"new"[..]));
}

#[test]
fn names_move() {
    let w = writable();
    let none = RenameFlags::empty();
    fs::create_dir_all(w.path("x/y")).unwrap();
    fs::write(w.path("x/f"), b"f").unwrap();
    assert_eq!(rename2(&w.path("x"), &w.path("x/y/z"), none), libc::EINVAL);
    assert_eq!(rename2(&w.path("x"), &w.path("g"), none), libc::ENOTEMPTY);
    assert_eq!(rename2(&w.path("fixed"), &w.path("g"), none), libc::EISDIR);
    assert_eq!(rename2(&w.path("x/y"), &w.path("fixed"), none), libc::ENOTDIR);
    assert_eq!(rename2(&w.path("x/f"), &w.path("fixed"), RenameFlags::RENAME_NOREPLACE), libc::EEXIST);
    assert_eq!(rename2(&w.path("x/f"), &w.path("none"), RenameFlags::RENAME_EXCHANGE), libc::ENOENT);
    assert_eq!(rename2(&w.path("x/f"), &w.path(".h5dir/x"), none), libc::EPERM);
    assert_eq!(rename2(&w.path("x/f"), &w.path("x/new"), RenameFlags::RENAME_NOREPLACE), 0);
    assert_eq!(rename2(&w.path("x/new"), &w.path("fixed"), none), 0);
    assert_eq!(fs::read(w.path("fixed")).unwrap(), b"f");
    assert_eq!(rename2(&w.path("x"), &w.path("fixed"), RenameFlags::RENAME_EXCHANGE), 0);
    assert!(w.path("fixed/y").is_dir() && w.path("x").is_file());
    assert_eq!(rename2(&w.path("fixed/y"), &w.path("e"), none), 0);
    assert_eq!(rename2(&w.path("fixed"), &w.path("e"), none), 0, "over an empty directory");
    // Two names of one file: both stay.
    fs::hard_link(w.path("x"), w.path("x2")).unwrap();
    assert_eq!(rename2(&w.path("x"), &w.path("x2"), none), 0);
    assert!(w.path("x").exists() && w.path("x2").exists());
    assert_eq!(w.shell("mv x2 e/; mv rows e; ls e; ls"), "rows\nx2\ne\ng\nx\n");
}

#[test]
fn a_moved_directory_stays_the_same_to_those_in_it() {
    let w = writable();
    fs::create_dir_all(w.path("a/b/c")).unwrap();
    symlink("../../../rows", w.path("a/b/c/link")).unwrap();
    fs::write(w.path("a/b/c/f"), b"f").unwrap();
    // The kernel knows it all the time: a number that it forgot may be another one after the move.
    let held = fs::File::open(w.path("a/b/c")).unwrap();
    let ino = held.metadata().unwrap().ino();
    let out = w.shell(
        "cd a/b/c; cat link; mv ../../b/c ../../../moved; pwd -P | sed s,.*/,,; cat f; touch new; readlink link; ! cat link 2>&1; cd -P ..; ls",
    );
    // The text of the link stays, so that it dangles, as on any file system.
    let end = "moved\nf../../../rows\ncat: link: No such file or directory\na\nfixed\ng\nmoved\nrows\n";
    assert_eq!(out, format!("aaaa{end}"));
    assert_eq!(fs::metadata(w.path("moved")).unwrap().ino(), ino);
    assert!(w.path("moved/new").exists());
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(fs::metadata(w.path("moved")).unwrap().ino(), ino);
    fs::create_dir(w.path("a/b/c")).unwrap();
    assert_ne!(fs::metadata(w.path("a/b/c")).unwrap().ino(), ino);
    fs::write(w.path("a/b/c/g"), b"g").unwrap();
    assert_eq!(rename2(&w.path("a/b/c"), &w.path("moved"), RenameFlags::RENAME_EXCHANGE), 0);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!((fs::metadata(w.path("a/b/c")).unwrap().ino(), held.metadata().unwrap().ino()), (ino, ino));
    assert_eq!((w.shell("ls moved"), w.shell("ls a/b/c")), ("g\n".into(), "f\nlink\nnew\n".into()));
}

#[test]
fn links_of_both_kinds() {
    let w = writable();
    fs::hard_link(w.path("rows"), w.path("g/again")).unwrap();
    let (a, b) = (fs::metadata(w.path("rows")).unwrap(), fs::metadata(w.path("g/again")).unwrap());
    assert_eq!((a.ino(), a.nlink()), (b.ino(), b.nlink()));
    assert_eq!(a.nlink(), 2);
    fs::remove_file(w.path("rows")).unwrap();
    assert_eq!((fs::read(w.path("g/again")).unwrap(), fs::metadata(w.path("g/again")).unwrap().nlink()), (b"aaaa".to_vec(), 1));
    assert_eq!(errno(fs::hard_link(w.path("g"), w.path("g2"))), libc::EPERM);
    assert_eq!(errno(fs::hard_link(w.path("fixed"), w.path("g/d"))), libc::EEXIST);
    assert_eq!(errno(fs::hard_link(w.path(".h5dir/exact/fixed"), w.path("e"))), libc::EXDEV);
    for (name, target) in [("s1", "fixed"), ("g/s3", "d"), ("s5", "none/x"), ("s6", "%2E%2E/x")] {
        symlink(target, w.path(name)).unwrap();
        assert_eq!(fs::read_link(w.path(name)).unwrap(), Path::new(target));
        assert_eq!(w.soft_link(name), target.replace("%2E", "."));
    }
    symlink("../fixed", w.path("g/s2")).unwrap();
    assert_eq!(fs::read(w.path("g/s2")).unwrap(), b"01234567");
    assert_eq!(errno(symlink("x", w.path("s1"))), libc::EEXIST);
    w.shell("rm s1 g/s2; ln -s g/d s1; mv s1 g/; ln -sfn fixed s5; cat s5");
}

/// Texts are kept beside the paths. `../file` in `a/b` was read as `../../a/file`, `./x` as `x`, `x/` as `x`; `git clone` and `rsync -a` found changes.
#[test]
fn the_text_of_a_symbolic_link_is_returned_as_given() {
    let w = writable();
    fs::create_dir_all(w.path("g/h")).unwrap();
    let targets = ["../x", "../../g/h", "..", ".", "./x", "x/", "x//y", "x/../y", "/etc/passwd", "/", ".h5dir/status", "%2Eh5dir", "%41"];
    let check = |dir: &str| {
        for (i, target) in targets.into_iter().enumerate() {
            let name = format!("{dir}t{i}");
            let link = fs::symlink_metadata(w.path(&name)).unwrap();
            assert_eq!((fs::read_link(w.path(&name)).unwrap(), link.len()), (target.into(), target.len() as u64));
        }
    };
    let check_paths = |dir: &str, inside: [&str; 10]| {
        let paths = targets.into_iter().enumerate().map(|(i, target)| (w.soft_link(&format!("{dir}t{i}")), target));
        for ((path, target), inside) in paths.filter(|(_, target)| !["/etc/passwd", "/", "%41"].contains(target)).zip(inside) {
            let verbatim = format!("/.h5dir/symlink/{target}");
            assert_eq!(path, if inside.is_empty() { &verbatim } else { inside }, "{target} in {dir}");
        }
    };
    for dir in ["", "g/", "g/h/"] {
        targets.into_iter().enumerate().for_each(|(i, target)| symlink(target, w.path(&format!("{dir}t{i}"))).unwrap());
        check(dir);
    }
    check_paths("", ["", "", "", ".", "x", "x", "x/y", "/y", "", ".h5dir"]);
    check_paths("g/", ["/x", "", "/", ".", "x", "x", "x/y", "/g/y", ".h5dir/status", ""]);
    check_paths("g/h/", ["/g/x", "/g/h", "/g", ".", "x", "x", "x/y", "/g/h/y", ".h5dir/status", ""]);
    // Moved with their directory, and by themselves: those get the paths of their new place.
    w.shell("mv g/h up");
    check("up/");
    w.shell("mv up/t* .; mkdir -p g/a/b; mv g/t* g/a/b");
    check("");
    check_paths("", ["", "", "", ".", "x", "x", "x/y", "/y", "", ".h5dir"]);
    check("g/a/b/");
    check_paths("g/a/b/", ["/g/a/x", "/g/g/h", "/g/a", ".", "x", "x", "x/y", "/g/a/b/y", ".h5dir/status", ""]);
    w.shell("mv g/a/b b");
    check("b/");
    // An exchange of two links, and a link that replaces another one.
    w.shell("ln -s ../x b/l; ln -s ./y m");
    assert_eq!(rename2(&w.path("b/l"), &w.path("m"), RenameFlags::RENAME_EXCHANGE), 0);
    assert_eq!((w.soft_link("b/l"), w.soft_link("m")), ("y".into(), "/.h5dir/symlink/../x".into()));
    w.shell("mv m b/l");
    assert_eq!((w.soft_link("b/l").as_str(), w.shell("readlink b/l")), ("/x", "../x\n".to_owned()));
    w.shell("ln -sfn y b/l");
    assert_eq!((w.soft_link("b/l").as_str(), w.shell("readlink b/l")), ("y", "y\n".to_owned()));
}

#[test]
fn names_that_can_and_cannot_be() {
    let w = writable();
    fs::write(w.path("%2E%2E"), b"dots").unwrap();
    fs::write(w.path("%2Eh5dir"), b"ours").unwrap();
    fs::write(w.path("g/.h5dir"), b"any").unwrap();
    fs::write(w.path("100% \u{e9}\n"), b"odd").unwrap();
    for (path, name) in [("", "..".as_bytes()), ("", b".h5dir"), ("g", b".h5dir"), ("", "100% \u{e9}\n".as_bytes())] {
        assert!(w.model.lookup(w.id(path).unwrap(), name).unwrap().is_some(), "{name:?}");
    }
    for name in ["a%2Fb", "%00", "%2E", "%EMPTY", "%41", "x%~0123456789ABCDEF"] {
        assert_eq!(errno(fs::write(w.path(name), "")), libc::EINVAL, "{name}");
    }
    assert_eq!(errno(fs::write(w.path(&"n".repeat(256)), "")), libc::ENAMETOOLONG);
    fs::write(w.path(&"n".repeat(255)), b"long").unwrap();
    assert_eq!(errno(fs::create_dir(w.path(".h5dir"))), libc::EEXIST);
    assert_eq!(errno(fs::write(w.path(".h5dir/new"), "")), libc::EPERM);
    assert_eq!(nix_errno(nix::unistd::mkfifo(&w.path("fifo"), nix::sys::stat::Mode::S_IRUSR)), libc::EPERM);
}

#[test]
fn attributes_are_set_and_removed() {
    let w = writable();
    let f = w.path("fixed");
    assert_eq!(setxattr(&f, "user.units", b"m", libc::XATTR_REPLACE), libc::ENODATA);
    assert_eq!(setxattr(&f, "user.units", b"m", libc::XATTR_CREATE), 0);
    assert_eq!(setxattr(&f, "user.units", b"m", libc::XATTR_CREATE), libc::EEXIST);
    assert_eq!(setxattr(&f, "user.units", b"km", libc::XATTR_REPLACE), 0);
    assert_eq!(setxattr(&f, "user.%685dir.x", b"odd", 0), 0);
    assert_eq!(present::attribute_text(&*w.model, w.id("fixed").unwrap(), b"h5dir.x").unwrap().unwrap(), b"odd");
    assert_eq!(setxattr(&f, "user.h5dir.kind", b"dataset", 0), 0, "what it is already");
    assert_eq!(setxattr(&f, "user.h5dir.kind", b"group", 0), 0, "it only tells");
    assert_eq!(setxattr(&f, "user.%41", b"", 0), libc::EINVAL);
    for other in ["trusted.x", "security.x"] {
        assert_eq!(setxattr(&f, other, b"", 0), libc::EOPNOTSUPP, "{other}");
    }
    assert_eq!(setxattr(&w.path(".h5dir/status"), "user.x", b"", 0), libc::EPERM);
    assert_eq!(setxattr(&w.path("rows"), "user.h5dir.reshape", b"[2, 2]", 0), 0);
    let sum = |script: &str| w.shell(script);
    assert_eq!(
        sum("setfattr -n user.note -v text g; getfattr --only-values -n user.note g; getfattr --only-values -n user.units fixed"),
        "textkm"
    );
    assert_eq!((removexattr(&f, "user.units"), removexattr(&f, "user.units")), (0, libc::ENODATA));
    assert_eq!((removexattr(&f, "user.h5dir.kind"), removexattr(&f, "user.h5dir.none")), (0, libc::ENODATA));
    assert_eq!(sum("getfattr --only-values -n user.h5dir.kind fixed"), "dataset", "taking a fact away changes nothing");
}

#[test]
fn modes_owners_and_times() {
    let w = writable();
    let f = w.path("fixed");
    let chmod = |mode| errno(fs::set_permissions(&f, fs::Permissions::from_mode(mode)));
    let shown = |path: &str| fs::metadata(w.path(path)).unwrap().mode() & 0o7777;
    for mode in [0o644, 0o444, 0o755, 0o600, 0o4711, 0o644] {
        assert_eq!((chmod(mode), shown("fixed")), (0, mode));
        assert_eq!(w.model.info(w.id("fixed").unwrap()).unwrap().ownership.mode, Some(mode as u16).filter(|m| *m != 0o644));
    }
    let view = |mode| errno(fs::set_permissions(w.path(".h5dir/exact/fixed"), fs::Permissions::from_mode(mode)));
    assert_eq!((view(0o644), view(0o444), view(0o755)), (0, 0, libc::EPERM));
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let chown = |u, g| errno(std::os::unix::fs::chown(&f, Some(u), Some(g)));
    assert_eq!(chown(uid, gid), 0);
    if nix::unistd::geteuid().is_root() {
        assert_eq!((chown(uid + 1, gid), fs::metadata(&f).unwrap().uid(), chown(uid, gid)), (0, uid + 1, 0));
    }
    let before = fs::metadata(w.path("rows")).unwrap().mtime();
    w.shell("touch -d @1234567890 fixed; touch rows");
    assert_eq!(fs::metadata(&f).unwrap().mtime(), 1_234_567_890);
    assert!(fs::metadata(w.path("rows")).unwrap().mtime() > before);
    assert_eq!(fs::metadata(w.path("g/d")).unwrap().mtime(), before, "others keep theirs");
    let writable = |path: &str| fs::metadata(w.path(path)).unwrap().mode() & 0o222 != 0;
    assert!(writable(".h5dir/exact/fixed") && !writable(".h5dir/status"));
}

#[test]
fn views_follow_and_some_are_written_to() {
    let w = writable();
    let open = |path: &str| errno(File::options().write(true).open(w.path(path)));
    assert_eq!((open(".h5dir/exact/fixed"), open(".h5dir/status")), (0, libc::EACCES));
    assert_eq!(errno(fs::create_dir(w.path(".h5dir/exact/x"))), libc::EPERM);
    assert_eq!(errno(fs::remove_file(w.path(".h5dir/exact/fixed"))), libc::EPERM);
    assert_eq!(fs::read(w.path(".h5dir/exact/fixed")).unwrap(), b"01234567");
    File::options().write(true).open(w.path("fixed")).unwrap().write_all_at(b"AB", 0).unwrap();
    assert_eq!(fs::read(w.path(".h5dir/exact/fixed")).unwrap(), b"AB234567");
    File::options().write(true).open(w.path(".h5dir/exact/fixed")).unwrap().write_all_at(b"C", 7).unwrap();
    assert_eq!(fs::read(w.path("fixed")).unwrap(), b"AB23456C");
    let attribute = w.path(".h5dir/attrs/fixed/a");
    fs::write(&attribute, b"one").unwrap();
    fs::write(&attribute, b"other").unwrap();
    fs::rename(&attribute, w.path(".h5dir/attrs/fixed/b")).unwrap();
    assert_eq!((fs::read(w.path(".h5dir/attrs/fixed/b")).unwrap(), errno(fs::read(&attribute))), (b"other".to_vec(), libc::ENOENT));
    fs::remove_file(w.path(".h5dir/attrs/fixed/b")).unwrap();
    assert_eq!(fs::read_dir(w.path(".h5dir/attrs/fixed")).unwrap().count(), 0);
}

#[test]
fn syncing_commits_and_locks_are_real() {
    let w = writable();
    let mut f = File::create(w.path("f")).unwrap();
    f.write_all(b"x").unwrap();
    let before = w.model.commits().0;
    f.sync_all().unwrap();
    File::open(w.path("g")).unwrap().sync_all().unwrap();
    assert_eq!(w.model.commits().0, before + 2);
    f.seek(SeekFrom::Start(0)).unwrap();
    let held = Flock::lock(f, FlockArg::LockExclusive).unwrap();
    let other = File::open(w.path("f")).unwrap();
    assert!(matches!(Flock::lock(other, FlockArg::LockExclusiveNonblock), Err((_, nix::errno::Errno::EWOULDBLOCK))));
    drop(held);
    assert!(Flock::lock(File::open(w.path("f")).unwrap(), FlockArg::LockExclusiveNonblock).is_ok());
    let posix = File::options().read(true).write(true).open(w.path("f")).unwrap();
    let lock = libc::flock { l_type: libc::F_WRLCK as i16, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    nix::fcntl::fcntl(&posix, nix::fcntl::FcntlArg::F_SETLK(&lock)).unwrap();
}

#[test]
fn usual_programs_work() {
    let w = writable();
    let script = "mkdir src; echo one >src/1; echo two >src/2; mkdir src/sub; ln -s ../1 src/sub/l; ln src/1 src/hard
        cp -a src copy; diff -r src copy; test $(stat -c %h copy/1) = 2
        tar cf t.tar src; mkdir out; tar xf t.tar -C out; diff -r src out/src
        cp rows r; cmp rows r; dd if=/dev/zero of=z bs=1000 count=3 2>/dev/null; test $(stat -c %s z) = 3000
        cp -p src/1 i; sed -i s/one/uno/ i; cat i; sort -o i i; mv out src; find . -name l | wc -l; rm -r copy src";
    assert_eq!(w.shell(script), "uno\n3\n");
}

#[test]
fn many_threads_change_names_at_once() {
    let w = writable();
    std::thread::scope(|scope| {
        for t in 0..4 {
            let w = &w;
            scope.spawn(move || {
                for i in 0..60 {
                    let (a, b) = (w.path(&format!("t{t}-{i}")), w.path(&format!("g/t{t}-{i}")));
                    fs::write(&a, format!("{t} {i}")).unwrap();
                    fs::rename(&a, &b).unwrap();
                    assert_eq!(fs::read_to_string(&b).unwrap(), format!("{t} {i}"));
                    let _ = fs::read_dir(w.path("g")).unwrap().count();
                    if i % 2 == 0 {
                        fs::remove_file(&b).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(fs::read_dir(w.path("g")).unwrap().count(), 1 + 4 * 30);
    let _ = File::options().custom_flags(libc::O_DIRECTORY).read(true).open(w.path("g")).unwrap();
}

#[test]
fn the_end_commits_closes_and_lets_go() {
    use h5dir::fs::types::ROOT;
    use h5dir::fs::{Creator, Errno, OpenMode, Operations};
    let w = writable();
    let fs = file_system(&w.model);
    let (entry, opened) = fs
        .create(ROOT, b"x", Creator { uid: 0, gid: 0, mode: 0o644 }, OpenMode { read: true, write: true, ..OpenMode::default() }, true)
        .result
        .unwrap();
    fs.write(entry.attr.ino, opened.handle, 0, b"x", OpenMode::default()).result.unwrap();
    assert_eq!(w.model.commits(), (0, false));
    fs.commit().unwrap();
    fs.commit().unwrap();
    assert_eq!(w.model.commits(), (1, false), "nothing to do the second time");
    fs.unlink(ROOT, b"x").result.unwrap();
    let objects = w.model.len();
    fs.shutdown().unwrap();
    fs.shutdown().unwrap();
    assert_eq!((w.model.len(), w.model.commits().1), (objects - 1, true));
    assert_eq!(fs.mkdir(ROOT, b"y", Creator { uid: 0, gid: 0, mode: 0o755 }).result.unwrap_err(), Errno(libc::EROFS));
}
