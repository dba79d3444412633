//! The journal: the changes of one commit, written beside the file before the file itself is
//! changed.
//!
//! ```text
//! "h5dirjnl" | state u32: 0 void, 2 armed, 3 ordered | records u32 |
//! offset of the root sector u64 |
//! bytes of the records u64 |
//! nonce u64 | device u64, inode u64 of the file |
//! marked root sector, during the changes (512) | settled root sector, after them (512) |
//! records: offset u64 | length u32 | bytes | ... checksum of all before, 2 x u32 |
//! offset u64, nonce u64 of the record of free space (`file::free_record`), their checksum u32
//! ```
//!
//! Little-endian. State 1 is the earlier format, without nonce, device and inode. The journal is
//! valid only while the file's root sector (the sector with the superblock) equals its marked root
//! sector; the superblock in it carries the nonce. A journal in state 3 (`file::commit::ordered`)
//! has no marked root sector: it is valid only while the superblock is that of its settled sector.
//! `meta::recovery` decides whether a journal is applied to a file.

use super::free_record::RecordPlace;
use super::overlay::SECTOR;
use super::{FileDriver, Identity, Status, WriteDriver, read_all};
use crate::base::checksum::{Lookup3, lookup3};
use std::io;
use std::sync::Arc;

/// First bytes of every journal.
pub const MAGIC: &[u8; 8] = b"h5dirjnl";
const VOID: u32 = 0;
const ARMED_WITHOUT_NONCE: u32 = 1;
const ARMED: u32 = 2;
const ORDERED: u32 = 3;
/// Offset of the state.
const STATE_AT: u64 = 8;
/// Offset of the nonce.
const NONCE_AT: u64 = 32;
/// Offset of device and inode of the file.
pub const OWNER_AT: u64 = 40;
const HEAD_LEN: usize = 56;
const HEAD_LEN_WITHOUT_NONCE: usize = 32;
const RECORD_HEAD_LEN: usize = 12;
const CHECKSUM_LEN: usize = 8;
const CHECKSUM_SEEDS: [u32; 2] = [0, 0x6835_6469];
/// Bytes of the place of a record of free space.
const PLACE_LEN: usize = 20;
/// Largest journal that readers accept, bytes.
pub const BYTES_MAX: u64 = 1 << 30;
/// Largest journal that a reader loads into memory, bytes.
const LOADED_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a journal read at once.
const READ_BYTES: usize = 1 << 20;

/// The changes of one commit. All offsets are absolute and multiples of the sector size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// File to change.
    pub owner: Identity,
    /// Random number of the commit, also in the marked superblock.
    pub nonce: u64,
    /// Offset of the root sector.
    pub root: u64,
    /// Root sector during the changes, which no reader accepts.
    pub marked: Vec<u8>,
    /// Root sector after the changes.
    pub settled: Vec<u8>,
    /// All other changes, in ascending order.
    pub records: Vec<(u64, Vec<u8>)>,
    /// The record of free space in the file, if it has one.
    pub free_record: Option<RecordPlace>,
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

/// The head of a journal that holds no commit.
pub fn void_head(owner: Identity) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend([0; HEAD_LEN - 8 - 16]);
    out.extend_from_slice(&owner.device.to_le_bytes());
    out.extend_from_slice(&owner.inode.to_le_bytes());
    out
}

/// Overwrites the state of the journal in `file`: it holds no commit.
pub fn make_void(file: &dyn WriteDriver) -> io::Result<()> {
    file.write_at(&VOID.to_le_bytes(), STATE_AT)
}

/// The place of a record of free space behind the journal's checksum; all zeros are none.
fn encode_place(place: Option<RecordPlace>) -> [u8; PLACE_LEN] {
    let mut out = [0; PLACE_LEN];
    if let Some(place) = place {
        let numbers = [place.offset.to_le_bytes(), place.nonce.to_le_bytes()];
        let sum = lookup3(numbers.as_flattened(), CHECKSUM_SEEDS[1]).to_le_bytes();
        let bytes = numbers.as_flattened().iter().chain(&sum);
        out.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }
    out
}

/// The head of the journal `source`, whatever its state, and where it names the record of free
/// space; `None` for the earlier format.
fn place_of_record(source: &dyn FileDriver) -> io::Result<Option<(Head, u64)>> {
    let mut bytes = [0; HEAD_LEN];
    let n = read_all(source, &mut bytes, 0)?;
    let head = Head::decode_any(bytes.get(..n).unwrap_or_default()).filter(|head| head.state != ARMED_WITHOUT_NONCE);
    let at = |head: Head| Some((head, head.body()?.checked_add(CHECKSUM_LEN as u64)?));
    Ok(head.and_then(at))
}

/// The record of free space that the journal `source` of the file `owner` names.
pub fn free_record(source: &dyn FileDriver, owner: Identity) -> io::Result<Option<RecordPlace>> {
    let found = place_of_record(source)?.filter(|(head, _)| head.owner == owner);
    let Some((_, at)) = found else { return Ok(None) };
    let mut stored = [0; PLACE_LEN];
    let n = read_all(source, &mut stored, at)?;
    let mut rest = stored.get(..n).unwrap_or_default();
    let (Some(offset), Some(nonce)) = (u64_of(&mut rest), u64_of(&mut rest)) else { return Ok(None) };
    Ok(Some(RecordPlace { offset, nonce }).filter(|place| encode_place(Some(*place)) == stored))
}

/// Makes the journal in `file` name a record of free space.
pub fn set_free_record(file: &dyn WriteDriver, place: Option<RecordPlace>) -> io::Result<()> {
    match place_of_record(file)? {
        Some((_, at)) => file.write_at(&encode_place(place), at),
        None => Ok(()),
    }
}

impl Journal {
    /// Encodes the journal file.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_as(ARMED)
    }

    /// Encodes the journal file of a commit that does not mark the superblock.
    pub fn encode_ordered(&self) -> Vec<u8> {
        self.encode_as(ORDERED)
    }

    fn encode_as(&self, state: u32) -> Vec<u8> {
        let payload: usize = self.records.iter().map(|(_, b)| b.len() + RECORD_HEAD_LEN).sum();
        let mut out = Vec::with_capacity(HEAD_LEN + 2 * SECTOR as usize + payload + CHECKSUM_LEN + PLACE_LEN);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&state.to_le_bytes());
        out.extend_from_slice(&(self.records.len() as u32).to_le_bytes());
        for number in [self.root, payload as u64, self.nonce, self.owner.device, self.owner.inode] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.marked);
        out.extend_from_slice(&self.settled);
        for (offset, bytes) in &self.records {
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        let sums = CHECKSUM_SEEDS.map(|seed| lookup3(&out, seed));
        sums.iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
        out.extend_from_slice(&encode_place(self.free_record));
        out
    }

    /// Applies the changes to `file`, then writes the settled root sector.
    pub fn apply(&self, file: &dyn WriteDriver) -> io::Result<()> {
        for (offset, bytes) in &self.records {
            file.write_at(bytes, *offset)?;
        }
        settle(file, self.root, &self.marked, &self.settled)
    }
}

/// Makes the changes durable, then writes the settled root sector.
fn settle(file: &dyn WriteDriver, root: u64, marked: &[u8], settled: &[u8]) -> io::Result<()> {
    file.sync()?;
    if let Err(e) = file.write_at(settled, root) {
        // The sector may be half written; the marked one keeps the journal valid.
        let _ = file.write_at(marked, root);
        return Err(e);
    }
    file.sync()
}

/// Kind of a file with a journal's name, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalKind {
    /// A journal that holds no commit.
    Void,
    /// A journal that may hold a commit of this file; `None` in the earlier format, which has no
    /// owner.
    Armed(Option<Identity>),
    /// Not a journal.
    Other,
}

/// Reads the kind of `source`. An empty file and a file of zeros are journals whose first write did
/// not reach the disk.
pub fn kind(source: &dyn FileDriver) -> io::Result<JournalKind> {
    let mut bytes = [0; HEAD_LEN];
    let n = read_all(source, &mut bytes, 0)?;
    let head = bytes.get(..n).unwrap_or_default();
    if let Some(mut rest) = head.strip_prefix(MAGIC) {
        return Ok(match (Head::decode(head), u32_of(&mut rest)) {
            (Some(head), _) => JournalKind::Armed((head.state != ARMED_WITHOUT_NONCE).then_some(head.owner)),
            // Of a later release.
            (None, Some(state)) if state > ORDERED => JournalKind::Other,
            (None, _) => JournalKind::Void,
        });
    }
    Ok(if is_zero(source)? { JournalKind::Void } else { JournalKind::Other })
}

/// True if the file is empty or has only zeros. A file longer than a journal can be is not read.
fn is_zero(source: &dyn FileDriver) -> io::Result<bool> {
    let len = source.status()?.len;
    if len > BYTES_MAX {
        return Ok(false);
    }
    let (mut at, mut piece) = (0u64, vec![0; READ_BYTES.min(usize::try_from(len).unwrap_or(READ_BYTES))]);
    while at < len {
        let n = read_all(source, &mut piece, at)?;
        if piece.iter().take(n).any(|b| *b != 0) {
            return Ok(false);
        }
        if n == 0 {
            break;
        }
        at = at.saturating_add(n as u64);
    }
    Ok(true)
}

#[derive(Debug, Clone, Copy)]
struct Head {
    state: u32,
    records: u32,
    root: u64,
    payload: u64,
    nonce: u64,
    owner: Identity,
}

impl Head {
    /// Decodes the head; `None` if the journal holds no commit.
    fn decode(bytes: &[u8]) -> Option<Head> {
        Head::decode_any(bytes).filter(|head| head.state != VOID)
    }

    fn decode_any(bytes: &[u8]) -> Option<Head> {
        let mut rest = bytes;
        if take(&mut rest, MAGIC.len())? != MAGIC {
            return None;
        }
        let (state, records, root, payload) = (u32_of(&mut rest)?, u32_of(&mut rest)?, u64_of(&mut rest)?, u64_of(&mut rest)?);
        let mut head = Head { state, records, root, payload, nonce: 0, owner: Identity { device: 0, inode: 0 } };
        match state {
            ARMED_WITHOUT_NONCE => {}
            VOID | ARMED | ORDERED => {
                head.nonce = u64_of(&mut rest)?;
                head.owner = Identity { device: u64_of(&mut rest)?, inode: u64_of(&mut rest)? };
            }
            _ => return None,
        }
        Some(head)
    }

    fn len(&self) -> u64 {
        (if self.state == ARMED_WITHOUT_NONCE { HEAD_LEN_WITHOUT_NONCE } else { HEAD_LEN }) as u64
    }

    /// Bytes before the checksum.
    fn body(&self) -> Option<u64> {
        self.len().checked_add(2 * SECTOR)?.checked_add(self.payload)
    }
}

/// One change in a stored journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    /// Offset in the HDF5 file.
    offset: u64,
    len: u64,
    /// Offset of its bytes in the journal.
    at: u64,
}

/// A journal on disk. Records of a long journal are read when they are needed, piece by piece.
pub struct StoredJournal {
    source: Arc<dyn FileDriver>,
    head: Head,
    /// The root sector while the changes are made.
    pub marked: Vec<u8>,
    /// The root sector after them.
    pub settled: Vec<u8>,
    records: Vec<Record>,
    /// All bytes before the checksum; `None` for a long journal.
    loaded: Option<Vec<u8>>,
}

/// Why a journal is ignored.
pub type Reason = &'static str;

impl StoredJournal {
    /// Reads the head and the root sectors of `source`. `Ok(Err)`: it holds no commit.
    pub fn open(source: Arc<dyn FileDriver>) -> io::Result<Result<StoredJournal, Reason>> {
        let mut bytes = [0; HEAD_LEN];
        let n = read_all(&*source, &mut bytes, 0)?;
        let Some(head) = Head::decode(bytes.get(..n).unwrap_or_default()) else { return Ok(Err("it holds no commit")) };
        let mut sectors = vec![0; 2 * SECTOR as usize];
        let whole = read_all(&*source, &mut sectors, head.len())? == sectors.len();
        let end = head.body().and_then(|body| body.checked_add(CHECKSUM_LEN as u64));
        let len = source.status()?.len;
        if !whole || end.is_none_or(|end| end > len || end > BYTES_MAX) {
            return Ok(Err("it is not whole"));
        }
        let settled = sectors.split_off(SECTOR as usize);
        Ok(Ok(StoredJournal { source, head, marked: sectors, settled, records: Vec::new(), loaded: None }))
    }

    /// Offset of the root sector.
    pub fn root(&self) -> u64 {
        self.head.root
    }

    /// The nonce; `None` in the earlier format.
    pub fn nonce(&self) -> Option<u64> {
        (self.head.state != ARMED_WITHOUT_NONCE).then_some(self.head.nonce)
    }

    /// The file to change, if the commit does not mark its superblock.
    pub fn ordered_owner(&self) -> Option<Identity> {
        (self.head.state == ORDERED).then_some(self.head.owner)
    }

    /// Reads the whole journal and checks it: the checksum must match, and records must be
    /// ascending whole sectors within the first `end` bytes of the file, except the root sector.
    pub fn verify(&mut self, end: u64) -> io::Result<Result<(), Reason>> {
        let Some(body) = self.head.body() else { return Ok(Err("it is not whole")) };
        let mut sums = CHECKSUM_SEEDS.map(|seed| Lookup3::new(body, seed));
        let mut index = RecordIndex::new(&self.head, end);
        let (mut at, mut piece) = (0u64, vec![0; READ_BYTES]);
        let mut loaded = (body <= LOADED_BYTES_MAX).then(Vec::new);
        while at < body {
            let n = usize::try_from(body.saturating_sub(at)).unwrap_or(READ_BYTES).min(READ_BYTES);
            let part = piece.get_mut(..n).unwrap_or_default();
            if read_all(&*self.source, part, at)? < n {
                return Ok(Err("it is not whole"));
            }
            sums.iter_mut().for_each(|sum| sum.add(part));
            if let Err(reason) = index.add(at, part) {
                return Ok(Err(reason));
            }
            if let Some(loaded) = &mut loaded {
                loaded.extend_from_slice(part);
            }
            at = at.saturating_add(n as u64);
        }
        let mut stored = [0; CHECKSUM_LEN];
        let n = read_all(&*self.source, &mut stored, body)?;
        let sums: Vec<u8> = sums.into_iter().flat_map(|sum| sum.finish().to_le_bytes()).collect();
        if n < CHECKSUM_LEN || sums != stored {
            return Ok(Err("its checksum is wrong"));
        }
        self.loaded = loaded;
        Ok(index.finish(self.head.records).map(|records| self.records = records))
    }

    /// Applies the changes to `file`; the journal must have passed [`StoredJournal::verify`].
    pub fn apply(&self, file: &dyn WriteDriver) -> io::Result<()> {
        let mut piece = vec![0; READ_BYTES];
        for record in &self.records {
            let mut done = 0;
            while done < record.len {
                let n = usize::try_from(record.len.saturating_sub(done)).unwrap_or(READ_BYTES).min(READ_BYTES);
                let part = piece.get_mut(..n).unwrap_or_default();
                self.read_journal(part, record.at.saturating_add(done))?;
                file.write_at(part, record.offset.saturating_add(done))?;
                done = done.saturating_add(n as u64);
            }
        }
        settle(file, self.head.root, &self.marked, &self.settled)
    }

    fn read_journal(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        if let Some(loaded) = &self.loaded {
            let start = usize::try_from(at).unwrap_or(usize::MAX);
            let source = start.checked_add(buf.len()).and_then(|end| loaded.get(start..end));
            buf.copy_from_slice(source.ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))?);
            return Ok(());
        }
        if read_all(&*self.source, buf, at)? < buf.len() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(())
    }

    /// Overlays the changes on `buf`, read from the file at `offset`; returns the end of the last
    /// changed byte in it.
    fn patch(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let end = offset.saturating_add(buf.len() as u64);
        let mut reach = 0;
        let first = self.records.partition_point(|r| r.offset.saturating_add(r.len) <= offset);
        for record in self.records.iter().skip(first).take_while(|r| r.offset < end) {
            let (from, to) = (record.offset.max(offset), record.offset.saturating_add(record.len).min(end));
            let Some(target) = range_mut(buf, from.saturating_sub(offset), to.saturating_sub(offset)) else { continue };
            self.read_journal(target, record.at.saturating_add(from.saturating_sub(record.offset)))?;
            reach = usize::try_from(to.saturating_sub(offset)).unwrap_or(0);
        }
        if reach > 0 {
            self.check_nonce()?;
        }
        let (from, to) = (self.head.root.max(offset), self.head.root.saturating_add(SECTOR).min(end));
        if from < to
            && let Some(target) = range_mut(buf, from.saturating_sub(offset), to.saturating_sub(offset))
        {
            let start = usize::try_from(from.saturating_sub(self.head.root)).unwrap_or(0);
            target.iter_mut().zip(self.settled.iter().skip(start)).for_each(|(to, from)| *to = *from);
            reach = reach.max(usize::try_from(to.saturating_sub(offset)).unwrap_or(0));
        }
        Ok(reach)
    }

    /// Errors: a live writer reused the journal for another commit after it was opened.
    fn check_nonce(&self) -> io::Result<()> {
        if self.loaded.is_some() {
            return Ok(());
        }
        let mut nonce = [0; 8];
        self.read_journal(&mut nonce, NONCE_AT)?;
        if u64::from_le_bytes(nonce) == self.head.nonce { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESTALE)) }
    }
}

fn range_mut(buf: &mut [u8], from: u64, to: u64) -> Option<&mut [u8]> {
    buf.get_mut(usize::try_from(from).ok()?..usize::try_from(to).ok()?)
}

/// Collects records while the journal is read in pieces.
struct RecordIndex {
    /// Offset of the next record's head in the journal.
    next: u64,
    /// Bytes of that head that the previous piece held.
    partial: Vec<u8>,
    records: Vec<Record>,
    body: u64,
    root: u64,
    end: u64,
}

impl RecordIndex {
    fn new(head: &Head, end: u64) -> Self {
        let next = head.len().saturating_add(2 * SECTOR);
        let body = head.body().unwrap_or(next);
        RecordIndex { next, partial: Vec::new(), records: Vec::new(), body, root: head.root, end }
    }

    /// Adds the records whose heads are in `piece`, at offset `at` of the journal.
    fn add(&mut self, at: u64, piece: &[u8]) -> Result<(), Reason> {
        let stop = at.saturating_add(piece.len() as u64);
        loop {
            let from = self.next.saturating_add(self.partial.len() as u64);
            if from < at || from >= stop {
                return Ok(());
            }
            let start = usize::try_from(from.saturating_sub(at)).unwrap_or(usize::MAX);
            let missing = RECORD_HEAD_LEN.saturating_sub(self.partial.len());
            let there = piece.get(start..).unwrap_or_default();
            self.partial.extend_from_slice(there.get(..missing.min(there.len())).unwrap_or_default());
            if self.partial.len() < RECORD_HEAD_LEN {
                return Ok(());
            }
            self.push()?;
        }
    }

    fn push(&mut self) -> Result<(), Reason> {
        let mut rest = self.partial.as_slice();
        let (Some(offset), Some(len)) = (u64_of(&mut rest), u32_of(&mut rest)) else { return Err("a record is cut") };
        self.partial.clear();
        let at = self.next.saturating_add(RECORD_HEAD_LEN as u64);
        let record = Record { offset, len: u64::from(len), at };
        self.next = at.saturating_add(record.len);
        let end = offset.checked_add(record.len).filter(|end| *end <= self.end).ok_or("a record lies past the end of the file")?;
        if record.len == 0 || !offset.is_multiple_of(SECTOR) || !record.len.is_multiple_of(SECTOR) {
            return Err("a record is not a number of whole sectors");
        }
        let root = self.root..self.root.saturating_add(SECTOR);
        if offset < root.end && root.start < end {
            return Err("a record lies over the root sector");
        }
        if self.records.last().is_some_and(|last| last.offset.saturating_add(last.len) > offset) {
            return Err("its records are not in order");
        }
        self.records.push(record);
        Ok(())
    }

    fn finish(self, count: u32) -> Result<Vec<Record>, Reason> {
        if self.next != self.body || !self.partial.is_empty() || self.records.len() as u64 != u64::from(count) {
            return Err("its records do not fill it");
        }
        Ok(self.records)
    }
}

/// A file with its interrupted commit applied in memory, without any write.
pub struct CommittedFile {
    file: Arc<dyn FileDriver>,
    journal: StoredJournal,
}

impl CommittedFile {
    /// Overlays `journal` on `file`; the journal must have passed [`StoredJournal::verify`].
    pub fn new(file: Arc<dyn FileDriver>, journal: StoredJournal) -> Self {
        CommittedFile { file, journal }
    }
}

impl FileDriver for CommittedFile {
    fn status(&self) -> io::Result<Status> {
        self.file.status()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let n = read_all(&*self.file, buf, offset)?;
        Ok(n.max(self.journal.patch(offset, buf)?))
    }

    fn announce_follower(&self) {
        self.file.announce_follower();
    }

    fn is_changed_by_mount(&self) -> bool {
        self.file.is_changed_by_mount()
    }
}

#[cfg(test)]
mod tests;
