//! Checks of changed files by libhdf5, through h5py.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory for one test, removed at its end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("h5dir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command of tests/fixtures/edit/make_old_edit.py; returns what it prints.
pub fn python(arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/edit/make_old_edit.py");
    let output = Command::new(crate::python::with_h5py()).arg(script).args(arguments).env("PYTHONHASHSEED", "1").output();
    let output = output.expect("Python with h5py is needed: set PYTHON");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Replaces every `old` in `bytes`; at least one must exist.
pub fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    let at: Vec<usize> = (0..bytes.len()).filter(|&i| bytes[i..].starts_with(old)).collect();
    assert!(!at.is_empty());
    at.iter().for_each(|&i| bytes[i..i + new.len()].copy_from_slice(new));
}

/// Pseudorandom numbers, equal in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}
