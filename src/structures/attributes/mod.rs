//! Attributes of an object: messages of its header, or dense storage (fractal heap and version 2
//! B-trees).
//!
//! `dense` looks up and lists dense attributes, `dense_edit` changes them; `edit` changes
//! attributes in either storage. Attributes in the header are read by the caller. H5.format.4.0,
//! "Attribute Message".

pub(crate) mod dense;
pub(crate) mod dense_edit;
pub(crate) mod edit;
