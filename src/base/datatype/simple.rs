//! Datatype classes with few or no properties: string, opaque, reference.

/// Padding or termination of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StringPadding {
    /// Ends at the first NUL.
    NullTerminated,
    /// Padded with NULs.
    NullPadded,
    /// Padded with spaces.
    SpacePadded,
    /// An undefined number, 3 to 15.
    Reserved(u8),
}

/// Character set of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CharacterSet {
    /// US-ASCII.
    Ascii,
    /// UTF-8.
    Utf8,
    /// An undefined number, 2 to 15.
    Reserved(u8),
}

/// Properties of a fixed-length string datatype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StringType {
    /// Padding.
    pub padding: StringPadding,
    /// Character set.
    pub charset: CharacterSet,
}

/// Properties of an opaque datatype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opaque {
    /// Tag with its NUL padding: a multiple of 8 bytes, at most 248.
    pub(crate) stored: Vec<u8>,
}

impl Opaque {
    /// An opaque type with the tag `tag`, truncated to 248 bytes.
    pub fn new(tag: &[u8]) -> Self {
        let mut stored: Vec<u8> = tag.iter().copied().take(248).collect();
        stored.resize(stored.len().next_multiple_of(8), 0);
        Opaque { stored }
    }

    /// The tag, without its padding.
    pub fn tag(&self) -> &[u8] {
        self.stored.split(|&b| b == 0).next().unwrap_or_default()
    }
}

/// Target of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReferenceKind {
    /// An object, by its address (`hobj_ref_t`).
    Object1,
    /// A region of a dataset, by a global heap object (`hdset_reg_ref_t`).
    DatasetRegion1,
    /// An object (`H5R_ref_t`).
    Object2,
    /// A region of a dataset (`H5R_ref_t`).
    DatasetRegion2,
    /// An attribute (`H5R_ref_t`).
    Attribute,
}

/// Properties of a reference datatype. An `H5R_ref_t` element states its own kind, whatever the
/// datatype's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Kind of the references.
    pub kind: ReferenceKind,
    /// Encoding version of `H5R_ref_t`: 1; 0 for the older kinds.
    pub encoding: u8,
}

impl Reference {
    /// True for references that name nothing but regions of datasets.
    pub fn is_region(&self) -> bool {
        self.kind == ReferenceKind::DatasetRegion1
    }

    /// True for `H5R_ref_t`.
    pub fn is_standard(&self) -> bool {
        !matches!(self.kind, ReferenceKind::Object1 | ReferenceKind::DatasetRegion1)
    }
}
