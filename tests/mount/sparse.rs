//! Holes: unallocated chunks of zero fill, in the linear order of the file.

use super::expected::{self, entries};
use super::mounted::{Mount, shell};
use super::python;
use super::support::{Place, h5dir, run};
use super::writing::h5py;
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// The runs of data that SEEK_DATA and SEEK_HOLE tell.
fn extents(path: &Path) -> Vec<(i64, i64)> {
    let file = File::open(path).unwrap();
    let mut out = Vec::new();
    let mut at = 0;
    while let Ok(start) = lseek(&file, at, Whence::SeekData) {
        at = lseek(&file, start, Whence::SeekHole).unwrap();
        out.push((start, at));
        assert!(start < at && out.len() < 10_000);
    }
    out
}

#[test]
fn data_is_what_libhdf5_allocated() {
    for name in ["layouts_old", "layouts_new"] {
        let mount = Mount::fixture(name);
        for (path, runs) in entries(&expected::of(name)["extents"]) {
            let want: Vec<(i64, i64)> = runs.as_array().unwrap().iter().map(|r| (r[0].as_i64().unwrap(), r[1].as_i64().unwrap())).collect();
            assert_eq!(extents(&mount.path(path)), want, "{name} {path}");
        }
        assert_eq!(extents(&mount.path("contiguous")), [(0, 140)]);
        assert_eq!(extents(&mount.path("contiguous_unwritten")), []);
        assert_eq!(extents(&mount.path("contiguous_unwritten_fill")), [(0, 48)], "its fill value is not zero");
        assert_eq!(extents(&mount.path("null")), []);
    }
}

#[test]
fn seek_from_within_a_run_and_past_the_end() {
    let mount = Mount::fixture("layouts_new");
    // Rows 4 to 11, 28 to 31 and 60 to 63 of 4 KiB are allocated.
    let file = File::open(mount.path("sparse_rows")).unwrap();
    let row = 4096;
    assert_eq!(lseek(&file, 5 * row + 1, Whence::SeekData), Ok(5 * row + 1));
    assert_eq!(lseek(&file, 5 * row + 1, Whence::SeekHole), Ok(12 * row));
    assert_eq!(lseek(&file, 12 * row, Whence::SeekData), Ok(28 * row));
    assert_eq!(lseek(&file, 12 * row + 7, Whence::SeekHole), Ok(12 * row + 7));
    assert_eq!(lseek(&file, 63 * row, Whence::SeekHole), Ok(64 * row), "the end is a hole");
    for whence in [Whence::SeekData, Whence::SeekHole] {
        assert_eq!(lseek(&file, 64 * row, whence), Err(nix::errno::Errno::ENXIO));
        assert_eq!(lseek(&file, 65 * row, whence), Err(nix::errno::Errno::ENXIO));
    }
    assert_eq!(lseek(&file, 0, Whence::SeekEnd), Ok(64 * row));
}

#[test]
fn copies_stay_sparse() {
    let mount = Mount::fixture("layouts_new");
    let dir = mount.place.dir();
    for tool in ["cp --sparse=auto mnt/sparse_long copy", "tar -S -cf - -C mnt sparse_long | tar -xSf - --transform s/sparse_long/copy/"] {
        shell(dir, &format!("rm -f copy; {tool}; cmp mnt/sparse_long copy"));
        let copy = dir.join("copy").metadata().unwrap();
        assert_eq!(copy.len(), 4 << 20);
        assert!(copy.blocks() * 512 <= 64 << 10, "{tool}: {} blocks", copy.blocks());
    }
}

#[test]
fn du_tells_storage_and_apparent_size() {
    let mount = Mount::fixture("layouts_new");
    let storage: u64 = mount.xattr("sparse_long", "h5dir.storage").parse().unwrap();
    let out = shell(mount.place.dir(), "du --apparent-size -B1 mnt/sparse_long | cut -f1; du -B1 mnt/sparse_long | cut -f1");
    assert_eq!(out, format!("{}\n{}\n", 4 << 20, storage.div_ceil(512) * 512));
}

/// A page that was stored to through a mapping has zeros behind the end once it was written back.
#[test]
fn what_growth_leaves_out_holds_the_fill_value_after_a_store_into_the_last_page() {
    let place = Place::new();
    let file = place.dir().join("mapped.h5");
    let python = |script: &str, directory: &Path| {
        let mut command = Command::new("timeout");
        command.arg("100").arg(python::with_h5py()).args(["-c", script]).arg(&file).current_dir(directory);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let make = "import h5py, numpy as np, sys
with h5py.File(sys.argv[1], 'w') as f:
    for how in ('fallocate', 'read and write', 'write', 'truncate', 'far', 'copy', 'unread'):
        f.create_dataset(how, data=np.full(5494, 9, 'u1'), chunks=(1000,), maxshape=(None,), fillvalue=7)
    f['e'] = np.full(1, 101, 'u1')";
    python(make, place.dir());
    let mount = Mount::start(place, &file, &["--read-write"]);
    let grow = "import mmap, os, time
def store(fd, at, byte, n):
    m = mmap.mmap(fd, n); m[at:at + 1] = byte; m.flush(); m.close()
for how in ('fallocate', 'read and write', 'write', 'truncate', 'far', 'copy', 'unread'):
    fd, fw = os.open(how, os.O_RDWR), os.open(how, os.O_WRONLY)
    if how != 'unread': store(fd, 5493, b'y', 5494)
    n = 7353
    if how == 'fallocate': os.posix_fallocate(fd, 7253, 100); os.pwrite(fd, b'e', 7352)
    elif how == 'write': os.pwrite(fw, b'e', 7352)
    elif how == 'truncate': os.ftruncate(fd, 7353); os.pwrite(fd, b'e', 7352)
    elif how == 'far': n = 30001; os.pwrite(fd, b'e', 30000)
    elif how == 'copy':
        source = os.open('e', os.O_RDONLY); assert os.copy_file_range(source, fd, 1, 0, 7352) == 1; os.close(source)
    else: os.pwrite(fd, b'e', 7352)
    def check(f):
        b = os.pread(f, 40000, 0)
        assert len(b) == n and set(b[5494:n - 1]) == {7} and b[n - 1:] == b'e', (how, len(b), set(b[5494:n - 1]))
    other = os.open(how, os.O_RDONLY); check(fd); check(other)
    store(fd, 4096, b'!', n); check(fd); check(other); os.close(other); os.close(fd); os.close(fw)
fd = os.open('unread', os.O_RDWR); begin = time.time()
for i in range(1000): os.pwrite(fd, b'e', 8000 + 2 * i)
assert time.time() - begin < 30, 'pages are not waited for'
os.close(fd)";
    python(grow, &mount.place.mnt());
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    let check = "import h5py, sys
with h5py.File(sys.argv[1], 'r') as f:
    for how in ('fallocate', 'read and write', 'write', 'truncate', 'far', 'copy'):
        b = f[how][:]; assert set(b[5494:-1].tolist()) == {7} and b[-1] == 101 and b[5493] == ord('y') and b[4096] == 33, how
    b = f['unread'][:]; assert set(b[8001::2].tolist()) == {7} and set(b[8000::2].tolist()) == {101}";
    python(check, Path::new("/"));
}

/// Space that was taken and never written is zeros as it is, behind what was used and given back in the same session.
#[test]
fn a_few_bytes_in_a_large_contiguous_dataset_leave_the_rest_a_hole() {
    let place = Place::new();
    let file = place.dir().join("large.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    let mount = Mount::start(place, &file, &["--read-write"]);
    let script = r#"import os, subprocess, sys
N = 1 << 30
def blocks(): return os.stat(sys.argv[1]).st_blocks * 512
def make(name):
    open(name, 'w').close()
    os.setxattr(name, 'user.h5dir.dataset', b'{"dtype":"u1","shape":[%d],"layout":"contiguous"}' % N)
def sync():
    fd = os.open('.', os.O_RDONLY); os.fsync(fd); os.close(fd)
def check(name, there):
    with open(name, 'rb') as f:
        for at in (0, 1 << 20, N // 2 - 4096, N // 2 + 3, N - (1 << 20)):
            if at not in there: f.seek(at); assert f.read(4096) == bytes(4096), (name, at)
        f.seek(N // 2); assert f.read(3) == b'mid'
with open('old', 'wb') as f: f.write(os.urandom(3 << 20))
sync(); os.unlink('old'); sync()
for i in range(3):
    make('e')
    with open('e', 'r+b', buffering=0) as f: f.seek(N // 2); f.write(b'mid')
    sync(); check('e', ())
    assert blocks() < 64 << 20, blocks()
    with open('e', 'r+b', buffering=0) as f: f.write(os.urandom(8192)); f.seek(N - (1 << 20)); f.write(b'x' * 5000)
    sync(); check('e', (0, N - (1 << 20))); os.unlink('e'); sync()"#;
    let mut command = Command::new("timeout");
    command.arg("100").arg(python::with_h5py()).args(["-c", script]).arg(&file).current_dir(mount.place.mnt());
    let done = command.output().unwrap();
    assert!(done.status.success(), "{} {}", String::from_utf8_lossy(&done.stderr), mount.log());
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
}

#[test]
fn zeros_written_to_unwritten_chunks_are_not_stored() {
    let place = Place::new();
    let file = place.dir().join("zeros.h5");
    let make = "import numpy as np; f.create_dataset('plain', (1 << 24,), 'u1', chunks=(1 << 16,)); \
        f.create_dataset('packed', (1 << 24,), 'u1', chunks=(1 << 16,), compression=1); \
        f.create_dataset('seven', (1 << 20,), 'u1', chunks=(1 << 16,), fillvalue=7); \
        f.create_dataset('written', data=np.ones(1 << 20, 'u1'), chunks=(1 << 16,))";
    h5py(&file, "w", make);
    let mount = Mount::start(Place::new(), &file, &["--read-write"]);
    let script = "cat /dev/zero | head -c 16M >new; for f in plain packed; do head -c 16M /dev/zero | dd of=$f bs=100k conv=notrunc status=none; done
        for f in seven written; do head -c 1M /dev/zero | dd of=$f bs=1M conv=notrunc status=none; done
        printf x | dd of=plain bs=1 seek=70000 conv=notrunc status=none; for f in *; do cmp -n $(stat -c %s $f) $f /dev/zero && echo same; done; true";
    let output = Command::new("bash").args(["-euc", script]).current_dir(mount.place.mnt()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "same\nsame\nplain /dev/zero differ: byte 70001, line 1\nsame\nsame\n");
    let rsync = "rsync -aX $1/plain $2/copy; du -k --apparent-size $2/copy | cut -f1; du -k $2/copy | cut -f1";
    let output = Command::new("bash").args(["-euc", rsync, "sh"]).arg(mount.place.mnt()).arg(mount.place.mnt()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "16384\n64\n");
    drop(mount);
    let check = "n = {k: f[k].id.get_num_chunks() for k in f}; assert n == {'copy': 1, 'new': 0, 'packed': 0, 'plain': 1, 'seven': 16, 'written': 16}, n; \
        assert f['plain'][70000] == 120 and f['plain'][:].sum() == 120 and not f['seven'][:].any() and not f['written'][:].any() and f['new'].shape == (1 << 24,)";
    h5py(&file, "r", check);
}
