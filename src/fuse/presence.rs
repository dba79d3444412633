//! Tells other processes that the daemon of a mount still runs: an abstract socket named after the
//! mount's device number.
//!
//! The name vanishes with the process, however it ends, and leaves nothing in any file system.
//! A peer connects before it unmounts and reads until end of file: that is the end of the daemon. What it
//! reads until then is why the daemon failed at its end.
//!
//! The kernel gives a device number to another mount as soon as the one that had it is gone, while its daemon still writes its last
//! changes. So there is a row of names, of which each daemon takes the first that is free, and a peer waits for all who have one: but
//! for one they are about to end.

use super::mounts::Device;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Peers held at once; the oldest is let go beyond that.
const PEERS_MAX: usize = 64;

/// Daemons that may have had one device number at once.
const NAMES: usize = 32;

fn addresses(device: Device) -> impl Iterator<Item = io::Result<SocketAddr>> {
    (0..NAMES).map(move |n| SocketAddr::from_abstract_name(format!("h5dir/mount/{device}/{n}")))
}

fn listen(device: Device) -> io::Result<UnixListener> {
    let mut all = addresses(device);
    loop {
        let address = all.next().unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))?;
        match UnixListener::bind_addr(&address) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            done => return done,
        }
    }
}

/// Longest sentence read, bytes.
const SENTENCE_MAX: usize = 4096;

/// Those who wait for the end of this daemon.
#[derive(Debug, Clone, Default)]
pub struct Peers(Arc<Mutex<VecDeque<UnixStream>>>);

impl Peers {
    /// Tells them why this daemon failed.
    pub fn tell(&self, sentence: &str) {
        for mut peer in self.0.lock().iter() {
            // One that does not read, or went away, is not waited for.
            let _ = peer.set_nonblocking(true).and_then(|()| peer.write_all(sentence.as_bytes()));
        }
    }
}

/// Announces the daemon of the mount on `device` until this process ends.
pub fn announce(device: Device) -> io::Result<Peers> {
    let listener = listen(device)?;
    let all = Peers::default();
    let shared = all.clone();
    thread::Builder::new().name("h5dir-presence".into()).spawn(move || {
        for peer in listener.incoming() {
            match peer {
                Ok(peer) => {
                    let mut peers = shared.0.lock();
                    peers.push_back(peer);
                    if peers.len() > PEERS_MAX {
                        peers.pop_front();
                    }
                }
                // Out of descriptors, say: the next peer may come after a while.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(all)
}

/// A daemon that ran when this was made.
#[derive(Debug)]
pub struct Daemon {
    peer: UnixStream,
    /// Its process, where that can be seen.
    process: Option<OwnedFd>,
}

/// What becomes readable when the process at the other end has ended.
fn process_of(peer: &UnixStream) -> Option<OwnedFd> {
    let pid = getsockopt(peer, sockopt::PeerCredentials).ok()?.pid();
    if pid <= 0 {
        return None;
    }
    // SAFETY: the call takes numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel just made the descriptor for this caller; nobody else has it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Daemon {
    /// The daemon of the mount on `device`, and those of mounts before that have not ended yet; none when it has ended already or
    /// cannot be seen from here.
    pub fn of(device: Device) -> Vec<Self> {
        let peers = addresses(device).filter_map(|address| UnixStream::connect_addr(&address.ok()?).ok());
        peers.map(|peer| Daemon { process: process_of(&peer), peer }).collect()
    }

    /// Waits for all: see [`Daemon::wait`].
    pub fn wait_for(all: &[Self], limit: Duration) -> Option<String> {
        let end = Instant::now() + limit;
        let told: Option<Vec<_>> = all.iter().map(|d| d.wait(end.saturating_duration_since(Instant::now()))).collect();
        told.map(|all| all.into_iter().filter(|sentence| !sentence.is_empty()).collect::<Vec<_>>().join("; "))
    }

    /// Waits until it has ended: why it failed, empty if it did not; `None` when it still runs after `limit`.
    pub fn wait(&self, limit: Duration) -> Option<String> {
        let end = Instant::now() + limit;
        let (mut told, mut piece) = (Vec::new(), [0; 256]);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.peer.set_read_timeout(Some(left)).is_err() {
                return None;
            }
            match (&self.peer).read(&mut piece) {
                Ok(n) if n > 0 && told.len() < SENTENCE_MAX => told.extend_from_slice(piece.get(..n).unwrap_or_default()),
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted) => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return None,
                Ok(_) | Err(_) => {
                    return self.has_ended(end).then(|| String::from_utf8_lossy(&told).into_owned());
                }
            }
        }
    }

    /// A process closes its files one by one when it ends, and the HDF5 file, which it has locked, may be the last. False when that
    /// has not happened at `end`.
    fn has_ended(&self, end: Instant) -> bool {
        let Some(process) = &self.process else { return true };
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], timeout) {
                Err(nix::errno::Errno::EINTR) => {}
                found => return found != Ok(0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_daemon_is_seen_and_waited_for_in_vain() {
        // A device number no mount has; the test process stays, so the wait must time out.
        let device = Device { major: 99_999, minor: u64::from(std::process::id()) };
        assert!(Daemon::of(device).is_empty());
        let peers = announce(device).unwrap();
        let daemon = Daemon::of(device).pop().unwrap();
        assert_eq!(daemon.wait(Duration::from_millis(50)), None);
        let unseen = Daemon { process: None, ..Daemon::of(device).pop().unwrap() };
        assert_eq!(unseen.wait(Duration::from_millis(50)), None);
        peers.tell("it failed");
        peers.0.lock().clear();
        assert_eq!(unseen.wait(Duration::from_secs(5)).as_deref(), Some("it failed"));
        assert_eq!(daemon.wait(Duration::from_millis(50)), None, "the process goes on");
    }
    /// The kernel gives the number of a mount that is gone to the next, while the daemon of the first still writes.
    #[test]
    fn daemons_of_one_number_are_all_waited_for() {
        let device = Device { major: 99_998, minor: u64::from(std::process::id()) };
        let (ending, next) = (announce(device).unwrap(), announce(device).unwrap());
        let unseen: Vec<_> = Daemon::of(device).into_iter().map(|d| Daemon { process: None, ..d }).collect();
        assert_eq!(unseen.len(), 2);
        next.tell("it failed");
        next.0.lock().clear();
        assert_eq!(Daemon::wait_for(&unseen, Duration::from_millis(50)), None, "the other goes on");
        ending.0.lock().clear();
        assert_eq!(Daemon::wait_for(&unseen[..1], Duration::from_secs(5)).as_deref(), Some(""));
        assert_eq!(Daemon::wait_for(&[], Duration::ZERO).as_deref(), Some(""));
    }
}
