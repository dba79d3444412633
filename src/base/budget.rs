//! A step budget that bounds the work a hostile file can cause; exceeding it is [`Error::Limit`].

use super::{Address, Error, Result};
use std::cell::Cell;

/// Remaining steps of one job on one thread; nested parts of the job share the budget.
#[derive(Debug)]
pub struct Budget {
    left: Cell<u64>,
    structure: &'static str,
}

impl Budget {
    /// A budget of `steps` for work on `structure` (named in the error).
    pub fn new(steps: u64, structure: &'static str) -> Self {
        Budget { left: Cell::new(steps), structure }
    }

    /// Subtracts `steps`; [`Error::Limit`] when fewer remain.
    pub fn spend(&self, steps: u64) -> Result<()> {
        match self.left.get().checked_sub(steps) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(Error::limit(self.structure, Address::UNDEF, "too many steps")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends() {
        let b = Budget::new(3, "test");
        assert!(b.spend(2).is_ok() && b.spend(1).is_ok() && b.spend(0).is_ok());
        assert!(matches!(b.spend(1), Err(Error::Limit { structure: "test", .. })));
    }
}
