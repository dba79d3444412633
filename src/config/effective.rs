//! The values that the options of a mount have in effect.

use super::resolve::Resolved;
use super::value::{LogFormat, Transaction};
use crate::fs::create_rules::{CreateRule, NamePattern};
use crate::fs::spec::{ExternalPolicy, Modes, TransactionUse, VersionName};
use crate::fuse::Access;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Names and values of all options, in alphabetical order. `null`: no file.
pub(crate) fn options(resolved: &Resolved) -> Vec<(&'static str, Value)> {
    let Resolved { spec, plan, .. } = resolved;
    let mirror = resolved.mirror_options();
    let (root, beneath, written) = match &spec.external {
        ExternalPolicy::Off => (None, false, false),
        ExternalPolicy::Beneath(root) => (root.as_deref(), true, false),
        ExternalPolicy::Written(root) => (Some(root.as_path()), true, true),
    };
    let session = &plan.session;
    let modes = match spec.modes {
        Modes::Stored => "stored",
        Modes::All => "all",
        Modes::Fixed => "fixed",
    };
    vec![
        ("allow-other", (session.access == Access::Everyone).into()),
        ("allow-root", (session.access == Access::OwnerAndRoot).into()),
        ("anonymous", spec.remote.anonymous.into()),
        ("attr-timeout", seconds(Some(session.times.attr))),
        ("cache-dir", path(spec.remote.cache_dir.as_deref())),
        ("cache-dir-size", spec.remote.cache_dir_bytes.into()),
        ("cache-size", spec.cache_bytes.into()),
        ("check-interval", seconds(plan.check_interval)),
        ("commit-interval", seconds(plan.commit_interval)),
        ("commit-on-close", spec.commit_on_close.into()),
        ("dir-mode", mode(spec.dir_mode)),
        ("entry-timeout", seconds(Some(session.times.entry))),
        ("exclude", patterns(&mirror.exclude)),
        ("external", if spec.external_hidden && beneath { "all".into() } else { beneath.into() }),
        ("external-root", path(root)),
        ("external-write", written.into()),
        ("file-mode", mode(spec.file_mode)),
        ("foreground", plan.foreground.into()),
        ("gid", spec.gid.into()),
        ("idle-timeout", seconds(Some(mirror.idle))),
        ("include", patterns(&mirror.include)),
        ("keep-types", spec.keep_types.into()),
        ("log", if spec.raw_log { "raw" } else { "datasets" }.into()),
        ("log-file", path(plan.log.file.as_deref())),
        ("log-format", if plan.log.format == LogFormat::Json { "json" } else { "text" }.into()),
        ("log-level", plan.log.level.name().into()),
        ("log-writer", spec.log_writer.map_or(Value::Null, Into::into)),
        ("max-open", mirror.open_max.into()),
        ("metrics-file", path(plan.metrics.as_ref().map(|m| m.file.as_path()))),
        ("metrics-interval", seconds(Some(plan.metrics.as_ref().map_or(super::resolve::DEFAULT_METRICS_INTERVAL, |m| m.every)))),
        ("mirror-names", mirror.naming.name().into()),
        ("modes", modes.into()),
        ("no-sandbox", (!plan.sandbox).into()),
        ("noexec", session.noexec.into()),
        ("pin", seconds(spec.pin)),
        ("read-only", session.read_only.into()),
        ("read-write", (!session.read_only).into()),
        ("readahead", session.readahead.into()),
        ("remote-timeout", seconds(Some(spec.remote.timeout))),
        ("rescue", spec.rescue.into()),
        ("stay-awake", session.stay_awake.into()),
        ("swmr", spec.swmr.into()),
        ("threads", session.threads.into()),
        ("transaction", transaction(spec.transaction.as_ref())),
        ("uid", spec.uid.into()),
        ("umask", mode(spec.umask)),
        ("vds-missing", if spec.vds_missing_fill { "fill" } else { "error" }.into()),
        ("version", version(&spec.version)),
        ("views", spec.views.to_string().into()),
    ]
}

/// A version as its option takes it.
fn version(name: &VersionName) -> Value {
    match name {
        VersionName::Number(number) => (*number).into(),
        other => other.to_string().into(),
    }
}

/// Everything that a mount is: its options, its source, its mountpoint and its rules.
pub(crate) fn all(resolved: &Resolved) -> Vec<(&'static str, Value)> {
    let Resolved { spec, plan, .. } = resolved;
    let rule = |rule: &CreateRule| json!({"pattern": rule.pattern.text(), "dataset": rule.description});
    let mut all = vec![
        ("source", plan.session.source.as_str().into()),
        ("at", path(Some(&plan.session.mountpoint))),
        ("create", spec.create.iter().map(rule).collect()),
    ];
    all.extend(options(resolved));
    all
}

/// A value on one line. Sizes have a unit if they are a multiple of one.
pub(crate) fn text(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::Bool(on) => if *on { "on" } else { "off" }.into(),
        Value::String(text) => text.clone(),
        Value::Number(n) if matches!(name, "cache-dir-size" | "cache-size" | "readahead") => n.as_u64().map_or_else(|| n.to_string(), size),
        other => other.to_string(),
    }
}

fn size(bytes: u64) -> String {
    let unit = [(30, 'G'), (20, 'M'), (10, 'K')].into_iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// Seconds, whole if they can be; `None` is 0: never.
fn seconds(time: Option<Duration>) -> Value {
    match time.unwrap_or_default() {
        whole if whole.subsec_nanos() == 0 => whole.as_secs().into(),
        part => part.as_secs_f64().into(),
    }
}

fn transaction(given: Option<&TransactionUse>) -> Value {
    match given {
        Some(TransactionUse::Peer { spec, peer }) => Transaction { spec: spec.clone(), peer: *peer }.to_string().into(),
        Some(TransactionUse::Manage) | None => Value::Null,
    }
}

fn patterns(all: &[NamePattern]) -> Value {
    let texts: Vec<&str> = all.iter().map(NamePattern::text).collect();
    if texts.is_empty() { Value::Null } else { texts.join(",").into() }
}

fn mode(bits: u16) -> Value {
    format!("{bits:04o}").into()
}

fn path(path: Option<&Path>) -> Value {
    path.map_or(Value::Null, |path| path.to_string_lossy().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::args::{Cli, Command};
    use crate::config::options::LongOptions;
    use crate::config::resolve;
    use clap::{Arg, CommandFactory, Parser};

    fn of(args: &[&str]) -> Vec<(&'static str, String)> {
        let cli = Cli::try_parse_from([&["h5dir", "mount", "/dev/null", "/m"], args].concat()).unwrap();
        let Command::Mount(args) = cli.command else { panic!() };
        let resolved = resolve::mount(&args).unwrap();
        options(&resolved).into_iter().map(|(name, value)| (name, text(name, &value))).collect()
    }

    #[test]
    fn every_option_has_a_value() {
        let command = LongOptions::command();
        let mut names: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
        names.sort_unstable();
        assert_eq!(of(&[]).iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    }

    /// Options that change the value of another one show it.
    #[test]
    fn values_are_those_in_effect() {
        let given = ["--read-write", "--umask=022", "--cache-size=1536M", "--allow-other", "--commit-interval=0.5", "--metrics-file=/m/x"];
        let all = of(&given);
        let value = |name: &str| all.iter().find(|(other, _)| *other == name).unwrap().1.as_str();
        for (name, wanted) in [
            ("read-only", "off"),
            ("file-mode", "0644"),
            ("dir-mode", "0755"),
            ("umask", "0022"),
            ("cache-size", "1536M"),
            ("external", "off"),
            ("check-interval", "0"),
            ("commit-interval", "0.5"),
            ("attr-timeout", "1"),
            ("metrics-file", "/m/x"),
            ("metrics-interval", "15"),
            ("log-file", "none"),
            ("readahead", "1M"),
        ] {
            assert_eq!(value(name), wanted, "{name}");
        }
        assert_eq!([0, 1, 1 << 10, 3 << 20, (1 << 30) + 1].map(size), ["0", "1", "1K", "3M", "1073741825"]);
    }

    /// A file with the values in effect has the same effect.
    #[test]
    fn values_can_be_given_again() {
        for args in [
            &[][..],
            &["--read-write", "--allow-root"],
            &["--umask=027"],
            &["--external-root=/tmp"],
            &["--read-write", "--transaction=t,peers=2,base=next,after=a"],
        ] {
            let all = of(args);
            let contradicts = |name: &str| matches!(name, "umask" | "read-only" | "foreground");
            let again: Vec<String> = all
                .iter()
                .filter(|(name, value)| value != "none" && !contradicts(name))
                .map(|(name, value)| format!("--{name}={value}"))
                .collect();
            let again: Vec<&str> = again.iter().map(String::as_str).collect();
            let rest = |all: &[(&'static str, String)]| all.iter().filter(|(name, _)| *name != "umask").cloned().collect::<Vec<_>>();
            assert_eq!(rest(&of(&again)), rest(&all), "{args:?}");
        }
    }
}
