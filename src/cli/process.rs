//! Limits and signals of the process.

use super::failure::{Exit, Failure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::stat::Mode;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Fewest open files of a mount: event loops, signals, the HDF5 file, its journal.
const OPEN_FILES_MIN: u64 = 64;

/// Smallest address space of a mount, bytes: stacks, heaps and buffers of its threads.
const ADDRESS_SPACE_BYTES_MIN: u64 = 640 << 20;

/// Signals that would end the process and have no meaning for a mount.
///
/// With SIGXFSZ ignored, a write beyond the file size limit fails with `EFBIG`.
const IGNORED_SIGNALS: [Signal; 10] = [
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

/// Bits of modes that new files of the process do not get.
pub(crate) fn umask() -> u32 {
    // It can be read only by setting one: for a moment, new files of other threads are private.
    let bits = nix::sys::stat::umask(Mode::from_bits_truncate(0o077));
    nix::sys::stat::umask(bits);
    bits.bits()
}

/// Ignores [`IGNORED_SIGNALS`] and the real-time signals, which would lose uncommitted changes.
pub(crate) fn ignore_signals() {
    for number in IGNORED_SIGNALS {
        // SAFETY: no handler is installed; the signal is ignored.
        if let Err(e) = unsafe { signal(number, SigHandler::SigIgn) } {
            tracing::debug!("cannot ignore {number}: {e}");
        }
    }
    for number in libc::SIGRTMIN()..=libc::SIGRTMAX() {
        // SAFETY: no handler is installed; the signal is ignored. `Signal` has no real-time
        // signals.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
}

/// Signals that end a command after it has removed what is incomplete.
const ENDING_SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Number of the ending signal that arrived last, or 0.
static ENDING: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// From now on ending signals are only recorded: see [`is_interrupted`].
pub(crate) fn catch_ending_signals() -> io::Result<()> {
    let arrived = ENDING.get_or_init(Arc::default);
    for signal in ENDING_SIGNALS {
        signal_hook::flag::register_usize(signal, arrived.clone(), usize::try_from(signal).unwrap_or(0))?;
    }
    Ok(())
}

fn ending_signal() -> i32 {
    let number = ENDING.get().map_or(0, |arrived| arrived.load(Ordering::Acquire));
    i32::try_from(number).unwrap_or(0)
}

/// True after an ending signal.
pub(crate) fn is_interrupted() -> bool {
    ending_signal() != 0
}

/// Ends the process by the ending signal that arrived, if one did.
pub(crate) fn end_if_interrupted() {
    let signal = ending_signal();
    if signal != 0
        && let Err(e) = signal_hook::low_level::emulate_default_handler(signal)
    {
        tracing::debug!("cannot end by signal {signal}: {e}");
    }
}

/// Fails if the address space is too small: an allocation would abort the daemon.
pub(crate) fn check_address_space() -> Result<(), Failure> {
    let Ok((most, _)) = getrlimit(Resource::RLIMIT_AS) else { return Ok(()) };
    if most >= ADDRESS_SPACE_BYTES_MIN {
        return Ok(());
    }
    let (needed, most) = (ADDRESS_SPACE_BYTES_MIN >> 10, most >> 10);
    Err(Failure::new(Exit::General, format!("a mount needs {needed} KiB of address space, the limit is {most}; raise it with ulimit -v")))
}

/// Makes all threads allocate from two heaps, unless the environment sets another number.
///
/// glibc makes eight for each processor. What one thread frees the others do not use, so that a
/// daemon whose threads take turns would use several times the memory that it has allocated.
pub(crate) fn limit_heaps() {
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: it sets a number of the allocator.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
    }
}

/// Raises the limit of open files to the hard limit. Fails if that is too low for a mount.
pub(crate) fn raise_file_limit() -> Result<(), Failure> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    let taken = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    let most = if taken { hard } else { soft };
    if most < OPEN_FILES_MIN {
        return Err(Failure::new(
            Exit::General,
            format!("a mount needs {OPEN_FILES_MIN} open files, the limit is {most}; raise it with ulimit -n"),
        ));
    }
    Ok(())
}
