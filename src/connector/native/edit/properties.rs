//! Creation properties of copied groups.

use super::change_parts::ObjectChange;
use crate::base::Result;
use crate::connector::{LinkProperties, ObjectId, ObjectProperties};
use crate::format::message::group_info::GroupInfo;
use crate::format::object_header::{flag, kind};

impl ObjectChange<'_> {
    /// Sets the group info of a new-style group. Old-style groups have none, and what the header
    /// states of attributes and times is fixed when an object is made.
    pub(super) fn set_properties(&self, id: ObjectId, properties: &ObjectProperties) -> Result<()> {
        let (store, mut header) = (self.change.store()?, self.change.header(id)?);
        if header.find(kind::LINK_INFO).is_none() {
            return Ok(());
        }
        let (links, usual) = (&properties.links, LinkProperties::default());
        let info = GroupInfo {
            phase_change: Some(links.phase_change).filter(|pair| *pair != usual.phase_change),
            estimates: Some(links.estimates).filter(|pair| *pair != usual.estimates),
        };
        let at = header.find(kind::GROUP_INFO);
        let stored = match at {
            Some(at) => GroupInfo::decode(header.body(at), store.ctx(), id.address)?,
            None => GroupInfo::default(),
        };
        if stored == info {
            return Ok(());
        }
        if let Some(at) = at {
            header.remove(at);
        }
        header.add(kind::GROUP_INFO, flag::CONSTANT, info.encode(store.ctx())?);
        header.write(&store)?;
        self.change.changed(id);
        Ok(())
    }
}
