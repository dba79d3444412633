//! A process that unmounts for a daemon that has dropped the right to do so.
//!
//! It is forked before the daemon starts threads or opens the container, holds nothing but a socket
//! to the daemon, and can only unmount one mountpoint, and run a closure that reads the
//! configuration again. It ends when the daemon ends.

use super::mounts::{self, Device};
use super::unmount::{self, UnmountError};
use crate::base::locks::Mutex;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{ForkResult, fork, setsid};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Device number to unmount, lazily or not: two u64, one byte. Zero for the major number and all
/// ones for the minor number stand for mounts whose daemon is dead.
const REQUEST_LEN: usize = 17;
/// Outcome, then an errno.
const REPLY_LEN: usize = 5;
/// The request to remove dead mounts.
const STALE: Device = Device { major: 0, minor: u64::MAX };
/// The request for the answer of the closure: its length as u32, and its bytes.
const ANSWER: Device = Device { major: 0, minor: u64::MAX - 1 };
/// Longest answer, bytes.
const ANSWER_BYTES_MAX: u32 = 1 << 22;

const DONE: u8 = 0;
const NOT_MOUNTED: u8 = 1;
const BUSY: u8 = 2;
const NO_HELPER: u8 = 3;
const REFUSED: u8 = 4;
const SYSTEM: u8 = 5;

/// The daemon's end of the socket.
#[derive(Debug)]
pub struct Unmounter(Mutex<UnixStream>);

impl Unmounter {
    /// Forks the process for `mountpoint`. `confine` drops the rights that unmounting does not
    /// need. `answer` makes what [`Unmounter::answer`] returns.
    ///
    /// # Safety
    /// The calling process must have one thread only.
    pub unsafe fn start(mountpoint: &Path, confine: impl FnOnce(), answer: impl Fn() -> Vec<u8>) -> io::Result<Unmounter> {
        let (ours, theirs) = UnixStream::pair()?;
        // SAFETY: the caller guarantees that there are no other threads whose locks the child could
        // meet.
        match unsafe { fork() }? {
            ForkResult::Parent { .. } => Ok(Unmounter(Mutex::new(ours))),
            ForkResult::Child => {
                let _ = nix::sys::prctl::set_name(c"h5dir-unmount");
                set_command_line(b"h5dir-unmount");
                close_all_but(&theirs);
                ignore_signals();
                confine();
                serve(&theirs, mountpoint, &answer);
                // SAFETY: ends the process; handlers of exit are for the daemon.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// Unmounts `device`, if it is mounted there.
    pub fn unmount(&self, device: Device, lazy: bool) -> Result<(), UnmountError> {
        self.ask(device, lazy).unwrap_or_else(|e| Err(UnmountError::System(e)))
    }

    /// Removes mounts there whose daemon is dead.
    pub fn clean_stale(&self) -> Result<(), UnmountError> {
        self.unmount(STALE, true)
    }

    /// Has the process run its closure, which may need rights that this one has dropped.
    pub fn answer(&self) -> io::Result<Vec<u8>> {
        let mut stream = self.0.lock();
        stream.write_all(&request(ANSWER, false))?;
        let mut len = [0; 4];
        stream.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len);
        if len > ANSWER_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut answer = vec![0; usize::try_from(len).unwrap_or(0)];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    }

    fn ask(&self, device: Device, lazy: bool) -> io::Result<Result<(), UnmountError>> {
        let mut stream = self.0.lock();
        stream.write_all(&request(device, lazy))?;
        let mut reply = [0; REPLY_LEN];
        stream.read_exact(&mut reply)?;
        let [code, errno @ ..] = reply;
        let errno = io::Error::from_raw_os_error(i32::from_le_bytes(errno));
        Ok(match code {
            DONE => Ok(()),
            NOT_MOUNTED => Err(UnmountError::NotMounted),
            BUSY => Err(UnmountError::Busy),
            NO_HELPER => Err(UnmountError::NoHelper),
            REFUSED => Err(UnmountError::Helper("see its own message".into())),
            _ => Err(UnmountError::System(errno)),
        })
    }
}

fn request(device: Device, lazy: bool) -> Vec<u8> {
    [&device.major.to_le_bytes()[..], &device.minor.to_le_bytes(), &[u8::from(lazy)]].concat()
}

/// Sets the command line that ps and pgrep show to `title`: a search for the command line of the
/// daemon finds one process.
fn set_command_line(title: &[u8]) -> Option<()> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // arg_start and arg_end are fields 48 and 49 of proc_pid_stat(5); field 3 follows the name in
    // parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(45).map(str::parse::<u64>);
    let (start, end) = (fields.next()?.ok()?, fields.next()?.ok()?);
    let len = usize::try_from(end.checked_sub(start)?).ok()?;
    let mut line: Vec<u8> = title.iter().copied().take(len.checked_sub(1)?).collect();
    line.resize(len, 0);
    File::options().write(true).open("/proc/self/mem").ok()?.write_all_at(&line, start).ok()
}

/// The other ends of pipes would not notice the end of the daemon.
fn close_all_but(stream: &UnixStream) {
    let kept = stream.as_raw_fd().unsigned_abs();
    for (first, last) in [(3, kept.saturating_sub(1)), (kept.saturating_add(1), u32::MAX)] {
        if first <= last {
            // SAFETY: this process has just been forked: no object of it uses these descriptors
            // again.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// Signals to the daemon's process group and terminal are for the daemon.
fn ignore_signals() {
    let _ = setsid();
    for ignored in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGPIPE, Signal::SIGUSR1, Signal::SIGUSR2] {
        // SAFETY: no handler is installed.
        let _ = unsafe { signal(ignored, SigHandler::SigIgn) };
    }
}

fn serve(mut stream: &UnixStream, mountpoint: &Path, answer: &dyn Fn() -> Vec<u8>) {
    let mut request = [0; REQUEST_LEN];
    while stream.read_exact(&mut request).is_ok() {
        let number = |at: usize| request.get(at..at.saturating_add(8)).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let device = Device { major: number(0), minor: number(8) };
        if device == ANSWER {
            let mut bytes = answer();
            bytes.truncate(usize::try_from(ANSWER_BYTES_MAX).unwrap_or(0));
            let len = u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes();
            if stream.write_all(&[&len[..], &bytes].concat()).is_err() {
                return;
            }
            continue;
        }
        let lazy = request.last().is_some_and(|b| *b != 0);
        let outcome = if device == STALE { unmount::clean_stale(mountpoint).map(drop) } else { unmount_if(mountpoint, device, lazy) };
        let (code, errno) = encode(&outcome);
        let reply = [&[code][..], &errno.to_le_bytes()].concat();
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

fn unmount_if(mountpoint: &Path, device: Device, lazy: bool) -> Result<(), UnmountError> {
    match mounts::top_at(mountpoint).map_err(UnmountError::System)? {
        Some(mount) if mount.device == device => unmount::unmount(mountpoint, lazy),
        _ => Ok(()),
    }
}

fn encode(outcome: &Result<(), UnmountError>) -> (u8, i32) {
    match outcome {
        Ok(()) => (DONE, 0),
        Err(UnmountError::NotMounted) => (NOT_MOUNTED, 0),
        Err(UnmountError::Busy) => (BUSY, 0),
        Err(UnmountError::NoHelper) => (NO_HELPER, 0),
        Err(UnmountError::Helper(text)) => {
            eprintln!("h5dir: fusermount3 refused: {text}");
            (REFUSED, 0)
        }
        Err(UnmountError::System(e)) => (SYSTEM, e.raw_os_error().unwrap_or(libc::EIO)),
    }
}
