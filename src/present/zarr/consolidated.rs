//! `.zmetadata` of version 2: all documents of a hierarchy in one.

use super::ZarrFormat;
use super::metadata::{array_document, attributes_document, group_document};
use super::walk::{Node, NodeName, Walk};
use crate::base::Result;
use crate::connector::{Connector, ObjectId};
use crate::present::json::write_string;
use std::sync::Arc;

/// Most groups and arrays.
const NODES_MAX: usize = 2000;
/// Most bytes of the document.
const BYTES_MAX: usize = 16 << 20;

/// `.zmetadata` of the hierarchy of `group`; `None`: it would have more than 2,000 groups and
/// arrays, or 16 MiB.
pub fn consolidated_document(connector: &Arc<dyn Connector>, group: ObjectId, name: NodeName) -> Result<Option<Vec<u8>>> {
    let mut walk = Walk::new(connector.clone(), group, ZarrFormat::V2, name, false);
    let mut out = b"{\"zarr_consolidated_format\":1,\"metadata\":{".to_vec();
    let mut member = |path: &[u8], document: &[u8], text: Vec<u8>, is_first: bool| {
        out.extend_from_slice(if is_first { b"\n" } else { b",\n" });
        write_string(&[path, document].concat(), &mut out);
        out.push(b':');
        out.extend_from_slice(text.trim_ascii_end());
        out.len() <= BYTES_MAX
    };
    let mut nodes = 0usize;
    while let Some(node) = walk.next()? {
        nodes = nodes.saturating_add(1);
        let fits = match node {
            Node::Group(path, id) => {
                let documents = (group_document(&**connector, id, ZarrFormat::V2)?, attributes_document(&**connector, id, None)?);
                member(&path, b".zgroup", documents.0, path.is_empty()) && member(&path, b".zattrs", documents.1, false)
            }
            Node::Array(path, array) => {
                let attributes = attributes_document(&**connector, array.id, Some(&array))?;
                member(&path, b".zarray", array_document(&array)?, false) && member(&path, b".zattrs", attributes, false)
            }
            Node::Left(..) => true,
            Node::Damaged(_, e) => return Err(e),
        };
        if !fits || nodes > NODES_MAX {
            return Ok(None);
        }
    }
    out.extend_from_slice(b"}}\n");
    Ok(Some(out))
}
