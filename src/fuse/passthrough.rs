//! Files that the kernel serves by itself (`FUSE_PASSTHROUGH`): their reads, writes and mappings do
//! not reach the daemon.
//!
//! The open files of one inode are served by the kernel or by the daemon, all of them: the first
//! one decides. The kernel demands `CAP_SYS_ADMIN` for each file, so only a daemon of root with
//! `--no-sandbox` has any.

use crate::base::locks::Mutex;
use crate::fs::{Handle, Operations};
use foldhash::HashMap;
use fuser::{BackingId, INodeNo, InitFlags, KernelConfig};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files on a stacked file system (overlayfs) are served by the daemon: the kernel could not stack
/// another one on this mount.
const STACK_DEPTH_MAX: u32 = 1;

/// Open files of one inode.
struct Opens {
    count: u64,
    /// The file that the kernel reads and writes; `None`: the daemon serves them.
    backing: Option<Arc<BackingId>>,
}

/// See the module's description.
#[derive(Default)]
pub struct Passthrough {
    enabled: AtomicBool,
    open: Mutex<HashMap<u64, Opens>>,
}

impl Passthrough {
    /// Asks for the feature if `operations` have files of the host.
    pub fn request(&self, operations: &dyn Operations, config: &mut KernelConfig) {
        let wanted = operations.has_host_files() && config.capabilities().contains(InitFlags::FUSE_PASSTHROUGH);
        let agreed =
            wanted && config.set_max_stack_depth(STACK_DEPTH_MAX).is_ok() && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok();
        self.enabled.store(agreed, Ordering::Release);
    }

    /// The file that serves the open file `handle` of `ino`; `open` gives the kernel a descriptor.
    /// `None`: the daemon does.
    pub fn backing(
        &self,
        operations: &dyn Operations,
        ino: INodeNo,
        handle: Handle,
        open: impl FnOnce(OwnedFd) -> io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        if !self.enabled.load(Ordering::Acquire) {
            return None;
        }
        let file = operations.host_file(handle)?;
        let mut all = self.open.lock();
        let opens = all.entry(ino.0).or_insert_with(|| {
            let backing = open(file).inspect_err(|e| {
                if e.raw_os_error() == Some(libc::EPERM) {
                    self.enabled.store(false, Ordering::Release);
                }
                tracing::debug!("the kernel does not serve inode {ino}: {e}");
            });
            Opens { count: 0, backing: backing.ok().map(Arc::new) }
        });
        opens.count = opens.count.saturating_add(1);
        opens.backing.clone()
    }

    /// An open file of `ino` was closed.
    pub fn released(&self, ino: INodeNo) {
        let mut all = self.open.lock();
        let Some(opens) = all.get_mut(&ino.0) else { return };
        opens.count = opens.count.saturating_sub(1);
        if opens.count == 0 {
            all.remove(&ino.0);
        }
    }
}
