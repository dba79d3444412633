//! Counts of hard links, kept in the header of the object they lead to.
//!
//! ```text
//! version 1 header: in the prefix | version 2: message 0x16, left out while the count is 1
//! ```

use crate::base::{Address, Error, Result};
use crate::meta::Store;
use crate::meta::header_edit::HeaderEdit;

/// Hard links to the object at `object`.
pub fn link_count(store: &Store, object: Address) -> Result<u32> {
    Ok(HeaderEdit::load(store, object)?.links())
}

/// Counts one more; returns how many there are. A new object has one reference before it has a link.
pub fn add_reference(store: &Store, object: Address) -> Result<u32> {
    change(store, object, |n| n.checked_add(1))
}

/// Counts one less; returns how many are left. With none left it is the caller who deletes the object.
pub fn drop_reference(store: &Store, object: Address) -> Result<u32> {
    change(store, object, |n| n.checked_sub(1))
}

fn change(store: &Store, object: Address, f: impl Fn(u32) -> Option<u32>) -> Result<u32> {
    let mut edit = HeaderEdit::load(store, object)?;
    let n = f(edit.links()).ok_or_else(|| Error::corrupt("object header", object, "the count of links is no longer right"))?;
    edit.set_links(n);
    edit.write(store)?;
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::edit::testing::empty;

    #[test]
    fn references_are_counted_in_both_versions() {
        let (store, _) = empty();
        for version in [1, 2] {
            let at = HeaderEdit::new(version, None, (false, false)).create(&store).unwrap();
            assert_eq!(link_count(&store, at), Ok(1));
            assert_eq!((add_reference(&store, at), add_reference(&store, at)), (Ok(2), Ok(3)));
            assert_eq!((drop_reference(&store, at), link_count(&store, at)), (Ok(2), Ok(2)));
            assert_eq!((drop_reference(&store, at), drop_reference(&store, at)), (Ok(1), Ok(0)));
            assert_eq!(link_count(&store, at), Ok(0));
            assert!(drop_reference(&store, at).is_err());
            assert_eq!(add_reference(&store, at), Ok(1));
        }
    }
}
