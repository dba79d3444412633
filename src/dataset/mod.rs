//! dataset layer.
pub mod types;
pub mod vl;
