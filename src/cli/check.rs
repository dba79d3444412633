//! `h5dir check`: problems of a file.

use super::failure::{Exit, Failure, reason};
use super::progress::{ProgressLine, percent};
use super::{text, view};
use crate::base::escape::{self, escaped};
use crate::base::remote::is_container;
use crate::config::args::CheckArgs;
use crate::config::value::Level;
use crate::fs::open::{self, Checked, Finding, Problem};
use crate::fs::{ExternalPolicy, MountSpec};
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};

/// Ranges without an owner that are printed without `--json`.
const RANGES_PRINTED: usize = 20;

/// Runs `h5dir check`.
pub(crate) fn check(args: &CheckArgs) -> Result<(), Failure> {
    // External raw data and sources of virtual datasets are data, too. Where the chunks of a
    // container are is checked in any case.
    let reads_others = args.data || is_container(&args.file);
    let external = if reads_others { ExternalPolicy::Beneath(args.external_root.clone()) } else { ExternalPolicy::Off };
    // 0: a thread for each core.
    let version = args.version.clone().map_or_else(Default::default, |version| version.0);
    let spec = MountSpec { external, version, threads: 0, ..MountSpec::new(&args.file) };
    let (located, _) = view::locate_confined(&spec, "check", Level::Error)?;
    let mut line = ProgressLine::new();
    let checked = open::check(located, args.data, &mut |p| {
        line.show(|| format!("{} objects, {} %", p.objects, percent(p.bytes, p.total)));
    });
    drop(line);
    let checked = checked.map_err(|e| Failure::open("check", &e))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = if args.json {
        writeln!(out, "{}", escape::json(&format!("{:#}", json(&spec, &checked))))
    } else {
        print(&spec, args.data, &checked, &mut out)
    };
    match printed.and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
        Err(e) => return Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e)))),
        Ok(()) => {}
    }
    match checked.count {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::General, format!("{} has a problem", escaped(&spec.file)))),
        n => Err(Failure::new(Exit::General, format!("{} has {n} problems", escaped(&spec.file)))),
    }
}

fn print(spec: &MountSpec, data: bool, checked: &Checked, out: &mut dyn Write) -> io::Result<()> {
    // One line has what was cut off.
    let past_end = |f: &&Finding| checked.cut.is_some() && f.problem == Problem::PastEnd;
    for Finding { path, object, detail, .. } in checked.findings.iter().filter(|f| !past_end(f)) {
        match (path, object) {
            (Some(path), _) => writeln!(out, "{}: {}", text::name(path), escape::line(detail))?,
            (None, Some(object)) => writeln!(out, "object at {object:#x}: {}", escape::line(detail))?,
            (None, None) => writeln!(out, "{}", escape::line(detail))?,
        }
    }
    let lost = checked.findings.iter().filter(past_end).count();
    if lost > 0 {
        writeln!(out, "{lost} structures or pieces of data are past the end (--json lists them)")?;
    }
    let unlisted =
        checked.count.saturating_add(checked.not_checked).saturating_add(checked.unnamed).saturating_sub(checked.findings.len() as u64);
    if unlisted > 0 {
        writeln!(out, "... and {unlisted} more")?;
    }
    let space = &checked.space;
    let elements = if data { format!("{} bytes of elements decoded", checked.decoded) } else { "elements not decoded (--data)".into() };
    writeln!(out, "{}: {} objects, {elements}", text::name(spec.file.as_os_str().as_encoded_bytes()), checked.objects)?;
    if let Some(note) = space.user_block_note() {
        writeln!(out, "{note}")?;
    }
    if !space.overlaps_checked {
        writeln!(out, "The file has too many extents to find all bytes that are claimed twice.")?;
    }
    if space.dead() > 0 {
        writeln!(out, "{} bytes belong to no structure and are not listed as free:", space.dead())?;
        for range in checked.dead.iter().take(RANGES_PRINTED) {
            writeln!(out, "  {} bytes at {:#x}", range.end.saturating_sub(range.start), range.start)?;
        }
        if checked.dead.len() > RANGES_PRINTED {
            writeln!(out, "  ... (--json lists them)")?;
        }
    }
    Ok(())
}

fn json(spec: &MountSpec, checked: &Checked) -> Value {
    let finding = |f: &Finding| {
        json!({
            "problem": f.problem.name(),
            "path": f.path.as_deref().map(text::json),
            "object": f.object,
            "structure": f.structure,
            "address": f.address,
            "detail": f.detail,
        })
    };
    let counts = Problem::ALL.map(|p| (p.name().to_owned(), checked.findings.iter().filter(|f| f.problem == p).count().into()));
    json!({
        "file": text::json(spec.file.as_os_str().as_encoded_bytes()),
        "problems": checked.count,
        "cut": checked.cut.map(|(len, recorded)| json!([len, recorded])),
        "not_checked": checked.not_checked,
        "unnamed": checked.unnamed,
        "listed": Value::Object(counts.into_iter().collect()),
        "findings": checked.findings.iter().map(finding).collect::<Vec<_>>(),
        "objects": checked.objects,
        "decoded": checked.decoded,
        "user_block": checked.space.user_block,
        "recorded_user_block": checked.space.recorded_user_block,
        "live": checked.space.live(),
        "free": checked.space.free,
        "dead": checked.space.dead(),
        "dead_ranges": checked.dead.iter().map(|r| json!([r.start, r.end.saturating_sub(r.start)])).collect::<Vec<_>>(),
        "overlaps_checked": checked.space.overlaps_checked,
    })
}
