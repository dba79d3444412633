//! Exchange of objects between containers: what an object is, in types.
//!
//! A copy of an object gets its [`Definition`], then its bytes, then the rest: attributes,
//! references, defined elements, named datatypes, comment, order of links. [`difference`] compares
//! an object with its copy.
//!
//! ```text
//! definition  type, shape, storage    references  what references name, in batches
//! attributes  values to be set        defined     sets of defined elements, in slabs
//! compare     what is lost in a copy      aspects     in what two objects differ
//! equal       equality of their parts     creation_list   the list of `H5Pencode`
//! sources     files of virtual datasets
//! ```

mod aspects;
mod attributes;
mod compare;
mod creation_list;
mod defined;
mod definition;
mod equal;
mod references;
mod sources;

pub use aspects::{Aspect, AttributePart, Differing, ElementBytes, differing};
pub use attributes::{attribute, named_types};
pub use compare::difference;
pub use creation_list::creation_list;
pub use defined::{Slab, Slabs, defined_runs, is_whole, knows_defined};
pub use definition::{Definition, is_copied_as_value, needs_exact_form};
pub use references::{references, whole};
pub use sources::missing_source;

use super::{Connector, ObjectId, Result};

/// Links whose order is exchanged: a list of more takes too much memory.
const LINKS_MAX: usize = 1 << 22;

/// An object of a container.
#[derive(Clone, Copy)]
pub struct Object<'a> {
    /// The container.
    pub connector: &'a dyn Connector,
    /// The object.
    pub id: ObjectId,
}

/// Names of the links of a group in the order of their creation; `None`: it does not track that.
/// Errors: there are more than 4,194,304.
pub fn created_links(group: Object<'_>) -> Result<Option<Vec<Vec<u8>>>> {
    let names = group.connector.created_links(group.id, LINKS_MAX.saturating_add(1))?;
    if names.as_ref().is_some_and(|names| names.len() > LINKS_MAX) {
        let reason = format!("the group has more than {LINKS_MAX} links in the order of their creation");
        return Err(crate::base::Error::refused(libc::E2BIG, reason));
    }
    Ok(names)
}
