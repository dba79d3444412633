//! `h5dir status`: the mounts of this machine, or the counters of one.

use super::failure::{Exit, Failure, reason};
use super::text;
use crate::base::escape::{self, escaped};
use crate::config::args::StatusArgs;
use crate::fuse::mountpoint;
use crate::fuse::mounts::{self, Mount};
use serde_json::{Map, Value, json};
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::time::Duration;

/// Time between two looks with `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Most bytes of the counters.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Runs `h5dir status`.
pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let printed = match &args.mountpoint {
        None => list(args.json),
        Some(path) => one(path, args),
    };
    match printed {
        Err(Problem::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(Problem::Output(e)) => Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e)))),
        Err(Problem::Failure(failure)) => Err(failure),
        Ok(()) => Ok(()),
    }
}

enum Problem {
    Output(io::Error),
    Failure(Failure),
}

impl From<io::Error> for Problem {
    fn from(e: io::Error) -> Self {
        Problem::Output(e)
    }
}

fn general(message: String) -> Problem {
    Problem::Failure(Failure::new(Exit::General, message))
}

fn list(as_json: bool) -> Result<(), Problem> {
    let all = mounts::ours().map_err(|e| general(format!("cannot read the mount table: {}", reason(&e))))?;
    let mut out = io::stdout().lock();
    let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    if as_json {
        let one = |m: &Mount| {
            json!({
                "mountpoint": text::json(&bytes(&m.mountpoint)),
                "source": text::json(m.source.as_encoded_bytes()),
                "user": m.owner,
            })
        };
        let text = format!("{:#}", Value::Array(all.iter().map(one).collect()));
        return Ok(writeln!(out, "{}", escape::json(&text))?);
    }
    for m in all {
        writeln!(out, "{} on {}", text::name(m.source.as_encoded_bytes()), text::name(&bytes(&m.mountpoint)))?;
    }
    Ok(())
}

fn one(path: &Path, args: &StatusArgs) -> Result<(), Problem> {
    let failed = |what: String| Problem::Failure(Failure::new(Exit::Mount, format!("cannot read the status of {}: {what}", escaped(path))));
    let resolved = mountpoint::resolve(path).map_err(|e| failed(reason(&e)))?;
    let mount = mounts::top_at(&resolved).map_err(|e| failed(reason(&e)))?.filter(Mount::is_ours);
    if mount.is_none() {
        return Err(failed("it is no mountpoint of h5dir; 'h5dir status' lists them".into()));
    }
    let file = resolved.join(".h5dir/status");
    let mut out = io::stdout().lock();
    loop {
        let mut text = String::new();
        let read = std::fs::File::open(&file).and_then(|f| f.take(TEXT_BYTES_MAX).read_to_string(&mut text));
        read.map_err(|e| failed(reason(&e)))?;
        let shown = if args.json { as_json(&text) } else { aligned(&text) };
        let clear = if args.watch && out.is_terminal() { "\x1b[H\x1b[J" } else { "" };
        write!(out, "{clear}{shown}")?;
        out.flush()?;
        if !args.watch {
            return Ok(());
        }
        std::thread::sleep(WATCH_INTERVAL);
    }
}

fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.split_once(' '))
}

/// Names on the left, values on the right.
fn aligned(text: &str) -> String {
    let width = pairs(text).map(|(name, _)| name.len()).max().unwrap_or(0);
    pairs(text).map(|(name, value)| format!("{name:<width$}  {}\n", escape::line(value))).collect()
}

fn as_json(text: &str) -> String {
    let value = |value: &str| value.parse::<u64>().map_or_else(|_| Value::from(value), Value::from);
    let map: Map<String, Value> = pairs(text).map(|(name, of)| (name.to_owned(), value(of))).collect();
    format!("{}\n", escape::json(&format!("{:#}", Value::Object(map))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_aligned_or_json() {
        let text = "version 0.1.0\nfile /a b.h5\ncache_bytes 12\n";
        assert_eq!(aligned(text), "version      0.1.0\nfile         /a b.h5\ncache_bytes  12\n");
        let json: Value = serde_json::from_str(&as_json(text)).unwrap();
        assert_eq!(json, json!({"version": "0.1.0", "file": "/a b.h5", "cache_bytes": 12}));
    }
}
