//! What a dataset shall be: the description that creates or changes one.

use super::{Datatype, Elsewhere, FilterSpec, NewValue, Newlines, Result};
use crate::base::Error;

/// How a dataset is cut into chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunksSpec {
    /// Into chunks of a size that is chosen for it.
    Auto,
    /// Not at all.
    None,
    /// Into chunks of these dimensions, none of them 0.
    Dims(Vec<u64>),
}

/// What elements hold that were never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FillSpec {
    /// Zero bytes, as without a word about it.
    Default,
    /// Anything.
    Undefined,
    /// This element.
    Value(NewValue),
}

/// Requested properties of a dataset; `None` where none was requested.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatasetSpec {
    /// Type of the elements.
    pub dtype: Option<Datatype>,
    /// Dimensions, slowest first; none is a scalar.
    pub shape: Option<Vec<u64>>,
    /// A null dataspace is wanted; then there is neither shape nor maxshape.
    pub null_space: bool,
    /// Largest dimensions; `None` inside is unlimited. As many as the shape has, none smaller, if
    /// both are given.
    pub maxshape: Option<Vec<Option<u64>>>,
    /// Chunks.
    pub chunks: Option<ChunksSpec>,
    /// Filters in the order of writing. Values they work out from the datatype are not filled in.
    pub filters: Option<Vec<FilterSpec>>,
    /// Fill value.
    pub fillvalue: Option<FillSpec>,
    /// When the fill value is written: 0 on allocation, 1 never, 2 if it was set.
    pub fill_time: Option<u8>,
    /// When space is allocated: 1 early, 2 late, 3 incrementally.
    pub allocation_time: Option<u8>,
    /// Name of the layout.
    pub layout: Option<String>,
    /// Where the elements are, if not in the dataset's own storage.
    pub elsewhere: Option<Elsewhere>,
    /// Name of the way in which the layout stores elements.
    pub profile: Option<String>,
    /// Elements with the fill value become undefined, where the layout has undefined elements.
    pub undefine_fill: bool,
    /// The shape is that of a dataset without elements: it does not give other meaning to bytes.
    pub only_blank: bool,
    /// A layout that the container does not have becomes the nearest one that it has.
    pub converts_layout: bool,
    /// Newlines inside the strings that the file's lines are.
    pub newlines: Option<Newlines>,
}

fn invalid(reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::refused(libc::EINVAL, reason)
}

/// Name of the layout of a dataset whose elements are `elsewhere`.
pub fn elsewhere_layout(elsewhere: &Elsewhere) -> &'static str {
    match elsewhere {
        Elsewhere::Files(_) => "external",
        Elsewhere::Datasets(_) => "virtual",
    }
}

impl DatasetSpec {
    /// Leaves to the container how the dataset is stored. Without chunks an ordinary one could not
    /// grow, so none of their dimensions stay.
    pub fn forget_storage(&mut self) {
        (self.layout, self.profile, self.chunks, self.allocation_time, self.elsewhere) = (None, None, None, None, None);
        self.converts_layout = false;
    }

    /// Errors: properties that contradict each other.
    pub fn check(&self) -> Result<()> {
        if self.null_space && (self.shape.is_some() || self.maxshape.is_some()) {
            return Err(invalid("a dataset without elements (null) has neither shape nor maxshape"));
        }
        if let (Some(shape), Some(max)) = (&self.shape, &self.maxshape) {
            if shape.len() != max.len() {
                return Err(invalid(format!("shape has {} dimensions, maxshape {}", shape.len(), max.len())));
            }
            if shape.iter().zip(max).any(|(d, max)| max.is_some_and(|max| max < *d)) {
                return Err(invalid("shape is larger than maxshape"));
            }
        }
        let rank = self.shape.as_ref().map(Vec::len).or(self.maxshape.as_ref().map(Vec::len));
        if let (Some(ChunksSpec::Dims(chunks)), Some(rank)) = (&self.chunks, rank)
            && chunks.len() != rank
        {
            return Err(invalid(format!("chunks have {} dimensions, the dataset {rank}", chunks.len())));
        }
        let in_chunks = matches!(self.chunks, Some(ChunksSpec::Dims(_) | ChunksSpec::Auto));
        let filtered = self.filters.as_ref().is_some_and(|f| !f.is_empty());
        if self.chunks == Some(ChunksSpec::None) && filtered {
            return Err(invalid("only a dataset in chunks has filters"));
        }
        if let Some(elsewhere) = &self.elsewhere {
            let name = elsewhere_layout(elsewhere);
            if self.layout.as_deref().is_some_and(|given| given != name) {
                return Err(invalid(format!("elements in other places need layout {name}")));
            }
            if in_chunks || filtered {
                return Err(invalid(format!("a dataset of layout {name} has neither chunks nor filters")));
            }
        }
        if (self.null_space || rank == Some(0)) && (in_chunks || filtered) {
            return Err(invalid("a dataset without dimensions cannot be in chunks"));
        }
        Ok(())
    }
}
