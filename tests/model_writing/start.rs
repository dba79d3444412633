//! What a sequence begins with: a file, and the same in the model.

use super::operations::Op;
use super::side::Kept;
use h5dir::connector::memory::{Grid, MemoryConnector, MemoryObject, Rows};
use h5dir::connector::native::external::Neighbours;
use h5dir::connector::native::{NativeConnector, Options, create};
use h5dir::connector::{Connector, Form, LinkTarget, ObjectId, ObjectKind};
use h5dir::dataset::environment::Environment;
use h5dir::dataset::layout::virtual_::MissingPolicy;
use h5dir::file::memory::GrowingFile;
use h5dir::present;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

/// Files to begin with, and what is removed from them first: what is lossy, too large, or not written.
pub const STARTS: [(&str, &[&str]); 36] = [
    ("new", &[]),
    ("new earliest", &[]),
    ("attrs_earliest", &[]),
    ("attrs_v108", &[]),
    ("attrs_v110", &[]),
    ("attrs_latest", &[]),
    ("chunks_earliest", &[]),
    ("chunks_v110", &[]),
    ("chunks_latest", &[]),
    ("chunks2_earliest", &["none"]),
    ("chunks2_v108", &["none"]),
    ("chunks2_latest", &["none"]),
    ("filters_earliest", &["scale_f", "nbit"]),
    ("filters_latest", &["scale_f", "nbit"]),
    ("groups_earliest", &[]),
    ("groups_v108", &[]),
    ("groups_latest", &[]),
    ("layouts_latest", &["external"]),
    ("userblock_earliest", &[]),
    ("userblock_latest", &[]),
    ("image_v110", &[]),
    ("paged_latest", &[]),
    ("shared_earliest", &[]),
    ("shared_latest", &[]),
    ("persist", &[]),
    ("pages", &[]),
    ("pages_forget", &[]),
    ("pages_image", &[]),
    ("none", &[]),
    ("netcdf3", &[]),
    ("netcdf4", &[]),
    ("sparse_v110", &[]),
    ("log_v110", &[]),
    ("log_earliest", &[]),
    ("log_tail_v110", &[]),
    (UNREADABLE, &[]),
];

/// Holds structured chunks, which no released libhdf5 opens.
pub const UNREADABLE: &str = "structured_v110";

/// Cache of few chunks.
pub fn options() -> Options {
    static POOL: OnceLock<Arc<Environment>> = OnceLock::new();
    let pool = POOL.get_or_init(|| Arc::new(Environment::new(1 << 16, 0, 2).unwrap())).pool.clone();
    Options {
        environment: Arc::new(Environment::with_pool(1 << 16, 0, pool)),
        neighbours: Arc::new(Neighbours::new(None)),
        missing: MissingPolicy::Fill,
        rescue: false,
        log: Default::default(),
    }
}

/// The file `name` to begin with.
pub fn file(name: &str) -> Vec<u8> {
    let Some(generation) = name.strip_prefix("new") else {
        let path = |file: &str| format!("{}/tests/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
        let folders = ["mutants/", "space/", "netcdf/"].iter().zip([".h5", ".h5", ".nc"]);
        return folders.map(|(folder, end)| path(&format!("{folder}{name}{end}"))).find_map(|p| std::fs::read(p).ok()).unwrap();
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.h5");
    create(&path, &h5dir::connector::new_file::NewFile::of_version(!generation.is_empty())).unwrap();
    std::fs::read(path).unwrap()
}

/// The file without `removed`, and the same as a model.
pub fn both(name: &str) -> (Vec<u8>, MemoryConnector) {
    let removed = STARTS.iter().find(|(n, _)| *n == name).unwrap().1;
    let file = Arc::new(GrowingFile::new(file(name)));
    let native = super::side::connect(&file, &Kept::default());
    let edit = Connector::edit(&*native).unwrap();
    for name in removed {
        edit.unlink(native.root(), name.as_bytes(), false).unwrap();
    }
    let model = copy(&native);
    edit.close().unwrap();
    (file.bytes(), model)
}

fn copy(native: &NativeConnector) -> MemoryConnector {
    let mut numbers = BTreeMap::from([(native.root(), 0)]);
    let mut pending = vec![native.root()];
    let mut objects = BTreeMap::new();
    while let Some(id) = pending.pop() {
        let number = numbers[&id];
        let links = (native.info(id).unwrap().kind == ObjectKind::Group).then(|| {
            let mut links = BTreeMap::new();
            native
                .list(id, 0, &mut |link, _| {
                    let target = match link.target {
                        LinkTarget::Hard(to) => {
                            let next = numbers.len() as u64;
                            let number = *numbers.entry(to).or_insert_with(|| {
                                pending.push(to);
                                next
                            });
                            LinkTarget::Hard(MemoryConnector::id(number))
                        }
                        other => other,
                    };
                    links.insert(link.name, target);
                    ControlFlow::Continue(())
                })
                .unwrap();
            links
        });
        objects.insert(number, MemoryObject { links, ..object(native, id) });
    }
    MemoryConnector::writable(objects.into_values().collect()).unwrap()
}

fn object(native: &NativeConnector, id: ObjectId) -> MemoryObject {
    let info = native.info(id).unwrap();
    let text = |name: &Vec<u8>| present::attribute_text(native, id, name).unwrap().unwrap().into();
    let attributes = native.attributes(id).unwrap().iter().map(|n| (n.clone(), text(n))).collect();
    let mut object = MemoryObject { attributes, mtime: info.times[1], ..MemoryObject::default() };
    if info.kind == ObjectKind::Dataset {
        let content = native.content(id, Form::Main).unwrap();
        let mut bytes = vec![0; content.size().unwrap() as usize];
        assert_eq!(content.read(0, &mut bytes).unwrap(), bytes.len());
        object.bytes = Some(bytes);
        let d = native.access().dataset(id).unwrap().dataset.clone();
        let row = d.space.dims.iter().skip(1).product::<u64>() * d.element_size;
        if d.layout().resizes() {
            object.rows = Some(Rows { bytes: row, max: d.space.max()[0] });
        }
        if !d.datatype.contains_vlen() {
            let max = d.space.max().into_iter().map(|max| max.unwrap_or(u64::MAX)).collect();
            object.grid = Some(Grid { dims: d.space.dims.clone(), max });
            object.datatype = Some(d.datatype.clone());
        }
        object.fill = vec![0; d.element_size as usize];
        d.bytes.fill.fill(0, &mut object.fill);
    }
    object
}

/// True if `op` has the result of the model in a file made from `start`: space in a log is not allocated beforehand.
pub fn allows(start: &str, op: &Op) -> bool {
    let reserves = |mode: i32| mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) == 0;
    !start.starts_with("log") || !matches!(op, Op::Allocate(_, _, _, mode) if reserves(*mode))
}
