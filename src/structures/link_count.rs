//! Changes of link counts; [`crate::meta::ObjectHeader::links`] reads them.

use crate::base::{Address, Result};
use crate::meta::Store;
use crate::meta::header_edit::HeaderEdit;

/// Adds 1 to the link count of the object at `object`; returns the new count. A new object has a
/// count of 1 before it has a link.
pub(crate) fn add_reference(store: &Store, object: Address) -> Result<u32> {
    let mut edit = HeaderEdit::load(store, object)?;
    let count = edit.add_links(1)?;
    edit.write(store)?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::ObjectHeader;
    use crate::meta::edit::testing::empty;

    #[test]
    fn links_are_counted_in_both_versions() {
        let (store, _) = empty();
        for version in [1, 2] {
            let at = HeaderEdit::new(version, None, (false, false)).create(&store).unwrap();
            let drop_reference = || {
                let mut edit = HeaderEdit::load(&store, at).unwrap();
                let count = edit.add_links(-1);
                edit.write(&store).unwrap();
                count
            };
            let links = || ObjectHeader::load(&store, at).unwrap().links();
            assert_eq!(links(), 1);
            assert_eq!((add_reference(&store, at), add_reference(&store, at), links()), (Ok(2), Ok(3), 3));
            assert_eq!((drop_reference(), links()), (Ok(2), 2));
            assert_eq!((drop_reference(), drop_reference(), links()), (Ok(1), Ok(0), 0));
            assert!(drop_reference().is_err());
            assert_eq!((add_reference(&store, at), links()), (Ok(1), 1));
        }
    }
}
