//! A panic in an operation answers that one request with EIO and leaves one line in the log.
//!
//! Without the guard it would end an event loop of the session; with all loops gone, every process
//! that touches the mount hangs.

use crate::base::metrics;
use crate::fs::{Done, Errno, FsResult, Ino};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;
use std::time::Instant;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs one operation; a panic in it is an `EIO`.
pub fn guard<T>(operation: &'static str, ino: Ino, f: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
    let begun = Instant::now();
    let result = caught(operation, ino, f);
    record(operation, begun, result.as_ref().err());
    result
}

/// Records a request in the metrics.
fn record(operation: &'static str, begun: Instant, error: Option<&Errno>) {
    metrics::OPERATIONS.record(operation, begun);
    if let Some(Errno(errno)) = error {
        metrics::ERRORS.add(operation, *errno);
    }
}

fn caught<T>(operation: &'static str, ino: Ino, f: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
    GUARDED.set(true);
    // Unwind safety: `Operations` takes `&self`, and its locks are parking_lot's, which do not
    // poison.
    let result = catch_unwind(AssertUnwindSafe(f));
    GUARDED.set(false);
    result.unwrap_or_else(|payload| {
        let place = PLACE.take().unwrap_or_else(|| "an unknown place".into());
        tracing::error!(operation, ino = ino.0, "bug: panic at {place}: {}", text(&*payload));
        Err(Errno(libc::EIO))
    })
}

/// Runs one operation that changes something; a panic in it is an `EIO`.
pub fn guard_done<T>(operation: &'static str, ino: Ino, f: impl FnOnce() -> Done<T>) -> Done<T> {
    let begun = Instant::now();
    let done = caught(operation, ino, || Ok(f())).unwrap_or_else(|e| Err(e).into());
    record(operation, begun, done.result.as_ref().err());
    done
}

/// Has panics logged instead of written to standard error: a guarded one by [`guard`], any other
/// one immediately.
pub fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(report)));
}

fn report(info: &PanicHookInfo<'_>) {
    let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    if GUARDED.get() {
        PLACE.replace(Some(place));
    } else {
        tracing::error!("bug: panic at {place}: {}", text(info.payload()));
    }
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the log of one thread misses an event that another thread without a log
    /// was the first to meet.
    #[test]
    fn panic_is_eio_with_one_line_in_the_log_and_the_thread_goes_on() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = path.reopen().unwrap();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(std::sync::Mutex::new(file)).finish();
        tracing::subscriber::with_default(subscriber, || guard("read", Ino(7), || -> FsResult<u8> { panic!("broken") })).unwrap_err();
        let log = std::fs::read_to_string(path.path()).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("ERROR") && log.contains("broken") && log.contains("\"read\" ino=7"), "{log}");
        assert_eq!(guard("read", Ino(7), || -> FsResult<u8> { panic!("broken {}", 1) }), Err(Errno(libc::EIO)));
        assert_eq!(guard("read", Ino(7), || Ok(3)), Ok(3));
        assert_eq!(guard("read", Ino(7), || -> FsResult<u8> { Err(Errno(libc::ENOENT)) }), Err(Errno(libc::ENOENT)));
    }
}
