//! Link message, type 0x0006, version 1: one link of a compact group; also the object per link in a
//! dense group's fractal heap (H5.format.4.0, "The Link Message").
//!
//! ```text
//! version 1 | flags u8 | [type u8] | [creation order i64] | [charset u8] |
//! name length 1/2/4/8 | name | value
//! flags: 0x03 width of the name length (1 << n bytes) | 0x04 creation order | 0x08 type |
//!        0x10 charset
//! value: hard (type 0, or no type): address | soft (1): length u16, path |
//!        64..255: length u16, data
//! external (64) data: version << 4 | flags, 1 byte | file name NUL | object name NUL
//! ```
//!
//! [`LinkMessage`] is the message as stored, with every flag; [`Link`] is its interpretation.

use crate::base::{Address, Error, Result};
use crate::format::{Context, Reader, Writer};

const NAME: &str = "link message";
const VERSION: u8 = 1;
const NAME_WIDTH: u8 = 0x03;
const HAS_CREATION_ORDER: u8 = 0x04;
const HAS_TYPE: u8 = 0x08;
const HAS_CHARSET: u8 = 0x10;
const ALL_FLAGS: u8 = 0x1f;
const TYPE_HARD: u8 = 0;
const TYPE_SOFT: u8 = 1;
/// First user-defined link class; also the class of external links.
pub const TYPE_EXTERNAL: u8 = 64;
const CHARSET_UTF8: u8 = 1;

/// Target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkTarget {
    /// Object header of an object in the same file.
    Hard(Address),
    /// Path, relative to the group of the link (or to the root group if it starts with `/`).
    Soft(Vec<u8>),
    /// An object of another file.
    External {
        /// Name of the file, as stored.
        file: Vec<u8>,
        /// Path of the object in that file.
        object: Vec<u8>,
    },
    /// A user-defined link class: only the application that registered it interprets the value.
    UserDefined {
        /// Class number, 64 to 255; 64 only for an external link whose value cannot be parsed.
        class: u8,
        /// Value of the link.
        data: Vec<u8>,
    },
}

/// A named link of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Name, bytes up to the first NUL; not empty, otherwise arbitrary (it may contain `/`).
    pub name: Vec<u8>,
    /// True if the file declares the name as UTF-8, false for ASCII (often any 8-bit encoding).
    pub utf8: bool,
    /// Creation order within the group, if tracked.
    pub creation_order: Option<i64>,
    /// Target of the link.
    pub target: LinkTarget,
}

/// Value of a link message as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkValue {
    /// Hard link: address of an object header.
    Address(Address),
    /// Any other link: its value, at most 65535 bytes.
    Data(Vec<u8>),
}

/// A link message as stored; [`Link`] is its interpretation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkMessage {
    /// Width of the name length field, bytes: 1, 2, 4 or 8.
    pub name_width: u8,
    /// Link type, if stored; hard links usually omit it.
    pub link_type: Option<u8>,
    /// Creation order, if stored.
    pub creation_order: Option<i64>,
    /// Character set of the name, if stored: 0 ASCII, 1 UTF-8.
    pub charset: Option<u8>,
    /// Name as stored.
    pub name: Vec<u8>,
    /// Value as stored.
    pub value: LinkValue,
}

impl LinkMessage {
    /// Decodes the message at the start of `body`; ignores padding after it.
    pub fn decode(body: &[u8], ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(body, NAME, address);
        r.version(VERSION..=VERSION)?;
        let flags = r.u8()?;
        if flags & !ALL_FLAGS != 0 {
            return Err(r.corrupt(format!("flags are {flags:#04x}")));
        }
        let link_type = if flags & HAS_TYPE != 0 { Some(r.u8()?) } else { None };
        let creation_order = if flags & HAS_CREATION_ORDER != 0 { Some(i64::from_le_bytes(r.array()?)) } else { None };
        let charset = if flags & HAS_CHARSET != 0 { Some(r.u8()?) } else { None };
        if charset.is_some_and(|c| c > CHARSET_UTF8) {
            return Err(r.corrupt(format!("character set {}", charset.unwrap_or_default())));
        }
        let name_width = 1u8 << (flags & NAME_WIDTH);
        let len = r.uint(usize::from(name_width))?;
        let len = usize::try_from(len).map_err(|_| r.corrupt("the name length exceeds the address space"))?;
        if len == 0 {
            return Err(r.corrupt("the name is empty"));
        }
        let name = r.bytes(len)?.to_vec();
        let value = match link_type.unwrap_or(TYPE_HARD) {
            TYPE_HARD => LinkValue::Address(r.addr(ctx)?),
            TYPE_SOFT | TYPE_EXTERNAL..=u8::MAX => {
                let len = usize::from(r.u16()?);
                LinkValue::Data(r.bytes(len)?.to_vec())
            }
            other => return Err(r.unsupported(format!("link type {other}"))),
        };
        Ok(LinkMessage { name_width, link_type, creation_order, charset, name, value })
    }

    /// Encodes the exact bytes that `decode` reads, without padding.
    pub fn encode(&self, ctx: &Context) -> Result<Vec<u8>> {
        let bad = |detail: &'static str| Error::corrupt(NAME, Address::UNDEF, detail);
        let width_code = match self.name_width {
            1 => 0,
            2 => 1,
            4 => 2,
            8 => 3,
            _ => return Err(bad("the width of the name length is not 1, 2, 4 or 8")),
        };
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        let flags = width_code
            | flag(self.creation_order.is_some(), HAS_CREATION_ORDER)
            | flag(self.link_type.is_some(), HAS_TYPE)
            | flag(self.charset.is_some(), HAS_CHARSET);
        let len = u64::try_from(self.name.len()).map_err(|_| bad("the name is too long"))?;
        if len == 0 || width_for(len) > self.name_width {
            return Err(bad("the name is empty or too long for its length field"));
        }
        let mut w = Writer::new();
        w.u8(VERSION).u8(flags).bytes(self.link_type.as_slice());
        if let Some(order) = self.creation_order {
            w.bytes(&order.to_le_bytes());
        }
        w.bytes(self.charset.as_slice()).uint(len, usize::from(self.name_width)).bytes(&self.name);
        match (&self.value, self.link_type.unwrap_or(TYPE_HARD)) {
            (LinkValue::Address(a), TYPE_HARD) => w.addr(*a, ctx),
            (LinkValue::Data(d), TYPE_SOFT | TYPE_EXTERNAL..=u8::MAX) => {
                w.u16(u16::try_from(d.len()).map_err(|_| bad("the value is longer than 65535 bytes"))?).bytes(d)
            }
            _ => return Err(bad("type and value of the link do not match")),
        };
        Ok(w.into_bytes())
    }

    /// Interprets the message. `address` is the message's, for errors.
    pub fn into_link(self, address: Address) -> Result<Link> {
        let corrupt = |detail: &'static str| Error::corrupt(NAME, address, detail);
        let name = until_nul(self.name);
        if name.is_empty() {
            return Err(corrupt("the name starts with NUL"));
        }
        let target = match (self.value, self.link_type.unwrap_or(TYPE_HARD)) {
            (LinkValue::Address(a), _) => LinkTarget::Hard(a),
            (LinkValue::Data(d), TYPE_SOFT) if d.is_empty() => return Err(corrupt("the soft link's path is empty")),
            (LinkValue::Data(d), TYPE_SOFT) => LinkTarget::Soft(until_nul(d)),
            (LinkValue::Data(d), class) => match external(class, &d) {
                Some(target) => target,
                None => LinkTarget::UserDefined { class, data: d },
            },
        };
        Ok(Link { name, utf8: self.charset == Some(CHARSET_UTF8), creation_order: self.creation_order, target })
    }
}

impl Link {
    /// Decodes the message at the start of `body`; ignores padding after it.
    pub fn decode(body: &[u8], ctx: &Context, address: Address) -> Result<Self> {
        LinkMessage::decode(body, ctx, address)?.into_link(address)
    }

    /// Encodes the message as libhdf5 does: no default fields, shortest name length field.
    pub fn encode(&self, ctx: &Context) -> Result<Vec<u8>> {
        let (link_type, value) = match &self.target {
            LinkTarget::Hard(a) => (None, LinkValue::Address(*a)),
            LinkTarget::Soft(path) => (Some(TYPE_SOFT), LinkValue::Data(path.clone())),
            LinkTarget::External { file, object } => (Some(TYPE_EXTERNAL), LinkValue::Data(external_value(file, object))),
            LinkTarget::UserDefined { class, data } => (Some(*class), LinkValue::Data(data.clone())),
        };
        let name_width = width_for(u64::try_from(self.name.len()).unwrap_or(u64::MAX));
        let charset = self.utf8.then_some(CHARSET_UTF8);
        LinkMessage { name_width, link_type, creation_order: self.creation_order, charset, name: self.name.clone(), value }.encode(ctx)
    }
}

/// Width of the shortest field for a name length of `len`, bytes.
fn width_for(len: u64) -> u8 {
    match len {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// Truncates at the first NUL: libhdf5 treats names and paths as C strings.
fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(n) = bytes.iter().position(|&b| b == 0) {
        bytes.truncate(n);
    }
    bytes
}

/// Parses the value of an external link; `None` for another class or an invalid value.
fn external(class: u8, data: &[u8]) -> Option<LinkTarget> {
    let (&head, rest) = data.split_first()?;
    // Version (upper four bits) and flags (lower four) are both 0 in all external links so far.
    if class != TYPE_EXTERNAL || head != 0 {
        return None;
    }
    let mut parts = rest.splitn(3, |&b| b == 0);
    let (file, object) = (parts.next()?, parts.next()?);
    parts.next()?;
    Some(LinkTarget::External { file: file.to_vec(), object: object.to_vec() })
}

/// Encodes the value of an external link, the inverse of [`external`].
fn external_value(file: &[u8], object: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    w.u8(0).bytes(file).u8(0).bytes(object).u8(0);
    w.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: Context = Context::DEFAULT;

    fn decode(b: &[u8]) -> Result<Link> {
        Link::decode(b, &CTX, Address(0))
    }

    /// Bodies written by libhdf5 2.0.0, from `compact.h5` (tests/fixtures/groups/make_groups.py).
    const HARD: &[u8] = b"\x01\x00\x05na\xefve\xc3\x00\x00\x00\x00\x00\x00\x00";
    const UTF8: &[u8] = b"\x01\x14\x03\x00\x00\x00\x00\x00\x00\x00\x01\tsm\xc3\xb6rg\xc3\xa5s\xc3\x00\x00\x00\x00\x00\x00\x00";
    const SOFT: &[u8] = b"\x01\x0c\x01\x05\x00\x00\x00\x00\x00\x00\x00\x04soft\n\x00/some/path";
    const EXTERNAL: &[u8] = b"\x01\x0c@\x06\x00\x00\x00\x00\x00\x00\x00\x08external\r\x00\x00other.h5\x00/x\x00";
    const USER: &[u8] = b"\x01\x0c\xbb\x07\x00\x00\x00\x00\x00\x00\x00\x02ud\x0b\x00user data\x00\x01";

    #[test]
    fn known_answers_round_trip() {
        let link = |name: &[u8], utf8, creation_order, target| Link { name: name.to_vec(), utf8, creation_order, target };
        let external = LinkTarget::External { file: b"other.h5".to_vec(), object: b"/x".to_vec() };
        let user = LinkTarget::UserDefined { class: 187, data: b"user data\0\x01".to_vec() };
        let cases = [
            (HARD, link(b"na\xefve", false, None, LinkTarget::Hard(Address(0xc3)))),
            (UTF8, link("sm\u{f6}rg\u{e5}s".as_bytes(), true, Some(3), LinkTarget::Hard(Address(0xc3)))),
            (SOFT, link(b"soft", false, Some(5), LinkTarget::Soft(b"/some/path".to_vec()))),
            (EXTERNAL, link(b"external", false, Some(6), external)),
            (USER, link(b"ud", false, Some(7), user)),
        ];
        for (b, want) in cases {
            assert_eq!(decode(b).unwrap(), want);
            assert_eq!(want.encode(&CTX).unwrap(), b);
            assert_eq!(LinkMessage::decode(b, &CTX, Address(0)).unwrap().encode(&CTX).unwrap(), b);
        }
    }

    #[test]
    fn every_flag_combination_round_trips() {
        for flags in 0..32u8 {
            for kind in [0u8, 1, 64, 65, 200, 255] {
                if kind != 0 && flags & HAS_TYPE == 0 {
                    continue;
                }
                let mut w = Writer::new();
                w.u8(1).u8(flags);
                if flags & HAS_TYPE != 0 {
                    w.u8(kind);
                }
                if flags & HAS_CREATION_ORDER != 0 {
                    w.u64(-7i64 as u64);
                }
                if flags & HAS_CHARSET != 0 {
                    w.u8(flags & 1);
                }
                w.uint(3, 1 << (flags & 3)).bytes(b"abc");
                if kind == 0 {
                    w.addr(Address::UNDEF, &CTX)
                } else {
                    w.u16(5).bytes(b"\0f\0o\0")
                };
                let b = w.into_bytes();
                let m = LinkMessage::decode(&b, &CTX, Address(0)).unwrap();
                assert_eq!(m.encode(&CTX).unwrap(), b, "flags {flags:#x} type {kind}");
                let link = m.into_link(Address(0)).unwrap();
                assert_eq!(link.creation_order, (flags & HAS_CREATION_ORDER != 0).then_some(-7));
                match kind {
                    0 => assert_eq!(link.target, LinkTarget::Hard(Address::UNDEF)),
                    1 => assert_eq!(link.target, LinkTarget::Soft(vec![])),
                    64 => assert_eq!(link.target, LinkTarget::External { file: b"f".to_vec(), object: b"o".to_vec() }),
                    class => assert_eq!(link.target, LinkTarget::UserDefined { class, data: b"\0f\0o\0".to_vec() }),
                }
            }
        }
    }

    #[test]
    fn long_name_takes_a_wider_length() {
        let link = Link { name: vec![b'n'; 70_000], utf8: false, creation_order: None, target: LinkTarget::Hard(Address(8)) };
        let b = link.encode(&CTX).unwrap();
        assert_eq!(b[1], 2);
        assert_eq!(decode(&b).unwrap(), link);
    }

    #[test]
    fn narrow_addresses() {
        let ctx = Context { sizeof_addr: 4, sizeof_size: 4 };
        let b = b"\x01\x00\x01a\xff\xff\xff\xff";
        let link = Link::decode(b, &ctx, Address(0)).unwrap();
        assert_eq!(link.target, LinkTarget::Hard(Address::UNDEF));
        assert_eq!(link.encode(&ctx).unwrap(), b);
    }

    #[test]
    fn external_value_that_cannot_be_parsed_is_kept() {
        for data in [&b"\x10f\0o\0"[..], b"\0f\0o", b"\0f", b"\0", b""] {
            let mut b = b"\x01\x08\x40\x01a".to_vec();
            b.extend((data.len() as u16).to_le_bytes());
            b.extend(data);
            assert_eq!(decode(&b).unwrap().target, LinkTarget::UserDefined { class: 64, data: data.to_vec() });
        }
    }

    #[test]
    fn damage_is_an_error_never_a_panic() {
        for golden in [HARD, UTF8, SOFT, EXTERNAL, USER] {
            for n in 0..golden.len() {
                assert!(decode(&golden[..n]).is_err(), "cut at {n}");
            }
            for i in 0..golden.len() {
                for bit in 0..8 {
                    let mut b = golden.to_vec();
                    b[i] ^= 1 << bit;
                    if let Ok(link) = decode(&b) {
                        assert_eq!(decode(&link.encode(&CTX).unwrap()).unwrap(), link);
                    }
                }
            }
        }
        assert!(decode(b"\x02\x00\x01a\0\0\0\0\0\0\0\0").is_err(), "version");
        assert!(decode(b"\x01\x20\x01a\0\0\0\0\0\0\0\0").is_err(), "flags");
        assert!(decode(b"\x01\x08\x02\x01a\0\0\0\0\0\0\0\0").is_err(), "type");
        assert!(decode(b"\x01\x10\x02\x01a\0\0\0\0\0\0\0\0").is_err(), "charset");
        assert!(decode(b"\x01\x00\x00a\0\0\0\0\0\0\0\0").is_err(), "empty name");
        assert!(decode(b"\x01\x03\xff\xff\xff\xff\xff\xff\xff\xffa").is_err(), "name length");
    }
}
