//! Progress of a long command, on one line of a terminal.

use super::brief::size;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time between two changes of the line.
const INTERVAL: Duration = Duration::from_millis(100);
/// Characters of a whole bar.
const BAR_CHARS: u64 = 20;
/// Longest time that is shown as left, seconds.
const LEFT_MAX: f64 = 360_000.0;

/// A line on standard error; nothing if that is no terminal.
pub(crate) struct ProgressLine {
    shown: bool,
    next: Option<Instant>,
}

impl ProgressLine {
    /// Shows nothing yet.
    pub(crate) fn new() -> Self {
        let next = io::stderr().is_terminal().then(|| Instant::now().checked_add(INTERVAL)).flatten();
        ProgressLine { shown: false, next }
    }

    /// True if standard error is a terminal.
    pub(crate) fn is_on(&self) -> bool {
        self.next.is_some()
    }

    /// Shows what `text` returns, unless the line changed just now.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = now.checked_add(INTERVAL);
        self.shown = true;
        // A closed standard error is ignored.
        let _ = write!(io::stderr(), "\r{}\x1b[K", text());
    }

    /// Removes the line, before a message.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            // A closed standard error is ignored.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A progress line with a bar, the rate and the time left.
pub(crate) struct Meter {
    line: ProgressLine,
    began: Instant,
}

impl Meter {
    /// Begins now; shows nothing yet.
    pub(crate) fn new() -> Meter {
        Meter { line: ProgressLine::new(), began: Instant::now() }
    }

    /// True if standard error is a terminal.
    pub(crate) fn is_on(&self) -> bool {
        self.line.is_on()
    }

    /// Shows that `done` bytes of `total` (0: unknown) are done, after what `text` returns.
    pub(crate) fn show(&mut self, done: u64, total: u64, text: impl FnOnce() -> String) {
        let seconds = self.began.elapsed().as_secs_f64();
        self.line.show(|| metered(done, total, seconds, &text()));
    }

    /// Removes the line, before a message.
    pub(crate) fn clear(&mut self) {
        self.line.clear();
    }
}

/// A bar if the total is known, `text`, the rate, and the time left.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of estimates")]
fn metered(done: u64, total: u64, seconds: f64, text: &str) -> String {
    let rate = if seconds > 0.0 { done as f64 / seconds } else { 0.0 };
    let rate_text = format!("{}/s", size(rate as u64));
    if total == 0 {
        return format!("{text}, {rate_text}");
    }
    let percent = percent(done, total);
    let full = usize::try_from(percent.saturating_mul(BAR_CHARS) / 100).unwrap_or(0);
    let empty = usize::try_from(BAR_CHARS).unwrap_or(0).saturating_sub(full);
    let left = if rate > 0.0 { total.saturating_sub(done) as f64 / rate } else { f64::INFINITY };
    let left = if left < LEFT_MAX { format!(", {} left", clock(left as u64)) } else { String::new() };
    format!("[{}{}] {percent:>3} %  {text}, {rate_text}{left}", "#".repeat(full), " ".repeat(empty))
}

/// Seconds as `0:07`, `12:34` or `1:02:03`.
fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Percent that `part` is of `total`, at most 100.
pub(crate) fn percent(part: u64, total: u64) -> u64 {
    let percent = u128::from(part).saturating_mul(100).checked_div(u128::from(total)).unwrap_or(0).min(100);
    u64::try_from(percent).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_rate_and_time_left() {
        assert_eq!(metered(1 << 20, 4 << 20, 2.0, "3 objects"), "[#####               ]  25 %  3 objects, 512.0 KiB/s, 0:06 left");
        assert_eq!(metered(1 << 20, 0, 1.0, "3 objects"), "3 objects, 1.0 MiB/s");
        assert_eq!(metered(0, 10, 0.0, "x"), "[                    ]   0 %  x, 0 B/s");
        assert_eq!(metered(20, 10, 1.0, "x"), "[####################] 100 %  x, 20 B/s, 0:00 left");
        assert_eq!([clock(7), clock(754), clock(3723)], ["0:07", "12:34", "1:02:03"]);
    }
}
