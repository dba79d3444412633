//! `.h5dir/log`: the last warnings and errors, with the reasons of refusals.

use super::bytes::{Bytes, Text};
use super::context::Context;
use super::view::{Class, Inode, Item, View};
use crate::base::Result;
use crate::base::recent_log;
use crate::connector::ObjectId;
use std::sync::Arc;

/// See the module's description.
pub struct Log;

impl View for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn root(&'static self, _group: ObjectId) -> Item {
        Item { view: &Log, class: Class::File, owner: None, key: None }
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn is_generated(&self) -> bool {
        true
    }

    fn is_private(&self) -> bool {
        true
    }

    fn open(&self, _cx: &Context<'_>, _inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        Ok(Some(Box::new(Text(recent_log::text()))))
    }
}
