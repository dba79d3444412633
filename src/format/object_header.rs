//! Object header, versions 1 and 2 (H5.format.4.0, "Data Object Headers").
//!
//! ```text
//! v1 prefix:  version 1 | 0 | messages u16 | reference count u32 | chunk 0 size u32 | pad 4
//! v1 message: type u16 | size u16 | flags u8 | 0 0 0 | body (size is a multiple of 8)
//! v2 prefix:  "OHDR" | version 2 | flags u8 | [times 4 x u32] |
//!             [max compact u16, min dense u16] | chunk 0 size 1|2|4|8
//! v2 message: type u8 | size u16 | flags u8 | [creation index u16] | body
//! v2 chunk:   messages | gap (shorter than a message header, zero) | checksum
//! v2 later chunk: "OCHK" | messages | gap | checksum
//! ```

use super::{Context, Reader, Writer};
use crate::base::{Address, Result, limits};

/// Name used in errors.
pub const NAME: &str = "object header";
/// Signature of version 2.
pub const SIGNATURE: [u8; 4] = *b"OHDR";

/// Header message types (specification order).
pub mod kind {
    #![allow(missing_docs)]
    pub const NIL: u16 = 0x00;
    pub const DATASPACE: u16 = 0x01;
    pub const LINK_INFO: u16 = 0x02;
    pub const DATATYPE: u16 = 0x03;
    pub const FILL_VALUE_OLD: u16 = 0x04;
    pub const FILL_VALUE: u16 = 0x05;
    pub const LINK: u16 = 0x06;
    pub const EXTERNAL_FILES: u16 = 0x07;
    pub const DATA_LAYOUT: u16 = 0x08;
    pub const BOGUS: u16 = 0x09;
    pub const GROUP_INFO: u16 = 0x0a;
    pub const FILTER_PIPELINE: u16 = 0x0b;
    pub const ATTRIBUTE: u16 = 0x0c;
    pub const COMMENT: u16 = 0x0d;
    pub const MTIME_OLD: u16 = 0x0e;
    pub const SHARED_MESSAGE_TABLE: u16 = 0x0f;
    pub const CONTINUATION: u16 = 0x10;
    pub const SYMBOL_TABLE: u16 = 0x11;
    pub const MTIME: u16 = 0x12;
    pub const BTREE_K: u16 = 0x13;
    pub const DRIVER_INFO: u16 = 0x14;
    pub const ATTRIBUTE_INFO: u16 = 0x15;
    pub const REFERENCE_COUNT: u16 = 0x16;
    pub const FILE_SPACE_INFO: u16 = 0x17;
    pub const CACHE_IMAGE: u16 = 0x18;
    /// Of HDF5's sparse data branch; no release has it.
    pub const SECTION_FILTERS: u16 = 0x19;
    /// First undefined type.
    pub const END: u16 = 0x1a;
}

/// Message flags.
pub mod flag {
    /// The message must not be changed.
    pub const CONSTANT: u8 = 0x01;
    /// The body is a reference to a shared message.
    pub const SHARED: u8 = 0x02;
    /// The message must not be moved to the shared message heap.
    pub const DONT_SHARE: u8 = 0x04;
    /// A writer that does not know the type must not modify the object.
    pub const FAIL_IF_UNKNOWN_AND_WRITING: u8 = 0x08;
    /// A writer that does not know the type and modifies the object must set `WAS_UNKNOWN`.
    pub const MARK_IF_UNKNOWN: u8 = 0x10;
    /// A writer that did not know the type has modified the object.
    pub const WAS_UNKNOWN: u8 = 0x20;
    /// The shared message index has a record of this message, which is in this header.
    pub const SHAREABLE: u8 = 0x40;
    /// A reader that does not know the type must refuse the object.
    pub const FAIL_IF_UNKNOWN: u8 = 0x80;
}

/// Flags of a version 2 header; bits 0 and 1 are the width of chunk 0's size (1, 2, 4 or 8 bytes).
pub mod header_flag {
    /// Creation order of attributes is tracked: every message has a creation index.
    pub const CREATION_TRACKED: u8 = 0x04;
    /// Creation order of attributes is indexed.
    pub const CREATION_INDEXED: u8 = 0x08;
    /// The header has the thresholds at which attribute storage becomes dense or compact.
    pub const PHASE_CHANGE: u8 = 0x10;
    /// The header has the four times.
    pub const TIMES: u8 = 0x20;
}
use header_flag::{CREATION_TRACKED, PHASE_CHANGE, TIMES};

/// Header prefix: the fields before the messages of chunk 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix {
    /// 1 or 2.
    pub version: u8,
    /// Version 2 flags; 0 in version 1.
    pub flags: u8,
    /// Version 1: number of hard links to the object. Version 2 stores it in a message.
    pub reference_count: u32,
    /// Version 1: number of messages in all chunks.
    pub message_count: u16,
    /// Access, modification, change, birth: seconds since 1970.
    pub times: Option<[u32; 4]>,
    /// Most attributes in compact storage, fewest in dense storage.
    pub phase_change: Option<(u16, u16)>,
    /// Size of the messages in chunk 0, bytes (without prefix and checksum).
    pub chunk0_size: u64,
    /// Size of the prefix, bytes.
    pub len: usize,
}

/// One header message, its body not decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Message type, see [`kind`].
    pub kind: u16,
    /// Message flags, see [`flag`].
    pub flags: u8,
    /// Creation index, if tracked.
    pub creation_index: Option<u16>,
    /// The body.
    pub body: Vec<u8>,
}

/// The messages of one chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chunk {
    /// Messages in order, including NIL messages.
    pub messages: Vec<Message>,
    /// Bytes after the last message, too few for a message header.
    pub gap: Vec<u8>,
}

impl Prefix {
    /// Decodes the prefix at the start of `buf`.
    pub fn decode(buf: &[u8], address: Address) -> Result<Prefix> {
        let mut r = Reader::new(buf, NAME, address);
        if buf.starts_with(&SIGNATURE) { Self::decode_v2(&mut r) } else { Self::decode_v1(&mut r) }
    }

    fn decode_v1(r: &mut Reader<'_>) -> Result<Prefix> {
        let version = r.u8()?;
        if version != 1 {
            return Err(r.corrupt(format!("first byte {version} is neither version 1 nor a signature")));
        }
        r.skip(1)?;
        let message_count = r.u16()?;
        let reference_count = r.u32()?;
        let chunk0_size = u64::from(r.u32()?);
        r.skip(4)?;
        if chunk0_size > limits::OBJECT_HEADER_CHUNK_MAX {
            return Err(r.corrupt(format!("chunk 0 of {chunk0_size} bytes")));
        }
        Ok(Prefix { version, flags: 0, reference_count, message_count, times: None, phase_change: None, chunk0_size, len: r.position() })
    }

    fn decode_v2(r: &mut Reader<'_>) -> Result<Prefix> {
        r.signature(&SIGNATURE)?;
        let version = r.version(2..=2)?;
        let flags = r.u8()?;
        if flags & !0x3f != 0 {
            return Err(r.corrupt(format!("flags {flags:#x}")));
        }
        let times = if flags & TIMES != 0 { Some([r.u32()?, r.u32()?, r.u32()?, r.u32()?]) } else { None };
        let phase_change = if flags & PHASE_CHANGE != 0 { Some((r.u16()?, r.u16()?)) } else { None };
        let chunk0_size = r.uint(1 << (flags & 3))?;
        if chunk0_size > limits::OBJECT_HEADER_CHUNK_MAX {
            return Err(r.corrupt(format!("chunk 0 of {chunk0_size} bytes")));
        }
        Ok(Prefix { version, flags, reference_count: 1, message_count: 0, times, phase_change, chunk0_size, len: r.position() })
    }

    /// Encodes the prefix.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        if self.version == 1 {
            w.u8(1).u8(0).u16(self.message_count).u32(self.reference_count).uint(self.chunk0_size, 4).u32(0);
            return w.into_bytes();
        }
        w.bytes(&SIGNATURE).u8(2).u8(self.flags);
        for t in self.times.iter().flatten() {
            w.u32(*t);
        }
        if let Some((max, min)) = self.phase_change {
            w.u16(max).u16(min);
        }
        w.uint(self.chunk0_size, 1 << (self.flags & 3));
        w.into_bytes()
    }

    /// Size of chunk 0, bytes: prefix, messages, checksum.
    pub fn chunk0_len(&self) -> u64 {
        let checksum = if self.version == 1 { 0 } else { 4 };
        self.chunk0_size.saturating_add(self.len as u64).saturating_add(checksum)
    }

    /// Size of a message header, bytes.
    pub fn message_header_len(&self) -> usize {
        match self.version {
            1 => 8,
            _ if self.flags & CREATION_TRACKED != 0 => 6,
            _ => 4,
        }
    }

    /// Decodes chunk 0 from `buf`, which includes the prefix.
    pub fn decode_chunk0(&self, buf: &[u8], address: Address) -> Result<Chunk> {
        let mut r = Reader::new(buf, NAME, address);
        r.skip(self.len)?;
        self.decode_messages(&mut r, self.chunk0_size)
    }

    /// Decodes a continuation chunk from `buf`.
    pub fn decode_continuation(&self, buf: &[u8], address: Address) -> Result<Chunk> {
        let mut r = Reader::new(buf, "object header continuation", address);
        if self.version == 1 {
            return self.decode_messages(&mut r, buf.len() as u64);
        }
        r.signature(b"OCHK")?;
        let Some(len) = r.remaining().checked_sub(4) else { return Err(r.corrupt("too short")) };
        self.decode_messages(&mut r, len as u64)
    }

    fn decode_messages(&self, r: &mut Reader<'_>, len: u64) -> Result<Chunk> {
        let len = usize::try_from(len).map_err(|_| r.corrupt("chunk size"))?;
        let mut body = r.sub(len)?;
        if self.version != 1 {
            r.checksum()?;
        }
        let mut chunk = Chunk::default();
        let header = self.message_header_len();
        while body.remaining() >= header {
            chunk.messages.push(self.decode_message(&mut body)?);
        }
        chunk.gap = body.rest().to_vec();
        Ok(chunk)
    }

    fn decode_message(&self, r: &mut Reader<'_>) -> Result<Message> {
        let (kind, size, flags, creation_index);
        if self.version == 1 {
            kind = r.u16()?;
            size = r.u16()?;
            flags = r.u8()?;
            creation_index = None;
            r.skip(3)?;
        } else {
            kind = u16::from(r.u8()?);
            size = r.u16()?;
            flags = r.u8()?;
            creation_index = if self.flags & CREATION_TRACKED != 0 { Some(r.u16()?) } else { None };
        }
        let body = r.bytes(usize::from(size))?.to_vec();
        Ok(Message { kind, flags, creation_index, body })
    }

    /// Encodes the messages of a chunk, without prefix, signature or checksum.
    pub fn encode_messages(&self, chunk: &Chunk) -> Result<Vec<u8>> {
        let mut w = Writer::new();
        for m in &chunk.messages {
            let size =
                u16::try_from(m.body.len()).map_err(|_| crate::base::Error::limit(NAME, Address::UNDEF, "a message of 64 KiB or more"))?;
            if self.version == 1 {
                w.u16(m.kind).u16(size).u8(m.flags).zeros(3);
            } else {
                w.uint(u64::from(m.kind), 1).u16(size).u8(m.flags);
                if let Some(c) = m.creation_index {
                    w.u16(c);
                }
            }
            w.bytes(&m.body);
        }
        w.bytes(&chunk.gap);
        Ok(w.into_bytes())
    }
}

/// Decodes the body of a continuation message: address and length of the next chunk.
pub fn decode_continuation_message(body: &[u8], ctx: &Context, address: Address) -> Result<(Address, u64)> {
    let mut r = Reader::new(body, "object header continuation message", address);
    Ok((r.addr(ctx)?, r.length(ctx)?))
}

/// Body of a message with the SHARED flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedMessage {
    /// ID in the file's shared message heap.
    Heap([u8; 8]),
    /// Address of another object's header with a message of the same type (a committed datatype).
    Object(Address),
}

impl SharedMessage {
    /// Decodes the body, versions 1 to 3.
    pub fn decode(r: &mut Reader<'_>, ctx: &Context) -> Result<SharedMessage> {
        let version = r.version(1..=3)?;
        let kind = r.u8()?;
        if version == 1 {
            // Reserved bytes, then the name offset of a symbol table entry, unused here.
            r.skip(6)?;
            r.length(ctx)?;
        }
        if version == 3 && kind == 1 {
            return Ok(SharedMessage::Heap(r.array()?));
        }
        Ok(SharedMessage::Object(r.addr(ctx)?))
    }

    /// Encodes a version 2 body that refers to the message of the same type in the header at
    /// `object`.
    pub fn encode_object(object: Address, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(2).u8(2).addr(object, ctx);
        w.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root group header of an empty file written by h5py 3.16 with `libver='latest'`.
    const V2: [u8; 131] = *include_bytes!("testdata/ohdr_v2_root.bin");

    #[test]
    fn v2_golden_round_trip() {
        let p = Prefix::decode(&V2, Address(48)).unwrap();
        assert_eq!((p.version, p.times.is_some()), (2, p.flags & TIMES != 0));
        let c = p.decode_chunk0(&V2, Address(48)).unwrap();
        assert_eq!(c.messages.first().map(|m| m.kind), Some(kind::LINK_INFO));
        let mut w = Writer::new();
        w.bytes(&p.encode()).bytes(&p.encode_messages(&c).unwrap()).checksum();
        assert_eq!(w.into_bytes(), V2);
    }

    #[test]
    fn v2_damage_is_an_error() {
        for i in 0..V2.len() {
            let mut b = V2.to_vec();
            b[i] ^= 0x40;
            let r = Prefix::decode(&b, Address(48)).and_then(|p| p.decode_chunk0(&b, Address(48)));
            assert!(r.is_err(), "byte {i}");
            assert!(Prefix::decode(&V2[..i], Address(48)).and_then(|p| p.decode_chunk0(&V2[..i], Address(48))).is_err());
        }
    }

    #[test]
    fn shared_message_version_1_skips_the_name_offset() {
        let body = [1u8, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0x30, 0x1a, 0, 0, 0, 0, 0, 0];
        let mut r = Reader::new(&body, "shared message", Address(0));
        assert_eq!(SharedMessage::decode(&mut r, &Context::DEFAULT).unwrap(), SharedMessage::Object(Address(0x1a30)));
        let v2 = SharedMessage::encode_object(Address(0x320), &Context::DEFAULT);
        assert_eq!(v2, [2, 2, 0x20, 3, 0, 0, 0, 0, 0, 0], "as libhdf5 2.0.0 writes it");
        let mut r = Reader::new(&v2, "shared message", Address(0));
        assert_eq!(SharedMessage::decode(&mut r, &Context::DEFAULT).unwrap(), SharedMessage::Object(Address(0x320)));
        let v3 = [3u8, 1, 1, 2, 3, 4, 5, 6, 7, 8];
        let mut r = Reader::new(&v3, "shared message", Address(0));
        assert_eq!(SharedMessage::decode(&mut r, &Context::DEFAULT).unwrap(), SharedMessage::Heap([1, 2, 3, 4, 5, 6, 7, 8]));
    }

    #[test]
    fn v1_round_trip() {
        let p = Prefix {
            version: 1,
            flags: 0,
            reference_count: 3,
            message_count: 1,
            times: None,
            phase_change: None,
            chunk0_size: 16,
            len: 16,
        };
        let c = Chunk {
            messages: vec![Message { kind: kind::MTIME, flags: 0, creation_index: None, body: vec![1, 0, 0, 0, 9, 9, 9, 9] }],
            gap: vec![],
        };
        let mut bytes = p.encode();
        bytes.extend(p.encode_messages(&c).unwrap());
        let q = Prefix::decode(&bytes, Address(0)).unwrap();
        assert_eq!(q, p);
        assert_eq!(q.decode_chunk0(&bytes, Address(0)).unwrap(), c);
    }
}
