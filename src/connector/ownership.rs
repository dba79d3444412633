//! Owner, group and mode of an object; owner, group and text of a link.

use crate::base::checksum::lookup3;

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

/// Owner, group and text of a soft or external link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkFacts {
    /// Owner and group; no mode.
    pub ownership: Ownership,
    /// Text of the symbolic link that a soft link was made of.
    pub text: Option<LinkText>,
}

/// Text of a symbolic link, and the checksum of the path that its soft link had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkText {
    /// The text as symlink(2) takes it.
    pub text: Vec<u8>,
    /// Checksum (lookup3) of the path. Another program may give the link another path.
    pub path_sum: u32,
}

impl LinkText {
    /// The text of a soft link to `path`.
    pub fn new(text: &[u8], path: &[u8]) -> Self {
        LinkText { text: text.to_vec(), path_sum: lookup3(path, 0) }
    }

    /// The text, if the soft link has the path that it was stored with.
    pub fn of(self, path: &[u8]) -> Option<Vec<u8>> {
        (self.path_sum == lookup3(path, 0)).then_some(self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_belongs_to_one_path() {
        let text = LinkText::new(b"../c", b"/c");
        assert_eq!(text.clone().of(b"/c"), Some(b"../c".to_vec()));
        assert_eq!(text.of(b"/d"), None);
    }
}
