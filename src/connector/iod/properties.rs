//! Creation properties of objects, and the identifiers of their auxiliary key-value objects.
//!
//! ```text
//! message 0x02    link info of a group: creation order of links, without addresses
//! message 0x0a    group info: when links become dense, estimates
//! message 0x0b    filter pipeline of a group: filters of links outside of an object header
//! message 0xff05  flags of an object header u8 | most compact attributes u16 | fewest dense u16
//! ```
//!
//! A message that says what new objects have by default is not stored.

use super::create::SUPERBLOCK;
use super::ids::no_such;
use super::state::State;
use crate::base::{Address, Result};
use crate::connector::{FilterSpec, LinkProperties, ObjectKind, ObjectProperties};
use crate::dataset::creation::pipeline_message;
use crate::filter::Pipeline;
use crate::format::message::filter_pipeline::{FilterDescription, FilterPipeline};
use crate::format::message::group_info::GroupInfo;
use crate::format::message::link_info::LinkInfo;
use crate::format::object_header::kind;
use crate::format::{Context, Reader, Writer};
use crate::iod::keys;

/// Lowest bit of the kind in the identifier of an auxiliary object; ids of objects have 48 bits.
const KIND_BIT: u32 = 56;
const CTX: &Context = &Context::DEFAULT;

/// Decodes message 0xff05 of the object `id` into `properties`.
fn decode_object(body: &[u8], id: u64, properties: &mut ObjectProperties) -> Result<()> {
    let mut r = Reader::new(body, "creation properties", Address(id));
    properties.header_flags = r.u8()?;
    properties.attribute_phase_change = (r.u16()?, r.u16()?);
    Ok(())
}

fn decode_links(body: &[u8], id: u64, links: &mut LinkProperties) -> Result<()> {
    let info = LinkInfo::decode(body, CTX, Address(id))?;
    links.is_tracked = info.max_creation_order.is_some();
    links.is_indexed = info.creation_index.is_some();
    Ok(())
}

fn decode_group(body: &[u8], id: u64, links: &mut LinkProperties) -> Result<()> {
    let info = GroupInfo::decode(body, CTX, Address(id))?;
    links.phase_change = info.phase_change.unwrap_or(links.phase_change);
    links.estimates = info.estimates.unwrap_or(links.estimates);
    Ok(())
}

/// Decodes `body`, a message of creation properties of the object `id`. False: it is none.
pub(super) fn decode(message: u16, body: &[u8], id: u64, properties: &mut ObjectProperties) -> Result<bool> {
    match message {
        keys::PROPERTIES => decode_object(body, id, properties)?,
        kind::LINK_INFO => decode_links(body, id, &mut properties.links)?,
        kind::GROUP_INFO => decode_group(body, id, &mut properties.links)?,
        kind::FILTER_PIPELINE => {
            properties.links.filters = Pipeline::from(&FilterPipeline::decode(body, Address(id))?).filters;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn link_info(links: &LinkProperties) -> Result<Vec<u8>> {
    LinkInfo {
        max_creation_order: links.is_tracked.then_some(0),
        fractal_heap: Address::UNDEF,
        name_index: Address::UNDEF,
        creation_index: links.is_indexed.then_some(Address::UNDEF),
    }
    .encode(CTX)
}

fn group_info(links: &LinkProperties) -> Result<Vec<u8>> {
    let usual = LinkProperties::default();
    GroupInfo {
        phase_change: Some(links.phase_change).filter(|pair| *pair != usual.phase_change),
        estimates: Some(links.estimates).filter(|pair| *pair != usual.estimates),
    }
    .encode(CTX)
}

fn link_filters(links: &LinkProperties) -> Vec<u8> {
    let describe =
        |f: &FilterSpec| FilterDescription { id: f.id, flags: f.flags, name: f.name.clone(), cd_values: f.cd_values.clone(), config: None };
    pipeline_message(links.filters.iter().map(describe).collect(), SUPERBLOCK)
}

fn object_properties(properties: &ObjectProperties) -> Vec<u8> {
    let mut w = Writer::new();
    let (max, min) = properties.attribute_phase_change;
    w.u8(properties.header_flags).u16(max).u16(min);
    w.into_bytes()
}

impl State {
    /// The creation properties of the object `id`.
    pub(super) fn properties(&self, id: u64) -> Result<ObjectProperties> {
        let mut properties = ObjectProperties::default();
        let is_group = self.kind(id)? == Some(ObjectKind::Group);
        for message in [keys::PROPERTIES, kind::LINK_INFO, kind::GROUP_INFO, kind::FILTER_PIPELINE] {
            // That of a dataset is no property of links.
            if message == kind::FILTER_PIPELINE && !is_group {
                continue;
            }
            if let Some(body) = self.header(id, message)? {
                decode(message, &body, id, &mut properties)?;
            }
        }
        Ok(properties)
    }

    /// Notes that the group `id` tracks and indexes the creation order of its links.
    pub(super) fn track_links(&mut self, id: u64) -> Result<()> {
        let mut properties = self.properties(id)?;
        if !properties.links.is_tracked {
            (properties.links.is_tracked, properties.links.is_indexed) = (true, true);
            self.put_properties(id, &properties)?;
        }
        Ok(())
    }

    /// Sets the creation properties of the object `id`; those of links of groups only.
    pub(super) fn put_properties(&mut self, id: u64, properties: &ObjectProperties) -> Result<()> {
        let object = self.kind(id)?.ok_or_else(|| no_such(id, "it does not exist"))?;
        let usual = ObjectProperties::default();
        let mut messages = vec![(keys::PROPERTIES, object_properties(properties), object_properties(&usual))];
        if object == ObjectKind::Group {
            // A group that exists and tracks the order of its links still tracks it.
            let now = self.properties(id)?.links;
            let mut properties = properties.clone();
            properties.links.is_tracked |= now.is_tracked;
            properties.links.is_indexed |= now.is_indexed;
            messages.extend([
                (kind::LINK_INFO, link_info(&properties.links)?, link_info(&usual.links)?),
                (kind::GROUP_INFO, group_info(&properties.links)?, group_info(&usual.links)?),
                (kind::FILTER_PIPELINE, link_filters(&properties.links), link_filters(&usual.links)),
            ]);
        }
        for (message, body, default) in messages {
            let stored = self.header(id, message)?;
            match (stored, body == default) {
                (None, true) => {}
                (Some(_), true) => self.remove(keys::header(id, message))?,
                (Some(stored), false) if stored == body => {}
                (_, false) => self.put_header(id, message, &body)?,
            }
        }
        Ok(())
    }
}

/// Identifiers of the key-value objects with the metadata and the attributes of the object `id`:
/// the first 9 bytes of their keys in another order, the kind first.
pub(super) fn auxiliary_objects(id: u64) -> [u64; 2] {
    [keys::HEADER, keys::ATTRIBUTE].map(|kind| u64::from(kind) << KIND_BIT | id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_properties_are_errors() {
        let mut properties = ObjectProperties::default();
        let all = ObjectProperties {
            header_flags: 0x0c,
            attribute_phase_change: (10, 4),
            links: LinkProperties {
                is_tracked: true,
                is_indexed: true,
                phase_change: (20, 10),
                estimates: (100, 30),
                filters: vec![FilterSpec { id: 1, flags: 1, name: Vec::new(), cd_values: vec![6] }],
            },
        };
        let bodies = [
            (keys::PROPERTIES, object_properties(&all)),
            (kind::LINK_INFO, link_info(&all.links).unwrap()),
            (kind::GROUP_INFO, group_info(&all.links).unwrap()),
            (kind::FILTER_PIPELINE, link_filters(&all.links)),
        ];
        for (message, body) in &bodies {
            for len in 0..body.len() {
                assert!(decode(*message, &body[..len], 1, &mut properties).is_err(), "{message:#x} cut at {len}");
            }
            assert!(decode(*message, body, 1, &mut properties).unwrap());
        }
        assert_eq!(properties, all);
        assert!(!decode(kind::MTIME, &[], 1, &mut properties).unwrap());
    }

    #[test]
    fn auxiliary_objects_are_of_one_object() {
        assert_eq!(auxiliary_objects(0), [0x4800_0000_0000_0000, 0x4100_0000_0000_0000]);
        assert_eq!(auxiliary_objects(7 << 20 | 3), [0x4800_0000_0070_0003, 0x4100_0000_0070_0003]);
    }
}
