//! Names in files with a log: those of the log, and those of users.

use crate::dataset::layout::{RecordLog, ReleasedLog};
use std::borrow::Cow;
use std::sync::Arc;

/// The group of a log of records, in the root group.
pub(super) const GROUP: &[u8] = b"LOG";
/// Attributes of the dataset objects of such a log.
pub(super) const ID: &[u8] = b"_log_id";
pub(super) const SHAPE: &[u8] = b"_log_shape";
pub(super) const MAXIMUM: &[u8] = b"_log_maximum";
pub(super) const DEFLATE: &[u8] = b"_log_deflate";
/// All of them.
pub(super) const ATTRIBUTES: [&[u8]; 4] = [ID, SHAPE, MAXIMUM, DEFLATE];
/// Names that versions 1.1 to 1.3 of the log VOL reserve.
const RESERVED: [&[u8]; 8] = [b"__LOG", b"__int_att", b"__dims", b"__mdims", b"__ID", b"_dims", b"_mdims", b"_ID"];

/// The log of a file.
pub(super) enum FileLog {
    /// Of records.
    Records(Arc<RecordLog>),
    /// Of the released log VOL.
    Released {
        /// What its names begin with: one or two underscores.
        prefix: &'static str,
        /// The log, for reading.
        log: Arc<ReleasedLog>,
        /// The log, if it may be written.
        written: Option<Arc<RecordLog>>,
    },
}

/// What has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// A link of the root group.
    RootLink,
    /// A link of another group.
    Link,
    /// An attribute.
    Attribute,
}

impl FileLog {
    /// The log, if it may be written.
    pub(super) fn written(&self) -> Option<&Arc<RecordLog>> {
        match self {
            FileLog::Records(log) => Some(log),
            FileLog::Released { written, .. } => written.as_ref(),
        }
    }

    /// The name by which users know what is stored as `name`; `None` if it belongs to the log.
    pub(super) fn shown<'a>(&self, what: Named, name: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            FileLog::Records(_) => (!is_of_records(what, name)).then_some(name),
            FileLog::Released { prefix: "__", .. } => (!RESERVED.contains(&name)).then_some(name),
            FileLog::Released { .. } => match name.strip_prefix(b"_") {
                Some(rest) => rest.starts_with(b"_").then_some(rest),
                None => Some(name),
            },
        }
    }

    /// The name by which `name` of a user is stored; `None` if no user can have stored it.
    pub(super) fn stored<'a>(&self, what: Named, name: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        match self {
            FileLog::Released { prefix: "_", .. } if name.starts_with(b"_") => Some([b"_", name].concat().into()),
            FileLog::Released { prefix: "_", .. } => Some(name.into()),
            _ => self.shown(what, name).map(Cow::Borrowed),
        }
    }
}

fn is_of_records(what: Named, name: &[u8]) -> bool {
    match what {
        Named::RootLink => name == GROUP,
        Named::Link => false,
        Named::Attribute => ATTRIBUTES.contains(&name),
    }
}
