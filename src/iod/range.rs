//! Ranges of keys, and visits of values in them.

use super::cell::Cell;
use super::keys::Key;
use crate::base::Result;
use std::ops::{Bound, ControlFlow};

/// A range of keys.
pub type KeyRange = (Bound<Key>, Bound<Key>);
/// Values by key, in order. A clone costs nothing, and shares what neither changes.
pub type Values<V> = rpds::RedBlackTreeMapSync<Key, V>;
/// Called with keys and values, ascending.
pub type Visit<'a> = dyn FnMut(&[u8], &Cell) -> Result<ControlFlow<()>> + 'a;

/// True if no key is in `range`.
pub fn is_empty(range: &KeyRange) -> bool {
    match range {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Excluded(b)) | (Bound::Excluded(a), Bound::Included(b)) => a >= b,
        _ => false,
    }
}

/// Visits the values of a range: those of `map`, and below them those that `below` visits. A value
/// of `map` that `live` maps to `None` hides the one below.
pub fn overlay<'a, V>(
    map: &'a Values<V>,
    range: &KeyRange,
    live: impl Fn(&'a V) -> Option<&'a Cell>,
    below: impl FnOnce(&mut Visit<'_>) -> Result<ControlFlow<()>>,
    f: &mut Visit<'_>,
) -> Result<ControlFlow<()>> {
    if map.is_empty() {
        return below(f);
    }
    let mut above = map.range::<Key, _>((range.0.as_ref(), range.1.as_ref())).peekable();
    let flow = below(&mut |key, cell| {
        while let Some((k, value)) = above.next_if(|(k, _)| k.as_slice() < key) {
            if let Some(cell) = live(value)
                && f(k, cell)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        match above.next_if(|(k, _)| k.as_slice() == key) {
            Some((_, value)) => live(value).map_or(Ok(ControlFlow::Continue(())), |cell| f(key, cell)),
            None => f(key, cell),
        }
    })?;
    if flow.is_break() {
        return Ok(flow);
    }
    for (key, value) in above {
        if let Some(cell) = live(value)
            && f(key, cell)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
