//! Identity of one writer, and the packs that it writes.

use super::cell::Extent;
use super::objects::Objects;
use crate::base::checksum::{Crc32c, crc32c};
use crate::base::io_pieces::each_piece;
use crate::base::{Address, Error, Result, buffers};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bits of an object id that a session counts.
const COUNTER_BITS: u32 = 20;
/// Greatest number of a session: ids have 48 bits, as inode numbers need.
const SESSION_MAX: u64 = 1 << (48 - COUNTER_BITS);
/// Bytes after which a pack is complete.
const PACK_BYTES: usize = 16 << 20;

/// A writer. Its number is the version of the empty record that it committed first, which no other
/// session has.
#[derive(Debug)]
pub struct Session {
    number: u64,
    next_pack: AtomicU32,
    next_id: AtomicU32,
    /// Packs before this one have no bytes of changes that are not committed.
    settled: AtomicU32,
}

impl Session {
    /// The session that committed record `number`.
    pub(super) fn new(number: u64) -> Result<Session> {
        if number >= SESSION_MAX {
            return Err(Error::refused(libc::EOVERFLOW, "the container has 2^28 versions; copy it to a new one"));
        }
        Ok(Session { number, next_pack: AtomicU32::new(0), next_id: AtomicU32::new(1), settled: AtomicU32::new(0) })
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Notes that no change that is not committed has bytes in packs. Nothing may be storing any.
    pub fn settle(&self) {
        self.settled.store(self.next_pack.load(Ordering::Acquire), Ordering::Release);
    }

    /// The first pack that may have bytes of changes that are not committed.
    pub fn settled(&self) -> u32 {
        self.settled.load(Ordering::Acquire)
    }

    /// Ids that are left.
    pub fn ids_left(&self) -> u64 {
        u64::from((1u32 << COUNTER_BITS).saturating_sub(self.next_id.load(Ordering::Relaxed)))
    }

    /// An id that no object of the container has or had. `None`: the session has used up its ids,
    /// and the writer begins another one.
    pub fn new_id(&self) -> Option<u64> {
        let limit = 1u32 << COUNTER_BITS;
        let counter = self.next_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then(|| n.saturating_add(1)));
        counter.ok().map(|counter| self.number << COUNTER_BITS | u64::from(counter))
    }
}

/// Collects bytes in packs. Extents that it returns are readable after [`PackWriter::finish`].
pub struct PackWriter<'a> {
    objects: &'a Objects,
    session: &'a Session,
    buffer: Vec<u8>,
    pack: Option<u32>,
    /// Packs that were stored, or may have been.
    stored: Vec<u32>,
}

impl<'a> PackWriter<'a> {
    /// A writer of new packs.
    pub fn new(objects: &'a Objects, session: &'a Session) -> Self {
        PackWriter { objects, session, buffer: Vec::new(), pack: None, stored: Vec::new() }
    }

    /// Adds bytes, fewer than 2^32. Many of them are a pack of their own.
    pub fn add(&mut self, bytes: &[u8]) -> Result<Extent> {
        if bytes.len() > PACK_BYTES {
            // Not copied to the buffer.
            let store = |objects: &Objects, session, pack| objects.put_pack(session, pack, bytes);
            return self.add_alone(bytes.len() as u64, crc32c(bytes), &store);
        }
        if self.buffer.len().saturating_add(bytes.len()) > PACK_BYTES {
            self.finish()?;
        }
        let pack = *self.pack.get_or_insert_with(|| self.session.next_pack.fetch_add(1, Ordering::AcqRel));
        let len = u32::try_from(bytes.len()).map_err(|_| Error::limit("pack", Address(pack.into()), "an extent of 4 GiB"))?;
        let offset = self.buffer.len() as u64;
        if self.buffer.is_empty() {
            // Not copied when it grows; memory that is not used is not occupied.
            self.buffer = buffers::empty(PACK_BYTES, PACK_BYTES.saturating_mul(2));
            self.buffer.reserve(PACK_BYTES);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(Extent { session: self.session.number, pack, offset, len, checksum: crc32c(bytes) })
    }

    /// Adds `len` bytes, fewer than 2^32, which `read` fills a buffer with from an offset: the same
    /// ones each time. Many of them are a pack of their own.
    pub fn add_from(&mut self, len: u64, read: &(dyn Fn(u64, &mut [u8]) -> Result<()> + Send + Sync)) -> Result<Extent> {
        if len <= PACK_BYTES as u64 {
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(PACK_BYTES)];
            read(0, &mut bytes)?;
            return self.add(&bytes);
        }
        let mut sum = Crc32c::default();
        each_piece(len, &read, &mut |piece| {
            sum.add(piece);
            Ok(())
        })?;
        self.add_alone(len, sum.finish(), &|objects, session, pack| objects.put_pack_from(session, pack, len, read))
    }

    /// Adds `len` bytes as a pack of their own, which `store` stores.
    fn add_alone(&mut self, len: u64, checksum: u32, store: &dyn Fn(&Objects, u64, u32) -> Result<()>) -> Result<Extent> {
        self.finish()?;
        let (session, pack) = (self.session.number, self.session.next_pack.fetch_add(1, Ordering::AcqRel));
        let len = u32::try_from(len).map_err(|_| Error::limit("pack", Address(pack.into()), "an extent of 4 GiB"))?;
        self.stored.push(pack);
        store(self.objects, session, pack)?;
        Ok(Extent { session, pack, offset: 0, len, checksum })
    }

    /// Stores what was added.
    pub fn finish(&mut self) -> Result<()> {
        let Some(pack) = self.pack.take() else { return Ok(()) };
        self.stored.push(pack);
        let stored = self.objects.put_pack(self.session.number, pack, &self.buffer);
        buffers::give(std::mem::take(&mut self.buffer));
        stored
    }

    /// [`PackWriter::finish`]; the packs of all writers are durable then, so that a commit does not
    /// wait for them.
    pub fn settle(&mut self) -> Result<()> {
        self.finish()?;
        self.objects.settle()
    }

    /// Deletes the packs after an error, if the store is full: nothing refers to their extents, and
    /// the next attempt needs their room.
    pub fn give_up(self, why: &Error) {
        if !matches!(why, Error::Io { errno: libc::ENOSPC | libc::EDQUOT, .. }) {
            return;
        }
        for pack in self.stored {
            if let Err(e) = self.objects.delete_pack(self.session.number, pack) {
                tracing::debug!("pack {pack} of session {} stays without use: {e}", self.session.number);
            }
        }
    }
}
