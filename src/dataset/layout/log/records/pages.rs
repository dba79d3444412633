//! Pages in an unlinked temporary file: what a log keeps besides its memory.

use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::temporary;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = 4096;
/// Name of the structure in errors.
const NAME: &str = "temporary file of a log";

/// Pages of a temporary file, which exists once there is one.
#[derive(Debug, Default)]
pub(super) struct Pages(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    file: Option<Arc<File>>,
    /// Pages that the file has.
    len: u32,
    /// Those that are not in use.
    free: Vec<u32>,
}

fn io(e: &std::io::Error) -> Error {
    Error::io("use a temporary file of a log", Address::UNDEF, e)
}

fn place(number: u32) -> u64 {
    u64::from(number).saturating_mul(PAGE_BYTES as u64)
}

impl Pages {
    /// Loses all pages.
    #[cfg(test)]
    pub(super) fn lose(&self) {
        self.0.lock().file = None;
    }

    /// Stores `bytes`, at most those of a page.
    pub(super) fn store(self: &Arc<Self>, bytes: &[u8]) -> Result<Page> {
        let len = u16::try_from(bytes.len()).ok().filter(|n| usize::from(*n) <= PAGE_BYTES);
        let len = len.ok_or_else(|| Error::limit(NAME, Address::UNDEF, format!("{} bytes in a page", bytes.len())))?;
        let (file, page) = {
            let mut state = self.0.lock();
            let file = match &state.file {
                Some(file) => file.clone(),
                None => state.file.insert(Arc::new(temporary::file().map_err(|e| io(&e))?)).clone(),
            };
            let number = match state.free.pop() {
                Some(number) => number,
                None => {
                    let number = state.len;
                    state.len = number.checked_add(1).ok_or_else(|| Error::limit(NAME, Address::UNDEF, "2^32 pages"))?;
                    number
                }
            };
            (file, Page { pages: self.clone(), number, len })
        };
        file.write_all_at(bytes, place(page.number)).map_err(|e| io(&e))?;
        Ok(page)
    }
}

/// A stored page; its place is free when this is dropped.
#[derive(Debug)]
pub(super) struct Page {
    pages: Arc<Pages>,
    number: u32,
    len: u16,
}

impl Page {
    /// The bytes that were stored.
    pub(super) fn read(&self) -> Result<Vec<u8>> {
        let absent = || Error::corrupt(NAME, Address::UNDEF, "it is closed");
        let file = self.pages.0.lock().file.clone().ok_or_else(absent)?;
        let mut bytes = vec![0; usize::from(self.len)];
        file.read_exact_at(&mut bytes, place(self.number)).map_err(|e| io(&e))?;
        Ok(bytes)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.pages.0.lock().free.push(self.number);
    }
}

/// Bytes that are written and read in order; those before the last ones are in pages.
#[derive(Debug, Default)]
pub(super) struct Stream {
    stored: Vec<Page>,
    tail: Vec<u8>,
}

impl Stream {
    /// Bytes of it in memory.
    pub(super) fn in_memory(&self) -> usize {
        self.tail.len()
    }

    /// Appends bytes, in memory.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    /// Stores what is in memory.
    pub(super) fn spill(&mut self, pages: &Arc<Pages>) -> Result<()> {
        let stored = self.tail.chunks(PAGE_BYTES).map(|bytes| pages.store(bytes)).collect::<Result<Vec<_>>>()?;
        self.stored.extend(stored);
        self.tail = Vec::new();
        Ok(())
    }

    /// The bytes in pieces, in order.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Result<Vec<u8>>> {
        let last = (!self.tail.is_empty()).then(|| Ok(self.tail.clone()));
        self.stored.iter().map(Page::read).chain(last)
    }
}

/// Appends a number in 7 bits a byte, the low ones first.
pub(super) fn put_number(bytes: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        bytes.push(u8::try_from(n & 0x7f).unwrap_or(0) | 0x80);
        n >>= 7;
    }
    bytes.push(u8::try_from(n).unwrap_or(0));
}

/// Appends the difference of two numbers.
pub(super) fn put_difference(bytes: &mut Vec<u8>, n: u64, before: u64) {
    let d = n.wrapping_sub(before).cast_signed();
    put_number(bytes, ((d << 1) ^ (d >> 63)).cast_unsigned());
}

/// Takes a number from the start of `bytes`; `None`: it does not end.
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(first & 0x7f).checked_shl(shift)?;
        if first & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

/// Takes what [`put_difference`] put.
pub(super) fn take_difference(bytes: &mut &[u8], before: u64) -> Option<u64> {
    let z = take_number(bytes)?;
    Some(before.wrapping_add((z >> 1) ^ (z & 1).wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for n in [0, 1, 127, 128, 1 << 32, u64::MAX - 1, u64::MAX] {
            for before in [0, 77, u64::MAX] {
                let mut bytes = Vec::new();
                put_number(&mut bytes, n);
                put_difference(&mut bytes, n, before);
                let mut rest = &bytes[..];
                assert_eq!(take_number(&mut rest), Some(n));
                assert_eq!(take_difference(&mut rest, before), Some(n));
                assert!(rest.is_empty());
                assert_eq!(take_number(&mut &bytes[..0]), None);
            }
        }
        assert_eq!(take_number(&mut &[0xff; 12][..]), None);
    }

    /// Freed pages are used again, and a stream returns what it got.
    #[test]
    fn pages_are_used_again() {
        let pages = Arc::new(Pages::default());
        for _ in 0..3 {
            let mut stream = Stream::default();
            let bytes: Vec<u8> = (0..30_000u32).map(|n| (n / 3) as u8).collect();
            for part in bytes.chunks(7_000) {
                stream.put(part);
                stream.spill(&pages).unwrap();
                stream.put(&[9]);
            }
            assert_eq!(stream.in_memory(), 1);
            let want: Vec<u8> = bytes.chunks(7_000).flat_map(|part| [part, &[9]].concat()).collect();
            assert_eq!(stream.pieces().collect::<Result<Vec<_>>>().unwrap().concat(), want);
        }
        let state = pages.0.lock();
        assert!(state.len < 12 && state.free.len() == state.len as usize, "{state:?}");
        drop(state);
        assert!(pages.store(&[0; PAGE_BYTES + 1]).is_err());
    }
}
