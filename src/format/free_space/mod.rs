//! Free-space manager (H5.format.4.0, "Free-space Manager"): the free space of a fractal heap, or
//! of a file.
//!
//! ```text
//! header -> section list: sections of free space, grouped by size
//! ```
//!
//! A fractal heap has one manager; a file has one for each kind of block
//! ([`super::message::file_space_info`]). The client determines the classes of sections.

mod header;
mod sections;

pub use header::{Client, Header, NAME};
pub use sections::{BlockRange, Class, LIST_NAME, Section};

#[cfg(test)]
mod tests;
