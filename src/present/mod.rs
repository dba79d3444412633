//! Typed values and text: numpy, JSON and plain text of datatypes, elements and facts, and back.
//!
//! Shared by every kind of container. Knows the container model, and no file system.

#[cfg(feature = "arrow")]
mod append;
mod arrow;
mod aspects;
mod attribute_value;
pub(crate) mod attributes;
mod blocks;
mod brief;
mod brief_value;
mod ddl;
mod decimal;
mod defined;
mod defined_fact;
mod describe;
mod edit;
mod facts;
mod gather;
mod hdf5_json;
mod image;
pub(crate) mod json;
mod json_text;
mod link_order;
mod map;
mod named_types;
mod names;
mod npy;
mod number;
mod numpy;
mod object_brief;
pub(crate) mod parse;
mod references;
mod region;
mod statistics;
mod table;
pub mod targets;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod text_tests;
pub(crate) mod value;
mod values;
mod write_selected;
mod zarr;

/// The parsers that fuzz targets call.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use super::parse::{
        AttributeList, map_types, parse_dataset_json, parse_datatype_in, parse_fact, parse_names, parse_references, parse_types,
        parse_value,
    };
}

pub use append::append;
#[cfg(feature = "arrow")]
pub use arrow::{ArrowFile, is_fixed as arrow_is_fixed};
pub use aspects::{aspect_name, aspect_text, element_text};
pub use attribute_value::attribute_value;
pub use brief::cut;
pub use ddl::text;
pub use defined::values as selected_values;
pub use defined::{defined, defined_in_order, defined_json, defined_len, defined_values, erase, exact_values, read_at, selected};
pub use defined_fact::{DefinedTexts, is_defined_fact};
pub use describe::{json_type, type_json};
pub use edit::{Editor, Existing, Held, Prepared, check_fact, check_new_file};
pub use facts::{FACT_NAMES, attributes as attributes_json, datatype_text, description, fact, fact_fits, fact_within, needed_facts};
pub use image::{ImageForm, Pictures, has_pictures};
pub use json_text::JsonText;
pub use map::{MapEditor, map_key_text, map_keys, map_value, map_value_len};
pub use npy::{build as build_npy_header, npy_header};
pub use numpy::{NpyDescr, NumpyDtype, NumpyField, npy_descr, numpy_dtype};
pub use object_brief::{AttributeBrief, ElementsBrief, ObjectBrief, attributes_brief, elements_brief, object_brief};
pub use parse::{Node, NpyHeader, PointFiles, SelectionText, point_files};
pub use references::is_references_fact;
pub use statistics::{BARS, Statistics, statistics};
pub use table::{Dialect, Table, TableText};
pub use values::{attribute_fits, attribute_raw, attribute_text};
pub use write_selected::{Input, InputForm, WriteProgress, write_at, write_exact, write_selected};
pub use zarr::{
    ChunkBytes, LeftOut, NOT_COORDINATES, NodeName, PhonyDimensions, References, ZarrArray, ZarrFormat, array_document,
    attributes_document, consolidated_document, group_document, is_dimension_only, variable_name,
};
