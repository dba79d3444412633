//! An allocator that counts what is in use.

use super::MEMORY_MAX;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The system allocator, counted.
struct Counting;

/// Bytes in use.
pub static NOW: AtomicUsize = AtomicUsize::new(0);
/// Most bytes in use.
pub static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Largest allocation.
pub static LARGEST: AtomicUsize = AtomicUsize::new(0);
/// Says, once, where a large allocation comes from.
pub static TELL: AtomicBool = AtomicBool::new(false);

fn count(size: usize) {
    if size > MEMORY_MAX / 2 && TELL.swap(false, Relaxed) {
        eprintln!("{} MiB:\n{}", size >> 20, std::backtrace::Backtrace::force_capture());
    }
    LARGEST.fetch_max(size, Relaxed);
    PEAK.fetch_max(NOW.fetch_add(size, Relaxed).saturating_add(size), Relaxed);
}

// SAFETY: every call is the system allocator's, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        NOW.fetch_sub(layout.size(), Relaxed);
        count(size);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
