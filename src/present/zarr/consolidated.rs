//! All documents of a hierarchy in one: `.zmetadata` of version 2, and in version 3 a member of
//! `zarr.json` of the root, as zarr-python writes them.

use super::ZarrFormat;
use super::metadata::{array_document, attributes_document, group_document};
use super::phony::Phony;
use super::walk::{Node, NodeName, Walk};
use crate::base::Result;
use crate::connector::{Connector, ObjectId, Ownership};
use crate::present::json::write_string;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most groups and arrays.
const NODES_MAX: usize = 2000;
/// Most bytes of the document.
const BYTES_MAX: usize = 16 << 20;
/// Longest time in which the documents are made.
const DOCUMENTS_TIMEOUT: Duration = Duration::from_secs(5);
/// Members of a group in version 3 that has no groups and arrays of its own.
const WITHOUT_NODES: &[u8] = b",\"consolidated_metadata\":{\"kind\":\"inline\",\"must_understand\":false,\"metadata\":{}}}";

/// `.zmetadata` of the hierarchy of `group`, or its `zarr.json` with the documents of all others.
/// `None`: it would have more than 2,000 groups and arrays or 16 MiB, or take more than 5 s.
/// In version 3 also: an object has an owner or a mode of its own, which the document would not
/// have.
pub fn consolidated_document(
    connector: &Arc<dyn Connector>,
    group: ObjectId,
    format: ZarrFormat,
    name: NodeName,
    phony: Phony<'_>,
) -> Result<Option<Vec<u8>>> {
    let mut walk = Walk::new(connector.clone(), group, format, name, false);
    let until = Instant::now() + DOCUMENTS_TIMEOUT;
    let mut all = Members { out: start(connector, group, format)?, is_first: true };
    let mut nodes = 0usize;
    while let Some(node) = walk.next()? {
        nodes = nodes.saturating_add(1);
        match (node, format) {
            (Node::Group(path, id), ZarrFormat::V2) => {
                all.add(&path, b".zgroup", &group_document(&**connector, id, format)?);
                all.add(&path, b".zattrs", &attributes_document(&**connector, id, None, phony)?);
            }
            (Node::Array(path, array), ZarrFormat::V2) => {
                all.add(&path, b".zarray", &array_document(&array, phony)?);
                all.add(&path, b".zattrs", &attributes_document(&**connector, array.id, Some(&array), phony)?);
            }
            (Node::Group(path, id), ZarrFormat::V3) => {
                // The document itself has the members of the root.
                if !path.is_empty() {
                    let document = group_document(&**connector, id, format)?;
                    let members = document.trim_ascii_end().strip_suffix(b"}").unwrap_or_default();
                    all.add(&path, b"", &[members, WITHOUT_NODES].concat());
                    if connector.info(id)?.ownership != Ownership::default() {
                        return Ok(None);
                    }
                }
            }
            (Node::Array(path, array), ZarrFormat::V3) => {
                all.add(&path, b"", &array_document(&array, phony)?);
                if connector.info(array.id)?.ownership != Ownership::default() {
                    return Ok(None);
                }
            }
            (Node::Left(..), _) => {}
            (Node::Damaged(_, e), _) => return Err(e),
        }
        if all.out.len() > BYTES_MAX || nodes > NODES_MAX || Instant::now() >= until {
            return Ok(None);
        }
    }
    all.out.extend_from_slice(if format == ZarrFormat::V2 { b"}}\n" } else { b"}}}\n" });
    Ok(Some(all.out))
}

/// The text up to the first document.
fn start(connector: &Arc<dyn Connector>, group: ObjectId, format: ZarrFormat) -> Result<Vec<u8>> {
    if format == ZarrFormat::V2 {
        return Ok(b"{\"zarr_consolidated_format\":1,\"metadata\":{".to_vec());
    }
    let document = group_document(&**connector, group, format)?;
    let mut out = document.trim_ascii_end().strip_suffix(b"}").unwrap_or_default().to_vec();
    out.extend_from_slice(b",\"consolidated_metadata\":{\"kind\":\"inline\",\"must_understand\":false,\"metadata\":{");
    Ok(out)
}

/// Members of the object of documents.
struct Members {
    out: Vec<u8>,
    is_first: bool,
}

impl Members {
    /// Appends the document `name` of the node `path`; without a name the node itself.
    fn add(&mut self, path: &[u8], name: &[u8], text: &[u8]) {
        let path = if name.is_empty() { path.strip_suffix(b"/").unwrap_or(path) } else { path };
        self.out.extend_from_slice(if self.is_first { b"\n" } else { b",\n" });
        self.is_first = false;
        write_string(&[path, name].concat(), &mut self.out);
        self.out.push(b':');
        self.out.extend_from_slice(text.trim_ascii_end());
    }
}
