//! container layer.

pub mod btree2;
