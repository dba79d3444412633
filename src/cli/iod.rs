//! `h5dir iod`: versions of a container in an object store, and what is stored in one.

use super::failure::{Exit, Failure, reason};
use super::{iod_text, iod_versions, text, view};
use crate::base::escape;
use crate::config::iod_args::{IodArgs, IodCommand, IodGcArgs, IodLogArgs};
use crate::config::resolve;
use crate::config::value::Level;
use crate::fs::MountSpec;
use crate::fs::open::{self, Collected, Collection, Keep};
use crate::fs::spec::VersionName;
use serde_json::json;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::time::{Duration, UNIX_EPOCH};

/// Runs `h5dir iod`.
pub(crate) fn iod(args: &IodArgs) -> Result<(), Failure> {
    let (container, version) = match &args.command {
        IodCommand::Gc(args) => return collect(args),
        IodCommand::Tag(args) => return iod_versions::tag(args),
        IodCommand::Diff(args) => return iod_versions::diff(args),
        IodCommand::Revert(args) => return iod_versions::revert(args),
        IodCommand::Log(args) => (&args.container, VersionName::Newest),
        IodCommand::Dump(args) => (&args.container, args.version.as_ref().map(|v| v.0.clone()).unwrap_or_default()),
    };
    let spec = MountSpec { version, ..MountSpec::new(resolve::absolute_name(container)) };
    let (located, _) = view::locate_confined(&spec, "read", Level::Warn)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut written = Ok(());
    let mut line = |text: &str| {
        written = writeln!(out, "{}", escape::line(text));
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let done = match &args.command {
        IodCommand::Log(IodLogArgs { json: true, .. }) => open::log(located, &mut |version| {
            let row = json!({
                "version": version.number,
                "time": text::timestamp(UNIX_EPOCH + Duration::from_secs(version.seconds.min(u32::MAX.into()))),
                "begins_session": version.session == 0,
                "changes": version.changes,
                "label": text::json(&version.label),
            });
            line(&escape::json(&row.to_string()))
        }),
        IodCommand::Dump(_) => {
            let mut object = None;
            open::values(located, &mut |value| {
                let new = object.replace(value.object) != Some(value.object);
                let heading = if new { line(&iod_text::heading(&value)) } else { ControlFlow::Continue(()) };
                if heading.is_break() { heading } else { line(&iod_text::stored(&value)) }
            })
        }
        _ => open::log(located, &mut |version| {
            let time = text::timestamp(UNIX_EPOCH + Duration::from_secs(version.seconds.min(u32::MAX.into())));
            let what = if version.session == 0 { "begins a session".to_owned() } else { format!("{} changes", version.changes) };
            let label = escape::escaped_bytes(&version.label).to_string();
            line(&format!("{:>8}  {time}  {what}, {label}", version.number))
        }),
    };
    done.map_err(|e| Failure::open("read", &e))?;
    match written.and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e))))
        }
        _ => Ok(()),
    }
}

/// Seconds of a day.
const DAY: u64 = 86_400;

/// Runs `h5dir iod gc`.
fn collect(args: &IodGcArgs) -> Result<(), Failure> {
    let spec = MountSpec::writable(resolve::absolute_name(&args.container));
    let (located, _) = view::locate_confined(&spec, "read", Level::Warn)?;
    let keep = match args.keep_versions {
        Some(count) => Keep::Versions(count),
        None => Keep::Seconds(u64::from(args.keep.unwrap_or(30)).saturating_mul(DAY)),
    };
    let grace = args.grace.0.as_secs();
    if grace == 0 && !args.dry_run {
        tracing::warn!("--grace 0: mounts without a pin may lose the version that they show");
    }
    let done = open::collect(located, &Collection { keep, grace, dry_run: args.dry_run });
    let done = done.map_err(|e| Failure::open("collect the garbage of", &e))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let written = match args.json {
        true => writeln!(out, "{}", escape::json(&format!("{:#}", collected_json(&done, args.dry_run)))),
        false => print(&mut out, &done, args.dry_run),
    };
    let written = written.and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e))))
        }
        _ => Ok(()),
    }
}

fn collected_json(done: &Collected, dry_run: bool) -> serde_json::Value {
    json!({
        "dry_run": dry_run,
        "newest": done.newest,
        "floor": done.floor,
        "deleted": {"versions": done.versions, "packs": done.packs, "others": done.others},
        "waiting_versions": done.waiting,
        "doomed_packs": done.doomed,
        "rewritten_packs": done.rewritten,
        "notes": done.notes,
    })
}

fn print(out: &mut impl Write, done: &Collected, dry_run: bool) -> io::Result<()> {
    let Collected { newest, floor, versions, packs, others, doomed, waiting, rewritten, notes } = done;
    writeln!(out, "versions {floor} to {newest} are kept, and tagged ones")?;
    if !dry_run {
        writeln!(out, "deleted: {versions} records and checkpoints, {packs} packs, {others} other objects")?;
    }
    if *doomed > 0 || *waiting > 0 {
        let when = if dry_run { "a run would publish, and delete after the grace" } else { "a run after the grace deletes" };
        writeln!(out, "{when}: {waiting} versions, {doomed} packs")?;
    }
    if *rewritten > 0 {
        writeln!(out, "rewritten: {rewritten} packs of which less than half was needed")?;
    }
    notes.iter().try_for_each(|note| writeln!(out, "{}", escape::line(note)))
}
