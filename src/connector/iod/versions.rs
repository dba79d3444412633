//! The log of versions, and the stored values of one.

use super::access::IodConnector;
use super::paths::decode_link;
use super::state::State;
use crate::base::escape::escaped_bytes;
use crate::base::{Address, Result};
use crate::connector::LinkTarget;
use crate::connector::versions::{LineVisitor, Version, VersionVisitor, Versions};
use crate::format::object_header::kind;
use crate::iod::{Cell, Data, keys, record};
use std::ops::{Bound, ControlFlow};

impl Versions for IodConnector {
    fn log(&self, f: &mut VersionVisitor<'_>) -> Result<()> {
        let newest = self.state.read_recursive().snapshot.version();
        for number in (1..=newest).rev() {
            let (record, _) = self.container.read_record(number)?.ok_or_else(|| record::fork(number))?;
            let changes = self.container.entries(&record)?.len() as u64;
            let version = Version { number, seconds: record.seconds, session: record.session, label: record.label, changes };
            if f(version).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn dump(&self, f: &mut LineVisitor<'_>) -> Result<()> {
        let state = self.state.read_recursive();
        let mut object = None;
        let _ = state.scan(&(Bound::Unbounded, Bound::Unbounded), &mut |key, cell| {
            let Some((id, kind, _)) = keys::parts(key) else { return Ok(ControlFlow::Continue(())) };
            if object != Some(id) {
                object = Some(id);
                let heading = match state.header(id, keys::OBJECT_TYPE)?.as_deref() {
                    Some([super::state::GROUP]) => "KV object (group)",
                    Some([super::state::DATASET]) => "array object (dataset)",
                    Some([super::state::DATATYPE]) => "blob (named datatype)",
                    Some([super::state::MAP]) => "KV object (map)",
                    _ => "object of an unknown type",
                };
                let pad = format!("scratch pad: metadata KV {id}/H, attribute KV {id}/A");
                if f(&format!("{id}: {heading}; {pad}")).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(f(&format!("  {} {}", described(&state, key, kind, id, cell)?, place(cell))))
        })?;
        Ok(())
    }
}

/// Name of a metadata value, as the specification of 2013 has it where it does.
fn metadata(message: u16) -> String {
    match message {
        keys::OBJECT_TYPE => "object_type".into(),
        keys::OWNERSHIP => "owner".into(),
        keys::ACCESS_TIME => "access time".into(),
        keys::MAP_KEY_TYPE => "object_datatype (keys)".into(),
        keys::MAP_VALUE_TYPE => "object_datatype (values)".into(),
        kind::REFERENCE_COUNT => "object_link_count".into(),
        kind::DATATYPE => "object_datatype".into(),
        kind::DATASPACE => "object_dataspace".into(),
        kind::FILL_VALUE => "object_create_plist (fill value)".into(),
        kind::DATA_LAYOUT => "object_create_plist (layout)".into(),
        kind::FILTER_PIPELINE => "object_create_plist (filters)".into(),
        kind::MTIME => "modification time".into(),
        other => format!("message {other:#06x}"),
    }
}

/// What a value is.
fn described(state: &State, key: &[u8], kind: u8, id: u64, cell: &Cell) -> Result<String> {
    let rest = keys::parts(key).map(|(_, _, rest)| rest).unwrap_or_default();
    Ok(match kind {
        keys::LINK => match decode_link(&state.container.bytes(cell)?, id)? {
            LinkTarget::Hard(target) => format!("<\"{}\", {}>", escaped_bytes(rest), target.serial()),
            other => format!("<\"{}\", {other:?}>", escaped_bytes(rest)),
        },
        keys::MAP => state.shown_pair(id, rest, &state.container.bytes(cell)?)?,
        keys::ATTRIBUTE => format!("attribute \"{}\"", escaped_bytes(rest)),
        keys::LINK_OWNER => format!("owner of the link \"{}\"", escaped_bytes(rest)),
        keys::HEADER => format!("metadata {}", metadata(keys::message(key).unwrap_or(0))),
        keys::CHUNK => format!("cells {:?}", keys::scaled(key).unwrap_or_default()),
        keys::CELLS => {
            let number = rest.try_into().map_or(Address::UNDEF.0, u64::from_be_bytes);
            format!("variable-length cells, block {number}")
        }
        _ => "value of an unknown kind".into(),
    })
}

/// Length and place of a value.
fn place(cell: &Cell) -> String {
    let mask = if cell.mask == 0 { String::new() } else { format!(", filter mask {:#x}", cell.mask) };
    match &cell.data {
        Data::Inline(bytes) => format!("({} bytes{mask})", bytes.len()),
        Data::Extent(e) => format!("({} bytes at {} of {}{mask})", e.len, e.offset, keys::pack_name(e.session, e.pack)),
    }
}
