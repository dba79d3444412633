//! `.h5dir/refused`: there is such a file while the changes of the mount cannot become a version.
//!
//! It holds the reason. `discard`, written to it, drops the changes: the mount shows the newest
//! version, and can change it.

use super::bytes::{Bytes, Text};
use super::context::{Context, Effects};
use super::view::{Class, EditView, Inode, Item, View};
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::fs::types::{Errno, FsResult, OpenMode};
use std::sync::Arc;

/// See the module's description.
pub struct Refused;

/// Why the last commit was refused.
fn reason(cx: &Context<'_>) -> Option<String> {
    cx.connector.edit().filter(|_| cx.changing)?.refusal()
}

impl View for Refused {
    fn name(&self) -> &'static str {
        "refused"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("refused", "why a commit failed (containers in object stores)")
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Item::part_of(self, Class::File, group, b"")
    }

    fn is_shown(&self, cx: &Context<'_>) -> bool {
        reason(cx).is_some()
    }

    fn follows_names(&self) -> bool {
        false
    }

    fn is_generated(&self, _item: &Item) -> bool {
        true
    }

    // The reason may name files that others may not see.
    fn is_private(&self) -> bool {
        true
    }

    fn open(&self, cx: &Context<'_>, _inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let text = reason(cx).map_or_else(String::new, |reason| format!("{reason}\n"));
        Ok(Some(Box::new(Text(text.into_bytes()))))
    }

    fn edit(&self) -> Option<&'static dyn EditView> {
        Some(&Refused)
    }
}

impl EditView for Refused {
    fn is_editable(&self, _item: &Item) -> bool {
        true
    }

    fn bypasses_page_cache(&self, _mode: OpenMode) -> bool {
        true
    }

    fn size(&self, _cx: &Context<'_>, _inode: &dyn Inode) -> FsResult<u64> {
        Ok(0)
    }

    fn resize(&self, _cx: &Context<'_>, _inode: &dyn Inode, _size: u64) -> FsResult<Effects> {
        Ok(Effects::default())
    }

    fn write(&self, cx: &Context<'_>, inode: &dyn Inode, _offset: u64, data: &[u8]) -> FsResult<Effects> {
        let edit = cx.connector.edit().ok_or(Errno(libc::EROFS))?;
        let discarded = match data.trim_ascii() {
            b"discard" => edit.discard(),
            _ => Err(Error::refused(libc::EINVAL, "the only word that it takes is 'discard'")),
        };
        discarded.map_err(|e| cx.host.refused(None, &e))?;
        Ok(inode.item().owner.map_or_else(Effects::default, |group| Effects::links(group, None)))
    }
}
