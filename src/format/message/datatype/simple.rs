//! Datatype classes with few or no properties: string, opaque, reference.
//!
//! ```text
//! string      bits 0-3 padding, 4-7 character set; no properties
//! opaque      bits 0-7 length of the tag, a multiple of 8; properties: the tag, NUL-padded
//! reference   bits 0-3 kind, 4-7 encoding version of kinds 2 to 4; no properties
//! ```
//!
//! Source: section IV.A.2.d of the specification, classes 3, 5 and 7.

use super::{CharacterSet, Header, Opaque, Reference, ReferenceKind, StringPadding, StringType};
use crate::base::Result;
use crate::format::{Reader, Writer};

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

impl StringType {
    pub(super) fn decode(h: &Header) -> Self {
        StringType { padding: StringPadding::of(h.bits), charset: CharacterSet::of(h.bits >> 4) }
    }

    pub(super) fn bits(&self) -> u32 {
        self.padding.number() | self.charset.number() << 4
    }
}

impl Opaque {
    pub(super) fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        let len = (h.bits & 0xff) as usize;
        if !len.is_multiple_of(8) {
            return Err(r.corrupt(format!("the tag of an opaque datatype has {len} bytes, not a multiple of 8")));
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

impl Reference {
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
