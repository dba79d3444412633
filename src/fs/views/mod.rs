//! Views: the container as trees of files, one file per view.
//!
//! A new view is a file of this folder, its `mod` line, and a line of [`ALL`].

#[cfg(feature = "arrow")]
mod arrow;
mod attrs;
mod buffer;
mod bytes;
mod chosen;
mod chunks;
pub(super) mod context;
mod control;
mod defined;
mod elements;
mod exact;
mod found;
mod generated;
mod images;
mod json;
mod kerchunk;
mod links;
mod main;
mod map;
mod metrics;
mod npy;
mod object;
mod readme;
mod refused;
mod sizes;
mod suffixed;
mod tables;
mod transactions;
mod versions;
mod view;
mod zarr;

pub use bytes::{Bytes, Text};
pub use chosen::ViewChoice;
pub use context::{Buffers, Context, Effects, Host};
pub use generated::status_text;
pub use links::new_link_name;
pub use metrics::{label, page as measurements};
pub use transactions::TREE;
pub use view::{Child, Class, EditView, Inode, Item, Owned};
pub use zarr::name_of_node;

use crate::base::Result;
use crate::connector::ObjectId;
use crate::fs::name;
use view::View;

/// The views below `.h5dir`, in the order of their names: one line each.
#[rustfmt::skip]
pub static ALL: &[&dyn View] = &[
    &readme::Readme(|| ALL),
    #[cfg(feature = "arrow")]
    &arrow::Arrow,
    &attrs::Attrs,
    &chunks::Chunks,
    &tables::CSV,
    &defined::Defined,
    &exact::Exact,
    &found::Found,
    &images::Images,
    &json::Json,
    &tables::JSON_LINES,
    &kerchunk::Kerchunk,
    &generated::LOG,
    &generated::METRICS,
    &npy::Npy,
    &refused::Refused,
    &generated::STATUS,
    &versions::Tags,
    &tables::TEXT,
    &tables::TSV,
    &transactions::Tx,
    &versions::Versions,
    &zarr::ZARR,
    &zarr::ZARR2,
];

/// The files of each view below `.h5dir`, as a pattern, and what they have.
pub fn about_views() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.iter().map(|view| view.about())
}

/// The view of the root of a mount.
static MAIN: main::Main = main::Main;
/// Name of the control directory.
pub const CONTROL_NAME: &[u8] = b".h5dir";
/// `.h5dir`.
static CONTROL: control::Control = control::Control(ALL);

/// The root of a mount that shows `group`.
pub fn root(group: ObjectId) -> Item {
    MAIN.root(group)
}

/// The child `name` of directory `dir`. The root of the mount has `.h5dir`, which is not listed.
pub fn lookup(cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
    match dir.item().group().filter(|_| dir.is_root() && name == name::CONTROL) {
        Some(group) => Ok(Some(Child { name: name.to_vec(), item: CONTROL.root(group), link_name: None })),
        None => dir.item().view.lookup(cx, dir, name),
    }
}
