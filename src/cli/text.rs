//! Text output: modes, times (UTC), escaped names, values.

use crate::base::escape;
use crate::fs::FileKind;
use chrono::{DateTime, Utc};
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a value shown in hexadecimal; the rest is cut.
const HEX_BYTES_MAX: usize = 64;

/// Formats a mode as `drwxr-xr-x`.
pub(crate) fn mode(kind: FileKind, perm: u16) -> String {
    let mut text = String::with_capacity(10);
    text.push(match kind {
        FileKind::Directory => 'd',
        FileKind::Regular => '-',
        FileKind::Symlink => 'l',
    });
    for (i, letter) in "rwxrwxrwx".chars().enumerate() {
        text.push(if perm & (0o400 >> i) != 0 { letter } else { '-' });
    }
    text
}

/// Name of a kind of file.
pub(crate) fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "directory",
        FileKind::Regular => "file",
        FileKind::Symlink => "symlink",
    }
}

/// The time by the calendar; times beyond its years are 1970.
fn civil(time: SystemTime) -> DateTime<Utc> {
    let (seconds, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let whole = i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds);
            if before.subsec_nanos() == 0 { (whole, 0) } else { (whole.saturating_sub(1), 1_000_000_000 - before.subsec_nanos()) }
        }
    };
    DateTime::from_timestamp(seconds, nanos).unwrap_or_default()
}

/// Formats a time as `2024-01-31 12:05`.
pub(crate) fn short_time(time: SystemTime) -> String {
    civil(time).format("%Y-%m-%d %H:%M").to_string()
}

/// Formats a time as `2024-01-31T12:05:09.000000001Z`; without a fraction if it is zero.
pub(crate) fn timestamp(time: SystemTime) -> String {
    let time = civil(time);
    time.format(if time.timestamp_subsec_nanos() == 0 { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%.9fZ" }).to_string()
}

/// Formats a name on one line: unsafe characters and bytes that are not UTF-8 are `\xNN`.
pub(crate) fn name(bytes: &[u8]) -> String {
    escape::escaped_bytes(bytes).to_string()
}

/// Formats a value on one line: as text if it is text, else in hexadecimal, cut.
pub(crate) fn value(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') => escape::line(text).into_owned(),
        _ => {
            let rest = bytes.len().saturating_sub(HEX_BYTES_MAX);
            let more = if rest > 0 { format!("... ({} bytes)", bytes.len()) } else { String::new() };
            format!("0x{}{more}", hex(bytes.get(..HEX_BYTES_MAX).unwrap_or(bytes)))
        }
    }
}

/// Formats bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        // Writing to a String does not fail.
        let _ = write!(text, "{b:02x}");
    }
    text
}

/// Makes JSON of bytes: a string if they are text, else `{"hex": "..."}`.
pub(crate) fn json(bytes: &[u8]) -> serde_json::Value {
    std::str::from_utf8(bytes).map_or_else(|_| serde_json::json!({ "hex": hex(bytes) }), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_calendar() {
        // Known answers: date -u -d @N.
        let known = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in known {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_millis(500)), "1969-12-31T23:59:59.500000000Z");
        assert_eq!(short_time(UNIX_EPOCH + Duration::from_secs(1_709_251_199)), "2024-02-29 23:59");
    }

    #[test]
    fn modes_names_values() {
        assert_eq!(mode(FileKind::Directory, 0o555), "dr-xr-xr-x");
        assert_eq!(mode(FileKind::Symlink, 0o777), "lrwxrwxrwx");
        assert_eq!(name("a\nb\\\u{1b}\u{e9}".as_bytes()), "a\\nb\\\\\\x1b\u{e9}");
        assert_eq!(name(b"a\xffb"), "a\\xffb");
        assert_eq!(name("\u{9b}31m\u{202e}\u{2028}".as_bytes()), "\\xc2\\x9b31m\\xe2\\x80\\xae\\xe2\\x80\\xa8");
        assert_eq!(value(b"text"), "text");
        assert_eq!(value("a\nb\tc\u{202e}".as_bytes()), "a\\nb\\tc\\xe2\\x80\\xae");
        assert_eq!(value("\u{9b}".as_bytes()), "0xc29b");
        assert_eq!(value(&[0, 255]), "0x00ff");
        assert!(value(&[0; 100]).ends_with("... (100 bytes)"));
        assert_eq!(json(b"\xff")["hex"], "ff");
    }
}
