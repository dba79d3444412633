//! `h5dir cat`: prints the bytes of files of a view without mounting.

use super::failure::{Exit, Failure, errno_text, reason};
use super::print_error;
use super::side::argument::Argument;
use super::side::container::ObjectSource;
use super::side::{Kind, PIECE_BYTES, Source, opened};
use super::view::ViewError;
use crate::base::escape::escaped_bytes;
use crate::config::resolve;
use crate::config::side_args::{CatArgs, ExternalArgs};
use crate::fs::MountSpec;
use std::io::{self, Write};

/// Runs `h5dir cat`.
pub(crate) fn cat(args: &CatArgs) -> Result<(), Failure> {
    let targets: Vec<Argument> = args.targets.iter().map(|text| Argument::parse(text)).collect();
    print(&targets, &args.external)
}

/// Why a file was not printed.
enum CatError {
    Input(io::Error),
    Output(io::Error),
}

/// Prints the objects `targets` one after another. A closed pipe is no failure.
pub(super) fn print(targets: &[Argument], external: &ExternalArgs) -> Result<(), Failure> {
    let mut objects: Vec<(MountSpec, &[u8], Vec<u8>)> = Vec::new();
    for target in targets {
        let Argument::Object { file, path } = target else {
            let message = format!("{} is no object of an HDF5 file; write FILE:/PATH", escaped_bytes(&target.text()));
            return Err(Failure::new(Exit::Usage, message));
        };
        objects.push((resolve::side(file, external)?, path, target.text()));
    }
    let containers = opened::open(objects.iter().map(|(spec, ..)| spec.clone()).collect(), &[])?;
    let (mut first, mut failures) = (None, 0u64);
    for ((spec, path, text), container) in objects.iter().zip(&containers) {
        let printed = ObjectSource::resolve(container, path, true).map_err(CatError::Input).and_then(|source| print_one(&source));
        let failure = match printed {
            Ok(()) => continue,
            Err(CatError::Output(e)) => return ViewError::Output(e).into_result(spec, path),
            Err(CatError::Input(e)) => failure(text, &e),
        };
        failures = failures.saturating_add(1);
        if targets.len() > 1 {
            print_error(&failure.message);
        }
        first.get_or_insert(failure);
    }
    match first {
        None => Ok(()),
        Some(failure) if targets.len() == 1 => Err(failure),
        Some(failure) => Err(Failure::new(failure.exit, format!("{failures} of {} files were not printed", targets.len()))),
    }
}

fn failure(text: &[u8], e: &io::Error) -> Failure {
    let name = escaped_bytes(text);
    match e.raw_os_error() {
        Some(libc::EISDIR) => Failure::new(Exit::General, format!("cannot print {name}: it is a group; 'h5dir ls {name}' lists it")),
        Some(errno @ (libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => {
            Failure::new(Exit::Path, format!("cannot find {name}: {}; 'h5dir ls -R FILE' lists the paths of a file", errno_text(errno)))
        }
        _ => Failure::new(Exit::General, format!("cannot read {name}: {}", reason(e))),
    }
}

fn print_one(source: &dyn Source) -> Result<(), CatError> {
    if source.meta().kind == Kind::Directory {
        return Err(CatError::Input(io::Error::from_raw_os_error(libc::EISDIR)));
    }
    let mut content = source.open().map_err(CatError::Input)?;
    let (mut piece, mut at) = (vec![0; PIECE_BYTES], 0u64);
    // Unlocked and not buffered: binary data holds no lines.
    let mut out = std::fs::File::from(rustix::io::dup(io::stdout()).map_err(|e| CatError::Output(e.into()))?);
    loop {
        let n = content.read(at, &mut piece).map_err(CatError::Input)?;
        out.write_all(piece.get(..n).unwrap_or_default()).map_err(CatError::Output)?;
        at = at.saturating_add(n as u64);
        if n == 0 {
            return Ok(());
        }
    }
}
