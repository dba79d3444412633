//! Owner, group and mode of an object or a link of an HDF5 file: one attribute.
//!
//! The attribute `_h5dir_posix` is a scalar string of fixed length, space-padded ASCII, with a word
//! for each property that was set: `mode=0755 uid=1000 gid=1000`. Unknown words are ignored. That
//! of a soft or external link is the attribute `_h5dir_posix:NAME` of its group. It may also hold
//! the text of a symbolic link, and the checksum of the path that its soft link had:
//! `text=../c path-sum=0123abcd`. Bytes of the text other than visible ASCII, and `%`, are escaped
//! as `%20`. The connector hides both from the other attributes.

use super::attribute;
use super::object::Object;
use crate::base::datatype::{CharacterSet, Class, Datatype, StringPadding, StringType};
use crate::base::shape::Shape;
use crate::base::{Error, Result};
use crate::connector::{LinkFacts, LinkText, NewValue, Ownership};

/// Name of the attribute.
pub const NAME: &[u8] = b"_h5dir_posix";
/// What the names of attributes of links start with.
const LINK_PREFIX: &[u8] = b"_h5dir_posix:";
/// Permission bits.
const MODE_MAX: u16 = 0o7777;
/// Longest value that is read, bytes: a text of 4095 bytes, all escaped, and other words.
const VALUE_MAX: usize = 3 * 4095 + 256;

/// Owner, group and mode of `object`. An attribute that cannot be read sets nothing.
pub fn of(object: &Object) -> Ownership {
    read(object, NAME).ownership
}

/// Owner, group and text of the soft or external link `name` of `group`.
pub fn of_link(group: &Object, name: &[u8]) -> LinkFacts {
    read(group, &link_attribute(name))
}

/// Name of the attribute for the link `name`.
pub fn link_attribute(name: &[u8]) -> Vec<u8> {
    [LINK_PREFIX, name].concat()
}

/// True if the attribute `name` is hidden from the others.
pub fn is_hidden(name: &[u8]) -> bool {
    name == NAME || name.starts_with(LINK_PREFIX)
}

fn read(object: &Object, attribute: &[u8]) -> LinkFacts {
    let found = attribute::find(object, attribute);
    match found {
        Ok(Some(value)) if value.shape == Shape::Scalar => parse(value.bytes.get(..VALUE_MAX).unwrap_or(&value.bytes)),
        Ok(_) => LinkFacts::default(),
        Err(e) => {
            tracing::debug!("owner and mode are not read: {e}");
            LinkFacts::default()
        }
    }
}

fn parse(value: &[u8]) -> LinkFacts {
    let value = String::from_utf8_lossy(value);
    let mut ownership = Ownership::default();
    let (mut text, mut path_sum) = (None, None);
    for word in value.split([' ', '\0']) {
        match word.split_once('=') {
            Some(("mode", mode)) => ownership.mode = u16::from_str_radix(mode, 8).ok().filter(|m| *m <= MODE_MAX),
            Some(("uid", uid)) => ownership.uid = uid.parse().ok(),
            Some(("gid", gid)) => ownership.gid = gid.parse().ok(),
            Some(("text", escaped)) => text = unescape(escaped.as_bytes()),
            Some(("path-sum", sum)) => path_sum = u32::from_str_radix(sum, 16).ok(),
            _ => {}
        }
    }
    let text = text.zip(path_sum).map(|(text, path_sum)| LinkText { text, path_sum });
    LinkFacts { ownership, text }
}

fn escape(text: &[u8]) -> String {
    let plain = |b: u8| b.is_ascii_graphic() && b != b'%';
    text.iter().map(|&b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// The text that was escaped as `escaped`.
fn unescape(escaped: &[u8]) -> Option<Vec<u8>> {
    let (mut text, mut rest) = (Vec::with_capacity(escaped.len()), escaped);
    while let Some((&b, after)) = rest.split_first() {
        if b != b'%' {
            text.push(b);
            rest = after;
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        text.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    Some(text)
}

/// The value of the attribute; `None` if nothing is set.
pub fn value(LinkFacts { ownership, text }: &LinkFacts) -> Option<NewValue> {
    let words = [
        ownership.mode.map(|mode| format!("mode={mode:04o}")),
        ownership.uid.map(|uid| format!("uid={uid}")),
        ownership.gid.map(|gid| format!("gid={gid}")),
        text.as_ref().map(|LinkText { text, path_sum }| format!("text={} path-sum={path_sum:08x}", escape(text))),
    ];
    let value = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let size = u32::try_from(value.len()).ok().filter(|size| *size > 0)?;
    let string = StringType { padding: StringPadding::SpacePadded, charset: CharacterSet::Ascii };
    let datatype = Datatype { size, class: Class::String(string), ..Datatype::byte() };
    Some(NewValue::plain(datatype, Shape::Scalar, value.into_bytes()))
}

/// Errors: `name` is that of the hidden attribute.
pub fn check_name(name: &[u8]) -> Result<()> {
    let reserved = || Error::refused(libc::EPERM, "the attribute holds owner and mode, which chmod and chown set, or the text of a link");
    if is_hidden(name) { Err(reserved()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let owned = |ownership| LinkFacts { ownership, text: None };
        let facts = owned(Ownership { mode: Some(0o4755), uid: Some(u32::MAX), gid: Some(0) });
        assert_eq!(value(&facts).unwrap().form, b"mode=4755 uid=4294967295 gid=0");
        assert_eq!(parse(b"mode=4755 uid=4294967295 gid=0"), facts);
        assert_eq!(parse(b"gid=7  \0\0"), owned(Ownership { gid: Some(7), ..Ownership::default() }));
        assert_eq!(value(&LinkFacts::default()), None);
    }

    #[test]
    fn texts_of_links_are_read_as_they_were_written() {
        let long = [&[0xff; 4094][..], b"/"].concat();
        for text in [&b"../c"[..], b" 100% %41=\n\x7f\xc3\xbc", &long] {
            let facts = LinkFacts { ownership: Ownership { uid: Some(7), ..Ownership::default() }, text: Some(LinkText::new(text, b"/c")) };
            let form = value(&facts).unwrap().form;
            assert!(form.is_ascii() && form.len() <= VALUE_MAX);
            assert_eq!(parse(&form), facts);
        }
        assert_eq!(escape(b"../a b%"), "../a%20b%25");
    }

    #[test]
    fn words_without_meaning_are_ignored() {
        for text in [&b"mode=77777 uid=-1 gid=99999999999"[..], b"mode=9 uid= gid", b"\xff=1 acl=rw", b""] {
            assert_eq!(parse(text), LinkFacts::default());
        }
        for text in
            [&b"text=../c"[..], b"path-sum=1", b"text=%4 path-sum=1", b"text=%G1 path-sum=1", b"text=a path-sum=100000000", b"text=%"]
        {
            assert_eq!(parse(text).text, None);
        }
    }
}
