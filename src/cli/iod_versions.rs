//! `h5dir iod tag`, `diff` and `revert`: names of versions, what differs, and the way back.

use super::failure::{Exit, Failure, reason};
use super::{iod_text, text, view};
use crate::base::Error;
use crate::base::escape::{self, escaped};
use crate::config::iod_args::{IodDiffArgs, IodRevertArgs, IodTagArgs};
use crate::config::resolve;
use crate::config::value::{Level, Version};
use crate::fs::open::{self, LocatedContainer};
use crate::fs::spec::VersionName;
use crate::fs::{MountSpec, OpenError};
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

fn located(container: &Path, verb: &str, writable: bool) -> Result<LocatedContainer, Failure> {
    let spec = MountSpec { writable, ..MountSpec::new(resolve::absolute_name(container)) };
    view::locate_confined(&spec, verb, Level::Warn).map(|(located, _)| located)
}

/// What cannot be done with a container is no trouble with it.
fn failed(verb: &str) -> impl Fn(OpenError) -> Failure + '_ {
    move |e| match &e {
        OpenError::Engine { path, source: source @ Error::Refused { .. } } => {
            Failure::new(Exit::General, format!("cannot {verb} {}: {source}", escaped(path)))
        }
        _ => Failure::open(verb, &e),
    }
}

/// Prints lines. A closed pipe is no failure.
fn print(lines: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = lines.into_iter().try_for_each(|line| writeln!(out, "{}", escape::line(&line)));
    match written.and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e))))
        }
        _ => Ok(()),
    }
}

/// Prints a JSON document.
fn print_json(document: &Value) -> Result<(), Failure> {
    print([escape::json(&document.to_string()).into_owned()])
}

/// The version that an argument names; without one, the newest.
fn named(version: Option<&Version>) -> VersionName {
    version.map(|v| v.0.clone()).unwrap_or_default()
}

/// Runs `h5dir iod tag`.
pub(super) fn tag(args: &IodTagArgs) -> Result<(), Failure> {
    if let Some(name) = &args.delete {
        open::remove_tag(located(&args.container, "change", true)?, name).map_err(failed("change"))?;
        return if args.json { print_json(&json!({"tag": name, "version": null})) } else { Ok(()) };
    }
    let Some(name) = &args.name else {
        let tags = open::tags(located(&args.container, "read", false)?).map_err(failed("read"))?;
        if args.json {
            let row = |(name, tag): &(String, open::Tag)| {
                let time = text::timestamp(UNIX_EPOCH + Duration::from_secs(tag.seconds.min(u32::MAX.into())));
                json!({"tag": name, "version": tag.version, "time": time, "label": text::json(tag.label.as_ref())})
            };
            return print_json(&tags.iter().map(row).collect());
        }
        return print(tags.iter().map(|(name, tag)| {
            let time = text::timestamp(UNIX_EPOCH + Duration::from_secs(tag.seconds.min(u32::MAX.into())));
            format!("{name}  {}  {time}  {}", tag.version, escape::escaped_bytes(&tag.label))
        }));
    };
    let located = located(&args.container, "change", true)?;
    let version = open::create_tag(located, name, &named(args.version.as_ref())).map_err(failed("change"))?;
    if args.json { print_json(&json!({"tag": name, "version": version})) } else { print([format!("{name} is version {version}")]) }
}

/// Runs `h5dir iod diff`.
pub(super) fn diff(args: &IodDiffArgs) -> Result<(), Failure> {
    let located = located(&args.container, "read", false)?;
    let objects = open::version_diff(located, &args.from.0, &named(args.to.as_ref())).map_err(failed("read"))?;
    if args.json {
        let all = serde_json::Value::Array(objects.iter().map(iod_text::object_json).collect());
        return print([all.to_string()]);
    }
    print(objects.iter().flat_map(iod_text::lines))
}

/// Runs `h5dir iod revert`.
pub(super) fn revert(args: &IodRevertArgs) -> Result<(), Failure> {
    let (located, version) = (located(&args.container, "change", true)?, &args.version.0);
    match open::revert(located, version).map_err(failed("change"))? {
        Some(number) => print([format!("version {number} has the content of {version}")]),
        None => print([format!("the newest version has the content of {version} already")]),
    }
}
