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
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

/// Runs `h5dir tx`.
pub(crate) fn tx(args: &TxArgs) -> Result<(), Failure> {
    let json = args.json;
    match &args.command {
        TxCommand::Begin(args) => {
            let (name, after) = (args.which.name.clone(), args.after.clone());
            let spec = TransactionSpec { name, peers: Some(args.peers), base: Some(args.base.0), after };
            run((&args.which.container, json), &mut |all| all.begin(&spec).map(|()| named(json, &spec.name, "open")))
        }
        TxCommand::List(args) => run((&args.container, json), &mut |all| list(all, json)),
        TxCommand::Status(arg) => run((&arg.container, json), &mut |all| {
            let absent = || crate::base::Error::refused(libc::ENOENT, format!("there is no transaction {}", arg.name));
            let status = all.status(&arg.name)?.ok_or_else(absent)?;
            Ok(if json { status_json(&status) } else { status })
        }),
        TxCommand::Finish(arg) => end((arg, json), Ending::Finish),
        TxCommand::Abort(arg) => end((arg, json), Ending::Abort),
        TxCommand::Skip(arg) => end((arg, json), Ending::Skip),
    }
}

fn end((arg, json): (&TxArg, bool), ending: Ending) -> Result<(), Failure> {
    run((&arg.container, json), &mut |all| {
        all.end(&arg.name, ending)?;
        let status = if json { all.status(&arg.name)?.unwrap_or_default() } else { String::new() };
        Ok(named(json, &arg.name, state(&status)))
    })
}

/// The state that a status has.
fn state(status: &str) -> &str {
    status.lines().find_map(|line| line.strip_prefix("state ")).unwrap_or("removed")
}

/// A transaction and its state as JSON; nothing without `json`.
fn named(json: bool, name: &str, state: &str) -> String {
    if json { format!("{}\n", json!({"name": name, "state": state})) } else { String::new() }
}

/// The lines of a status, a name and its value each, as JSON.
fn status_json(status: &str) -> String {
    /// Values that are lists, `none` if they are empty.
    const LISTS: [&str; 3] = ["joined", "finished", "after"];
    let value = |text: &str| text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from);
    let row = |(key, text): (&str, &str)| {
        let is_list = LISTS.contains(&key);
        let list = || Value::Array(text.split(' ').filter(|item| *item != "none").map(value).collect());
        // Names and labels are texts, also those of digits.
        let one = || if matches!(key, "name" | "label" | "reason") { Value::from(text) } else { value(text) };
        (key.to_owned(), if is_list { list() } else { one() })
    };
    let rows = status.lines().filter_map(|line| line.split_once(' ')).map(row);
    format!("{:#}\n", Value::Object(rows.collect()))
}

/// Name and state of each, a line; or all as JSON.
fn list(all: &dyn Transactions, json: bool) -> Result<String, crate::base::Error> {
    let (mut text, mut rows) = (String::new(), Vec::new());
    for name in all.names()? {
        let status = all.status(&name)?.unwrap_or_default();
        if json {
            rows.push(json!({"name": name, "state": state(&status)}));
        } else {
            text.push_str(&format!("{name} {}\n", state(&status)));
        }
    }
    Ok(if json { format!("{:#}\n", Value::Array(rows)) } else { text })
}

/// Opens the container, calls `f` and prints what it returns.
fn run(
    (container, json): (&Path, bool),
    f: &mut dyn FnMut(&dyn Transactions) -> Result<String, crate::base::Error>,
) -> Result<(), Failure> {
    let spec = MountSpec { transaction: Some(TransactionUse::Manage), ..MountSpec::writable(resolve::absolute_name(container)) };
    let (located, _) = view::locate_confined(&spec, "change", Level::Error)?;
    let text = open::transactions(located, f).map_err(|e| match e {
        OpenError::Engine { source: crate::base::Error::Refused { reason, .. }, .. } => Failure::new(Exit::General, reason),
        e => Failure::open("change", &e),
    })?;
    let text = if json { escape::json(&text) } else { escape::lines(&text) };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e))))
        }
        _ => Ok(()),
    }
}
