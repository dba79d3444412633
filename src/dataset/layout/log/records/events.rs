//! What the runs that the index lacks did to each dataset: in memory, and in pages if it is much.

use super::dataset::Placed;
use super::pages::{Pages, Stream, put_number, take_number};
use crate::base::{Address, Error, Result};
use crate::format::log::record::{NAME, Selection};
use crate::format::log::run::Erased;
use foldhash::HashMap;
use std::sync::Arc;

/// Events in memory, bytes.
const IN_MEMORY: usize = 8 << 20;

/// What a run did to a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Write(Placed),
    Erase(Erased),
}

const WRITE: u64 = 0;
const ERASE: u64 = 1;
const POINTS: u64 = 2;
const DEFLATED: u64 = 4;

impl Event {
    /// The event as numbers, with their count before them.
    fn put(&self, bytes: &mut Vec<u8>) {
        let numbers = match self {
            Event::Erase(e) => vec![ERASE, e.dataset, e.first, e.count],
            Event::Write(Placed { selection, deflated, stored, log, offset }) => {
                let (kind, lists) = match selection {
                    Selection::Subarray { start, count } => (WRITE, [start.as_slice(), count]),
                    Selection::Points(points) => (POINTS, [points.as_slice(), &[]]),
                };
                let kind = kind | if *deflated { DEFLATED } else { 0 };
                let mut numbers = vec![kind, (*stored).into(), (*log).into(), *offset];
                lists.into_iter().for_each(|list| numbers.extend(list));
                numbers
            }
        };
        put_number(bytes, numbers.len() as u64);
        numbers.into_iter().for_each(|n| put_number(bytes, n));
    }

    /// Takes an event from the start of `bytes`; `None`: it does not end there, or is none.
    fn take(bytes: &mut &[u8]) -> Option<Event> {
        let mut rest = *bytes;
        let count = usize::try_from(take_number(&mut rest)?).ok().filter(|n| *n <= rest.len())?;
        let numbers = (0..count).map(|_| take_number(&mut rest)).collect::<Option<Vec<u64>>>()?;
        let [kind, a, b, c, ref list @ ..] = *numbers else { return None };
        let event = if kind == ERASE {
            Event::Erase(Erased { dataset: a, first: b, count: c })
        } else {
            let (stored, log) = (u32::try_from(a).ok()?, u32::try_from(b).ok()?);
            let selection = if kind & POINTS == 0 {
                let (start, count) = list.split_at(list.len() / 2);
                Selection::Subarray { start: start.to_vec(), count: count.to_vec() }
            } else {
                Selection::Points(list.to_vec())
            };
            Event::Write(Placed { selection, deflated: kind & DEFLATED != 0, stored, log, offset: c })
        };
        *bytes = rest;
        Some(event)
    }
}

/// Events by dataset.
#[derive(Default)]
pub(super) struct Events {
    of: HashMap<u64, Stream>,
    pages: Arc<Pages>,
    in_memory: usize,
    /// Pages cannot be stored: the disk is full.
    is_full: bool,
}

impl Events {
    /// Adds what happened to the dataset `id`.
    pub(super) fn add(&mut self, id: u64, event: &Event) {
        let mut bytes = Vec::new();
        event.put(&mut bytes);
        self.of.entry(id).or_default().put(&bytes);
        self.in_memory = self.in_memory.saturating_add(bytes.len());
        if self.in_memory > IN_MEMORY && !self.is_full {
            let spilled = self.of.values_mut().try_for_each(|stream| stream.spill(&self.pages));
            if let Err(e) = spilled {
                tracing::debug!("records of a log stay in memory: {e}");
                self.is_full = true;
            }
            self.in_memory = self.of.values().map(Stream::in_memory).sum();
        }
    }

    /// The datasets that have some.
    pub(super) fn datasets(&self) -> impl Iterator<Item = u64> {
        self.of.keys().copied()
    }

    /// Calls `f` with the events of the dataset `id`, in order.
    pub(super) fn each(&self, id: u64, f: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
        let Some(stream) = self.of.get(&id) else { return Ok(()) };
        let mut bytes = Vec::new();
        for piece in stream.pieces() {
            bytes.extend(piece?);
            let mut rest = bytes.as_slice();
            while let Some(event) = Event::take(&mut rest) {
                f(event)?;
            }
            bytes = rest.to_vec();
        }
        if bytes.is_empty() { Ok(()) } else { Err(Error::corrupt(NAME, Address::UNDEF, "a page that was changed")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More events than are kept in memory come back in order.
    #[test]
    fn many_events_come_back() {
        let event = |n: u64| match n % 4 {
            0 => Event::Erase(Erased { dataset: n % 3, first: n << 20, count: n }),
            1 => {
                let points = (0..n % 700).map(|p| p << 30).collect();
                Event::Write(Placed { selection: Selection::Points(points), deflated: false, stored: 0, log: 1, offset: n })
            }
            n => {
                let selection = Selection::Subarray { start: vec![n << 40, n << 50], count: vec![1, n << 30] };
                Event::Write(Placed { selection, deflated: n == 3, stored: n as u32, log: n as u32, offset: n << 33 })
            }
        };
        let mut events = Events::default();
        let count = 20_000;
        (0..count).for_each(|n| events.add(n % 3, &event(n)));
        assert!(events.of.values().all(|s| s.pieces().count() > 100) && events.in_memory < IN_MEMORY);
        for id in 0..3 {
            let mut next = id;
            events
                .each(id, &mut |found| {
                    assert_eq!(found, event(next));
                    next += 3;
                    Ok(())
                })
                .unwrap();
            assert!(next >= count);
        }
        assert_eq!(events.datasets().count(), 3);
    }
}
