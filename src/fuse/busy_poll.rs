//! Busy polling for the next request (`--stay-awake`; off unless asked for).
//!
//! A program that creates many small files sends each request when it has the answer to the one
//! before. To sleep in between, and to be awakened, takes longer than most such requests, on a
//! virtual machine several times as long. So the event loop that serves many small changes polls
//! for the next one for a moment before it sleeps. While most requests come within that time, the
//! kernel is asked to keep processors out of deep sleep, so that the program, which waits for the
//! answer, is awakened soon (PM QoS, `Documentation/power/pm_qos_interface.rst`).

use crate::base::locks::Mutex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{SysconfVar, sysconf};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long to poll for a request.
const POLL_WINDOW: Duration = Duration::from_micros(150);
/// Consecutive misses after which only one of `POLL_EVERY` waits polls.
const MISSES_MAX: u32 = 16;
/// Waits of which one polls after many misses.
const POLL_EVERY: u32 = 64;
/// Consecutive hits after which processors are kept awake.
const AWAKE_AFTER_HITS: u32 = 64;
/// On larger machines keeping processors awake costs more than it saves.
const PROCESSORS_MAX: i64 = 8;
/// Takes the longest wake-up latency of processors as 32 bits, microseconds, while it is open.
const LATENCY_DEVICE: &str = "/dev/cpu_dma_latency";

/// See the module's description.
#[derive(Debug)]
pub struct BusyPoll {
    device: OnceLock<OwnedFd>,
    /// Requests that came within the window, in all.
    requests: AtomicU64,
    /// Consecutive requests that came within the window.
    hits: AtomicU32,
    /// Consecutive waits without a request.
    misses: AtomicU32,
    /// Where processors are kept awake.
    latency: Option<PathBuf>,
    awake: Mutex<Option<File>>,
    /// False: no wait polls.
    enabled: bool,
}

impl BusyPoll {
    /// Polls if `stay_awake`, and keeps processors awake if there are few.
    pub fn new(stay_awake: bool) -> Self {
        // A single processor is left to the program.
        let several = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        // Processors of the machine, not those that this process may use.
        let few = sysconf(SysconfVar::_NPROCESSORS_ONLN).is_ok_and(|n| n.is_some_and(|n| n <= PROCESSORS_MAX));
        Self::with((stay_awake && few).then(|| Path::new(LATENCY_DEVICE).into()), stay_awake && several)
    }

    fn with(latency: Option<PathBuf>, enabled: bool) -> Self {
        let (device, requests, hits, misses, awake) = Default::default();
        BusyPoll { device, requests, hits, misses, latency, awake, enabled }
    }

    /// Sets the device that requests are read from.
    pub fn set_device(&self, device: BorrowedFd<'_>) {
        match device.try_clone_to_owned() {
            Ok(device) => drop(self.device.set(device)),
            Err(e) => tracing::debug!("no busy polling for requests: {e}"),
        }
    }

    /// Returns when a request is there, or the window has passed.
    pub fn wait(&self) {
        let Some(device) = self.device.get().filter(|_| self.enabled) else { return };
        let misses = self.misses.load(Ordering::Relaxed);
        if misses >= MISSES_MAX && !misses.is_multiple_of(POLL_EVERY) {
            self.misses.store(misses.wrapping_add(1).max(MISSES_MAX), Ordering::Relaxed);
            return;
        }
        let start = Instant::now();
        loop {
            let mut requests = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
            if poll(&mut requests, PollTimeout::ZERO) != Ok(0) {
                return self.hit();
            }
            if start.elapsed() >= POLL_WINDOW {
                break;
            }
            (0..30).for_each(|_| std::hint::spin_loop());
        }
        self.misses.store(misses.wrapping_add(1), Ordering::Relaxed);
        self.hits.store(0, Ordering::Relaxed);
    }

    /// Requests that came within the window, so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn hit(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.misses.store(0, Ordering::Relaxed);
        let hits = self.hits.load(Ordering::Relaxed).saturating_add(1);
        self.hits.store(hits, Ordering::Relaxed);
        if hits == AWAKE_AFTER_HITS {
            self.keep_awake();
        }
    }

    fn keep_awake(&self) {
        let mut awake = self.awake.lock();
        let Some(path) = self.latency.as_ref().filter(|_| awake.is_none()) else { return };
        let opened = OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(&0u32.to_ne_bytes()).map(|()| file));
        match opened {
            Ok(file) => *awake = Some(file),
            Err(e) => tracing::debug!("processors may sleep: {}: {e}", path.display()),
        }
    }

    /// Lets processors sleep: few requests come.
    pub fn rest(&self) {
        if self.awake.lock().take().is_some() {
            self.hits.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_request_ends_the_wait_and_many_keep_processors_awake_until_few_come() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("latency");
        std::fs::write(&path, "").unwrap();
        let busy_poll = BusyPoll::with(Some(path.clone()), true);
        busy_poll.wait();
        let (mut program, device) = UnixStream::pair().unwrap();
        busy_poll.set_device(device.as_fd());
        busy_poll.wait();
        assert_eq!((busy_poll.hits.load(Ordering::Relaxed), busy_poll.misses.load(Ordering::Relaxed)), (0, 1));
        program.write_all(b"x").unwrap();
        (1..AWAKE_AFTER_HITS).for_each(|_| busy_poll.wait());
        assert!(busy_poll.awake.lock().is_none());
        (0..2).for_each(|_| busy_poll.wait());
        assert!(busy_poll.awake.lock().is_some());
        assert_eq!(std::fs::read(&path).unwrap(), [0; 4]);
        busy_poll.rest();
        assert!(busy_poll.awake.lock().is_none());
        (0..AWAKE_AFTER_HITS).for_each(|_| busy_poll.wait());
        assert!(busy_poll.awake.lock().is_some());
    }

    #[test]
    fn a_slow_program_is_seldom_waited_for() {
        let busy_poll = BusyPoll::with(None, true);
        let (mut program, device) = UnixStream::pair().unwrap();
        busy_poll.set_device(device.as_fd());
        let waits = (0..MISSES_MAX + 10 * POLL_EVERY).filter(|_| {
            let start = Instant::now();
            busy_poll.wait();
            start.elapsed() >= POLL_WINDOW
        });
        // A busy machine may make others last as long.
        assert!(waits.count() as u32 >= MISSES_MAX + 9);
        assert!(busy_poll.misses.load(Ordering::Relaxed) >= MISSES_MAX);
        program.write_all(b"x").unwrap();
        (0..=POLL_EVERY).for_each(|_| busy_poll.wait());
        assert_eq!(busy_poll.misses.load(Ordering::Relaxed), 0, "looked for again when it is fast");
    }

    #[test]
    fn unless_asked_for_nothing_polls() {
        let busy_poll = BusyPoll::new(false);
        let (mut program, device) = UnixStream::pair().unwrap();
        busy_poll.set_device(device.as_fd());
        program.write_all(b"x").unwrap();
        (0..2 * AWAKE_AFTER_HITS).for_each(|_| busy_poll.wait());
        assert_eq!((busy_poll.requests(), busy_poll.misses.load(Ordering::Relaxed)), (0, 0));
        assert!(busy_poll.latency.is_none() && busy_poll.awake.lock().is_none());
    }

    #[test]
    fn without_permission_processors_sleep() {
        let busy_poll = BusyPoll::with(Some("/nonexistent/latency".into()), true);
        let (mut program, device) = UnixStream::pair().unwrap();
        busy_poll.set_device(device.as_fd());
        program.write_all(b"x").unwrap();
        (0..2 * AWAKE_AFTER_HITS).for_each(|_| busy_poll.wait());
        assert!(busy_poll.awake.lock().is_none());
        busy_poll.rest();
    }
}
