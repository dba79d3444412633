//! `h5dir diff`: compares objects of HDF5 files with each other, or with local files.
//!
//! ```text
//! compare  walks both sides          content  the first byte that differs
//! report   lines or JSON        sides    what the arguments name
//! ```

mod compare;
mod content;
mod report;
mod sides;

use super::confine::Tree;
use super::failure::{Exit, Failure, errno_text, reason};
use super::print_error;
use super::side::argument::Argument;
use super::side::container::{Container, ObjectSource};
use super::side::local::LocalSource;
use super::side::{SideKind, Source, opened};
use super::tree;
use crate::base::escape::escaped_bytes;
use crate::config::resolve;
use crate::config::side_args::DiffArgs;
use compare::{Comparison, End, Scope};
use report::{Report, Style};
use sides::Sides;
use std::io::{self, BufWriter};
use std::process::ExitCode;
use std::sync::Arc;

/// Exit code of a comparison that was not possible.
const TROUBLE: u8 = 2;

/// Runs `h5dir diff`. The exit code is that of diff(1).
pub(crate) fn diff(args: &DiffArgs) -> ExitCode {
    match compare(args) {
        Ok(different) => ExitCode::from(u8::from(different)),
        Err(failure) => {
            print_error(&failure.message);
            ExitCode::from(TROUBLE)
        }
    }
}

/// Compares both sides; returns whether they differ.
fn compare(args: &DiffArgs) -> Result<bool, Failure> {
    let Sides { arguments: sides, whole } = sides::sides(&args.left, &args.right)?;
    let [left, right] = open(args, &sides)?;
    let style = match (args.quiet, args.json) {
        (true, _) => Style::Quiet,
        (_, true) => Style::Json,
        _ => Style::Lines,
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let failed = |e: &io::Error| Failure::new(Exit::General, format!("cannot write the output: {}", reason(e)));
    let report = Report::new(&mut out, style).map_err(|e| failed(&e))?;
    let mut comparison = Comparison::new(Scope { recursive: args.recursive || whole, storage: args.storage, xattrs: args.xattrs }, report);
    match comparison.compare(&*left, &*right, &top(&*left, &sides), 0) {
        // A closed pipe (`| head`): there was a difference.
        Err(End::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(true),
        Err(End::Output(e)) => return Err(failed(&e)),
        Err(End::Done) | Ok(()) => {}
    }
    let troubles = comparison.troubles;
    let different = match comparison.end() {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => true,
        ended => ended.map_err(|e| failed(&e))?,
    };
    match troubles {
        0 => Ok(different),
        _ if args.quiet && different => Ok(true),
        1 => Err(Failure::new(Exit::General, "1 object could not be compared")),
        n => Err(Failure::new(Exit::General, format!("{n} objects could not be compared"))),
    }
}

/// Path of what is compared: directories are the roots of the paths in them.
fn top(left: &dyn Source, sides: &[Argument; 2]) -> Vec<u8> {
    let object = sides.iter().find_map(|side| match side {
        Argument::Object { path, .. } => Some(tree::absolute(path)),
        Argument::Standard | Argument::Local(_) => None,
    });
    object.filter(|_| left.meta().kind != SideKind::Directory).unwrap_or_else(|| b"/".to_vec())
}

/// Opens local files, then containers, after which the process is confined.
fn open(args: &DiffArgs, sides: &[Argument; 2]) -> Result<[Box<dyn Source>; 2], Failure> {
    let failed = |argument: &Argument, e: &io::Error| {
        let name = escaped_bytes(&argument.text()).to_string();
        let why = e.raw_os_error().map_or_else(|| reason(e), errno_text);
        Failure::new(Exit::Path, format!("cannot compare {name}: {why}; check the path"))
    };
    let mut locals = Vec::new();
    let mut specs = Vec::new();
    for side in sides {
        match side {
            Argument::Local(path) => locals.push(Some(LocalSource::open(path, true).map_err(|e| failed(side, &e))?)),
            Argument::Object { file, .. } => {
                locals.push(None);
                specs.push(resolve::side(file, &args.external)?);
            }
            Argument::Standard => locals.push(None),
        }
    }
    let trees: Vec<Tree<'_>> = locals.iter().flatten().map(|s| Tree { file: s.descriptor(), written: false }).collect();
    let mut containers = opened::open(specs, &trees)?.into_iter();
    drop(trees);
    let mut opened = |side: &Argument, local: Option<LocalSource>| -> Result<Box<dyn Source>, Failure> {
        match (side, local) {
            (Argument::Object { path, .. }, _) => Ok(Box::new(object(containers.next(), path).map_err(|e| failed(side, &e))?)),
            (_, Some(local)) => Ok(Box::new(local)),
            (_, None) => Err(failed(side, &io::Error::from_raw_os_error(libc::ENOENT))),
        }
    };
    let [left, right] = sides;
    let mut locals = locals.into_iter();
    Ok([opened(left, locals.next().flatten())?, opened(right, locals.next().flatten())?])
}

fn object(container: Option<Arc<Container>>, path: &[u8]) -> io::Result<ObjectSource> {
    ObjectSource::resolve(&container.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?, path, true)
}
