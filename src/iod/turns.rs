//! Turns of writers that commit at the same time.
//!
//! Advisory: that a record is created once decides every race. Turns only spread the attempts to
//! about one in a slot, the time of a read and a creation, so that few are lost and each writer
//! gets its share. They need no objects: each writer derives them from the records of its rivals,
//! which it reads for the merge in any case, and from the number of pins.

use super::origin::uuid;
use crate::base::Result;
use crate::base::locks::Mutex;
use crate::base::waiting;
use foldhash::HashSet;
use std::time::{Duration, Instant};

/// Seconds of a request before one was measured.
const REQUEST_SECONDS: f64 = 0.01;
/// Longest request that counts, seconds: servers are slow at times.
const REQUEST_MAX_SECONDS: f64 = 0.25;
/// Commits without a rival after which a writer looks whether there are other mounts.
const ROW: u32 = 32;
/// Slots that it pauses if there are: a rival that lost needs up to three for its next attempt.
const PAUSE_SLOTS: f64 = 4.0;

/// What a writer knows of its rivals.
#[derive(Default)]
pub(super) struct Turns(Mutex<Held>);

#[derive(Default)]
struct Held {
    /// Seconds of a read and of a creation, on average; `None`: there was none.
    read: Option<f64>,
    creation: Option<f64>,
    /// Its own last commit.
    last: Option<Instant>,
    /// Rivals that committed during that one.
    rivals: usize,
    /// Commits in a row without a rival.
    row: u32,
}

/// The turn of one commit.
#[derive(Default)]
pub struct Turn {
    /// Slots until the next attempt.
    wait: f64,
    /// Attempts that lost.
    losses: u32,
    /// Writers of the records that were read since it began.
    rivals: HashSet<u64>,
    /// Number of pins, once counted.
    pins: Option<usize>,
}

/// A random number from 0 to 1.
fn random() -> f64 {
    let [a, b, c, d, ..] = uuid().unwrap_or([128; 16]);
    f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX)
}

fn number(n: usize) -> f64 {
    u32::try_from(n).map_or(f64::MAX, f64::from)
}

/// Adds a measurement to an average, in which what is fast counts more: requests are slow in a
/// crowd.
fn add(average: &mut Option<f64>, took: Duration) {
    let took = took.as_secs_f64().min(REQUEST_MAX_SECONDS);
    let weight = |old: f64| if took < old { 0.5 } else { 0.25 };
    *average = Some(average.map_or(took, |old| old + weight(old) * (took - old)));
}

impl Turns {
    /// The turn of a new commit. A writer that met rivals lets each of them commit first. `pins`
    /// counts the mounts.
    pub(super) fn begin(&self, pins: impl FnOnce() -> usize) -> Turn {
        let mut held = self.0.lock();
        let mut turn = Turn::default();
        if held.rivals > 0 {
            let since = held.last.map_or(f64::INFINITY, |last| last.elapsed().as_secs_f64() / held.slot());
            turn.wait = number(held.rivals) * (0.5 + random()) - since;
        } else if held.row >= ROW {
            held.row = 0;
            drop(held);
            // One of them may have lost each time.
            turn.wait = if pins() > 1 { PAUSE_SLOTS } else { 0.0 };
        }
        turn
    }

    /// Waits until the next attempt is due. `look` reads the new records, and returns the rivals
    /// that committed them.
    pub(super) fn wait(&self, turn: &mut Turn, look: &mut dyn FnMut() -> Result<Vec<u64>>) -> Result<()> {
        if turn.wait <= 0.0 {
            return Ok(());
        }
        let seconds = turn.wait * self.0.lock().slot();
        turn.wait = 0.0;
        waiting::may_wait();
        std::thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default());
        turn.rivals.extend(look()?);
        Ok(())
    }

    /// Draws the slot of the next attempt. `rivals`: those that committed first; `pins` counts the
    /// mounts, all of which may be rivals.
    pub(super) fn lost(&self, turn: &mut Turn, rivals: Vec<u64>, pins: impl FnOnce() -> usize) {
        turn.rivals.extend(rivals);
        turn.losses = turn.losses.saturating_add(1);
        let pins = *turn.pins.get_or_insert_with(pins);
        turn.wait = random() * number(pins.max(2)) / f64::from(turn.losses);
    }

    /// Notes a read of a record that took this long.
    pub(super) fn read(&self, took: Duration) {
        add(&mut self.0.lock().read, took);
    }

    /// Notes a creation of a record that took this long.
    pub(super) fn created(&self, took: Duration) {
        add(&mut self.0.lock().creation, took);
    }

    /// Notes that the commit of `turn` succeeded.
    pub(super) fn won(&self, turn: &Turn) {
        let mut held = self.0.lock();
        (held.last, held.rivals) = (Some(Instant::now()), turn.rivals.len());
        held.row = if turn.rivals.is_empty() { held.row.saturating_add(1) } else { 0 };
    }
}

impl Held {
    /// Seconds of a slot.
    fn slot(&self) -> f64 {
        self.creation.unwrap_or(REQUEST_SECONDS) + self.read.unwrap_or(REQUEST_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a commit during which so many rivals committed.
    fn after(rivals: u64) -> Turns {
        let turns = Turns::default();
        turns.created(Duration::from_secs(1));
        turns.won(&Turn { rivals: (0..rivals).collect(), ..Turn::default() });
        turns
    }

    #[test]
    fn a_lone_writer_looks_for_mounts_after_a_row_and_does_not_wait() {
        let turns = after(0);
        for _ in 1..ROW {
            assert_eq!(turns.begin(|| unreachable!("the row is short")).wait, 0.0);
            turns.won(&Turn::default());
        }
        assert_eq!(turns.begin(|| 1).wait, 0.0);
        for _ in 0..ROW {
            turns.won(&Turn::default());
        }
        assert_eq!(turns.begin(|| 2).wait, PAUSE_SLOTS);
    }

    #[test]
    fn a_writer_lets_its_rivals_commit_first() {
        let turns = after(20);
        let wait = turns.begin(|| unreachable!("the rivals are known")).wait;
        assert!(wait > 9.0 && wait <= 30.0, "{wait}");
        // Those that came meanwhile are its rivals for the next one.
        let mut turn = Turn { wait: f64::MIN_POSITIVE, ..Turn::default() };
        turns.wait(&mut turn, &mut || Ok(vec![1, 2, 1])).unwrap();
        turns.won(&turn);
        assert!(turns.begin(|| unreachable!("the rivals are known")).wait <= 3.0);
        assert_eq!(turns.0.lock().rivals, 2);
    }

    #[test]
    fn a_writer_that_lost_draws_a_slot_among_the_mounts() {
        for _ in 0..50 {
            let (turns, mut turn) = (after(1), Turn::default());
            turns.lost(&mut turn, vec![7], || 100);
            assert!(turn.wait >= 0.0 && turn.wait <= 100.0);
            turns.lost(&mut turn, vec![7], || unreachable!("pins are counted once"));
            assert!(turn.wait <= 50.0 && turn.rivals.len() == 1);
        }
    }
}
