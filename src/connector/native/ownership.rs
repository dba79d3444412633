//! Owner, group and mode of an object or a link of an HDF5 file: one attribute.
//!
//! The attribute `_h5dir_posix` is a scalar string of fixed length, space-padded ASCII, with a word
//! for each property that was set: `mode=0755 uid=1000 gid=1000`. Unknown words are ignored. That
//! of a soft or external link is the attribute `_h5dir_posix:NAME` of its group. The connector
//! hides both from the other attributes.

use super::attribute;
use super::object::Object;
use crate::base::datatype::{CharacterSet, Class, Datatype, StringPadding, StringType};
use crate::base::shape::Shape;
use crate::base::{Error, Result};
use crate::connector::{NewValue, Ownership};

/// Name of the attribute.
pub const NAME: &[u8] = b"_h5dir_posix";
/// What the names of attributes of links start with.
const LINK_PREFIX: &[u8] = b"_h5dir_posix:";
/// Permission bits.
const MODE_MAX: u16 = 0o7777;
/// Longest value that is read, bytes.
const TEXT_MAX: usize = 256;

/// Owner, group and mode of `object`. An attribute that cannot be read sets nothing.
pub fn of(object: &Object) -> Ownership {
    read(object, NAME)
}

/// Owner and group of the link `name` of `group`.
pub fn of_link(group: &Object, name: &[u8]) -> Ownership {
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

fn read(object: &Object, attribute: &[u8]) -> Ownership {
    let found = attribute::find(object, attribute).and_then(|a| a.map(|a| a.value).transpose());
    match found {
        Ok(Some(value)) if value.shape == Shape::Scalar => parse(value.bytes.get(..TEXT_MAX).unwrap_or(&value.bytes)),
        Ok(_) => Ownership::default(),
        Err(e) => {
            tracing::debug!("owner and mode are not read: {e}");
            Ownership::default()
        }
    }
}

fn parse(text: &[u8]) -> Ownership {
    let text = String::from_utf8_lossy(text);
    let mut ownership = Ownership::default();
    for word in text.split([' ', '\0']) {
        match word.split_once('=') {
            Some(("mode", mode)) => ownership.mode = u16::from_str_radix(mode, 8).ok().filter(|m| *m <= MODE_MAX),
            Some(("uid", uid)) => ownership.uid = uid.parse().ok(),
            Some(("gid", gid)) => ownership.gid = gid.parse().ok(),
            _ => {}
        }
    }
    ownership
}

/// The value of the attribute; `None` if nothing is set.
pub fn value(ownership: &Ownership) -> Option<NewValue> {
    let words = [
        ownership.mode.map(|mode| format!("mode={mode:04o}")),
        ownership.uid.map(|uid| format!("uid={uid}")),
        ownership.gid.map(|gid| format!("gid={gid}")),
    ];
    let text = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let size = u32::try_from(text.len()).ok().filter(|size| *size > 0)?;
    let string = StringType { padding: StringPadding::SpacePadded, charset: CharacterSet::Ascii };
    let datatype = Datatype { size, class: Class::String(string), ..Datatype::byte() };
    Some(NewValue::plain(datatype, Shape::Scalar, text.into_bytes()))
}

/// Errors: `name` is that of the hidden attribute.
pub fn check_name(name: &[u8]) -> Result<()> {
    let reserved = || Error::refused(libc::EPERM, "the attribute holds owner and mode: chmod and chown set it");
    if is_hidden(name) { Err(reserved()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let ownership = Ownership { mode: Some(0o4755), uid: Some(u32::MAX), gid: Some(0) };
        assert_eq!(value(&ownership).unwrap().form, b"mode=4755 uid=4294967295 gid=0");
        assert_eq!(parse(b"mode=4755 uid=4294967295 gid=0"), ownership);
        assert_eq!(parse(b"gid=7  \0\0"), Ownership { gid: Some(7), ..Ownership::default() });
        assert_eq!(value(&Ownership::default()), None);
    }

    #[test]
    fn words_without_meaning_are_ignored() {
        for text in [&b"mode=77777 uid=-1 gid=99999999999"[..], b"mode=9 uid= gid", b"\xff=1 acl=rw", b""] {
            assert_eq!(parse(text), Ownership::default());
        }
    }
}
