//! Creation order of the links of a group: listing by it, and setting it.
//!
//! libhdf5 assigns the orders 0, 1, 2, ... as links are inserted. A copied group gets the order of
//! its source after its links were inserted, so all its links are inserted anew.

use super::edit::Group;
use super::read::{self, GroupStorage};
use crate::base::{Address, Error, Result};
use crate::format::message::link::Link;
use crate::meta::Store;
use crate::structures::order::merged;
use std::ops::ControlFlow;

/// Calls `f` with the links of a group that tracks creation order, in that order, until it breaks.
/// Links without an order come last. Skips damage, as [`read::list`] does.
pub fn list_by_creation(store: &Store, storage: &GroupStorage, f: &mut dyn FnMut(Link) -> ControlFlow<()>) -> Result<()> {
    if let GroupStorage::Dense { fractal_heap, creation_index, .. } = storage
        && creation_index.is_defined()
        && let Ok(links) = super::dense::DenseLinks::open_by_creation(store, *fractal_heap, *creation_index)
    {
        let listed = links.list(store, 0, &mut |link, _| Ok(f(link)));
        if listed.is_ok() {
            return Ok(());
        }
    }
    let mut links = Vec::new();
    read::list(store, storage, 0, &mut |link, _| {
        links.push(link);
        Ok(ControlFlow::Continue(()))
    })?;
    links.sort_by_key(|link| link.creation_order.unwrap_or(i64::MAX));
    let _ = links.into_iter().try_for_each(f);
    Ok(())
}

/// Sets the creation order of the links of the group at `group`, which tracks and indexes it from
/// then on: those in `names` in their order, the others before or after them, as they were created
/// before the first of them or not. Names without a link are skipped. An old-style group becomes
/// new-style. Returns false if nothing changed. Errors: a link cannot be read.
pub fn set_order(store: &Store, group: Address, names: &[Vec<u8>]) -> Result<bool> {
    super::edit::turn_new_style(store, group)?;
    let mut g = Group::load(store, group)?;
    let mut links = g.links()?;
    links.sort_by_key(|link| link.creation_order.unwrap_or(i64::MAX));
    let order = merged(links.len(), |i| links.get(i).map(|link| link.name.as_slice()), names);
    let in_order = order.iter().copied().eq(0..links.len());
    if in_order && g.tracks_order() {
        return Ok(false);
    }
    g.restart()?;
    let mut links: Vec<Option<Link>> = links.into_iter().map(Some).collect();
    for (n, i) in (0i64..).zip(order) {
        let Some(link) = links.get_mut(i).and_then(Option::take) else { continue };
        g.insert_new(&Link { creation_order: Some(n), ..link })?;
    }
    let next = i64::try_from(links.len()).map_err(|_| Error::limit("group", group, "creation order"))?;
    g.finish_at(next)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::message::link::LinkTarget;
    use crate::meta::ObjectHeader;
    use crate::meta::edit::testing::empty;
    use crate::structures::group::edit::{GroupCreation, create_group, insert_link, remove_link};

    fn links(store: &Store, group: Address) -> Vec<String> {
        let storage = read::tests::storage(store, &ObjectHeader::cached(store, group).unwrap()).unwrap().unwrap();
        let mut names = Vec::new();
        let mut orders = Vec::new();
        list_by_creation(store, &storage, &mut |link| {
            names.push(String::from_utf8(link.name).unwrap());
            orders.push(link.creation_order);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(orders.is_sorted() && orders.iter().all(Option::is_some), "{orders:?}");
        names
    }

    fn insert(store: &Store, group: Address, name: &str) {
        let target = LinkTarget::Soft(b"/x".to_vec());
        insert_link(store, group, &Link { name: name.into(), utf8: false, creation_order: None, target }).unwrap();
    }

    #[test]
    fn links_get_the_order_of_a_list() {
        for link_order in [(true, true), (true, false), (false, false)] {
            for count in [1, 8, 9, 300] {
                let (store, _) = empty();
                let group = create_group(&store, &GroupCreation { link_order, ..GroupCreation::default() }).unwrap();
                let wanted: Vec<String> = (0..count).rev().map(|n| format!("n{n:03}")).collect();
                (0..count).for_each(|n| insert(&store, group, &format!("n{n:03}")));
                let bytes = |names: &[String]| names.iter().map(|n| n.clone().into_bytes()).collect::<Vec<_>>();
                assert!(set_order(&store, group, &bytes(&wanted)).unwrap() || count == 1);
                assert!(!set_order(&store, group, &bytes(&wanted)).unwrap());
                assert_eq!(links(&store, group), wanted);
                insert(&store, group, "a");
                assert_eq!(links(&store, group), [wanted.clone(), vec!["a".into()]].concat());
                // All are found by name, and the last removal resets the order.
                for name in wanted.iter().map(String::as_str).chain(["a"]) {
                    assert!(remove_link(&store, group, name.as_bytes()).unwrap().is_some(), "{name}");
                }
                insert(&store, group, "b");
                assert_eq!(links(&store, group), ["b"]);
            }
        }
    }
}
