//! Ranges of mounted datasets by the programs that use them: fallocate, cp, holes; and space that is given back.

use super::mounted::Mount;
use super::support::{Place, eventually, h5dir, is_mounted, run};
use super::writing::{h5py, shell};
use std::os::unix::fs::MetadataExt;

fn mounted(program: &str) -> (Mount, std::path::PathBuf) {
    let place = Place::new();
    let file = place.dir().join("f.h5");
    h5py(&file, "w", program);
    (Mount::start(place, &file, &["--read-write"]), file)
}

fn unmount(mount: &Mount) {
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()), "{}", mount.log());
    eventually("it is unmounted", || !is_mounted(&mount.place.mnt()));
}

#[test]
fn holes_are_punched_allocated_and_seen() {
    let (mount, file) =
        mounted("f.create_dataset('d', data=__import__('numpy').full((1 << 20,), 7, 'u1'), chunks=(4096,), maxshape=(None,))");
    let blocks = |name: &str| std::fs::metadata(mount.path(name)).unwrap().blocks();
    assert_eq!(blocks("d"), 2048);
    shell(&mount, "fallocate -p -o 100 -l 1000000 d");
    assert!(blocks("d") < 120, "{}", blocks("d"));
    let seen = shell(
        &mount,
        "python3 -c 'import os; f = os.open(\"d\", 0); h = os.lseek(f, 0, os.SEEK_HOLE); print(h, os.lseek(f, h, os.SEEK_DATA))'",
    );
    assert_eq!(seen, "4096 999424\n");
    let few = blocks("d");
    shell(&mount, "fallocate -o 8192 -l 8192 d");
    assert_eq!(blocks("d"), few + 16);
    shell(&mount, "fallocate -o 1048576 -l 151424 d; fallocate -z -o 0 -l 50 d");
    assert_eq!(blocks("d"), few + 16 + 37 * 8);
    let errno = |script: &str| shell(&mount, &format!("{script} 2>&1 || true"));
    assert!(errno("fallocate -n -o 2000000 -l 5 d").contains("unsupported"));
    assert!(errno("fallocate -c -o 0 -l 4096 d").contains("supported"));
    unmount(&mount);
    let ok = "d = f['d'][()]; print(d.shape, (d[:100] == 0).sum(), (d[50:100] == 7).all(), (d[100:1000100] == 0).all(), (d[1000100:1 << 20] == 7).all(), d[1 << 20:].any())";
    assert_eq!(h5py(&file, "r", ok), "(1200000,) 50 True True True False\n");
    h5py(&file, "r+", "f['d'][5000:6000] = 9; f['e'] = f['d'][()]");
}

#[test]
fn cp_copies_chunks_as_they_are_stored() {
    let program = "import numpy as n; r = n.random.default_rng(1); a = r.integers(0, 9, (1000, 300)).astype('<i4'); \
        k = dict(chunks=(64, 128), maxshape=(None, 300), compression='gzip', shuffle=True); f.create_dataset('a', data=a, **k); \
        f.create_dataset('b', (0, 300), '<i4', **k); f.create_dataset('c', (1000, 300), '<i4', chunks=(10, 10))";
    let (mount, file) = mounted(program);
    let before = mount.counter("chunks_decoded");
    // cp of coreutils 9.1 reads and writes what looks sparse, as compressed data does.
    shell(&mount, "cp --sparse=never a b");
    let copied = mount.counter("chunks_copied");
    assert_eq!((copied, mount.counter("chunks_decoded")), (48, before), "{}", mount.log());
    shell(&mount, "cp a c; cmp a b; cmp a c");
    assert_eq!(mount.counter("chunks_copied"), copied);
    unmount(&mount);
    assert_eq!(
        h5py(&file, "r", "print(f['b'].shape, (f['a'][()] == f['b'][()]).all(), (f['a'][()] == f['c'][()]).all())"),
        "(1000, 300) True True\n"
    );
    h5py(&file, "r+", "f['b'][5] = 1; f['b'].resize((10, 300)); del f['a']");
}

#[test]
fn deleted_values_leave_nothing_behind() {
    let types = "import numpy as n; s = h5py.string_dtype(); v = h5py.vlen_dtype('i4'); ";
    let made = [
        "f['x'] = ['text' * 50] * 100",
        "f.create_dataset('x', (50,), v)[:] = n.array([n.arange(9)] * 50)",
        "x = f.create_dataset('x', (20,), n.dtype([('a', s), ('b', 'i4'), ('c', v)]), chunks=(3,), compression='gzip'); \
            x[:] = n.array([('x' * 99, 1, n.arange(30))] * 20, x.dtype)",
        "f['t'] = n.dtype('i4,f8'); x = f.create_dataset('x', (4,), f['t']); x.attrs.create('x', n.zeros(1, 'i4,f8'), dtype=f['t'])",
    ];
    for program in made {
        let (mount, file) = mounted(&format!("{types}{program}"));
        if program.contains("'t'") {
            shell(&mount, "rm t; sync x; cat x");
        }
        shell(&mount, "rm x");
        unmount(&mount);
        assert_eq!(h5py(&file, "r", "print(list(f))"), "[]\n");
        let left = std::fs::metadata(&file).unwrap().len();
        assert!(left < 4096, "{left} bytes for nothing: {program}");
        h5py(&file, "r+", "f['n'] = ['a', 'b']");
    }
}

#[test]
fn chunks_of_a_new_file_suit_what_it_is_made_by() {
    let (mount, file) = mounted("f['x'] = 1");
    let script = "printf %480s >small; printf %481s >small2; printf a >grown; seq 200 >>grown
        : >bit; for i in 1 2 3 4 5 6; do printf %300s >>bit; done
        head -c 65536 /dev/zero | dd of=pieces bs=64k iflag=fullblock status=none; head -c 5000000 /dev/zero | dd of=drops bs=1000 iflag=fullblock status=none
        truncate -s 300 short; truncate -s 1G long; printf x | dd of=long bs=1 seek=500000000 conv=notrunc status=none
        : >kept; fallocate -l 2M kept; cp --sparse=never pieces copy; cp --sparse=never small smallcopy; cmp pieces copy";
    shell(&mount, script);
    unmount(&mount);
    let chunk = "print({k: (f[k].chunks[0], f[k].size) for k in f if k != 'x'})";
    assert_eq!(
        h5py(&file, "r", chunk),
        "{'bit': (4096, 1800), 'copy': (16384, 65536), 'drops': (65536, 5000000), 'grown': (4096, 693), 'kept': (65536, 2097152), \
         'long': (65536, 1073741824), 'pieces': (16384, 65536), 'short': (480, 300), 'small': (480, 480), 'small2': (4096, 481), \
         'smallcopy': (480, 480)}\n"
    );
    assert_eq!(h5py(&file, "r", "print(f['bit'][()].tobytes() == b' ' * 1800, f['grown'][:5].tobytes())"), "True b'a1\\n2\\n'\n");
}

#[test]
fn small_files_of_an_earlier_mount_grow_as_new_ones_do() {
    let (earlier, file) = mounted("f['x'] = 1");
    shell(&earlier, "printf log >log; printf same >same; : >filtered; : >described; printf 123 >kept");
    shell(
        &earlier,
        r#"setfattr -n user.h5dir.filters -v '["deflate 1"]' filtered; setfattr -n user.h5dir.dataset -v '{"dtype": "<f4"}' described
        head -c 100000 /dev/zero | tee filtered described >/dev/null"#,
    );
    unmount(&earlier);
    let mount = Mount::start(Place::new(), &file, &["--read-write"]);
    shell(&mount, "for i in 1 2 3 4 5 6 7; do printf '%100s' $i >>log; done; printf s >>same");
    unmount(&mount);
    let chunk =
        "print({k: (f[k].chunks[0], f[k].size, f[k].compression) for k in f if k != 'x'}, f['log'][:5].tobytes(), f['log'][-2:].tobytes())";
    assert_eq!(
        h5py(&file, "r", chunk),
        "{'described': (1024, 25000, None), 'filtered': (4096, 100000, 'gzip'), 'kept': (480, 3, None), 'log': (4096, 703, None), \
         'same': (480, 5, None)} b'log  ' b' 7'\n"
    );
}

#[test]
fn zero_range_beyond_what_a_dataset_can_grow_to_changes_nothing() {
    let program = "import numpy as n; a = n.full(5000, 9, 'u1'); f['c'] = a; f.create_dataset('x', data=a, chunks=(100,)); \
        f.create_dataset('m', data=a, chunks=(100,), maxshape=(6000,)); f['s'] = ['text', 'more']; \
        f.create_dataset('g', data=a, chunks=(100,), maxshape=(None,), fillvalue=3)";
    let (mount, file) = mounted(program);
    let zero = |name: &str, len: u64| shell(&mount, &format!("fallocate -z -o 1609 -l {len} {name} 2>&1 || true"));
    for name in ["c", "x", "m"] {
        assert_eq!(mount.read(name), [9; 5000]);
        assert!(zero(name, 5000).contains("too large"), "{name}: {}", mount.log());
        assert_eq!(mount.read(name), [9; 5000], "{name}");
    }
    let text = mount.read("s");
    assert!(zero("s", 5000).contains("supported"));
    assert_eq!(mount.read("s"), text);
    assert_eq!(zero("m", 4391) + &zero("g", 5000), "");
    let want = |n: usize| [vec![9; 1609], vec![0; n - 1609]].concat();
    assert_eq!((mount.read("m"), mount.read("g")), (want(6000), want(6609)));
    unmount(&mount);
    let seen = h5py(&file, "r", "print([int((f[n][()] == 9).sum()) for n in 'cxmg'], f['g'].shape, f['s'][1])");
    assert_eq!(seen, "[5000, 5000, 1609, 1609] (6609,) b'more'\n");
}
