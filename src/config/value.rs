//! Types of option values, parsed from the same text on the command line, in `-o` and in YAML.

use crate::fs::create_rules::NamePattern;
use crate::fs::spec::{Base, Modes, TransactionSpec, VersionName};
use crate::mirror::Naming;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Longest timeout, seconds (ten years).
const TIMEOUT_SECONDS_MAX: f64 = 10.0 * 365.0 * 86_400.0;

/// A number of bytes: `4096`, `64K`, `512M`, `1.5G`; the units are powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// `on` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switch(pub(crate) bool);

/// Which of the files that a container names are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExternalFiles {
    /// None.
    Off,
    /// All but hidden ones.
    Visible,
    /// All.
    All,
}

/// A duration, in seconds with an optional fraction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seconds(pub(crate) Duration);

/// Permission bits, octal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode(pub(crate) u16);

/// A user, by number or name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User(pub(crate) u32);

/// A group, by number or name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group(pub(crate) u32);

/// A number of threads, 1 to 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Threads(pub(crate) usize);

/// Number of a log writer, 1 to 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriterNumber(pub(crate) u32);

/// A number of containers, 1 to 1,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Containers(pub(crate) usize);

/// A version of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version(pub(crate) VersionName);

/// How a mount is a peer of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transaction {
    /// The transaction.
    pub(crate) spec: TransactionSpec,
    /// Number of the peer, if it is given.
    pub(crate) peer: Option<u32>,
}

/// The version that a transaction begins with: `last`, `next`, or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BaseVersion(pub(crate) Base);

/// Patterns of names, separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Patterns(pub(crate) Vec<NamePattern>);

/// What is shown of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogView {
    /// The datasets in it.
    Datasets,
    /// Its objects.
    Raw,
}

/// Result of reading a missing source of a virtual dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VdsMissing {
    /// `EIO`.
    Error,
    /// The fill value.
    Fill,
}

/// Log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Nothing.
    Off,
    /// Failures.
    Error,
    /// Failures and unexpected states.
    Warn,
    /// Also mounting and unmounting.
    Info,
    /// Also decisions.
    Debug,
    /// Also every request.
    Trace,
}

/// Oldest libhdf5 that can use a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LibVer {
    /// Every release.
    Earliest,
    /// Release 1.10.
    V110,
}

/// How a log is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogForm {
    /// Records of writes.
    Records,
    /// As the released log VOL does.
    Released,
}

impl Level {
    /// All levels, from the least to the most that is logged.
    pub(crate) const ALL: [Level; 6] = [Level::Off, Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];

    /// Name of the level as an option value.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Off => "off",
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        }
    }
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || "expected a number of bytes such as 64K, 512M or 1.5G".to_owned();
        let upper = text.trim().to_ascii_uppercase();
        let unit = upper.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = upper.strip_suffix(unit).unwrap_or_default();
        let shift = match unit {
            "" | "B" => 0,
            "K" | "KB" | "KIB" => 10,
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            "T" | "TB" | "TIB" => 40,
            _ => return Err(bad()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(1 << shift).map(Size).ok_or_else(|| "too large".to_owned());
        }
        // f64 is exact up to 2^53 bytes, more than any size in use.
        let bytes = number.parse::<f64>().map_err(|_| bad())? * f64::from(1u32 << (shift / 2)) * f64::from(1u32 << (shift / 2));
        if (0.0..9e15).contains(&bytes) { Ok(Size(bytes.round() as u64)) } else { Err("too large".to_owned()) }
    }
}

impl FromStr for LibVer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "earliest" => Ok(LibVer::Earliest),
            "v110" => Ok(LibVer::V110),
            _ => Err("expected earliest or v110".to_owned()),
        }
    }
}

impl FromStr for LogForm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "records" => Ok(LogForm::Records),
            "released" => Ok(LogForm::Released),
            _ => Err("expected records or released".to_owned()),
        }
    }
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" => Ok(Switch(true)),
            "off" | "false" | "no" | "0" => Ok(Switch(false)),
            _ => Err("expected on or off".to_owned()),
        }
    }
}

impl FromStr for ExternalFiles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<Switch>() {
            Ok(Switch(true)) => Ok(ExternalFiles::Visible),
            Ok(Switch(false)) => Ok(ExternalFiles::Off),
            Err(_) if text.eq_ignore_ascii_case("all") => Ok(ExternalFiles::All),
            Err(_) => Err("expected on, off or all".to_owned()),
        }
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = text.parse::<f64>().ok().filter(|s| (0.0..=TIMEOUT_SECONDS_MAX).contains(s));
        let duration = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
        duration.map(Seconds).ok_or_else(|| "expected seconds, from 0 to ten years".to_owned())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        let mode = u16::from_str_radix(digits, 8).ok().filter(|m| *m <= 0o777 && !digits.starts_with('+'));
        mode.map(Mode).ok_or_else(|| "expected an octal mode from 0 to 777, e.g. 0444".to_owned())
    }
}

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(id) = text.parse() {
            return Ok(User(id));
        }
        let user = nix::unistd::User::from_name(text).ok().flatten();
        user.map(|u| User(u.uid.as_raw())).ok_or_else(|| "no such user".to_owned())
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(id) = text.parse() {
            return Ok(Group(id));
        }
        let group = nix::unistd::Group::from_name(text).ok().flatten();
        group.map(|g| Group(g.gid.as_raw())).ok_or_else(|| "no such group".to_owned())
    }
}

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let n = text.parse().ok().filter(|n| (1..=256).contains(n));
        n.map(Threads).ok_or_else(|| "expected a number from 1 to 256".to_owned())
    }
}

impl FromStr for WriterNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let n = text.parse().ok().filter(|n| (1..=1024).contains(n));
        n.map(WriterNumber).ok_or_else(|| "expected a number from 1 to 1024".to_owned())
    }
}

impl FromStr for Containers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let n = text.parse().ok().filter(|n| (1..=1_000_000).contains(n));
        n.map(Containers).ok_or_else(|| "expected a number from 1 to 1000000".to_owned())
    }
}

impl FromStr for Patterns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(NamePattern::new).collect::<Result<_, _>>().map(Patterns)
    }
}

impl FromStr for Naming {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "replace" => Ok(Naming::Replace),
            "suffix" => Ok(Naming::Suffix),
            "both" => Ok(Naming::Both),
            _ => Err("expected replace, suffix or both".to_owned()),
        }
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Version)
    }
}

impl FromStr for BaseVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("last", _) => Ok(BaseVersion(Base::Last)),
            ("next", _) => Ok(BaseVersion(Base::Next)),
            (_, Ok(number)) if number > 0 => Ok(BaseVersion(Base::Exact(number))),
            _ => Err("expected last, next or the number of a version, from 1 on".to_owned()),
        }
    }
}

impl FromStr for Transaction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default().to_owned();
        let (mut spec, mut peer) = (TransactionSpec { name, ..TransactionSpec::default() }, None);
        let number = |text: &str| text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("{text:?} is no number from 1 on"));
        for part in parts {
            match part.split_once('=') {
                Some(("peers", n)) => spec.peers = Some(number(n)?),
                Some(("peer", n)) => peer = Some(number(n)?),
                Some(("base", version)) => spec.base = Some(version.parse::<BaseVersion>()?.0),
                Some(("after", name)) => spec.after.push(name.to_owned()),
                _ => return Err(format!("{part:?} is none of peers=N, peer=K, base=V, after=NAME")),
            }
        }
        if spec.name.is_empty() { Err("expected the name of a transaction".to_owned()) } else { Ok(Transaction { spec, peer }) }
    }
}

/// The text that [`Transaction`] is parsed from.
impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Transaction { spec, peer } = self;
        f.write_str(&spec.name)?;
        for (key, number) in [("peers", spec.peers), ("peer", *peer)] {
            number.map_or(Ok(()), |n| write!(f, ",{key}={n}"))?;
        }
        match spec.base {
            Some(Base::Last) => f.write_str(",base=last")?,
            Some(Base::Next) => f.write_str(",base=next")?,
            Some(Base::Exact(version)) => write!(f, ",base={version}")?,
            None => {}
        }
        spec.after.iter().try_for_each(|name| write!(f, ",after={name}"))
    }
}

impl FromStr for LogView {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "datasets" => Ok(LogView::Datasets),
            "raw" => Ok(LogView::Raw),
            _ => Err("expected datasets or raw".to_owned()),
        }
    }
}

impl FromStr for VdsMissing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "error" => Ok(VdsMissing::Error),
            "fill" => Ok(VdsMissing::Fill),
            _ => Err("expected error or fill".to_owned()),
        }
    }
}

impl FromStr for Modes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "stored" => Ok(Modes::Stored),
            "all" => Ok(Modes::All),
            "fixed" => Ok(Modes::Fixed),
            _ => Err("expected stored, all or fixed".into()),
        }
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = Level::ALL.into_iter().find(|l| l.name().eq_ignore_ascii_case(text));
        level.ok_or_else(|| "expected off, error, warn, info, debug or trace".to_owned())
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("expected text or json".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let ok = [("0", 0), ("4096", 4096), ("64k", 65_536), ("1M", 1 << 20), ("1.5G", 3 << 29), ("2TiB", 2 << 40), ("10 ", 10)];
        for (text, bytes) in ok {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "M", "-1", "1X", "1..5M", "99999999999T", "1e3", "0x10", "1.5.G", "9e99", "18446744073709551615K"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn modes_switches_times() {
        assert_eq!("0444".parse(), Ok(Mode(0o444)));
        assert_eq!("0o750".parse(), Ok(Mode(0o750)));
        for bad in ["8", "1777", "-1", "+4", "", "rw"] {
            assert!(bad.parse::<Mode>().is_err(), "{bad}");
        }
        assert_eq!("Yes".parse(), Ok(Switch(true)));
        assert!("maybe".parse::<Switch>().is_err());
        assert_eq!("0.5".parse(), Ok(Seconds(Duration::from_millis(500))));
        for bad in ["-1", "inf", "NaN", "1e99", "1s"] {
            assert!(bad.parse::<Seconds>().is_err(), "{bad}");
        }
        assert_eq!("root".parse(), Ok(User(0)));
        assert_eq!("1000".parse(), Ok(Group(1000)));
        assert!("no such user".parse::<User>().is_err());
        assert!("0".parse::<Threads>().is_err());
        assert_eq!("WARN".parse(), Ok(Level::Warn));
    }
}
