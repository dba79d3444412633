//! A bound on work that hostile bytes can ask for: so many steps, then [`Error::Limit`].

use super::{Address, Error, Result};

/// Steps that are left for one job.
#[derive(Debug, Clone)]
pub struct Budget {
    left: u64,
    structure: &'static str,
}

impl Budget {
    /// `steps` for work on `structure` (named in the error).
    pub fn new(steps: u64, structure: &'static str) -> Self {
        Budget { left: steps, structure }
    }

    /// Takes `steps` away; an error once fewer are left.
    pub fn spend(&mut self, steps: u64) -> Result<()> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Error::limit(self.structure, Address::UNDEF, "too many steps")),
        }
    }
}
