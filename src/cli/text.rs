//! Text output: modes, times (UTC), escaped names, values.

use crate::base::escape;
use crate::fs::FileKind;
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

/// Splits a time into year, month, day, hour, minute, second, nanosecond.
fn civil(time: SystemTime) -> (i64, u32, u32, u32, u32, u32, u32) {
    let (seconds, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX / 2), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let whole = -i64::try_from(before.as_secs()).unwrap_or(i64::MAX / 2);
            if before.subsec_nanos() == 0 { (whole, 0) } else { (whole - 1, 1_000_000_000 - before.subsec_nanos()) }
        }
    };
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400) as u32);
    // Counts days from 1 March of year 0, so that the leap day is the last day of a year, in eras
    // of 400 years.
    let shifted = days.saturating_add(719_468);
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day as u32, rest / 3600, rest / 60 % 60, rest % 60, nanos)
}

/// Formats a time as `2024-01-31 12:05`.
pub(crate) fn short_time(time: SystemTime) -> String {
    let (y, m, d, hour, minute, ..) = civil(time);
    format!("{y:04}-{m:02}-{d:02} {hour:02}:{minute:02}")
}

/// Formats a time as `2024-01-31T12:05:09.000000001Z`; without a fraction if it is zero.
pub(crate) fn timestamp(time: SystemTime) -> String {
    let (y, m, d, hour, minute, second, nanos) = civil(time);
    let fraction = if nanos == 0 { String::new() } else { format!(".{nanos:09}") };
    format!("{y:04}-{m:02}-{d:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
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
