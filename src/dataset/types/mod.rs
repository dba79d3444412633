//! Datatypes described and values shown: numpy and JSON notation, text of elements.

pub mod attributes;
mod ddl;
mod decimal;
mod describe;
pub mod json;
mod names;
mod number;
mod numpy;
pub mod parse;
pub mod reference;
pub mod references;
pub mod resolver;
#[cfg(test)]
mod tests;
pub mod value;

pub use attributes::AttributesJson;
pub use ddl::text;
pub use describe::{json_type, type_json};
pub use numpy::{NpyDescr, NumpyDtype, NumpyField, npy_descr, numpy_dtype};
pub use resolver::{Descriptor, Environment, NoResolver, Resolver};
pub use value::{Elements, Shape, json_value, value_text};
