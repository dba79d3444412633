//! `.h5dir` of a mirror: texts about it, and `files`, the tree without containers.

use super::node::{Key, Text, What};

/// Name of the directory.
pub const NAME: &[u8] = b".h5dir";
/// Name of the directory in which containers are files.
pub const FILES: &[u8] = b"files";

/// Texts by name.
pub const TEXTS: [(&[u8], Text); 3] = [(b"log", Text::Log), (b"metrics", Text::Metrics), (b"status", Text::Status)];

/// What identifies the node of the directory.
pub const KEY: Key = Key::Control(0);

/// The text `name`.
pub fn text(name: &[u8]) -> Option<(Key, What)> {
    TEXTS.iter().find(|(n, _)| *n == name).map(|(_, text)| (text.key(), What::Text(*text)))
}
