//! Signals that report on a daemon or change it: SIGUSR1, SIGHUP.
//!
//! At SIGHUP the daemon reads its configuration again. It may have dropped the rights to do so; the
//! process that unmounts has them and answers with the values that would be in effect. What can be
//! changed while mounted is changed: see [`Changeable`].

use super::logging;
use crate::base::escape::{self, escaped};
use crate::config::args::MountArgs;
use crate::config::effective;
use crate::config::resolve::{self, Resolved};
use crate::config::value::Level;
use crate::fs::Operations;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Options of a mount, and how they are read again.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    args: MountArgs,
    /// Working directory when the daemon was started.
    directory: PathBuf,
    /// The configuration file.
    pub(crate) file: Option<PathBuf>,
    /// Values in effect.
    values: Map<String, Value>,
}

/// What can be changed while mounted.
pub(crate) struct Changeable<'a> {
    /// The file system: its caches.
    pub(crate) operations: &'a dyn Operations,
    /// Sets the time between commits.
    pub(crate) commit: Option<&'a Sender<Duration>>,
    /// Sets the time between checks for changes of the file.
    pub(crate) check: Option<&'a Sender<Duration>>,
    /// Sets the time between writes of measurements.
    pub(crate) metrics: Option<&'a Sender<Duration>>,
}

fn values(resolved: &Resolved) -> Map<String, Value> {
    effective::all(resolved).into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

impl Control {
    /// For a mount that was `resolved` from `args`.
    pub(crate) fn new(args: MountArgs, resolved: &Resolved) -> Control {
        let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
        Control { args, directory, file: resolved.layers.file.clone(), values: values(resolved) }
    }

    /// Reads the configuration again. Returns JSON: `values`, or the `error` as a sentence.
    ///
    /// Changes the working directory meanwhile: relative paths are those of the command line.
    pub(crate) fn read_again(&self) -> Vec<u8> {
        let _ = std::env::set_current_dir(&self.directory);
        let answer = match resolve::mount(&self.args) {
            Ok(resolved) => json!({ "values": values(&resolved) }),
            Err(e) => json!({ "error": e.0 }),
        };
        let _ = std::env::set_current_dir("/");
        answer.to_string().into_bytes()
    }

    /// Applies what can be changed of an answer of [`Control::read_again`]. Returns a sentence for
    /// the log.
    pub(crate) fn apply(&mut self, answer: &[u8], to: &Changeable<'_>) -> Result<String, String> {
        let answer: Value = serde_json::from_slice(answer).map_err(|e| format!("no answer: {e}"))?;
        let Some(new) = answer.get("values").and_then(Value::as_object) else {
            return Err(answer.get("error").and_then(Value::as_str).unwrap_or("no answer").to_owned());
        };
        let (mut changed, mut kept) = (Vec::new(), Vec::new());
        for (name, value) in new {
            let before = self.values.get(name).unwrap_or(&Value::Null);
            if before == value {
                continue;
            }
            let text = |value: &Value| effective::text(name, value);
            if to.set(name, value) {
                changed.push(format!("{name} {} -> {}", text(before), text(value)));
                self.values.insert(name.clone(), value.clone());
            } else {
                kept.push(name.as_str());
            }
        }
        let changed = if changed.is_empty() { "nothing changed".to_owned() } else { changed.join(", ") };
        let kept = if kept.is_empty() { String::new() } else { format!("; not changed until it is mounted again: {}", kept.join(", ")) };
        Ok(format!("{changed}{kept}"))
    }
}

impl Changeable<'_> {
    /// Sets the option `name`; false if it cannot be changed.
    fn set(&self, name: &str, value: &Value) -> bool {
        let seconds = || value.as_f64().and_then(|s| Duration::try_from_secs_f64(s).ok());
        let send = |to: Option<&Sender<Duration>>| to.zip(seconds()).is_some_and(|(to, every)| to.send(every).is_ok());
        match name {
            "log-level" => value.as_str().and_then(|text| text.parse::<Level>().ok()).is_some_and(logging::set_level),
            "cache-size" => value.as_u64().is_some_and(|bytes| self.operations.set_cache_bytes(bytes)),
            "commit-interval" => send(self.commit),
            "check-interval" => send(self.check),
            "metrics-interval" => send(self.metrics),
            _ => false,
        }
    }
}

/// Logs the counters of `.h5dir/status`, on one line.
pub(crate) fn report(operations: &dyn Operations) {
    let status = operations.status();
    let counters: Vec<&str> = status.lines().collect();
    tracing::info!(target: logging::REPORT, "status: {}", escape::line(&counters.join(", ")));
}

/// Logs what reading the configuration again led to; returns the sentence.
pub(crate) fn report_reload(file: Option<&PathBuf>, outcome: Result<String, String>) -> String {
    let Some(name) = file.map(|path| escaped(path).to_string()) else {
        let what = "there is no configuration file to read again";
        tracing::info!(target: logging::REPORT, "{what}");
        return what.to_owned();
    };
    match outcome {
        Ok(what) => {
            tracing::info!(target: logging::REPORT, "read {name} again: {what}");
            what
        }
        Err(why) => {
            tracing::error!("cannot read {name} again: {why}; all options stay as they are");
            why
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::args::{Cli, Command};
    use crate::fs::memory::MemoryFs;
    use clap::Parser;
    use std::sync::mpsc;

    #[test]
    fn what_can_be_changed_is_changed_and_the_rest_is_named() {
        let place = tempfile::tempdir().unwrap();
        let config = place.path().join("c.yaml");
        std::fs::write(&config, "mount: {read-write: true, commit-interval: 5}").unwrap();
        let args = ["h5dir", "mount", "--config", config.to_str().unwrap(), "/dev/null", "/m"];
        let Command::Mount(args) = Cli::try_parse_from(args).unwrap().command else { panic!() };
        let mut control = Control::new(args.clone(), &resolve::mount(&args).unwrap());
        let (commit, intervals) = mpsc::channel();
        let fs = MemoryFs::new();
        let to = Changeable { operations: &fs, commit: Some(&commit), check: None, metrics: None };
        assert_eq!(control.apply(&control.read_again(), &to), Ok("nothing changed".into()));
        std::fs::write(&config, "mount: {read-write: true, commit-interval: 1.5, uid: 7, cache-size: 64M}").unwrap();
        let outcome = control.apply(&control.read_again(), &to).unwrap();
        assert!(outcome.starts_with("commit-interval 5 -> 1.5; not changed until it is mounted again: "), "{outcome}");
        // The file system of this test has no cache.
        assert!(outcome.contains("uid") && outcome.contains("cache-size") && !outcome.contains("gid"), "{outcome}");
        assert_eq!(intervals.try_recv(), Ok(Duration::from_millis(1500)));
        std::fs::write(&config, "mount: {thread: 2}").unwrap();
        let error = control.apply(&control.read_again(), &to).unwrap_err();
        assert!(error.contains("did you mean 'threads'?"), "{error}");
    }
}
