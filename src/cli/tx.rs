//! `h5dir tx`: transactions of several mounts of a container in an object store.

use super::failure::{Exit, Failure, reason};
use super::view;
use crate::base::escape;
use crate::config::iod_args::{TxArg, TxArgs, TxCommand};
use crate::config::resolve;
use crate::config::value::Level;
use crate::fs::open::{self, Transactions};
use crate::fs::spec::{Ending, TransactionSpec, TransactionUse};
use crate::fs::{MountSpec, OpenError};
use std::io::{self, Write};
use std::path::Path;

/// Runs `h5dir tx`.
pub(crate) fn tx(args: &TxArgs) -> Result<(), Failure> {
    match &args.command {
        TxCommand::Begin(args) => {
            let (name, after) = (args.which.name.clone(), args.after.clone());
            let spec = TransactionSpec { name, peers: Some(args.peers), base: Some(args.base.0), after };
            run(&args.which.container, &mut |all| all.begin(&spec).map(|()| String::new()))
        }
        TxCommand::List(args) => run(&args.container, &mut list),
        TxCommand::Status(arg) => run(&arg.container, &mut |all| {
            let absent = || crate::base::Error::refused(libc::ENOENT, format!("there is no transaction {}", arg.name));
            all.status(&arg.name)?.ok_or_else(absent)
        }),
        TxCommand::Finish(arg) => end(arg, Ending::Finish),
        TxCommand::Abort(arg) => end(arg, Ending::Abort),
        TxCommand::Skip(arg) => end(arg, Ending::Skip),
    }
}

fn end(arg: &TxArg, ending: Ending) -> Result<(), Failure> {
    run(&arg.container, &mut |all| all.end(&arg.name, ending).map(|()| String::new()))
}

/// Name and state of each, a line.
fn list(all: &dyn Transactions) -> Result<String, crate::base::Error> {
    let mut text = String::new();
    for name in all.names()? {
        let status = all.status(&name)?.unwrap_or_default();
        let state = status.lines().find_map(|line| line.strip_prefix("state ")).unwrap_or("removed");
        text.push_str(&format!("{name} {state}\n"));
    }
    Ok(text)
}

/// Opens the container, calls `f` and prints what it returns.
fn run(container: &Path, f: &mut dyn FnMut(&dyn Transactions) -> Result<String, crate::base::Error>) -> Result<(), Failure> {
    let spec = MountSpec { transaction: Some(TransactionUse::Manage), ..MountSpec::writable(resolve::absolute_name(container)) };
    let (located, _) = view::locate_confined(&spec, "change", Level::Error)?;
    let text = open::transactions(located, f).map_err(|e| match e {
        OpenError::Engine { source: crate::base::Error::Refused { reason, .. }, .. } => Failure::new(Exit::General, reason),
        e => Failure::open("change", &e),
    })?;
    match io::stdout().lock().write_all(escape::lines(&text).as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e))))
        }
        _ => Ok(()),
    }
}
