//! The journal: the changes of one commit, written beside the file before the file itself is changed.
//!
//! ```text
//! "h5dirjnl" | version u32 = 1 | records u32 | root sector's offset u64 | bytes of the records u64 |
//! root sector while the changes are made (512) | root sector after them (512) |
//! records: offset u64 | length u32 | bytes | ... checksum of all before, 2 x u32
//! ```
//!
//! Little-endian. The journal counts only while the file's root sector (the one with the superblock) is
//! exactly the one that says so: before that the file is in its old state, after that in its new one.

use super::overlay::{Bytes, Overlay, SECTOR};
use super::{FileDriver, JournalPlace, Status, WriteDriver, read_all};
use crate::base::checksum::lookup3;
use std::io;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"h5dirjnl";
const VERSION: u32 = 1;
const HEAD: usize = 8 + 4 + 4 + 8 + 8;
const TAIL: usize = 8;
/// Largest journal that is read, bytes.
pub const BYTES_MAX: u64 = 1 << 30;

/// The changes of one commit. All offsets are absolute and multiples of the sector size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// Offset of the root sector.
    pub root: u64,
    /// The root sector while the changes are made: no reader accepts the file.
    pub marked: Vec<u8>,
    /// The root sector after them.
    pub settled: Vec<u8>,
    /// All other changes.
    pub records: Vec<(u64, Vec<u8>)>,
}

fn sums(bytes: &[u8]) -> [u8; TAIL] {
    let (a, b) = (lookup3(bytes, 0), lookup3(bytes, 0x6835_6469));
    let mut out = [0; TAIL];
    for (to, from) in out.iter_mut().zip(a.to_le_bytes().into_iter().chain(b.to_le_bytes())) {
        *to = from;
    }
    out
}

/// Splits the first `n` bytes off.
fn take<'a>(rest: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (front, back) = rest.split_at_checked(n)?;
    *rest = back;
    Some(front)
}

fn u32_of(rest: &mut &[u8]) -> Option<u32> {
    take(rest, 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_of(rest: &mut &[u8]) -> Option<u64> {
    take(rest, 8)?.try_into().ok().map(u64::from_le_bytes)
}

impl Journal {
    /// The bytes of the journal file.
    pub fn encode(&self) -> Vec<u8> {
        let payload: usize = self.records.iter().map(|(_, b)| b.len() + 12).sum();
        let mut out = Vec::with_capacity(HEAD + 2 * SECTOR as usize + payload + TAIL);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(self.records.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.root.to_le_bytes());
        out.extend_from_slice(&(payload as u64).to_le_bytes());
        out.extend_from_slice(&self.marked);
        out.extend_from_slice(&self.settled);
        for (offset, bytes) in &self.records {
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        let sums = sums(&out);
        out.extend_from_slice(&sums);
        out
    }

    /// The journal in `bytes`; `None` when it is not whole, so that it was never relied on.
    pub fn decode(bytes: &[u8]) -> Option<Journal> {
        let mut rest = bytes;
        if take(&mut rest, 8)? != MAGIC || u32_of(&mut rest)? != VERSION {
            return None;
        }
        let count = u32_of(&mut rest)?;
        let root = u64_of(&mut rest)?;
        let payload = usize::try_from(u64_of(&mut rest)?).ok()?;
        let body = HEAD.checked_add(2 * SECTOR as usize)?.checked_add(payload)?;
        let stored = bytes.get(body..body.checked_add(TAIL)?)?;
        if sums(bytes.get(..body)?) != *stored {
            return None;
        }
        let marked = take(&mut rest, SECTOR as usize)?.to_vec();
        let settled = take(&mut rest, SECTOR as usize)?.to_vec();
        let mut records = Vec::new();
        for _ in 0..count {
            let offset = u64_of(&mut rest)?;
            let len = usize::try_from(u32_of(&mut rest)?).ok()?;
            records.push((offset, take(&mut rest, len)?.to_vec()));
        }
        Some(Journal { root, marked, settled, records })
    }

    /// Makes the changes: the step between the two root sectors.
    pub fn apply(&self, file: &dyn WriteDriver) -> io::Result<()> {
        for (offset, bytes) in &self.records {
            file.write_at(bytes, *offset)?;
        }
        file.sync()?;
        if let Err(e) = file.write_at(&self.settled, self.root) {
            // It may be half done; marked, the journal still counts.
            let _ = file.write_at(&self.marked, self.root);
            return Err(e);
        }
        file.sync()
    }
}

/// The journal at `place` that `file` waits for, if there is one.
pub fn pending(file: &dyn FileDriver, place: &dyn JournalPlace) -> io::Result<Option<Journal>> {
    let Some(source) = place.open()? else { return Ok(None) };
    let len = source.status()?.len;
    if len > BYTES_MAX {
        // Never one of ours; whose it is must be found out before it is removed.
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let n = read_all(&*source, &mut bytes, 0)?;
    let Some(journal) = Journal::decode(bytes.get(..n).unwrap_or_default()) else { return Ok(None) };
    let mut sector = vec![0; SECTOR as usize];
    let n = read_all(file, &mut sector, journal.root)?;
    Ok((n == sector.len() && sector == journal.marked).then_some(journal))
}

/// Finishes the commit that was interrupted, if this is its journal, and removes that. Returns whether it did. Another
/// journal stays: whether the file waits for one, which may be this one in part, only its superblock tells.
pub fn recover(file: &dyn WriteDriver, place: &dyn JournalPlace) -> io::Result<bool> {
    let Some(journal) = pending(file, place)? else { return Ok(false) };
    journal.apply(file)?;
    place.remove()?;
    Ok(true)
}

/// Removes a journal that nothing waits for; whether there was one.
pub fn discard(place: &dyn JournalPlace) -> io::Result<bool> {
    let there = place.open()?.is_some();
    if there {
        tracing::info!("a journal that the file did not wait for is removed");
        place.remove()?;
    }
    Ok(there)
}

/// A file that cannot be changed, as it is after the journal.
pub struct Finished {
    file: Arc<dyn FileDriver>,
    changes: Overlay,
}

impl Finished {
    /// `file` with the changes of `journal`.
    pub fn new(file: impl FileDriver + 'static, journal: &Journal) -> io::Result<Self> {
        let mut changes = Overlay::default();
        for (offset, bytes) in journal.records.iter().map(|(o, b)| (*o, b)).chain([(journal.root, &journal.settled)]) {
            changes.write(&file, offset, bytes, Bytes::Live)?;
        }
        Ok(Finished { file: Arc::new(file), changes })
    }
}

impl FileDriver for Finished {
    fn status(&self) -> io::Result<Status> {
        self.file.status()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let n = self.file.read_at(buf, offset)?;
        Ok(n.max(self.changes.patch(offset, buf)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::memory::{GrowingFile, MemoryJournal};

    fn journal() -> Journal {
        Journal { root: 512, marked: vec![1; 512], settled: vec![2; 512], records: vec![(0, vec![3; 512]), (1024, vec![4; 1024])] }
    }

    #[test]
    fn round_trip_and_damage() {
        let bytes = journal().encode();
        assert_eq!(Journal::decode(&bytes), Some(journal()));
        for i in 0..bytes.len() {
            assert_eq!(Journal::decode(&bytes[..i]), None, "cut to {i}");
            let mut bad = bytes.clone();
            bad[i] ^= 0x10;
            assert_eq!(Journal::decode(&bad), None, "byte {i}");
        }
        // What a longer journal left behind it does no harm.
        let mut longer = bytes.clone();
        longer.extend([9; 100]);
        assert_eq!(Journal::decode(&longer), Some(journal()));
    }

    #[test]
    fn a_file_that_cannot_be_changed_is_read_as_finished() {
        let finished = Finished::new(GrowingFile::new(vec![0; 3000]), &journal()).unwrap();
        let mut b = vec![9; 3000];
        assert_eq!(finished.read_at(&mut b, 0).unwrap(), 3000);
        assert!(b[..512].iter().all(|b| *b == 3) && b[512..1024].iter().all(|b| *b == 2) && b[1024..2048].iter().all(|b| *b == 4));
        assert!(b[2048..].iter().all(|b| *b == 0));
    }

    #[test]
    fn only_a_marked_file_is_changed() {
        for marked in [false, true] {
            let mut image = vec![0; 3000];
            image[512..1024].fill(u8::from(marked));
            let file = GrowingFile::new(image.clone());
            let place = MemoryJournal::new(Some(journal().encode()));
            assert_eq!(recover(&file, &place).unwrap(), marked);
            assert_eq!(place.bytes().is_none(), marked, "one that does not count is nobody's to remove here");
            assert_eq!(discard(&place).unwrap(), !marked);
            assert!(place.bytes().is_none());
            if marked {
                image[..512].fill(3);
                image[512..1024].fill(2);
                image[1024..2048].fill(4);
            }
            assert_eq!(file.bytes(), image);
        }
    }
}
