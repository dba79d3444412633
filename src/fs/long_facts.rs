//! Facts longer than an extended attribute: `user.h5dir.FACT.1`, `user.h5dir.FACT.2`, ...
//!
//! Each is a piece of the compressed text. Programs that copy extended attributes carry the pieces
//! in any order; the fact is set when the last one arrives.
//!
//! ```text
//! piece: number u32 | count u32 | checksum u32, length u32 of all pieces together | bytes
//! ```

use super::types::Version;
use crate::base::checksum::lookup3;
use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::present;
use flate2::Compression;
use flate2::read::{ZlibDecoder, ZlibEncoder};
use foldhash::HashMap;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

/// Longest text that is shown in pieces, bytes.
pub const TEXT_MAX: u64 = 16 << 20;
/// Bytes of one piece: what an extended attribute of btrfs can hold.
const PIECE_BYTES: usize = 15 << 10;
/// Bytes of a piece before its part of the text.
const HEAD_BYTES: usize = 16;
/// Memory of all pieces that wait for others, bytes.
const WAITING_MAX: usize = 64 << 20;
/// Memory of a piece that waits beside its bytes.
const PIECE_OVERHEAD_BYTES: usize = 128;
/// Facts that may be longer than an extended attribute.
const FACTS: [&str; 5] = ["attributes", "dataset", "datatype", "links", "types"];

/// Fact and number, from 1, of the piece `name`, which is the name of a fact.
pub fn piece_of(name: &str) -> Option<(&str, u32)> {
    let (fact, text) = name.rsplit_once('.')?;
    let number: u32 = text.parse().ok().filter(|n: &u32| *n > 0 && n.to_string() == text)?;
    let known = FACTS.contains(&fact) || present::is_references_fact(fact);
    known.then_some((fact, number))
}

/// A text in pieces.
pub struct Packed {
    bytes: Vec<u8>,
    checksum: u32,
}

impl Packed {
    /// Compresses `text`.
    pub fn new(text: &[u8]) -> Self {
        let mut bytes = Vec::new();
        // Reading from memory and writing to it does not fail.
        let _ = ZlibEncoder::new(text, Compression::default()).read_to_end(&mut bytes);
        Packed { checksum: lookup3(&bytes, 0), bytes }
    }

    /// Number of pieces.
    pub fn count(&self) -> u32 {
        u32::try_from(self.bytes.len().div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX)
    }

    /// The piece `number`, from 1.
    fn piece(&self, number: u32) -> Option<Vec<u8>> {
        let part = self.bytes.chunks(PIECE_BYTES).nth(usize::try_from(number.checked_sub(1)?).ok()?)?;
        let len = u32::try_from(self.bytes.len()).ok()?;
        let head = [number, self.count(), self.checksum, len].map(u32::to_le_bytes).concat();
        Some([&head, part].concat())
    }
}

/// Pieces of one fact that were set so far.
struct Waiting {
    count: u32,
    checksum: u32,
    len: u32,
    pieces: BTreeMap<u32, Vec<u8>>,
}

impl Waiting {
    /// Memory of the pieces.
    fn bytes(&self) -> usize {
        self.pieces.values().map(|piece| memory_of(piece)).fold(0, usize::saturating_add)
    }

    /// The text, of which all pieces are there.
    fn text(&self) -> Result<Vec<u8>> {
        let packed: Vec<u8> = self.pieces.values().flatten().copied().collect();
        let mut text = Vec::new();
        let read = ZlibDecoder::new(packed.as_slice()).take(TEXT_MAX.saturating_add(1)).read_to_end(&mut text);
        if packed.len() as u64 != u64::from(self.len) || lookup3(&packed, 0) != self.checksum || read.is_err() {
            return Err(invalid("the pieces of the fact are damaged"));
        }
        if text.len() as u64 > TEXT_MAX { Err(invalid("the fact is longer than 16 MiB")) } else { Ok(text) }
    }
}

/// Memory of a piece that waits, with its entry.
fn memory_of(piece: &[u8]) -> usize {
    piece.len().saturating_add(PIECE_OVERHEAD_BYTES)
}

fn invalid(reason: &'static str) -> Error {
    Error::refused(libc::EINVAL, reason)
}

/// Object and name of a fact.
type Key = (ObjectId, String);

/// Pieces of facts that wait for others.
#[derive(Default)]
struct AllWaiting {
    facts: HashMap<Key, Waiting>,
    /// Memory of all pieces.
    bytes: usize,
}

impl AllWaiting {
    fn remove(&mut self, key: &Key) -> Option<Waiting> {
        let waiting = self.facts.remove(key)?;
        self.bytes = self.bytes.saturating_sub(waiting.bytes());
        Some(waiting)
    }
}

/// Pieces that were listed last, and those that were set and wait for others.
#[derive(Default)]
pub struct LongFacts {
    /// The fact that was listed last, with the state of the container in which it was.
    listed: Mutex<Option<(Key, Version, Arc<Packed>)>>,
    waiting: Mutex<AllWaiting>,
}

impl LongFacts {
    /// Keeps the pieces of a fact that were listed in the state `version` of the container: they
    /// are read next.
    pub fn keep(&self, id: ObjectId, fact: &str, version: Version, packed: Packed) -> Arc<Packed> {
        let packed = Arc::new(packed);
        *self.listed.lock() = Some(((id, fact.to_owned()), version, packed.clone()));
        packed
    }

    /// The piece `number` of a fact; `None`: it has none of that number. `text` makes the fact,
    /// unless it was listed last.
    pub fn piece(
        &self,
        (id, fact, number): (ObjectId, &str, u32),
        version: Version,
        text: impl FnOnce() -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<Vec<u8>>> {
        let is_it = |(key, at, _): &&(Key, Version, Arc<Packed>)| (key.0, key.1.as_str(), *at) == (id, fact, version);
        let listed = self.listed.lock().as_ref().filter(is_it).map(|listed| listed.2.clone());
        let packed = match listed {
            Some(packed) => packed,
            None => match text()? {
                Some(text) => self.keep(id, fact, version, Packed::new(&text)),
                None => return Ok(None),
            },
        };
        Ok(packed.piece(number))
    }

    /// Adds the piece `value` of a fact; returns the text once all pieces are there. A piece of
    /// another text of the same fact drops the pieces that wait. Errors: the value is not this
    /// piece, or too many pieces wait.
    pub fn add(&self, (id, fact, number): (ObjectId, &str, u32), value: &[u8]) -> Result<Option<Vec<u8>>> {
        let (head, part) = value.split_at_checked(HEAD_BYTES).ok_or_else(|| invalid("the value is not a piece of a fact"))?;
        let mut fields = head.chunks_exact(4).map(|field| field.try_into().map_or(0, u32::from_le_bytes));
        let mut next = || fields.next().unwrap_or(0);
        let (own, count, checksum, len) = (next(), next(), next(), next());
        let pieces = (len as usize).div_ceil(PIECE_BYTES);
        let place = PIECE_BYTES.saturating_mul(number.saturating_sub(1) as usize);
        let own_len = (len as usize).saturating_sub(place).min(PIECE_BYTES);
        if own != number || pieces != count as usize || part.is_empty() || part.len() != own_len {
            return Err(invalid("the value is not this piece of a fact"));
        }
        let key = (id, fact.to_owned());
        let mut all = self.waiting.lock();
        if all.facts.get(&key).is_some_and(|w| (w.count, w.checksum, w.len) != (count, checksum, len)) {
            all.remove(&key);
        }
        let piece = part.to_vec();
        let present = all.bytes.saturating_add(memory_of(&piece));
        if present > WAITING_MAX {
            return Err(Error::refused(libc::E2BIG, "too many pieces of facts wait for others"));
        }
        let waiting = all.facts.entry(key.clone()).or_insert_with(|| Waiting { count, checksum, len, pieces: BTreeMap::new() });
        let replaced = waiting.pieces.insert(number, piece).map_or(0, |old| memory_of(&old));
        let complete = waiting.pieces.len() >= count as usize;
        all.bytes = present.saturating_sub(replaced);
        if !complete {
            return Ok(None);
        }
        let whole = all.remove(&key);
        drop(all);
        whole.map(|whole| whole.text()).transpose()
    }

    /// The object `id` is gone.
    pub fn forget(&self, id: ObjectId) {
        let mut all = self.waiting.lock();
        let gone: Vec<Key> = all.facts.keys().filter(|(of, _)| *of == id).cloned().collect();
        gone.iter().for_each(|key| drop(all.remove(key)));
    }

    /// Ends the mount: logs facts of which pieces are missing.
    pub fn end(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for ((id, fact), waiting) in waiting.facts {
            let (have, count) = (waiting.pieces.len(), waiting.count);
            tracing::warn!("object at {id}: user.h5dir.{fact} was not set: {have} of its {count} pieces arrived");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::memory::MemoryConnector;

    /// Some object.
    fn object() -> ObjectId {
        MemoryConnector::id(48)
    }

    /// A text that does not compress, of `len` bytes.
    fn text(len: u32, seed: u32) -> Vec<u8> {
        (0..len).flat_map(|n| lookup3(&n.to_le_bytes(), seed).to_le_bytes()).take(len as usize).collect()
    }

    #[test]
    fn names_of_pieces_are_exact() {
        assert_eq!(piece_of("attributes.12"), Some(("attributes", 12)));
        assert_eq!(piece_of("references3.1"), Some(("references3", 1)));
        for name in [
            "attributes",
            "attributes.",
            "attributes.0",
            "attributes.01",
            "attributes.001",
            "attributes.+1",
            "referencesfoo.1",
            "attributes.x",
            "kind.1",
            ".1",
        ] {
            assert_eq!(piece_of(name), None, "{name}");
        }
    }

    #[test]
    fn pieces_in_any_order_make_the_text() {
        let facts = LongFacts::default();
        for len in [1, 15_000, 100_000] {
            let text = text(len, 1);
            let packed = Packed::new(&text);
            for number in (2..=packed.count()).rev() {
                let piece = packed.piece(number).unwrap();
                assert_eq!(facts.add((object(), "attributes", number), &piece).unwrap(), None);
            }
            assert_eq!(facts.add((object(), "attributes", 1), &packed.piece(1).unwrap()).unwrap(), Some(text));
            assert!(packed.piece(0).is_none() && packed.piece(packed.count() + 1).is_none());
        }
        let waiting = facts.waiting.lock();
        assert!(waiting.facts.is_empty() && waiting.bytes == 0);
    }

    #[test]
    fn pieces_of_two_texts_do_not_mix() {
        let facts = LongFacts::default();
        let (one, two) = (Packed::new(&text(40_000, 1)), Packed::new(&text(40_000, 2)));
        assert_eq!((one.count(), two.count()), (3, 3));
        let add = |packed: &Packed, number| facts.add((object(), "attributes", number), &packed.piece(number).unwrap()).unwrap();
        assert_eq!((add(&one, 1), add(&one, 2), add(&two, 3), add(&two, 2)), (None, None, None, None));
        assert_eq!(add(&two, 1), Some(text(40_000, 2)));
        assert_eq!(add(&one, 3), None);
        facts.forget(object());
        let waiting = facts.waiting.lock();
        assert!(waiting.facts.is_empty() && waiting.bytes == 0);
    }

    #[test]
    fn damaged_pieces_are_refused() {
        let facts = LongFacts::default();
        let piece = Packed::new(&text(100, 1)).piece(1).unwrap();
        assert!(facts.add((object(), "attributes", 2), &piece).is_err());
        assert!(facts.add((object(), "attributes", 1), &piece[..16]).is_err());
        assert!(facts.add((object(), "attributes", 1), &piece[..40]).is_err());
        assert!(facts.add((object(), "attributes", 1), b"[]").is_err());
        assert!(facts.add((object(), "attributes", 1), &piece).unwrap().is_some());
    }

    #[test]
    fn contradicting_heads_are_refused() {
        let facts = LongFacts::default();
        let packed = Packed::new(&text(40_000, 1));
        let piece = packed.piece(3).unwrap();
        let with = |field: usize, value: u32| {
            let mut changed = piece.clone();
            changed.splice(field * 4..field * 4 + 4, value.to_le_bytes());
            facts.add((object(), "attributes", 3), &changed)
        };
        for (field, value) in [(1, u32::MAX), (1, 2), (1, 4), (3, u32::MAX), (3, 30 << 10), (3, 45 << 10)] {
            assert!(with(field, value).is_err(), "{field} {value}");
        }
        assert!(with(0, 3).unwrap().is_none() && with(0, 3).unwrap().is_none());
        assert_eq!(facts.waiting.lock().bytes, piece.len() - HEAD_BYTES + PIECE_OVERHEAD_BYTES);
    }

    #[test]
    fn listed_pieces_are_made_once() {
        let (facts, text) = (LongFacts::default(), text(40_000, 1));
        facts.keep(object(), "attributes", (0, 0), Packed::new(&text));
        let again = || -> Result<Option<Vec<u8>>> { panic!("they were kept") };
        assert!(facts.piece((object(), "attributes", 1), (0, 0), again).unwrap().is_some());
        let other = |version| facts.piece((object(), "attributes", 1), version, || Ok(None)).unwrap();
        assert_eq!(other((1, 0)), None);
        assert_eq!(other((0, 1)), None);
    }
}
