//! The caches of the kernel: how long it keeps what, and notifications what to drop.

use crate::base::waiting;
use crate::fs::{Ino, KernelMemory};
use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Sends notifications to the kernel, once the session has a notifier.
pub type Kernel = Arc<OnceLock<Notifier>>;

/// How long the kernel may cache answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheTimes {
    /// Names.
    pub entry: Duration,
    /// Names that do not exist.
    pub absent: Duration,
    /// Attributes.
    pub attr: Duration,
}

/// The caches of the kernel.
pub struct Memory(pub Kernel);

impl Memory {
    fn notify(&self, what: &str, f: impl FnOnce(&Notifier) -> std::io::Result<()>) {
        waiting::may_wait();
        if let Some(Err(e)) = self.0.get().map(f) {
            tracing::debug!("the kernel keeps {what}: {e}");
        }
    }
}

impl KernelMemory for Memory {
    fn forget_inode(&self, ino: Ino) {
        self.notify("an inode", |k| k.inval_inode(INodeNo(ino.0), 0, 0));
    }

    fn forget_name(&self, parent: Ino, name: &[u8]) {
        self.notify("a name", |k| k.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name)));
    }
}
