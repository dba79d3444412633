//! Writing below `.h5dir`, and the rules for new files: real mounts, and what h5py finds then.

use super::mounted::Mount;
use super::python;
use super::support::{Place, eventually, h5dir, is_mounted, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs a Python program with the arguments; the mount's log is shown when it fails.
fn run_python(program: &str, path: &Path, log: &dyn Fn() -> String) {
    let program = format!("import sys, os, h5py, numpy as np\nP = sys.argv[1]\n{program}");
    let output =
        Command::new("timeout").arg("60").arg(python::with_h5py()).args(["-c", &program]).arg(path).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}\nlog: {}", String::from_utf8_lossy(&output.stderr), log());
}

fn h5py(file: &Path, program: &str) {
    run_python(&format!("with h5py.File(P, 'r+') as f:\n{program}\n"), file, &String::new);
}

/// What a script says, in the mount.
fn shell(mount: &Mount, script: &str) -> String {
    let mut command = Command::new("timeout");
    command
        .args(["60", "bash", "-uo", "pipefail", "-c", &format!("exec 2>&1; {script}")])
        .current_dir(mount.place.mnt())
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn empty(libver: &str, options: &[&str]) -> (Mount, PathBuf) {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", "--libver", libver, file.to_str().unwrap()])), (0, String::new()));
    (Mount::start(place, &file, &[&["--read-write"], options].concat()), file)
}

fn unmount(mount: &Mount) {
    // Programs that look at all mounts may be in it for a moment.
    eventually("nobody is in it", || run(h5dir(&["umount"]).arg(mount.place.mnt())) == (0, String::new()));
    eventually("it is unmounted", || !is_mounted(&mount.place.mnt()));
}

const RULES: &str = "create:
  - {pattern: '*.f8', dtype: '<f8', shape: [null, 100], chunks: [64, 100], filters: [shuffle, {deflate: 4}]}
  - {pattern: '/deep/**/*.txt', dtype: str}
  - {pattern: 'fixed', dtype: '>i2', shape: [4, 5], layout: contiguous, fillvalue: -3}
  - {pattern: 'fixed', dtype: 'f4'}
";

#[test]
fn new_files_become_what_the_rules_say() {
    for libver in ["v110", "earliest"] {
        let config = tempfile::tempdir().unwrap();
        let yaml = config.path().join("h5dir.yaml");
        std::fs::write(&yaml, RULES).unwrap();
        let (mount, file) = empty(libver, &["--config", yaml.to_str().unwrap()]);
        let doubles: Vec<u8> = (0..25_000u32).flat_map(|i| f64::from(i).to_le_bytes()).collect();
        let source = config.path().join("data.f8");
        std::fs::write(&source, &doubles).unwrap();
        let script = format!(
            "cp {0} .; cmp {0} data.f8; mkdir -p deep/a/b; printf 'x\ny\n' >deep/a/b/n.txt; cp {0} short.f8; printf 123 >part.f8; stat -c %s part.f8
             printf z >deep/n.other; stat -c %s fixed 2>/dev/null; touch fixed; stat -c %s fixed; printf ab 1<>fixed; printf %041d 1 1<>fixed; printf z >fixed",
            source.display()
        );
        let said = shell(&mount, &script);
        assert_eq!(
            said,
            "800\n40\nbash: line 4: printf: write error: File too large\nbash: line 4: fixed: Operation not permitted\n",
            "{}",
            mount.log()
        );
        unmount(&mount);
        let target = format!("{}:/deep", file.display());
        let part = Mount::start(Place::new(), Path::new(&target), &["--read-write", "--config", yaml.to_str().unwrap()]);
        assert_eq!(shell(&part, "echo line >a/more.txt; echo line >more.f8x; cat a/more.txt"), "line\n");
        unmount(&part);
        h5py(
            &file,
            "    assert list(f['deep/a/more.txt'][:]) == [b'line'] and f['deep/more.f8x'].dtype == 'u1'
    d, n, x = f['data.f8'], f['deep/a/b/n.txt'], f['fixed']
    assert d.shape == (250, 100) and d.dtype == '<f8' and d.chunks == (64, 100) and d.maxshape == (None, 100)
    assert d.shuffle and d.compression == 'gzip' and d.compression_opts == 4 and (d[:] == np.arange(25000.).reshape(250, 100)).all()
    assert f['part.f8'].shape == (1, 100) and list(n[:]) == [b'x', b'y'] and f['deep/n.other'].dtype == 'u1'
    assert x.shape == (4, 5) and x.dtype == '>i2' and x.chunks is None and x[1, 0] == -3 and x[0, 0] == 0x6162",
        );
    }
}

#[test]
fn a_wrong_rule_is_told_before_mounting() {
    let place = Place::new();
    let (file, yaml) = (place.dir().join("new.h5"), place.dir().join("h5dir.yaml"));
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    std::fs::write(&yaml, "create:\n  - pattern: '*'\n    dtype: '<f8'\n    chunk: [5]\n").unwrap();
    let (code, message) = run(h5dir(&["mount", "--read-write", "--config"]).arg(&yaml).arg(&file).arg(place.mnt()));
    assert!(
        code == 2 && message.contains("h5dir.yaml") && message.contains("chunk") && message.contains("line 4 column 5"),
        "{code} {message}"
    );
    assert!(!is_mounted(&place.mnt()));
}

#[test]
fn attributes_are_files_that_can_be_written() {
    for libver in ["v110", "earliest"] {
        let (mount, file) = empty(libver, &[]);
        shell(&mount, "mkdir g; echo data >d; echo x >g/same");
        unmount(&mount);
        h5py(
            &file,
            "    a = f['d'].attrs; a['i'] = np.arange(6, dtype='<i4').reshape(2, 3); a['s'] = 'text'; a['gone'] = 1; a['moved'] = 2.5
    a.create('vl', ['one', 'three'], dtype=h5py.string_dtype()); f['g'].attrs['same'] = 1; a['old'] = 7",
        );
        let mount = Mount::start(Place::new(), &file, &["--read-write"]);
        let script = r"cd .h5dir/attrs
            head -c 24 /dev/zero | tr '\0' '\1' >d/i; od -An -tx4 -N4 d/i; printf 123 | cat >d/i; echo $?
            # The daemon hears of the last close after the program that closed.
            for _ in $(seq 3000); do [ $(stat -c %s d/i) = 24 ] && break; sleep 0.01; done; od -An -tx4 -N4 d/i
            printf '\x00\x00\x00\x09' | dd of=d/i bs=4 seek=5 conv=notrunc 2>/dev/null; od -An -tx4 -j20 d/i
            rm d/gone; ls d/gone; mv d/moved d/new; mv d/old d/s; ls d
            printf hello >d/made; printf longer-now >d/made; cat d/made; echo; : >d/void; stat -c %s d/void; printf 12 >g/%73ame; printf ab >>d/made
            printf '\3\0\0\0abc\0\0\0\0' >d/vl; od -An -c d/vl; printf '\3\0\0\0abc' | cat >d/vl; echo $?
            mkdir d/x; ln d/i d/y; mv d/i g/; touch d/fresh; ls g
            exec 5<>d/i; rm d/i; printf 1 >&5; exec 5>&-; ls d; truncate -s 3 d/made; cat d/made; truncate -s 3 d/new";
        let said = shell(&mount, script);
        let want = " 01010101
cat: write error: Invalid argument
1
 01010101
 09000000
ls: cannot access 'd/gone': No such file or directory
i
new
s
vl
longer-now
0
";
        assert!(said.starts_with(want), "{said}\n{}", mount.log());
        unmount(&mount);
        h5py(
            &file,
            "    a = f['d'].attrs
    assert sorted(a) == ['fresh', 'made', 'new', 's', 'vl', 'void'], sorted(a)
    assert a['new'] == 2.5 and a['s'] == 7 and a['made'].tobytes() == b'lon' and a['made'].dtype == 'u1' and a['void'].shape == (0,)
    assert list(a['vl']) == ['abc', ''] and f['g'].attrs['same'] == 1 and f['g/same'].shape == (2,)",
        );
    }
}

const NUMPY: &str = r"
V = P + '/.h5dir/npy/'
os.mkdir(P + '/g')
def check(name, a):
    np.save(V + name + '.npy', a)
    for mode in (None, 'r'):
        b = np.load(V + name + '.npy', mmap_mode=mode)
        assert b.dtype == a.dtype and b.shape == a.shape and (b == a).all(), (name, b)
rec = np.zeros((4, 3), dtype=[('a', '<i4'), ('b', '>f8', (2,)), ('c', 'S5')])
rec['a'] = np.arange(12).reshape(4, 3); rec['c'] = b'abc'
all = {
    'f8': np.arange(24.).reshape(4, 6), 'g/i2': np.arange(5, dtype='>i2'), 'scalar': np.array(7.5), 'none': np.zeros((0, 4), '<u2'),
    'rec': rec, 's': np.array([b'a', b'bcd']), 'b': np.array([True, False]), 'c': np.arange(3) * 1j, 'fortran': np.asfortranarray(np.arange(60).reshape(3, 4, 5)),
    'large': np.arange(800000).reshape(800, 1000), 't': np.arange(6).astype('M8[s]'), 'turned': np.arange(300000, dtype='u4').reshape(300, 1000).T, 'f2': np.arange(9, dtype='f2'),
    'pad': np.zeros(3, np.dtype({'names': ['x', 'y'], 'formats': ['u1', '<i8'], 'offsets': [0, 8], 'itemsize': 24})),
}
for name, a in all.items():
    check(name, a)
# Over what is there: other type, other shape, the same.
os.setxattr(P + '/f8', 'user.note', b'kept')
check('f8', np.arange(7, dtype='u1')); check('f8', np.arange(24.).reshape(4, 6)); check('f8', np.arange(24.).reshape(4, 6) * 2)
assert os.getxattr(P + '/f8', 'user.note') == b'kept'
m = np.lib.format.open_memmap(V + 'map.npy', mode='w+', dtype='<f4', shape=(100, 300))
m[:] = np.arange(30000).reshape(100, 300); m.flush(); del m
m = np.lib.format.open_memmap(V + 'map.npy', mode='r+'); m[5] = -1; m.flush(); del m
assert np.load(V + 'map.npy')[5, 7] == -1 and np.load(V + 'map.npy')[99, 299] == 29999
# A header that grows in its place keeps the rows.
np.save(V + 'rows.npy', np.arange(6).reshape(2, 3))
with open(V + 'rows.npy', 'r+b') as f:
    h = f.read(128); f.seek(0); f.write(h.replace(b'(2, 3)', b'(4, 3)')); f.flush(); f.seek(0, 2); assert f.tell() == 128 + 96, f.tell()
r = np.load(V + 'rows.npy'); assert r.shape == (4, 3) and (r[:2] == np.arange(6).reshape(2, 3)).all() and (r[2:] == 0).all()
def gone(path):
    # The daemon hears of a close after the program.
    for _ in range(3000):
        if not os.path.exists(path): return
        time.sleep(0.01)
    assert False, path
def refused(name, data, errno):
    try:
        with open(V + name, 'wb', buffering=0) as f: f.write(data)
    except OSError as e: assert e.errno == errno, (name, e)
    else: assert False, name
    gone(V + name)
import errno, io, time
def made(a):
    b = io.BytesIO(); np.save(b, a, allow_pickle=True); return b.getvalue()
refused('x.npy', b'hello, this is no numpy file at all', errno.EINVAL)
refused('y.npy', b'\x93NUM', errno.EINVAL)
refused('u.npy', made(np.array(['a'])), errno.EOPNOTSUPP)
refused('o.npy', made(np.array([None])), errno.EOPNOTSUPP)
refused('name', made(np.arange(3)), errno.EINVAL)
open(V + 'empty.npy', 'wb').close(); gone(P + '/empty')
for f, e in ((lambda: os.mkdir(V + 'dir'), errno.EPERM), (lambda: os.rmdir(V + 'g'), errno.EPERM)):
    try: f()
    except OSError as x: assert x.errno == e, x
    else: assert False
with open(V + 'late.npy', 'wb', buffering=0) as f:
    b = made(np.arange(10, dtype='u1')); f.seek(128); f.write(b[128:]); f.seek(0); f.write(b[:50]); f.write(b[50:128])
assert (np.load(V + 'late.npy') == np.arange(10)).all()
try: np.lib.format.open_memmap(V + 'fmap.npy', mode='w+', dtype='<f4', shape=(3, 4), fortran_order=True)
except OSError as e: assert e.errno == errno.EINVAL
else: assert False
# A header of another length than ours.
d = str({'descr': '<i2', 'shape': (4,), 'fortran_order': False}).encode()
with open(V + 'short.npy', 'wb') as f: f.write(b'\x93NUMPY\x01\x00' + len(d).to_bytes(2, 'little') + d + np.arange(4, dtype='<i2').tobytes())
assert (np.load(V + 'short.npy') == np.arange(4)).all() and os.stat(V + 'short.npy').st_size == 136
fd = os.open(V + 'late.npy', os.O_WRONLY)
try: os.pwrite(fd, b'x', 128 + 10)
except OSError as e: assert e.errno == errno.EFBIG
else: assert False
os.close(fd)
os.remove(V + 'late.npy'); assert not os.path.exists(P + '/late')
";

#[test]
fn numpy_files_become_datasets() {
    for libver in ["v110", "earliest"] {
        let (mount, file) = empty(libver, &["--attr-timeout=0", "--entry-timeout=0"]);
        run_python(NUMPY, &mount.place.mnt(), &|| mount.log());
        let source = mount.place.dir().join("s.npy");
        run_python("np.save(P, np.linspace(0, 1, 200000).reshape(-1, 50))", &source, &String::new);
        assert_eq!(shell(&mount, &format!("cp {0} .h5dir/npy/g/; cmp {0} .h5dir/npy/g/s.npy; cat {0} >.h5dir/npy/cat.npy; cmp {0} .h5dir/npy/cat.npy; cp {0} .h5dir/npy/cat.npy && cmp {0} .h5dir/npy/cat.npy; ls", source.display())).matches("cmp").count(), 0);
        unmount(&mount);
        h5py(
            &file,
            "    assert (f['g/s'][:] == np.linspace(0, 1, 200000).reshape(-1, 50)).all() and f['g/s'].maxshape == (None, 50) and f['cat'].shape == (4000, 50)
    assert f['f8'].shape == (4, 6) and f['f8'][3, 5] == 46 and f['f8'].attrs['note'] == 'kept' and f['scalar'][()] == 7.5
    assert f['rec'].dtype['b'].shape == (2,) and (f['fortran'][:] == np.arange(60).reshape(3, 4, 5)).all() and f['large'][799, 999] == 799999
    assert (f['turned'][:] == np.arange(300000, dtype='u4').reshape(300, 1000).T).all() and f['none'].shape == (0, 4) and f['map'][5, 0] == -1
    assert not set(f) & {'x', 'y', 'u', 'o', 'name', 'empty', 'late'}, list(f)
    f['f8'].resize((5, 6)); f['rec'][0, 0] = f['rec'][1, 1]; f['map'][0] = 5; del f['large']",
        );
    }
}

#[test]
fn the_exact_form_is_written() {
    let (mount, file) = empty("v110", &[]);
    unmount(&mount);
    h5py(
        &file,
        "    f.create_dataset('s', data=['a', 'bb'], maxshape=(None,), dtype=h5py.string_dtype())
    f.create_dataset('v', (2,), dtype=h5py.vlen_dtype('u1')); f['n'] = np.arange(3, dtype='u1')",
    );
    let mount = Mount::start(Place::new(), &file, &["--read-write"]);
    let script = r"cd .h5dir/exact; printf '\3\0\0\0x\ny\0\0\0\0\1\0\0\0z' >s; od -An -c s | head -1; printf '\1\0\0\0a\0\0\0\0' >v; printf '\7' | dd of=n bs=1 seek=1 conv=notrunc 2>/dev/null
        printf abc | cat >s; echo $?; exec 5<>s; printf '\0' >&5; printf x >../../s; echo $?; exec 5>&-";
    let said = shell(&mount, script);
    assert!(said.contains("003  \\0  \\0  \\0   x  \\n   y") && said.matches("1\n").count() >= 2, "{said} {}", mount.log());
    unmount(&mount);
    h5py(&file, "    assert list(f['s'][:]) == [b'x\\ny', b'', b'z'] and list(f['v'][0]) == [97] and list(f['n'][:]) == [0, 7, 2]");
}

const COHERENT: &str = "
import mmap
def raw(name): return np.frombuffer(open(name, 'rb').read(), '<f8').sum()
os.chdir(P)
np.save('.h5dir/npy/a.npy', np.zeros(1000))
fd = os.open('a', os.O_RDONLY)
mapped = mmap.mmap(fd, 8000, mmap.MAP_SHARED, mmap.PROT_READ)
assert mapped[0] == 0
for i in range(1, 20):
    np.save('.h5dir/npy/a.npy', np.full(1000, float(i)))
    assert np.frombuffer(os.pread(fd, 8000, 0), '<f8').sum() == 1000 * i, i
    assert np.frombuffer(mapped[:], '<f8').sum() == 1000 * i, i
changing = os.open('a', os.O_RDWR)
stored = mmap.mmap(changing, 8000)
stored[:8] = np.array([5.]).tobytes()
stored.flush()
assert np.load('.h5dir/npy/a.npy').sum() == 999 * 19 + 5 == raw('a')
stored.close()
os.close(changing)
# The other way round.
array = np.load('.h5dir/npy/a.npy', mmap_mode='r')
assert array.sum() == 999 * 19 + 5
for i in range(1, 20):
    with open('a', 'r+b') as f: f.write(np.full(1000, float(i)).tobytes())
    assert array.sum() == 1000 * i, i
changing = np.load('.h5dir/npy/a.npy', mmap_mode='r+')
changing[0] = 7
changing.flush()
assert raw('a') == 999 * 19 + 7
del changing
os.close(fd)
# Strings have two forms.
open('s', 'w').write('one\\ntwo\\n')
os.setxattr('s', 'user.h5dir.dtype', b'str')
fd = os.open('s', os.O_RDONLY)
assert os.pread(fd, 100, 0) == b'one\\ntwo\\n'
open('.h5dir/exact/s', 'wb').write(b'\\5\\0\\0\\0three')
assert os.pread(fd, 100, 0) == b'three\\n', os.pread(fd, 100, 0)
os.close(fd)
";

#[test]
fn what_is_saved_below_h5dir_is_seen_through_open_files_and_mappings() {
    let (mount, file) = empty("v110", &[]);
    run_python(COHERENT, &mount.place.mnt(), &|| mount.log());
    unmount(&mount);
    h5py(&file, " assert f['a'][0] == 7 and (f['a'][1:] == 19).all() and f['s'][:].tolist() == [b'three']");
}

const MOVED: &str = "
os.chdir(P)
np.save('.h5dir/npy/a.npy', np.ones(1000))
os.rename('a', 'backup')
np.save('.h5dir/npy/a.npy', np.full(10, 2.))
assert os.path.getsize('backup') == 8000 and os.path.getsize('a') == 80
open('s', 'w').write('old\\n')
os.setxattr('s', 'user.h5dir.dtype', b'str')
open('.h5dir/exact/s', 'rb').read()
os.rename('s', 's_backup')
try: open('.h5dir/exact/s', 'r+b')
except FileNotFoundError: pass
else: raise SystemExit('exact/s is there')
os.setxattr('a', 'user.k', b'one')
open('.h5dir/attrs/a/k', 'rb').read()
os.rename('a', 'b')
assert not os.path.exists('.h5dir/attrs/a/k') and os.path.exists('.h5dir/attrs/b/k')
os.mkdir('g')
np.save('.h5dir/npy/g/x.npy', np.ones(3))
os.rename('g', 'h')
os.mkdir('g')
np.save('.h5dir/npy/g/x.npy', np.ones(5))
assert os.path.getsize('h/x') == 24 and os.path.getsize('g/x') == 40
";

#[test]
fn what_was_moved_is_not_written_to_by_its_old_name_below_h5dir() {
    for options in [&[][..], &["--entry-timeout=0"]] {
        let (mount, file) = empty("v110", options);
        run_python(MOVED, &mount.place.mnt(), &|| mount.log());
        unmount(&mount);
        h5py(&file, " assert (f['backup'][:] == 1).all() and f['backup'].shape == (1000,) and f['s_backup'][:].tolist() == [b'old']");
    }
}

const EMPTIED: &str = "
os.chdir(P)
assert not os.path.exists('n')
np.save('.h5dir/npy/n.npy', np.arange(5))
open('n', 'wb').write(b'8 bytes.')
assert open('n', 'rb').read() == b'8 bytes.'
assert not os.path.exists('h/n')
open('g/n', 'wb').write(b'old contents')
open('h/n', 'wb').write(b'new')
assert open('h/n', 'rb').read() == b'new' == open('g/n', 'rb').read()
assert not os.path.exists('h/m')
open('g/m', 'wb').write(b'old contents')
open('h/m', 'ab').write(b', new')
assert open('g/m', 'rb').read() == b'old contents, new'
";

#[test]
fn a_file_that_the_kernel_took_to_be_absent_is_emptied_when_it_is_created() {
    let (mount, file) = empty("v110", &[]);
    unmount(&mount);
    h5py(&file, " f['h'] = f.create_group('g')");
    let mount = Mount::start(Place::new(), &file, &["--read-write"]);
    run_python(EMPTIED, &mount.place.mnt(), &|| mount.log());
    unmount(&mount);
    h5py(&file, " assert f['n'][:].tobytes() == b'8 bytes.' and f['g/n'][:].tobytes() == b'new'");
}

#[test]
fn an_attribute_removed_from_its_object_stays_gone_when_its_file_is_closed() {
    let place = Place::new();
    let file = place.dir().join("removed.h5");
    let h5py = |mode: &str, program: &str| {
        let script = format!("import h5py, sys, numpy as np\nf = h5py.File(sys.argv[1], '{mode}')\n{program}");
        let done = Command::new(python::with_h5py()).args(["-c", &script]).arg(&file).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    h5py("w", "g = f.create_group('g')\nfor k in ('k', 'again', 'stays', 'written'): g.attrs[k] = np.int32(5)");
    let mount = Mount::start(place, &file, &["--read-write"]);
    let script = "import os
V = '.h5dir/attrs/g/'
fds = {k: os.open(V + k, os.O_RDWR) for k in ('k', 'again', 'stays', 'written')}
for k in ('k', 'again', 'stays'): os.pwrite(fds[k], b'\\7\\0\\0\\0', 0)
for k in ('k', 'again', 'written'): os.removexattr('g', 'user.' + k)
assert os.pwrite(fds['written'], b'\\7\\0\\0\\0', 0) == 4
os.setxattr('g', 'user.again', b'text')
for fd in fds.values(): os.close(fd)
assert sorted(n for n in os.listxattr('g') if not n.startswith('user.h5dir')) == ['user.again', 'user.stays'], os.listxattr('g')
assert os.getxattr('g', 'user.again') == b'text' and os.getxattr('g', 'user.stays') == b'7'
with open(V + 'again', 'r+b') as f: f.write(b'\\4\\0\\0\\0TEXT')
assert os.getxattr('g', 'user.again') == b'TEXT'";
    let done =
        Command::new("timeout").arg("60").arg(python::with_h5py()).args(["-c", script]).current_dir(mount.place.mnt()).output().unwrap();
    assert!(done.status.success(), "{} {}", String::from_utf8_lossy(&done.stderr), mount.log());
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    h5py("r", "a = f['g'].attrs; assert sorted(a) == ['again', 'stays'] and a['stays'] == 7 and a['stays'].dtype == 'i4'");
}

/// Regression: EIO.
#[test]
fn a_npy_file_is_not_made_where_another_object_has_its_name() {
    let (mount, file) = empty("v110", &[]);
    let make =
        r#"mkdir g; ln -s g to_group; ln -s nowhere dangling; touch s; setfattr -n user.h5dir.dataset -v '{"dtype":"str","shape":[0]}' s"#;
    assert_eq!(shell(&mount, make), "");
    let errnos = "
for name in ('s', 'dangling', 'g', 'to_group'):
    try:
        np.save(P + '/.h5dir/npy/' + name + '.npy', np.arange(3))
    except OSError as e:
        print(name, __import__('errno').errorcode[e.errno])
    else:
        print(name, 'saved')
";
    let said = shell(
        &mount,
        &format!(
            "cd /; {} -c 'import sys, numpy as np; P = sys.argv[1]{}' {}",
            python::with_h5py().display(),
            errnos.replace('\'', "\""),
            mount.place.mnt().display()
        ),
    );
    assert_eq!(said, "s EEXIST\ndangling EEXIST\ng EISDIR\nto_group EISDIR\n", "{}", mount.log());
    unmount(&mount);
    h5py(&file, "    assert sorted(f) == ['dangling', 'g', 's', 'to_group'] and len(f['g']) == 0 and f['s'].shape == (0,)");
}

/// Regression: the link name of a `.npy` file whose name is cut was not known, and removing it failed.
#[test]
fn a_npy_file_whose_name_is_cut_is_removed() {
    let (mount, _) = empty("v110", &[]);
    let long = "n".repeat(253);
    std::fs::write(mount.path(&long), b"x").unwrap();
    let names = mount.names(".h5dir/npy");
    assert!(matches!(&names[..], [name] if name.len() <= 255 && name.contains("%~") && name.ends_with(".npy")), "{names:?}");
    let path = format!(".h5dir/npy/{}", names[0]);
    assert_eq!(mount.xattr(&path, "h5dir.name"), long);
    std::fs::remove_file(mount.path(&path)).unwrap();
    assert_eq!(mount.names(""), [""; 0]);
}

/// Regression: the cached form of a long variable-length element was read after the element had been rewritten.
#[test]
fn a_long_element_that_is_rewritten_is_read_anew() {
    let place = Place::new();
    let file = place.dir().join("long.h5");
    let program = "with h5py.File(P, 'w') as f:
    dt = np.dtype([('a', h5py.vlen_dtype(np.uint8)), ('b', 'u4')])
    e = np.zeros(2, dt)
    e[0], e[1] = (np.full(300_000, 1, 'u1'), 7), (np.full(300_000, 2, 'u1'), 8)
    f['d'] = e";
    run_python(program, &file, &String::new);
    let mount = Mount::start(place, &file, &["--read-write"]);
    let path = mount.path(".h5dir/exact/d");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4..300_004].fill(9);
    std::fs::write(&path, &bytes).unwrap();
    assert!(std::fs::read(&path).unwrap() == bytes);
    unmount(&mount);
    h5py(&file, "    assert (f['d'][0]['a'] == 9).all() and (f['d'][1]['a'] == 2).all()");
}
