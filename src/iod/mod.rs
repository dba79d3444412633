//! Containers in object stores: versions of an ordered key-value map, committed by many writers.
//!
//! ```text
//! container   open, create, commit records            session    identity of one writer, packs
//! objects     bytes of packs, caches                  range      ranges of keys
//! snapshot    one version of the map                  tree       copy-on-write B+tree
//! merge       changes of two writers                  ranges     written bytes of a chunk
//! keys        names of objects, keys of the map       cell       values of the map
//! origin      random identities, time, text of a writer     identity   names of transactions
//! originals   files outside that chunks refer to
//! transactions  peers whose changes are one version
//! pin         versions that mounts keep               gc         garbage collection
//! tag         names of versions                       history    what versions changed, reverts
//! descriptor, record, delta, checkpoint, node, transaction   codecs of stored objects
//! check       reading past damage                     turns      when rivals commit
//! compare     what differs in two trees              subtree    checked descent of trees
//! rules       rules of the protocol                  limits     bounds of what is read
//! room        room left on a file system
//! ```
//!
//! `docs/FORMAT-objectstore.md` has every byte, `docs/DESIGN-objectstore.md` the reasons.

pub mod cell;
pub mod check;
pub mod checkpoint;
mod compare;
pub mod container;
pub mod delta;
pub mod descriptor;
pub mod gc;
pub mod history;
pub mod identity;
pub mod keys;
pub mod limits;
#[cfg(test)]
mod limits_tests;
pub mod merge;
pub mod node;
mod objects;
mod origin;
pub mod originals;
pub mod pin;
pub mod range;
pub mod ranges;
pub mod record;
mod room;
pub mod rules;
mod sealed;
pub mod session;
pub mod snapshot;
mod subtree;
#[cfg(test)]
mod subtree_tests;
pub mod tag;
#[cfg(test)]
mod tests;
pub mod transaction;
pub mod transactions;
pub mod tree;
mod turns;

pub use cell::{Cell, Data, Extent};
pub use container::{Container, Outcome};
pub use delta::Entry;
pub use history::Touched;
pub use keys::Key;
pub use merge::{Body, Change, Changes, Conflict};
pub use objects::Objects;
pub use originals::OriginalFiles;
pub use ranges::Ranges;
pub use record::Record;
pub use session::{PackWriter, Session};
pub use snapshot::{Pinned, Snapshot};
pub use tag::Tag;
pub use transactions::{Membership, NewTransaction, Standing, Transaction};
