//! Files whose user block a program without libhdf5 added, removed or resized.

use super::expected;
use super::mounted::{Mount, printed, shell};
use super::python::with_h5py;
use super::support::{Place, h5dir, run};
use super::writing::h5py;
use std::path::Path;
use std::process::Command;

const MAKE: &str = r"
import h5py, sys, numpy as np
path, low, high, before, after = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
strategy = {} if high != 'latest' else {'fs_strategy': 'fsm', 'fs_persist': True}
with h5py.File(path, 'w', libver=(low, high), userblock_size=before or None, **strategy) as f:
    f['a'] = np.arange(2000)
    f.create_dataset('c', data=np.arange(9000), chunks=(300,), compression='gzip')
    f['gone'] = np.zeros(3000, 'u1')
    del f['gone']
data = open(path, 'rb').read()
open(path, 'wb').write(b'u' * after + data[before:])
";

/// Makes a file written with a user block of `before` bytes, which has one of `after` bytes.
fn make(file: &Path, (low, high): (&str, &str), before: u64, after: u64) {
    let sizes = [before, after].map(|n| n.to_string());
    let made = Command::new(with_h5py()).args(["-c", MAKE]).arg(file).args([low, high]).args(sizes).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Errors: libhdf5 does not read and change `file`, the user block changed, or `h5dir check` objects.
fn is_whole(file: &Path, user_block: u64, more: &str) {
    let same = "assert (f['a'][:] == np.arange(2000)).all() and (f['c'][:] == np.arange(9000)).all()";
    h5py(file, "r", &format!("import numpy as np; {same}; assert f.userblock_size == {user_block}; {more}"));
    let (code, output) = printed(h5dir(&["check", "--data"]).arg(file));
    assert_eq!(code, 0, "{output}");
    h5py(file, "r+", "f.create_group('of_libhdf5')");
    h5py(file, "r", &format!("import numpy as np; {same}; {more}; assert 'of_libhdf5' in f"));
    assert!(std::fs::read(file).unwrap().iter().take(user_block as usize).all(|b| *b == b'u'));
}

/// Regression: the recorded EOF was taken for an absolute one, and libhdf5 called the changed file truncated.
#[test]
fn files_with_another_user_block_than_recorded_are_read_and_changed() {
    for versions in [("earliest", "v108"), ("v108", "v108"), ("v110", "latest")] {
        for (before, after) in [(0, 512), (512, 0), (2048, 512), (512, 4096)] {
            let place = Place::new();
            let file = place.dir().join("f.h5");
            make(&file, versions, before, after);
            let (code, output) = printed(h5dir(&["check", "--data"]).arg(&file));
            let note = format!("The user block has {after} bytes, the superblock records {before}");
            assert!(code == 0 && output.contains(&note), "{versions:?} {output}");
            let whole = std::fs::read(&file).unwrap();
            assert_eq!(run(h5dir(&["recover"]).arg(&file)).0, 0);
            assert!(std::fs::read(&file).unwrap() == whole, "there is nothing to recover");

            let copied = run(h5dir(&["cp"]).arg(format!("{}:/a", file.display())).arg(format!("{}:/b", file.display())));
            assert_eq!(copied, (0, String::new()));
            is_whole(&file, after, "assert (f['b'][:] == np.arange(2000)).all()");

            std::fs::write(&file, &whole).unwrap();
            let mount = Mount::start(place, &file, &["--read-write"]);
            shell(mount.place.dir(), "cp mnt/c mnt/d; head -c 30000 /dev/zero >mnt/e; rm mnt/e");
            assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()), "{}", mount.log());
            is_whole(&file, after, "assert 'd' in f");
        }
    }
}

#[test]
fn a_killed_session_in_a_file_with_another_user_block_is_recovered() {
    for (before, after) in [(0, 1024), (1024, 0)] {
        let place = Place::new();
        let file = place.dir().join("f.h5");
        make(&file, ("earliest", "latest"), before, after);
        let mut mount = Mount::start(place, &file, &["--read-write"]);
        std::fs::write(mount.path("kept"), [7; 5000]).unwrap();
        shell(&mount.place.mnt(), "sync kept; head -c 100000 /dev/urandom >lost");
        mount.daemon().kill().unwrap();
        mount.daemon().wait().unwrap();
        assert_eq!(run(h5dir(&["umount", "--lazy"]).arg(mount.place.mnt())), (0, String::new()));
        let (code, output) = run(h5dir(&["recover"]).arg(&file));
        assert_eq!(code, 0, "{output}");
        is_whole(&file, after, "assert bytes(f['kept'][()]) == bytes([7]) * 5000");
    }
}

/// Files of each superblock version, with what their writers put into them.
#[test]
fn files_of_all_superblock_versions_take_a_user_block() {
    for (name, version) in [("types_earliest", 1u8), ("chunks_earliest", 1), ("chunks_v108", 2), ("filters_latest", 3)] {
        let bytes = std::fs::read(expected::folder().join(format!("../mutants/{name}.h5"))).unwrap();
        assert_eq!(bytes[8], version, "{name}");
        let place = Place::new();
        let file = place.dir().join("f.h5");
        std::fs::write(&file, [&[b'u'; 1024][..], &bytes].concat()).unwrap();
        let all = h5py(&file, "r", "print(sorted(f))");
        let mount = Mount::start(place, &file, &["--read-write"]);
        shell(mount.place.dir(), "mkdir mnt/zz; head -c 100000 /dev/urandom >mnt/zz/new; head -c 9000 mnt/zz/new >mnt/zz/more");
        assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()), "{}", mount.log());
        assert_eq!(h5py(&file, "r", "print(sorted(set(f) - {'zz'}))"), all, "{name}");
        h5py(&file, "r+", "assert f['zz/new'].shape == (100000,) and f.userblock_size == 1024; f['zz/own'] = 1");
        assert_eq!(printed(h5dir(&["check"]).arg(&file)).0, 0, "{name}");
    }
}
