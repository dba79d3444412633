//! The log of versions, tags, and the stored values of a version.

use super::access::IodConnector;
use super::external::FOREIGN;
use super::ids;
use super::paths::decode_link;
use super::siblings::of_version;
use super::state::{State, kind_of};
use crate::base::{Address, Error, Result};
use crate::connector::versions::{
    ObjectDifference, StoredValue, Tag, ValueName, ValueVisitor, Version, VersionName, VersionVisitor, Versions,
};
use crate::connector::{ObjectId, ObjectKind};
use crate::format::object_header::kind;
use crate::iod::{Cell, Container, Data, Extent, keys};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// Tags that an error lists.
const TAGS_LISTED: usize = 20;

/// The number of the version `name`; `None`: the newest one. Errors: `ENOENT` if there is no such
/// tag.
pub(super) fn number_of(container: &Container, name: &VersionName) -> Result<Option<u64>> {
    let tag = match name {
        VersionName::Newest => return Ok(None),
        VersionName::Number(number) => return Ok(Some(*number)),
        VersionName::Tag(tag) => tag,
    };
    if let Some(found) = container.tag(tag)? {
        return Ok(Some(found.version));
    }
    let tags = container.tags()?;
    let listed = tags.get(..TAGS_LISTED.min(tags.len())).unwrap_or_default().join(", ");
    let reason = match tags.len().saturating_sub(TAGS_LISTED) {
        _ if tags.is_empty() => format!("the container has no tag '{tag}', and no other one"),
        0 => format!("the container has no tag '{tag}'; it has {listed}"),
        more => format!("the container has no tag '{tag}'; it has {listed} and {more} more"),
    };
    Err(Error::refused(libc::ENOENT, reason))
}

impl Versions for IodConnector {
    fn log(&self, f: &mut VersionVisitor<'_>) -> Result<()> {
        let newest = self.states.shown().snapshot.version();
        // Garbage collection removes old ones, but for those with tags.
        for number in self.container.versions_after(0, usize::MAX)?.into_iter().rev().filter(|number| *number <= newest) {
            let Some((record, _)) = self.container.read_record(number)? else { continue };
            let changes = self.container.entries(&record)?.len() as u64;
            let version = Version { number, seconds: record.seconds, session: record.session, label: record.label, changes };
            if f(version).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn values(&self, f: &mut ValueVisitor<'_>) -> Result<()> {
        let state = self.states.shown();
        let mut object = None;
        let _ = state.scan(&(Bound::Unbounded, Bound::Unbounded), &mut |key, cell| {
            let Some((id, ..)) = keys::parts(key) else { return Ok(ControlFlow::Continue(())) };
            let kind = match object {
                Some((of, kind)) if of == id => kind,
                _ => state.header(id, keys::OBJECT_TYPE)?.map_or(ObjectKind::Unknown, |body| kind_of(&body)),
            };
            object = Some((id, kind));
            let place = match &cell.data {
                Data::Inline(_) => None,
                Data::Extent(extent) => Some((place_of(&state.container, extent), extent.offset)),
            };
            let value = StoredValue { object: id, kind, what: what(&state, key, cell)?, len: cell.len(), mask: cell.mask, place };
            Ok(f(value))
        })?;
        Ok(())
    }

    fn after(&self, version: u64) -> Result<Arc<[u64]>> {
        self.listed_after(version)
    }

    fn committed(&self, version: u64) -> Result<Option<u64>> {
        self.committed_at(version)
    }

    fn root_of(&self, version: u64) -> Option<ObjectId> {
        u32::try_from(version).ok().filter(|n| (1..FOREIGN).contains(n)).map(|number| of_version(ids::object(0), number))
    }

    fn version_of(&self, id: ObjectId) -> Option<u64> {
        (1..FOREIGN).contains(&id.file).then(|| id.file.into())
    }

    fn tags(&self) -> Result<Vec<String>> {
        self.container.tags()
    }

    fn tag(&self, name: &str) -> Result<Option<Tag>> {
        self.container.tag(name)
    }

    fn create_tag(&self, name: &str, version: &VersionName) -> Result<u64> {
        let version = number_of(&self.container, version)?.unwrap_or_else(|| self.states.shown().snapshot.version());
        self.container.create_tag(name, version)?;
        Ok(version)
    }

    fn remove_tag(&self, name: &str) -> Result<()> {
        self.container.remove_tag(name)
    }

    fn diff(&self, from: &VersionName, to: &VersionName) -> Result<Vec<ObjectDifference>> {
        let version = |name| Ok(State::new(self.container.clone(), self.container.snapshot(number_of(&self.container, name)?)?, None));
        super::diff::differences(&version(from)?, &version(to)?)
    }

    fn revert(&self, version: &VersionName) -> Result<Option<u64>> {
        let earlier = self.container.snapshot(number_of(&self.container, version)?)?;
        let mut state = self.states.next();
        self.commits.check_writable(&state)?;
        self.commits.commit_all(&mut state)?;
        let Some(session) = state.session.clone() else { return Ok(None) };
        let committed = self.container.revert(&mut state.snapshot, &session, &earlier)?;
        state.all_changed();
        Ok(committed.then(|| state.snapshot.version()))
    }
}

/// The pack or the original that has the bytes of an extent.
fn place_of(container: &Container, extent: &Extent) -> String {
    let Some(number) = extent.original() else { return keys::pack_name(extent.session, extent.pack) };
    let path = container.original_path(number);
    path.map_or_else(|_| keys::original_name(number), |path| String::from_utf8_lossy(&path).into_owned())
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
        kind::LINK_INFO => "object_create_plist (order of links)".into(),
        kind::GROUP_INFO => "object_create_plist (storage of links)".into(),
        keys::PROPERTIES => "object_create_plist (attributes, times)".into(),
        kind::MTIME => "modification time".into(),
        kind::COMMENT => "comment".into(),
        other => format!("message {other:#06x}"),
    }
}

/// What a value is.
fn what(state: &State, key: &[u8], cell: &Cell) -> Result<ValueName> {
    let (id, kind, rest) = keys::parts(key).unwrap_or_default();
    Ok(match kind {
        keys::LINK => ValueName::Link(rest.to_vec(), decode_link(&state.container.bytes(cell)?, id)?),
        keys::ATTRIBUTE => ValueName::Attribute(rest.to_vec()),
        keys::LINK_OWNER => ValueName::LinkOwner(rest.to_vec()),
        keys::HEADER => ValueName::Metadata(metadata(keys::message(key).unwrap_or(0))),
        keys::CHUNK => ValueName::Chunk(keys::scaled(key).unwrap_or_default()),
        keys::CELLS => ValueName::Cells(rest.try_into().map_or(Address::UNDEF.0, u64::from_be_bytes)),
        keys::MAP => ValueName::Pair(state.shown_pair(id, rest, &state.container.bytes(cell)?)?),
        other => ValueName::Unknown(other),
    })
}
