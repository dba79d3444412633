//! Lets `umount` wait for the end of the daemon of a mount: a socket named after the mount's device
//! number.
//!
//! `umount` connects before it unmounts, and waits for end of file and for the end of the process
//! at the other end. A daemon that fails at its end sends one frame of fixed size before: a kind
//! and an errno. Nothing else is ever sent or read.
//!
//! The sockets are in a private directory (`runtime_dir`). A daemon takes connections of its own
//! user and of root; `umount` trusts a peer only if it runs as the owner of the directory. Nothing
//! here waits without a limit for the other end.
//!
//! The kernel reuses a device number as soon as its mount is gone, while the daemon may still
//! commit. So each daemon has a name of its own, `MAJOR:MINOR.PID.NANOSECONDS`, with the time since
//! the system started, and a peer waits for the last one with its device number: daemons announce
//! themselves after they mounted. The name of a daemon that was killed stays;
//! a process that gets ECONNREFUSED removes it. Names are not reused, so no other socket is
//! removed.

use super::mounts::{Device, Mount};
use super::runtime_dir::RuntimeDir;
use super::threads::{self, Run};
use crate::base::locks::Mutex;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Most peers held at once; beyond that the oldest is dropped.
const PEERS_MAX: usize = 64;
/// How long all connects of one search may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before a connect is tried again that met a full backlog, which poll(2) does not report.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);
/// Size of a frame, bytes.
const FRAME_SIZE: usize = 8;
/// The first bytes of a frame, with the version of its form.
const MAGIC: [u8; 3] = *b"h5\x01";

/// Why a daemon failed at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndFailure {
    /// The last changes could not be written to the file: the errno.
    Changes(i32),
    /// A panic while the file was closed.
    Panic,
    /// The changes were the part of a peer of a transaction that was not finished.
    Unfinished,
}

impl EndFailure {
    /// The frame: magic, kind, errno (32 bits, little endian).
    fn encode(self) -> [u8; FRAME_SIZE] {
        let (kind, errno) = match self {
            EndFailure::Changes(errno) => (1, errno),
            EndFailure::Panic => (2, 0),
            EndFailure::Unfinished => (3, 0),
        };
        let ([a, b, c], [e, f, g, h]) = (MAGIC, errno.to_le_bytes());
        [a, b, c, kind, e, f, g, h]
    }

    /// Decodes a frame; `None` for any other bytes.
    fn decode(frame: [u8; FRAME_SIZE]) -> Option<Self> {
        let [a, b, c, kind, e, f, g, h] = frame;
        match kind {
            _ if [a, b, c] != MAGIC => None,
            1 => Some(EndFailure::Changes(i32::from_le_bytes([e, f, g, h]))),
            2 => Some(EndFailure::Panic),
            3 => Some(EndFailure::Unfinished),
            _ => None,
        }
    }
}

/// Peers that wait for the end of this daemon.
#[derive(Debug, Default)]
struct Peers {
    streams: VecDeque<UnixStream>,
    failure: Option<EndFailure>,
}

impl Peers {
    fn add(&mut self, peer: UnixStream) {
        if !may_wait(&peer) || peer.set_nonblocking(true).is_err() {
            return;
        }
        // A peer that only checked whether the daemon runs has hung up.
        self.streams.retain(|peer| poll_for(peer.as_fd(), PollFlags::empty(), PollTimeout::ZERO) == Ok(false));
        if self.streams.len() >= PEERS_MAX {
            self.streams.pop_front();
        }
        if let Some(failure) = self.failure {
            send(&peer, failure);
        }
        self.streams.push_back(peer);
    }
}

/// Sends a frame, without waiting for a peer that does not read or has hung up.
fn send(mut peer: &UnixStream, failure: EndFailure) {
    let _ = peer.write(&failure.encode());
}

fn user_of(peer: &UnixStream) -> Option<u32> {
    getsockopt(peer, sockopt::PeerCredentials).ok().map(|c| c.uid())
}

/// True if the peer runs as root or as the user of this process.
fn may_wait(peer: &UnixStream) -> bool {
    user_of(peer).is_some_and(|user| user == 0 || user == nix::unistd::geteuid().as_raw())
}

/// The socket of a running daemon; removed when this is dropped, if that is still permitted.
#[derive(Debug)]
pub struct Announcement {
    directory: RuntimeDir,
    name: OsString,
    peers: Arc<Mutex<Peers>>,
}

impl Announcement {
    /// Sends the reason of a failure to the peers.
    pub fn fail(&self, failure: EndFailure) {
        let mut peers = self.peers.lock();
        peers.failure = Some(failure);
        peers.streams.iter().for_each(|peer| send(peer, failure));
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.directory.remove(&self.name);
    }
}

/// Announces the daemon of the mount on `device`.
pub fn announce(device: Device, run: Run<'_>) -> io::Result<Announcement> {
    announce_in(RuntimeDir::create()?, device, run)
}

fn announce_in(directory: RuntimeDir, device: Device, run: Run<'_>) -> io::Result<Announcement> {
    remove_stale(&directory);
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)?;
    let nanoseconds = Duration::from(now).as_nanos();
    let name = OsString::from(format!("{device}.{}.{nanoseconds}", std::process::id()));
    // A socket that does not listen yet refuses connections like a stale one.
    let hidden = OsString::from(format!(".{}", name.display()));
    let listener = UnixListener::bind(directory.path(&hidden))?;
    directory.rename(&hidden, &name).inspect_err(|_| directory.remove(&hidden))?;
    let announcement = Announcement { directory, name, peers: Arc::default() };
    let peers = announcement.peers.clone();
    threads::call(run, move || thread::Builder::new().name("h5dir-liveness".into()).spawn(move || accept(&listener, &peers)).map(drop))?;
    Ok(announcement)
}

fn accept(listener: &UnixListener, peers: &Mutex<Peers>) {
    for peer in listener.incoming() {
        match peer {
            Ok(peer) => peers.lock().add(peer),
            // For example, out of descriptors: retry after a pause.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Removes the sockets of daemons that were killed.
fn remove_stale(directory: &RuntimeDir) {
    for name in directory.names("") {
        let ours = name.to_str().is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()) && n.contains(':'));
        if ours && connect_to(directory, &name, Instant::now()).err() == Some(Errno::ECONNREFUSED) {
            directory.remove(&name);
        }
    }
}

/// Connects to the socket `name`. Errors: `EAGAIN` when its backlog is full until `end`.
fn connect_to(directory: &RuntimeDir, name: &OsStr, end: Instant) -> nix::Result<UnixStream> {
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
    let address = UnixAddr::new(&directory.path(name))?;
    loop {
        match connect(fd.as_raw_fd(), &address) {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) if Instant::now() < end => thread::sleep(CONNECT_PAUSE),
            done => return done.map(|()| UnixStream::from(fd)),
        }
    }
}

/// A daemon that was running when it was found.
#[derive(Debug)]
struct Daemon {
    peer: UnixStream,
    /// Its process, if it is visible here.
    process: Option<OwnedFd>,
    directory: Arc<RuntimeDir>,
    name: OsString,
}

impl Daemon {
    /// When it was announced, nanoseconds since the system started.
    fn announced(&self) -> u128 {
        announced(&self.name)
    }
}

/// When the daemon of the socket `name` was announced.
fn announced(name: &OsStr) -> u128 {
    name.to_str().and_then(|name| name.rsplit('.').next()?.parse().ok()).unwrap_or(0)
}

/// The daemon that a mount may have.
#[derive(Debug, Default)]
pub struct Running {
    daemon: Option<Daemon>,
    /// When the last of the sockets was announced that did not take a connection.
    unreachable: Option<u128>,
}

/// Finds the daemon of `mount`: the last one that was announced with its device number. Those of
/// earlier mounts with that number may not have ended yet.
pub fn find(mount: &Mount) -> Running {
    let mut running = Running::default();
    for directory in RuntimeDir::of_mount(mount.owner) {
        running.add(directory, mount.device);
    }
    running
}

impl Running {
    fn add(&mut self, directory: RuntimeDir, device: Device) {
        let end = Instant::now() + CONNECT_TIMEOUT;
        let directory = Arc::new(directory);
        for name in directory.names(&format!("{device}.")) {
            match connect_to(&directory, &name, end) {
                Ok(peer) if user_of(&peer) == Some(directory.owner()) => {
                    let found = Daemon { process: process_of(&peer), peer, directory: directory.clone(), name };
                    if self.daemon.as_ref().is_none_or(|last| last.announced() < found.announced()) {
                        self.daemon = Some(found);
                    }
                }
                Err(Errno::ECONNREFUSED) => directory.remove(&name),
                Err(Errno::ENOENT) => {}
                Ok(_) | Err(_) => self.unreachable = self.unreachable.max(Some(announced(&name))),
            }
        }
    }

    /// True if there is no daemon to wait for.
    pub fn is_empty(&self) -> bool {
        self.daemon.is_none()
    }

    /// Number of the daemon's process, if it is visible here.
    pub fn pid(&self) -> Option<i32> {
        let daemon = self.daemon.as_ref()?;
        getsockopt(&daemon.peer, sockopt::PeerCredentials).ok().map(|c| c.pid()).filter(|pid| *pid > 0)
    }

    /// Time since the daemon mounted.
    pub fn age(&self) -> Option<Duration> {
        let announced = u64::try_from(self.daemon.as_ref()?.announced()).ok()?;
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).ok()?;
        Duration::from(now).checked_sub(Duration::from_nanos(announced))
    }

    /// True if a later daemon did not take the connection.
    pub fn is_incomplete(&self) -> bool {
        self.unreachable > self.daemon.as_ref().map(Daemon::announced)
    }

    /// Waits until it has ended; returns its failure, if any, or `None` if it still runs after
    /// `limit`.
    pub fn wait(&self, limit: Duration) -> Option<Option<EndFailure>> {
        let Some(daemon) = &self.daemon else { return Some(None) };
        let failure = daemon.wait(Instant::now() + limit)?;
        // The daemon may not be permitted to remove it.
        daemon.directory.remove(&daemon.name);
        Some(failure)
    }
}

/// A descriptor that becomes readable when the process at the other end has ended.
fn process_of(peer: &UnixStream) -> Option<OwnedFd> {
    let pid = getsockopt(peer, sockopt::PeerCredentials).ok()?.pid();
    if pid <= 0 {
        return None;
    }
    // SAFETY: the call takes numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel just made the descriptor for this caller, which is its only owner.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits for `events`, an error or a hangup: false at the timeout.
fn poll_for(fd: BorrowedFd<'_>, events: PollFlags, timeout: PollTimeout) -> nix::Result<bool> {
    poll(&mut [PollFd::new(fd, events)], timeout).map(|n| n > 0)
}

/// [`poll_for`] until `end`; an error of poll(2) counts as an event.
fn happens(fd: BorrowedFd<'_>, events: PollFlags, end: Instant) -> bool {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match poll_for(fd, events, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Err(Errno::EINTR) => {}
            found => return found.unwrap_or(true),
        }
    }
}

impl Daemon {
    /// Waits until it has ended; returns its failure, if any, or `None` if it still runs at `end`.
    fn wait(&self, end: Instant) -> Option<Option<EndFailure>> {
        let (mut frame, mut have) = ([0; FRAME_SIZE], 0);
        loop {
            let rest = frame.get_mut(have..).unwrap_or_default();
            // After a frame only the hangup counts.
            let events = if rest.is_empty() { PollFlags::empty() } else { PollFlags::POLLIN };
            if !happens(self.peer.as_fd(), events, end) {
                return None;
            }
            match (&self.peer).read(rest) {
                Ok(n) if n > 0 => have += n,
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Ok(_) | Err(_) => break,
            }
        }
        // A process closes its files one by one when it ends, and the HDF5 file, which it has
        // locked, may be the last.
        let ended = self.process.as_ref().is_none_or(|process| happens(process.as_fd(), PollFlags::POLLIN, end));
        ended.then(|| if have == FRAME_SIZE { EndFailure::decode(frame) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(5);

    fn place() -> (TempDir, Device) {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("h5dir")).unwrap();
        std::fs::set_permissions(place.path().join("h5dir"), std::fs::Permissions::from_mode(0o700)).unwrap();
        (place, Device { major: 0, minor: 50 })
    }

    fn dir(place: &TempDir) -> RuntimeDir {
        RuntimeDir::open(place.path(), nix::unistd::geteuid().as_raw(), true).unwrap()
    }

    fn daemons(place: &TempDir, device: Device) -> Running {
        let mut running = Running::default();
        running.add(dir(place), device);
        running
    }

    /// The daemons as seen from another PID namespace, without processes.
    fn unseen(running: Running) -> Running {
        Running { daemon: running.daemon.map(|d| Daemon { process: None, ..d }), ..running }
    }

    fn hang_up(announced: &Announcement) {
        announced.peers.lock().streams.clear();
    }

    /// Waits until the listener has taken `n` connections that are open.
    fn taken(announced: &Announcement, n: usize) {
        while announced.peers.lock().streams.len() < n {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn running_daemon_is_seen_and_waited_for_in_vain() {
        let (place, device) = place();
        assert!(daemons(&place, device).is_empty());
        let announced = announce_in(dir(&place), device, &threads::here).unwrap();
        assert!(daemons(&place, Device { major: 0, minor: 5 }).is_empty());
        let running = daemons(&place, device);
        assert_eq!(running.wait(SHORT), None);
        let elsewhere = unseen(daemons(&place, device));
        taken(&announced, 2);
        assert_eq!(elsewhere.wait(SHORT), None);
        announced.fail(EndFailure::Changes(libc::ENOSPC));
        assert_eq!(elsewhere.wait(SHORT), None, "it still holds the connection");
        let late = unseen(daemons(&place, device));
        taken(&announced, 3);
        hang_up(&announced);
        assert_eq!(late.wait(LONG), Some(Some(EndFailure::Changes(libc::ENOSPC))));
        assert_eq!(running.wait(SHORT), None, "the process goes on");
        drop(announced);
        assert_eq!(dir(&place).names("").len(), 0);
    }

    /// The kernel gives the number of a mount that is gone to the next, while the daemon of the
    /// first still writes.
    #[test]
    fn the_last_daemon_of_a_number_is_waited_for() {
        let (place, device) = place();
        let (ending, next) =
            (announce_in(dir(&place), device, &threads::here).unwrap(), announce_in(dir(&place), device, &threads::here).unwrap());
        let running = unseen(daemons(&place, device));
        taken(&next, 1);
        hang_up(&ending);
        assert_eq!(running.wait(SHORT), None, "that of the mount goes on");
        next.fail(EndFailure::Panic);
        hang_up(&next);
        assert_eq!(running.wait(LONG), Some(Some(EndFailure::Panic)), "while the earlier one goes on");
        assert_eq!(Running::default().wait(Duration::ZERO), Some(None));
    }

    #[test]
    fn sockets_of_killed_daemons_are_removed() {
        let (place, device) = place();
        let live = announce_in(dir(&place), device, &threads::here).unwrap();
        let stale = |name: &str| drop(UnixListener::bind(place.path().join("h5dir").join(name)).unwrap());
        stale("0:50.1.2");
        let running = daemons(&place, device);
        assert_eq!((running.is_empty(), running.is_incomplete()), (false, false));
        assert_eq!(dir(&place).names(""), std::slice::from_ref(&live.name));
        stale("0:51.1.2");
        std::fs::write(place.path().join("h5dir/notes"), "").unwrap();
        let next = announce_in(dir(&place), device, &threads::here).unwrap();
        assert_eq!(dir(&place).names("0:").len(), 2);
        assert!(place.path().join("h5dir/notes").exists());
        drop(next);
    }

    /// Regression: connecting to a socket whose backlog was full blocked forever.
    #[test]
    fn a_peer_that_takes_no_connection_is_not_waited_for() {
        let (place, device) = place();
        let name = place.path().join("h5dir/0:50.1.2");
        let full = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        nix::sys::socket::bind(full.as_raw_fd(), &UnixAddr::new(&name).unwrap()).unwrap();
        nix::sys::socket::listen(&full, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let _first = UnixStream::connect(&name).unwrap();
        let running = daemons(&place, device);
        assert!(running.is_empty() && running.is_incomplete());
        // Neither is it removed, nor does it stop another daemon.
        drop(announce_in(dir(&place), device, &threads::here).unwrap());
        assert!(name.exists());
    }

    /// Regression: whatever the other end sent was read and printed.
    #[test]
    fn only_a_frame_is_read_and_decoded() {
        for (sent, want) in [
            (&EndFailure::Changes(libc::EIO).encode()[..], Some(EndFailure::Changes(libc::EIO))),
            (&EndFailure::Panic.encode(), Some(EndFailure::Panic)),
            (&EndFailure::Unfinished.encode(), Some(EndFailure::Unfinished)),
            (b"\x1b[2J\x1b]0;owned\x07the disk is full\n", None),
            (b"h5\x01\x07aaaa", None),
            (b"h5\x01", None),
        ] {
            let (place, _) = place();
            let (peer, mut other) = UnixStream::pair().unwrap();
            peer.set_nonblocking(true).unwrap();
            other.write_all(sent).unwrap();
            let daemon = Daemon { peer, process: None, directory: Arc::new(dir(&place)), name: "x".into() };
            assert_eq!(daemon.wait(Instant::now() + SHORT), None, "it has not hung up");
            drop(other);
            let daemon = Daemon { peer: daemon.peer.try_clone().unwrap(), ..daemon };
            let left = daemon.wait(Instant::now() + LONG);
            // The first wait has taken the frame.
            assert_eq!(left, Some(None));
            let (peer, mut other) = UnixStream::pair().unwrap();
            peer.set_nonblocking(true).unwrap();
            other.write_all(sent).unwrap();
            drop(other);
            assert_eq!(Daemon { peer, ..daemon }.wait(Instant::now() + LONG), Some(want), "{sent:?}");
        }
    }

    #[test]
    fn directories_that_others_may_write_to_are_refused() {
        let (place, _) = place();
        let me = nix::unistd::geteuid().as_raw();
        let open = || RuntimeDir::open(place.path(), me, true);
        let mode = |path: &str, mode| std::fs::set_permissions(place.path().join(path), std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(open().is_ok());
        assert!(RuntimeDir::open(place.path(), me + 1, false).is_err());
        for (path, wrong) in [("h5dir", 0o770), ("h5dir", 0o702), (".", 0o1777)] {
            mode(path, wrong);
            assert!(open().is_err(), "{path} {wrong:o}");
            mode(path, 0o700);
        }
        std::fs::rename(place.path().join("h5dir"), place.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", place.path().join("h5dir")).unwrap();
        assert!(open().is_err(), "a link is not followed");
    }
}
