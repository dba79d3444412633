//! `h5dir kerchunk`: prints where the chunks of a file are, as references of fsspec, without
//! mounting.

use super::attr::{failure, open_object};
use super::failure::{Exit, Failure, reason};
use super::side::argument::Argument;
use super::{print_error, process};
use crate::base::Error;
use crate::base::escape::{escaped, escaped_bytes};
use crate::config::attr_args::{AttrTarget, KerchunkArgs};
use crate::fs::model::io_error;
use crate::fs::open::host_path;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

/// Runs `h5dir kerchunk`.
pub(crate) fn kerchunk(args: &KerchunkArgs) -> Result<(), Failure> {
    let mut object = args.file.clone();
    if matches!(Argument::parse(&object), Argument::Local(_)) {
        object.push(":/");
    }
    let target = AttrTarget { external: args.external.clone(), object };
    let failed = |e: io::Error| {
        let place = args.output.as_ref().map_or_else(|| "the output".to_owned(), |out| escaped(out).to_string());
        Failure::new(Exit::General, format!("cannot write {place}: {}", reason(&e)))
    };
    let file = match &args.output {
        // The process is confined before the file is read. What is there is replaced when there is
        // something to write.
        Some(out) => Some(host_path::open_or_create(out, OFlag::O_WRONLY, Mode::from_bits_truncate(0o666)).map_err(failed)?),
        None => None,
    };
    if let (Some(file), Argument::Object { file: container, .. }) = (&file, Argument::parse(&target.object))
        && let (Ok(there), Ok(container)) = (file.metadata(), std::fs::metadata(container))
        && (there.dev(), there.ino()) == (container.dev(), container.ino())
    {
        return Err(Failure::new(Exit::Usage, "the output would replace the HDF5 file; name another file"));
    }
    let (_container, group) = open_object(&target, false)?;
    let mut out: Box<dyn Write> = match &file {
        Some(file) => {
            file.set_len(0).map_err(failed)?;
            Box::new(BufWriter::new(file))
        }
        None => Box::new(BufWriter::new(io::stdout().lock())),
    };
    let (mut written, mut is_whole) = (Ok(()), true);
    let made = group.kerchunk(
        args.url.as_ref().map(|url| url.as_bytes()),
        &mut |piece| {
            written = out.write_all(piece);
            if written.is_err() || process::is_interrupted() { Err(Error::refused(libc::EINTR, "interrupted")) } else { Ok(()) }
        },
        &mut |left| {
            is_whole &= !left.is_failure;
            print_error(&format!("left out: {}: {}", escaped_bytes(&left.path), left.reason));
        },
    );
    match written.and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        Err(e) => return Err(failed(e)),
        Ok(()) => {}
    }
    made.map_err(|e| failure(&target, &io_error(&e)))?;
    if is_whole { Ok(()) } else { Err(Failure::reported(Exit::General)) }
}
