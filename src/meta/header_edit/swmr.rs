//! Changes of an object header that SWMR readers may be reading.

use super::layout::Item;
use super::{HeaderEdit, NAME};
use crate::base::{Error, Result};
use crate::format::object_header::kind;
use crate::meta::Store;
use crate::meta::level::Level;
use std::collections::BTreeSet;

/// Length of each chunk, and the identifiers of its messages.
pub(super) type Held = Vec<(usize, BTreeSet<u64>)>;

impl HeaderEdit {
    /// What the chunks hold.
    pub(super) fn held(&self) -> Held {
        let messages = |item: &Item| if let Item::Message(id) = item { Some(*id) } else { None };
        let there = self.chunks.iter().filter(|c| !c.gone);
        there.map(|c| (c.len(), c.parts.iter().filter_map(|p| messages(&p.item)).collect())).collect()
    }

    /// Writes each changed chunk as a whole. Error, before the first write: `EPERM` if a message
    /// moved to another chunk than that of `before`, or the header has no checksums.
    pub(super) fn replace_chunks(&self, store: &Store, before: &Held) -> Result<()> {
        if self.prefix.version == 1 || self.held() != *before {
            let reason = format!("{NAME} at {}: a SWMR reader could find it half changed", self.address);
            return Err(Error::refused(libc::EPERM, reason));
        }
        let extent = self.find(kind::DATASPACE).and_then(|i| self.entries.get(i)).map(|e| e.id);
        for (i, chunk) in self.chunks.iter().enumerate() {
            let (Some(at), image) = (chunk.address, self.encode(i, store.ctx())?) else { continue };
            let has_extent = chunk.parts.iter().any(|p| extent.is_some_and(|id| p.item == Item::Message(id)));
            if image != chunk.image {
                store.write_at_level(at, &image, if has_extent { Level::Extent } else { Level::Messages })?;
            }
        }
        Ok(())
    }
}
