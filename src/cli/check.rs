//! `h5dir check`: problems of a file.

use super::failure::{Exit, Failure};
use super::output::{self, Documents};
use super::progress::Meter;
use super::targets::{self, Asked, Manner};
use super::text;
use crate::base::escape::{self, escaped};
use crate::base::remote::is_container;
use crate::config::args::CheckArgs;
use crate::config::resolve;
use crate::config::target::{Target, well_named};
use crate::fs::open::{self, Checked, Finding, LocatedContainer, Problem};
use crate::fs::{ExternalPolicy, MountSpec};
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Ranges without an owner that are printed without `--json`.
const RANGES_PRINTED: usize = 20;
/// Memory for decoded chunks with `--data`, bytes. Temporary files, for chunks that are too large
/// for it, have 16 times as much.
const CACHE_BYTES: u64 = 64 << 20;

/// Runs `h5dir check`.
pub(crate) fn check(args: &CheckArgs) -> Result<(), Failure> {
    let asked = args.files.iter().map(|text| {
        let Target { file, inner } = Target::parse(text);
        let spec = spec(args, file);
        let named = well_named(&spec.file).and_then(|()| resolve::has_version(&spec.file, &spec.version));
        let found = named.map_err(Failure::from);
        let found = found.map(|()| (spec, inner.unwrap_or_else(|| b"/".to_vec())));
        Asked { text: text.as_bytes().to_vec(), found }.whole("check")
    });
    let mut out = BufWriter::new(io::stdout().lock());
    let mut documents = Documents::default();
    let checked = targets::each_container(asked.collect(), Manner::new("check"), &mut |spec, located, several| {
        check_one(args, (spec, located, several), &mut documents, &mut out)
    });
    output::ended(checked, documents.end(&mut out).and_then(|()| out.flush()))
}

fn spec(args: &CheckArgs, file: PathBuf) -> MountSpec {
    // External raw data and sources of virtual datasets are data, too. Where the chunks of a
    // container are is checked in any case.
    let reads_others = args.data || is_container(&file);
    let external = if reads_others { ExternalPolicy::Beneath(args.external_root.clone()) } else { ExternalPolicy::Off };
    // 0: a thread for each core.
    let version = args.version.clone().map_or_else(Default::default, |version| version.0);
    let cache_bytes = if args.data { CACHE_BYTES } else { 0 };
    MountSpec { external, version, cache_bytes, threads: 0, ..MountSpec::new(file) }
}

/// Checks one container, and prints what was found.
fn check_one(
    args: &CheckArgs,
    (spec, located, several): (&MountSpec, LocatedContainer, bool),
    documents: &mut Documents,
    out: &mut dyn Write,
) -> Result<ControlFlow<()>, Failure> {
    let mut meter = Meter::new();
    let checked = open::check(located, args.data, &mut |p| {
        meter.show(p.bytes, p.total, || format!("{} objects", p.objects));
    });
    drop(meter);
    let checked = checked.map_err(|e| Failure::open("check", &e))?;
    let printed = match args.json {
        true => documents.add(&json(spec, &checked), several, out),
        false => print((spec, several), args.data, &checked, out),
    };
    if output::printed(printed.and_then(|()| out.flush()))?.is_break() {
        return Ok(ControlFlow::Break(()));
    }
    // The first finding has the lengths.
    if checked.cut.is_some() {
        let advice = "'h5dir mount --rescue' shows what is left";
        return Err(Failure::new(Exit::General, format!("{} was cut; {advice}", escaped(&spec.file))));
    }
    match checked.count {
        0 => Ok(ControlFlow::Continue(())),
        1 => Err(Failure::new(Exit::General, format!("{} has a problem", escaped(&spec.file)))),
        n => Err(Failure::new(Exit::General, format!("{} has {n} problems", escaped(&spec.file)))),
    }
}

/// Prints what was found; paths have the name of their file before them if it is one of several.
fn print((spec, several): (&MountSpec, bool), data: bool, checked: &Checked, out: &mut dyn Write) -> io::Result<()> {
    let file = text::name(spec.file.as_os_str().as_encoded_bytes());
    let before = if several { format!("{file}:") } else { String::new() };
    // One line has what was cut off.
    let past_end = |f: &&Finding| checked.cut.is_some() && f.problem == Problem::PastEnd;
    for Finding { path, object, detail, .. } in checked.findings.iter().filter(|f| !past_end(f)) {
        match (path, object) {
            (Some(path), _) => writeln!(out, "{before}{}: {}", text::name(path), escape::line(detail))?,
            (None, Some(object)) => writeln!(out, "{before}object at {object:#x}: {}", escape::line(detail))?,
            (None, None) => writeln!(out, "{before}{}", escape::line(detail))?,
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
    writeln!(out, "{file}: {} objects, {elements}", checked.objects)?;
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
