//! Waiting for a request that comes soon.
//!
//! A program that makes many small files sends each request when it has the answer to the one before. To sleep in between,
//! and to be awakened, takes longer than most such requests, on a virtual machine several times as long. So the event loop that
//! serves many small changes looks for the next one for a moment before it sleeps; and while most do come soon, the kernel is asked to
//! let no processor sleep so deep that the program, which waits for the answer, is awakened late (PM QoS,
//! `Documentation/power/pm_qos_interface.rst`).

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{SysconfVar, sysconf};
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long is looked for a request.
const SOON: Duration = Duration::from_micros(150);
/// After so many that did not come in time,
const MISSES: u32 = 16;
/// only for one of so many is looked.
const SELDOM: u32 = 64;
/// Processors are kept awake after so many that did come.
const HITS: u32 = 64;
/// On larger machines it costs more than it gives.
const PROCESSORS_MAX: i64 = 8;
/// Where the kernel is told how long a processor may take to awake, as 32 bits: microseconds. It counts while the file is open.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// See the module's description.
#[derive(Debug)]
pub struct Near {
    device: OnceLock<OwnedFd>,
    /// Requests that came soon.
    came: AtomicU64,
    /// In a row, and those that did not.
    hits: AtomicU32,
    misses: AtomicU32,
    /// Where processors may be kept awake.
    latency: Option<PathBuf>,
    awake: Mutex<Option<File>>,
    /// The only processor is the program's while it has something to do.
    alone: bool,
}

impl Near {
    /// `stay_awake`: processors may be kept from sleeping, if there are few.
    pub fn new(stay_awake: bool) -> Self {
        let ours = std::thread::available_parallelism().map_or(1, usize::from);
        // Of the machine, not those that this process may use.
        let few = sysconf(SysconfVar::_NPROCESSORS_ONLN).is_ok_and(|n| n.is_some_and(|n| n <= PROCESSORS_MAX));
        Near { alone: ours < 2, ..Self::with((stay_awake && few).then(|| Path::new(LATENCY).into())) }
    }

    fn with(latency: Option<PathBuf>) -> Self {
        let (device, came, hits, misses, awake) = Default::default();
        Near { device, came, hits, misses, latency, awake, alone: false }
    }

    /// What requests are read from.
    pub fn set_device(&self, device: BorrowedFd<'_>) {
        match device.try_clone_to_owned() {
            Ok(device) => drop(self.device.set(device)),
            Err(e) => tracing::debug!("requests are not waited for without sleeping: {e}"),
        }
    }

    /// Returns when there is a request, or soon.
    pub fn wait(&self) {
        let Some(device) = self.device.get().filter(|_| !self.alone) else { return };
        let misses = self.misses.load(Ordering::Relaxed);
        if misses >= MISSES && !misses.is_multiple_of(SELDOM) {
            self.misses.store(misses.wrapping_add(1).max(MISSES), Ordering::Relaxed);
            return;
        }
        let start = Instant::now();
        loop {
            let mut requests = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
            if poll(&mut requests, PollTimeout::ZERO) != Ok(0) {
                return self.hit();
            }
            if start.elapsed() >= SOON {
                break;
            }
            (0..30).for_each(|_| std::hint::spin_loop());
        }
        self.misses.store(misses.wrapping_add(1), Ordering::Relaxed);
        self.hits.store(0, Ordering::Relaxed);
    }

    /// How many requests came soon, so far.
    pub fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }

    fn hit(&self) {
        self.came.fetch_add(1, Ordering::Relaxed);
        self.misses.store(0, Ordering::Relaxed);
        let hits = self.hits.load(Ordering::Relaxed).saturating_add(1);
        self.hits.store(hits, Ordering::Relaxed);
        if hits == HITS {
            self.stay_awake();
        }
    }

    fn stay_awake(&self) {
        let mut awake = self.awake.lock();
        let Some(path) = self.latency.as_ref().filter(|_| awake.is_none()) else { return };
        let told = OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(&0u32.to_ne_bytes()).map(|()| file));
        match told {
            Ok(file) => *awake = Some(file),
            Err(e) => tracing::debug!("processors may sleep: {}: {e}", path.display()),
        }
    }

    /// Few requests come.
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
        let near = Near::with(Some(path.clone()));
        near.wait();
        let (mut program, device) = UnixStream::pair().unwrap();
        near.set_device(device.as_fd());
        near.wait();
        assert_eq!((near.hits.load(Ordering::Relaxed), near.misses.load(Ordering::Relaxed)), (0, 1));
        program.write_all(b"x").unwrap();
        (1..HITS).for_each(|_| near.wait());
        assert!(near.awake.lock().is_none());
        (0..2).for_each(|_| near.wait());
        assert!(near.awake.lock().is_some());
        assert_eq!(std::fs::read(&path).unwrap(), [0; 4]);
        near.rest();
        assert!(near.awake.lock().is_none());
        (0..HITS).for_each(|_| near.wait());
        assert!(near.awake.lock().is_some());
    }

    #[test]
    fn a_slow_program_is_seldom_waited_for() {
        let near = Near::with(None);
        let (mut program, device) = UnixStream::pair().unwrap();
        near.set_device(device.as_fd());
        let waits = (0..MISSES + 10 * SELDOM).filter(|_| {
            let start = Instant::now();
            near.wait();
            start.elapsed() >= SOON
        });
        // A busy machine may make others last as long.
        assert!(waits.count() as u32 >= MISSES + 9);
        assert!(near.misses.load(Ordering::Relaxed) >= MISSES);
        program.write_all(b"x").unwrap();
        (0..=SELDOM).for_each(|_| near.wait());
        assert_eq!(near.misses.load(Ordering::Relaxed), 0, "looked for again when it is fast");
    }

    #[test]
    fn without_permission_processors_sleep() {
        let near = Near::with(Some("/nonexistent/latency".into()));
        let (mut program, device) = UnixStream::pair().unwrap();
        near.set_device(device.as_fd());
        program.write_all(b"x").unwrap();
        (0..2 * HITS).for_each(|_| near.wait());
        assert!(near.awake.lock().is_none());
        near.rest();
    }
}
