//! The container model in VOL terms: what the file system talks to.
//!
//! A container holds objects (groups, datasets, named datatypes); groups hold links; objects hold
//! attributes. [`native`] implements it for HDF5 files, [`memory`] for tests.

pub(crate) mod bytes_file;
pub mod check;
pub(crate) mod defined;
pub mod edit;
pub(crate) mod errors;
pub mod exchange;
mod extent;
mod id;
mod info;
pub mod iod;
pub mod kinds;
pub mod log;
pub mod maps;
pub mod memory;
mod memory_edit;
mod memory_map;
mod memory_maps;
mod memory_value;
pub mod native;
pub mod new_file;
pub mod open;
mod ownership;
pub(crate) mod plan;
pub mod salvage;
pub mod shared;
pub mod space;
mod spec;
pub mod stored;
pub mod transactions;
pub mod versions;

pub use crate::base::datatype::Datatype;
pub use crate::base::element_set::ElementSet;
pub use crate::base::fill::Fill;
pub use crate::base::filter_spec::FilterSpec;
pub use crate::base::hyperslab::HyperslabDim;
pub use crate::base::newlines::Newlines;
pub use crate::base::parts::{Budget, Limited, Part, Parts, Region, Target};
pub use crate::base::shape::Shape;
pub use crate::base::value::{Elements, NewAttribute, NewValue, Value};
pub use id::ObjectId;
pub use info::{DatasetInfo, ExternalSegment};
pub use memory_map::MemoryMap;
pub use memory_value::MemoryValue;
pub use ownership::{LinkFacts, LinkText, Ownership};
pub use spec::{ChunksSpec, DatasetSpec, FillSpec, elsewhere_layout};

use crate::base::Error;
pub(crate) use crate::dataset::create::usual_fill_time;
pub use crate::dataset::elsewhere::{Elsewhere, SourceMapping};
pub use crate::dataset::layout::{Seek, Segment};
pub use crate::format::property_list::{LinkProperties, ObjectProperties};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Registered filters.
pub mod filters {
    pub use crate::filter::registry::{DEFLATE, FLETCHER32, RESERVED, encoder, id_of, name_of, registered_name};
}

/// Result of a connector operation.
pub type Result<T> = crate::base::Result<T, Error>;

/// Kinds of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// Holds links.
    Group,
    /// Holds elements.
    Dataset,
    /// A named (committed) datatype.
    Datatype,
    /// Holds pairs of a key and a value.
    Map,
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
    /// Owner, group and mode.
    pub ownership: Ownership,
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

/// Names of an object's attributes, any bytes, ascending.
pub type AttributeNames = Arc<[Vec<u8>]>;

/// Largest element with a fill value other than zero whose unwritten ranges are known, bytes.
pub const FILL_BYTES_MAX: u64 = 64 << 10;

/// Bytes that can be read at offsets: a dataset in one of its forms.
pub trait Content: Send + Sync {
    /// Does a part of the long work that [`Content::size`] and [`Content::read`] begin with. True:
    /// nothing of it is left. A caller with a lock releases it between the parts.
    fn prepare(&self) -> bool {
        true
    }
    /// Size, bytes. May cost a pass over the elements the first time.
    fn size(&self) -> Result<u64>;
    /// Fills the front of `buf`; fewer bytes only at the end.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Fills `buf` with what bytes from `offset` on, past the end, would be if the content grew.
    /// False when they would be zeros.
    fn beyond(&self, _offset: u64, _buf: &mut [u8]) -> bool {
        false
    }
    /// Bytes of storage allocated; an estimate if the exact number would take long.
    fn allocated(&self) -> Result<u64>;
    /// Bytes of storage allocated, exact.
    fn allocated_exactly(&self) -> Result<u64> {
        self.allocated()
    }
    /// Preferred I/O size, bytes.
    fn block_size(&self) -> u32;
    /// Next data or hole at or after `offset`; `None` = no more data.
    fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>>;
    /// The next range at or after `offset` whose elements may have been written. Those outside have
    /// the fill value, repeated at most every [`FILL_BYTES_MAX`] bytes. `None`: none follows.
    fn written(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let Some(start) = self.seek(offset, Seek::Data)? else { return Ok(None) };
        let end = self.seek(start, Seek::Hole)?.unwrap_or(start);
        Ok((start < end).then_some(start..end))
    }
    /// Hints that a sequential reader is at byte `at`; up to byte `from` this was acted on before.
    /// Returns up to where it is now.
    fn read_ahead(&self, at: u64, from: u64) -> u64;
}

/// Where the stored bytes of a chunk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPlace {
    /// Their number.
    pub len: u64,
    /// Bit i set: filter i was not applied. `None`: they are outdated, the chunk was changed since
    /// and is not stored yet.
    pub mask: Option<u32>,
    /// First byte in the file of the dataset, counted from its begin, user block included. `None`:
    /// they are in no such file.
    pub offset: Option<u64>,
}

/// What the chunks view shows of a dataset.
pub trait Chunks: Send + Sync {
    /// Rank: coordinates per chunk name.
    fn rank(&self) -> usize;
    /// Stored bytes of the chunk; `None` = not allocated.
    fn stored_len(&self, scaled: &[u64]) -> Result<Option<u64>>;
    /// Fills the front of `buf` with stored bytes.
    fn read(&self, scaled: &[u64], offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// True if what is stored of a chunk is its elements, the filters applied, and nothing else.
    fn is_portable(&self) -> bool;
    /// Where a chunk is stored; `None` = not allocated. Errors: also more bytes than a chunk can
    /// have, or bytes past the end of the file.
    fn place(&self, scaled: &[u64]) -> Result<Option<ChunkPlace>>;
    /// Coordinates of the first allocated chunk at `scaled` or after it in row-major order.
    fn next(&self, scaled: &[u64]) -> Result<Option<Vec<u64>>>;
    /// Allocated chunks from position `start` (0 = first): coordinates, stored bytes, next
    /// position.
    fn list(&self, start: u64, f: &mut dyn FnMut(&[u64], u64, u64) -> ControlFlow<()>) -> Result<()>;
}

/// A container that others may change while it is read. What was obtained of it (content, chunks)
/// stays that of the state it was obtained in; holders of such objects obtain them again when
/// the state is another.
pub trait Follow: Send + Sync {
    /// Number of the state that is shown.
    fn state(&self) -> u64;
    /// Looks whether the container was changed and, if it was and can be read, shows its new state;
    /// returns whether it does. `failed`: something could not be read, and so a change that was
    /// under way just now counts as well.
    fn look(&self, failed: bool) -> bool;
    /// True if what was just read of the state shown belongs to it: its file was not changed since,
    /// or by a writer that leaves alone what the state refers to.
    fn is_intact(&self) -> bool;
    /// The group that is mounted, and the backing file when the state was read.
    fn mounted(&self) -> (ObjectId, open::Backing);
}

/// Called with what each reference of a dataset names; `None` = it is nil.
pub type TargetVisitor<'a> = dyn FnMut(Option<Target>) -> Result<ControlFlow<()>> + 'a;

/// Read access to a container.
pub trait Connector: Send + Sync {
    /// The root group.
    fn root(&self) -> ObjectId;
    /// Counters of what the container did, by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// Changes the memory for decoded chunks, bytes.
    fn set_cache_bytes(&self, _bytes: u64) {}
    /// The mount ends: nothing that it shows is kept from being removed any more.
    fn end_mount(&self) {}
    /// What the user of a mount should know of the container, in one line.
    fn warning(&self) -> Option<String> {
        None
    }
    /// Kind, links and times of an object.
    fn info(&self, id: ObjectId) -> Result<ObjectInfo>;
    /// Bytes laid out and to be laid out, while the layout of the dataset `id` changes.
    fn layout_progress(&self, _id: ObjectId) -> Option<(u64, u64)> {
        None
    }
    /// Owner, group and text of the soft or external link `name` of `group`.
    fn link_facts(&self, group: ObjectId, name: &[u8]) -> Result<LinkFacts>;
    /// The link `name` of a group.
    fn lookup(&self, group: ObjectId, name: &[u8]) -> Result<Option<Link>>;
    /// Links of a group from position `start` (0 = first), each with the position after it.
    fn list(&self, group: ObjectId, start: u64, f: &mut dyn FnMut(Link, u64) -> ControlFlow<()>) -> Result<()>;
    /// The first damage that was met in lists of the links and attributes of an object: they have
    /// the rest.
    fn damage(&self, _id: ObjectId) -> Option<Error> {
        None
    }
    /// The comment of an object, if it has one.
    fn comment(&self, _id: ObjectId) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    /// Creation properties of an object beside those of its elements.
    fn properties(&self, _id: ObjectId) -> Result<ObjectProperties> {
        Ok(ObjectProperties::default())
    }
    /// Identifiers of the key-value objects that have the metadata and the attributes of an object;
    /// `None`: objects are stored in another way.
    fn auxiliary_objects(&self, _id: ObjectId) -> Result<Option<[u64; 2]>> {
        Ok(None)
    }
    /// Names of the links of a group in the order in which they were created, at most `limit`;
    /// `None` = the group does not track that.
    fn created_links(&self, _group: ObjectId, _limit: usize) -> Result<Option<Vec<Vec<u8>>>> {
        Ok(None)
    }
    /// What an external link of the group `from` leads to; `None` = nothing that may be shown.
    fn external(&self, from: ObjectId, file: &[u8], object: &[u8]) -> Result<Option<ObjectId>>;
    /// The object at `path` from `start`, soft and external links followed.
    fn resolve(&self, start: ObjectId, path: &[u8]) -> Result<Option<ObjectId>>;
    /// A dataset's bytes.
    fn content(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>>;
    /// A dataset's bytes for one look at their size: not kept open where opening it again costs
    /// little.
    fn glance(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>> {
        self.content(id, form)
    }
    /// What a dataset is.
    fn dataset(&self, id: ObjectId) -> Result<DatasetInfo>;
    /// Where the elements of a dataset are, if they are in other files or datasets.
    fn elsewhere(&self, _id: ObjectId) -> Result<Option<Elsewhere>> {
        Ok(None)
    }
    /// True if its datasets can have their elements in other datasets.
    fn takes_mappings(&self) -> bool {
        false
    }
    /// Newlines inside the strings of a dataset that is shown as lines; `None` = they are more than
    /// are described, or there are no lines. May cost a pass over the elements the first time.
    fn newlines(&self, _id: ObjectId) -> Result<Option<Newlines>> {
        Ok(None)
    }
    /// All elements of a dataset, in memory: the caller looks at their size before.
    fn elements(&self, id: ObjectId) -> Result<Value>;
    /// Elements of a dataset that follow one another in row-major order, as a list. The caller
    /// bounds their bytes. Errors: there are fewer.
    fn elements_in(&self, id: ObjectId, elements: Range<u64>) -> Result<Value>;
    /// What the references of a dataset name, from number `first` on, until `f` breaks; see
    /// [`DatasetInfo::references`].
    fn references(&self, id: ObjectId, first: u64, budget: &mut Budget, f: &mut TargetVisitor<'_>) -> Result<()>;
    /// The written elements of a dataset in the block `first .. end` per dimension, in its
    /// coordinates; `None` = it does not know which of its elements were written.
    fn defined(&self, _id: ObjectId, _first: &[u64], _end: &[u64]) -> Result<Option<ElementSet>> {
        Ok(None)
    }
    /// A dataset's stored chunks; `None` = not chunked.
    fn chunks(&self, id: ObjectId) -> Result<Option<Arc<dyn Chunks>>>;
    /// A dataset's chunks in stored form, for another container. `None`: its elements are copied.
    fn stored(&self, _id: ObjectId) -> Result<Option<Arc<dyn stored::StoredChunks>>> {
        Ok(None)
    }
    /// A dataset's elements in stored form, for another container that refers to them where they
    /// are. `None`: they are copied.
    fn referable(&self, _id: ObjectId) -> Result<Option<Arc<dyn stored::StoredChunks>>> {
        Ok(None)
    }
    /// A named datatype.
    fn datatype(&self, id: ObjectId) -> Result<Datatype>;
    /// The named datatype that a dataset, or an attribute of an object, refers to.
    fn named_type(&self, _id: ObjectId, _attribute: Option<&[u8]>) -> Result<Option<ObjectId>> {
        Ok(None)
    }
    /// A path of an object from the root of its file; `None` = it has none, or is not found.
    fn path_of(&self, _id: ObjectId) -> Option<Vec<u8>> {
        None
    }
    /// Absolute path or URL of the one file that has its bytes; `None` = they are in several, or
    /// their name is not known.
    fn location(&self) -> Option<Vec<u8>> {
        None
    }
    /// Bytes by which elements refer to objects and to variable-length parts: 8 but in old files.
    fn reference_bytes(&self) -> u8 {
        8
    }
    /// Names of an object's attributes.
    fn attributes(&self, id: ObjectId) -> Result<AttributeNames>;
    /// An attribute; `None` = no such attribute.
    fn attribute(&self, id: ObjectId, name: &[u8]) -> Result<Option<Value>>;
    /// A number that is raised when others than the mount changed elements: pages that a kernel has
    /// of them may be stale.
    fn changes_by_others(&self) -> u64 {
        0
    }
    /// How changes by others are followed; `None` = they are not.
    fn follow(&self) -> Option<&dyn Follow> {
        None
    }
    /// Accounting of the file's bytes; `None` = they cannot be counted.
    fn space(&self) -> Option<&dyn space::Space> {
        None
    }
    /// Checks of the container; `None` = it cannot be checked.
    fn check(&self) -> Option<&dyn check::Check> {
        None
    }
    /// The log that its datasets are in; `None` = it has none.
    fn log(&self) -> Option<&dyn log::Log> {
        None
    }
    /// Objects found without names; `None` = the container was not opened to be rescued.
    fn salvage(&self) -> Option<&dyn salvage::Salvage> {
        None
    }
    /// Its maps; `None` = it cannot have any.
    fn maps(&self) -> Option<&dyn maps::Maps> {
        None
    }
    /// Its versions; `None` = it has none.
    fn versions(&self) -> Option<&dyn versions::Versions> {
        None
    }
    /// Its transactions of several writers; `None` = it has none.
    fn transactions(&self) -> Option<&dyn transactions::Transactions> {
        None
    }
    /// How the container is changed; `None` = it was opened for reading only.
    fn edit(&self) -> Option<&dyn edit::Edit> {
        None
    }
}
