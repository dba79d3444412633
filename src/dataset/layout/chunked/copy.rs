//! Copies stored chunks between datasets of the same geometry and filters, without decoding.

use super::storage::Chunked;
use super::write::ChunkWriter;
use crate::base::Result;
use crate::dataset::chunk::format::check_stored;
use crate::dataset::fill::FillPattern;
use crate::dataset::layout::traits::CopyUnit;
use crate::format::message::data_layout::DataLayout;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The row of chunks as a unit for copying `source` to `target`; `None` if stored chunks of
/// `source` are not valid in `target`.
pub(super) fn unit((source, source_fill): (&Chunked, &FillPattern), (target, fill): (&Chunked, &FillPattern)) -> Option<CopyUnit> {
    let (s, t) = (&source.chunks, &target.chunks);
    let same = s.element_size == t.element_size
        && s.chunk_dims == t.chunk_dims
        && s.shape.get(1..) == t.shape.get(1..)
        && source.format.is_stored_like(&*target.format)
        && source_fill == fill
        && !source.is_implicit
        && !target.is_implicit;
    let row = t.shape.get(1..)?.iter().try_fold(t.element_size, |n, d| n.checked_mul(*d))?;
    let bytes = row.checked_mul(*t.chunk_dims.first()?)?;
    let chunks = target.grid.counts().iter().skip(1).product::<u64>();
    (same && bytes > 0 && chunks > 0).then_some(CopyUnit { bytes, chunks })
}

impl ChunkWriter<'_> {
    /// Replaces the chunks from number `to` by the stored chunks `from` of `source`.
    ///
    /// The caller ensures that [`unit`] accepts the datasets and that no chunk of the source is
    /// dirty. Returns whether the layout message changed.
    pub(crate) fn copy_chunks(&self, layout: &mut DataLayout, source: &Chunked, from: Range<u64>, to: u64) -> Result<bool> {
        let c = self.chunked;
        let mut changed = false;
        for (i, number) in from.enumerate() {
            let target = to.saturating_add(i as u64);
            let (at, scaled) = (source.grid.scaled(number), c.grid.scaled(target));
            let Some(record) = source.index.lookup(self.store, &at)? else {
                let old = c.index.lookup(self.store, &scaled)?;
                changed |= self.free_chunk(layout, target, old)?;
                continue;
            };
            let size = if source.is_plain(&at) { source.grid.chunk_bytes() } else { record.size };
            check_stored(self.store, source.grid.chunk_bytes(), record, size)?;
            let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
            self.store.read_raw(record.address, &mut bytes)?;
            changed |= self.store_chunk(layout, &scaled, &bytes, record.form)?;
            self.env.dirty.remove(c.key(target));
            self.drop_decoded(c.key(target));
            self.env.copied.fetch_add(1, Ordering::Relaxed);
        }
        Ok(changed)
    }
}
