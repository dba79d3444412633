//! What a copy of a file needs beside its bytes, if one of both is a local file.

use crate::cli::side::{FACT_PREFIX, Source};
use std::io;

/// Extended attribute of the named datatypes that an object and its attributes refer to.
pub(super) const TYPES_XATTR: &[u8] = b"user.h5dir.types";

/// Name and value of an extended attribute.
pub(super) type Xattr = (Vec<u8>, Vec<u8>);

/// The extended attributes of a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Description {
    /// Set before the bytes are written: what the object is.
    pub(super) definition: Option<Xattr>,
    /// Its bytes follow from the definition.
    pub(super) without_bytes: bool,
    /// Set after the bytes are written.
    pub(super) others: Vec<Xattr>,
}

impl Description {
    /// All of them.
    pub(super) fn into_others(self) -> impl Iterator<Item = Xattr> {
        self.definition.into_iter().chain(self.others)
    }
}

/// The description of a local file with extended attributes, for a container; of any file, for a
/// local file.
pub(super) fn of_xattrs(source: &dyn Source) -> io::Result<Description> {
    let mut description = Description::default();
    for name in source.xattr_names()? {
        let value = match source.xattr(&name) {
            Ok(value) => value,
            // It was removed meanwhile.
            Err(e) if e.raw_os_error() == Some(libc::ENODATA) => continue,
            Err(e) => return Err(e),
        };
        match name.strip_prefix(FACT_PREFIX) {
            Some(b"dataset" | b"datatype") => {
                description.without_bytes = name.ends_with(b"datatype");
                description.definition = Some((name, value));
            }
            _ => description.others.push((name, value)),
        }
    }
    // The facts of an object come first: they say of which type its attributes are. Attributes get
    // their named datatypes last.
    description.others.sort_by_key(|(name, _)| (name == TYPES_XATTR, !name.starts_with(FACT_PREFIX)));
    Ok(description)
}
