//! container layer.
