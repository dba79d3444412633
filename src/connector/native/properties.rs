//! Creation properties of objects: flags of the header, link info and group info messages.

use super::object::Object;
use crate::base::Result;
use crate::connector::{LinkProperties, ObjectProperties};
use crate::filter::Pipeline;
use crate::format::message::filter_pipeline::FilterPipeline;
use crate::format::message::group_info::GroupInfo;
use crate::format::message::link_info::LinkInfo;
use crate::format::object_header::kind;
use crate::format::property_list;

/// Flags of a version 2 header that are creation properties.
const HEADER_FLAGS: u8 = property_list::ATTRIBUTES_TRACKED | property_list::ATTRIBUTES_INDEXED | property_list::TIMES;

/// The creation properties of `object`.
pub(super) fn of(object: &Object) -> Result<ObjectProperties> {
    let (prefix, ctx, at) = (&object.header.prefix, object.file.store.ctx(), object.header.address);
    let mut properties = ObjectProperties::default();
    if prefix.version == 2 {
        properties.header_flags = prefix.flags & HEADER_FLAGS;
        properties.attribute_phase_change = prefix.phase_change.unwrap_or(properties.attribute_phase_change);
    }
    let Some(info) = object.message(kind::LINK_INFO)? else { return Ok(properties) };
    let info = LinkInfo::decode(&info, ctx, at)?;
    let group = match object.message(kind::GROUP_INFO)? {
        Some(body) => GroupInfo::decode(&body, ctx, at)?,
        None => GroupInfo::default(),
    };
    let filters = match object.message(kind::FILTER_PIPELINE)? {
        Some(body) => Pipeline::from(&FilterPipeline::decode(&body, at)?).filters,
        None => Vec::new(),
    };
    let usual = LinkProperties::default();
    properties.links = LinkProperties {
        is_tracked: info.max_creation_order.is_some(),
        is_indexed: info.creation_index.is_some(),
        phase_change: group.phase_change.unwrap_or(usual.phase_change),
        estimates: group.estimates.unwrap_or(usual.estimates),
        filters,
    };
    Ok(properties)
}
