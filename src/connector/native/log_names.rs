//! Names in files of the released log VOL: those of the log, and those of users.

use crate::dataset::layout::ReleasedLog;
use std::borrow::Cow;
use std::sync::Arc;

/// Names that versions 1.1 to 1.3 reserve.
const RESERVED: [&[u8]; 8] = [b"__LOG", b"__int_att", b"__dims", b"__mdims", b"__ID", b"_dims", b"_mdims", b"_ID"];

/// The log of a file, and which names are its own.
pub(super) struct FileLog {
    /// What the names of the log begin with: one or two underscores.
    pub(super) prefix: &'static str,
    /// The log.
    pub(super) log: Arc<ReleasedLog>,
}

impl FileLog {
    /// The name by which users know what is stored as `name`; `None` if it belongs to the log.
    pub(super) fn shown<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        match name.strip_prefix(b"_") {
            _ if self.prefix == "__" => (!RESERVED.contains(&name)).then_some(name),
            Some(rest) => rest.starts_with(b"_").then_some(rest),
            None => Some(name),
        }
    }

    /// The name by which `name` of a user is stored; `None` if no user can have stored it.
    pub(super) fn stored<'a>(&self, name: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if self.prefix == "__" {
            return (!RESERVED.contains(&name)).then_some(Cow::Borrowed(name));
        }
        Some(if name.starts_with(b"_") { [b"_", name].concat().into() } else { name.into() })
    }
}
