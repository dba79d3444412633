//! What the kernel is told unasked.

use crate::base::waiting;
use crate::fs::{Ino, KernelMemory};
use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

/// The way to tell the kernel something unasked, once the session has one.
pub type Kernel = Arc<OnceLock<Notifier>>;

/// What the kernel remembers.
pub struct Memory(pub Kernel);

impl Memory {
    fn tell(&self, what: &str, f: impl FnOnce(&Notifier) -> std::io::Result<()>) {
        waiting::may_wait();
        if let Some(Err(e)) = self.0.get().map(f) {
            tracing::debug!("the kernel keeps what it knows of {what}: {e}");
        }
    }
}

impl KernelMemory for Memory {
    fn forget_inode(&self, ino: Ino) {
        self.tell("an inode", |k| k.inval_inode(INodeNo(ino.0), 0, 0));
    }

    fn forget_name(&self, parent: Ino, name: &[u8]) {
        self.tell("a name", |k| k.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name)));
    }
}
