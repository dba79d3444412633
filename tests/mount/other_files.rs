//! Sources of virtual datasets in other HDF5 files that are written: errors, kills, names of the mounted file.
//! `tests/oracle/virtual_files_sweep.py` compares what is written with libhdf5.

use super::mounted::Mount;
use super::support::{Place, h5dir, run};
use super::writing::h5py;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The virtual dataset `v` of `m.h5` has four elements of `m.h5` by its own name, and four of `s.h5`.
fn lay_out(place: &Place) -> PathBuf {
    let folder = place.dir().join("data");
    std::fs::create_dir(&folder).unwrap();
    let program = "import numpy; f['x'] = numpy.frombuffer(b'abcd', 'u1'); l = h5py.VirtualLayout((8,), 'u1'); \
        l[:4] = h5py.VirtualSource('m.h5', 'x', (4,), 'u1'); l[4:] = h5py.VirtualSource('s.h5', 'x', (4,), 'u1'); \
        f.create_virtual_dataset('v', l)";
    ["m.h5", "s.h5"].iter().for_each(|name| drop(h5py(&folder.join(name), "w", program)));
    folder
}

fn mount(place: Place, folder: &Path) -> Mount {
    let root = format!("--external-root={}", folder.display());
    Mount::start(place, &folder.join("m.h5"), &["--read-write", "--external-write", &root])
}

fn opened(mount: &Mount, path: &str) -> File {
    File::options().read(true).write(true).open(mount.path(path)).unwrap()
}

fn stored(path: &Path) -> String {
    h5py(path, "r", "print(bytes(f['x'][()]).decode())").trim().to_owned()
}

#[test]
fn the_mounted_file_by_its_own_name_is_not_opened_again() {
    let place = Place::new();
    let folder = lay_out(&place);
    let mut mount = mount(place, &folder);
    opened(&mount, "v").write_all_at(b"12345678", 0).unwrap();
    assert_eq!((mount.read("v"), mount.read("x")), (b"12345678".to_vec(), b"1234".to_vec()));
    assert_eq!(mount.terminate(), Some(0));
    assert_eq!((stored(&folder.join("m.h5")), stored(&folder.join("s.h5"))), ("1234".into(), "5678".into()));
}

#[test]
fn fsync_and_close_report_a_source_that_cannot_be_committed() {
    let place = Place::new();
    let folder = lay_out(&place);
    let mount = mount(place, &folder);
    let file = opened(&mount, "v");
    file.write_all_at(b"12345678", 0).unwrap();
    std::fs::rename(folder.join("s.h5"), folder.join("moved")).unwrap();
    std::fs::copy(folder.join("moved"), folder.join("s.h5")).unwrap();
    std::fs::remove_file(folder.join("moved")).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO), "{}", mount.log());
    assert_eq!(file.write_all_at(b"x", 4).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert!(mount.log().contains("s.h5: the last changes could not be made durable"), "{}", mount.log());
    // The mounted file goes on.
    let own = opened(&mount, "x");
    own.write_all_at(b"Z", 0).unwrap();
    own.sync_all().unwrap();
}

#[test]
fn the_first_write_recovers_a_source_after_a_kill() {
    let place = Place::new();
    let folder = lay_out(&place);
    let mut killed = mount(place, &folder);
    let file = opened(&killed, "v");
    file.write_all_at(b"12345678", 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(b"lostlost", 0).unwrap();
    killed.daemon().kill().unwrap();
    killed.daemon().wait().unwrap();
    drop(file);
    assert!(folder.join("s.h5.h5dir-journal").exists());
    let place = Place::new();
    let mut mount = mount(place, &folder);
    assert_eq!(mount.read("v"), b"12345678");
    opened(&mount, "v").write_all_at(b"!", 7).unwrap();
    assert_eq!(mount.terminate(), Some(0));
    assert_eq!((stored(&folder.join("m.h5")), stored(&folder.join("s.h5"))), ("1234".into(), "567!".into()));
    assert!(!folder.join("s.h5.h5dir-journal").exists());
    for name in ["m.h5", "s.h5"] {
        let (code, out) = run(&mut h5dir(&["check", "--data", folder.join(name).to_str().unwrap()]));
        assert_eq!(code, 0, "{out}");
    }
}
