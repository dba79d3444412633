//! Threads of the daemon are started by a thread of the caller's choice, whose rights they inherit.

use std::io;
use std::sync::mpsc;

/// Runs a function in the thread that starts others.
pub type Run<'a> = &'a dyn Fn(Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Runs a function in the thread of the caller.
pub fn here(work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    work();
    Ok(())
}

/// Calls `work` by `run`; returns its result.
pub fn call<T: Send + 'static>(run: Run<'_>, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (sender, result) = mpsc::channel();
    run(Box::new(move || drop(sender.send(work()))))?;
    result.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
}
