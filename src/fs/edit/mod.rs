//! Changes of the container: bytes of files, names, and extended attributes.

mod bytes;
mod kept_type;
mod names;
mod soft_links;
mod xattrs;

pub use bytes::ByteEditor;
pub use names::NameEditor;
pub use xattrs::XattrEditor;
