//! Directories of a copy that changes nothing: `--dry-run`.

use super::absent::AbsentDirectory;
use super::copier::{COPIES_MAX, Copier, Stop};
use super::sink::SinkDirectory;
use crate::cli::side::{Meta, SideKind, Source};
use crate::fs::model::SharedGroup;
use std::io;
use std::rc::Rc;

impl Copier {
    /// Walks the directory `source` of a copy that changes nothing.
    pub(super) fn name_directory(
        &mut self,
        (source, path, shared): (&dyn Source, &[u8], Option<SharedGroup>),
        to: &Rc<dyn SinkDirectory>,
        name: &[u8],
        found: Option<&Meta>,
        depth: usize,
    ) -> io::Result<Result<bool, Stop>> {
        let below: Rc<dyn SinkDirectory> = match found {
            Some(there) if there.kind != SideKind::Directory => return Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
            Some(_) => to.enter(name)?,
            None => {
                self.report.copied(path, SideKind::Directory);
                Rc::new(AbsentDirectory { is_local: to.local_path().is_some() })
            }
        };
        let most = if to.local_path().is_some() { COPIES_MAX } else { 1 };
        if let Some(group) = shared {
            let walked = self.named.entry(group).or_default();
            if *walked >= most {
                return Ok(Ok(true));
            }
            *walked = walked.saturating_add(1);
        }
        Ok(self.copy_content(source, path, &below, found.is_none(), depth).map(|()| true))
    }
}
