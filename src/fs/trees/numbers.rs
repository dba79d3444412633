//! Inode numbers of trees.
//!
//! Numbers of the container have bit 62 or 63, but for its root. Those of tree T (1 to 1,023) are
//! `T << 52 | N`, where N has 52 bits and is made of the number within the tree.

use crate::fs::types::{Ino, ROOT};
use foldhash::{HashMap, HashMapExt};

/// Bits of a number within its tree.
const BITS: u32 = 52;
/// The largest number within a tree.
const MASK: u64 = (1 << BITS) - 1;

/// The largest number of a tree.
pub const NUMBER_MAX: u64 = (1 << (62 - BITS)) - 1;

/// The tree that `ino` is in; 0: none.
pub fn tree_of(ino: Ino) -> u64 {
    if ino.0 >> 62 == 0 { ino.0 >> BITS } else { 0 }
}

/// The root of the tree `tree`.
pub fn root_of(tree: u64) -> Ino {
    Ino(tree << BITS | ROOT.0)
}

/// True for the root of a tree.
pub fn is_root(ino: Ino) -> bool {
    tree_of(ino) > 0 && ino.0 & MASK == ROOT.0
}

#[derive(Debug, Clone, Copy)]
struct Known {
    inner: Ino,
    refs: u64,
}

/// The numbers of a tree that the kernel knows.
#[derive(Debug)]
pub struct Numbers {
    tree: u64,
    by_outer: HashMap<u64, Known>,
    by_inner: HashMap<Ino, u64>,
}

impl Numbers {
    /// Those of the tree `tree`, of which the kernel knows none.
    pub fn new(tree: u64) -> Numbers {
        Numbers { tree, by_outer: HashMap::new(), by_inner: HashMap::new() }
    }

    /// The number outside that `inner` has or would get.
    pub fn outer(&self, inner: Ino) -> Ino {
        let natural = || {
            // Multiplication spreads all bits to the upper ones.
            let mut n = inner.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS);
            while n <= ROOT.0 || self.by_outer.contains_key(&n) {
                n = n.wrapping_add(1) & MASK;
            }
            n
        };
        let n = match self.by_inner.get(&inner) {
            Some(n) => *n,
            None if inner == ROOT => ROOT.0,
            None => natural(),
        };
        Ino(self.tree << BITS | n)
    }

    /// [`Numbers::outer`] of a number that the kernel knows.
    pub fn known(&self, inner: Ino) -> Option<Ino> {
        self.by_inner.contains_key(&inner).then(|| self.outer(inner))
    }

    /// Counts a reference of the kernel to `inner`; returns its number outside.
    pub fn enter(&mut self, inner: Ino) -> Ino {
        let outer = self.outer(inner);
        let known = self.by_outer.entry(outer.0 & MASK).or_insert(Known { inner, refs: 0 });
        known.refs = known.refs.saturating_add(1);
        self.by_inner.insert(inner, outer.0 & MASK);
        outer
    }

    /// The number within the tree of `outer`.
    pub fn inner(&self, outer: Ino) -> Option<Ino> {
        let n = outer.0 & MASK;
        if n == ROOT.0 { Some(ROOT) } else { self.by_outer.get(&n).map(|known| known.inner) }
    }

    /// The kernel drops `count` references; returns the number within the tree.
    pub fn forget(&mut self, outer: Ino, count: u64) -> Option<Ino> {
        let known = self.by_outer.get_mut(&(outer.0 & MASK))?;
        let inner = known.inner;
        known.refs = known.refs.saturating_sub(count);
        if known.refs == 0 {
            self.by_outer.remove(&(outer.0 & MASK));
            self.by_inner.remove(&inner);
        }
        Some(inner)
    }

    /// True if the kernel knows none.
    pub fn is_empty(&self) -> bool {
        self.by_outer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_trees_are_none_of_the_container() {
        for ino in [1, 1 << 62 | 7, 1 << 63 | 7, u64::MAX] {
            assert_eq!(tree_of(Ino(ino)), 0);
        }
        let numbers = Numbers::new(NUMBER_MAX);
        for inner in [2, 1 << 62 | 7, 1 << 63 | 7, u64::MAX] {
            let outer = numbers.outer(Ino(inner));
            assert!(tree_of(outer) == NUMBER_MAX && !is_root(outer) && outer.0 >> 62 == 0, "{inner:x} is {:x}", outer.0);
        }
        assert!(is_root(root_of(3)) && tree_of(root_of(3)) == 3 && !is_root(ROOT));
    }

    #[test]
    fn a_number_is_kept_until_its_last_reference_is_dropped() {
        let mut numbers = Numbers::new(2);
        let inner = Ino(1 << 62 | 5);
        let listed = numbers.outer(inner);
        assert_eq!((numbers.known(inner), numbers.inner(listed)), (None, None));
        assert_eq!((numbers.enter(inner), numbers.enter(inner)), (listed, listed));
        assert_eq!((numbers.known(inner), numbers.inner(listed)), (Some(listed), Some(inner)));
        assert_eq!(numbers.forget(listed, 1), Some(inner));
        assert_eq!(numbers.inner(listed), Some(inner));
        assert_eq!(numbers.forget(listed, 1), Some(inner));
        assert!(numbers.is_empty() && numbers.inner(listed).is_none() && numbers.forget(listed, 1).is_none());
        // The root has its number always.
        assert_eq!((numbers.outer(ROOT), numbers.inner(root_of(2))), (root_of(2), Some(ROOT)));
        assert_eq!(numbers.enter(ROOT), root_of(2));
        assert!(!numbers.is_empty());
    }

    #[test]
    fn two_numbers_never_become_one() {
        let mut numbers = Numbers::new(1);
        // Their products have the same upper 52 bits.
        let inverse = (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(x))));
        let (first, second) = (Ino(inverse.wrapping_mul(7 << 12)), Ino(inverse.wrapping_mul(7 << 12 | 1)));
        assert_eq!(numbers.outer(first), numbers.outer(second));
        let (a, b) = (numbers.enter(first), numbers.enter(second));
        assert!(a != b && numbers.inner(a) == Some(first) && numbers.inner(b) == Some(second));
    }
}
