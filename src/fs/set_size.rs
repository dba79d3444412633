//! The size that programs set for a file.

use crate::base::locks::Mutex;

/// What programs did to the size of a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sizes {
    /// How often a size was set.
    pub count: u64,
    /// The last one, bytes; `None`: a fact may have set another one.
    pub last: Option<u64>,
    /// How often the file was emptied without an open file, as by opening it with `O_TRUNC`.
    pub cleared: u64,
}

/// The sizes that were set.
#[derive(Debug, Default)]
pub struct SetSize(Mutex<Sizes>);

impl SetSize {
    /// A program set the size to `size` bytes; `None`: a fact may have set another one.
    pub fn set(&self, size: Option<u64>) {
        let mut sizes = self.0.lock();
        *sizes = Sizes { count: sizes.count.wrapping_add(1), last: size, ..*sizes };
    }

    /// A program emptied the file without an open file.
    pub fn clear(&self) {
        let mut sizes = self.0.lock();
        *sizes = Sizes { count: sizes.count.wrapping_add(1), last: Some(0), cleared: sizes.cleared.wrapping_add(1) };
    }

    /// What was done so far.
    pub fn get(&self) -> Sizes {
        *self.0.lock()
    }
}
