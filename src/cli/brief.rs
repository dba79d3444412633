//! A file of a view as cells of a table: the object that it shows, in short.

use super::colours::Ink;
use super::text;
use crate::base::escape::escaped_bytes;
use crate::fs::model::{AttributeBrief, ObjectBrief, ObjectModel, StoredLink};
use crate::fs::{Attr, FileKind, Operations};

/// Most characters of a type.
const TYPE_CHARS: usize = 32;
/// Most characters of the value of an attribute.
const VALUE_CHARS: usize = 60;
/// Most attributes of an object that are shown.
const ATTRIBUTES_MAX: usize = 100;

/// Cells of a line: type, shape, chunks or layout, filters, storage, attributes.
pub(crate) const CELLS: usize = 6;
/// The cell of bytes of storage, which is a number.
pub(crate) const STORAGE_CELL: usize = 4;
/// The cell of the layout.
pub(crate) const LAYOUT_CELL: usize = 2;

/// A file as a line shows it.
pub(crate) struct Line {
    /// The cells before the name.
    pub(crate) cells: [String; CELLS],
    /// Its name.
    pub(crate) name: String,
    /// Colour of its name.
    pub(crate) ink: Ink,
    /// True if its elements are in other files or datasets.
    pub(crate) is_elsewhere: bool,
    /// Where a link leads.
    pub(crate) target: Option<String>,
    /// Its attributes, if they were asked for.
    pub(crate) attributes: Vec<String>,
}

/// Where a file was found.
#[derive(Clone, Copy)]
pub(crate) struct LinkPlace<'a> {
    /// The group that has it; `None`: a directory of the host, or an unknown one.
    pub(crate) group: Option<&'a ObjectModel>,
    /// True if it was found in a directory of the host, whose containers are directories.
    pub(crate) is_host: bool,
    /// Its name there.
    pub(crate) name: &'a [u8],
}

/// Formats a number of bytes: `223 B`, `4.5 KiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut unit) = (u128::from(bytes).saturating_mul(10) / 1024, 0usize);
    while tenths >= 10_240 && unit < UNITS.len().saturating_sub(1) {
        tenths /= 1024;
        unit = unit.saturating_add(1);
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS.get(unit).unwrap_or(&""))
}

/// The layout in one cell: `chunks (6, 6, 8)`, `virtual`; empty for contiguous elements.
pub(crate) fn layout(summary: &ObjectBrief) -> String {
    let name = match (summary.layout, summary.chunks.is_empty()) {
        ("contiguous", _) => "",
        ("chunked", false) => "chunks",
        (name, _) => name,
    };
    [name, summary.chunks.as_str()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// An attribute as `name = value`.
pub(crate) fn attribute(a: &AttributeBrief) -> String {
    format!("{} = {}", text::name(&a.name), a.value)
}

/// The file of `attr` as a line; `name`: what the line calls it; `values`: with its attributes.
pub(crate) fn line(operations: &dyn Operations, place: LinkPlace<'_>, name: String, attr: &Attr, values: bool) -> Line {
    if attr.kind == FileKind::Symlink {
        return link(operations, place, name, attr);
    }
    let mut line = Line { cells: Default::default(), name, ink: Ink::Plain, is_elsewhere: false, target: None, attributes: Vec::new() };
    if attr.kind == FileKind::Directory {
        line.ink = Ink::Group;
    }
    let Ok(model) = operations.model(attr.ino) else {
        line.cells = [text::kind(attr.kind).into(), String::new(), String::new(), String::new(), String::new(), String::new()];
        if let (FileKind::Regular, Some(cell)) = (attr.kind, line.cells.get_mut(STORAGE_CELL)) {
            *cell = size(attr.size);
        }
        return line;
    };
    match model.brief(TYPE_CHARS) {
        Ok(summary) => {
            line.is_elsewhere = matches!(summary.layout, "external" | "virtual");
            if matches!(summary.kind, "datatype" | "map") {
                line.ink = Ink::Type;
            }
            if summary.is_external {
                line.target = external_target(place);
            }
            if values {
                line.attributes = attributes(&model, summary.attributes);
            }
            line.cells = cells(&summary, place);
        }
        // The log of failures has the reason.
        Err(_) => line.cells = ["unreadable".into(), String::new(), String::new(), String::new(), String::new(), String::new()],
    }
    line
}

fn cells(summary: &ObjectBrief, place: LinkPlace<'_>) -> [String; CELLS] {
    let kind = match summary.kind {
        "dataset" => summary.datatype.clone(),
        "datatype" => format!("type {}", summary.datatype),
        "group" if place.is_host => "HDF5 file".into(),
        kind => kind.into(),
    };
    let attributes = match summary.attributes {
        0 => String::new(),
        1 => "1 attr".into(),
        n => format!("{n} attrs"),
    };
    [kind, summary.shape.clone(), layout(summary), summary.filters.clone(), summary.storage.map(size).unwrap_or_default(), attributes]
}

fn attributes(model: &ObjectModel, count: usize) -> Vec<String> {
    let mut all: Vec<String> = match model.attributes_brief(ATTRIBUTES_MAX, VALUE_CHARS) {
        Ok(found) => found.iter().map(attribute).collect(),
        Err(_) => vec!["(unreadable)".into()],
    };
    if count > ATTRIBUTES_MAX {
        all.push(format!("... {} more", count.saturating_sub(ATTRIBUTES_MAX)));
    }
    all
}

fn stored_link(place: LinkPlace<'_>) -> Option<StoredLink> {
    place.group?.stored_link(place.name).ok().flatten()
}

fn external_text(file: &[u8], object: &[u8]) -> String {
    format!("{}:{}", escaped_bytes(file), escaped_bytes(object))
}

/// Where the external link `place` leads, as it is stored.
pub(crate) fn external_target(place: LinkPlace<'_>) -> Option<String> {
    match stored_link(place)? {
        StoredLink::External { file, object } => Some(external_text(&file, &object)),
        _ => None,
    }
}

fn link(operations: &dyn Operations, place: LinkPlace<'_>, name: String, attr: &Attr) -> Line {
    let shown = || operations.readlink(attr.ino).map_or_else(|_| "?".into(), |target| text::name(&target));
    let (kind, target) = match stored_link(place) {
        Some(StoredLink::Soft { path, text }) => ("soft link".into(), text::name(&text.unwrap_or(path))),
        Some(StoredLink::External { file, object }) => ("external link".into(), external_text(&file, &object)),
        Some(StoredLink::Above(_)) => ("hard link".into(), shown()),
        Some(StoredLink::UserDefined(class)) => (format!("link of class {class}"), shown()),
        None => ("link".into(), shown()),
    };
    let cells = [kind, String::new(), String::new(), String::new(), String::new(), String::new()];
    Line { cells, name, ink: Ink::Link, is_elsewhere: false, target: Some(target), attributes: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_and_one_decimal() {
        assert_eq!([0, 1023, 1024, 4608].map(size), ["0 B", "1023 B", "1.0 KiB", "4.5 KiB"]);
        assert_eq!([1 << 20, 10 << 30, u64::MAX].map(size), ["1.0 MiB", "10.0 GiB", "15.9 EiB"]);
    }

    #[test]
    fn layouts_are_named_unless_contiguous() {
        let of = |layout, chunks: &str| super::layout(&ObjectBrief { layout, chunks: chunks.into(), ..ObjectBrief::default() });
        assert_eq!(of("contiguous", ""), "");
        assert_eq!(
            (of("chunked", "(2, 3)"), of("virtual", ""), of("log", "(2)")),
            ("chunks (2, 3)".into(), "virtual".into(), "log (2)".into())
        );
    }
}
