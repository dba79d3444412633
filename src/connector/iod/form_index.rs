//! Where the parts of the form of variable-length elements end.

use crate::base::locks::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The index of a dataset, made by the first reader.
pub(super) type FormIndex = Mutex<Option<Arc<Index>>>;

/// Where the parts of the form of a dataset end.
pub(super) struct Index {
    /// Its number among all indexes of the process: parts are cached by it.
    pub number: u64,
    pub ends: Vec<End>,
}

/// Where a part ends.
pub(super) struct End {
    /// The element past its last.
    pub element: u64,
    /// Its end in the form, bytes.
    pub byte: u64,
    /// The form of each of its elements, if all have the fill value.
    pub filled: Option<Arc<[u8]>>,
}

impl Index {
    /// The index of parts that end there.
    pub fn of(ends: Vec<End>) -> Index {
        static INDEXES: AtomicU64 = AtomicU64::new(0);
        Index { number: INDEXES.fetch_add(1, Ordering::Relaxed), ends }
    }

    /// Memory, bytes. All filled parts have one form.
    pub fn memory(&self) -> usize {
        let filled = self.ends.iter().find_map(|end| end.filled.as_ref()).map_or(0, |each| each.len());
        self.ends.len().saturating_mul(size_of::<End>()).saturating_add(filled)
    }

    /// Bytes of the form.
    pub fn len(&self) -> u64 {
        self.ends.last().map_or(0, |end| end.byte)
    }
}
