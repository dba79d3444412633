//! The creation order of the links of a copied group.
//!
//! A copying program sets it before or after it made the links. An order that names links that do
//! not exist yet is kept until they do, and is applied by a commit; the last commit applies what is
//! left to the links that exist.

use super::change_parts::NameChange;
use crate::base::{Error, Result};
use crate::connector::{ObjectId, ObjectKind};
use crate::structures::group::order;

/// Bytes of names of all orders that are kept.
const KEPT_MAX: usize = 64 << 20;

fn len(names: &[Vec<u8>]) -> usize {
    names.iter().map(|name| name.len().saturating_add(size_of::<Vec<u8>>())).fold(0, usize::saturating_add)
}

impl NameChange<'_> {
    /// Sets the creation order of the links of `group`.
    pub(super) fn set_link_order(&self, group: ObjectId, names: &[Vec<u8>]) -> Result<()> {
        if self.change.objects().kind(group)? != ObjectKind::Group {
            return Err(Error::refused(libc::EINVAL, "only a group has links with an order"));
        }
        let complete = self.apply_order(group, names)?;
        let mut pending = self.change.editing.objects.all_pending();
        pending.change(group, |p| p.link_order = None);
        let kept = pending.iter().filter_map(|(_, p)| p.link_order.as_ref()).map(|names| len(names));
        if complete {
            return Ok(());
        }
        if kept.fold(len(names), usize::saturating_add) > KEPT_MAX {
            return Err(Error::refused(libc::E2BIG, "too many links that do not exist yet have an order"));
        }
        pending.change(group, |p| p.link_order = Some(names.to_vec()));
        Ok(())
    }

    /// Orders the links of `group` that exist; true if all of `names` do.
    fn apply_order(&self, group: ObjectId, names: &[Vec<u8>]) -> Result<bool> {
        for name in names {
            if !self.has_link(group, name)? {
                return Ok(false);
            }
        }
        self.order_present(group, names).map(|()| true)
    }

    fn order_present(&self, group: ObjectId, names: &[Vec<u8>]) -> Result<()> {
        if order::set_order(&*self.change.store()?, group.address, names)? {
            self.change.changed(group);
        }
        Ok(())
    }

    /// Applies the orders that wait for links. `last`: also of groups that lack some.
    pub(super) fn order_links(&self, last: bool) {
        let all = self.change.editing.objects.all_pending().take(|p| p.link_order.take());
        for (group, names) in all {
            let done = self
                .change
                .atomically(|| if last { self.order_present(group, &names).map(|()| true) } else { self.apply_order(group, &names) });
            match done {
                Ok(true) => {}
                Ok(false) => self.change.editing.objects.change_pending(group, |p| p.link_order = Some(names)),
                Err(error) => tracing::warn!("object at {}: its links have another order than their source: {error}", group.address),
            }
        }
    }
}
