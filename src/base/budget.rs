//! A bound on work that hostile bytes can ask for: so many steps, then [`Error::Limit`].

use super::{Address, Error, Result};
use std::cell::Cell;

/// Steps that are left for one job of one thread; nested parts of the job share it.
#[derive(Debug)]
pub struct Budget {
    left: Cell<u64>,
    structure: &'static str,
}

impl Budget {
    /// `steps` for work on `structure` (named in the error).
    pub fn new(steps: u64, structure: &'static str) -> Self {
        Budget { left: Cell::new(steps), structure }
    }

    /// Takes `steps` away; an error once fewer are left.
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
