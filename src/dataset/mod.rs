//! dataset layer.

pub mod chunk;
pub mod index;
