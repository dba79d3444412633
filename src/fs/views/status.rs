//! `.h5dir/status`: counters as text, lines of a name and a value.

use super::bytes::{Bytes, Text};
use super::context::Context;
use super::view::{Class, Inode, Item, View};
use crate::base::Result;
use crate::base::escape::escaped;
use crate::connector::ObjectId;
use std::path::Path;
use std::sync::Arc;

/// See the module's description.
pub struct Status;

impl View for Status {
    fn name(&self) -> &'static str {
        "status"
    }

    fn root(&'static self, _group: ObjectId) -> Item {
        Item { view: &Status, class: Class::File, owner: None, key: None }
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn is_generated(&self) -> bool {
        true
    }

    fn open(&self, cx: &Context<'_>, _inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        Ok(Some(Box::new(Text(text(cx.file, &cx.host.counters()).into_bytes()))))
    }
}

/// Lines of a name and a value.
pub fn text(file: &Path, counters: &[(&'static str, u64)]) -> String {
    let mut out = format!("version {}\nfile {}\n", env!("CARGO_PKG_VERSION"), escaped(file));
    for (name, value) in counters {
        out.push_str(&format!("{name} {value}\n"));
    }
    out
}
