//! Text and JSON of stored values and of differences between versions.

use crate::base::escape::{self, escaped_bytes};
use crate::cli::text;
use crate::fs::open::{ChunkDifference, Difference, LinkTarget, ObjectDifference, ObjectKind, Shape, StoredValue, ValueName};
use serde_json::{Value, json};

/// Heading of the values of the object of `value`, in the words of the specification of 2013.
pub(super) fn heading(value: &StoredValue) -> String {
    let (id, kind) = (
        value.object,
        match value.kind {
            ObjectKind::Group => "KV object (group)",
            ObjectKind::Dataset => "array object (dataset)",
            ObjectKind::Datatype => "blob (named datatype)",
            ObjectKind::Map => "KV object (map)",
            ObjectKind::Unknown => "object of an unknown type",
        },
    );
    format!("{id}: {kind}; scratch pad: metadata KV {id}/H, attribute KV {id}/A")
}

/// A stored value: what it is, its length and its place.
pub(super) fn stored(value: &StoredValue) -> String {
    let what = match &value.what {
        ValueName::Link(name, LinkTarget::Hard(target)) => format!("<\"{}\", {}>", escaped_bytes(name), target.serial()),
        ValueName::Link(name, LinkTarget::Soft(path)) => format!("<\"{}\", soft link to \"{}\">", escaped_bytes(name), escaped_bytes(path)),
        ValueName::Link(name, LinkTarget::External { file, object }) => {
            format!("<\"{}\", external link to \"{}:{}\">", escaped_bytes(name), escaped_bytes(file), escaped_bytes(object))
        }
        ValueName::Link(name, LinkTarget::UserDefined(class)) => format!("<\"{}\", link of class {class}>", escaped_bytes(name)),
        ValueName::Attribute(name) => format!("attribute \"{}\"", escaped_bytes(name)),
        ValueName::LinkOwner(name) => format!("owner of the link \"{}\"", escaped_bytes(name)),
        ValueName::Metadata(name) => format!("metadata {name}"),
        ValueName::Chunk(scaled) => format!("cells {scaled:?}"),
        ValueName::Cells(block) => format!("variable-length cells, block {block}"),
        ValueName::Pair(pair) => escape::line(pair).into_owned(),
        ValueName::Unknown(kind) => format!("value of the unknown kind {kind:#04x}"),
    };
    let mask = if value.mask == 0 { String::new() } else { format!(", filter mask {:#x}", value.mask) };
    let place = value.place.as_ref().map_or_else(String::new, |(pack, offset)| format!(" at {offset} of {pack}"));
    format!("  {what} ({} bytes{place}{mask})", value.len)
}

/// The path of an object, or its number.
fn path(object: &ObjectDifference) -> String {
    object.path.as_deref().map_or_else(|| format!("#{}", object.object), text::name)
}

fn kind(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Group => "group",
        ObjectKind::Dataset => "dataset",
        ObjectKind::Datatype => "datatype",
        ObjectKind::Map => "map",
        ObjectKind::Unknown => "object",
    }
}

fn shape(shape: &Shape) -> String {
    match shape.dims() {
        None => "null".into(),
        Some([]) => "scalar".into(),
        Some(dims) => dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x "),
    }
}

/// Bytes that were written, where that is known of all chunks.
fn written(chunks: &[ChunkDifference]) -> Option<u64> {
    chunks.iter().try_fold(0u64, |sum, chunk| {
        let bytes = chunk.written.as_ref()?.iter().map(|(start, end)| u64::from(end.saturating_sub(*start)));
        Some(bytes.fold(sum, u64::saturating_add))
    })
}

/// One line for each difference of an object.
pub(super) fn lines(object: &ObjectDifference) -> Vec<String> {
    let (path, kind) = (path(object), kind(object.kind));
    let line = |difference: &Difference| match difference {
        Difference::Created => format!("{path}: {kind} created"),
        Difference::Removed => format!("{path}: {kind} removed"),
        Difference::Renamed { from, .. } => format!("{path}: renamed from {}", text::name(from)),
        Difference::Linked(name) => format!("{path}: hard link {} created", text::name(name)),
        Difference::Unlinked(name) => format!("{path}: hard link {} removed", text::name(name)),
        Difference::LinkSet(name) => format!("{path}: link {} set", text::name(name)),
        Difference::LinkRemoved(name) => format!("{path}: link {} removed", text::name(name)),
        Difference::AttributeSet(name) => format!("{path}: attribute {} set", text::name(name)),
        Difference::AttributeRemoved(name) => format!("{path}: attribute {} removed", text::name(name)),
        Difference::PairSet(key) => format!("{path}: key {} put", escape::line(key)),
        Difference::PairRemoved(key) => format!("{path}: key {} removed", escape::line(key)),
        Difference::Shape { from, to } => format!("{path}: shape {} to {}", shape(from), shape(to)),
        Difference::Datatype => format!("{path}: datatype changed"),
        Difference::Storage => format!("{path}: layout, filters or fill value changed"),
        Difference::Ownership => format!("{path}: owner or mode changed"),
        Difference::Elements(chunks) => {
            let bytes = written(chunks).map_or_else(String::new, |bytes| format!(", {bytes} bytes"));
            format!("{path}: elements written: chunks {}{bytes}", chunks.len())
        }
        Difference::Cells(blocks) => format!("{path}: variable-length elements written: blocks {blocks}"),
        Difference::Other(values) => format!("{path}: values of an unknown kind changed: {values}"),
    };
    object.differences.iter().map(line).collect()
}

/// The JSON of an object that differs.
pub(super) fn object_json(object: &ObjectDifference) -> Value {
    let differences: Vec<Value> = object.differences.iter().map(difference_json).collect();
    json!({ "path": object.path.as_deref().map(text::json), "object": object.object, "kind": kind(object.kind), "changes": differences })
}

fn difference_json(difference: &Difference) -> Value {
    let named = |change: &str, name: &[u8]| json!({ "change": change, "name": text::json(name) });
    match difference {
        Difference::Created => json!({ "change": "created" }),
        Difference::Removed => json!({ "change": "removed" }),
        Difference::Renamed { from, to } => json!({ "change": "renamed", "from": text::json(from), "to": text::json(to) }),
        Difference::Linked(path) => named("hard link created", path),
        Difference::Unlinked(path) => named("hard link removed", path),
        Difference::LinkSet(name) => named("link set", name),
        Difference::LinkRemoved(name) => named("link removed", name),
        Difference::AttributeSet(name) => named("attribute set", name),
        Difference::AttributeRemoved(name) => named("attribute removed", name),
        Difference::PairSet(key) => json!({ "change": "key put", "key": key }),
        Difference::PairRemoved(key) => json!({ "change": "key removed", "key": key }),
        Difference::Shape { from, to } => json!({ "change": "shape", "from": from.dims(), "to": to.dims() }),
        Difference::Datatype => json!({ "change": "datatype" }),
        Difference::Storage => json!({ "change": "storage" }),
        Difference::Ownership => json!({ "change": "ownership" }),
        Difference::Elements(chunks) => {
            let each = chunks.iter().map(|chunk| json!({ "chunk": chunk.scaled, "written": chunk.written }));
            json!({ "change": "elements", "chunks": each.collect::<Vec<_>>() })
        }
        Difference::Cells(blocks) => json!({ "change": "variable-length elements", "blocks": blocks }),
        Difference::Other(values) => json!({ "change": "other", "values": values }),
    }
}
