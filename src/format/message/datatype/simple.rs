//! Classes with few or no properties: string, opaque, reference.
//!
//! ```text
//! string      bits 0-3 padding, 4-7 character set; no properties
//! opaque      bits 0-7 length of the tag, a multiple of 8; properties: the tag, NUL-padded
//! reference   bits 0-3 kind, 4-7 encoding version of kinds 2 to 4; no properties
//! ```
//!
//! The specification's section is IV.A.2.d, classes 3, 5 and 7.

use super::Header;
use crate::base::Result;
use crate::format::{Reader, Writer};

/// What fills a fixed-length string, or ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StringPadding {
    /// Ends at the first NUL.
    NullTerminated,
    /// Filled up with NULs.
    NullPadded,
    /// Filled up with spaces.
    SpacePadded,
    /// A number without meaning, 3 to 15.
    Reserved(u8),
}

impl StringPadding {
    pub(super) fn of(bits: u32) -> Self {
        match bits & 0xf {
            0 => StringPadding::NullTerminated,
            1 => StringPadding::NullPadded,
            2 => StringPadding::SpacePadded,
            n => StringPadding::Reserved(n as u8),
        }
    }

    pub(super) fn number(self) -> u32 {
        match self {
            StringPadding::NullTerminated => 0,
            StringPadding::NullPadded => 1,
            StringPadding::SpacePadded => 2,
            StringPadding::Reserved(n) => u32::from(n & 0xf),
        }
    }
}

/// Character set of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CharacterSet {
    /// US-ASCII.
    Ascii,
    /// UTF-8.
    Utf8,
    /// A number without meaning, 2 to 15.
    Reserved(u8),
}

impl CharacterSet {
    pub(super) fn of(bits: u32) -> Self {
        match bits & 0xf {
            0 => CharacterSet::Ascii,
            1 => CharacterSet::Utf8,
            n => CharacterSet::Reserved(n as u8),
        }
    }

    pub(super) fn number(self) -> u32 {
        match self {
            CharacterSet::Ascii => 0,
            CharacterSet::Utf8 => 1,
            CharacterSet::Reserved(n) => u32::from(n & 0xf),
        }
    }
}

/// Strings of fixed length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StringType {
    /// Filling.
    pub padding: StringPadding,
    /// Character set.
    pub charset: CharacterSet,
}

impl StringType {
    pub(super) fn decode(h: &Header) -> Self {
        StringType { padding: StringPadding::of(h.bits), charset: CharacterSet::of(h.bits >> 4) }
    }

    pub(super) fn bits(&self) -> u32 {
        self.padding.number() | self.charset.number() << 4
    }
}

/// Bytes without further meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opaque {
    /// Tag with its NUL padding: a multiple of 8 bytes, 248 at most.
    stored: Vec<u8>,
}

impl Opaque {
    /// An opaque type with the tag `tag`, cut after 248 bytes.
    pub fn new(tag: &[u8]) -> Self {
        let mut stored: Vec<u8> = tag.iter().copied().take(248).collect();
        stored.resize(stored.len().next_multiple_of(8), 0);
        Opaque { stored }
    }

    /// The tag, without its padding.
    pub fn tag(&self) -> &[u8] {
        self.stored.split(|&b| b == 0).next().unwrap_or_default()
    }

    pub(super) fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        let len = (h.bits & 0xff) as usize;
        if !len.is_multiple_of(8) {
            return Err(r.corrupt(format!("the tag of an opaque datatype has {len} bytes, no multiple of 8")));
        }
        Ok(Opaque { stored: r.bytes(len)?.to_vec() })
    }

    pub(super) fn bits(&self) -> u32 {
        self.stored.len() as u32 & 0xff
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.bytes(&self.stored);
    }
}

/// What a reference names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// References. All `H5R_ref_t` elements say themselves what they name, whatever the datatype's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// What is named.
    pub kind: ReferenceKind,
    /// Encoding version of `H5R_ref_t`: 1; 0 for the older kinds.
    pub encoding: u8,
}

impl Reference {
    /// True for `H5R_ref_t`.
    pub fn is_standard(&self) -> bool {
        !matches!(self.kind, ReferenceKind::Object1 | ReferenceKind::DatasetRegion1)
    }

    pub(super) fn decode(r: &Reader<'_>, h: &Header) -> Result<Self> {
        let kind = match h.bits & 0xf {
            0 => ReferenceKind::Object1,
            1 => ReferenceKind::DatasetRegion1,
            2 => ReferenceKind::Object2,
            3 => ReferenceKind::DatasetRegion2,
            4 => ReferenceKind::Attribute,
            n => return Err(r.corrupt(format!("reference kind {n} is undefined"))),
        };
        let mut reference = Reference { kind, encoding: 0 };
        if reference.is_standard() {
            reference.encoding = (h.bits >> 4 & 0xf) as u8;
            if reference.encoding != 1 {
                return Err(r.unsupported(format!("reference encoding version {}", reference.encoding)));
            }
        }
        Ok(reference)
    }

    pub(super) fn bits(&self) -> u32 {
        let kind = match self.kind {
            ReferenceKind::Object1 => 0,
            ReferenceKind::DatasetRegion1 => 1,
            ReferenceKind::Object2 => 2,
            ReferenceKind::DatasetRegion2 => 3,
            ReferenceKind::Attribute => 4,
        };
        kind | u32::from(self.encoding & 0xf) << 4
    }
}
