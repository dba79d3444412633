//! The size that programs set for a file.

use crate::base::locks::Mutex;

/// The size that a program set last, and how often sizes were set.
#[derive(Debug, Default)]
pub struct SetSize(Mutex<(u64, Option<u64>)>);

impl SetSize {
    /// A program set the size to `size` bytes; `None`: a fact may have set another one.
    pub fn set(&self, size: Option<u64>) {
        let mut state = self.0.lock();
        *state = (state.0.wrapping_add(1), size);
    }

    /// How often a size was set, and the last one.
    pub fn get(&self) -> (u64, Option<u64>) {
        *self.0.lock()
    }
}
