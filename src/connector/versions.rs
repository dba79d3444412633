//! Versions of a container: names, differences, and what is stored of one.

use super::{LinkTarget, ObjectId, ObjectKind, Result, Shape};
pub use crate::iod::Tag;
pub use crate::iod::gc::{Keep, Options as Collection, Report as Collected};
pub use crate::iod::tag::{NEWEST, is_name};
use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::sync::Arc;

/// How a user names a version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum VersionName {
    /// `latest`: the newest one.
    #[default]
    Newest,
    /// Its number, from 1 on.
    Number(u64),
    /// A tag.
    Tag(String),
}

impl FromStr for VersionName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match (text, text.parse()) {
            (NEWEST, _) => Ok(VersionName::Newest),
            (_, Ok(number)) if number > 0 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(VersionName::Number(number)),
            _ if is_name(text) => Ok(VersionName::Tag(text.to_owned())),
            _ => Err("expected latest, the number of a version from 1 on, or a tag (a-z, 0-9, - and _)".to_owned()),
        }
    }
}

impl fmt::Display for VersionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionName::Newest => f.write_str(NEWEST),
            VersionName::Number(number) => number.fmt(f),
            VersionName::Tag(tag) => f.write_str(tag),
        }
    }
}

/// A committed version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its number, from 1 on.
    pub number: u64,
    /// When it was committed, seconds since 1970, by the clock of the writer.
    pub seconds: u64,
    /// Number of the session that committed it; 0: it began a session.
    pub session: u64,
    /// Text of the writer.
    pub label: Vec<u8>,
    /// Values that it changed.
    pub changes: u64,
}

/// A value that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredValue {
    /// Number of its object.
    pub object: u64,
    /// Kind of its object.
    pub kind: ObjectKind,
    /// What it is.
    pub what: ValueName,
    /// Its length, bytes.
    pub len: u64,
    /// Filters that were not applied to a chunk.
    pub mask: u32,
    /// Stored object and offset; `None`: it is in the map itself.
    pub place: Option<(String, u64)>,
}

/// What a stored value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueName {
    /// A link of a group: its name and where it leads.
    Link(Vec<u8>, LinkTarget),
    /// Owner of the link of this name.
    LinkOwner(Vec<u8>),
    /// The attribute of this name.
    Attribute(Vec<u8>),
    /// Metadata, by the name of the specification of 2013 where it has one.
    Metadata(String),
    /// The chunk with these scaled offsets.
    Chunk(Vec<u64>),
    /// Variable-length cells: number of the block.
    Cells(u64),
    /// A pair of a map, as text.
    Pair(String),
    /// A kind that is not known.
    Unknown(u8),
}

/// An object that differs between two versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectDifference {
    /// Its path in the second version, else in the first one; `None`: no path leads to it.
    pub path: Option<Vec<u8>>,
    /// Its number.
    pub object: u64,
    /// Its kind.
    pub kind: ObjectKind,
    /// What differs; not empty.
    pub differences: Vec<Difference>,
}

/// How an object differs between two versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Only the second version has it; nothing else is listed.
    Created,
    /// Only the first version has it; nothing else is listed.
    Removed,
    /// It has another path in place of this one.
    Renamed {
        /// The path in the first version.
        from: Vec<u8>,
        /// The path in the second version.
        to: Vec<u8>,
    },
    /// It has one more hard link, this path.
    Linked(Vec<u8>),
    /// It has one hard link less, this path.
    Unlinked(Vec<u8>),
    /// A soft or external link of the group is new or leads elsewhere.
    LinkSet(Vec<u8>),
    /// A soft or external link of the group is gone.
    LinkRemoved(Vec<u8>),
    /// An attribute is new or has another value.
    AttributeSet(Vec<u8>),
    /// An attribute is gone.
    AttributeRemoved(Vec<u8>),
    /// A pair of a map was put: its key, as text.
    PairSet(String),
    /// A pair of a map was removed: its key, as text.
    PairRemoved(String),
    /// Its shape.
    Shape {
        /// In the first version.
        from: Shape,
        /// In the second version.
        to: Shape,
    },
    /// Its datatype.
    Datatype,
    /// Its layout, filters or fill value.
    Storage,
    /// Owner, group or mode, of itself or of a link in it.
    Ownership,
    /// Elements of fixed size.
    Elements(Vec<ChunkDifference>),
    /// Variable-length elements: blocks of them.
    Cells(u64),
    /// Values of a kind that is not known.
    Other(u64),
}

/// A chunk that was stored again between two versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkDifference {
    /// Its scaled offsets.
    pub scaled: Vec<u64>,
    /// Bytes of the decoded chunk that were written, as start and end; `None`: any of them.
    pub written: Option<Vec<(u32, u32)>>,
}

/// Called with one version.
pub type VersionVisitor<'a> = dyn FnMut(Version) -> ControlFlow<()> + 'a;
/// Called with one stored value.
pub type ValueVisitor<'a> = dyn FnMut(StoredValue) -> ControlFlow<()> + 'a;

/// The versions of a container.
pub trait Versions: Send + Sync {
    /// Visits the versions from that which is shown on, the newest first, until `f` breaks.
    fn log(&self, f: &mut VersionVisitor<'_>) -> Result<()>;

    /// Visits all stored values of the version that is shown, by object, until `f` breaks.
    fn values(&self, f: &mut ValueVisitor<'_>) -> Result<()>;

    /// Numbers of some versions after `version`, ascending; none: it is the newest. Reads no
    /// version.
    fn after(&self, version: u64) -> Result<Arc<[u64]>>;

    /// When a version was committed, seconds since 1970; `None`: there is no such version.
    fn committed(&self, version: u64) -> Result<Option<u64>>;

    /// The root group of a version; `None`: no version has this number. Objects of it are not
    /// changed, and stay readable while they are held.
    fn root_of(&self, version: u64) -> Option<ObjectId>;

    /// The version whose object `id` is; `None`: that which is shown.
    fn version_of(&self, id: ObjectId) -> Option<u64>;

    /// Names of the tags, ascending.
    fn tags(&self) -> Result<Vec<String>>;

    /// The tag `name`; `None`: there is none.
    fn tag(&self, name: &str) -> Result<Option<Tag>>;

    /// Creates the tag `name`; returns the version that it names. Errors: `EEXIST`, `EINVAL`,
    /// `ENOENT`.
    fn create_tag(&self, name: &str, version: &VersionName) -> Result<u64>;

    /// Removes the tag `name`. Errors: `ENOENT`.
    fn remove_tag(&self, name: &str) -> Result<()>;

    /// The objects that differ from one version to another one, by path. Costs the records between
    /// both, and a walk of the groups for the paths.
    fn diff(&self, from: &VersionName, to: &VersionName) -> Result<Vec<ObjectDifference>>;

    /// Commits a version with the content of `version`; returns its number. `None`: the newest
    /// version has that content. Errors: `EROFS`.
    fn revert(&self, version: &VersionName) -> Result<Option<u64>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_numbers_tags_and_latest() {
        let parse = |text: &str| text.parse::<VersionName>();
        assert_eq!(parse("latest"), Ok(VersionName::Newest));
        assert_eq!(parse("7"), Ok(VersionName::Number(7)));
        assert_eq!(parse("run-7"), Ok(VersionName::Tag("run-7".into())));
        for bad in ["", "0", "-1", "+7", "1.5", "Latest", "a/b", "99999999999999999999", &"x".repeat(65)] {
            assert_eq!(parse(bad).is_ok(), bad == "-1", "{bad}");
        }
        for text in ["latest", "12", "a_b"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }
}
