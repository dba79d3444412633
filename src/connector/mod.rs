//! The container model in VOL terms: what the file system talks to.
//!
//! A container holds objects (groups, datasets, named datatypes); groups hold links; objects hold
//! attributes. [`native`] implements it for HDF5 files, [`memory`] for tests.

pub mod edit;
pub mod memory;
mod memory_edit;
pub mod native;

use crate::base::{Address, Error};
use crate::dataset::environment::Environment;
use crate::dataset::storage::Seek;
pub use crate::file::Status;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Result of a connector operation.
pub type Result<T> = crate::base::Result<T, Error>;

/// An object of a container: file number (0 = the mounted one) and object header address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// Number of the file within the connector.
    pub file: u32,
    /// Address of the object header.
    pub address: Address,
}

/// Kinds of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// Holds links.
    Group,
    /// Holds elements.
    Dataset,
    /// A named (committed) datatype.
    Datatype,
    /// An object whose header is of no known kind.
    Unknown,
}

/// What an object's header says.
#[derive(Debug, Clone, Copy)]
pub struct ObjectInfo {
    /// Kind of object.
    pub kind: ObjectKind,
    /// Hard links to it.
    pub links: u32,
    /// Seconds since 1970: access, modification, change, birth; `None` = not recorded.
    pub times: [Option<u32>; 4],
}

/// Where a link leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkTarget {
    /// To an object of the same file.
    Hard(ObjectId),
    /// To a path in the same file.
    Soft(Vec<u8>),
    /// To a path in another file.
    External {
        /// File name as stored.
        file: Vec<u8>,
        /// Path in that file.
        object: Vec<u8>,
    },
    /// Of a class this connector does not know.
    UserDefined(u8),
}

/// A named link of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Name, any bytes.
    pub name: Vec<u8>,
    /// Where it leads.
    pub target: LinkTarget,
}

/// Byte forms of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Lines for an array of variable-length strings, else exact.
    Main,
    /// Fixed parts verbatim, variable-length parts as u32 count and elements.
    Exact,
}

/// Shape and storage facts of a dataset or attribute, ready to be shown.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Name (without `user.h5dir.`) and text.
    pub items: Vec<(&'static str, Vec<u8>)>,
}

/// Names of an object's attributes, any bytes, ascending.
pub type AttributeNames = Arc<[Vec<u8>]>;

/// Bytes that can be read at offsets: a dataset in one of its forms.
pub trait Content: Send + Sync {
    /// Size, bytes. May cost a pass over the elements the first time.
    fn size(&self) -> Result<u64>;
    /// Fills the front of `buf`; fewer bytes only at the end.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Fills `buf` with what bytes from `offset` on, behind the end, would be if the content grew. False when they would be zeros.
    fn beyond(&self, _offset: u64, _buf: &mut [u8]) -> bool {
        false
    }
    /// Bytes of storage allocated.
    fn allocated(&self) -> Result<u64>;
    /// Preferred I/O size, bytes.
    fn block_size(&self) -> u32;
    /// Next data or hole at or after `offset`; `None` = no more data.
    fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>>;
    /// Hints that a sequential reader is at byte `at`; up to byte `from` this was acted on before. Returns up
    /// to where it is now.
    fn read_ahead(&self, at: u64, from: u64) -> u64;
}

/// What the chunks view shows of a dataset.
pub trait Chunks: Send + Sync {
    /// Rank: coordinates per chunk name.
    fn rank(&self) -> usize;
    /// Stored bytes of the chunk; `None` = not allocated.
    fn stored_len(&self, scaled: &[u64]) -> Result<Option<u64>>;
    /// Fills the front of `buf` with stored bytes.
    fn read(&self, scaled: &[u64], offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Allocated chunks from position `start` (0 = first): coordinates, stored bytes, next position.
    fn list(&self, start: u64, f: &mut dyn FnMut(&[u64], u64, u64) -> ControlFlow<()>) -> Result<()>;
}

/// A container that others may change while it is read. What was obtained of it (content, chunks) stays that of the state it was
/// obtained in; whoever keeps such things obtains them again when the state is another.
pub trait Follow: Send + Sync {
    /// Number of the state that is shown.
    fn state(&self) -> u64;
    /// Looks whether the container was changed and, if it was and can be read, shows its new state; returns whether it does.
    /// `failed`: something could not be read, and so a change that was under way just now counts as well.
    fn look(&self, failed: bool) -> bool;
    /// True if what was just read of the state shown belongs to it: its file was not changed since, or by a writer that leaves alone
    /// what the state refers to.
    fn is_intact(&self) -> bool;
    /// The group that is mounted, and what the backing file was like when the state was read.
    fn mounted(&self) -> (ObjectId, Status);
}

/// Read access to a container.
pub trait Connector: Send + Sync {
    /// The root group.
    fn root(&self) -> ObjectId;
    /// What all datasets share.
    fn environment(&self) -> Arc<Environment>;
    /// Kind, links and times of an object.
    fn info(&self, id: ObjectId) -> Result<ObjectInfo>;
    /// The link `name` of a group.
    fn lookup(&self, group: ObjectId, name: &[u8]) -> Result<Option<Link>>;
    /// Links of a group from position `start` (0 = first), each with the position after it.
    fn list(&self, group: ObjectId, start: u64, f: &mut dyn FnMut(Link, u64) -> ControlFlow<()>) -> Result<()>;
    /// What an external link of file `from` leads to; `None` = nothing that may be shown.
    fn external(&self, from: u32, file: &[u8], object: &[u8]) -> Result<Option<ObjectId>>;
    /// The object at `path` from `start`, soft and external links followed.
    fn resolve(&self, start: ObjectId, path: &[u8]) -> Result<Option<ObjectId>>;
    /// A dataset's bytes.
    fn content(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>>;
    /// A dataset's bytes for one look at their size: not kept open where opening it again costs little.
    fn glance(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>> {
        self.content(id, form)
    }
    /// A dataset's `.npy` header; `None` = no numpy notation.
    fn npy_header(&self, id: ObjectId) -> Result<Option<Vec<u8>>>;
    /// A dataset's stored chunks; `None` = not chunked.
    fn chunks(&self, id: ObjectId) -> Result<Option<Arc<dyn Chunks>>>;
    /// Description of a named datatype.
    fn datatype_text(&self, id: ObjectId) -> Result<Vec<u8>>;
    /// Names of an object's attributes.
    fn attributes(&self, id: ObjectId) -> Result<AttributeNames>;
    /// Text value of an attribute; `None` = no such attribute.
    fn attribute_text(&self, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Raw bytes of an attribute's value (variable-length parts in exact form).
    fn attribute_raw(&self, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Names of the derived facts an object has.
    fn fact_names(&self, id: ObjectId) -> Result<Vec<Cow<'static, str>>>;
    /// Text of a derived fact.
    fn fact(&self, id: ObjectId, name: &str) -> Result<Option<Vec<u8>>>;
    /// True when the fact is there and has at most `most` bytes. May cost less than its text.
    fn fact_fits(&self, id: ObjectId, name: &str, most: usize) -> Result<bool> {
        Ok(self.fact(id, name)?.is_some_and(|text| text.len() <= most))
    }
    /// True when the text of an attribute has at most `most` bytes. May cost less than the text.
    fn attribute_fits(&self, id: ObjectId, name: &[u8], most: usize) -> Result<bool> {
        match self.attribute_text(id, name) {
            Err(Error::Limit { .. }) => Ok(false),
            text => Ok(text?.is_none_or(|text| text.len() <= most)),
        }
    }
    /// How changes by others are followed; `None` = they are not.
    fn follow(&self) -> Option<&dyn Follow> {
        None
    }
    /// How the container is changed; `None` = it was opened for reading only.
    fn edit(&self) -> Option<&dyn edit::Edit> {
        None
    }
}
