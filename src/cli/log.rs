//! `h5dir compact` and `h5dir log`: upkeep, parts and recovery of the log of a file.

use super::failure::{Exit, Failure, reason};
use super::progress::{ProgressLine, percent};
use super::{copy, file_commands, process, view};
use crate::base::Error;
use crate::base::escape::{self, escaped, escaped_bytes};
use crate::config::args::{CompactArgs, CreateArgs, DumpLogArgs, ExportLogArgs, LogArgs, LogCommand, RebuildLogArgs, ReplayLogArgs};
use crate::config::side_args::CopyArgs;
use crate::config::target::Target;
use crate::config::value::Level;
use crate::fs::open::{self, Compacted, LogPart, LogValue, OpenError};
use crate::fs::{ExternalPolicy, MountSpec};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

fn spec(file: &Path) -> MountSpec {
    // Subfiles of a log are read.
    MountSpec { external: ExternalPolicy::Beneath(None), ..MountSpec::new(file) }
}

/// A log that is not there, or cannot be changed, is no trouble with the file.
fn failed(verb: &str, error: &OpenError) -> Failure {
    match error {
        OpenError::Engine { source: Error::Refused { .. }, .. } => Failure::new(Exit::General, error.to_string()),
        _ => Failure::open(verb, error),
    }
}

/// Runs `h5dir compact`.
pub(crate) fn compact(args: &CompactArgs) -> Result<(), Failure> {
    let target = Target::parse(&args.target);
    let spec = MountSpec { writable: true, ..spec(&target.file) };
    process::catch_ending_signals().map_err(|e| Failure::new(Exit::General, format!("cannot catch signals: {}", reason(&e))))?;
    let (located, _) = view::locate_confined(&spec, "compact", Level::Warn)?;
    let mut line = ProgressLine::new();
    let path = target.inner.unwrap_or_default();
    let compacted = open::compact(located, &path, &mut |moved, total| {
        line.show(|| format!("{moved} of {total} bytes moved, {} %", percent(moved, total)));
        if process::is_interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    drop(line);
    let absent = || Failure::new(Exit::Path, format!("{} has no object {}", escaped(&spec.file), escaped_bytes(&path)));
    let Compacted { moved, freed, finished } = compacted.map_err(|e| failed("compact", &e))?.ok_or_else(absent)?;
    // A closed standard output is no failure: the file is compacted.
    let _ = writeln!(io::stdout(), "{}: {moved} bytes moved, {freed} bytes of the log freed", escaped(&spec.file));
    if finished {
        return Ok(());
    }
    process::end_if_interrupted();
    Err(Failure::new(Exit::General, "interrupted: the rest was not compacted"))
}

/// Runs `h5dir log`.
pub(crate) fn log(args: &LogArgs) -> Result<(), Failure> {
    match &args.command {
        LogCommand::Dump(args) => dump(args),
        LogCommand::Rebuild(args) => rebuild(args),
        LogCommand::Replay(args) => replay(args),
        LogCommand::Export(args) => export(args),
    }
}

fn rebuild(args: &RebuildLogArgs) -> Result<(), Failure> {
    let spec = MountSpec { writable: true, ..spec(&args.file) };
    let (located, _) = view::locate_confined(&spec, "change", Level::Warn)?;
    open::rebuild_log(located).map_err(|e| failed("change", &e))
}

/// The root group of `file`, as a source or destination.
fn root(file: &Path) -> OsString {
    let mut target = file.as_os_str().to_owned();
    target.push(":/");
    target
}

/// Errors: there is a file of this name.
fn absent(file: &Path) -> Result<(), Failure> {
    match file.symlink_metadata() {
        Ok(_) => Err(Failure::new(Exit::General, format!("{} exists; name a new file", escaped(file)))),
        Err(_) => Ok(()),
    }
}

fn export(args: &ExportLogArgs) -> Result<(), Failure> {
    absent(&args.output)?;
    if let Err(e) = args.input.metadata() {
        return Err(Failure::new(Exit::Path, format!("cannot read {}: {}", escaped(&args.input), reason(&e))));
    }
    let file = args.output.clone();
    file_commands::create(&CreateArgs {
        libver: args.libver,
        log: true,
        log_format: args.log_format,
        properties: Default::default(),
        config: None,
        file,
    })?;
    copy::copy(&CopyArgs::into_log(root(&args.input), root(&args.output), args.libver))
}

fn replay(args: &ReplayLogArgs) -> Result<(), Failure> {
    absent(&args.output)?;
    copy::copy(&CopyArgs::without_log(root(&args.input), root(&args.output), args.libver))
}

fn dump(args: &DumpLogArgs) -> Result<(), Failure> {
    let spec = spec(&args.file);
    let (located, _) = view::locate_confined(&spec, "read", Level::Error)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut printed = Ok(());
    let dumped = open::dump_log(located, &mut |part| {
        printed = if args.json { json(part, &mut out) } else { text(part, &mut out) };
        if printed.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match printed.and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        Err(e) => return Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e)))),
        Ok(()) => {}
    }
    dumped.map_err(|e| failed("read", &e))
}

/// One line per part.
fn text(part: &LogPart, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{:indent$}{}", "", part.name, indent = part.depth.saturating_mul(2))?;
    for (name, value) in &part.values {
        match value {
            LogValue::Number(n) => write!(out, " {name}={n}")?,
            LogValue::Flag(flag) => write!(out, " {name}={flag}")?,
            LogValue::Numbers(all) => {
                let all: Vec<String> = all.iter().map(u64::to_string).collect();
                write!(out, " {name}=({})", all.join(","))?;
            }
            LogValue::Problem(why) => write!(out, " {name}: {}", escape::line(why))?,
        }
    }
    writeln!(out)
}

/// One JSON object per line.
fn json(part: &LogPart, out: &mut dyn Write) -> io::Result<()> {
    let value = |value: &LogValue| match value {
        LogValue::Number(n) => Value::from(*n),
        LogValue::Flag(flag) => Value::from(*flag),
        LogValue::Numbers(all) => Value::from(all.as_slice()),
        LogValue::Problem(why) => Value::from(why.as_str()),
    };
    let mut object = Map::new();
    object.insert("part".into(), part.name.into());
    object.extend(part.values.iter().map(|(name, v)| ((*name).to_owned(), value(v))));
    writeln!(out, "{}", escape::json(&Value::Object(object).to_string()))
}
