//! `h5dir defined` and `h5dir erase`: which elements of a dataset were written, and making them
//! undefined, without mounting.

use super::failure::{Exit, Failure, reason};
use super::selection::SelectionFiles;
use super::text;
use super::tree;
use super::view::{ViewError, open_view};
use crate::base::Error;
use crate::base::element_set::ElementSet;
use crate::base::escape::escaped;
use crate::config::args::{DefinedArgs, EraseArgs};
use crate::config::resolve;
use crate::config::value::Level;
use crate::fs::model::{DefinedElements, ObjectModel, io_error};
use crate::fs::open::host_path;
use crate::fs::{FsResult, MountSpec, Operations, build_npy_header};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;

/// Most bytes of JSON.
const JSON_BYTES_MAX: u64 = 64 << 20;
/// Bytes written at once.
const PIECE_BYTES: usize = 1 << 20;

/// Runs `h5dir defined`.
pub(crate) fn defined(args: &DefinedArgs) -> Result<(), Failure> {
    let (spec, path) = resolve::view(&args.view)?;
    // Opened first: a process that reads an untrusted file is confined.
    let mask = match &args.mask {
        Some(mask) => {
            let failed = |e: io::Error| Failure::new(Exit::General, format!("cannot write {}: {}", mask.display(), reason(&e)));
            // What is there is replaced when there is something to write.
            let mode = Mode::from_bits_truncate(0o666);
            Some((host_path::open_or_create(mask, OFlag::O_WRONLY, mode).map_err(failed)?, failed))
        }
        None => None,
    };
    if let (Some((file, _)), Ok(container)) = (&mask, std::fs::metadata(&spec.file))
        && file.metadata().is_ok_and(|m| (m.dev(), m.ino()) == (container.dev(), container.ino()))
    {
        return Err(Failure::new(Exit::Usage, "the mask would replace the HDF5 file; name another file"));
    }
    let files = SelectionFiles::open(args.select.as_deref())?;
    let (operations, _) = open_view(&spec, "read", Level::Warn)?;
    let asked = tree::absolute(&path);
    let selection = files.text();
    let object = match object(&*operations, &asked) {
        Ok(object) => object,
        Err(e) => return ViewError::Path(asked, e).into_result(&spec, &path),
    };
    let refused = |e: Error| refused(&spec, &path, &e);
    if args.view.options.json && mask.is_none() && !args.count {
        let text = object.defined_json(selection, JSON_BYTES_MAX).map_err(refused)?;
        return written(io::stdout().lock().write_all(&text), &spec, &path);
    }
    let defined = object.defined(selection).map_err(refused)?;
    if let Some((file, failed)) = mask {
        let set = defined.set().map_err(refused)?;
        file.set_len(0).map_err(&failed)?;
        let mut out = BufWriter::new(file);
        return write_mask(&defined, &set, &mut out).and_then(|()| out.flush()).map_err(failed);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = if args.count { writeln!(out, "{}", defined.count) } else { print(&defined.set().map_err(refused)?, &mut out) };
    written(printed.and_then(|()| out.flush()), &spec, &path)
}

/// The dataset at `path`.
fn object(operations: &dyn Operations, path: &[u8]) -> FsResult<ObjectModel> {
    operations.model(tree::resolve(operations, path)?.ino)
}

/// The failure of a request that the container refuses.
fn refused(spec: &MountSpec, path: &[u8], e: &Error) -> Failure {
    Failure::new(Exit::General, format!("{} in {}: {}", text::name(path), escaped(&spec.file), reason(&io_error(e))))
}

fn written(printed: io::Result<()>, spec: &MountSpec, path: &[u8]) -> Result<(), Failure> {
    printed.map_err(ViewError::from).or_else(|e| e.into_result(spec, path))
}

/// Runs `h5dir erase`.
pub(crate) fn erase(args: &EraseArgs) -> Result<(), Failure> {
    let options = &args.view.options;
    if options.json || options.files.version.is_some() {
        return Err(Failure::new(Exit::Usage, "erase changes the newest version and prints nothing; omit --json and --version"));
    }
    let (mut spec, path) = resolve::view(&args.view)?;
    spec.writable = true;
    let files = SelectionFiles::open(Some(&args.select))?;
    let (operations, _) = open_view(&spec, "change", Level::Warn)?;
    let asked = tree::absolute(&path);
    let object = object(&*operations, &asked);
    let erased = object.as_ref().map(|object| object.erase(files.text()));
    let closed = operations.shutdown().map_err(|e| Failure::new(Exit::General, e.to_string()));
    match erased {
        Ok(Ok(())) => closed,
        Ok(Err(e)) => Err(refused(&spec, &path, &e)),
        Err(e) => ViewError::Path(asked, *e).into_result(&spec, &path),
    }
}

/// One block a line, as a selection.
fn print(set: &ElementSet, out: &mut dyn Write) -> io::Result<()> {
    let mut failed = Ok(());
    let _ = set.for_each_block(&mut |first, end| {
        let ranges: Vec<String> = first.iter().zip(end).map(|(f, e)| format!("{f}:{e}")).collect();
        failed = writeln!(out, "{}", ranges.join(","));
        if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    failed
}

/// A .npy file of booleans, of the shape of the dataset.
fn write_mask(defined: &DefinedElements, set: &ElementSet, out: &mut dyn Write) -> io::Result<()> {
    let dims = defined.dims();
    out.write_all(&build_npy_header("'|b1'", dims))?;
    if dims.is_empty() {
        return write_run(out, u8::from(defined.count > 0), 1);
    }
    let total = dims.iter().fold(1u64, |n, d| n.saturating_mul(*d));
    let mut at = 0u64;
    while at < total {
        let next = set.next_element(dims, at).unwrap_or(total).min(total);
        write_run(out, 0, next.saturating_sub(at))?;
        at = if next < total { set.next_gap(dims, next).min(total) } else { total };
        write_run(out, 1, at.saturating_sub(next))?;
    }
    Ok(())
}

/// Writes `len` bytes `byte`.
fn write_run(out: &mut dyn Write, byte: u8, len: u64) -> io::Result<()> {
    let piece = vec![byte; usize::try_from(len).unwrap_or(PIECE_BYTES).min(PIECE_BYTES)];
    let mut left = len;
    while left > 0 {
        let n = usize::try_from(left).unwrap_or(PIECE_BYTES).min(piece.len());
        out.write_all(piece.get(..n).unwrap_or_default())?;
        left = left.saturating_sub(n as u64);
    }
    Ok(())
}
