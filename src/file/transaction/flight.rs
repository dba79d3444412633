//! New bytes on their way to the file, while operations go on.
//!
//! What waits of small new structures is written by a thread of its own, from a copy. It is read from memory until it is in the
//! file, and what is changed meanwhile waits anew. Whoever writes to the file directly waits until nothing is on its way: the
//! copy has whole sectors, and with them what others wrote there before. A commit waits, too.

use super::{State, TOGETHER, Transaction};
use crate::base::waiting;
use crate::file::WriteDriver;
use parking_lot::{RwLock, RwLockReadGuard};
use std::io;
use std::thread::{Builder, JoinHandle};

/// What is on its way, if anything. Taken before the transaction's state.
#[derive(Default)]
pub(in crate::file) struct Flight(RwLock<Option<JoinHandle<()>>>);

impl Flight {
    /// Waits for what is on its way; nothing is as long as what is returned lives.
    pub fn landed(&self) -> RwLockReadGuard<'_, Option<JoinHandle<()>>> {
        loop {
            let flight = waiting::take(|| self.0.try_read(), || self.0.read());
            if flight.is_none() {
                return flight;
            }
            drop(flight);
            end(&mut self.0.write());
        }
    }
}

/// Waits for the thread's end, if there is one.
fn end(flight: &mut Option<JoinHandle<()>>) {
    if let Some(thread) = flight.take() {
        if !thread.is_finished() {
            waiting::may_wait();
        }
        // One that ended in a panic left all of it to the commit.
        let _ = thread.join();
    }
}

fn write(driver: &dyn WriteDriver, runs: Vec<(u64, Vec<u8>)>) -> io::Result<()> {
    runs.into_iter().try_for_each(|(offset, bytes)| driver.write_at(&bytes, offset))
}

/// Takes note of what became of the bytes that were on their way.
fn note(state: &RwLock<State>, well: bool) {
    let mut state = state.write();
    state.overlay.landed(well);
    state.look_at = state.overlay.bytes().saturating_add(TOGETHER);
}

impl Transaction {
    /// The new bytes that may be written at any time, as runs, which are on their way then.
    fn take_off(&self) -> Vec<(u64, Vec<u8>)> {
        let mut state = self.state.write();
        let runs = state.overlay.take_off();
        if let Some((offset, bytes)) = runs.last() {
            state.overlay.written(offset.saturating_add(bytes.len() as u64));
        }
        runs
    }

    /// Has another thread write what may be written at any time. What fails there is met again by the commit, which tells.
    pub(super) fn send_fresh(&self) {
        let mut flight = self.flight.0.write();
        end(&mut flight);
        let (state, driver, runs) = (self.state.clone(), self.driver.clone(), self.take_off());
        let thread = Builder::new().name("h5dir-write".into()).spawn(move || {
            let well = write(&*driver, runs).is_ok();
            note(&state, well);
        });
        match thread {
            Ok(thread) => *flight = Some(thread),
            Err(_) => note(&self.state, false),
        }
    }

    /// Writes what may be written at any time. The caller sees to it that nothing is changed meanwhile.
    pub(in crate::file) fn write_fresh(&self) -> io::Result<()> {
        let _landed = self.flight.landed();
        let done = write(&*self.driver, self.take_off());
        note(&self.state, done.is_ok());
        done
    }
}

impl Drop for Transaction {
    /// The file may be somebody else's then.
    fn drop(&mut self) {
        drop(self.flight.landed());
    }
}
