//! Maps: pairs as values of kind `M`, and the types of keys and values as metadata.
//!
//! Keys are stored so that their order is that of integers: highest byte first, with the sign bit
//! inverted. Other keys are stored as they are.

use super::access::IodConnector;
use super::create::SUPERBLOCK;
use super::ids::no_such;
use super::state::{MAP, State};
use super::types::decode_type;
use crate::base::datatype::{ByteOrder, Class};
use crate::base::escape::escaped_bytes;
use crate::base::{Address, Error, Result};
use crate::connector::errors::{invalid, refused};
use crate::connector::maps::{EditMaps, KeyVisitor, MapTypes, Maps, no_key, not_a_directory, not_empty};
use crate::connector::{Connector, Datatype, ObjectId, ObjectKind};
use crate::dataset::create::datatype_message;
use crate::iod::{Cell, Key, keys};
use std::fmt::Write as _;
use std::ops::ControlFlow;

/// Most bytes of a key or value that texts show.
const SHOWN_BYTES_MAX: usize = 64;

/// Bytes of a value that is stored before the commit: values are not counted as dirty bytes.
const STORED_AT_ONCE: usize = 1 << 20;

/// How the bytes of an integer are ordered.
struct IntegerOrder {
    lowest_first: bool,
    signed: bool,
}

/// The order of an integer's bytes; `None`: keys of type `t` are stored as they are.
fn integer_order(t: &Datatype) -> Option<IntegerOrder> {
    let Class::FixedPoint(f) = &t.class else { return None };
    let whole = f.offset == 0 && u32::from(f.precision) == t.size.saturating_mul(8);
    let lowest_first = f.order == ByteOrder::LittleEndian;
    (whole && f.order != ByteOrder::Vax).then_some(IntegerOrder { lowest_first, signed: f.signed })
}

fn invert_sign(bytes: &mut [u8], order: &IntegerOrder) {
    if let Some(first) = bytes.first_mut().filter(|_| order.signed) {
        *first ^= 0x80;
    }
}

/// The bytes to store for a key.
fn encode_key(t: &Datatype, key: &[u8]) -> Vec<u8> {
    let mut bytes = key.to_vec();
    if let Some(order) = integer_order(t) {
        if order.lowest_first {
            bytes.reverse();
        }
        invert_sign(&mut bytes, &order);
    }
    bytes
}

/// The key of which `stored` are the bytes.
fn decode_key(t: &Datatype, stored: &[u8]) -> Vec<u8> {
    let mut bytes = stored.to_vec();
    if let Some(order) = integer_order(t) {
        invert_sign(&mut bytes, &order);
        if order.lowest_first {
            bytes.reverse();
        }
    }
    bytes
}

/// A key or value for log lines and dumps: an integer, a quoted string, or hexadecimal bytes.
fn shown(t: &Datatype, bytes: &[u8]) -> String {
    if bytes.len() > SHOWN_BYTES_MAX {
        return format!("{} bytes", bytes.len());
    }
    if matches!(t.class, Class::String(_)) || t.is_vlen_string() {
        let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at.saturating_add(1));
        return format!("\"{}\"", escaped_bytes(bytes.get(..end).unwrap_or_default()));
    }
    if let Some(order) = integer_order(t).filter(|_| bytes.len() <= 16) {
        let fill = match (order.signed, if order.lowest_first { bytes.last() } else { bytes.first() }) {
            (true, Some(byte)) if byte & 0x80 != 0 => 0xff,
            _ => 0,
        };
        let mut wide = [fill; 16];
        let digits = bytes.iter().copied();
        let lowest_first: Vec<u8> = if order.lowest_first { digits.collect() } else { digits.rev().collect() };
        wide.iter_mut().zip(lowest_first).for_each(|(to, from)| *to = from);
        return if order.signed { i128::from_le_bytes(wide).to_string() } else { u128::from_le_bytes(wide).to_string() };
    }
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl State {
    /// Types of the map `id`.
    pub(super) fn map_types(&self, id: u64) -> Result<MapTypes> {
        let decoded = |message: u16| {
            let body = self.header(id, message)?.ok_or_else(|| no_such(id, "it is not a map"))?;
            decode_type(&body, id)
        };
        Ok(MapTypes { key: decoded(keys::MAP_KEY_TYPE)?, value: decoded(keys::MAP_VALUE_TYPE)? })
    }

    /// Types of the map `id`, and the key of the container's map for `key`.
    fn pair(&self, id: u64, key: &[u8]) -> Result<(MapTypes, Key)> {
        let types = self.map_types(id)?;
        types.check_key(key)?;
        let stored = keys::key(id, keys::MAP, &encode_key(&types.key, key));
        Ok((types, stored))
    }

    /// The key of a pair for log lines; `stored`: its bytes in the container.
    pub(super) fn shown_key(&self, id: u64, stored: &[u8]) -> String {
        match self.map_types(id) {
            Ok(types) => shown(&types.key, &decode_key(&types.key, stored)),
            Err(_) => format!("{} bytes", stored.len()),
        }
    }

    /// A pair as text, `<key, value>`.
    pub(super) fn shown_pair(&self, id: u64, stored: &[u8], value: &[u8]) -> Result<String> {
        let types = self.map_types(id)?;
        Ok(format!("<{}, {}>", self.shown_key(id, stored), shown(&types.value, value)))
    }

    fn make_map(&mut self, id: u64, types: &MapTypes) -> Result<()> {
        types.check()?;
        match self.kind(id)? {
            Some(ObjectKind::Group) if id == 0 => return Err(invalid("the root group cannot be made a map")),
            Some(ObjectKind::Group | ObjectKind::Map) => {}
            _ => return Err(not_a_directory()),
        }
        if self.has_any(&keys::of_kind(id, keys::LINK))? || self.has_any(&keys::of_kind(id, keys::MAP))? {
            return Err(not_empty());
        }
        self.put_header(id, keys::OBJECT_TYPE, &[MAP])?;
        for (message, datatype) in [(keys::MAP_KEY_TYPE, &types.key), (keys::MAP_VALUE_TYPE, &types.value)] {
            self.put_header(id, message, &datatype_message(SUPERBLOCK, datatype).map_err(refused)?)?;
        }
        self.touch(id)
    }
}

fn maps_of(there: &dyn Connector) -> Result<&dyn Maps> {
    there.maps().ok_or_else(|| Error::refused(libc::EOPNOTSUPP, "a file has no maps"))
}

impl Maps for IodConnector {
    fn types(&self, id: ObjectId) -> Result<MapTypes> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return maps_of(&*there)?.types(id);
        }
        self.states.shown().map_types(State::check_id(id)?)
    }

    fn value(&self, id: ObjectId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return maps_of(&*there)?.value(id, key);
        }
        let state = self.states.shown();
        let (types, key) = state.pair(State::check_id(id)?, key)?;
        let cell = state.get(&key)?;
        drop(state);
        let fits = |cell: &Cell| types.value.is_vlen_string() || cell.len() == types.value.element_size();
        match cell {
            Some(cell) if !fits(&cell) => Err(Error::corrupt("map", Address(id.serial()), "a value has another length than its type")),
            cell => cell.map(|cell| self.container.bytes(&cell)).transpose(),
        }
    }

    fn value_len(&self, id: ObjectId, key: &[u8]) -> Result<Option<u64>> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return maps_of(&*there)?.value_len(id, key);
        }
        let state = self.states.shown();
        let (_, key) = state.pair(State::check_id(id)?, key)?;
        Ok(state.get(&key)?.map(|cell| cell.len()))
    }

    fn keys(&self, id: ObjectId, start: u64, f: &mut KeyVisitor<'_>) -> Result<()> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return maps_of(&*there)?.keys(id, start, f);
        }
        let id = State::check_id(id)?;
        let types = self.states.shown().map_types(id)?;
        self.list_values((id, keys::MAP), start, &mut |stored, _, next| {
            let key = decode_key(&types.key, stored);
            // A key that has another length is none of the map.
            let fits = types.check_key(&key).is_ok();
            Ok(if fits { f(&key, next) } else { ControlFlow::Continue(()) })
        })
    }
}

impl EditMaps for IodConnector {
    fn become_map(&self, id: ObjectId, types: &MapTypes) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| {
            state.changed(id);
            state.make_map(id, types)
        })
    }

    fn put(&self, id: ObjectId, key: &[u8], value: &[u8]) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| {
            let (types, key) = state.pair(id, key)?;
            types.check_value(value)?;
            state.put(key, value)?;
            state.touch(id)?;
            if value.len() >= STORED_AT_ONCE { self.values.store(state) } else { Ok(()) }
        })
    }

    fn remove(&self, id: ObjectId, key: &[u8]) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| {
            let (_, key) = state.pair(id, key)?;
            if state.get(&key)?.is_none() {
                return Err(no_key());
            }
            state.remove(key)?;
            state.touch(id)
        })
    }

    fn rekey(&self, id: ObjectId, from: &[u8], to: &[u8], replace: bool) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| {
            let ((_, from), (_, to)) = (state.pair(id, from)?, state.pair(id, to)?);
            let value = state.bytes(&from)?.ok_or_else(no_key)?;
            if from == to {
                return Ok(());
            }
            if !replace && state.get(&to)?.is_some() {
                return Err(Error::refused(libc::EEXIST, "the map has the new key"));
            }
            state.remove(from)?;
            state.put(to, &value)?;
            state.touch(id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::parse::parse_datatype;

    #[test]
    fn integers_are_stored_in_their_order() {
        for (name, values) in
            [("<i4", [-2i128.pow(31), -1, 0, 1, 2i128.pow(31) - 1]), (">i2", [-32768, -1, 0, 1, 32767]), ("<u8", [0, 1, 2, 255, 256])]
        {
            let t = parse_datatype(name).unwrap();
            let size = t.size as usize;
            let element = |n: i128| {
                let mut bytes = n.to_le_bytes()[..size].to_vec();
                if name.starts_with('>') {
                    bytes.reverse();
                }
                bytes
            };
            let stored: Vec<_> = values.iter().map(|n| encode_key(&t, &element(*n))).collect();
            assert!(stored.is_sorted(), "{name}: {stored:?}");
            for (n, stored) in values.iter().zip(&stored) {
                assert_eq!(decode_key(&t, stored), element(*n), "{name}: {n}");
                assert_eq!(shown(&t, &element(*n)), n.to_string(), "{name}");
            }
        }
        let text = parse_datatype("S4").unwrap();
        assert_eq!((encode_key(&text, b"ab\0\0"), shown(&text, b"ab\0\0")), (b"ab\0\0".to_vec(), "\"ab\"".to_owned()));
        assert_eq!(shown(&parse_datatype("<f4").unwrap(), &[1, 2, 0xff, 0]), "0x0102ff00");
    }
}
