//! Writing below `.h5dir`, and the rules for new files: real mounts, and what h5py finds then.

use super::mounted::Mount;
use super::support::{Place, eventually, h5dir, is_mounted, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn python() -> String {
    let venv = concat!(env!("CARGO_MANIFEST_DIR"), "/.venv/bin/python");
    let found = std::env::var("PYTHON").ok().or_else(|| Path::new(venv).exists().then(|| venv.into()));
    found.unwrap_or_else(|| "/opt/venv/bin/python".into())
}

/// Runs a Python program with the arguments; the mount's log is shown when it fails.
fn run_python(program: &str, path: &Path, log: &dyn Fn() -> String) {
    let program = format!("import sys, os, h5py, numpy as np\nP = sys.argv[1]\n{program}");
    let output = Command::new("timeout").arg("60").arg(python()).args(["-c", &program]).arg(path).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}\nlog: {}", String::from_utf8_lossy(&output.stderr), log());
}

fn h5py(file: &Path, program: &str) {
    run_python(&format!("with h5py.File(P, 'r+') as f:\n{program}\n"), file, &String::new);
}

/// What a script says, in the mount.
fn shell(mount: &Mount, script: &str) -> String {
    let mut command = Command::new("timeout");
    command.args(["60", "bash", "-uo", "pipefail", "-c", script]).current_dir(mount.place.mnt()).stdin(Stdio::null());
    let output = command.output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn empty(libver: &str, options: &[&str]) -> (Mount, PathBuf) {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", "--libver", libver, file.to_str().unwrap()])), (0, String::new()));
    (Mount::start(place, &file, &[&["--read-write"], options].concat()), file)
}

fn unmount(mount: &Mount) {
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()), "{}", mount.log());
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
             printf z >deep/n.other; stat -c %s fixed 2>/dev/null; touch fixed; stat -c %s fixed; printf ab >fixed; printf %041d 1 1<>fixed",
            source.display()
        );
        let said = shell(&mount, &script);
        assert_eq!(said, "800\n40\nbash: line 3: printf: write error: File too large\n", "{}", mount.log());
        unmount(&mount);
        h5py(
            &file,
            "    d, n, x = f['data.f8'], f['deep/a/b/n.txt'], f['fixed']
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
    assert!(code == 2 && message.contains("h5dir.yaml") && message.contains("chunk") && message.contains("line 4 column 5"), "{code} {message}");
    assert!(!is_mounted(&place.mnt()));
}
