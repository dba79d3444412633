//! Copies standard input.

use super::bytes;
use super::copier::Copier;
use super::sink::{NewFile, SinkDirectory};
use crate::cli::side::{Content, Meta, SideKind};
use std::io;
use std::rc::Rc;

impl Copier {
    /// Copies standard input to `name` in `to`.
    pub(super) fn copy_input(&mut self, input: &mut dyn Content, meta: &Meta, to: &Rc<dyn SinkDirectory>, name: &[u8]) -> io::Result<()> {
        let found = to.find(name)?;
        if !self.manner.may_replace(meta, found.as_ref())? {
            return Ok(());
        }
        if self.manner.dry_run {
            self.report.copied(b"-", SideKind::Regular);
            return Ok(());
        }
        let meta = &self.manner.attributes(meta, found.as_ref());
        let new = NewFile { name, meta, exists: found.is_some(), typed: false, force: self.manner.force, resize: true };
        let mut file = to.make_file(&new)?;
        let report = &mut self.report;
        report.begin_file(u64::MAX);
        let mut all = 0u64;
        bytes::copy(input, &mut *file, &mut self.piece, &mut |n| {
            all = all.saturating_add(n);
            report.add(0, n);
        })?;
        file.end_content()?;
        if found.is_some() && to.as_object().is_some() && file.model()?.has_mapped_bytes() {
            let there = to.find(name)?.map_or(0, |now| now.size);
            if there != all {
                return Err(io::Error::other(format!(
                    "it had {all} bytes, and the dataset has {there} now: the rest is what was there before, or the fill value"
                )));
            }
        }
        file.set_meta(meta, false)?;
        file.finish()?;
        self.report.copied(b"-", SideKind::Regular);
        self.objects = self.objects.saturating_add(1);
        Ok(())
    }
}
