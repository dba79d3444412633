//! Turns of writers that commit at the same time.
//!
//! Advisory: that a record is created once decides every race. Turns only spread the attempts, so
//! that few are lost and each writer gets its share. They need no objects: each writer derives them
//! from the records of the others, which it reads for the merge in any case.
//!
//! A slot is the time of a read and a creation: about one version. A writer that has committed lets
//! each rival of the last records commit before its next attempt. A writer that lost draws a slot
//! among as many as mounts have pins, or of the next two if its rivals are known and so wait for
//! it. A slot in which nothing is committed shortens all waits.

use super::origin::uuid;
use crate::base::Result;
use crate::base::waiting;
use foldhash::{HashMap, HashSet};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Seconds of a request before one was measured.
const REQUEST_SECONDS: f64 = 0.01;
/// Longest request that counts, seconds: servers are slow at times.
const REQUEST_MAX_SECONDS: f64 = 0.25;
/// Shortest slot, seconds.
const SLOT_MIN_SECONDS: f64 = 1e-5;
/// Slots after which a waiting writer reads the new records.
const LOOK_SLOTS: f64 = 8.0;
/// What an idle slot leaves of a wait.
const IDLE_SLOT_LEAVES: f64 = 0.8;
/// Part of the rivals that a writer waits for, at least.
const SCALE_MIN: f64 = 0.02;
/// Records in which rivals are looked for.
const RIVALS_RECORDS: u64 = 256;
/// Time after which a rival is forgotten.
const RIVALS_TIME: Duration = Duration::from_secs(30);
/// Rivals that one draws a slot among, at most.
const RIVALS_MAX: usize = 256;
/// Commits in a row after which a writer that knows no rival lets one commit.
const ROW_MIN: u32 = 32;
/// Most of them: the row is twice as long after no rival came.
const ROW_MAX: u32 = 128;
/// Slots that it waits then: a rival that lost needs up to three for its next attempt.
const YIELD_SLOTS: f64 = 4.0;
/// Slots that a writer waits for each rival.
const RIVAL_SLOTS: f64 = 1.15;
/// Slots without a commit after which a row ends.
const ROW_PAUSE_SLOTS: f64 = 4.0;
/// Slots that a writer draws among whose rivals wait for it.
const DUE_SLOTS: usize = 2;

/// What a writer knows of its rivals.
pub(super) struct Turns(Mutex<Held>);

struct Held {
    /// Creations of records.
    creation: Average,
    /// Reads of records.
    read: Average,
    /// Its own last commit.
    last: Option<Instant>,
    /// Commits in a row without a record of a rival.
    row: u32,
    /// The row after which it lets rivals commit.
    row_end: u32,
    /// Records of rivals that were read.
    records: u64,
    /// Number and time of the last record of each rival.
    rivals: HashMap<u64, (u64, Instant)>,
    /// Part of its rivals that it waits for.
    scale: f64,
}

/// Seconds of a kind of request, on average; `None`: there was none.
#[derive(Default)]
struct Average(Option<f64>);

impl Average {
    fn add(&mut self, took: Duration) {
        let took = took.as_secs_f64().min(REQUEST_MAX_SECONDS);
        // Requests are slow in a crowd: what is fast counts more.
        let weight = |old: f64| if took < old { 0.5 } else { 0.25 };
        self.0 = Some(self.0.map_or(took, |old| old + weight(old) * (took - old)));
    }

    fn seconds(&self) -> f64 {
        self.0.unwrap_or(REQUEST_SECONDS)
    }
}

/// The turn of one commit.
pub struct Turn {
    /// Slots until the next attempt.
    left: f64,
    /// Attempts that lost.
    losses: u32,
    /// It only lets unknown rivals commit.
    yields: bool,
    /// A record of a rival was read.
    saw_rival: bool,
    /// Pins, if they were counted.
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

impl Default for Turns {
    fn default() -> Turns {
        let (creation, read, rivals) = (Average::default(), Average::default(), HashMap::default());
        Turns(Mutex::new(Held { creation, read, last: None, row: 0, row_end: ROW_MIN, records: 0, rivals, scale: 1.0 }))
    }
}

impl Turns {
    /// The turn of a new commit.
    pub(super) fn begin(&self) -> Turn {
        let mut held = self.0.lock();
        let mut turn = Turn { left: 0.0, losses: 0, yields: false, saw_rival: false, pins: None };
        let slots = held.last.map_or(f64::INFINITY, |last| last.elapsed().as_secs_f64() / held.slot());
        let waits = number(held.active()) * held.scale * RIVAL_SLOTS;
        if slots > waits.max(ROW_PAUSE_SLOTS) {
            held.row = 0;
        } else if waits > 0.0 {
            turn.left = waits * (0.9 + random() / 5.0) - slots;
        } else if held.row >= held.row_end {
            (turn.left, turn.yields, held.row) = (YIELD_SLOTS, true, 0);
        }
        turn
    }

    /// Notes records of rivals.
    fn saw(&self, turn: &mut Turn, rivals: &[u64]) {
        let mut held = self.0.lock();
        for rival in rivals {
            held.records = held.records.saturating_add(1);
            let at = (held.records, Instant::now());
            held.rivals.insert(*rival, at);
        }
        if !rivals.is_empty() {
            (held.row, held.row_end, turn.saw_rival) = (0, ROW_MIN, true);
        }
    }

    /// Time to sleep before the next look.
    fn nap(&self, turn: &Turn) -> Duration {
        let held = self.0.lock();
        let seconds = turn.left.min(LOOK_SLOTS) * held.slot() - held.read.seconds() * (0.5 + random() / 2.0);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Notes that `elapsed` of the wait is over, and which rivals committed meanwhile.
    fn waited(&self, turn: &mut Turn, elapsed: Duration, rivals: &[u64]) {
        self.saw(turn, rivals);
        let mut held = self.0.lock();
        let slots = elapsed.as_secs_f64() / held.slot();
        let committed = number(rivals.iter().collect::<HashSet<_>>().len());
        if !turn.yields && rivals.is_empty() {
            let left = IDLE_SLOT_LEAVES.powf(slots);
            held.scale = (held.scale * left).max(SCALE_MIN);
            turn.left *= left;
        } else if !turn.yields {
            held.scale = (held.scale * 1.5).min(1.0);
        }
        turn.left -= slots.max(committed);
        if turn.left <= 0.0 && turn.yields && !turn.saw_rival {
            held.row_end = held.row_end.saturating_mul(2).min(ROW_MAX);
        }
    }

    /// Waits until the next attempt is due. `look` reads the new records, and returns the rivals
    /// that committed them.
    pub(super) fn wait(&self, turn: &mut Turn, look: &mut dyn FnMut() -> Result<Vec<u64>>) -> Result<()> {
        while turn.left > 0.0 {
            let begin = Instant::now();
            waiting::may_wait();
            std::thread::sleep(self.nap(turn));
            let rivals = look()?;
            self.waited(turn, begin.elapsed(), &rivals);
        }
        Ok(())
    }

    /// Draws the slot of the next attempt. `rivals`: those that committed first; `pins` counts the
    /// mounts.
    pub(super) fn lost(&self, turn: &mut Turn, rivals: &[u64], pins: impl FnOnce() -> usize) {
        self.saw(turn, rivals);
        turn.losses = turn.losses.saturating_add(1);
        (turn.left, turn.yields) = (0.0, false);
        let active = self.0.lock().active();
        // Rivals that are not known yet do not wait for it.
        if turn.pins.is_none() && active <= rivals.len().max(DUE_SLOTS) {
            turn.pins = Some(pins());
        }
        let among = turn.pins.unwrap_or(0).clamp(DUE_SLOTS, RIVALS_MAX);
        turn.left = random() * number(among) / f64::from(turn.losses);
    }

    /// Notes a read of a record that took this long.
    pub(super) fn read(&self, took: Duration) {
        self.0.lock().read.add(took);
    }

    /// Notes an own commit, whose creation took this long.
    pub(super) fn committed(&self, took: Duration) {
        let mut held = self.0.lock();
        held.creation.add(took);
        held.last = Some(Instant::now());
        held.row = held.row.saturating_add(1);
    }
}

impl Held {
    /// Seconds of a slot.
    fn slot(&self) -> f64 {
        (self.creation.seconds() + self.read.seconds()).max(SLOT_MIN_SECONDS)
    }

    /// How many rivals committed lately.
    fn active(&mut self) -> usize {
        let first = self.records.saturating_sub(RIVALS_RECORDS);
        self.rivals.retain(|_, (number, at)| *number > first && at.elapsed() < RIVALS_TIME);
        self.rivals.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After `count` commits of a second each.
    fn committed(count: u32) -> Turns {
        let turns = Turns::default();
        (0..count).for_each(|_| turns.committed(Duration::from_secs(1)));
        turns
    }

    #[test]
    fn a_lone_writer_pauses_after_rows_that_double() {
        let turns = committed(ROW_MIN - 1);
        assert_eq!(turns.begin().left, 0.0);
        let turns = committed(ROW_MIN);
        let mut turn = turns.begin();
        assert_eq!((turn.left, turn.yields), (YIELD_SLOTS, true));
        turns.waited(&mut turn, Duration::from_secs(5), &[]);
        assert_eq!((turn.left <= 0.0, turns.0.lock().row_end), (true, 2 * ROW_MIN));
        // A rival came.
        turns.waited(&mut turn, Duration::from_secs(5), &[7]);
        assert_eq!(turns.0.lock().row_end, ROW_MIN);
    }

    #[test]
    fn a_writer_lets_its_rivals_commit_first() {
        let turns = committed(1);
        let rivals: Vec<u64> = (1..=20).collect();
        turns.saw(&mut turns.begin(), &rivals);
        let mut turn = turns.begin();
        assert!(turn.left > 20.0 && turn.left < 26.0, "{}", turn.left);
        // All of them did; or none, and the wait is over long before.
        turns.waited(&mut turn, Duration::ZERO, &(1..=26).collect::<Vec<_>>());
        assert!(turn.left <= 0.0);
        let mut turn = turns.begin();
        turns.waited(&mut turn, Duration::from_secs(4), &[]);
        assert!(turn.left < 0.0 && turns.begin().left < 2.0, "{}", turn.left);
    }

    #[test]
    fn a_writer_that_lost_draws_among_the_mounts_or_before_its_rivals() {
        for seed in 0..50 {
            let turns = committed(1);
            let mut turn = turns.begin();
            turns.lost(&mut turn, &[seed], || 100);
            assert!(turn.left >= 0.0 && turn.left <= 100.0 && turn.pins == Some(100));
            turns.lost(&mut turn, &[seed], || unreachable!("pins are counted once"));
            assert!(turn.left <= 50.0);
            let turns = committed(1);
            turns.saw(&mut turns.begin(), &[1, 2, 3]);
            let mut turn = turns.begin();
            turns.lost(&mut turn, &[2], || unreachable!("the rivals are known"));
            assert!(turn.left <= 2.0);
        }
    }
}
