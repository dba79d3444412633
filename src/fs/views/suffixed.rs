//! Names in views that show an object as a file with a suffix, and as a directory too.

use super::view::{Child, Item};
use crate::fs::name::{file_name, file_name_escaped};

/// Name of the directory of the object that the link `link_name` leads to, where files end in
/// `suffix`.
pub(super) fn name_of_directory(link_name: &[u8], suffix: &[u8]) -> Vec<u8> {
    let name = file_name(link_name);
    if name.ends_with(suffix) { file_name_escaped(link_name) } else { name.into_owned() }
}

/// `child` under the name that `show` makes of its link name.
pub(super) fn named(child: Child, item: Item, show: impl Fn(&[u8]) -> Vec<u8>) -> Child {
    let link_name = child.link_name.unwrap_or_else(|| child.name.into());
    let name = show(&link_name);
    Child { item, link_name: Some(link_name), name }
}
