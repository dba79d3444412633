//! The file system over the in-memory reference model: random link graphs, walked as the kernel
//! would, must show exactly what the model holds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use h5dir::connector::memory::{MemoryConnector, MemoryObject};
use h5dir::connector::{Connector, LinkTarget, ObjectId};
use h5dir::fs::container::{Backing, ContainerFs};
use h5dir::fs::types::{Handle, Ino, ROOT};
use h5dir::fs::{Attr, FileKind, MountSpec, OpenMode, Operations};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

fn file_system(connector: Arc<MemoryConnector>) -> ContainerFs {
    let t = SystemTime::UNIX_EPOCH;
    let spec = MountSpec { cache_bytes: 1 << 20, ..MountSpec::new("model.h5") };
    let root = connector.root();
    ContainerFs::new(connector, root, Vec::new(), Backing { atime: t, mtime: t, ctime: t, len: 0 }, spec)
}

fn names(fs: &ContainerFs, dir: Ino, per_call: usize) -> Vec<(Vec<u8>, Ino, FileKind)> {
    let (mut out, mut offset) = (Vec::new(), 0);
    loop {
        let mut n = 0;
        let mut last = offset;
        fs.readdir(dir, Handle(0), offset, &mut |e| {
            if n == per_call {
                return ControlFlow::Break(());
            }
            n += 1;
            last = e.next;
            if !matches!(e.name, b"." | b"..") {
                out.push((e.name.to_vec(), e.ino, e.kind));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        if n == 0 {
            return out;
        }
        offset = last;
    }
}

fn read_all(fs: &ContainerFs, attr: &Attr) -> Vec<u8> {
    let opened = fs.open(attr.ino, OpenMode { read: true, ..OpenMode::default() }).unwrap();
    let mut bytes = vec![0; attr.size as usize + 10];
    let n = fs.read(attr.ino, opened.handle, 0, &mut bytes).unwrap();
    fs.release(attr.ino, opened.handle);
    bytes.truncate(n);
    bytes
}

struct Walk<'a> {
    fs: &'a ContainerFs,
    model: &'a MemoryConnector,
    /// Inode numbers of datasets by object: hard links share them.
    inodes: BTreeMap<ObjectId, Ino>,
    directories: BTreeSet<Ino>,
}

impl Walk<'_> {
    fn directory(&mut self, ino: Ino, path: &mut Vec<(ObjectId, Ino)>) {
        let group = path.last().unwrap().0;
        let mut want = BTreeMap::new();
        self.model
            .list(group, 0, &mut |l, _| {
                want.insert(l.name, l.target);
                ControlFlow::Continue(())
            })
            .unwrap();
        let listed = names(self.fs, ino, 3);
        assert_eq!(listed, names(self.fs, ino, 1000), "a listing in slices is the listing");
        let shown: BTreeSet<_> = listed.iter().map(|(n, ..)| n.clone()).collect();
        let expected: BTreeSet<_> = want.keys().map(|n| h5dir::fs::name::file_name(n).into_owned()).collect();
        assert_eq!(shown, expected);
        assert_eq!(shown.len(), listed.len(), "no name twice");
        for (name, listed_ino, kind) in listed {
            let entry = self.fs.lookup(ino, &name).unwrap();
            assert_eq!((entry.attr.ino, entry.attr.kind), (listed_ino, kind), "readdir and lookup agree");
            let target = &want[&h5dir::fs::name::unescape(&name).unwrap().into_owned()];
            self.child(&entry.attr, target, path);
            self.fs.forget(entry.attr.ino, 1);
        }
    }

    fn child(&mut self, attr: &Attr, target: &LinkTarget, path: &mut Vec<(ObjectId, Ino)>) {
        match target {
            LinkTarget::Hard(id) if self.model.content(*id, h5dir::connector::Form::Main).is_ok() => {
                let content = self.model.content(*id, h5dir::connector::Form::Main).unwrap();
                let mut want = vec![0; content.size().unwrap() as usize];
                content.read(0, &mut want).unwrap();
                assert_eq!(attr.size, want.len() as u64);
                assert_eq!(read_all(self.fs, attr), want);
                assert_eq!(*self.inodes.entry(*id).or_insert(attr.ino), attr.ino);
                assert_eq!(attr.nlink, self.model.info(*id).unwrap().links);
            }
            LinkTarget::Hard(id) => match path.iter().rposition(|(p, _)| p == id) {
                Some(at) => {
                    let up = path.len() - 1 - at;
                    let want = if up == 0 { b".".to_vec() } else { vec![&b".."[..]; up].join(&b'/') };
                    assert_eq!(self.fs.readlink(attr.ino).unwrap(), want);
                }
                None => {
                    assert_eq!(attr.kind, FileKind::Directory);
                    assert!(self.directories.insert(attr.ino), "each directory has a number of its own");
                    path.push((*id, attr.ino));
                    self.directory(attr.ino, path);
                    path.pop();
                }
            },
            LinkTarget::Soft(_) => {
                let link = self.fs.readlink(attr.ino).unwrap();
                let ups = link.split(|b| *b == b'/').take_while(|c| *c == b"..").count();
                assert!(ups < path.len(), "no target leaves the mount");
                assert!(!link.split(|b| *b == b'/').skip(ups).any(|c| c == b".."));
            }
            LinkTarget::External { .. } | LinkTarget::UserDefined(_) => {
                assert!(!self.fs.readlink(attr.ino).unwrap().contains(&b'/'));
            }
        }
    }
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => "[a-c]{1,2}".prop_map(String::into_bytes),
        1 => Just(b"..".to_vec()), 1 => Just(b"a/b".to_vec()), 1 => Just(vec![0xff, b'%', b'2', b'F']), 1 => Just(b"\n".to_vec()),
    ]
}

fn target(objects: u64) -> impl Strategy<Value = LinkTarget> {
    prop_oneof![
        6 => (0..objects).prop_map(|n| LinkTarget::Hard(MemoryConnector::id(n))),
        2 => "/?([a-c.]{1,2}/?){0,4}".prop_map(|s| LinkTarget::Soft(s.into_bytes())),
        1 => Just(LinkTarget::External { file: b"../x.h5".to_vec(), object: b"/a".to_vec() }),
        1 => Just(LinkTarget::UserDefined(70)),
    ]
}

fn container() -> impl Strategy<Value = Vec<MemoryObject>> {
    (1u64..5, 0u64..4).prop_flat_map(|(groups, datasets)| {
        let n = groups + datasets;
        let group = prop::collection::btree_map(name(), target(n), 0..4)
            .prop_map(|links| MemoryObject { links: Some(links), ..MemoryObject::default() });
        let dataset = prop::collection::vec(any::<u8>(), 0..40).prop_map(|b| MemoryObject { bytes: Some(b), ..MemoryObject::default() });
        (prop::collection::vec(group, groups as usize), prop::collection::vec(dataset, datasets as usize)).prop_map(|(mut g, d)| {
            g.extend(d);
            g
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_link_graph_is_shown_as_the_model_has_it(objects in container()) {
        let model = Arc::new(MemoryConnector::new(objects).unwrap());
        let fs = file_system(model.clone());
        let mut walk = Walk { fs: &fs, model: &model, inodes: BTreeMap::new(), directories: BTreeSet::new() };
        walk.directory(ROOT, &mut vec![(model.root(), ROOT)]);
    }
}

#[test]
fn attributes_and_the_control_directory() {
    let attributes = BTreeMap::from([(b"units".to_vec(), b"K".to_vec().into()), (b"h5dir.kind".to_vec(), b"mine".to_vec().into())]);
    let root = MemoryObject { links: Some(BTreeMap::new()), attributes, ..MemoryObject::default() };
    let fs = file_system(Arc::new(MemoryConnector::new(vec![root]).unwrap()));
    assert_eq!(fs.listxattr(ROOT).unwrap(), b"user.h5dir.attributes\0user.%685dir.kind\0user.units\0");
    assert_eq!(fs.getxattr(ROOT, b"user.units").unwrap(), b"K");
    assert_eq!(fs.getxattr(ROOT, b"user.%685dir.kind").unwrap(), b"mine");
    assert_eq!(fs.getxattr(ROOT, b"user.h5dir.kind").unwrap(), b"group");
    assert_eq!(fs.getxattr(ROOT, b"user.absent").unwrap_err().0, libc::ENODATA);
    assert_eq!(fs.getxattr(ROOT, b"security.capability").unwrap_err().0, libc::EOPNOTSUPP);
    assert!(names(&fs, ROOT, 100).is_empty(), ".h5dir is not listed");
    let control = fs.lookup(ROOT, b".h5dir").unwrap().attr.ino;
    let shown: Vec<_> = names(&fs, control, 2).into_iter().map(|(n, ..)| n).collect();
    assert_eq!(
        shown,
        [
            &b"README"[..],
            b"arrow",
            b"attrs",
            b"chunks",
            b"csv",
            b"defined",
            b"exact",
            b"images",
            b"json",
            b"jsonl",
            b"log",
            b"metrics",
            b"npy",
            b"status",
            b"text",
            b"tsv",
            b"zarr",
            b"zarr2"
        ]
    );
}
