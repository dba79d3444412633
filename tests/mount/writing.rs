//! A file made, mounted for writing and changed with the usual programs: what h5py finds then.

use super::mounted::Mount;
use super::python;
use super::support::{Place, eventually, h5dir, is_mounted, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What `program` prints of the file `f` at `path`, opened with `mode`.
pub fn h5py(path: &Path, mode: &str, program: &str) -> String {
    let script = format!("import h5py, sys\nwith h5py.File(sys.argv[1], '{mode}') as f:\n    {program}\n");
    let output = Command::new(python::with_h5py()).args(["-c", &script]).arg(path).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A new file, mounted for writing.
fn created() -> (Mount, PathBuf) {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    (Mount::start(place, &file, &["--read-write"]), file)
}

/// What a script prints. Each of its commands must succeed; after `!` none can fail.
pub fn shell(mount: &Mount, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(mount.place.mnt()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{script}: {}; log: {}", String::from_utf8_lossy(&output.stderr), mount.log());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn made_mounted_changed_and_read_by_h5py() {
    for libver in ["v110", "earliest"] {
        let place = Place::new();
        let file = place.dir().join("new.h5");
        let name = file.to_str().unwrap();
        assert_eq!(run(&mut h5dir(&["create", "--libver", libver, name])), (0, String::new()));
        let again = run(&mut h5dir(&["create", name]));
        assert!(again.0 == 3 && again.1.contains("File exists"), "{again:?}");
        let mount = Mount::start(place, &file, &["--read-write"]);
        shell(
            &mount,
            "mkdir g; echo one >g/a; ln g/a b; ln -s a g/l; ln -s ../b g/m; mv g h; setfattr -n user.note -v hi b; echo x >gone; rm gone; sync b",
        );
        assert_eq!(
            shell(&mount, "cat b h/a h/l h/m; readlink h/l h/m; getfattr --only-values -n user.note h/a"),
            "one\none\none\none\na\n../b\nhi"
        );
        let busy = run(&mut h5dir(&["recover", name]));
        assert!(busy.0 == 3 && busy.1.contains("another program"), "{busy:?}");
        let (code, message) = run(h5dir(&["umount"]).arg(mount.place.mnt()));
        assert_eq!((code, message.as_str()), (0, ""));
        eventually("it is unmounted", || !is_mounted(&mount.place.mnt()));
        let program = "print(sorted(f), sorted(f['h']), f['b'][()].tobytes(), f['h/l'] == f['h/a'], f['h'].get('m', getlink=True).path, f['b'].attrs['note'])";
        let seen = h5py(&file, "r", program);
        assert!(seen.starts_with("['b', 'h'] ['a', 'l', 'm'] b'one\\n' True /b"), "{seen}");
        h5py(&file, "r+", "del f['h']; f['n'] = [1, 2]");
        assert!(!mount.place.dir().join("new.h5.h5dir-journal").exists());
        assert_eq!(run(&mut h5dir(&["recover", name])), (0, String::new()));
    }
}

#[test]
fn a_signal_commits_what_was_written() {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    let mut mount = Mount::start(place, &file, &["--read-write", "--commit-interval=0"]);
    std::fs::write(mount.path("x"), b"kept").unwrap();
    assert_eq!(mount.terminate(), Some(0), "{}", mount.log());
    assert_eq!(h5py(&file, "r", "print(f['x'][()].tobytes())"), "b'kept'\n");
}

/// Up to 96 MiB, see docs/DESIGN-chunks.md.
#[test]
fn large_chunks_whose_filters_take_them_as_a_whole() {
    let place = Place::new();
    let file = place.dir().join("whole.h5");
    let make = "[f.create_dataset(n, (5 << 24,), 'u1', chunks=(5 << 24,), compression='lzf', shuffle=True) for n in ('new', 'noise', 'there')]; \
        f['there'][9 << 20:] = 3";
    h5py(&file, "w", make);
    let mount = Mount::start(place, &file, &["--read-write", "--cache-size=128M"]);
    let mut state = 1u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = (0..5 << 24).map(|_| noise()).collect();
    for (name, at, bytes) in [("new", 1 << 20, b"abc".as_slice()), ("noise", 0, &noise), ("there", (9 << 20) - 1, b"xyz")] {
        use std::os::unix::fs::FileExt;
        let f = std::fs::OpenOptions::new().read(true).write(true).open(mount.path(name)).unwrap();
        f.write_all_at(bytes, at).unwrap();
        f.sync_all().unwrap();
    }
    assert!(mount.read("noise") == noise);
    assert_eq!(mount.read("new")[(1 << 20) - 1..][..5], *b"\0abc\0", "of few stored bytes, as is `there`");
    assert_eq!(mount.read("there")[(9 << 20) - 2..][..5], *b"\0xyz\x03");
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    let program = "n, t = f['new'][...], f['there'][...]; m = 1 << 20; \
        print(n[m-1:m+4].tobytes(), n.any() and n[m+3:].any(), t[9*m-2:9*m+3].tobytes(), (t[9*m+2:] == 3).all(), \
        [f[x].id.read_direct_chunk((0,))[0] for x in ('new', 'noise', 'there')])";
    assert_eq!(h5py(&file, "r", program), "b'\\x00abc\\x00' False b'\\x00xyz\\x03' True [0, 2, 0]\n");
    let same = format!("import zlib; print(zlib.crc32(f['noise'][...]) == {})", crc32(&noise));
    assert_eq!(h5py(&file, "r", &same), "True\n");
}

/// As zlib computes it.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[test]
fn chunks_too_large_to_be_changed_in_memory() {
    let place = Place::new();
    let file = place.dir().join("large.h5");
    let make = "[f.create_dataset(n, (s * 3,), 'u1', chunks=(s,), compression=c, fillvalue=7 if n == 'sevens' else 0) \
        for n, s, c in (('whole', 1 << 27, 'lzf'), ('large', 1 << 27, 'gzip'), ('small', 1 << 20, 'gzip'), ('plain', 1 << 27, None), ('sevens', 1 << 27, None))]";
    let shuffled =
        "f.create_dataset('shuffled', (9 << 20,), 'i8', chunks=(9 << 20,), compression=1, shuffle=True, fletcher32=True)[:9] = 3";
    h5py(&file, "w", &format!("{make}; {shuffled}"));
    let mount = Mount::start(place, &file, &["--read-write", "--cache-size=64M"]);
    let write_at = |name: &str, bytes: &[u8], at| {
        use std::os::unix::fs::FileExt;
        let f = std::fs::OpenOptions::new().write(true).open(mount.path(name)).unwrap();
        f.write_all_at(bytes, at).map_err(|e| e.raw_os_error())
    };
    let write = |name: &str| write_at(name, b"x", 5);
    assert_eq!(write("whole"), Err(Some(libc::EFBIG)));
    assert_eq!((write("large"), write("small"), write_at("shuffled", b"xyz", 30)), (Ok(()), Ok(()), Ok(())));
    // Without filters it is written through.
    assert_eq!((write("sevens"), write_at("plain", b"abcd", (1 << 27) - 2)), (Ok(()), Ok(())));
    assert_eq!((write("plain"), write_at("plain", b"e", 1 << 27)), (Ok(()), Ok(())));
    assert!(mount.log().contains("--cache-size"), "{}", mount.log());
    assert_eq!(mount.read("small")[..8], *b"\0\0\0\0\0x\0\0");
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    let program = "p, s, c = f['plain'], f['sevens'], 1 << 27; \
        print(p[4:7].tobytes(), p[c-3:c+3].tobytes(), p[2*c:].any(), p[7:c-2].any(), s[4:7].tobytes(), (s[6:] == 7).all())";
    assert_eq!(h5py(&file, "r", program), "b'\\x00x\\x00' b'\\x00abed\\x00' False False b'\\x07x\\x07' True\n");
    let program = "print(f['large'][4:7].tobytes(), f['large'][6:].any(), f['shuffled'][3:5].tobytes(), f['shuffled'][9:].any())";
    assert_eq!(
        h5py(&file, "r", program),
        "b'\\x00x\\x00' False b'\\x03\\x00\\x00\\x00\\x00\\x00xyz\\x00\\x00\\x00\\x00\\x00\\x00\\x00' False\n"
    );
}

/// Mounts `file` for writing in a place of its own.
fn second(file: &Path) -> Mount {
    Mount::start(Place::new(), file, &["--read-write"])
}

#[test]
fn external_links_and_named_datatypes_are_copied_by_every_tool() {
    let place = Place::new();
    let file = place.dir().join("source.h5");
    let make = "f['x'] = h5py.ExternalLink('../other.h5', '/a/b'); f.create_group('g')['y'] = h5py.ExternalLink('nofile.h5', 'c'); import numpy; f['t'] = numpy.dtype([('q', '<i2')])";
    h5py(&file, "w", make);
    let from = Mount::start(place, &file, &[]);
    let tools = [
        "cp -a SRC/. .",
        "rsync -aX SRC/ .",
        "tar --xattrs --xattrs-include='user.*' -cf - -C SRC . | tar --xattrs --xattrs-include='user.*' -xf -",
    ];
    for libver in ["v110", "earliest"] {
        for tool in tools {
            let copies = tempfile::tempdir().unwrap();
            let copy = copies.path().join("copy.h5");
            assert_eq!(run(&mut h5dir(&["create", "--libver", libver, copy.to_str().unwrap()])).0, 0);
            let to = second(&copy);
            shell(&to, &tool.replace("SRC", from.place.mnt().to_str().unwrap()));
            assert_eq!(run(h5dir(&["umount"]).arg(to.place.mnt())), (0, String::new()), "{tool}");
            let program = "x, y = f.get('x', getlink=True), f['g'].get('y', getlink=True); print(x.filename, x.path, y.filename, y.path, f['t'].dtype)";
            assert_eq!(h5py(&copy, "r", program), "../other.h5 /a/b nofile.h5 c [('q', '<i2')]\n", "{tool}");
            h5py(&copy, "r+", "f['n'] = 1; f['g/n'] = 1; del f['x']; del f['g/y']");
        }
    }
}

/// Soft links are the same in a copy: also absolute ones, which are shown as texts that lead up.
#[test]
fn copies_of_soft_links_lead_to_the_same_files() {
    let place = Place::new();
    let file = place.dir().join("source.h5");
    let make = "f['g/d'] = [1, 2]; [f.__setitem__(n, h5py.SoftLink(t)) for n, t in (('abs', '/g/d'), ('rel', 'g/d'), ('none', '/no'), ('no', 'no'), \
        ('g/up', '/g/d'), ('g/down', 'd'), ('g/root', '/abs'))]";
    h5py(&file, "w", make);
    let from = Mount::start(place, &file, &[]);
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy.h5");
    assert_eq!(run(&mut h5dir(&["create", copy.to_str().unwrap()])).0, 0);
    let to = second(&copy);
    let links = "abs rel none no g/up g/down g/root";
    shell(
        &to,
        &format!(
            "cp -a {0}/. .; for l in abs g/up g/down g/root; do cmp $l rel; done; readlink {links} >../links",
            from.place.mnt().display()
        ),
    );
    assert_eq!(shell(&to, "cat ../links"), "./g/d\ng/d\n./no\nno\n../g/d\nd\n../abs\n");
    assert_eq!(run(h5dir(&["umount"]).arg(to.place.mnt())), (0, String::new()));
    let program = "print([f.get(n, getlink=True).path for n in ('rel', 'no', 'g/down', 'abs', 'g/up')])";
    assert_eq!(h5py(&copy, "r", program), "['g/d', 'no', 'd', 'g/d', '/g/d']\n");
}

#[test]
fn a_file_of_lines_becomes_strings_without_a_shape() {
    let (mount, file) = created();
    shell(
        &mount,
        "printf 'one\\ntwo\\n\\nlast' >s; setfattr -n user.h5dir.dtype -v str s; printf 'a\\nb\\n' >t; setfattr -n user.h5dir.dataset -v '{\"dtype\":\"str\"}' t",
    );
    assert_eq!((mount.xattr("s", "h5dir.shape"), mount.text("s")), ("[4]".into(), "one\ntwo\n\nlast\n".into()));
    shell(&mount, "printf 'x\\ny\\nz\\n' >t");
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    assert_eq!(
        h5py(&file, "r", "print(list(f['s']), list(f['t']), f['t'].maxshape)"),
        "[b'one', b'two', b'', b'last'] [b'x', b'y', b'z'] (None,)\n"
    );
}

#[test]
fn rsync_with_attributes_brings_plain_files_as_well() {
    let (mount, _) = created();
    let plain = mount.place.dir().join("plain");
    std::fs::create_dir_all(plain.join("d")).unwrap();
    std::fs::write(plain.join("d/f"), b"text").unwrap();
    std::fs::write(plain.join("typed"), [7u8; 16]).unwrap();
    let from = plain.to_str().unwrap();
    shell(&mount, "printf 12345678 >typed; setfattr -n user.h5dir.dtype -v '<i4' typed; setfattr -n user.old -v x typed");
    for options in ["-aX", "-aX --inplace --ignore-times"] {
        shell(&mount, &format!("rsync {options} {from}/ ./"));
        assert_eq!(mount.read("d/f"), b"text");
        assert_eq!(mount.read("typed"), [7u8; 16]);
        assert!(!mount.log().contains("fact"), "{}", mount.log());
    }
    // What the model does not have is taken away; what a fact says stays so.
    shell(&mount, "setfattr -n user.h5dir.dtype -v '<i4' typed; setfattr -n user.old -v x typed");
    shell(&mount, &format!("rsync -aX --inplace --ignore-times {from}/ ./; ! getfattr -n user.old typed 2>/dev/null"));
    assert_eq!((mount.xattr("typed", "h5dir.dtype"), mount.xattr("typed", "h5dir.shape")), ("<i4".into(), "[4]".into()));
}

#[test]
fn a_damaged_dataset_keeps_nobody_else_from_the_disk() {
    use std::os::unix::fs::FileExt;
    let place = Place::new();
    let file = place.dir().join("damaged.h5");
    // A version 1 B-tree of chunks with several leaves. The first tells a wrong place of the next, which only matters when it is split.
    let make = "
import h5py, sys
with h5py.File(sys.argv[1], 'w') as f:
    f.create_dataset('good', (64,), 'u1', chunks=(64,))
    bad = f.create_dataset('bad', (600, 64), 'u1', maxshape=(None, None), chunks=(1, 64))
    for row in range(0, 600, 2):
        bad[row] = 1
data = bytearray(open(sys.argv[1], 'rb').read())
number = lambda at: int.from_bytes(data[at:at + 8], 'little')
leaves = [i for i in range(len(data) - 24) if data[i:i + 6] == b'TREE\\x01\\x00']
first, = [i for i in leaves if number(i + 8) == 2 ** 64 - 1 and number(i + 16) != 2 ** 64 - 1]
data[first + 16] ^= 8
open(sys.argv[1], 'wb').write(data)
";
    let output = Command::new(python::with_h5py()).args(["-c", make]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Programs that other tests start inherit descriptors for a moment, and close them.
    let mut mount = Mount::start(place, &file, &["--read-write", "--commit-interval=0"]);
    let open = |name: &str| std::fs::OpenOptions::new().read(true).write(true).open(mount.path(name)).unwrap();
    let (good, bad) = (open("good"), open("bad"));
    let taken: Vec<u64> = (0..300).map(|i| (2 * i + 1) * 64).collect();
    taken.iter().for_each(|at| assert!(bad.write_all_at(&[2; 64], *at).is_ok(), "{at}: {}", mount.log()));
    good.write_all_at(&[7; 64], 0).unwrap();
    good.sync_all().unwrap();
    let eio = |done: std::io::Result<()>| done.map_err(|e| e.raw_os_error()) == Err(Some(libc::EIO));
    assert!(eio(bad.sync_all()) && eio(bad.sync_data()), "as long as it is open");
    assert!(eio(bad.write_all_at(&[3; 64], taken[0])));
    let kept = |at: &&u64| {
        let mut row = [0; 64];
        bad.read_exact_at(&mut row, **at).is_ok() && row == [2; 64]
    };
    let kept = taken.iter().filter(kept).count();
    assert!((200..300).contains(&kept), "{kept} of {}", taken.len());
    drop((good, bad));
    // Whoever opens it next begins anew; what the tree takes stays.
    let anew = || {
        let row = std::fs::OpenOptions::new().write(true).open(mount.path("bad")).unwrap();
        row.write_all_at(&[9; 64], 0).and_then(|()| row.sync_all())
    };
    // The daemon hears of a close after the program that closed.
    eventually("the dataset takes a row again", || anew().is_ok());
    let lines = mount.log().lines().filter(|l| l.contains("are lost")).count();
    assert_eq!(lines, 1, "{}", mount.log());
    std::fs::remove_file(mount.path("bad")).unwrap();
    assert_eq!(mount.terminate(), Some(0), "{}", mount.log());
    assert_eq!(h5py(&file, "r", "print(list(f), f['good'][()].tobytes() == bytes([7] * 64))"), "['good'] True\n");
}

/// netCDF opens no file for writing in which a group keeps no order of its links.
#[test]
fn a_directory_keeps_the_orders_of_the_one_around_it() {
    let place = Place::new();
    let file = place.dir().join("n.nc");
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/netcdf/netcdf4.nc"), &file).unwrap();
    let mut mount = Mount::start(place, &file, &["--read-write"]);
    shell(&mount, "mkdir -p new/below");
    assert_eq!(mount.terminate(), Some(0), "{}", mount.log());
    let program = "import netCDF4, sys; f = netCDF4.Dataset(sys.argv[1], 'a'); f['new/below'].note = 'hi'; f.createGroup('own'); f.close()";
    let output = Command::new(python::with_h5py()).args(["-c", program]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen = h5py(&file, "r", "print(list(f['new'].id.get_create_plist().get_link_creation_order() for _ in 'x'), 'own' in f)");
    assert_eq!(seen, "[3] True\n");
}

/// In a mount for writing that only root can use the kernel leaves modes to the daemon.
#[test]
fn modes_tell_root_what_is_no_program() {
    let (mount, _) = created();
    shell(
        &mount,
        "mkdir g; printf '#!/bin/sh\necho ran\n' >script; test -r script; test -w script; test -x g; if test -x script; then false; fi",
    );
    let ran = Command::new("sh").args(["-c", "./script"]).current_dir(mount.place.mnt()).output().unwrap();
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(126), &b""[..]), "{}", String::from_utf8_lossy(&ran.stderr));
    let other = Mount::start(Place::new(), &mount_file(&mount), &["--file-mode=0755"]);
    shell(&other, "test -x script; if test -w script; then false; fi; ./script | grep -q ran");
}

fn mount_file(mount: &Mount) -> std::path::PathBuf {
    shell(mount, "sync script");
    mount.place.dir().join("new.h5")
}

/// Pages that the kernel has of the end hold what will be behind it.
#[test]
fn what_is_skipped_behind_the_end_reads_as_the_fill_value() {
    let (mount, file) = created();
    let fact = r#"{"dtype":"<i4","shape":[0],"maxshape":[null],"fillvalue":5}"#;
    let ways = [
        ("written", "os.pwrite(fd, b'\\1\\0\\0\\0', 400)"),
        ("allocated", "subprocess.run(['fallocate', '-o', '400', '-l', '4', sys.argv[1]], check=True)"),
        ("copied", "os.copy_file_range(fd, fd, 4, 0, 400)"),
        ("other", "w = os.open(sys.argv[1], os.O_WRONLY); os.pwrite(w, b'\\1\\0\\0\\0', 400)"),
        (
            "cut",
            "os.pwrite(fd, bytes(300), 40); os.pread(fd, 400, 0); os.ftruncate(fd, 40); os.pread(fd, 99, 0); os.pwrite(fd, b'\\1\\0\\0\\0', 400)",
        ),
    ];
    for (name, grow) in ways {
        shell(&mount, &format!(": >{name}; setfattr -n user.h5dir.dataset -v '{fact}' {name}"));
        let program = format!(
            "import mmap, os, struct, subprocess, sys\nfd = os.open(sys.argv[1], os.O_RDWR)\nos.pwrite(fd, b'\\1\\0\\0\\0' * 10, 0)\n\
            print(len(os.pread(fd, 99, 0)), end=' ')\n{grow}\nprint(set(struct.unpack('<90i', os.pread(fd, 360, 40))), end=' ')\n\
            m = mmap.mmap(fd, 404); m[0] = 2; m.flush(); m.close()\nd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)\n\
            print(len(os.read(d, 8192)), os.fstat(fd).st_size)"
        );
        let output = Command::new("timeout").args(["60", "python3", "-c", &program]).arg(mount.path(name)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, "40 {5} 404 404\n", "{name}");
    }
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    let program = "print(all((d[10:100] == 5).all() and d[0] == 2 for d in f.values()), len(f))";
    assert_eq!(h5py(&file, "r", program), "True 5\n");
}

/// The kernel takes the file to end behind the written bytes until it asks again.
#[test]
fn a_row_that_a_write_completed_is_read_at_once() {
    let (mount, _) = created();
    let fact = r#"{"dtype":"<i4","shape":[500, 20],"maxshape":[null, 20]}"#;
    for flags in ["os.O_WRONLY | os.O_APPEND", "os.O_WRONLY", "os.O_RDWR | os.O_APPEND", "os.O_RDWR"] {
        shell(&mount, &format!("head -c 40000 /dev/urandom >d; setfattr -n user.h5dir.dataset -v '{fact}' d"));
        let program = format!(
            "import os, sys\nr, a = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[1], {flags})\nseen = set()\n\
            for end in range(40000, 44000, 80):\n    os.pread(r, 99999, 0)\n    os.lseek(a, end, 0)\n    os.write(a, b'1234')\n    \
            seen.add(os.pread(r, 9999, end))\n    os.lseek(a, end + 4, 0)\n    \
            os.write(a, b'5' * 76)\n    seen.add(os.pread(r, 9999, end))\n\
            print(seen == {{b'1234' + bytes(76), b'1234' + b'5' * 76}} or seen)"
        );
        let output = Command::new("timeout").args(["60", "python3", "-c", &program]).arg(mount.path("d")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "True\n", "{flags}: {}", String::from_utf8_lossy(&output.stderr));
        shell(&mount, "rm d");
    }
}

#[test]
fn an_attribute_too_large_for_an_old_header_is_too_big_and_chunks_that_were_set_stay() {
    let place = Place::new();
    let file = place.dir().join("old.h5");
    assert_eq!(run(&mut h5dir(&["create", "--libver", "earliest", file.to_str().unwrap()])).0, 0);
    let mount = Mount::start(place, &file, &["--read-write"]);
    shell(
        &mount,
        "head -c 4800 /dev/urandom >b; setfattr -n user.h5dir.dataset -v '{\"dtype\":\"<f8\",\"shape\":[60,10],\"chunks\":[3,10]}' b",
    );
    let chunks = |fact: &str| shell(&mount, &format!("setfattr -n user.h5dir.{fact} b; getfattr --only-values -n user.h5dir.chunks b"));
    assert_eq!(chunks("maxshape -v '[100,10]'"), "[3,10]");
    assert_eq!(chunks("reshape -v '[30,20]'"), "[3,10]");
    assert_ne!(chunks("maxshape -v '[30,20]' b; setfattr -n user.h5dir.reshape -v '[600]'"), "[3,10]");
    let program = "import errno, os, sys\ntry:\n    os.setxattr(sys.argv[1], 'user.h5dir.attributes', b'[{\"name\":\"x\",\"type\":\"S65500\",\"shape\":[],\"value\":\"v\"}]')\nexcept OSError as e:\n    print(errno.errorcode[e.errno])";
    let output = Command::new("timeout").args(["60", "python3", "-c", program]).arg(mount.path("b")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "E2BIG\n");
}

#[test]
fn deflated_chunks_are_no_larger_than_those_of_other_programs() {
    let (mount, file) = created();
    let theirs = mount.place.dir().join("theirs.h5");
    let program = "import numpy as np
    t = 20 * np.sin(np.add.outer(np.arange(256), np.arange(512)) / 60) + np.random.default_rng(1).standard_normal((256, 512)) * .05
    v = (np.round(t * 16) / 16).astype('<f4')
    v.tofile(sys.argv[1] + '.bytes')
    for level in range(1, 10):
        f.create_dataset(str(level), data=v, chunks=(128, 128), compression=level, shuffle=True)";
    assert_eq!(h5py(&theirs, "w", program), "");
    for level in 1..=9 {
        let fact = format!(r#"{{"dtype":"<f4","shape":[256,512],"chunks":[128,128],"filters":["shuffle","deflate {level}"]}}"#);
        shell(&mount, &format!("cat {}.bytes >{level}; setfattr -n user.h5dir.dataset -v '{fact}' {level}", theirs.display()));
    }
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    let program = format!(
        "theirs = h5py.File('{}', 'r')
    for level, own in f.items():
        other = theirs[level]
        assert own.compression_opts == int(level) and own.shuffle and (own[...] == other[...]).all()
        sizes = own.id.get_storage_size(), other.id.get_storage_size()
        if sizes[0] > sizes[1] * 1.02: print(level, *sizes)",
        theirs.display()
    );
    assert_eq!(h5py(&file, "r", &program), "");
}

/// The kernel asks for it only where it keeps pages.
#[test]
fn what_is_written_by_a_synchronous_descriptor_survives_a_kill() {
    const WRITE: &str = "
import itertools
for i, (access, sync, append) in enumerate(itertools.product((os.O_WRONLY, os.O_RDWR), (os.O_SYNC, os.O_DSYNC), (0, os.O_APPEND))):
    fd = os.open(P + f'/d{i}', access | sync | append | os.O_CREAT)
    os.write(fd, b'first')
    os.write(fd, b', last')
    globals()[f'open{i}'] = fd
os.kill(int(sys.argv[2]), 9)
";
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    let mut mount = Mount::start(place, &file, &["--read-write", "--commit-interval=0"]);
    let pid = mount.daemon().id().to_string();
    let program = format!("import sys, os\nP = sys.argv[1]\n{WRITE}");
    let written =
        Command::new("timeout").arg("60").arg(python::with_h5py()).args(["-c", &program]).arg(mount.place.mnt()).arg(pid).output();
    assert!(written.as_ref().unwrap().status.success(), "{written:?}");
    mount.daemon().wait().unwrap();
    assert_eq!(run(h5dir(&["umount", "--lazy"]).arg(mount.place.mnt())), (0, String::new()));
    assert_eq!(run(&mut h5dir(&["recover", file.to_str().unwrap()])).0, 0);
    assert_eq!(h5py(&file, "r", "print([f[f'd{i}'][:].tobytes() for i in range(8)] == [b'first, last'] * 8)"), "True\n");
}

/// The superblock of such a file is shorter, and the root group's header lies behind it.
#[test]
fn files_with_narrow_addresses_and_lengths_are_changed() {
    for bounds in ["EARLIEST", "V18", "V110"] {
        for (addresses, lengths) in [(2, 2), (2, 8), (4, 2), (4, 4), (4, 8), (8, 2), (8, 4), (8, 8)] {
            let case = format!("{bounds}, {addresses} and {lengths} bytes");
            let place = Place::new();
            let (file, template) = (place.dir().join("narrow.h5"), place.dir().join("t.h5"));
            let program = format!(
                "from h5py import h5p, h5f
    p, a = h5p.create(h5p.FILE_CREATE), h5p.create(h5p.FILE_ACCESS)
    p.set_sizes({addresses}, {lengths}); a.set_libver_bounds(h5f.LIBVER_{bounds}, h5f.LIBVER_V110)
    with h5py.File(h5f.create(b'{}', h5f.ACC_TRUNC, p, a)) as n: n['x'] = 1; n['keep'] = [1, 2, 3]",
                file.display()
            );
            h5py(&template, "w", &program);
            let mount = Mount::start(place, &file, &["--read-write"]);
            shell(
                &mount,
                "echo text >n; mkdir q; rm x; setfattr -n user.a -v 1 .; mv n q/m; for i in 1 2 3 4 5 6 7 8 9; do echo $i >n$i; done",
            );
            assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()), "{case}: {}", mount.log());
            let names = "['keep', 'n1', 'n2', 'n3', 'n4', 'n5', 'n6', 'n7', 'n8', 'n9', 'q']";
            let program = "f['h'] = 1; f.attrs['z'] = 1; del f['h']; print(sorted(f), f['q/m'][()].tobytes(), f['keep'][:], f.attrs['a'])";
            let seen = h5py(&file, "r+", program);
            assert!(seen.starts_with(&format!("{names} b'text\\n' [1 2 3] ")), "{case}: {seen}");
        }
    }
}
