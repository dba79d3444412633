//! All storage layouts: opens the one that a data layout message describes, and finds the one that
//! creates datasets of a name.

use super::parts::Parts;
use super::traits::Layout;
use super::{chunked, compact, contiguous, external, log, virtual_};
use crate::base::{Error, Result};
use crate::dataset::creation::{CreateLayout, NewLayout, Records};

/// Opens a layout; `None` for a message of another class.
type Opener = fn(&mut Parts<'_>) -> Result<Option<Box<dyn Layout>>>;

/// A storage layout.
struct LayoutKind {
    /// Name in `user.h5dir.layout`.
    name: &'static str,
    open: Opener,
    /// Creates its datasets.
    create: &'static dyn CreateLayout,
}

/// All layouts. The first one that fits the message is used.
const LAYOUTS: [LayoutKind; 7] = [
    // An anchor looks like a dataset of another layout.
    LayoutKind { name: log::NAME, open: log::open, create: log::Create::DEFAULT },
    LayoutKind { name: compact::NAME, open: compact::open, create: &compact::Create },
    LayoutKind { name: external::NAME, open: external::open, create: &external::Create },
    LayoutKind { name: contiguous::NAME, open: contiguous::open, create: &contiguous::Create },
    LayoutKind { name: chunked::NAME, open: chunked::open, create: &chunked::Create },
    // Opened as chunked: the chunk format makes the difference.
    LayoutKind { name: chunked::SPARSE, open: |_| Ok(None), create: chunked::DEFAULT_SPARSE },
    LayoutKind { name: virtual_::NAME, open: virtual_::open, create: &virtual_::Create },
];

/// Opens the layout of a dataset. Errors: a message of unknown class, or one that contradicts the
/// dataset.
pub(crate) fn open(mut parts: Parts<'_>) -> Result<Box<dyn Layout>> {
    for layout in LAYOUTS {
        if let Some(opened) = (layout.open)(&mut parts)? {
            return Ok(opened);
        }
    }
    Err(Error::unsupported("data layout message", parts.header, "an unknown class"))
}

/// How datasets of the layout `name` are created, in one of its ways if `profile` names it. Errors:
/// there is no such layout or profile.
pub(crate) fn named(name: &str, profile: Option<&str>) -> Result<&'static dyn CreateLayout> {
    let no_profile = |p: &str| Error::refused(libc::EINVAL, format!("layout {name} has no profile {p}"));
    match LAYOUTS.iter().find(|l| l.name == name) {
        Some(LayoutKind { create, .. }) => match profile {
            Some(profile) => create.with_profile(profile).ok_or_else(|| no_profile(profile)),
            None => Ok(*create),
        },
        None => {
            let created: Vec<_> = LAYOUTS.iter().map(|l| l.name).collect();
            Err(Error::refused(libc::EINVAL, format!("layout cannot be {name}; it is one of {}", created.join(", "))))
        }
    }
}

/// The layout of a new dataset in the log of the file, which has these records.
pub(crate) fn new_in_log(records: Records) -> NewLayout {
    NewLayout { kind: log::Create::of(records), chunk: Vec::new() }
}

/// The layout of a new dataset whose elements are in its object header.
pub(crate) fn new_compact() -> NewLayout {
    NewLayout { kind: &compact::Create, chunk: Vec::new() }
}
