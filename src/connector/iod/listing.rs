//! Listing values of one kind of an object from a position on.

use super::access::IodConnector;
use super::derived::Cursor;
use super::ids::no_such;
use crate::base::Result;
use crate::iod::{Cell, keys};
use std::ops::{Bound, ControlFlow};

/// Values that are read at once.
const LISTED_AT_ONCE: usize = 1024;

/// Called with the rest of the key, the value, and the position after it.
pub(super) type ValueVisitor<'a> = dyn FnMut(&[u8], &Cell, u64) -> Result<ControlFlow<()>> + 'a;

impl IodConnector {
    /// Values of a kind of an object after position `start`, until `f` breaks. The key at which the
    /// last listing ended is kept, so that a listing from there on does not count values from the
    /// first one.
    pub(super) fn list_values(&self, (id, kind): (u64, u8), start: u64, f: &mut ValueVisitor<'_>) -> Result<()> {
        let mut members = Vec::new();
        let state = self.states.shown();
        let generation = state.generation();
        let cursor = self.derived.cursor.lock().clone();
        let (first, end) = keys::of_kind(id, kind);
        let (mut position, from) = match cursor {
            Some(c) if (c.id, c.position, c.generation) == (id, start, generation) && start > 0 => (start, Bound::Excluded(c.key)),
            _ => (0, first),
        };
        let mut last = None;
        loop {
            members.clear();
            let range = (last.clone().map_or(from.clone(), Bound::Excluded), end.clone());
            if position == 0 && last.is_none() && state.kind(id)?.is_none() {
                return Err(no_such(id, "there is no such object"));
            }
            let _ = state.scan(&range, &mut |key, cell| {
                members.push((key.to_vec(), cell.clone()));
                Ok(if members.len() < LISTED_AT_ONCE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
            if members.is_empty() {
                return Ok(());
            }
            for (key, cell) in members.drain(..) {
                position = position.saturating_add(1);
                let Some((_, _, rest)) = keys::parts(&key) else { continue };
                if position > start && f(rest, &cell, position)?.is_break() {
                    // The member that broke the listing may be asked for again.
                    *self.derived.cursor.lock() = last.map(|key| Cursor { id, position: position.saturating_sub(1), generation, key });
                    return Ok(());
                }
                last = Some(key);
            }
        }
    }
}
