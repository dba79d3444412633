//! Attributes as extended attributes: text, names, limits, the lossless form.

use super::expected::{self, bytes, entries};
use super::mounted::{Mount, getxattr, getxattr_sized, listxattr, listxattr_sized, shell};
use super::support::{Place, h5dir, run};
use super::writing::h5py;
use serde_json::Value;
use std::process::Command;

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn every_attribute_is_text() {
    for name in ["attributes_old", "attributes_new"] {
        let mount = Mount::fixture(name);
        let mut wrong = Vec::new();
        for (path, attributes) in entries(&expected::of(name)["attributes"]) {
            let listed = listxattr(&mount.path(path));
            for (attribute, text) in entries(attributes) {
                let text = text.as_str().unwrap();
                let got = getxattr(&mount.path(path), &format!("user.{attribute}"));
                if got.as_ref().ok().map(Vec::as_slice) != Some(text.as_bytes()) {
                    wrong.push(format!("{path} {attribute}: {:?}, not {text:?}", got.map(|g| String::from_utf8_lossy(&g).into_owned())));
                }
                assert!(listed.contains(&format!("user.{attribute}")), "{path}: {attribute} is not listed");
            }
        }
        assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
    }
}

#[test]
fn the_lossless_form_tells_types_and_shapes() {
    for name in ["attributes_old", "attributes_new"] {
        let mount = Mount::fixture(name);
        for (path, want) in entries(&expected::of(name)["json"]) {
            let got: Value = serde_json::from_str(&mount.xattr(path, "h5dir.attributes")).unwrap();
            assert_eq!(got, *want, "{path}");
        }
        let all: Value = serde_json::from_str(&mount.xattr("data", "h5dir.attributes")).unwrap();
        let names: Vec<&str> = all.as_array().unwrap().iter().map(|a| a["name"].as_str().unwrap()).collect();
        assert!(names.len() > 30 && names.contains(&"with/slash") && names.contains(&"opaque"), "{names:?}");
    }
}

#[test]
fn reserved_and_long_names_are_escaped() {
    let mount = Mount::fixture("attributes_new");
    assert_eq!(mount.xattr("clash", "h5dir.kind"), "group");
    assert_eq!(mount.xattr("clash", "%685dir.kind"), "a real attribute");
    let want = &expected::of("attributes_new")["long_name"];
    let prefix = format!("user.{}", want["prefix"].as_str().unwrap());
    let cut: Vec<String> = listxattr(&mount.path("clash")).into_iter().filter(|n| n.starts_with(&prefix) && n.contains("%~")).collect();
    assert_eq!(cut.len(), 1);
    assert!(cut[0].len() <= 255);
    assert_eq!(getxattr(&mount.path("clash"), &cut[0]).unwrap(), want["text"].as_str().unwrap().as_bytes());
}

#[test]
fn errors_are_those_of_xattr() {
    let mount = Mount::fixture("attributes_new");
    let path = mount.path("data");
    assert_eq!(errno(getxattr(&path, "user.absent")), libc::ENODATA);
    assert_eq!(errno(getxattr(&path, "user.h5dir.absent")), libc::ENODATA);
    assert_eq!(errno(getxattr(&path, "trusted.text")), libc::EOPNOTSUPP);
    assert_eq!(
        getxattr(&path, "security.selinux").map_err(|e| e.raw_os_error().unwrap()).unwrap_or_default(),
        b"",
        "never an attribute's value"
    );
    let len = "gr\u{fc}\u{df} dich".len();
    assert_eq!(errno(getxattr_sized(&path, "user.text", len - 1)), libc::ERANGE);
    assert_eq!(getxattr_sized(&path, "user.text", len).unwrap().len(), len);
    assert_eq!(getxattr_sized(&path, "user.text", 0).unwrap().len(), len, "size 0 asks for the length");
    let list = listxattr_sized(&path, 0).unwrap().len();
    assert_eq!(errno(listxattr_sized(&path, list - 1)), libc::ERANGE);
    assert_eq!(listxattr_sized(&path, list).unwrap().len(), list);
}

#[test]
fn limits_of_the_kernel_are_honoured() {
    let mount = Mount::fixture("limits");
    let path = mount.path("data");
    assert_eq!(getxattr(&path, "user.fits").unwrap(), vec![b'f'; 65536]);
    assert_eq!(errno(getxattr(&path, "user.too_big")), libc::E2BIG);
    assert_eq!(errno(getxattr(&path, "user.h5dir.attributes")), libc::E2BIG);
    assert_eq!(getxattr(&path, "user.small").unwrap(), b"s");
    // What is too big is readable elsewhere.
    assert_eq!(mount.read(".h5dir/attrs/data/too_big"), vec![b'g'; 65537]);
    let list = listxattr_sized(&mount.path("many"), 1 << 16).unwrap();
    assert!(list.len() > 60_000 && list.len() <= 65_536, "{}", list.len());
    for name in listxattr(&mount.path("many")).iter().filter(|n| !n.starts_with("user.h5dir.")).take(400) {
        let number: u64 = name["user.".len()..][..3].parse().unwrap();
        assert_eq!(getxattr(&mount.path("many"), name).unwrap(), (number % 200).to_string().as_bytes());
    }
    assert_eq!(mount.names(".h5dir/attrs/many").len(), 400);
}

#[test]
fn tools_that_copy_attributes_end_well_at_the_limits() {
    let mount = Mount::fixture("limits");
    // What the target cannot hold is no failure of cp -a.
    shell(
        mount.place.dir(),
        "cp -a mnt/data copy_of_data; cp -a mnt/many copy; getfattr -d copy | grep -c 'user.' > n; test $(cat n) -gt 5",
    );
    let mount = Mount::fixture("attributes_new");
    shell(
        mount.place.dir(),
        "cp -a mnt/data copy; getfattr -n user.text --only-values copy | grep dich; getfattr -d mnt/data | grep '^user.list=\"\\[1,2,3\\]\"'",
    );
}

#[test]
fn raw_bytes_are_files() {
    for name in ["attributes_old", "attributes_new"] {
        let mount = Mount::fixture(name);
        for (attribute, hex) in entries(&expected::of(name)["raw"]) {
            assert_eq!(mount.read(&format!(".h5dir/attrs/data/{attribute}")), bytes(hex.as_str().unwrap()), "{attribute}");
        }
        // An attribute beside a link of its name.
        assert_eq!(mount.read(".h5dir/attrs/clash/%63hild"), 5i64.to_le_bytes());
        assert!(mount.path(".h5dir/attrs/clash/child").is_dir());
        assert_eq!(mount.names(".h5dir/attrs/many").len(), 50);
        assert_eq!(mount.names(".h5dir/attrs").iter().filter(|n| *n == "data" || *n == "group").count(), 2);
        assert_eq!(mount.read(".h5dir/attrs/u8"), u64::MAX.to_le_bytes(), "of the root group");
    }
}

#[test]
fn only_facts_that_a_copy_needs_are_listed() {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])), (0, String::new()));
    let mount = Mount::start(place, &file, &["--read-write"]);
    let script = "mkdir g; echo text >plain; head -c 100000 /dev/zero >larger; echo typed >typed; setfattr -n user.note -v hello plain
        setfattr -n user.h5dir.dtype -v '>u2' typed
        setfattr -n user.h5dir.attributes -v '[{\"name\":\"n\",\"type\":\"<i4\",\"shape\":[],\"value\":5}]' g";
    let list = "for f in g plain larger typed; do echo $f; getfattr -m - $f | sed 1d; done";
    let want = "g\nuser.h5dir.attributes\nuser.n\n\nplain\nuser.note\n\nlarger\ntyped\nuser.h5dir.dataset\n\n";
    assert_eq!(shell(&mount.place.mnt(), &format!("{script}; {list}")), want);
    for (fact, value) in [("kind", "dataset"), ("dtype", "|u1"), ("shape", "[5]"), ("attributes", "[\n{\"name\":\"note\"")] {
        assert!(mount.xattr("plain", &format!("h5dir.{fact}")).starts_with(value), "{fact}");
    }
}

/// ext4 has 4 KiB for the extended attributes of a file.
#[test]
fn types_and_texts_travel_over_a_disk_with_4_kib_of_attributes() {
    let place = Place::new();
    let (file, copy) = (place.dir().join("a.h5"), place.dir().join("b.h5"));
    let texts: Vec<String> = (0..12).map(|i| format!("d.attrs['text{i}'] = 'an ordinary text of some length, number {i}'")).collect();
    let make = format!(
        "import numpy as np; d = f.create_dataset('d', data=np.arange(6, dtype='>i2').reshape(2, 3), maxshape=(None, 3), compression=4); {}",
        texts.join("; ")
    );
    h5py(&file, "w", &make);
    assert_eq!(run(&mut h5dir(&["create", copy.to_str().unwrap()])), (0, String::new()));
    let (source, target) = (Mount::start(Place::new(), &file, &[]), Mount::start(Place::new(), &copy, &["--read-write"]));
    let path = source.path("d");
    let stored = |name: &String| name.len() + getxattr(&path, name).unwrap().len() + 20;
    assert!(listxattr(&path).iter().map(stored).sum::<usize>() < 4096);
    let script = "cd $1; mkdir disk; rsync -aX $2/ disk/; rsync -aX disk/d $3/";
    let output =
        Command::new("bash").args(["-euc", script, "sh"]).arg(place.dir()).arg(source.place.mnt()).arg(target.place.mnt()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    drop(target);
    let check = "import numpy as np; d = f['d']; assert d.dtype == '>i2' and d.maxshape == (None, 3) and d.compression == 'gzip' and (d[:] == np.arange(6).reshape(2, 3)).all(); assert len(d.attrs) == 12 and all(d.attrs[f'text{i}'] == f'an ordinary text of some length, number {i}' for i in range(12))";
    h5py(&copy, "r", check);
}

#[test]
fn new_attributes_are_variable_length_strings_but_not_in_the_classic_model() {
    let place = Place::new();
    let file = place.dir().join("a.h5");
    h5py(&file, "w", "f.create_group('g')");
    let mount = Mount::start(Place::new(), &file, &["--read-write"]);
    shell(&mount.place.mnt(), "setfattr -n user.by -v 'A. Writer' g");
    drop(mount);
    h5py(
        &file,
        "r+",
        "assert f['g'].attrs['by'] == 'A. Writer' and h5py.check_string_dtype(f['g'].attrs.get_id('by').dtype).length is None; import numpy as np; f.attrs['_nc3_strict'] = np.int32(1)",
    );
    let mount = Mount::start(Place::new(), &file, &["--read-write"]);
    shell(&mount.place.mnt(), "setfattr -n user.also -v 'B. Writer' g");
    drop(mount);
    h5py(&file, "r", "assert h5py.check_string_dtype(f['g'].attrs.get_id('also').dtype).length == 9");
}
