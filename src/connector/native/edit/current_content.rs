//! The bytes of a dataset that may change: opened anew for each call.

use super::super::NativeConnector;
use crate::base::{Error, Result};
use crate::connector::{Content, Form, ObjectId};
use crate::dataset::layout::Seek;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// The current bytes of a dataset in one form.
pub struct CurrentContent {
    /// The container.
    pub connector: Weak<NativeConnector>,
    /// Which dataset.
    pub id: ObjectId,
    /// Which of its forms.
    pub form: Form,
}

impl CurrentContent {
    /// The form that is being written, if the dataset is written as a whole.
    fn rewritten<T>(&self, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let connector = self.connector.upgrade()?;
        let objects = &connector.editing.as_ref()?.objects;
        objects.pending(self.id, |p| p.rewrite.as_ref().filter(|r| r.is(self.form)).map(|r| f(&r.form))).flatten()
    }

    fn with<T>(&self, f: impl FnOnce(&dyn Content) -> Result<T>) -> Result<T> {
        let connector = self.connector.upgrade().ok_or_else(|| Error::refused(libc::EIO, "the container is closed"))?;
        let _shared = connector.shared();
        let content: Arc<dyn Content> = connector.form_of(self.id, self.form)?;
        f(&*content)
    }
}

impl Content for CurrentContent {
    fn size(&self) -> Result<u64> {
        self.rewritten(|form| Ok(form.len() as u64)).unwrap_or_else(|| self.with(|c| c.size()))
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let read = self.rewritten(|form| {
            let rest = usize::try_from(offset).ok().and_then(|at| form.get(at..)).unwrap_or_default();
            let n = rest.len().min(buf.len());
            buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            n
        });
        match read {
            Some(n) => Ok(n),
            None => self.with(|c| c.read(offset, buf)),
        }
    }

    fn beyond(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.with(|c| Ok(c.beyond(offset, buf))).unwrap_or(false)
    }

    fn allocated(&self) -> Result<u64> {
        self.with(|c| c.allocated())
    }

    fn allocated_exactly(&self) -> Result<u64> {
        self.with(|c| c.allocated_exactly())
    }

    fn block_size(&self) -> u32 {
        self.with(|c| Ok(c.block_size())).unwrap_or(4096)
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        self.with(|c| c.seek(offset, what))
    }

    fn written(&self, offset: u64) -> Result<Option<Range<u64>>> {
        self.with(|c| c.written(offset))
    }

    fn read_ahead(&self, _at: u64, from: u64) -> u64 {
        // Its tasks would run without the lock.
        from
    }
}
