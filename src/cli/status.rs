//! `h5dir status`: the mounts of this machine, or the counters of one.

use super::failure::{Exit, Failure, reason};
use super::hints::DEAD_MOUNT;
use super::{text, umount};
use crate::base::escape::{self, escaped};
use crate::config::args::StatusArgs;
use crate::fuse::mounts::{self, Mount};
use crate::fuse::{daemon_liveness, mountpoint};
use serde_json::{Map, Value, json};
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::time::Duration;

/// Time between two looks with `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for an answer of one mount of the list.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes of the counters.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Seconds of the larger units of an age, and their names.
const UNITS: [(u64, &str); 3] = [(86400, "d"), (3600, "h"), (60, "min")];

/// A mount and its daemon.
struct MountState {
    mount: Mount,
    /// The daemon has ended without unmounting.
    is_dead: bool,
    /// Number of the daemon's process.
    pid: Option<i32>,
    age: Option<Duration>,
}

impl MountState {
    fn of(mount: Mount) -> Self {
        let daemon = daemon_liveness::find(&mount);
        let is_dead = umount::is_dead_within(&mount.mountpoint, ANSWER_TIMEOUT);
        let (pid, age) = if is_dead { (None, None) } else { (daemon.pid(), daemon.age()) };
        MountState { mount, is_dead, pid, age }
    }

    fn words(&self) -> String {
        let access = if self.mount.read_only { "ro" } else { "rw" };
        let dead = self.is_dead.then(|| "dead: its daemon has ended; 'h5dir umount' removes it".to_owned());
        let pid = self.pid.map(|pid| format!("pid {pid}"));
        [Some(access.to_owned()), dead, pid, self.age.map(age)].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// An age in its largest unit.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let unit = UNITS.into_iter().find_map(|(of, name)| Some((seconds.checked_div(of).filter(|n| *n > 0)?, name)));
    unit.map_or_else(|| format!("{seconds} s"), |(n, name)| format!("{n} {name}"))
}

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
    let all: Vec<MountState> = all.into_iter().map(MountState::of).collect();
    let mut out = io::stdout().lock();
    let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    if as_json {
        let one = |state: &MountState| {
            json!({
                "mountpoint": text::json(&bytes(&state.mount.mountpoint)),
                "source": text::json(state.mount.source.as_encoded_bytes()),
                "user": state.mount.owner,
                "read_only": state.mount.read_only,
                "dead": state.is_dead,
                "pid": state.pid,
                "age_seconds": state.age.map(|age| age.as_secs()),
            })
        };
        let text = format!("{:#}", Value::Array(all.iter().map(one).collect()));
        return Ok(writeln!(out, "{}", escape::json(&text))?);
    }
    for state in all {
        let (source, at) = (text::name(state.mount.source.as_encoded_bytes()), text::name(&bytes(&state.mount.mountpoint)));
        writeln!(out, "{source} on {at} ({})", state.words())?;
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
        read.map_err(|e| match e.raw_os_error() {
            Some(libc::ENOTCONN | libc::ECONNABORTED) => failed(DEAD_MOUNT.into()),
            Some(libc::ENOENT) => failed("the mount does not have .h5dir/status; mount it with 'status' in --views".into()),
            _ => failed(reason(&e)),
        })?;
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
    fn an_age_is_in_its_largest_unit() {
        let ages = [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7300, "2 h"), (864_000, "10 d")];
        ages.into_iter().for_each(|(seconds, text)| assert_eq!(age(Duration::from_secs(seconds)), text));
    }

    #[test]
    fn counters_are_aligned_or_json() {
        let text = "version 0.1.0\nfile /a b.h5\ncache_bytes 12\n";
        assert_eq!(aligned(text), "version      0.1.0\nfile         /a b.h5\ncache_bytes  12\n");
        let json: Value = serde_json::from_str(&as_json(text)).unwrap();
        assert_eq!(json, json!({"version": "0.1.0", "file": "/a b.h5", "cache_bytes": 12}));
    }
}
