//! Owner, group and mode of an object.

/// Owner, group and permission bits of an object, each `None` where the mount's default applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ownership {
    /// Permission bits (07777).
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group owner.
    pub gid: Option<u32>,
}
