//! References of fsspec (version 1): documents of Zarr version 2, and where chunks are in a file.
//!
//! | chunk | reference |
//! |---|---|
//! | stored by all filters, which are codecs | URL, first byte, length |
//! | of a contiguous dataset | URL, first byte, length |
//! | of at most 512 bytes, or stored otherwise | its bytes as base64 |
//! | of a dataset that has no other ones, of at most 16 MiB | its bytes as base64 |
//!
//! Arrays that would need more base64 are left out, and objects of other files. `.zmetadata` has
//! all documents once more: zarr-python finds no arrays in groups of references without it.

use super::ZarrFormat;
use super::array::ZarrArray;
use super::chunk::ChunkBytes;
use super::dtype::{Kind, base64_text};
use super::metadata::{array_document, attributes_document, group_document};
use super::phony::PhonyDimensions;
use super::walk::{Node, NodeName, Walk};
use crate::base::{Error, Result};
use crate::connector::stored::MOVED_CHUNK_MAX_BYTES;
use crate::connector::{Connector, ObjectId};
use crate::present::json::write_string;
use std::sync::{Arc, OnceLock};

/// Chunks that are not longer are in the text.
const SHORT_CHUNK_BYTES: u64 = 512;
/// Most bytes of an array whose chunks cannot be referred to.
const INLINE_ARRAY_BYTES_MAX: u64 = 16 << 20;
/// Most chunks of an array all of whose chunks are there, also those that were never written.
const SHOWN_CHUNKS_MAX: u64 = 1 << 16;
/// Most bytes of all documents in `.zmetadata`.
const CONSOLIDATED_BYTES_MAX: usize = 16 << 20;
/// Bytes of a piece of the text, about.
const PIECE_BYTES: usize = 64 << 10;

/// What a text lacks: the path of an object, and why.
pub struct LeftOut {
    /// Path of the object, without a slash in front.
    pub path: Vec<u8>,
    /// Why, in words.
    pub reason: String,
    /// It could not be read, or its elements cannot be referred to; else it is nothing that Zarr
    /// has.
    pub is_failure: bool,
}

/// An array whose chunks are being written.
struct Current {
    path: Vec<u8>,
    array: Box<ZarrArray>,
    /// The next chunk to write; `None`: all are written.
    next: Option<Vec<u64>>,
}

/// The text of the references of a group, made piece by piece.
pub struct References {
    connector: Arc<dyn Connector>,
    url: Vec<u8>,
    walk: Walk,
    phony: OnceLock<Arc<PhonyDimensions>>,
    current: Option<Current>,
    is_first: bool,
    /// The documents so far, as members of an object; `None`: they are too long.
    documents: Option<Vec<u8>>,
    ended: bool,
    /// What was left out since it was looked at.
    pub left_out: Vec<LeftOut>,
}

/// Where the bytes of a chunk are.
enum Place {
    File { offset: u64, len: u64 },
    Bytes(Vec<u8>),
}

impl References {
    /// Those of `group`, whose file is called `url`.
    pub fn new(connector: Arc<dyn Connector>, group: ObjectId, url: Vec<u8>, name: NodeName) -> References {
        let walk = Walk::new(connector.clone(), group, ZarrFormat::V2, name, true);
        References {
            connector,
            url,
            walk,
            phony: OnceLock::new(),
            current: None,
            is_first: true,
            documents: Some(Vec::new()),
            ended: false,
            left_out: Vec::new(),
        }
    }

    /// The next piece of the text; `None`: it ended.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>> {
        if self.ended {
            return Ok(None);
        }
        let mut out = Vec::new();
        if self.is_first {
            out.extend_from_slice(b"{\"version\":1,\"refs\":{");
        }
        while out.len() < PIECE_BYTES {
            if let Some(current) = self.current.take() {
                self.chunk(current, &mut out)?;
                continue;
            }
            match self.walk.next()? {
                None => {
                    if let Some(all) = self.documents.take() {
                        let text = [b"{\"zarr_consolidated_format\":1,\"metadata\":{", all.as_slice(), b"}}"].concat();
                        self.member(b"", b".zmetadata", &mut out);
                        write_string(&text, &mut out);
                    }
                    out.extend_from_slice(b"\n}}\n");
                    self.ended = true;
                    break;
                }
                Some(Node::Group(path, id)) => {
                    let documents = group_document(&*self.connector, id, ZarrFormat::V2)
                        .and_then(|group| Ok((group, attributes_document(&*self.connector, id, None, &|| None)?)));
                    match documents {
                        Ok((group, attributes)) => {
                            self.document(&path, b".zgroup", &group, &mut out);
                            self.document(&path, b".zattrs", &attributes, &mut out);
                        }
                        Err(e) => self.lose(&path, e.to_string(), true),
                    }
                }
                Some(Node::Array(path, array)) => self.array(path, array, &mut out),
                Some(Node::Left(path, reason)) => self.lose(&path, reason, false),
                Some(Node::Damaged(path, e)) => self.lose(&path, e.to_string(), true),
            }
        }
        Ok(Some(out))
    }

    fn lose(&mut self, path: &[u8], reason: String, is_failure: bool) {
        let path = path.strip_suffix(b"/").unwrap_or(path).to_vec();
        self.left_out.push(LeftOut { path, reason, is_failure });
    }

    /// Appends the name of a member.
    fn member(&mut self, path: &[u8], name: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(if self.is_first { b"\n" } else { b",\n" });
        self.is_first = false;
        write_string(&[path, name].concat(), out);
        out.push(b':');
    }

    fn document(&mut self, path: &[u8], name: &[u8], text: &[u8], out: &mut Vec<u8>) {
        let text = text.trim_ascii_end();
        self.member(path, name, out);
        write_string(text, out);
        if let Some(all) = &mut self.documents {
            all.extend_from_slice(if all.is_empty() { b"" } else { b"," });
            write_string(&[path, name].concat(), all);
            all.push(b':');
            all.extend_from_slice(text);
        }
        self.documents.take_if(|all| all.len() > CONSOLIDATED_BYTES_MAX);
    }

    /// Begins an array.
    fn array(&mut self, path: Vec<u8>, mut array: Box<ZarrArray>, out: &mut Vec<u8>) {
        let chunks = array.grid.counts().iter().fold(1u64, |n, count| n.saturating_mul(*count));
        if chunks > SHOWN_CHUNKS_MAX && array.shows_all() {
            array.show_written();
        }
        let phony = || Some(self.phony.get_or_init(|| Arc::new(PhonyDimensions::of(&*self.connector))).clone());
        let documents = || {
            let reason = "its chunks cannot be referred to, and it is too large for base64";
            if !array.is_referable() && !array.is_short()? {
                return Err(Error::refused(libc::EFBIG, reason));
            }
            let attributes = attributes_document(&*self.connector, array.id, Some(&array), &phony)?;
            Ok((array_document(&array, &phony)?, attributes, array.next_chunk(&vec![0; array.rank()])?))
        };
        match documents() {
            Ok((document, attributes, next)) => {
                self.document(&path, b".zarray", &document, out);
                self.document(&path, b".zattrs", &attributes, out);
                self.current = Some(Current { path, array, next });
            }
            Err(e) => self.lose(&path, e.to_string(), true),
        }
    }

    /// Writes the reference of the next chunk of an array; keeps the array if more chunks follow.
    fn chunk(&mut self, mut current: Current, out: &mut Vec<u8>) -> Result<()> {
        let Some(chunk) = current.next.take() else { return Ok(()) };
        let name = match chunk.is_empty() {
            true => "0".to_owned(),
            false => chunk.iter().map(u64::to_string).collect::<Vec<_>>().join("."),
        };
        let done = current.array.place(&chunk).and_then(|place| {
            let after = current.array.number_of(&chunk).and_then(|n| current.array.chunk_at(n.checked_add(1)?));
            Ok((place, after.map(|after| current.array.next_chunk(&after)).transpose()?.flatten()))
        });
        let (place, next) = match done {
            Ok(done) => done,
            Err(e) => {
                self.lose(&current.path, format!("chunk {name}: {e}"), true);
                return Ok(());
            }
        };
        if let Some(place) = place {
            self.member(&current.path, name.as_bytes(), out);
            match place {
                Place::File { offset, len } => {
                    out.push(b'[');
                    write_string(&self.url, out);
                    out.extend_from_slice(format!(",{offset},{len}]").as_bytes());
                }
                Place::Bytes(bytes) => write_string(format!("base64:{}", base64_text(&bytes)).as_bytes(), out),
            }
        }
        current.next = next;
        self.current = Some(current);
        Ok(())
    }
}

impl ZarrArray {
    /// True if its chunks can be referred to, but for some.
    fn is_referable(&self) -> bool {
        self.codecs.is_some() || self.contiguous_at().is_some()
    }

    /// True if all of it may be in the text.
    fn is_short(&self) -> Result<bool> {
        let elements = self.info.shape.count().unwrap_or(u64::MAX);
        if self.dtype.kind != Kind::Text {
            return Ok(elements.saturating_mul(self.element_size()) <= INLINE_ARRAY_BYTES_MAX);
        }
        let (mut sum, mut next) = (elements.saturating_mul(4), self.next_chunk(&vec![0; self.rank()])?);
        while let Some(chunk) = next.filter(|_| sum <= INLINE_ARRAY_BYTES_MAX) {
            if let Some(ChunkBytes::Made(bytes)) = self.chunk(&chunk)? {
                sum = sum.saturating_add(bytes.len() as u64);
            }
            let after = self.number_of(&chunk).and_then(|n| self.chunk_at(n.checked_add(1)?));
            next = after.map(|after| self.next_chunk(&after)).transpose()?.flatten();
        }
        Ok(sum <= INLINE_ARRAY_BYTES_MAX)
    }

    /// Where the bytes of a chunk are; `None`: there is no such chunk.
    fn place(&self, chunk: &[u64]) -> Result<Option<Place>> {
        let len = match self.chunk(chunk)? {
            None => return Ok(None),
            Some(ChunkBytes::Made(bytes)) => return Ok(Some(Place::Bytes(bytes))),
            Some(ChunkBytes::Readable(len)) => len,
        };
        if len > SHORT_CHUNK_BYTES
            && let Some(offset) = self.offset_of(chunk)?
        {
            return Ok(Some(Place::File { offset, len }));
        }
        let most = MOVED_CHUNK_MAX_BYTES.min(INLINE_ARRAY_BYTES_MAX);
        let limit = || Error::refused(libc::EFBIG, "it is too large for base64");
        let mut bytes = vec![0; usize::try_from(len).ok().filter(|n| *n as u64 <= most).ok_or_else(limit)?];
        let n = self.read(chunk, 0, &mut bytes)?;
        bytes.truncate(n);
        Ok(Some(Place::Bytes(bytes)))
    }
}
