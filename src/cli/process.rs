//! What the process may use.

use super::failure::{Exit, Failure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};

/// Descriptors that a mount needs at least: event loops, signals, the file and its journal.
const FILES_MIN: u64 = 64;

/// Address space that a mount needs at least, bytes: stacks and heaps of its threads, and their buffers.
const ADDRESS_SPACE_MIN: u64 = 640 << 20;

/// Signals that end a process unless it handles them, and that ask a mount for nothing. After SIGXFSZ the write that passed the size
/// limit fails (`EFBIG`).
const STRAY: [Signal; 10] = [
    Signal::SIGXFSZ,
    Signal::SIGPIPE,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGSTKFLT,
];

/// Ignores the signals that would end the process and lose what is not committed, but for those that ask it to end.
pub fn ignore_stray_signals() {
    for stray in STRAY {
        // SAFETY: no handler is installed; the signal is ignored.
        if let Err(e) = unsafe { signal(stray, SigHandler::SigIgn) } {
            tracing::debug!("{stray} is not ignored: {e}");
        }
    }
    for stray in libc::SIGRTMIN()..=libc::SIGRTMAX() {
        // SAFETY: as above. These are no members of `Signal`.
        unsafe { libc::signal(stray, libc::SIG_IGN) };
    }
}

/// Errors: less address space than a mount needs, which would end it at an allocation.
pub fn check_address_space() -> Result<(), Failure> {
    let Ok((most, _)) = getrlimit(Resource::RLIMIT_AS) else { return Ok(()) };
    if most >= ADDRESS_SPACE_MIN {
        return Ok(());
    }
    let (needed, most) = (ADDRESS_SPACE_MIN >> 10, most >> 10);
    Err(Failure::new(Exit::General, format!("a mount needs {needed} KiB of address space, {most} are allowed (ulimit -v)")))
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
