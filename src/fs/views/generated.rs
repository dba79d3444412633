//! Files of text about the mount: `.h5dir/log`, `.h5dir/metrics`, `.h5dir/status`. Each open makes
//! the text again.

use super::bytes::{Bytes, Text};
use super::context::Context;
use super::metrics::page;
use super::view::{Class, Inode, Item, View};
use crate::base::Result;
use crate::base::escape::escaped;
use crate::base::recent_log;
use crate::connector::ObjectId;
use std::path::Path;
use std::sync::Arc;

/// A file of text about the mount.
pub struct Generated {
    name: &'static str,
    /// Only the owner may read it.
    private: bool,
    about: &'static str,
    text: fn(&Context<'_>) -> Vec<u8>,
}

/// The last warnings and errors, with the reasons of refusals. They may name files that others may
/// not see.
pub static LOG: Generated =
    Generated { name: "log", private: true, about: "the last warnings and errors, with reasons", text: |_| recent_log::text() };
/// Measurements in the format of Prometheus.
pub static METRICS: Generated = Generated {
    name: "metrics",
    private: false,
    about: "counters and durations for Prometheus",
    text: |cx| page(&cx.host.counters(), "").into_bytes(),
};
/// Counters.
pub static STATUS: Generated =
    Generated { name: "status", private: false, about: "counters", text: |cx| status_text(cx.file, &cx.host.counters()).into_bytes() };

/// Counters of the mount of `file` as lines of a name and a value.
pub fn status_text(file: &Path, counters: &[(&'static str, u64)]) -> String {
    let mut out = format!("version {}\nfile {}\n", env!("CARGO_PKG_VERSION"), escaped(file));
    for (name, value) in counters {
        out.push_str(&format!("{name} {value}\n"));
    }
    out
}

impl View for Generated {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> (&'static str, &'static str) {
        (self.name, self.about)
    }

    fn root(&'static self, _group: ObjectId) -> Item {
        Item { view: self, class: Class::File, owner: None, key: None }
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn is_generated(&self, _item: &Item) -> bool {
        true
    }

    fn is_private(&self) -> bool {
        self.private
    }

    fn open(&self, cx: &Context<'_>, _inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        Ok(Some(Box::new(Text((self.text)(cx)))))
    }
}
