//! `h5dir stat --space`: live, free and dead bytes of a file. `tests/oracle/space_sweep.py` compares more files with h5stat.

use super::mounted::{Mount, shell};
use super::python;
use super::support::{Place, h5dir, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file made by statements of h5py over `h5py`, `np` and `path`, and what they print.
fn made(program: &str) -> (Place, PathBuf, Value) {
    let place = Place::new();
    let path = place.dir().join("f.h5");
    let script = format!("import h5py, json, numpy as np, sys\npath = sys.argv[1]\n{program}");
    let output = Command::new(python::with_h5py()).args(["-c", &script]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (place, path, printed)
}

/// Exit code, what is printed with `--json`, standard error. The parts must add up to the file.
fn space(path: &Path) -> (i32, Value, String) {
    let before = std::fs::read(path).unwrap();
    let output = h5dir(&["stat", "--space", "--json"]).arg(path).output().unwrap();
    assert!(std::fs::read(path).unwrap() == before, "the file was changed");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let n = |key: &str| found[key].as_u64().unwrap();
    assert_eq!(n("live") + n("free") + n("dead"), before.len() as u64, "{found}");
    assert_eq!(n("metadata") + n("raw") + n("global_heap"), n("live"), "{found}");
    (output.status.code().unwrap(), found, String::from_utf8(output.stderr).unwrap())
}

fn whole(path: &Path) -> Value {
    let (code, found, errors) = space(path);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!((&found["claimed_twice"], &found["past_end"], &found["unreadable"]), (&0.into(), &0.into(), &0.into()));
    found
}

#[test]
fn what_libhdf5_forgets_is_dead() {
    let program = "
with h5py.File(path, 'w') as f:
    f['kept'] = np.arange(1000)
    f['gone'] = np.arange(10000)
    f['last'] = np.arange(10)
with h5py.File(path, 'a') as f:
    del f['gone']
    print(f['kept'].id.get_storage_size() + f['last'].id.get_storage_size())";
    let (_place, path, raw) = made(program);
    let found = whole(&path);
    assert_eq!((&found["raw"], &found["free"]), (&raw, &0.into()));
    assert!((80_000..81_000).contains(&found["dead"].as_u64().unwrap()), "{found}");
    let text = String::from_utf8(h5dir(&["stat", "--space"]).arg(&path).output().unwrap().stdout).unwrap();
    assert!(text.contains("h5repack") && text.contains(&format!("Dead: {} bytes", found["dead"])), "{text}");
}

#[test]
fn what_a_mount_frees_is_free_and_what_managers_list_too() {
    let (place, path, _) = made("f = h5py.File(path, 'w'); f['gone'] = np.arange(10000); f['last'] = np.arange(10); f.close()");
    let mut mount = Mount::start(place, &path, &["--read-write"]);
    shell(&mount.place.mnt(), "rm gone; echo text > new");
    mount.terminate();
    let found = whole(&path);
    assert!((79_000..81_000).contains(&found["free"].as_u64().unwrap()) && found["dead"].as_u64().unwrap() < 8000, "{found}");
    let program = "
with h5py.File(path, 'w', fs_strategy='fsm', fs_persist=True) as f:
    f['gone'] = np.arange(10000)
    f['last'] = np.arange(10)
with h5py.File(path, 'a') as f:
    del f['gone']
    print(f.id.get_freespace())";
    let (_place, path, _) = made(program);
    let found = whole(&path);
    assert!(found["free"].as_u64().unwrap() >= 80_000, "{found}");
}

#[test]
fn collections_of_variable_length_elements_are_counted_once() {
    let program = "
with h5py.File(path, 'w') as f:
    f['strings'] = np.array(['x' * 50] * 3000, dtype=h5py.string_dtype())
    f['same'] = f['strings']
    f.attrs['text'] = 'of variable length'
data = open(path, 'rb').read()
at, found = 0, 0
while (at := data.find(b'GCOL', at)) >= 0:
    found += int.from_bytes(data[at + 8:at + 16], 'little')
    at += 4
print(found)";
    let (_place, path, heap) = made(program);
    assert_eq!(whole(&path)["global_heap"], heap);
    assert!(heap.as_u64().unwrap() > 150_000);
}

#[test]
fn damage_is_named_and_the_rest_is_counted() {
    let program = "
with h5py.File(path, 'w') as f:
    f['first'] = np.arange(1000)
    f.create_dataset('second', data=np.arange(1000), chunks=(100,))
    address = h5py.h5o.get_info(f['second'].id).addr
with open(path, 'r+b') as f:
    f.seek(address)
    f.write(bytes(16))
print(address)";
    let (_place, path, address) = made(program);
    let (code, found, errors) = space(&path);
    assert_eq!((code, &found["unreadable"], &found["raw"]), (1, &1.into(), &8000.into()));
    let lines: Vec<&str> = errors.lines().collect();
    let named = format!("object header at {:#x}", address.as_u64().unwrap());
    assert!(lines.len() == 2 && lines[0].contains(&named) && lines[1].contains("damaged"), "{errors}");
}

#[test]
fn overlaps_and_extents_past_the_end_are_reported() {
    let program = "
with h5py.File(path, 'w') as f:
    f['first'] = np.arange(1000)
    f['second'] = np.arange(1000)
    f['third'] = np.arange(1000)
    first, second, third = (f[name].id.get_offset().to_bytes(8, 'little') for name in f)
data = open(path, 'rb').read()
assert data.count(second) == data.count(third) == 1
data = data.replace(second, first).replace(third, (len(data) - 1000).to_bytes(8, 'little'))
open(path, 'wb').write(data)";
    let (_place, path, _) = made(program);
    let (code, found, errors) = space(&path);
    assert_eq!((code, errors.as_str(), &found["past_end"]), (0, "", &7000.into()));
    assert!(found["claimed_twice"].as_u64().unwrap() >= 8000, "{found}");
    let text = String::from_utf8(h5dir(&["stat", "--space"]).arg(&path).output().unwrap().stdout).unwrap();
    assert!(text.contains("claimed twice") && text.contains("7000 bytes of structures are past the end"), "{text}");
}

#[test]
fn only_a_whole_file_has_space() {
    let (place, path, _) = made("h5py.File(path, 'w').create_group('g')");
    let inner = format!("{}:/g", path.display());
    let (code, errors) = run(&mut h5dir(&["stat", "--space", &inner]));
    assert!(code == 2 && errors.contains("without :/g"), "{errors}");
    let text = place.dir().join("text");
    std::fs::write(&text, "no HDF5 file").unwrap();
    assert_eq!(run(h5dir(&["stat", "--space"]).arg(&text)).0, 3);
}
