//! Paths inside containers: links followed, a bounded number of them.

use super::NativeConnector;
use crate::base::{Error, Result, limits};
use crate::connector::{Connector, LinkTarget, ObjectId, ObjectKind};

/// The object at `path` from the group `start` (from the root of its file if it begins with `/`);
/// `None` when there is none.
pub fn path(connector: &NativeConnector, start: ObjectId, path: &[u8], hops: &mut usize) -> Result<Option<ObjectId>> {
    let mut at = start;
    if path.first() == Some(&b'/') {
        at.address = connector.file(start.file)?.root;
    }
    for name in path.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".") {
        if connector.info(at)?.kind != ObjectKind::Group {
            return Ok(None);
        }
        let Some(link) = connector.lookup(at, name)? else { return Ok(None) };
        let next = match link.target {
            LinkTarget::Hard(id) => Some(id),
            LinkTarget::Soft(target) => {
                hop(hops, at)?;
                self::path(connector, at, &target, hops)?
            }
            LinkTarget::External { file, object } => external(connector, at.file, &file, &object, hops)?,
            LinkTarget::UserDefined(_) => None,
        };
        match next {
            Some(id) => at = id,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// The object `object` of the file named `file` by file number `from`; `None` when it may not be
/// shown or does not exist.
pub fn external(connector: &NativeConnector, from: u32, file: &[u8], object: &[u8], hops: &mut usize) -> Result<Option<ObjectId>> {
    let from = connector.file(from)?;
    hop(hops, ObjectId { file: from.index, address: from.root })?;
    let target = match connector.neighbour(&from, file, "external link target") {
        Ok(f) => f,
        // What is refused and could be allowed is no missing file.
        Err(e @ Error::Refused { .. }) => return Err(e),
        Err(e) => {
            tracing::debug!("{e}");
            return Ok(None);
        }
    };
    path(connector, ObjectId { file: target.index, address: target.root }, object, hops)
}

/// Counts a link followed. The recursion of `path` is as deep as this allows.
fn hop(hops: &mut usize, at: ObjectId) -> Result<()> {
    *hops = hops.saturating_add(1);
    if *hops > limits::LINK_HOPS_MAX {
        return Err(Error::limit("link", at.address, format!("more than {} links followed for one name", limits::LINK_HOPS_MAX)));
    }
    Ok(())
}
