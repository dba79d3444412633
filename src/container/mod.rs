//! container layer.

pub mod btree1;
pub mod budget;
pub mod earray;
pub mod farray;
