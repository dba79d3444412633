//! A line for each object, in columns: type, shape, chunks, filters, storage, attributes, name.

use crate::cli::brief::{self, CELLS, LAYOUT_CELL, Line, LinkPlace, STORAGE_CELL};
use crate::cli::colours::{Colours, Ink};
use crate::cli::text;
use crate::cli::tree::{self, Named};
use crate::cli::view::ViewError;
use crate::fs::types::ROOT;
use crate::fs::{FileKind, Operations};
use std::io::{self, Write};

/// Spaces between columns.
const GAP: &str = "  ";
/// Spaces before an attribute.
const INDENT: &str = "    ";

/// Lists the objects of the group at `path`, or the object there. `values`: with attributes.
pub(super) fn list(
    operations: &dyn Operations,
    path: &[u8],
    values: bool,
    (colours, out): (Colours, &mut dyn Write),
) -> Result<(), ViewError> {
    let failed = |e| ViewError::Path(path.to_vec(), e);
    let attr = tree::resolve(operations, path).map_err(failed)?;
    if attr.kind != FileKind::Directory {
        return Ok(print(&[line_at(operations, path, values)?], colours, out)?);
    }
    let names = tree::list(operations, attr.ino).map_err(failed)?;
    let lines = lines(operations, attr.ino, &names, values);
    tree::forget(operations, &names);
    Ok(print(&lines, colours, out)?)
}

/// The files `names` of a directory as lines.
pub(super) fn lines(operations: &dyn Operations, directory: crate::fs::Ino, names: &[Named], values: bool) -> Vec<Line> {
    let group = operations.model(directory).ok();
    let is_host = group.is_none();
    let one = |n: &Named| {
        let place = LinkPlace { group: group.as_ref(), is_host, name: &n.name };
        brief::line(operations, place, text::name(&n.name), &n.attr, values)
    };
    names.iter().map(one).collect()
}

/// The file at `path` as a line that names its path.
pub(super) fn line_at(operations: &dyn Operations, path: &[u8], values: bool) -> Result<Line, ViewError> {
    let tree::Located { attr, found } = tree::locate(operations, path, false).map_err(|e| ViewError::Path(path.to_vec(), e))?;
    let (directory, name) = found.unwrap_or((ROOT, Vec::new()));
    let group = operations.model(directory).ok();
    let place = LinkPlace { group: group.as_ref(), is_host: false, name: &name };
    Ok(brief::line(operations, place, text::name(path), &attr, values))
}

/// Prints `lines` with aligned columns. Columns that all of them leave empty are left out.
pub(super) fn print(lines: &[Line], colours: Colours, out: &mut dyn Write) -> io::Result<()> {
    let mut widths = [0usize; CELLS];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(&line.cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for line in lines {
        for (i, (cell, width)) in line.cells.iter().zip(widths).enumerate().filter(|(_, (_, width))| *width > 0) {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            let ink = if i == LAYOUT_CELL && line.is_elsewhere { Ink::Elsewhere } else { Ink::Plain };
            let cell = colours.paint(ink, cell);
            if i == STORAGE_CELL { write!(out, "{pad}{cell}{GAP}")? } else { write!(out, "{cell}{pad}{GAP}")? }
        }
        writeln!(out, "{}", named(line, colours))?;
        for attribute in &line.attributes {
            writeln!(out, "{INDENT}{}", colours.paint(Ink::Attribute, attribute))?;
        }
    }
    Ok(())
}

/// The name of a line, and where it leads.
pub(super) fn named(line: &Line, colours: Colours) -> String {
    let target = line.target.as_ref().map(|target| format!(" -> {}", colours.paint(Ink::Link, target)));
    format!("{}{}", colours.paint(line.ink, &line.name), target.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tree::tests::sample;

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let mut out = Vec::new();
        list(&sample(), b"/", false, (Colours(false), &mut out)).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "directory  g\nlink       host -> /etc\nlink       loop -> loop/x\nlink       up -> g/../g\n"
        );
        let mut out = Vec::new();
        list(&sample(), b"/g", false, (Colours(true), &mut out)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "link       \x1b[36magain\x1b[0m -> \x1b[36m.\x1b[0m\nfile  5 B  d\n");
        assert!(list(&sample(), b"/none", false, (Colours(false), &mut Vec::new())).is_err());
    }
}
