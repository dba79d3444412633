//! Opens the chunk format of a dataset.

use super::parts::Parts;
use super::traits::ChunkFormat;
use super::{dense, filtered, prefix, sparse};
use std::sync::Arc;

/// Opens a format if it fits the dataset.
type Opener = fn(&Parts<'_>) -> Option<Arc<dyn ChunkFormat>>;

/// Formats of certain datasets. The first one that fits is used; filtered chunks fit all others.
const FORMATS: [Opener; 4] = [sparse::open_structured, dense::open, sparse::open_packed, sparse::open_mapped];

/// Opens the chunk format that fits `parts`.
pub(crate) fn open(parts: &Parts<'_>) -> Arc<dyn ChunkFormat> {
    FORMATS.iter().find_map(|open| open(parts)).unwrap_or_else(|| filtered::open(parts))
}

/// Opens the format of chunks that are values of a container of objects.
pub(crate) fn open_value(parts: &Parts<'_>) -> Arc<dyn ChunkFormat> {
    if parts.pipeline.is_empty() {
        return prefix::open(parts);
    }
    let format = open(parts);
    if format.knows_defined() { format } else { prefix::filtered(format, parts) }
}
