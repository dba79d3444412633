//! Reading a file that is being changed: its bytes, and over them those that are not in it yet.
//!
//! The file is read without the lock of the state, so that writers do not wait for a slow disk.
//! Bytes that went from memory to the file meanwhile may be missing in what was read: it is read
//! again.

use super::{Transaction, TransactionState};
use crate::file::{FileDriver, Status, read_all};
use std::io;

/// How often the file is read without the lock before it is read with the lock.
const READS_MAX: usize = 4;

/// Fills the front of `buf` from `offset` if memory has all of it up to the end of the file;
/// returns how many bytes that are.
fn in_memory(state: &TransactionState, buf: &mut [u8], offset: u64) -> Option<usize> {
    let there = usize::try_from(state.len.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
    let is_there = there > 0 && state.overlay.read(offset, buf.get_mut(..there).unwrap_or_default());
    is_there.then_some(there)
}

impl FileDriver for Transaction {
    fn status(&self) -> io::Result<Status> {
        self.driver.status()
    }

    fn extent(&self) -> io::Result<(u64, u64)> {
        let state = self.state.read();
        let (allocated, len) = state.allocated;
        Ok((state.len, if allocated == 0 { 0 } else { allocated.saturating_add(state.len.saturating_sub(len)) }))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        for _ in 0..READS_MAX {
            let writes_before = {
                let state = self.state.read();
                if let Some(there) = in_memory(&state, buf, offset) {
                    return Ok(there);
                }
                state.overlay.writes_below()
            };
            let n = read_all(&*self.driver, buf, offset)?;
            let state = self.state.read();
            if state.overlay.writes_below() == writes_before {
                return Ok(n.max(state.overlay.patch(offset, buf)));
            }
        }
        let state = self.state.read();
        if let Some(there) = in_memory(&state, buf, offset) {
            return Ok(there);
        }
        let n = read_all(&*self.driver, buf, offset)?;
        Ok(n.max(state.overlay.patch(offset, buf)))
    }

    fn read_in_memory(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let writes_before = {
            let state = self.state.read();
            if let Some(there) = in_memory(&state, buf, offset) {
                return Ok(there);
            }
            state.overlay.writes_below()
        };
        let n = self.driver.read_in_memory(buf, offset)?;
        let state = self.state.read();
        // Of a part, it is not known which bytes after it a patch would have.
        if n < buf.len() || state.overlay.writes_below() != writes_before {
            return Ok(0);
        }
        state.overlay.patch(offset, buf);
        Ok(n)
    }

    fn hole_end(&self, offset: u64) -> Option<u64> {
        let state = self.state.read();
        let known = state.overlay.next(offset).unwrap_or(u64::MAX);
        if known == offset {
            return None;
        }
        self.driver.hole_end(offset).map(|end| end.min(known))
    }

    fn advise(&self, offset: u64, len: u64) {
        self.driver.advise(offset, len);
    }
}
