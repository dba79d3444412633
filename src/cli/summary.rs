//! `h5dir summary`: statistics of the numbers of datasets, without mounting.

use super::attr::{failure, open_object};
use super::failure::{Exit, Failure, reason};
use super::process;
use super::progress::ProgressLine;
use super::selection::SelectionFiles;
use super::text;
use crate::base::Error;
use crate::base::escape::escaped_bytes;
use crate::config::attr_args::SummaryArgs;
use crate::fs::model::{BARS, Statistics, io_error};
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

/// Longest bar, characters.
const BAR_MAX: u64 = 40;

/// Runs `h5dir summary`.
pub(crate) fn summary(args: &SummaryArgs) -> Result<(), Failure> {
    let selection = SelectionFiles::open(args.select.as_deref())?;
    let (_container, object) = open_object(&args.target, false)?;
    let (mut line, mut bytes) = (ProgressLine::new(), 0u64);
    let found = object.statistics(selection.text(), &mut |read| {
        bytes = bytes.saturating_add(read);
        line.show(|| format!("{} MiB", bytes >> 20));
        if process::is_interrupted() { Err(Error::refused(libc::EINTR, "interrupted")) } else { Ok(()) }
    });
    line.clear();
    let found = found.map_err(|e| failure(&args.target, &io_error(&e)))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = match args.json {
        true => writeln!(out, "{}", json(&found, args.target.object.as_bytes())),
        false => print(&found, args.target.object.as_bytes(), &mut out),
    };
    match printed.and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e)))),
        Ok(()) => Ok(()),
    }
}

fn json(s: &Statistics, object: &[u8]) -> Value {
    let number = |x: f64| (!s.histogram.is_empty()).then_some(x);
    json!({
        "object": text::json(object),
        "count": s.count,
        "nan": s.nans,
        "infinite": s.infinite,
        "min": s.range.as_ref().map(|(low, _)| low),
        "max": s.range.as_ref().map(|(_, high)| high),
        "mean": number(s.mean),
        "std": number(s.deviation),
        "histogram": {"from": number(s.limits.0), "to": number(s.limits.1), "counts": s.histogram},
    })
}

fn print(s: &Statistics, object: &[u8], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", escaped_bytes(object))?;
    let mut line = |name: &str, value: String| writeln!(out, "{name:>10}  {value}");
    line("elements", s.count.to_string())?;
    if s.nans > 0 {
        line("NaN", s.nans.to_string())?;
    }
    if s.infinite > 0 {
        line("infinite", s.infinite.to_string())?;
    }
    let Some((low, high)) = &s.range else { return Ok(()) };
    line("min", low.clone())?;
    line("max", high.clone())?;
    if s.histogram.is_empty() {
        return Ok(());
    }
    line("mean", format!("{:?}", s.mean))?;
    line("std", format!("{:?}", s.deviation))?;
    let most = s.histogram.iter().copied().max().unwrap_or(1).max(1);
    for (i, n) in s.histogram.iter().enumerate() {
        let part = i as f64 / BARS as f64;
        let from = s.limits.0 * (1.0 - part) + s.limits.1 * part;
        // Any number has a mark.
        let length = n.saturating_mul(BAR_MAX).checked_div(most).unwrap_or(0).max(u64::from(*n > 0));
        let shown = if from == 0.0 || (1e-3..1e7).contains(&from.abs()) { format!("{from:.4}") } else { format!("{from:.4e}") };
        writeln!(out, "{shown:>12} {:<40} {n}", "#".repeat(usize::try_from(length).unwrap_or(0)))?;
    }
    Ok(())
}
