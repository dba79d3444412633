//! What stock HDF5 software says of the files that the sequences leave.

use super::side::Side;
use h5dir::fs::types::{Handle, Ino, ROOT};
use h5dir::fs::{FileKind, OpenMode, Operations};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Files in a folder, each with what the model says is in it.
pub struct Oracle {
    folder: tempfile::TempDir,
    count: usize,
}

impl Oracle {
    pub fn new() -> Oracle {
        Oracle { folder: tempfile::tempdir().unwrap(), count: 0 }
    }

    fn path(&self, kind: &str) -> PathBuf {
        self.folder.path().join(format!("{}.{kind}", self.count))
    }

    /// Keeps a file: `bytes`, made by `what`.
    pub fn keep(&mut self, what: &str, start: &[u8], bytes: &[u8], model: &Side) {
        self.count += 1;
        std::fs::write(self.path("start.h5"), start).unwrap();
        std::fs::write(self.path("h5"), bytes).unwrap();
        let mut list = std::fs::File::create(self.path("list")).unwrap();
        let mut data = std::fs::File::create(self.path("data")).unwrap();
        writeln!(list, "# {}", what.replace('\n', " ")).unwrap();
        directory(model, ROOT, "", &mut list, &mut data);
    }

    /// Lets h5py and h5dump read them all.
    pub fn check(&self) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/model_check.py");
        let output = std::process::Command::new(super::python::with_h5py()).arg(script).arg(self.folder.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{text}");
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A line for each object and attribute: kind, path, and where its bytes end in `data`. Names are link names.
fn directory(model: &Side, dir: Ino, path: &str, list: &mut impl std::io::Write, data: &mut impl std::io::Write) {
    let mut names = Vec::new();
    let listed = model.fs.readdir(dir, Handle(0), 2, &mut |e| {
        names.push(e.name.to_vec());
        ControlFlow::Continue(())
    });
    listed.unwrap();
    attributes(model, dir, path, list);
    for shown in names {
        let Some(name) = h5dir::fs::name::unescape(&shown).map(|n| n.into_owned()) else { continue };
        let attr = model.fs.lookup(dir, &shown).unwrap().attr;
        let below = format!("{path}/{}", hex(&name));
        match attr.kind {
            FileKind::Directory => {
                writeln!(list, "group {below}").unwrap();
                directory(model, attr.ino, &below, list, data);
            }
            FileKind::Symlink => writeln!(list, "link {below}").unwrap(),
            FileKind::Regular => {
                let opened = model.fs.open(attr.ino, OpenMode { read: true, ..OpenMode::default() }).unwrap();
                let mut bytes = vec![0; attr.size as usize];
                model.fs.read(attr.ino, opened.handle, 0, &mut bytes).unwrap();
                model.fs.release(attr.ino, opened.handle);
                data.write_all(&bytes).unwrap();
                writeln!(list, "dataset {below} {}", bytes.len()).unwrap();
                attributes(model, attr.ino, &below, list);
            }
        }
        model.fs.forget(attr.ino, 1);
    }
}

fn attributes(model: &Side, ino: Ino, path: &str, list: &mut impl std::io::Write) {
    for name in model.fs.listxattr(ino).unwrap().split(|b| *b == 0).filter(|n| n.len() > 5 && !n.starts_with(b"user.h5dir.")) {
        let value = model.fs.getxattr(ino, name).unwrap();
        writeln!(list, "attribute {path}/ {} {}.", hex(&name[5..]), hex(&value)).unwrap();
    }
}
