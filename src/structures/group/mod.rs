//! Groups: links in a symbol table, in link messages, or in dense storage.
//!
//! ```text
//! symbol table message        -> version 1 B-tree + local heap      (old style)
//! link messages               -> the object header itself           (compact)
//! link info message, defined  -> fractal heap + version 2 B-trees   (dense)
//! ```
//!
//! `read` looks links up and lists them, whichever storage holds them; `edit` creates groups,
//! inserts and removes links; `order` lists by creation order and sets it; `extents` visits the
//! storage. Below them: `symbol_table`,
//! `symbol_table_list` and `symbol_table_edit` for old-style groups, `dense` and `dense_edit` for
//! dense ones.

pub(crate) mod dense;
pub(crate) mod dense_edit;
pub(crate) mod edit;
mod extents;
pub(crate) mod order;
mod read;
mod symbol_table;
mod symbol_table_edit;
mod symbol_table_list;
mod visit;

pub(crate) use extents::{check_free_names, extents};
pub(crate) use read::{GroupStorage, list, lookup};
