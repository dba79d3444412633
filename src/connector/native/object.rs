//! An object of a file: its header's messages with shared ones followed, and what they say.

use super::file::HdfFile;
use crate::base::datatype::Datatype;
use crate::base::{Address, Error, Result};
use crate::connector::{ObjectInfo, ObjectKind, Ownership};
use crate::format::message::dataspace::Dataspace;
use crate::format::message::datatype;
use crate::format::message::link::{Link, LinkMessage};
use crate::format::message::link_info::LinkInfo;
use crate::format::message::symbol_table::SymbolTable;
use crate::format::message::times;
use crate::format::object_header::{SharedMessage, flag, kind};
use crate::format::{Reader, object_header::Message};
use crate::meta::ObjectHeader;
use crate::structures::group::GroupStorage;
use std::borrow::Cow;
use std::sync::Arc;

/// An open object.
#[derive(Clone)]
pub struct Object {
    /// Its file.
    pub file: Arc<HdfFile>,
    /// Its header.
    pub header: Arc<ObjectHeader>,
}

impl Object {
    /// Opens the object at `address`.
    pub fn open(file: &Arc<HdfFile>, address: Address) -> Result<Object> {
        Ok(Object { file: file.clone(), header: ObjectHeader::cached(&file.store, address)? })
    }

    fn address(&self) -> Address {
        self.header.address
    }

    /// Kind, links and times.
    pub fn info(&self) -> ObjectInfo {
        let has = |k| self.header.find(k).is_some();
        let kind = if has(kind::SYMBOL_TABLE) || has(kind::LINK_INFO) {
            ObjectKind::Group
        } else if has(kind::DATATYPE) && has(kind::DATASPACE) {
            ObjectKind::Dataset
        } else if has(kind::DATATYPE) {
            ObjectKind::Datatype
        } else {
            ObjectKind::Unknown
        };
        ObjectInfo { kind, links: self.header.links(), times: self.times(), ownership: Ownership::default() }
    }

    fn times(&self) -> [Option<u32>; 4] {
        if let Some(t) = self.header.prefix.times {
            return t.map(|t| (t != 0).then_some(t));
        }
        let at = self.address();
        let new = self.header.find(kind::MTIME).and_then(|m| times::decode(&m.body, at).ok());
        let old = || self.header.find(kind::MTIME_OLD).and_then(|m| times::decode_old(&m.body, at).ok());
        [None, new.or_else(old), None, None]
    }

    /// Body of the first message of type `kind`, a shared one followed.
    pub fn message(&self, kind: u16) -> Result<Option<Cow<'_, [u8]>>> {
        self.header.find(kind).map(|m| self.body(m)).transpose()
    }

    /// Body of message `m`, a shared one followed.
    pub fn body<'a>(&'a self, m: &'a Message) -> Result<Cow<'a, [u8]>> {
        if m.flags & flag::SHARED == 0 {
            return Ok(Cow::Borrowed(&m.body));
        }
        self.shared(m.kind, &m.body).map(Cow::Owned)
    }

    /// The message of type `kind` that the shared-message reference `body` means.
    pub fn shared(&self, kind: u16, body: &[u8]) -> Result<Vec<u8>> {
        let store = &self.file.store;
        let mut r = Reader::new(body, "shared message", self.address());
        match SharedMessage::decode(&mut r, store.ctx())? {
            SharedMessage::Heap(id) => self.shared_in_heap(kind, &id),
            SharedMessage::Object(address) => {
                let other = ObjectHeader::cached(store, address)?;
                let m = other.find(kind);
                let m =
                    m.ok_or_else(|| Error::corrupt("shared message", address, format!("the object has no message of type {kind:#x}")))?;
                if m.flags & flag::SHARED == 0 {
                    return Ok(m.body.clone());
                }
                // A committed datatype may itself lie in the shared-message heap, but no further.
                let mut r = Reader::new(&m.body, "shared message", address);
                match SharedMessage::decode(&mut r, store.ctx())? {
                    SharedMessage::Heap(id) => self.shared_in_heap(kind, &id),
                    SharedMessage::Object(_) => Err(Error::corrupt("shared message", address, "leads to another shared message")),
                }
            }
        }
    }

    /// The message of type `kind` with heap identifier `id`.
    pub fn shared_in_heap(&self, kind: u16, id: &[u8; 8]) -> Result<Vec<u8>> {
        let table = self.file.shared.as_ref();
        let table = table.ok_or_else(|| Error::corrupt("shared message", self.address(), "the file has no shared message table"))?;
        table.message(&self.file.store, kind, id)
    }

    /// The object's datatype.
    pub fn datatype(&self) -> Result<Datatype> {
        let body = self.message(kind::DATATYPE)?.ok_or_else(|| self.lacks("datatype"))?;
        datatype::decode(&mut Reader::new(&body, "datatype message", self.address()))
    }

    /// The object's dataspace.
    pub fn dataspace(&self) -> Result<Dataspace> {
        let body = self.message(kind::DATASPACE)?.ok_or_else(|| self.lacks("dataspace"))?;
        Dataspace::decode(&body, self.file.store.ctx(), self.address())
    }

    /// An error: the header has no message of that name.
    pub fn lacks(&self, what: &str) -> Error {
        Error::corrupt("object header", self.address(), format!("there is no {what} message"))
    }

    /// Where the links of this group lie.
    pub fn group_storage(&self) -> Result<GroupStorage> {
        let ctx = self.file.store.ctx();
        if let Some(body) = self.message(kind::LINK_INFO)? {
            let info = LinkInfo::decode(&body, ctx, self.address())?;
            if info.is_dense() {
                return Ok(GroupStorage::Dense {
                    fractal_heap: info.fractal_heap,
                    name_index: info.name_index,
                    creation_index: info.creation_index.unwrap_or(Address::UNDEF),
                });
            }
            return Ok(GroupStorage::Compact(self.compact_links()));
        }
        if let Some(body) = self.message(kind::SYMBOL_TABLE)? {
            let table = SymbolTable::decode(&body, ctx, self.address())?;
            return Ok(GroupStorage::SymbolTable { btree: table.btree, heap: table.heap });
        }
        Err(Error::corrupt("object header", self.address(), "the object is not a group"))
    }

    /// True for a group that tracks the creation order of its links.
    pub fn tracks_links(&self) -> Result<bool> {
        let Some(body) = self.message(kind::LINK_INFO)? else { return Ok(false) };
        Ok(LinkInfo::decode(&body, self.file.store.ctx(), self.address())?.max_creation_order.is_some())
    }

    /// Link messages of a compact group; a damaged one is skipped with a log line.
    fn compact_links(&self) -> Vec<Link> {
        let links = self.link_messages().filter_map(|link| match link {
            Ok(link) => Some(link),
            Err(e) => {
                tracing::warn!("{e}");
                None
            }
        });
        links.collect()
    }

    /// Links of the header's link messages.
    pub fn link_messages(&self) -> impl Iterator<Item = Result<Link>> {
        let at = self.address();
        let decode = move |m: &Message| LinkMessage::decode(&self.body(m)?, self.file.store.ctx(), at)?.into_link(at);
        self.header.all(kind::LINK).map(decode)
    }
}
