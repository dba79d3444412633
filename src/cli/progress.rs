//! Progress of a long command, on one line of a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time between two changes of the line.
const INTERVAL: Duration = Duration::from_millis(100);

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

/// Percent that `part` is of `total`, at most 100.
pub(crate) fn percent(part: u64, total: u64) -> u64 {
    let percent = u128::from(part).saturating_mul(100).checked_div(u128::from(total)).unwrap_or(0).min(100);
    u64::try_from(percent).unwrap_or(100)
}
