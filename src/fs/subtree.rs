//! The group of a container that a mount shows.

use super::spec::{MountSpec, OpenError};
use crate::connector::{Connector, ObjectId, ObjectKind};

/// The group to mount and the link names that lead to it.
pub fn subtree(connector: &dyn Connector, spec: &MountSpec) -> Result<(ObjectId, Vec<Vec<u8>>), OpenError> {
    let root = connector.root();
    let Some(group) = &spec.group else { return Ok((root, Vec::new())) };
    let absent = |kind| OpenError::NoSuchGroup { path: spec.file.clone(), group: group.clone(), kind };
    let id = connector.resolve(root, group).ok().flatten().ok_or_else(|| absent(None))?;
    match connector.info(id).map(|info| info.kind) {
        Ok(ObjectKind::Group) => {}
        Ok(ObjectKind::Dataset) => return Err(absent(Some("a dataset"))),
        Ok(ObjectKind::Datatype) => return Err(absent(Some("a named datatype"))),
        Ok(ObjectKind::Map) => return Err(absent(Some("a map"))),
        Ok(ObjectKind::Unknown) | Err(_) => return Err(absent(None)),
    }
    let prefix = group.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".").map(<[u8]>::to_vec).collect();
    Ok((id, prefix))
}
