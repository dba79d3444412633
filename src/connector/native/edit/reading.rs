//! Readers of a file that others change decode chunks, and wait for the disk, without the lock of
//! readers. What changes meanwhile is read anew.

use super::super::NativeConnector;
use super::super::dataset::Dataset;
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::dataset::environment::Environment;
use crate::dataset::layout::{DatasetBytes, Deferred, Front};
use std::ops::ControlFlow;

/// How often a reader defers long work before it does that with the lock: caches may not keep what
/// was brought into them so long, or it changes again and again.
const DEFERRED_MAX: usize = 4;
/// How often a reader has structures read from a disk before it waits with the lock. An index is a
/// few levels deep, and a request may need several of its nodes.
const STRUCTURES_MAX: usize = 64;

/// Reads the elements of a dataset, in one of several attempts.
pub(in crate::connector::native) struct Reader<'a> {
    env: &'a Environment,
    /// Long work is done by the caller, without the lock.
    defers: bool,
}

impl<'a> Reader<'a> {
    /// Fills `buf` with the bytes from `offset`, which lie within the dataset. `Some`: not all of
    /// them; what is done first.
    pub fn fill(&self, bytes: &'a DatasetBytes, offset: u64, buf: &mut [u8]) -> Result<Option<Deferred<'a>>> {
        if !self.defers {
            return bytes.layout.read(bytes, self.env, offset, buf).map(|()| None);
        }
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            match bytes.layout.read_front(bytes, self.env, at, rest)? {
                Front::Deferred(deferred) => return Ok(Some(deferred)),
                Front::Read(n) => {
                    rest = rest.get_mut(n..).unwrap_or_default();
                    at = at.saturating_add(n as u64);
                }
            }
        }
        Ok(None)
    }
}

/// An attempt to read a dataset: what was read, or what is done first.
pub(in crate::connector::native) type Attempt<'a, T> = Result<ControlFlow<T, Deferred<'a>>>;

impl NativeConnector {
    /// Calls `read` with the dataset `id`, within an access, until it has read.
    pub(in crate::connector::native) fn reading<T>(
        &self,
        id: ObjectId,
        read: &mut dyn for<'a> FnMut(&'a Dataset, Reader<'a>) -> Attempt<'a, T>,
    ) -> Result<T> {
        let (mut left, mut structures) = if self.editing.is_some() { (DEFERRED_MAX, STRUCTURES_MAX) } else { (0, 0) };
        let mut last = None;
        loop {
            let access = self.access();
            let elsewhere = self.other_files().written_elsewhere(id);
            let (connector, id) = elsewhere.as_ref().map_or((self, id), |(other, there)| (&**other, *there));
            let access_elsewhere = elsewhere.as_ref().map(|(other, _)| other.access());
            let open = access_elsewhere.as_ref().unwrap_or(&access).dataset(id)?;
            let reader = Reader { env: &connector.options.environment, defers: left > 0 && structures > 0 };
            match read(&open.dataset, reader) {
                Ok(ControlFlow::Break(read)) => return Ok(read),
                Ok(ControlFlow::Continue(deferred)) => {
                    drop((access_elsewhere, access));
                    deferred();
                    left = left.saturating_sub(1);
                }
                Err(Error::OnDisk { address, len }) => {
                    drop((access_elsewhere, access));
                    open.dataset.bytes.store.warm(address, len);
                    // A disk may fail, or the host forget at once: then it is read with the lock.
                    let is_again = last.replace(address) == Some(address);
                    structures = if is_again { 0 } else { structures.saturating_sub(1) };
                }
                Err(e) => return Err(e),
            }
        }
    }
}
