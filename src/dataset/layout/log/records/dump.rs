//! The parts of a log of records as they are stored.

use super::load::Opened;
use super::log::RecordLog;
use super::run_records::{RunRecord, each_record};
use super::tables;
use crate::base::Result;
use crate::base::log_part::{LogPart, LogVisitor};
use crate::format::log::record::{Head, Selection};
use crate::format::log::run::{Erased, RunHead, TO_THE_END};
use foldhash::HashMap;

impl RecordLog {
    /// Calls `f` with every part of the log.
    pub(crate) fn dump(&self, f: &mut LogVisitor<'_>) -> Result<()> {
        let opened = self.opened()?;
        let state = opened.state;
        LogPart::new("log", 0)
            .number("next_dataset", opened.group.next_id)
            .number("log_datasets", opened.group.logs.len() as u64)
            .number("serial", state.serial)
            .number("indexed_log_dataset", state.indexed_log)
            .number("indexed_bytes", state.indexed_bytes)
            .number("next_run", state.sequence)
            .number("index_entries", state.entries)
            .show(f)?;
        let mut ranks = HashMap::default();
        for (log, place) in &opened.group.logs {
            LogPart::new("log_dataset", 0).number("number", *log).number("address", place.address.0).number("bytes", place.len).show(f)?;
            let mut at = 0u64;
            // After the last whole run the bytes are unused, or of a run that was torn.
            while let Some((head, run)) = opened.run_at((*log, at), None)? {
                ranks.extend(head.datasets.iter().map(|d| (d.id, d.dims.len())));
                dump_run(&head, &run, at, f)?;
                at = at.saturating_add(head.bytes);
            }
            LogPart::new("rest", 1).number("offset", at).number("bytes", place.len.saturating_sub(at)).show(f)?;
        }
        self.dump_index(&opened, &ranks, f)
    }

    /// The index entries; of datasets without a rank in `ranks` only where they are.
    fn dump_index(&self, opened: &Opened, ranks: &HashMap<u64, usize>, f: &mut LogVisitor<'_>) -> Result<()> {
        for found in tables::indexed(&self.environment, &opened.group)? {
            LogPart::new("indexed_dataset", 0)
                .number("dataset", found.id)
                .number("offset", found.start)
                .number("entries", found.count)
                .show(f)?;
            let Some(rank) = ranks.get(&found.id) else { continue };
            tables::each(&self.environment, &opened.group, found.id, *rank, &mut |entry| {
                let part = with_head(LogPart::new("index_entry", 1), &entry.head);
                part.number("log_dataset", entry.log).number("data_offset", entry.offset).show(f)
            })?;
        }
        Ok(())
    }
}

fn with_head(part: LogPart, head: &Head) -> LogPart {
    let part = part.number("dataset", head.dataset);
    let part = match &head.selection {
        Selection::Subarray { start, count } => part.numbers("start", start).numbers("count", count),
        Selection::Points(points) => part.numbers("points", points),
    };
    part.flag("deflated", head.deflated)
}

fn dump_run(head: &RunHead, run: &[u8], at: u64, f: &mut LogVisitor<'_>) -> Result<()> {
    LogPart::new("run", 1)
        .number("offset", at)
        .number("number", head.sequence)
        .number("serial", head.serial)
        .number("bytes", head.bytes)
        .number("records", head.records)
        .flag("continued", head.continued)
        .show(f)?;
    each_record(head, run, at, &mut |record| match record {
        RunRecord::Erased(erased) => erased.into_iter().try_for_each(|Erased { dataset, first, count }| {
            let part = LogPart::new("erased", 2).number("dataset", dataset).number("first", first);
            // All elements from there on have no count.
            if count < TO_THE_END { part.number("count", count) } else { part }.show(f)
        }),
        RunRecord::Written { head, offset, bytes } => {
            with_head(LogPart::new("record", 2), &head).number("data_offset", offset).number("data_bytes", bytes).show(f)
        }
    })
}
