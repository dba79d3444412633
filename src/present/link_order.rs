//! The creation order of the links of a group as the fact `user.h5dir.links`: a JSON list of names.

use super::json::write_string;
use crate::base::{Address, Error, Result};
use crate::connector::edit::Edit;
use crate::connector::{Connector, LinkTarget, ObjectId, ObjectKind};

/// Name of the fact.
pub const NAME: &str = "links";
/// Links at which a listing of extended attributes looks.
const LOOKED_AT_MAX: usize = 16;

/// True if the order of the links of the group `id` matters to a copy: it is tracked, and the first
/// links lead to no plain files, or to other datasets, too.
pub fn is_needed(connector: &dyn Connector, id: ObjectId) -> bool {
    // A group that cannot be read has no order to show.
    let Some(names) = connector.created_links(id, LOOKED_AT_MAX).ok().flatten().filter(|names| names.len() > 1) else { return false };
    let mut has_plain_file = false;
    for name in names {
        let Ok(Some(link)) = connector.lookup(id, &name) else { continue };
        let LinkTarget::Hard(object) = link.target else { continue };
        match connector.info(object).map(|info| info.kind) {
            Ok(ObjectKind::Dataset) if connector.dataset(object).is_ok_and(|d| d.is_bytes_file) => has_plain_file = true,
            Ok(ObjectKind::Dataset | ObjectKind::Datatype) => return true,
            _ => {}
        }
    }
    !has_plain_file
}

/// Text of the fact, in at most `limit` bytes; `None`: the group does not track the order.
pub fn text(connector: &dyn Connector, id: ObjectId, limit: u64) -> Result<Option<Vec<u8>>> {
    // A name takes at least three bytes.
    let most = usize::try_from(limit / 3).unwrap_or(usize::MAX).saturating_add(1);
    let Some(names) = connector.created_links(id, most)? else { return Ok(None) };
    let mut out = vec![b'['];
    for name in &names {
        if out.len() > 1 {
            out.push(b',');
        }
        write_string(name, &mut out);
        if out.len() as u64 >= limit {
            return Err(Error::limit("value", Address::UNDEF, "the names of links take more than their reader allows"));
        }
    }
    out.push(b']');
    Ok(Some(out))
}

/// Sets the creation order of the links of the group `id`.
pub fn set(edit: &dyn Edit, id: ObjectId, text: &[u8]) -> Result<()> {
    edit.set_link_order(id, super::parse::parse_names(text)?)
}
