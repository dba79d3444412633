//! dataset layer.
