//! All objects below a group, drawn as a tree.

use super::files::shared_group;
use super::table::{lines, named};
use crate::cli::brief::{CELLS, LAYOUT_CELL, Line};
use crate::cli::colours::{Colours, Ink};
use crate::cli::text;
use crate::cli::tree::{self, Named};
use crate::cli::view::ViewError;
use crate::fs::model::SharedGroup;
use crate::fs::{FileKind, Ino, Operations};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::vec::IntoIter;

/// Groups within each other that are drawn.
const DEPTH_MAX: usize = 1024;

/// Before a name that others follow, and before the last one.
const BRANCH: [&str; 2] = ["\u{251c}\u{2500}\u{2500} ", "\u{2514}\u{2500}\u{2500} "];
/// Before what is below a name that others follow, and below the last one.
const TRUNK: [&str; 2] = ["\u{2502}   ", "    "];

/// A group that is being drawn.
struct Group {
    path: Vec<u8>,
    files: IntoIter<(Named, Option<Line>)>,
    /// Before each of its lines.
    prefix: String,
}

struct Drawing<'a> {
    operations: &'a dyn Operations,
    /// Types and so on are shown; true inside: attributes as well.
    long: Option<bool>,
    /// A hard link can place a group beneath itself: each is drawn once.
    seen: HashSet<Ino>,
    /// First paths of groups that have several hard links.
    shared: HashMap<SharedGroup, Vec<u8>>,
    colours: Colours,
    out: &'a mut dyn Write,
}

/// Draws what is below `path`, which is called `root`. `long`: with types and so on; true inside:
/// with attributes.
pub(super) fn draw(
    operations: &dyn Operations,
    path: &[u8],
    root: &str,
    long: Option<bool>,
    (colours, out): (Colours, &mut dyn Write),
) -> Result<(), ViewError> {
    let attr = tree::resolve(operations, path).map_err(|e| ViewError::Path(path.to_vec(), e))?;
    let mut drawing = Drawing { operations, long, seen: HashSet::from([attr.ino]), shared: HashMap::new(), colours, out };
    if attr.kind != FileKind::Directory {
        let line = long.map(|values| super::table::line_at(operations, path, values)).transpose()?;
        let file = Named { name: path.to_vec(), attr };
        return Ok(drawing.file("", "", &file, line.as_ref(), None)?);
    }
    if let Some(number) = drawing.shared(path, attr.ino)? {
        drawing.shared.insert(number, path.to_vec());
    }
    let ink = if colours.0 { Ink::Group } else { Ink::Plain };
    writeln!(drawing.out, "{}", colours.paint(ink, root))?;
    let top = drawing.group(path.to_vec(), attr.ino, String::new())?;
    let mut open = vec![top];
    while let Some(group) = open.last_mut() {
        let Some((file, line)) = group.files.next() else {
            open.pop();
            continue;
        };
        let is_last = usize::from(group.files.len() == 0);
        let (path, prefix) = (tree::join(&group.path, &file.name), group.prefix.clone());
        let ([branch, trunk], depth) = ([BRANCH, TRUNK].map(|of| of.get(is_last).copied().unwrap_or_default()), open.len());
        let below = format!("{prefix}{trunk}");
        let note = if file.attr.kind == FileKind::Directory { drawing.note(&path, file.attr.ino, depth)? } else { None };
        let is_drawn = file.attr.kind == FileKind::Directory && note.is_none();
        drawing.file(&format!("{prefix}{branch}"), &below, &file, line.as_ref(), note)?;
        if is_drawn {
            open.push(drawing.group(path, file.attr.ino, below)?);
        }
    }
    Ok(())
}

impl Drawing<'_> {
    fn shared(&self, path: &[u8], ino: Ino) -> Result<Option<SharedGroup>, ViewError> {
        shared_group(self.operations, ino).map_err(|e| ViewError::Path(path.to_vec(), e))
    }

    fn group(&self, path: Vec<u8>, ino: Ino, prefix: String) -> Result<Group, ViewError> {
        let files = tree::list(self.operations, ino).map_err(|e| ViewError::Path(path.clone(), e))?;
        let mut lines = self.long.map(|values| lines(self.operations, ino, &files, values)).unwrap_or_default().into_iter();
        let files: Vec<_> = files.into_iter().map(|file| (file, lines.next())).collect();
        Ok(Group { path, files: files.into_iter(), prefix })
    }

    /// Why a group is not drawn; `None`: it is.
    fn note(&mut self, path: &[u8], ino: Ino, depth: usize) -> Result<Option<String>, ViewError> {
        if let Some(number) = self.shared(path, ino)? {
            if let Some(first) = self.shared.get(&number) {
                return Ok(Some(format!("(the same group as {})", text::name(first))));
            }
            self.shared.insert(number, path.to_vec());
        }
        Ok(match self.seen.insert(ino) {
            false => Some("(drawn above)".into()),
            true if depth >= DEPTH_MAX => Some("(too deep to be drawn)".into()),
            true => None,
        })
    }

    /// Prints the line of a file, and those of its attributes.
    fn file(&mut self, before: &str, below: &str, file: &Named, line: Option<&Line>, note: Option<String>) -> io::Result<()> {
        let name = match line {
            Some(line) => named(line, self.colours),
            None => self.short(file),
        };
        let cells = line.map(|line| self.cells(line)).unwrap_or_default();
        let note = note.map(|note| format!("  {note}")).unwrap_or_default();
        writeln!(self.out, "{before}{name}{cells}{note}")?;
        let bar = if file.attr.kind == FileKind::Directory { TRUNK.first().copied().unwrap_or_default() } else { "    " };
        for attribute in line.iter().flat_map(|line| &line.attributes) {
            writeln!(self.out, "{below}{bar}{}", self.colours.paint(Ink::Attribute, attribute))?;
        }
        Ok(())
    }

    fn short(&self, file: &Named) -> String {
        let name = text::name(&file.name);
        match file.attr.kind {
            FileKind::Directory => self.colours.paint(Ink::Group, &name).into_owned(),
            FileKind::Regular => name,
            FileKind::Symlink => {
                let target = self.operations.readlink(file.attr.ino).map_or_else(|_| "?".into(), |target| text::name(&target));
                format!("{} -> {}", self.colours.paint(Ink::Link, &name), self.colours.paint(Ink::Link, &target))
            }
        }
    }

    /// What is known of an object; that it is a group is drawn already.
    fn cells(&self, line: &Line) -> String {
        let mut out = String::new();
        for (i, cell) in line.cells.iter().enumerate().take(CELLS).filter(|(i, cell)| !(cell.is_empty() || *i == 0 && *cell == "group")) {
            // The shape follows the type as in a declaration.
            out.push_str(if i == 1 { " " } else { "  " });
            let ink = if i == LAYOUT_CELL && line.is_elsewhere { Ink::Elsewhere } else { Ink::Plain };
            out.push_str(&self.colours.paint(ink, cell));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tree::tests::sample;

    fn drawn(path: &str, long: Option<bool>) -> String {
        let mut out = Vec::new();
        draw(&sample(), path.as_bytes(), "f.h5", long, (Colours(false), &mut out)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn groups_are_drawn_with_what_is_below() {
        let [branch, last] = BRANCH;
        let [trunk, _] = TRUNK;
        let expected = format!(
            "f.h5\n{branch}g\n{trunk}{branch}again -> .\n{trunk}{last}d\n{branch}host -> /etc\n{branch}loop -> loop/x\n{last}up -> g/../g\n"
        );
        assert_eq!(drawn("/", None), expected);
        assert_eq!(drawn("/g", Some(false)), format!("f.h5\n{branch}again -> .  link\n{last}d  file  5 B\n"));
        assert_eq!(drawn("/g/d", None), "/g/d\n");
    }
}
