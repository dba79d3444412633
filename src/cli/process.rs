//! What the process may use.

use super::failure::{Exit, Failure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};

/// Descriptors that a mount needs at least: event loops, signals, the file and its journal.
const FILES_MIN: u64 = 64;

/// A file that becomes larger than the process may write is an error of that write (`EFBIG`), and not the end of the process.
pub fn outlive_size_limit() {
    // SAFETY: no handler is installed; the signal is ignored.
    if let Err(e) = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) } {
        tracing::debug!("SIGXFSZ is not ignored: {e}");
    }
}

/// Takes as many descriptors as the process may have. Errors: a mount that could not serve would be left.
pub fn take_files() -> Result<(), Failure> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    let taken = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    let most = if taken { hard } else { soft };
    if most < FILES_MIN {
        return Err(Failure::new(Exit::General, format!("a mount needs {FILES_MIN} open files, {most} are allowed (ulimit -n)")));
    }
    Ok(())
}
