//! Real mounts of the in-memory model: what each view shows of it.

use crate::support::InProcess;
use h5dir::connector::memory::{MemoryConnector, MemoryObject};
use h5dir::connector::{Connector, LinkTarget, MemoryValue};
use h5dir::fs::MountSpec;
use h5dir::fs::container::{Backing, ContainerFs};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

fn hard(number: u64) -> LinkTarget {
    LinkTarget::Hard(MemoryConnector::id(number))
}

fn group(links: &[(&str, LinkTarget)], attributes: &[(&str, &str)]) -> MemoryObject {
    let links = links.iter().map(|(name, target)| (name.as_bytes().to_vec(), target.clone())).collect();
    MemoryObject { links: Some(links), attributes: texts(attributes), ..MemoryObject::default() }
}

fn texts(attributes: &[(&str, &str)]) -> BTreeMap<Vec<u8>, MemoryValue> {
    attributes.iter().map(|(name, text)| (name.as_bytes().to_vec(), text.as_bytes().to_vec().into())).collect()
}

/// Root with the dataset `data`, the group `g`, soft links and an object of unknown kind; `g` holds
/// `data` again and leads up.
fn mounted(writable: bool) -> InProcess {
    let soft = |path: &str| LinkTarget::Soft(path.into());
    let objects = vec![
        group(
            &[("data", hard(1)), ("g", hard(2)), ("soft", soft("/g/again")), ("nowhere", soft("x")), ("odd", hard(3))],
            &[("data", "of root")],
        ),
        MemoryObject {
            bytes: Some(b"0123456789".to_vec()),
            attributes: texts(&[("units", "m"), ("note", "n")]),
            ..MemoryObject::default()
        },
        group(&[("again", hard(1)), ("up", hard(0))], &[]),
        MemoryObject::default(),
    ];
    let model = if writable { MemoryConnector::writable(objects) } else { MemoryConnector::new(objects) };
    let model = Arc::new(model.unwrap());
    let t = SystemTime::UNIX_EPOCH;
    let spec = if writable { MountSpec::writable("model.h5") } else { MountSpec::new("model.h5") };
    let root = model.root();
    let fs = ContainerFs::new(model, root, Vec::new(), Backing { atime: t, mtime: t, ctime: t, len: 0 }, spec);
    InProcess::with(fs, |c| c.read_only = !writable)
}

/// The files below `directory`, as `path size` or `path -> target`, sorted.
fn tree(directory: &Path) -> Vec<String> {
    fn walk(directory: &Path, prefix: &str, out: &mut Vec<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), format!("{prefix}{}", entry.file_name().to_string_lossy()));
            let metadata = fs::symlink_metadata(&path).unwrap();
            assert_eq!(metadata.ino(), std::os::unix::fs::DirEntryExt::ino(&entry), "{name}");
            if metadata.is_dir() {
                out.push(format!("{name}/"));
                walk(&path, &format!("{name}/"), out);
            } else if metadata.is_symlink() {
                out.push(format!("{name} -> {}", fs::read_link(&path).unwrap().display()));
            } else {
                out.push(format!("{name} {}", metadata.len()));
            }
        }
    }
    let mut out = Vec::new();
    walk(directory, "", &mut out);
    out.sort();
    out
}

#[test]
fn each_view_shows_the_model() {
    for writable in [false, true] {
        let mount = mounted(writable);
        let view = |name: &str| tree(&mount.path(".h5dir").join(name));
        let main = ["data 10", "g/", "g/again 10", "g/up -> ..", "nowhere -> x", "odd 0", "soft -> ./g/again"];
        assert_eq!(tree(&mount.place.mnt()), main);
        assert_eq!(view("exact"), ["data 10", "g/", "g/again 10", "g/up -> ..", "odd 0", "soft 10"]);
        let npy = ["data.npy 138", "g/", "g/again.npy 138", "g/up -> ..", "odd 0", "soft.npy 138"];
        assert_eq!(view("npy"), npy);
        assert_eq!(view("chunks"), ["data/", "g/", "g/again/", "g/up -> ..", "odd 0", "soft/"], "the model has no chunks");
        let attributes = |name: &str| [format!("{name}/"), format!("{name}/note 1"), format!("{name}/units 1")];
        let mut attrs: Vec<String> = ["data", "g/again", "soft"].iter().flat_map(|name| attributes(name)).collect();
        // A link of the same name comes first.
        attrs.extend(["%64ata 7".into(), "g/".into(), "g/up -> ..".into(), "odd/".into()]);
        attrs.sort();
        assert_eq!(view("attrs"), attrs);
        let json = [".json 0", "data.json 0", "g.json 0", "g/", "g/again.json 0", "g/up -> ..", "odd.json 0", "soft.json 0"];
        assert_eq!(view("json"), json);
        let text = fs::read_to_string(mount.path(".h5dir/json/data.json")).unwrap();
        assert!(text.contains("\"value\":[48,49,50,51,52,53,54,55,56,57]") && text.contains("H5T_STD_U8LE"), "{text}");
        for path in ["data", "g/again", "soft", ".h5dir/exact/data", ".h5dir/exact/soft"] {
            assert_eq!(fs::read(mount.path(path)).unwrap(), b"0123456789", "{path}");
        }
        assert_eq!(fs::read(mount.path(".h5dir/attrs/%64ata")).unwrap(), b"of root");
        let status = fs::read_to_string(mount.path(".h5dir/status")).unwrap();
        assert!(status.starts_with("version ") && status.contains("\nfile model.h5\n") && status.contains("\nopen_files "), "{status}");
        let writes = |path: &str| fs::symlink_metadata(mount.path(path)).unwrap().mode() & 0o222 != 0;
        for path in ["data", "g", ".h5dir/exact/data", ".h5dir/attrs", ".h5dir/attrs/data/units", ".h5dir/npy/g"] {
            assert!(writes(path), "{path}");
        }
        for path in [".h5dir", ".h5dir/exact/g", ".h5dir/chunks/data", ".h5dir/json/data.json", ".h5dir/json/g", ".h5dir/status"] {
            assert!(!writes(path), "{path}");
        }
    }
}
