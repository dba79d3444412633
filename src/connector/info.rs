//! What a dataset is, in types.

use super::{Datatype, Fill, FilterSpec, Parts, Shape};
use crate::base::storage_class::StorageClass;
use std::sync::Arc;

/// What a dataset is: type, shape and storage. Costs no pass over its elements.
#[derive(Clone)]
pub struct DatasetInfo {
    /// Type of its elements.
    pub datatype: Datatype,
    /// Its shape; unlimited dimensions of a virtual dataset are as its sources say.
    pub shape: Shape,
    /// Value of elements that were never written, as stored.
    pub fill: Fill,
    /// When space is allocated: 1 early, 2 late, 3 incrementally; others are not known.
    pub allocation_time: u8,
    /// When space of a new dataset of its layout is allocated; `None`: a copy has another layout.
    pub usual_allocation_time: Option<u8>,
    /// When the fill value is written: 0 on allocation, 1 never, 2 if it was set; others are not
    /// known.
    pub fill_time: u8,
    /// Name of its layout.
    pub layout: &'static str,
    /// The class of its storage.
    pub class: StorageClass,
    /// Name of the layout that a copy of it gets, if one suits whatever its shape.
    pub copy_layout: Option<&'static str>,
    /// Name of the way in which the layout stores elements, if it has several.
    pub profile: Option<&'static str>,
    /// Dimensions of a chunk, elements, if the layout has chunks.
    pub chunks: Option<Vec<u64>>,
    /// Name of the index of its chunks.
    pub index: Option<&'static str>,
    /// Filters in the order of writing.
    pub filters: Vec<FilterSpec>,
    /// The same as the file has them, with those that make the layout.
    pub stored_filters: Vec<FilterSpec>,
    /// First byte of its elements in the container's file, where they lie there in one piece.
    pub offset: Option<u64>,
    /// Parts of other files that hold its elements.
    pub external: Option<Vec<ExternalSegment>>,
    /// True when its elements are in other files or other datasets.
    pub is_elsewhere: bool,
    /// True when rows can be added or removed where the elements lie.
    pub resizes: bool,
    /// True when a new file of its bytes becomes such a dataset without a description.
    pub is_bytes_file: bool,
    /// True when its elements are in a log of writes: copies of other layouts are dense.
    pub is_logged: bool,
    /// True when its main form is lines, one for each string.
    pub lines: bool,
    /// Number of its references, those of sequences left out, if it has any that can be read.
    pub references: Option<u64>,
    /// Reads parts of the fill value outside its bytes.
    pub parts: Arc<dyn Parts + Send + Sync>,
}

/// A part of another file, in the order of the dataset's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalSegment {
    /// File name as stored.
    pub name: Vec<u8>,
    /// First byte in that file.
    pub offset: u64,
    /// Length, bytes; `None`: up to the end of the dataset.
    pub size: Option<u64>,
}
