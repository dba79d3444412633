//! System calls on the file and its journal that are interrupted, or do less than was asked for: nobody notices.

use super::mounted::{Mount, shell};
use super::support::{Place, eventually, h5dir, is_mounted, run};
use super::writing::h5py;
use std::path::{Path, PathBuf};
use std::process::Command;

const KINDS: [&str; 6] = ["pread", "pwrite", "fdatasync", "fsync", "ftruncate", "fallocate"];

/// `interrupted.c`, built.
fn library(place: &Place) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/interrupted.c");
    let library = place.dir().join("interrupted.so");
    let built = Command::new("cc").args(["-O1", "-Wall", "-shared", "-fPIC", "-o"]).arg(&library).args([source, "-ldl"]).status().unwrap();
    assert!(built.success());
    library
}

/// A command whose calls are interrupted; `told` gets a line for each.
fn interrupted(args: &[&str], library: &Path, told: &Path) -> Command {
    let mut command = h5dir(args);
    command.env("LD_PRELOAD", library).env("INTERRUPTED", told);
    command
}

/// How many calls were interrupted, made again, and cut short.
fn counts(told: &Path, kind: &str) -> [usize; 3] {
    let told = std::fs::read_to_string(told).unwrap();
    ["EINTR", "again", "short"].map(|what| told.lines().filter(|l| *l == format!("{kind} {what}")).count())
}

const WORK: &str = r#"
    head -c 300000 /dev/urandom >../source
    cp ../source copy; cat ../source >>copy
    head -c 5000 ../source | dd of=copy bs=5000 seek=3 conv=notrunc,fsync status=none
    truncate -s 450000 copy
    cp copy gone; sync gone; rm gone
    mkdir g; cp ../source g/packed
    setfattr -n user.h5dir.dataset -v '{"dtype": "<u2", "shape": [150000], "chunks": [1000], "filters": ["shuffle", "deflate"]}' g/packed
    setfattr -n user.note -v kept copy
    for i in $(seq 12); do echo $i >g/n$i; sync g/n$i; done
    cp copy ../copy; cmp g/packed ../source; cat g/n* >../numbers
"#;

const LOOK: &str = r#"
    cmp copy ../copy; cmp g/packed ../source; cat g/n* | cmp - ../numbers; [ "$(getfattr --only-values -n user.note copy)" = kept ]
"#;

#[test]
fn interrupted_and_short_calls_change_nothing() {
    let place = Place::new();
    let (library, told, file) = (library(&place), place.dir().join("told"), place.dir().join("new.h5"));
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    let mount = Mount::start_by(interrupted(&["mount", "-f"], &library, &told), place, &file, &["--read-write"]);
    shell(&mount.place.mnt(), WORK);
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()), "{}", mount.log());
    eventually("it is unmounted", || !is_mounted(&mount.place.mnt()));
    assert!(!mount.place.dir().join("new.h5.h5dir-journal").exists());
    let wanted = |name: &str| format!("open('{}', 'rb').read()", mount.place.dir().join(name).display());
    let program = format!("print(f['copy'][()].tobytes() == {}, f['g/packed'][()].tobytes() == {})", wanted("copy"), wanted("source"));
    assert_eq!(h5py(&file, "r", &program), "True True\n");
    assert!(!mount.log().contains("ERROR"), "{}", mount.log());
    for kind in KINDS {
        let [missed, again, short] = counts(&told, kind);
        println!("{kind}: {missed} interrupted, {again} of these made again, {short} short");
        // A sync above all: to take an interrupted one for done loses what it acknowledges.
        assert!(missed > 0 && again == missed, "{kind}: {missed} were interrupted, {again} made again");
        assert!(short > 0 || !kind.starts_with('p'), "{kind}: none was short");
    }

    // A mount that only reads. Confined, it could not write what the library counts.
    std::fs::remove_file(&told).unwrap();
    let reading = Mount::start_by(interrupted(&["mount", "-f", "--no-sandbox"], &library, &told), Place::new(), &file, &[]);
    shell(&reading.place.mnt(), &LOOK.replace("../", &format!("{}/", mount.place.dir().display())));
    let [missed, again, short] = counts(&told, "pread");
    assert!(missed > 0 && again == missed && short > 0);
}

#[test]
fn recovery_survives_interrupted_calls() {
    let place = Place::new();
    let (library, told, file) = (library(&place), place.dir().join("told"), place.dir().join("new.h5"));
    assert_eq!(run(&mut h5dir(&["create", "--libver", "earliest", file.to_str().unwrap()])).0, 0);
    let mut mount = Mount::start_by(interrupted(&["mount", "-f"], &library, &told), place, &file, &["--read-write"]);
    shell(&mount.place.mnt(), WORK);
    shell(&mount.place.mnt(), "sync copy; dd if=/dev/zero of=copy bs=1000 seek=5 count=90 conv=notrunc status=none; mkdir lost");
    mount.daemon().kill().unwrap();
    mount.daemon().wait().unwrap();
    assert_eq!(run(h5dir(&["umount", "--lazy"]).arg(mount.place.mnt())), (0, String::new()));
    let recovered = run(&mut interrupted(&["recover", file.to_str().unwrap()], &library, &told));
    assert_eq!(recovered.0, 0, "{}", recovered.1);
    let wanted = mount.place.dir().join("source");
    assert_eq!(h5py(&file, "r", &format!("print(f['g/packed'][()].tobytes() == open('{}', 'rb').read())", wanted.display())), "True\n");
}
