//! Sources of virtual datasets that are copied as such: where the copy is, their files may not be.

use super::Object;
use crate::base::Result;
use crate::dataset::elsewhere::{Elsewhere, SourceMapping};

/// Files of sources that are looked for, at most.
const FILES_MAX: usize = 64;

fn mappings(object: Object<'_>) -> Result<Option<Vec<SourceMapping>>> {
    Ok(match object.connector.elsewhere(object.id)? {
        Some(Elsewhere::Datasets(mappings)) => Some(mappings),
        Some(Elsewhere::Files(_)) | None => None,
    })
}

/// True if both datasets are virtual and have the same mappings: the extent of one whose selections
/// are unlimited is that of the sources that it finds.
pub(super) fn are_same(from: Object<'_>, to: Object<'_>) -> Result<bool> {
    Ok(match mappings(from)? {
        Some(ours) => mappings(to)?.is_some_and(|theirs| ours == theirs),
        None => false,
    })
}

/// Name of a file that a virtual dataset has a source in, and that is not where the dataset is.
pub fn missing_source(object: Object<'_>) -> Result<Option<Vec<u8>>> {
    let mut names: Vec<Vec<u8>> = mappings(object)?.unwrap_or_default().into_iter().map(|mapping| mapping.file).collect();
    names.retain(|name| name != b"." && !name.contains(&b'%'));
    names.dedup();
    for name in names.into_iter().take(FILES_MAX) {
        if object.connector.external(object.id, &name, b"/")?.is_none() {
            return Ok(Some(name));
        }
    }
    Ok(None)
}
