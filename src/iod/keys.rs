//! Keys of the map, and names of stored objects.
//!
//! ```text
//! key of the map   object id u64, highest byte first | kind u8 | rest
//! kind 'A'         attribute: its name
//!      'C'         chunk: its scaled offsets, u64 each, highest byte first
//!      'H'         metadata: type of the header message, u16, highest byte first
//!      'L'         link of a group: its name
//!      'M'         pair of a map: its key, as the connector encodes it
//!      'O'         owner of a link that is not a hard link: its name
//!      'V'         variable-length cells: number of the block, u64, highest byte first
//! ```

use std::ops::Bound;

/// A key of the map. Keys are ordered by their bytes.
pub type Key = Vec<u8>;

/// Kind of attributes.
pub const ATTRIBUTE: u8 = b'A';
/// Kind of chunks.
pub const CHUNK: u8 = b'C';
/// Kind of metadata.
pub const HEADER: u8 = b'H';
/// Kind of links.
pub const LINK: u8 = b'L';
/// Kind of pairs of maps.
pub const MAP: u8 = b'M';
/// Kind of owners of links.
pub const LINK_OWNER: u8 = b'O';
/// Kind of blocks of variable-length cells.
pub const CELLS: u8 = b'V';

/// Metadata beside the header messages of the file format: the object's type, u8.
pub const OBJECT_TYPE: u16 = 0xff00;
/// Owner, group and mode of the object.
pub const OWNERSHIP: u16 = 0xff01;
/// Access time: a modification time message.
pub const ACCESS_TIME: u16 = 0xff02;
/// Type of the keys of a map: a datatype message.
pub const MAP_KEY_TYPE: u16 = 0xff03;
/// Type of the values of a map: a datatype message.
pub const MAP_VALUE_TYPE: u16 = 0xff04;

/// Creation properties of the object that no message of the file format has.
pub const PROPERTIES: u16 = 0xff05;

/// Longest key, bytes.
pub const KEY_MAX: usize = 32 << 10;

/// Key of `kind` of object `id`.
pub fn key(id: u64, kind: u8, rest: &[u8]) -> Key {
    let mut key = Vec::with_capacity(rest.len().saturating_add(9));
    key.extend(id.to_be_bytes());
    key.push(kind);
    key.extend(rest);
    key
}

/// Key of the metadata `message` of object `id`.
pub fn header(id: u64, message: u16) -> Key {
    key(id, HEADER, &message.to_be_bytes())
}

/// Key of the chunk of object `id` with these scaled offsets.
pub fn chunk(id: u64, scaled: &[u64]) -> Key {
    let rest: Vec<u8> = scaled.iter().flat_map(|n| n.to_be_bytes()).collect();
    key(id, CHUNK, &rest)
}

/// Object, kind and rest of a key; `None`: it is none.
pub fn parts(key: &[u8]) -> Option<(u64, u8, &[u8])> {
    let (id, rest) = key.split_first_chunk::<8>()?;
    let (kind, rest) = rest.split_first()?;
    Some((u64::from_be_bytes(*id), *kind, rest))
}

/// Type of the header message of a metadata key.
pub fn message(key: &[u8]) -> Option<u16> {
    let (_, kind, rest) = parts(key)?;
    <[u8; 2]>::try_from(rest).ok().filter(|_| kind == HEADER).map(u16::from_be_bytes)
}

/// Scaled offsets of a chunk key.
pub fn scaled(key: &[u8]) -> Option<Vec<u64>> {
    let (_, kind, rest) = parts(key)?;
    let (words, odd) = rest.as_chunks::<8>();
    (kind == CHUNK && odd.is_empty()).then(|| words.iter().map(|w| u64::from_be_bytes(*w)).collect())
}

/// The keys that begin with `prefix`.
pub fn beginning_with(prefix: &[u8]) -> (Bound<Key>, Bound<Key>) {
    let mut end = prefix.to_vec();
    while end.last() == Some(&0xff) {
        end.pop();
    }
    let upper = match end.last_mut() {
        Some(last) => {
            *last = last.saturating_add(1);
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix.to_vec()), upper)
}

/// All keys of object `id`.
pub fn of_object(id: u64) -> (Bound<Key>, Bound<Key>) {
    beginning_with(&id.to_be_bytes())
}

/// All keys of `kind` of object `id`.
pub fn of_kind(id: u64, kind: u8) -> (Bound<Key>, Bound<Key>) {
    beginning_with(&key(id, kind, &[]))
}

/// Name of the object that describes the container.
pub const DESCRIPTOR: &str = "iod";
/// Begin of the names of commit records.
pub const RECORDS: &str = "v/";
/// Begin of the names of checkpoints.
pub const CHECKPOINTS: &str = "c/";

/// Begin of the names of the objects of transactions.
pub const TRANSACTIONS: &str = "t/";

/// Name of an object of a transaction.
pub fn transaction_name(name: &str, object: &str) -> String {
    format!("{TRANSACTIONS}{name}/{object}")
}

/// Begin of the names of pins.
pub const PINS: &str = "p/";
/// Begin of the names of states of garbage collection.
pub const STATES: &str = "g/";
/// Begin of the names of packs.
pub const PACKS: &str = "d/";

/// Name of a state of garbage collection.
pub fn state_name(number: u64) -> String {
    format!("{STATES}{number:016x}")
}

/// Name of a pin.
pub fn pin_name(uuid: &[u8; 16]) -> String {
    format!("{PINS}{:032x}", u128::from_be_bytes(*uuid))
}

/// Session and number in the name of a pack.
pub fn pack_of(name: &str) -> Option<(u64, u32)> {
    let (session, pack) = name.strip_prefix(PACKS)?.split_once('/')?;
    let hex = |digits: &str, len: usize| u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == len);
    Some((hex(session, 16)?, u32::try_from(hex(pack, 8)?).ok()?))
}

/// Begin of the names of originals.
pub const ORIGINALS: &str = "o/";

/// Name of an original.
pub fn original_name(number: u64) -> String {
    format!("{ORIGINALS}{number:016x}")
}

/// Begin of the names of tags.
pub const TAGS: &str = "tag/";

/// Name of the commit record of a version.
pub fn record_name(version: u64) -> String {
    format!("{RECORDS}{version:016x}")
}

/// Name of the checkpoint of a version.
pub fn checkpoint_name(version: u64) -> String {
    format!("{CHECKPOINTS}{version:016x}")
}

/// Name of a pack.
pub fn pack_name(session: u64, pack: u32) -> String {
    format!("d/{session:016x}/{pack:08x}")
}

/// Name of the stored tag `name`.
pub fn tag_name(name: &str) -> String {
    format!("{TAGS}{name}")
}

/// The version in the name of a record or a checkpoint.
pub fn version_of(name: &str) -> Option<u64> {
    let digits = name.split_once('/')?.1;
    u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_parts_and_ranges() {
        assert_eq!(parts(&key(5, LINK, b"a")), Some((5, LINK, b"a".as_slice())));
        assert_eq!(message(&header(1, OBJECT_TYPE)), Some(OBJECT_TYPE));
        assert_eq!(scaled(&chunk(1, &[2, 3])), Some(vec![2, 3]));
        assert_eq!((parts(b"short"), message(b"short"), scaled(&key(1, CHUNK, b"odd"))), (None, None, None));
        assert_eq!(beginning_with(&[1, 0xff]), (Bound::Included(vec![1, 0xff]), Bound::Excluded(vec![2])));
        assert_eq!(beginning_with(&[0xff]).1, Bound::Unbounded);
        assert_eq!((version_of(&record_name(77)), version_of("v/77"), version_of("x")), (Some(77), None, None));
        assert_eq!((pack_of(&pack_name(7, 9)), pack_of("d/7/9"), pack_of("v/7")), (Some((7, 9)), None, None));
        assert!(record_name(9) < record_name(10) && checkpoint_name(255) < checkpoint_name(256));
    }
}
