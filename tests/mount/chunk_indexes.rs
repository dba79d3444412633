//! Datasets of few chunks whose maximum, or whose extent, has very many.

use super::mounted::{Mount, printed, shell};
use super::python::with_h5py;
use super::support::{Place, h5dir, run};
use super::writing::h5py;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Makes `path` by `script`, which has `f`, `np` and `path`.
fn make(path: &std::path::Path, libver: &str, script: &str) {
    let script = format!("import h5py, sys, numpy as np\nwith h5py.File(sys.argv[1], 'w', libver='{libver}') as f:\n    {script}");
    let made = Command::new(with_h5py()).args(["-c", &script]).arg(path).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

const SPARSE: [&str; 4] = [
    "f.create_dataset('d', data=np.arange(1847), maxshape=(50000005000000,), chunks=(24415,), compression='gzip')",
    "f.create_dataset('d', (1 << 60,), 'u1', chunks=(1 << 20,))[7] = 1",
    "f.create_dataset('d', (1 << 50, 3), 'i4', chunks=(1 << 10, 3), shuffle=True)[1 << 49] = 5",
    "f.create_dataset('d', data=np.ones((3, 9)), maxshape=(None, 10**12), chunks=(1, 10))",
];

/// Regression: the copy had an array of 164 GB for the maximum of a dataset of one chunk.
#[test]
fn copies_of_datasets_with_a_large_maximum_are_small() {
    for script in SPARSE {
        let place = Place::new();
        let (from, to) = (place.dir().join("from.h5"), place.dir().join("to.h5"));
        make(&from, "earliest", script);
        let copied = run(h5dir(&["cp", "-r", "--create"]).arg(format!("{}:/", from.display())).arg(format!("{}:/", to.display())));
        assert_eq!(copied, (0, String::new()), "{script}");
        assert!(to.metadata().unwrap().size() < 4 << 20, "{script}: {}", to.metadata().unwrap().size());
        let (code, output) = printed(h5dir(&["check", "--data"]).arg(&to));
        assert_eq!(code, 0, "{script}: {output}");
        // libhdf5 reads, writes and resizes it.
        let first = "a = f['d']; o = h5py.File(sys.argv[1].replace('to.h5', 'from.h5'))['d']";
        let same = "assert a.shape == o.shape and a.maxshape == o.maxshape and a.chunks == o.chunks and (a[:9] == o[:9]).all()";
        h5py(&to, "r", &format!("{first}; {same}; n = a.shape[0] // 2; assert (a[n:n + 5] == o[n:n + 5]).all()"));
        let change = "a = f['d']; n = a.shape[0] - 1; a[n:] = 3; m = min(a.maxshape[0] or 9, n + 30); a.resize(m, 0); a[m - 1:] = 4 if m > n + 1 else 3; a.resize(n + 1, 0)";
        h5py(&to, "r+", change);
        h5py(&to, "r", "a = f['d']; assert (a[a.shape[0] - 1:] == 3).all()");
        assert_eq!(run(h5dir(&["check", "--data"]).arg(&to)).0, 0, "{script}");
        let mount = Mount::start(place, &to, &["--read-write"]);
        shell(mount.place.dir(), "printf 12345678 | dd of=mnt/d bs=1 conv=notrunc status=none");
        assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()), "{}", mount.log());
        h5py(&to, "r", "assert f['d'][:1].tobytes()[:8] == b'12345678' or f['d'].dtype.itemsize == 1 and bytes(f['d'][:8]) == b'12345678'");
    }
}

/// Regression: arrays of 4 million places and more were called damaged, and their files dead.
#[test]
fn large_arrays_of_libhdf5_are_sound() {
    for script in [
        "f.create_dataset('d', (50_000_000,), 'i4', chunks=(10,))[7] = 9",
        "f.create_dataset('d', (10**11,), 'u1', chunks=(1,))[4 * 10**9] = 9",
        "f.create_dataset('d', (10**9,), 'u1', chunks=(1,), compression='gzip')[10**7] = 9",
        "f.create_dataset('d', (10**9, 3), 'u1', chunks=(1, 3), maxshape=(None, 3))[7 * 10**8] = 9",
        "f.create_dataset('d', (10**9, 3), 'u1', chunks=(1, 1), maxshape=(None, None))[7 * 10**8] = 9",
        "[f.create_dataset('d%d' % i, (10**9,), 'u1', chunks=(1,)).__setitem__(i * 10**7, 9) for i in range(40)]",
    ] {
        let place = Place::new();
        let file = place.dir().join("f.h5");
        make(&file, "latest", script);
        let (code, output) = printed(h5dir(&["check"]).arg(&file));
        assert_eq!(code, 0, "{script}: {output}");
        let (code, output) = printed(h5dir(&["stat", "--space"]).arg(&file));
        let dead = output.lines().find(|line| line.contains("Dead:")).unwrap();
        // libhdf5 leaves a part of a block of metadata.
        let dead: u64 = dead.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(code == 0 && dead < 8192, "{script}: {output}");
    }
}
