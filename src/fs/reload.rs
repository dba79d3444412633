//! Follows a container that another process changes: brings nodes and open files to its present
//! state.
//!
//! ```text
//! look (watching thread)   the container is in another state -> nodes and open files are outdated
//!   request                renews those it needs, by path; repeated if it met the change midway
//!   watching thread        renews all of them, and notifies the kernel
//! ```
//!
//! The kernel drops everything outdated: a request that enters a node reads the number of the state
//! after that. Either it is still the old one, and the thread, which visits the nodes later, meets
//! this node; or it is not, and the request is repeated.

use super::mounted::Mounted;
use super::namespace::{Namespace, Node};
use super::open_files::OpenFiles;
use super::operations::KernelMemory;
use super::types::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Replies that are ready when the state changes reach the kernel within this time; what they say
/// is dropped as well.
const IN_FLIGHT_REPLIES: Duration = Duration::from_millis(20);

/// See the module's description.
pub struct Reload {
    mounted: Arc<Mounted>,
    namespace: Arc<Namespace>,
    files: Arc<OpenFiles>,
    /// The state of the container that the kernel was notified of last.
    notified_state: AtomicU64,
}

impl Reload {
    /// Brings `namespace` and `files` up to date.
    pub fn new(mounted: Arc<Mounted>, namespace: Arc<Namespace>, files: Arc<OpenFiles>) -> Self {
        Reload { mounted, namespace, files, notified_state: AtomicU64::new(0) }
    }

    /// Checks whether the container changed, and notifies the kernel. No lock is held meanwhile.
    pub fn look(&self, kernel: &dyn KernelMemory) {
        let Some(follow) = self.mounted.connector.follow() else { return };
        self.mounted.check_changed(follow, false);
        let state = follow.state();
        if self.notified_state.swap(state, Ordering::Relaxed) == state {
            return;
        }
        std::thread::sleep(IN_FLIGHT_REPLIES);
        self.files.close_outdated();
        let mut renewed = true;
        for ino in self.namespace.nodes.numbers() {
            let node = self.namespace.node(ino);
            renewed &= !matches!(node, Err(Errno(libc::EIO)));
            kernel.forget_inode(ino);
            if !node.as_ref().is_ok_and(|n| self.namespace.has_its_name(n)) {
                forget_name(kernel, self.namespace.nodes.get(ino));
            }
            for (parent, name) in self.namespace.nodes.other_names(ino) {
                if !self.namespace.leads_to(parent, &name, ino) {
                    kernel.forget_name(parent, &name);
                }
            }
        }
        if renewed {
            self.namespace.note_renewed(state);
        }
    }
}

fn forget_name(kernel: &dyn KernelMemory, node: Option<Arc<Node>>) {
    let place = node.map(|n| n.place());
    if let Some((parent, name)) = place.and_then(|p| Some((p.parent?.ino, p.name))) {
        kernel.forget_name(parent, &name);
    }
}
