//! `.h5dir/status`: counters as text.

use super::container::ContainerFs;
use crate::base::escape::escaped;
use std::sync::atomic::{AtomicU64, Ordering};

impl ContainerFs {
    /// Lines of a name and a value.
    pub(super) fn status_text(&self) -> Vec<u8> {
        let env = self.connector.environment();
        let c = &env.cache.counters;
        let n = |a: &AtomicU64| a.load(Ordering::Relaxed);
        let rows = [
            ("cache_budget_bytes", env.cache.budget()),
            ("cache_bytes", env.cache.bytes()),
            ("cache_hits", n(&c.hits)),
            ("cache_waits", n(&c.waits)),
            ("cache_evictions", n(&c.evictions)),
            ("chunks_decoded", n(&c.decodes)),
            ("chunks_copied", n(&env.copied)),
            ("chunks_not_kept", n(&c.unkept)),
            ("spill_bytes", env.cache.spill().bytes()),
            ("spill_hits", n(&c.spill_hits)),
            ("changes_noticed", self.state()),
            ("inodes", self.nodes.len() as u64),
            ("open_files", self.handles.read().len() as u64),
        ];
        let mut out = format!("version {}\nfile {}\n", env!("CARGO_PKG_VERSION"), escaped(&self.spec.file));
        for (name, value) in rows {
            out.push_str(&format!("{name} {value}\n"));
        }
        out.into_bytes()
    }
}
