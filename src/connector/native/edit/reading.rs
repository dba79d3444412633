//! Readers of a file that others change decode chunks without the lock of readers. What changes
//! meanwhile is read anew.

use super::super::NativeConnector;
use super::super::dataset::Dataset;
use crate::base::Result;
use crate::connector::ObjectId;
use crate::dataset::environment::Environment;
use crate::dataset::layout::{DatasetBytes, Front, Undecoded};
use std::ops::ControlFlow;

/// How often a reader decodes chunks before it decodes them with the lock: the cache may not keep
/// them so long, or they change again and again.
const DECODES_MAX: usize = 4;

/// Reads the elements of a dataset, in one of several attempts.
pub(in crate::connector::native) struct Reader<'a> {
    env: &'a Environment,
    /// Decodes missing chunks with the lock instead of deferring them.
    decodes: bool,
}

impl<'a> Reader<'a> {
    /// Fills `buf` with the bytes from `offset`, which lie within the dataset. `Some`: not all of
    /// them; what is decoded first.
    pub fn fill(&self, bytes: &'a DatasetBytes, offset: u64, buf: &mut [u8]) -> Result<Option<Undecoded<'a>>> {
        if self.decodes {
            return bytes.layout.read(bytes, self.env, offset, buf).map(|()| None);
        }
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            match bytes.layout.read_front(bytes, self.env, at, rest)? {
                Front::Undecoded(undecoded) => return Ok(Some(undecoded)),
                Front::Read(n) => {
                    rest = rest.get_mut(n..).unwrap_or_default();
                    at = at.saturating_add(n as u64);
                }
            }
        }
        Ok(None)
    }
}

/// An attempt to read a dataset: what was read, or what is decoded first.
pub(in crate::connector::native) type Attempt<'a, T> = Result<ControlFlow<T, Undecoded<'a>>>;

impl NativeConnector {
    /// Calls `read` with the dataset `id`, within an access, until it has read.
    pub(in crate::connector::native) fn reading<T>(
        &self,
        id: ObjectId,
        read: &mut dyn for<'a> FnMut(&'a Dataset, Reader<'a>) -> Attempt<'a, T>,
    ) -> Result<T> {
        let env = &*self.options.environment;
        let mut left = if self.editing.is_some() { DECODES_MAX } else { 0 };
        loop {
            let access = self.access();
            if let Some((other, there)) = self.other_files().written_elsewhere(id) {
                return other.reading(there, read);
            }
            let open = access.dataset(id)?;
            let undecoded = match read(&open.dataset, Reader { env, decodes: left == 0 })? {
                ControlFlow::Break(read) => return Ok(read),
                ControlFlow::Continue(undecoded) => undecoded,
            };
            drop(access);
            undecoded();
            left = left.saturating_sub(1);
        }
    }
}
