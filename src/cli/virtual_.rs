//! `h5dir virtual`: makes a virtual dataset of datasets of the same type, one after another along
//! an axis, or each at a coordinate of a new one.

use super::failure::{Exit, Failure, reason};
use super::side::argument::Argument;
use super::side::container::{Container, Held, ObjectSource};
use super::side::opened;
use super::tree;
use crate::base::escape::{escaped, escaped_bytes};
use crate::base::remote::{is_container, is_url};
use crate::config::resolve;
use crate::config::side_args::VirtualArgs;
use crate::fs::model::{Definition, HyperslabDim, SourceMapping, io_error};
use crate::fs::{Creator, MountSpec, NewFile, open};
use alphanumeric_sort::compare_str;
use pathdiff::diff_paths;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Mode of the new dataset, before the umask.
const MODE: u32 = 0o666;

/// A dataset: its file, and the path in it.
struct DatasetPath {
    file: PathBuf,
    path: Vec<u8>,
}

impl DatasetPath {
    fn text(&self) -> String {
        escaped_bytes(&[self.file.as_os_str().as_bytes(), b":", &self.path].concat()).to_string()
    }
}

fn usage(reason: String) -> Failure {
    Failure::new(Exit::Usage, reason)
}

/// The file and the path that `text` names.
fn place(text: &OsStr) -> Result<DatasetPath, Failure> {
    match Argument::parse(text) {
        Argument::Object { file, path } if !is_url(&file) && !is_container(&file) => Ok(DatasetPath { file, path }),
        _ => Err(usage(format!("{} is no object of an HDF5 file of this machine; write FILE:/PATH", escaped_bytes(text.as_bytes())))),
    }
}

/// The sources that `text` stands for: `*`, `?` and `[...]` in the name of the file are a pattern.
fn expanded(text: &OsStr) -> Result<Vec<DatasetPath>, Failure> {
    let DatasetPath { file, path } = place(text)?;
    let is_pattern = file.as_os_str().as_bytes().iter().any(|c| matches!(c, b'*' | b'?' | b'['));
    if file.exists() || !is_pattern {
        return Ok(vec![DatasetPath { file, path }]);
    }
    let shown = escaped(&file).to_string();
    let pattern = file.to_str().ok_or_else(|| usage(format!("{shown}: a pattern is UTF-8")))?;
    let found = glob::glob(pattern).map_err(|e| usage(format!("{shown} is no pattern: {}", e.msg)))?;
    let mut files: Vec<PathBuf> = found.filter_map(Result::ok).collect();
    if files.is_empty() {
        return Err(Failure::new(Exit::Path, format!("no file matches {shown}")));
    }
    // As people count: `run_2` before `run_10`.
    files.sort_by(|a, b| compare_str(a.to_string_lossy(), b.to_string_lossy()));
    Ok(files.into_iter().map(|file| DatasetPath { file, path: path.clone() }).collect())
}

/// The name by which the file in `directory`, `own`, names the source file `file`.
fn stored_name(directory: &Path, own: &Path, file: &Path) -> io::Result<Vec<u8>> {
    let file = file.canonicalize()?;
    if file == own {
        return Ok(b".".to_vec());
    }
    // %b would be the number of a block.
    let relative = diff_paths(&file, directory).unwrap_or(file);
    let name = relative.into_os_string().into_vec();
    Ok(String::from_utf8(name.clone()).map_or(name, |text| text.replace('%', "%%").into_bytes()))
}

/// What all sources are: the first one's definition, and the shape of each.
struct Sources {
    definition: Definition,
    shapes: Vec<Vec<u64>>,
}

fn definition(container: &Arc<Container>, source: &DatasetPath) -> Result<Definition, Failure> {
    let failed = |e: io::Error| Failure::new(Exit::General, format!("{}: {}", source.text(), reason(&e)));
    let object = ObjectSource::resolve(container, &source.path, true).map_err(|e| {
        let hint = "; 'h5dir ls -R FILE' lists the paths of a file";
        Failure::new(Exit::Path, format!("{}: {}{hint}", source.text(), reason(&e)))
    })?;
    let model = object.model().map_err(failed)?.ok_or_else(|| failed(io::Error::other("it is no object of its own")))?;
    model.own_definition().map_err(|e| failed(io_error(&e)))
}

/// Checks that the `places` in `containers` are alike.
fn sources(containers: &[Arc<Container>], places: &[DatasetPath]) -> Result<Sources, Failure> {
    let mut all: Option<(Definition, Vec<Vec<u64>>)> = None;
    for (container, source) in containers.iter().zip(places) {
        let found = definition(container, source)?;
        let shape = found.shape().filter(|shape| !shape.is_empty()).map(<[u64]>::to_vec);
        let not = || Failure::new(Exit::General, format!("{}: it is no dataset with dimensions", source.text()));
        let shape = shape.ok_or_else(not)?;
        match &mut all {
            None => all = Some((found, vec![shape])),
            Some((first, shapes)) if first.datatype() == found.datatype() => shapes.push(shape),
            Some(_) => {
                let first = places.first().map_or_else(String::new, DatasetPath::text);
                return Err(Failure::new(Exit::General, format!("{}: its type is not that of {first}", source.text())));
            }
        }
    }
    let (definition, shapes) = all.ok_or_else(|| usage("there is no source".into()))?;
    Ok(Sources { definition, shapes })
}

fn block(start: &[u64], shape: &[u64]) -> Vec<HyperslabDim> {
    start.iter().zip(shape).map(|(start, len)| HyperslabDim::contiguous(*start, *len)).collect()
}

/// The shape of the virtual dataset, and the block of each source in it.
fn arranged(args: &VirtualArgs, places: &[DatasetPath], shapes: &[Vec<u64>]) -> Result<(Vec<u64>, Vec<Vec<HyperslabDim>>), Failure> {
    let first = shapes.first().cloned().unwrap_or_default();
    let rank = first.len();
    if args.axis > rank || !args.stack && args.axis == rank {
        return Err(usage(format!("--axis {}: the sources have {rank} dimensions, from 0", args.axis)));
    }
    let (mut at, mut blocks) = (0u64, Vec::new());
    for (place, shape) in places.iter().zip(shapes) {
        let differs = |(i, (a, b)): (usize, (&u64, &u64))| a != b && (args.stack || i != args.axis);
        if shape.len() != rank || first.iter().zip(shape).enumerate().any(differs) {
            let which = if args.stack { String::new() } else { format!(" but for axis {}", args.axis) };
            return Err(Failure::new(Exit::General, format!("{}: its shape {shape:?} is not {first:?}{which}", place.text())));
        }
        let (mut start, mut size) = (vec![0; rank], shape.clone());
        let len = if args.stack { 1 } else { shape.get(args.axis).copied().unwrap_or(0) };
        if args.stack {
            start.insert(args.axis, at);
            size.insert(args.axis, 1);
        } else if let Some(first) = start.get_mut(args.axis) {
            *first = at;
        }
        blocks.push(block(&start, &size));
        at = at.checked_add(len).ok_or_else(|| usage("the sources together have more than 2^64 coordinates".into()))?;
    }
    let mut whole = first;
    if args.stack {
        whole.insert(args.axis, at);
    } else if let Some(dim) = whole.get_mut(args.axis) {
        *dim = at;
    }
    Ok((whole, blocks))
}

/// Runs `h5dir virtual`.
pub(crate) fn virtual_dataset(args: &VirtualArgs) -> Result<(), Failure> {
    let new = place(&args.dataset)?;
    let mut places = Vec::new();
    for source in &args.sources {
        places.extend(expanded(source)?);
    }
    for source in &places {
        source.file.metadata().map_err(|e| Failure::new(Exit::Path, format!("cannot read {}: {}", source.text(), reason(&e))))?;
    }
    let created = !new.file.exists();
    if created {
        open::create(&new.file, &NewFile::default()).map_err(|e| Failure::open("create", &e))?;
    }
    let made = fill(args, &new, &places);
    if made.is_err() && created {
        // It is not what was asked for.
        let _ = open::host_path::remove(&new.file);
    }
    made
}

fn fill(args: &VirtualArgs, new: &DatasetPath, places: &[DatasetPath]) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::new(Exit::General, format!("cannot write {}: {}", new.text(), reason(&e)));
    let own = new.file.canonicalize().map_err(failed)?;
    let directory = own.parent().unwrap_or(Path::new("/"));
    let names = places.iter().map(|source| stored_name(directory, &own, &source.file)).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let mut specs = Vec::new();
    for file in places.iter().map(|source| &source.file).chain([&new.file]) {
        specs.push(MountSpec { writable: file == &new.file, ..resolve::side(file, &args.external)? });
    }
    let containers = opened::open(specs, &[])?;
    let found = sources(&containers, places)?;
    let (shape, blocks) = arranged(args, places, &found.shapes)?;
    let mapping = |(((name, source), at), shape): (((Vec<u8>, &DatasetPath), Vec<HyperslabDim>), &Vec<u64>)| {
        let path = String::from_utf8(source.path.clone()).map_or_else(|e| e.into_bytes(), |text| text.replace('%', "%%").into_bytes());
        SourceMapping::new(name, path, Some(block(&vec![0; shape.len()], shape)), Some(at))
    };
    let mappings = names.into_iter().zip(places).zip(blocks).zip(&found.shapes).map(mapping).collect();
    let definition = found.definition.as_virtual(shape, mappings);
    let container = containers.last().ok_or_else(|| failed(io::Error::other("no container is open")))?;
    let made = make(container, &new.path, &definition).map_err(failed);
    let closed = container.operations.shutdown().map_err(|e| Failure::new(Exit::General, e.to_string()));
    made.and(closed)
}

/// Makes the dataset `path` what `definition` states.
fn make(container: &Arc<Container>, path: &[u8], definition: &Definition) -> io::Result<()> {
    let path = tree::absolute(path);
    let at = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
    let (parent, name) = (path.get(..at).unwrap_or_default(), path.get(at.saturating_add(1)..).unwrap_or_default());
    if name.is_empty() {
        return Err(io::Error::other("name the new dataset: FILE:/PATH"));
    }
    let parent = if parent.is_empty() { b"/" } else { parent };
    let error = |errno: crate::fs::Errno| io::Error::from_raw_os_error(errno.0);
    let operations = &container.operations;
    let tree::Located { attr, .. } = tree::locate(&**operations, parent, true).map_err(error)?;
    let directory = Held::new(container, attr.ino);
    let creator =
        Creator { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw(), mode: MODE & !super::process::umask() };
    let entry = operations.mknod(directory.ino(), name, creator).result.map_err(error)?;
    let held = Held::new(container, entry.attr.ino);
    let model = container.model(&held)?.ok_or_else(|| io::Error::other("it is no object of its own"))?;
    let made = model.define(definition).map_err(|e| io_error(&e));
    if made.is_err() {
        let _ = operations.unlink(directory.ino(), name).result;
    }
    made
}
