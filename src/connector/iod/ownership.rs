//! Owner, group and mode of an object; owner, group and text of a link.
//!
//! ```text
//! flags u8: 1 mode, 2 owner, 4 group | mode u16 | owner u32 | group u32
//! of a link, if it has a text        | checksum of the path u32 | text
//! ```

use crate::base::{Address, Result};
use crate::connector::{LinkFacts, LinkText, Ownership};
use crate::format::{Reader, Writer};

/// Size of an encoded owner, bytes.
const OWNERSHIP_LEN: usize = 11;

/// Encodes an owner; parts that are not set are 0.
pub(super) fn encode(o: &Ownership) -> Vec<u8> {
    let mut w = Writer::new();
    let flags = u8::from(o.mode.is_some()) | u8::from(o.uid.is_some()) << 1 | u8::from(o.gid.is_some()) << 2;
    w.u8(flags).u16(o.mode.unwrap_or(0)).u32(o.uid.unwrap_or(0)).u32(o.gid.unwrap_or(0));
    w.into_bytes()
}

/// Decodes the owner of the object `id`.
pub(super) fn decode(body: &[u8], id: u64) -> Result<Ownership> {
    let mut r = Reader::new(body, "owner", Address(id));
    let (flags, mode, uid, gid) = (r.u8()?, r.u16()?, r.u32()?, r.u32()?);
    let is_set = |bit: u8| flags & bit != 0;
    Ok(Ownership { mode: is_set(1).then_some(mode & 0o7777), uid: is_set(2).then_some(uid), gid: is_set(4).then_some(gid) })
}

/// Encodes owner, group and text of a link; `None`: none is set.
pub(super) fn encode_facts(facts: &LinkFacts) -> Option<Vec<u8>> {
    let mut body = encode(&facts.ownership);
    if let Some(LinkText { text, path_sum }) = &facts.text {
        body.extend(path_sum.to_le_bytes());
        body.extend(text);
    }
    (*facts != LinkFacts::default()).then_some(body)
}

/// Decodes owner, group and text of a link of the group `id`.
pub(super) fn decode_facts(body: &[u8], id: u64) -> Result<LinkFacts> {
    let rest = body.get(OWNERSHIP_LEN..).and_then(|rest| rest.split_first_chunk::<4>());
    let text = rest.map(|(sum, text)| LinkText { text: text.to_vec(), path_sum: u32::from_le_bytes(*sum) });
    Ok(LinkFacts { ownership: decode(body, id)?, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_round_trip() {
        for o in [Ownership::default(), Ownership { mode: Some(0o640), uid: Some(7), gid: None }] {
            assert_eq!(decode(&encode(&o), 1).unwrap(), o);
        }
        assert!(decode(&[1, 2], 1).is_err());
        assert_eq!(encode(&Ownership::default()).len(), OWNERSHIP_LEN);
    }

    #[test]
    fn texts_of_links_round_trip() {
        let owned = LinkFacts { ownership: Ownership { uid: Some(7), ..Ownership::default() }, text: None };
        for facts in [owned.clone(), LinkFacts { text: Some(LinkText::new(b"../c", b"/c")), ..owned }] {
            assert_eq!(decode_facts(&encode_facts(&facts).unwrap(), 1).unwrap(), facts);
        }
        assert_eq!(encode_facts(&LinkFacts::default()), None);
        assert_eq!(decode_facts(&[0; 14], 1).unwrap(), LinkFacts::default());
        assert!(decode_facts(&[0; 10], 1).is_err());
    }
}
