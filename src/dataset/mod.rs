//! dataset layer.

pub mod virtual_;
