//! The kernel's side: FUSE requests in, replies out. The only layer that names the `fuser` crate.
//!
//! ```text
//! adapter   request -> Operations -> reply        session   mount, threads, readiness, end
//! guard     a panic becomes EIO, not a dead mount mounts    /proc/self/mountinfo
//! unmount   umount2 or fusermount3, stale mounts  daemon_liveness  the socket by which umount waits for the daemon
//! reply     what requests bring and answers take  runtime_dir      the directory of these sockets
//! unmounter a process that may still unmount      threads   by whom threads are started
//! crew      how many event loops take requests    near      waiting for the next one without sleeping
//! stale     pages of other descriptors, after bytes were written past them
//! ```
//!
//! Nothing here decides what a file is: that is `fs`.

pub mod adapter;
mod crew;
pub mod daemon_liveness;
pub mod guard;
mod kernel;
pub mod mountpoint;
pub mod mounts;
mod near;
mod reply;
mod runtime_dir;
pub mod session;
mod stale;
pub mod threads;
pub mod unmount;
pub mod unmounter;

pub use adapter::{Adapter, CacheTimes};
pub use session::{Access, MountError, Mounted, SessionConfig};
pub use unmount::UnmountError;
pub use unmounter::Unmounter;
