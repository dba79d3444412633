//! Paths inside containers: links followed, a bounded number of them.

use super::access::Access;
use crate::base::{Error, Result, limits};
use crate::connector::{LinkTarget, ObjectId, ObjectKind};

impl Access<'_> {
    /// The object at `path` from the group `start`, or from the root of its file if `path` begins
    /// with `/`; `None` when there is none.
    pub(super) fn follow_path(&self, start: ObjectId, path: &[u8], hops: &mut usize) -> Result<Option<ObjectId>> {
        let mut at = start;
        if path.first() == Some(&b'/') {
            at.address = self.connector.file(start.file)?.root;
        }
        for name in path.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".") {
            if self.info(at)?.kind != ObjectKind::Group {
                return Ok(None);
            }
            let Some(link) = self.lookup(at, name)? else { return Ok(None) };
            let next = match link.target {
                LinkTarget::Hard(id) => Some(id),
                LinkTarget::Soft(target) => {
                    hop(hops, at)?;
                    self.follow_path(at, &target, hops)?
                }
                LinkTarget::External { file, object } => self.follow_external(at.file, &file, &object, hops)?,
                LinkTarget::UserDefined(_) => None,
            };
            match next {
                Some(id) => at = id,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// The object `object` of the file named `file` by file number `from`; `None` when it may not
    /// be shown or does not exist.
    pub(super) fn follow_external(&self, from: u32, file: &[u8], object: &[u8], hops: &mut usize) -> Result<Option<ObjectId>> {
        let from = self.connector.file(from)?;
        hop(hops, ObjectId { file: from.index, address: from.root })?;
        let target = match self.connector.neighbour(&from, file, "external link target") {
            Ok(f) => f,
            // What is refused and could be allowed is no missing file.
            Err(e @ Error::Refused { .. }) => return Err(e),
            Err(e) => {
                tracing::debug!("{e}");
                return Ok(None);
            }
        };
        self.follow_path(ObjectId { file: target.index, address: target.root }, object, hops)
    }
}

/// Counts a link followed. The recursion of `path` is as deep as this allows.
fn hop(hops: &mut usize, at: ObjectId) -> Result<()> {
    *hops = hops.saturating_add(1);
    if *hops > limits::LINK_HOPS_MAX {
        return Err(Error::limit("link", at.address, format!("more than {} links followed for one name", limits::LINK_HOPS_MAX)));
    }
    Ok(())
}
