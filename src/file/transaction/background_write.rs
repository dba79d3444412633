//! Background write of fresh sectors, concurrent with operations.
//!
//! A thread writes a copy of the dirty sectors that hold only fresh bytes. Readers use the sectors
//! in memory until the write has ended; sectors changed meanwhile stay dirty. Direct writes to the
//! file wait for the background write, because its copy has whole sectors with older bytes. A
//! commit waits too.

use super::{BATCH_BYTES, Transaction, TransactionState};
use crate::base::locks::{RwLock, RwLockReadGuard};
use crate::base::waiting;
use crate::file::WriteDriver;
use std::io;
use std::thread::{Builder, JoinHandle};

/// The thread of the background write in flight, if any. Locked before the transaction's state.
#[derive(Default)]
pub(in crate::file) struct BackgroundWrite(RwLock<Option<JoinHandle<()>>>);

impl BackgroundWrite {
    /// Waits for the background write; prevents a new one while the returned guard lives.
    pub fn wait(&self) -> RwLockReadGuard<'_, Option<JoinHandle<()>>> {
        loop {
            let background = waiting::take(|| self.0.try_read(), || self.0.read());
            if background.is_none() {
                return background;
            }
            drop(background);
            end(&mut self.0.write());
        }
    }
}

/// Joins the thread, if any.
fn end(background: &mut Option<JoinHandle<()>>) {
    if let Some(thread) = background.take() {
        if !thread.is_finished() {
            waiting::may_wait();
        }
        // After a panic all sectors stay dirty for the commit.
        let _ = thread.join();
    }
}

fn write(driver: &dyn WriteDriver, runs: Vec<(u64, Vec<u8>)>) -> io::Result<()> {
    runs.into_iter().try_for_each(|(offset, bytes)| driver.write_at(&bytes, offset))
}

/// Records the end of a background write.
fn record_end(state: &RwLock<TransactionState>, succeeded: bool) {
    let mut state = state.write();
    state.overlay.end_background_write(succeeded);
    state.batch_limit = state.overlay.bytes().saturating_add(BATCH_BYTES);
}

impl Transaction {
    /// Marks the sectors with only fresh bytes as in flight; returns them as runs.
    fn begin_background_write(&self) -> Vec<(u64, Vec<u8>)> {
        let mut state = self.state.write();
        let runs = state.overlay.begin_background_write();
        if let Some((offset, bytes)) = runs.last() {
            state.overlay.written(offset.saturating_add(bytes.len() as u64));
        }
        runs
    }

    /// Starts a background write. The commit repeats and reports a failure.
    pub(super) fn start_background_write(&self) {
        let mut background = self.background.0.write();
        end(&mut background);
        let (state, driver, runs) = (self.state.clone(), self.driver.clone(), self.begin_background_write());
        let thread = Builder::new().name("h5dir-write".into()).spawn(move || {
            let succeeded = write(&*driver, runs).is_ok();
            record_end(&state, succeeded);
        });
        match thread {
            Ok(thread) => *background = Some(thread),
            Err(_) => record_end(&self.state, false),
        }
    }

    /// Writes all sectors with only fresh bytes. The caller prevents concurrent changes.
    pub(in crate::file) fn write_fresh_sectors(&self) -> io::Result<()> {
        let _idle = self.background.wait();
        let done = write(&*self.driver, self.begin_background_write());
        record_end(&self.state, done.is_ok());
        done
    }
}

impl Drop for Transaction {
    /// Waits for the background write, which must not outlive this writer.
    fn drop(&mut self) {
        drop(self.background.wait());
    }
}
