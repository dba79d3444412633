//! The locks of all layers. Debug builds record in which order each thread acquires them, and panic
//! at an order that another thread could turn into a deadlock.
//!
//! parking_lot's own are the locks with a condition variable, those of [`super::lock_order`], and
//! one that is tried in the order that waiting would forbid.

pub use tracing_mutex::parkinglot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
