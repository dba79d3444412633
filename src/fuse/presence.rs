//! Tells other processes that the daemon of a mount still runs: an abstract socket named after the
//! mount's device number.
//!
//! The name vanishes with the process, however it ends, and leaves nothing in any file system.
//! A peer connects before it unmounts and reads until end of file: that is the end of the daemon.

use super::mounts::Device;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

/// Peers held at once; the oldest is let go beyond that.
const PEERS_MAX: usize = 64;

fn address(device: Device) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("h5dir/mount/{device}"))
}

/// Announces the daemon of the mount on `device` until this process ends.
pub fn announce(device: Device) -> io::Result<()> {
    let listener = UnixListener::bind_addr(&address(device)?)?;
    thread::Builder::new().name("h5dir-presence".into()).spawn(move || {
        let mut peers = VecDeque::new();
        for peer in listener.incoming() {
            match peer {
                Ok(peer) => peers.push_back(peer),
                // Out of descriptors, say: the next peer may come after a while.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
            if peers.len() > PEERS_MAX {
                peers.pop_front();
            }
        }
    })?;
    Ok(())
}

/// A daemon that ran when this was made.
#[derive(Debug)]
pub struct Daemon(UnixStream);

impl Daemon {
    /// The daemon of the mount on `device`; `None` when it has ended already or cannot be seen from here.
    pub fn of(device: Device) -> Option<Self> {
        UnixStream::connect_addr(&address(device).ok()?).ok().map(Daemon)
    }

    /// Waits until it has ended; false when it still runs after `limit`.
    pub fn wait(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.0.set_read_timeout(Some(left)).is_err() {
                return false;
            }
            match (&self.0).read(&mut [0]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted) => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return false,
                Err(_) => return true,
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
        assert!(Daemon::of(device).is_none());
        announce(device).unwrap();
        let daemon = Daemon::of(device).unwrap();
        assert!(!daemon.wait(Duration::from_millis(50)));
    }
}
