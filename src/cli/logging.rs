//! Where log lines go: standard error, a file, or syslog when the daemon is in the background.
//!
//! The environment variable `H5DIR_LOG` is a filter in the form of `RUST_LOG`.

use super::failure::{Exit, Failure, reason};
use crate::config::LogPlan;
use crate::config::value::{Level, LogFormat};
use serde_json::{Map, Value};
use std::fmt::{self, Debug};
use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

const ENVIRONMENT: &str = "H5DIR_LOG";
const SYSLOG_SOCKET: &str = "/dev/log";
/// Facility "daemon" of syslog(3), shifted.
const SYSLOG_DAEMON: u8 = 3 << 3;

/// Starts logging; call it before threads are started, once.
pub fn start(plan: &LogPlan, background: bool) -> Result<(), Failure> {
    let filter = filter(plan.level)?;
    let (writer, colour, time) = match &plan.file {
        Some(path) => {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            let file =
                file.map_err(|e| Failure::new(Exit::General, format!("cannot open the log file {}: {}", path.display(), reason(&e))))?;
            (BoxMakeWriter::new(Mutex::new(file)), false, true)
        }
        None if background => (BoxMakeWriter::new(Syslog), false, false),
        // The journal adds the time itself.
        None => (BoxMakeWriter::new(io::stderr), io::stderr().is_terminal(), std::env::var_os("JOURNAL_STREAM").is_none()),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colour);
    // Fails when a subscriber is set already (tests): that one serves.
    let _ = match (plan.format, time) {
        (LogFormat::Json, _) => builder.event_format(JsonLines).try_init(),
        (LogFormat::Text, true) => builder.try_init(),
        (LogFormat::Text, false) => builder.without_time().try_init(),
    };
    crate::fuse::guard::install_panic_hook();
    Ok(())
}

fn filter(level: Level) -> Result<EnvFilter, Failure> {
    let wrong = |e: &dyn fmt::Display| Failure::new(Exit::Usage, format!("{ENVIRONMENT} is not a log filter: {e}; use e.g. 'debug'"));
    match std::env::var(ENVIRONMENT) {
        Ok(text) if !text.is_empty() => EnvFilter::builder().parse(text).map_err(|e| wrong(&e)),
        Err(std::env::VarError::NotUnicode(_)) => Err(wrong(&"it is not text")),
        // fuser reports each reply to an interrupted request as an error.
        _ if level < Level::Debug => Ok(EnvFilter::new(format!("{},fuser=off", level.name()))),
        _ => Ok(EnvFilter::new(level.name())),
    }
}

/// One datagram a line to the socket of syslog; lost when nobody listens.
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

/// `{"time":...,"level":...,"target":...,"message":...,fields...}`
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _ctx: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = Map::new();
        line.insert("time".into(), super::text::timestamp(std::time::SystemTime::now()).into());
        line.insert("level".into(), event.metadata().level().as_str().to_ascii_lowercase().into());
        line.insert("target".into(), event.metadata().target().into());
        event.record(&mut Fields(&mut line));
        writeln!(writer, "{}", Value::Object(line))
    }
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
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

    #[test]
    fn json_lines_are_json() {
        let sink = Sink::default();
        let make = {
            let sink = sink.clone();
            move || sink.clone()
        };
        let subscriber = tracing_subscriber::fmt().event_format(JsonLines).with_writer(make).finish();
        tracing::subscriber::with_default(subscriber, || tracing::warn!(ino = 7u64, name = "a\"b", "odd {}", "thing"));
        let line: Value = serde_json::from_slice(&sink.0.lock().unwrap()).unwrap();
        assert_eq!(line["level"], "warn");
        assert_eq!((&line["message"], &line["ino"], &line["name"]), (&"odd thing".into(), &7.into(), &"a\"b".into()));
    }
}
