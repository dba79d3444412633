//! `h5dir attr`: shows, sets and removes attributes of an object, without mounting.

use super::failure::{Exit, Failure, reason};
use super::print_error;
use super::side::argument::Argument;
use super::side::container::{Container, ObjectSource};
use super::side::opened;
use super::text;
use crate::base::escape::escaped_bytes;
use crate::config::attr_args::{AttrArgs, AttrCommand, AttrTarget};
use crate::config::resolve;
use crate::fs::MountSpec;
use crate::fs::model::{ObjectModel, io_error};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Runs `h5dir attr`.
pub(crate) fn attr(args: &AttrArgs) -> Result<(), Failure> {
    match &args.command {
        AttrCommand::Get { target, name } => get(target, name.as_ref()),
        AttrCommand::Set { target, name, value, datatype } => {
            change(target, &|object| object.set_attribute(name.as_bytes(), value.as_bytes(), datatype.as_deref()))
        }
        AttrCommand::Rm { target, name } => change(target, &|object| object.remove_attribute(name.as_bytes())),
    }
}

/// The object of an open container that is meant, and its container.
pub(super) fn open_object(target: &AttrTarget, writable: bool) -> Result<(Arc<Container>, ObjectModel), Failure> {
    open_as(target, &|side| MountSpec { writable, ..side })
}

/// Opens the container of `target` for changes, and other files if `external_write`.
pub(super) fn open_to_write(target: &AttrTarget, external_write: bool) -> Result<(Arc<Container>, ObjectModel), Failure> {
    open_as(target, &|side| side.to_change(external_write))
}

fn open_as(target: &AttrTarget, spec: &dyn Fn(MountSpec) -> MountSpec) -> Result<(Arc<Container>, ObjectModel), Failure> {
    let Argument::Object { file, path } = Argument::parse(&target.object) else {
        let name = escaped_bytes(target.object.as_bytes());
        return Err(Failure::new(Exit::Usage, format!("{name} is no object of an HDF5 file; write FILE:/PATH, for the root FILE:/")));
    };
    let spec = spec(resolve::side(&file, &target.external)?);
    let none = || Failure::new(Exit::Path, format!("cannot open {}", escaped_bytes(target.object.as_bytes())));
    let container = opened::open(vec![spec], &[])?.into_iter().next().ok_or_else(none)?;
    let failed = |e: io::Error| failure(target, &e);
    let source = ObjectSource::resolve(&container, &path, true).map_err(failed)?;
    let object = source.model().map_err(failed)?;
    let model = object.ok_or_else(|| failure(target, &io::Error::other("it is no object of its own; name one outside of .h5dir")))?;
    Ok((container, model))
}

pub(super) fn failure(target: &AttrTarget, e: &io::Error) -> Failure {
    let missing = matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR));
    let hint = if missing { "; 'h5dir ls -R FILE' lists the paths of a file" } else { "" };
    let exit = if missing { Exit::Path } else { Exit::General };
    Failure::new(exit, format!("{}: {}{hint}", escaped_bytes(target.object.as_bytes()), reason(e)))
}

fn get(target: &AttrTarget, name: Option<&OsString>) -> Result<(), Failure> {
    let (_container, object) = open_object(target, false)?;
    let failed = |e| failure(target, &io_error(&e));
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut readable = Ok(());
    let printed = match name {
        Some(name) => {
            let value = object.attribute_text(name.as_bytes()).map_err(failed)?;
            // A terminal obeys control characters.
            let value = if io::stdout().is_terminal() { text::value(&value).into_bytes() } else { value };
            out.write_all(&value).and_then(|()| out.write_all(b"\n"))
        }
        None => {
            let mut printed = Ok(());
            for name in object.attribute_names().map_err(failed)? {
                match object.attribute_text(&name) {
                    Ok(value) => printed = printed.and_then(|()| writeln!(out, "{} = {}", text::name(&name), text::value(&value))),
                    Err(e) => {
                        let name = text::name(&name);
                        print_error(&format!(
                            "{}: the attribute {name}: {}",
                            escaped_bytes(target.object.as_bytes()),
                            reason(&io_error(&e))
                        ));
                        readable = Err(Failure::reported(Exit::General));
                    }
                }
            }
            printed
        }
    };
    match printed.and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e))))
        }
        _ => readable,
    }
}

fn change(target: &AttrTarget, f: &dyn Fn(&ObjectModel) -> crate::base::Result<()>) -> Result<(), Failure> {
    let (container, object) = open_object(target, true)?;
    let changed = f(&object).map_err(|e| failure(target, &io_error(&e)));
    drop(object);
    let closed = container.operations.shutdown().map_err(|e| Failure::new(Exit::General, e.to_string()));
    changed.and(closed)
}
