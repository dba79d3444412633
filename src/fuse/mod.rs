//! The kernel's side: FUSE requests in, replies out. The only layer that names the `fuser` crate.
//!
//! ```text
//! adapter            requests to Operations, results to replies
//! reply              types of fuser to types of fs and back
//! guard              a panic becomes EIO, not a dead mount
//! kernel             notifications to the kernel
//! page_invalidation  drops stale pages of the kernel
//! passthrough        files that the kernel serves by itself
//! event_loops        how many event loops take requests
//! busy_poll          polls for the next request (--stay-awake)
//! session            mount, threads, readiness, end
//! device_defect      why /dev/fuse cannot be opened
//! threads            which thread starts threads
//! mountpoint         the directory that is mounted on
//! mounts             /proc/self/mountinfo
//! unmount            umount2 or fusermount3, dead mounts
//! unmounter          a process that keeps the right to unmount
//! daemon_liveness    the socket by which umount waits for the daemon
//! runtime_dir        the directory of these sockets
//! ```
//!
//! Nothing here decides what a file is: that is `fs`.

pub mod adapter;
mod apart;
mod busy_poll;
pub mod daemon_liveness;
mod device_defect;
mod event_loops;
pub mod guard;
mod kernel;
pub mod mountpoint;
pub mod mounts;
mod page_invalidation;
mod passthrough;
mod reply;
mod runtime_dir;
mod served;
pub mod session;
pub mod threads;
pub mod unmount;
pub mod unmounter;

pub use adapter::Adapter;
pub use device_defect::DeviceDefect;
pub use kernel::CacheTimes;
pub use session::{Access, MountError, Mounted, SessionConfig};
pub use unmount::UnmountError;
pub use unmounter::Unmounter;
