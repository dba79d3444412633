//! `h5dir defined` and `h5dir erase`: which elements of a dataset were written, and making them
//! undefined, without mounting.

use super::failure::{Exit, Failure, reason};
use super::tree;
use super::view::{ViewError, open_view};
use crate::base::element_set::ElementSet;
use crate::config::args::{DefinedArgs, EraseArgs};
use crate::config::resolve;
use crate::config::value::Level;
use crate::fs::open::host_path;
use crate::fs::{Errno, FsResult, OpenMode, Operations, build_npy_header};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use serde_json::Value;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;

/// The fact that erases a selection.
const ERASE: &[u8] = b"user.h5dir.erase";
/// The view of defined elements.
const VIEW: &[u8] = b"/.h5dir/defined";
/// Bytes read at once.
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
    let (operations, _) = open_view(&spec, "read", Level::Warn)?;
    let asked = tree::absolute(&path);
    let text = match text_of(&*operations, &asked, args.select.as_deref().unwrap_or("")) {
        Ok(text) => text,
        Err(e) => return ViewError::Path(asked, e).into_result(&spec, &path),
    };
    let defined = Defined::parse(&text).ok_or_else(|| Failure::new(Exit::General, "the view has no list of blocks"))?;
    if let Some((file, failed)) = mask {
        file.set_len(0).map_err(&failed)?;
        let mut out = BufWriter::new(file);
        return defined.write_mask(&mut out).and_then(|()| out.flush()).map_err(failed);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = if args.count {
        writeln!(out, "{}", defined.count)
    } else if args.view.options.json {
        out.write_all(&text)
    } else {
        defined.print(&mut out)
    };
    printed.and_then(|()| out.flush()).map_err(ViewError::from).or_else(|e| e.into_result(&spec, &path))
}

/// Runs `h5dir erase`.
pub(crate) fn erase(args: &EraseArgs) -> Result<(), Failure> {
    let options = &args.view.options;
    if options.json || options.version.is_some() {
        return Err(Failure::new(Exit::Usage, "erase changes the newest version and prints nothing; omit --json and --version"));
    }
    let (mut spec, path) = resolve::view(&args.view)?;
    spec.writable = true;
    let (operations, _) = open_view(&spec, "change", Level::Warn)?;
    let asked = tree::absolute(&path);
    let erased =
        tree::resolve(&*operations, &asked).and_then(|attr| operations.setxattr(attr.ino, ERASE, args.select.as_bytes(), 0).result);
    let closed = operations.shutdown().map_err(|e| Failure::new(Exit::General, e.to_string()));
    match erased {
        Ok(()) => closed,
        Err(e) => ViewError::Path(asked, e).into_result(&spec, &path),
    }
}

/// The text of the view for a selection of the dataset at `path`.
fn text_of(operations: &dyn Operations, path: &[u8], selection: &str) -> FsResult<Vec<u8>> {
    let mut file = [VIEW, path].concat();
    if !selection.is_empty() {
        let suffix = [b"@", selection.as_bytes()].concat();
        file.extend_from_slice(&suffix);
        // Its name would be taken for a selection of this one.
        if tree::resolve(operations, &[path, &suffix].concat()).is_ok() {
            tracing::warn!("another dataset has the name of this selection");
            return Err(Errno(libc::EINVAL));
        }
    }
    let ino = tree::resolve(operations, &file)?.ino;
    let opened = operations.open(ino, OpenMode { read: true, ..OpenMode::default() })?;
    let mut text = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    let read = loop {
        match operations.read(ino, opened.handle, text.len() as u64, &mut piece) {
            Ok(0) => break Ok(()),
            Ok(n) => text.extend_from_slice(piece.get(..n).unwrap_or_default()),
            Err(e) => break Err(e),
        }
    };
    operations.release(ino, opened.handle);
    read.map(|()| text)
}

/// The defined elements of a dataset.
struct Defined {
    dims: Vec<u64>,
    /// Number of defined elements.
    count: u64,
    /// The elements; empty for a dataset without dimensions.
    set: ElementSet,
}

impl Defined {
    fn parse(text: &[u8]) -> Option<Self> {
        let json: Value = serde_json::from_slice(text).ok()?;
        let numbers = |v: &Value| v.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
        let dims = numbers(json.get("shape")?)?;
        let count = json.get("count")?.as_u64()?;
        if dims.is_empty() {
            return Some(Defined { dims, count, set: ElementSet::default() });
        }
        let mut corners = Vec::new();
        for block in json.get("blocks")?.as_array()? {
            corners.extend(numbers(block.get("start")?)?);
            corners.extend(numbers(block.get("stop")?)?.into_iter().map(|n| n.saturating_sub(1)));
        }
        let set = ElementSet::of_blocks(dims.len(), &corners).ok()?;
        Some(Defined { dims, count, set })
    }

    /// One block a line, as a selection.
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut failed = Ok(());
        let _ = self.set.for_each_block(&mut |first, end| {
            let ranges: Vec<String> = first.iter().zip(end).map(|(f, e)| format!("{f}:{e}")).collect();
            failed = writeln!(out, "{}", ranges.join(","));
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        failed
    }

    /// A .npy file of booleans, of the shape of the dataset.
    fn write_mask(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&build_npy_header("'|b1'", &self.dims))?;
        let total = self.dims.iter().fold(1u64, |n, d| n.saturating_mul(*d));
        let mut at = 0u64;
        while at < total {
            let next = self.set.next_element(&self.dims, at).unwrap_or(total).min(total);
            write_run(out, 0, next.saturating_sub(at))?;
            at = if next < total { self.set.next_gap(&self.dims, next).min(total) } else { total };
            write_run(out, 1, at.saturating_sub(next))?;
        }
        Ok(())
    }
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
