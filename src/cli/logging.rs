//! Log output: standard error, a file, or syslog for a daemon in the background.
//!
//! The environment variable `H5DIR_LOG` is a filter in the form of `RUST_LOG`.

use super::failure::{Exit, Failure, reason};
use crate::base::escape::{self, escaped};
use crate::base::recent_log;
use crate::base::url_secrets::shown;
use crate::config::LogPlan;
use crate::config::value::{Level, LogFormat};
use crate::fs::open::Resolved;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use serde_json::{Map, Value};
use std::fmt::{Debug, Display, Result as FmtResult};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// Target of lines that were asked for: they are logged whatever the log level is, but for `off`.
pub(crate) const REPORT: &str = "h5dir::report";
/// Target of lines about operations that fail.
const FAILURES: &str = "h5dir::fs::mounted";
/// Changes the log level.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

const ENVIRONMENT: &str = "H5DIR_LOG";
const SYSLOG_SOCKET: &str = "/dev/log";
/// Permissions of a new log file.
const LOG_FILE_MODE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR).union(Mode::S_IRGRP);
/// Facility "daemon" of syslog(3), shifted.
const SYSLOG_DAEMON: u8 = 3 << 3;

/// Starts logging. Must be called once, before any thread is started.
pub(crate) fn start(plan: &LogPlan, background: bool) -> Result<(), Failure> {
    let (filter, handle) = reload::Layer::new(filter(plan.level)?);
    let _ = FILTER.set(handle);
    let (writer, colour, time) = match &plan.file {
        Some(path) => {
            let failed = |why: String| Failure::new(Exit::General, format!("cannot log to {}: {why}", escaped(path)));
            let file = open_file(path).map_err(failed)?;
            (BoxMakeWriter::new(Mutex::new(file)), false, true)
        }
        None if background => (BoxMakeWriter::new(Syslog), false, false),
        // systemd's journal adds the time.
        None => (BoxMakeWriter::new(io::stderr), io::stderr().is_terminal(), std::env::var_os("JOURNAL_STREAM").is_none()),
    };
    let lines = fmt::layer().fmt_fields(EscapedFields).with_writer(writer).with_ansi(colour);
    let lines = match (plan.format, time) {
        (LogFormat::Json, _) => lines.event_format(JsonLines).boxed(),
        (LogFormat::Text, true) => lines.boxed(),
        (LogFormat::Text, false) => lines.without_time().boxed(),
    };
    // Refusals and damage are in `.h5dir/log` whatever the log level is.
    let recent = fmt::layer().fmt_fields(EscapedFields).with_writer(|| RecentLine).with_ansi(false).with_target(false);
    let layers = tracing_subscriber::registry().with(lines.with_filter(filter)).with(recent.with_filter(LevelFilter::WARN));
    // Fails if a test has set a subscriber; that one is used.
    let _ = layers.try_init();
    crate::fuse::guard::install_panic_hook();
    Ok(())
}

/// Starts logging of a command without a mount, in lines like its own messages. `gives_reasons`:
/// its messages have the reasons of operations that fail. Must be called once, before any thread
/// is started.
pub(crate) fn start_command(level: Level, gives_reasons: bool) -> Result<(), Failure> {
    let plan = LogPlan { level, file: None, format: LogFormat::Text };
    if std::env::var_os(ENVIRONMENT).is_some_and(|text| !text.is_empty()) {
        return start(&plan, false);
    }
    let failures = if gives_reasons { format!(",{FAILURES}=off") } else { String::new() };
    let filter = EnvFilter::new(format!("{}{failures}", level.name()));
    let lines = fmt::layer().fmt_fields(EscapedFields).with_writer(io::stderr).with_ansi(false).event_format(CommandLines);
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    crate::fuse::guard::install_panic_hook();
    Ok(())
}

/// Changes the log level; false if that failed. `H5DIR_LOG` takes precedence.
pub(crate) fn set_level(level: Level) -> bool {
    let Ok(filter) = filter(level) else { return false };
    FILTER.get().is_some_and(|handle| handle.reload(filter).is_ok())
}

/// Opens a log file, a regular file, and creates it if absent. Errors: reason and remedy.
fn open_file(path: &Path) -> Result<File, String> {
    const ALTERNATIVE: &str = "name a regular file, or omit --log-file: with --foreground the log goes to standard error";
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT;
    let opened = Resolved::new_name(path).and_then(|found| found.directory.open_file(&found.name, flags, LOG_FILE_MODE));
    let file = opened.map_err(|e| match e.raw_os_error() {
        Some(libc::ELOOP) => format!("it is a symbolic link; {ALTERNATIVE}"),
        Some(libc::ENXIO) => format!("it is not a regular file; {ALTERNATIVE}"),
        _ => reason(&e),
    })?;
    let status = file.metadata().map_err(|e| reason(&e))?;
    if status.is_file() { Ok(file) } else { Err(format!("it is not a regular file; {ALTERNATIVE}")) }
}

fn filter(level: Level) -> Result<EnvFilter, Failure> {
    let wrong = |e: &dyn Display| Failure::new(Exit::Usage, format!("{ENVIRONMENT} is not a log filter: {e}; use e.g. 'debug'"));
    match std::env::var(ENVIRONMENT) {
        Ok(text) if !text.is_empty() => EnvFilter::builder().parse(text).map_err(|e| wrong(&e)),
        Err(std::env::VarError::NotUnicode(_)) => Err(wrong(&"it is not text")),
        _ if level == Level::Off => Ok(EnvFilter::new("off")),
        // fuser reports each reply to an interrupted request as an error.
        _ if level < Level::Debug => Ok(EnvFilter::new(format!("{},fuser=off,{REPORT}=info", level.name()))),
        _ => Ok(EnvFilter::new(level.name())),
    }
}

/// Keeps each line for `.h5dir/log`.
struct RecentLine;

impl Write for RecentLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        recent_log::add(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends each line to syslog as one datagram; drops it if syslog does not run.
struct Syslog;

struct SyslogLine(u8);

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = SyslogLine;

    fn make_writer(&'a self) -> SyslogLine {
        SyslogLine(6)
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> SyslogLine {
        SyslogLine(match *meta.level() {
            tracing::Level::ERROR => 3,
            tracing::Level::WARN => 4,
            tracing::Level::INFO => 6,
            _ => 7,
        })
    }
}

impl Write for SyslogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut datagram = format!("<{}>h5dir[{}]: ", SYSLOG_DAEMON | self.0, std::process::id()).into_bytes();
        datagram.extend_from_slice(line.trim_ascii_end());
        if let Ok(socket) = UnixDatagram::unbound() {
            let _ = socket.set_nonblocking(true);
            let _ = socket.send_to(&datagram, SYSLOG_SOCKET);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats message and fields of a text line, escaped. The rest of a line needs no escaping.
struct EscapedFields;

impl<'writer> FormatFields<'writer> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> FmtResult {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&escape::line(&shown(&text)))
    }
}

/// Formats a line as a message of the command.
struct CommandLines;

impl<S, N> FormatEvent<S, N> for CommandLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> FmtResult {
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => "",
            tracing::Level::WARN => "warning: ",
            _ => "note: ",
        };
        write!(writer, "h5dir: {level}")?;
        ctx.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Formats a line as `{"time":...,"level":...,"target":...,"message":...,fields...}`.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _ctx: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> FmtResult {
        let mut line = Map::new();
        line.insert("time".into(), super::text::timestamp(std::time::SystemTime::now()).into());
        line.insert("level".into(), event.metadata().level().as_str().to_ascii_lowercase().into());
        line.insert("target".into(), event.metadata().target().into());
        event.record(&mut Fields(&mut line));
        writeln!(writer, "{}", escape::json(&Value::Object(line).to_string()))
    }
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), shown(value).into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Lines that `log` writes, as text and as JSON.
    fn logged(log: impl Fn()) -> [String; 2] {
        let (text, json) = (Sink::default(), Sink::default());
        let make = |sink: &Sink| {
            let sink = sink.clone();
            move || sink.clone()
        };
        let as_text = tracing_subscriber::fmt().fmt_fields(EscapedFields).with_ansi(false).with_writer(make(&text)).finish();
        let as_json = tracing_subscriber::fmt().event_format(JsonLines).with_writer(make(&json)).finish();
        tracing::subscriber::with_default(as_text, &log);
        tracing::subscriber::with_default(as_json, &log);
        [text, json].map(|sink| String::from_utf8(sink.0.lock().unwrap().clone()).unwrap())
    }

    #[test]
    fn json_lines_are_json() {
        let [_, line] = logged(|| tracing::warn!(ino = 7u64, name = "a\"b", "odd {}", "thing"));
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["level"], "warn");
        assert_eq!((&line["message"], &line["ino"], &line["name"]), (&"odd thing".into(), &7.into(), &"a\"b".into()));
    }

    /// Regression: control characters of a file name reached the terminal, or started a new line.
    #[test]
    fn log_lines_are_escaped() {
        let odd = "a\nERROR b\x1b[2J\u{9b}\u{202e}\u{2028}\\";
        let [text, json] = logged(|| tracing::warn!(name = odd, display = %odd, debug = ?odd, "{odd}"));
        for line in [&text, &json] {
            assert_eq!(line.chars().position(escape::is_unsafe), Some(line.chars().count() - 1), "{line:?}");
        }
        assert!(text.contains("a\\nERROR b\\x1b[2J\\xc2\\x9b\\xe2\\x80\\xae\\xe2\\x80\\xa8\\"), "{text}");
        let line: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&line["message"], &line["name"], &line["display"]), (&odd.into(), &odd.into(), &odd.into()), "the values are exact");
    }

    #[test]
    fn log_files_are_regular_files() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        open_file(&at("new")).unwrap().write_all(b"one\n").unwrap();
        open_file(&at("new")).unwrap().write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read(at("new")).unwrap(), b"one\ntwo\n");
        assert_eq!(at("new").metadata().unwrap().permissions().mode() & 0o137, 0);
        std::os::unix::fs::symlink("new", at("link")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (path, part) in [(at("link"), "symbolic link"), (at("pipe"), "not a regular file"), ("/dev/null".into(), "not a regular file")]
        {
            let why = open_file(&path).unwrap_err();
            assert!(why.contains(part) && why.contains("--foreground"), "{why}");
        }
        let _reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(at("pipe")).unwrap();
        assert!(open_file(&at("pipe")).unwrap_err().contains("not a regular file"));
        assert_eq!(open_file(&at("absent/x")).unwrap_err(), "No such file or directory");
    }
}
