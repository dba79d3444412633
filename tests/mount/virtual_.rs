//! Virtual datasets: sources beside the file, missing ones, none from outside.

use super::expected::{self, bytes, entries};
use super::mounted::Mount;
use super::support::{Place, h5dir, run};
use super::writing::{h5py, shell};
use nix::fcntl::OFlag;
use std::os::unix::fs::{FileExt, symlink};

fn mount(options: &[&str]) -> Mount {
    let place = Place::new();
    let inside = place.dir().join("inside");
    let fixture = expected::folder().join("virtual");
    std::fs::create_dir(&inside).unwrap();
    for name in ["virtual.h5", "one.h5", "two.h5", "series_0.h5", "series_2.h5"] {
        std::fs::copy(fixture.join(name), inside.join(name)).unwrap();
    }
    std::fs::copy(fixture.join("two.h5"), place.dir().join("outside.h5")).unwrap();
    symlink("two.h5", inside.join("symlink.h5")).unwrap();
    let file = inside.join("virtual.h5");
    Mount::start(place, &file, options)
}

#[test]
fn sources_beside_the_file_supply_their_part() {
    let mount = mount(&[]);
    let want = expected::of("virtual/virtual");
    for (path, data) in entries(&want["files"]) {
        assert_eq!(mount.read(path), bytes(data.as_str().unwrap()), "{path}");
        assert_eq!(mount.path(path).metadata().unwrap().len(), mount.read(path).len() as u64);
    }
    for (path, facts) in entries(&want["facts"]) {
        for (fact, text) in entries(facts) {
            assert_eq!(mount.xattr(path, &format!("h5dir.{fact}")), text.as_str().unwrap(), "{path}: {fact}");
        }
    }
}

#[test]
fn a_missing_source_is_eio_on_what_it_would_supply() {
    let mount = mount(&[]);
    for (path, want) in entries(&expected::of("virtual/virtual")["missing"]) {
        assert_eq!(std::fs::read(mount.path(path)).unwrap_err().raw_os_error(), Some(libc::EIO), "{path}");
        let file = nix::fcntl::open(&mount.path(path), OFlag::O_DIRECT, nix::sys::stat::Mode::empty()).unwrap();
        let mut buffer = [0; 8];
        std::fs::File::from(file).read_exact_at(&mut buffer, 0).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(buffer.to_vec(), bytes(want["good"].as_str().unwrap()), "{path}");
    }
}

#[test]
fn a_missing_source_is_fill_where_asked_for_and_none_comes_from_outside() {
    let mount = mount(&["--vds-missing=fill"]);
    for (path, want) in entries(&expected::of("virtual/virtual")["missing"]) {
        assert_eq!(mount.read(path), bytes(want["fill"].as_str().unwrap()), "{path}");
    }
}

#[test]
fn external_off_opens_no_source_but_the_file_itself() {
    let mount = mount(&["--external=off", "--vds-missing=fill"]);
    let want = expected::of("virtual/virtual");
    let complete = bytes(want["files"]["complete"].as_str().unwrap());
    let mut expected = [0xFF; 24].to_vec();
    expected[16..].copy_from_slice(&complete[16..]);
    assert_eq!(mount.read("complete"), expected);
}

/// A file with the virtual dataset `v` of all of `s`, mounted for writing; `v` was read.
fn writable(program: &str, options: &[&str]) -> Mount {
    let place = Place::new();
    let file = place.dir().join("f.h5");
    h5py(&file, "w", program);
    let mount = Mount::start(place, &file, &[&["--read-write"], options].concat());
    mount.read("v");
    mount
}

const FIXED: &str = "import numpy as n; S = h5py.VirtualSource; f['s'] = n.full(20000, 1, 'i4'); f.create_group('g'); \
    l = h5py.VirtualLayout((20000,), 'i4'); l[:] = S(f['s']); f.create_virtual_dataset('v', l, fillvalue=9)";
const DATASET: &str = r#"{"dtype":"<i4","shape":[20000],"layout":"contiguous"}"#;

/// Datasets that take the space which was given back.
fn take_free_space(mount: &Mount) {
    shell(mount, "sync s0 2>/dev/null || sync v");
    for i in 0..4 {
        let fill = "head -c 80000 /dev/zero | tr '\\0' '\\7'";
        shell(
            mount,
            &format!(
                ": >o{i}; setfattr -n user.h5dir.dataset -v '{DATASET}' o{i}; {fill} | dd of=o{i} conv=notrunc status=none; sync o{i}"
            ),
        );
    }
}

/// The values of a dataset of i4, each once.
fn values(mount: &Mount, path: &str) -> Result<Vec<i32>, Option<i32>> {
    let bytes = std::fs::read(mount.path(path)).map_err(|e| e.raw_os_error())?;
    let values: std::collections::BTreeSet<i32> = bytes.chunks_exact(4).map(|v| i32::from_le_bytes(v.try_into().unwrap())).collect();
    Ok(values.into_iter().collect())
}

#[test]
fn a_virtual_dataset_reads_what_the_path_of_its_source_names_now() {
    let chunked = r#"{"layout":"chunked","chunks":[3000]}"#;
    let other = format!(
        ": >n; setfattr -n user.h5dir.dataset -v '{DATASET}' n; head -c 80000 /dev/zero | tr '\\0' '\\3' | dd of=n conv=notrunc status=none"
    );
    let threes = 0x0303_0303;
    let ways = [
        ("rm s".to_owned(), None),
        ("mv s s0".to_owned(), None),
        (format!("{other}; mv n s"), Some(threes)),
        (format!("mv s s0; {other}; ln n s; rm n"), Some(threes)),
        ("mv s g/s; ln -s g/s s".to_owned(), Some(1)),
        (format!("setfattr -n user.h5dir.dataset -v '{chunked}' s"), Some(1)),
    ];
    for (way, want) in ways {
        for policy in ["error", "fill"] {
            let mount = writable(FIXED, &[&format!("--vds-missing={policy}")]);
            assert_eq!(values(&mount, "v"), Ok(vec![1]));
            shell(&mount, &way);
            take_free_space(&mount);
            let want = match want {
                Some(n) => Ok(vec![n]),
                None if policy == "fill" => Ok(vec![9]),
                None => Err(Some(libc::EIO)),
            };
            assert_eq!(values(&mount, "v"), want, "{way}, {policy}: {}", mount.log());
            // What was missing is found again.
            if want.as_ref().is_ok_and(|w| *w != [9]) {
                continue;
            }
            shell(&mount, &format!("{other}; mv n s"));
            assert_eq!(values(&mount, "v"), Ok(vec![threes]), "{way}, {policy}");
        }
    }
}

#[test]
fn a_virtual_dataset_of_another_file_and_one_of_a_virtual_dataset_follow_their_source() {
    let program = format!(
        "{FIXED}; l = h5py.VirtualLayout((20000,), 'i4'); l[:] = S(f['v']); f.create_virtual_dataset('w', l)
    with h5py.File(sys.argv[1] + '.other', 'w') as o:
        l = h5py.VirtualLayout((20000,), 'i4'); l[:] = S('f.h5', 's', (20000,), 'i4'); o.create_virtual_dataset('v', l)
    f['x'] = h5py.ExternalLink('f.h5.other', '/v')"
    );
    let mount = writable(&program, &[]);
    let open = std::fs::File::open(mount.path("x")).unwrap();
    assert_eq!((values(&mount, "w"), values(&mount, "x")), (Ok(vec![1]), Ok(vec![1])));
    shell(&mount, &format!("setfattr -n user.h5dir.dataset -v '{}' s", r#"{"layout":"chunked","chunks":[3000]}"#));
    take_free_space(&mount);
    assert_eq!((values(&mount, "w"), values(&mount, "x")), (Ok(vec![1]), Ok(vec![1])));
    shell(&mount, "rm s");
    assert_eq!((values(&mount, "w"), values(&mount, "x")), (Err(Some(libc::EIO)), Err(Some(libc::EIO))));
    assert!(open.read_at(&mut [0; 4], 0).is_err());
}

#[test]
fn an_unlimited_virtual_dataset_is_as_long_as_its_source() {
    let program = "import numpy as n; U = h5py.h5s.UNLIMITED; k = dict(chunks=(4,), maxshape=(None,)); \
        f.create_dataset('s', data=n.arange(5, dtype='i4'), **k); f.create_dataset('p0', data=n.full(2, 7, 'i4')); \
        l = h5py.VirtualLayout((5,), 'i4', maxshape=(None,)); S = h5py.VirtualSource('.', 's', (5,), 'i4', maxshape=(None,)); \
        l[0:U:1] = S[0:U:1]; f.create_virtual_dataset('v', l)";
    let mount = writable(program, &["--attr-timeout=0"]);
    let size = || mount.path("v").metadata().unwrap().len();
    let numbers = |r: std::ops::Range<i32>| r.flat_map(i32::to_le_bytes).collect::<Vec<_>>();
    assert_eq!((size(), mount.read("v")), (20, numbers(0..5)));
    let open = std::fs::File::open(mount.path("v")).unwrap();
    let mut end = std::fs::OpenOptions::new().append(true).open(mount.path("s")).unwrap();
    std::io::Write::write_all(&mut end, &numbers(5..9)).unwrap();
    assert_eq!((size(), mount.read("v")), (36, numbers(0..9)));
    assert_eq!(open.metadata().unwrap().len(), 36);
    assert_eq!(mount.xattr("v", "h5dir.shape"), "[9]");
    end.set_len(8).unwrap();
    assert_eq!((size(), mount.read("v")), (8, numbers(0..2)));
    drop((end, open));
    shell(&mount, "mv s t");
    assert_eq!((size(), mount.read("v")), (0, Vec::new()));
    shell(&mount, "mv p0 s");
    assert_eq!((size(), mount.read("v")), (8, [7, 0, 0, 0].repeat(2)));
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    assert_eq!(h5py(&mount.place.dir().join("f.h5"), "r", "print(f['v'][:])"), "[7 7]\n");
}
