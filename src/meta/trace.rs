//! From which bytes of the file a decoded entry was made, so that a change of them drops it, and it alone.
//!
//! While an entry is loaded, what its thread reads is noted; an entry made of others is made of their bytes too.

use super::cache::Key;
use foldhash::HashMap;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// An entry made of more ranges goes with any change.
const RANGES_MAX: usize = 128;
/// Entries are found by the blocks of this size that they were made of, bytes.
const BLOCK: u64 = 4096;
/// An entry that reaches over more blocks goes with any change.
const BLOCKS_MAX: u64 = 256;
/// Everything is forgotten when more is noted than this; a note takes about 50 bytes.
const NOTES_MAX: usize = 1 << 17;

/// Ranges of addresses.
pub type Sources = Arc<[Range<u64>]>;

#[derive(Default)]
struct Frame {
    ranges: Vec<Range<u64>>,
}

impl Frame {
    fn add(&mut self, range: Range<u64>) {
        let full = self.ranges.len() >= RANGES_MAX;
        match self.ranges.last_mut() {
            Some(last) if last.start <= range.start && range.start <= last.end => last.end = last.end.max(range.end),
            _ if full => {
                self.ranges.clear();
                self.ranges.push(0..u64::MAX);
            }
            _ => self.ranges.push(range),
        }
    }
}

thread_local! {
    /// The loads under way on this thread, the innermost last.
    static FRAMES: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
}

/// Notes that `range` was read.
pub fn note(range: Range<u64>) {
    FRAMES.with_borrow_mut(|frames| {
        if let Some(frame) = frames.last_mut() {
            frame.add(range);
        }
    });
}

/// Notes that an entry made of `sources` was used.
pub fn note_all(sources: &Sources) {
    FRAMES.with_borrow_mut(|frames| {
        if let Some(frame) = frames.last_mut() {
            sources.iter().for_each(|r| frame.add(r.clone()));
        }
    });
}

/// Takes its frame away, also when a load panics.
struct Under;

impl Drop for Under {
    fn drop(&mut self) {
        FRAMES.with_borrow_mut(|frames| drop(frames.pop()));
    }
}

/// Calls `load`; what it read.
pub fn traced<T>(load: impl FnOnce() -> T) -> (T, Sources) {
    FRAMES.with_borrow_mut(|frames| frames.push(Frame::default()));
    let under = Under;
    let result = load();
    let sources: Sources =
        FRAMES.with_borrow_mut(|frames| frames.last_mut().map(|f| std::mem::take(&mut f.ranges)).unwrap_or_default()).into();
    drop(under);
    note_all(&sources);
    (result, sources)
}

/// Which entries were made of which bytes.
#[derive(Default)]
pub struct Index {
    blocks: HashMap<u64, Vec<(Key, Range<u64>)>>,
    /// Those that go with any change.
    wide: Vec<Key>,
    notes: usize,
}

fn blocks(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

impl Index {
    /// Notes an entry. False when there are too many: all must be forgotten, in the cache too.
    #[must_use]
    pub fn insert(&mut self, key: Key, sources: &Sources) -> bool {
        if self.notes > NOTES_MAX {
            return false;
        }
        let reach = |r: &Range<u64>| blocks(r).end.saturating_sub(blocks(r).start);
        if sources.iter().map(reach).fold(0, u64::saturating_add) > BLOCKS_MAX {
            self.wide.push(key);
            self.notes = self.notes.saturating_add(1);
            return true;
        }
        for range in sources.iter() {
            for block in blocks(range) {
                self.blocks.entry(block).or_default().push((key, range.clone()));
                self.notes = self.notes.saturating_add(1);
            }
        }
        true
    }

    /// The entries that are not true any more when `range` is changed; they are not noted any longer (elsewhere perhaps).
    pub fn touched(&mut self, range: &Range<u64>) -> Vec<Key> {
        let mut gone = std::mem::take(&mut self.wide);
        let reach = blocks(range);
        if reach.end.saturating_sub(reach.start) > self.blocks.len() as u64 {
            let there: Vec<u64> = self.blocks.keys().copied().filter(|b| reach.contains(b)).collect();
            there.into_iter().for_each(|block| self.take(block, range, &mut gone));
        } else {
            reach.for_each(|block| self.take(block, range, &mut gone));
        }
        self.notes = self.notes.saturating_sub(gone.len());
        gone
    }

    fn take(&mut self, block: u64, range: &Range<u64>, gone: &mut Vec<Key>) {
        let Some(entries) = self.blocks.get_mut(&block) else { return };
        entries.retain(|(key, source)| {
            let stays = source.end <= range.start || range.end <= source.start;
            if !stays {
                gone.push(*key);
            }
            stays
        });
        if entries.is_empty() {
            self.blocks.remove(&block);
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Index::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Address;
    use std::any::TypeId;

    fn key(n: u64) -> Key {
        (Address(n), TypeId::of::<u8>())
    }

    #[test]
    fn loads_within_loads_count_for_both() {
        let (inner, outer) = traced(|| {
            note(0..10);
            let ((), inner) = traced(|| note(100..200));
            note(10..20);
            inner
        });
        let within = 100..200;
        assert_eq!((&*inner, &*outer), (std::slice::from_ref(&within), &[0..10, 100..200, 10..20][..]));
        note(0..5);
        assert!(FRAMES.with_borrow(Vec::is_empty));
        let _ = std::panic::catch_unwind(|| traced(|| panic!("a load")));
        assert!(FRAMES.with_borrow(Vec::is_empty));
    }

    #[test]
    fn changes_touch_what_they_overlap() {
        let mut index = Index::default();
        let sources = |ranges: &[Range<u64>]| -> Sources { ranges.into() };
        assert!(index.insert(key(1), &sources(&[0..100, 5000..5100])));
        let second = 100..8192;
        assert!(index.insert(key(2), &sources(std::slice::from_ref(&second))));
        let all = 0..u64::MAX;
        assert!(index.insert(key(3), &sources(std::slice::from_ref(&all))));
        assert_eq!(index.touched(&(8192..9000)), [key(3)]);
        assert_eq!(index.touched(&(99..100)), [key(1)]);
        assert_eq!(index.touched(&(4096..4097)), [key(2)]);
        let mut rest = index.touched(&(0..1 << 40));
        rest.sort_unstable();
        assert_eq!(rest, [key(1), key(2)], "of their other blocks");
        assert!(index.blocks.is_empty());
        let many: Vec<_> = (0..1000).map(|i| i * 10..i * 10 + 1).collect();
        let (_, wide) = traced(|| many.iter().for_each(|r| note(r.clone())));
        assert!(wide.contains(&(0..u64::MAX)));
    }
}
