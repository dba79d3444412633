//! Names, files as ls(1) shows them, and both as JSON.

use crate::base::escape;
use crate::cli::facts::{FACT_PREFIX, USER_PREFIX, fact_json};
use crate::cli::text;
use crate::cli::tree::{self, Named};
use crate::cli::view::{Owners, ViewError};
use crate::fs::model::{self, SharedGroup};
use crate::fs::{Attr, Errno, FileKind, Ino, Operations};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

/// Facts that a row of JSON has.
const ROW_FACTS: [&str; 5] = ["dtype", "shape", "maxshape", "chunks", "filters"];

/// How files are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Names.
    Short,
    /// Mode, links, owner, group, size, time, name.
    Long,
    /// Rows of one JSON list.
    Json,
}

/// Prints files of one argument.
pub(super) struct Printer<'a> {
    /// The file system.
    pub(super) operations: &'a dyn Operations,
    /// How they are printed.
    pub(super) style: Style,
    /// Names of users and groups.
    pub(super) owners: &'a mut Owners,
    /// The argument, if a row of JSON names it.
    pub(super) argument: Option<&'a [u8]>,
    /// True until something was printed.
    pub(super) first: &'a mut bool,
    /// Where it is printed.
    pub(super) out: &'a mut dyn Write,
}

/// Identifies the group that the directory `ino` shows, if it has several hard links.
pub(super) fn shared_group(operations: &dyn Operations, ino: Ino) -> Result<Option<SharedGroup>, Errno> {
    match operations.model(ino) {
        Ok(model) => model.shared_group().map_err(|e| model::errno(&e)),
        Err(Errno(libc::EOPNOTSUPP)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Prints the files of the directory at `path`, or that file.
pub(super) fn list(printer: &mut Printer<'_>, path: &[u8], recursive: bool) -> Result<(), ViewError> {
    let (operations, style) = (printer.operations, printer.style);
    let failed = |path: &[u8]| {
        let path = path.to_vec();
        move |e| ViewError::Path(path, e)
    };
    let path = tree::absolute(path);
    let attr = tree::resolve(operations, &path).map_err(failed(&path))?;
    if attr.kind != FileKind::Directory {
        printer.rows(&[], &[Named { name: path, attr }])?;
        return Ok(());
    }
    if style == Style::Short && !recursive && !operations.lists_attributes() {
        let names = tree::names(operations, attr.ino).map_err(failed(&path))?;
        return Ok(names.iter().try_for_each(|name| writeln!(printer.out, "{}", text::name(name)))?);
    }
    // A hard link can place a directory beneath itself: each is listed once. A few groups with
    // several hard links each have very many paths.
    let mut seen: HashSet<Ino> = HashSet::from([attr.ino]);
    let mut groups: HashMap<SharedGroup, Vec<u8>> = HashMap::new();
    let mut pending = vec![(path, attr.ino)];
    while let Some((path, ino)) = pending.pop() {
        if recursive && let Some(group) = shared_group(operations, ino).map_err(failed(&path))? {
            if let Some(first) = groups.get(&group) {
                printer.same(&path, first)?;
                continue;
            }
            groups.insert(group, path.clone());
        }
        let names = tree::list(operations, ino).map_err(failed(&path))?;
        if recursive {
            printer.heading(&path)?;
        }
        printer.rows(&path, &names)?;
        if recursive {
            let below = names.iter().rev().filter(|n| n.attr.kind == FileKind::Directory && seen.insert(n.attr.ino));
            pending.extend(below.map(|n| (tree::join(&path, &n.name), n.attr.ino)));
        } else {
            tree::forget(operations, &names);
        }
    }
    Ok(())
}

impl Printer<'_> {
    fn heading(&mut self, path: &[u8]) -> io::Result<()> {
        if self.style == Style::Json {
            return Ok(());
        }
        let gap = if *self.first { "" } else { "\n" };
        *self.first = false;
        writeln!(self.out, "{gap}{}:", text::name(path))
    }

    /// The group at `path` was listed at `first`.
    fn same(&mut self, path: &[u8], first: &[u8]) -> io::Result<()> {
        if self.style == Style::Json {
            return Ok(());
        }
        self.heading(path)?;
        writeln!(self.out, "(the same group as {})", text::name(first))
    }

    /// Prints files of `directory`, or by their paths if that is empty.
    pub(super) fn rows(&mut self, directory: &[u8], names: &[Named]) -> io::Result<()> {
        match self.style {
            Style::Short => names.iter().try_for_each(|n| writeln!(self.out, "{}", text::name(&n.name))),
            Style::Json => names.iter().try_for_each(|n| self.json_row(directory, n)),
            Style::Long => self.long_rows(names),
        }
    }

    fn target(&self, attr: &Attr) -> Option<Vec<u8>> {
        (attr.kind == FileKind::Symlink).then(|| self.operations.readlink(attr.ino).unwrap_or_else(|_| b"?".to_vec()))
    }

    fn long_rows(&mut self, names: &[Named]) -> io::Result<()> {
        let rows: Vec<[String; 4]> = names
            .iter()
            .map(|n| [n.attr.nlink.to_string(), self.owners.user(n.attr.uid), self.owners.group(n.attr.gid), n.attr.size.to_string()])
            .collect();
        let width = |i: usize| rows.iter().filter_map(|r| r.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let (links, users, groups, sizes) = (width(0), width(1), width(2), width(3));
        for (n, [nlink, user, group, size]) in names.iter().zip(&rows) {
            let mode = text::mode(n.attr.kind, n.attr.perm);
            let time = text::short_time(n.attr.mtime);
            let target = self.target(&n.attr).map(|t| format!(" -> {}", text::name(&t))).unwrap_or_default();
            let name = text::name(&n.name);
            writeln!(self.out, "{mode} {nlink:>links$} {user:<users$} {group:<groups$} {size:>sizes$} {time} {name}{target}")?;
        }
        Ok(())
    }

    fn json_row(&mut self, directory: &[u8], n: &Named) -> io::Result<()> {
        let path = if directory.is_empty() { n.name.clone() } else { tree::join(directory, &n.name) };
        let mut row = json!({
            "path": text::json(&path),
            "kind": text::kind(n.attr.kind),
            "size": n.attr.size,
            "blocks": n.attr.blocks,
            "mode": format!("{:04o}", n.attr.perm),
            "nlink": n.attr.nlink,
            "uid": n.attr.uid,
            "gid": n.attr.gid,
            "mtime": text::timestamp(n.attr.mtime),
        });
        if let Some(row) = row.as_object_mut() {
            if let Some(argument) = self.argument {
                row.insert("argument".into(), text::json(argument));
            }
            match self.target(&n.attr) {
                Some(target) => drop(row.insert("target".into(), text::json(&target))),
                None => self.add_facts(n.attr.ino, row),
            }
        }
        let gap = if *self.first { "[\n" } else { ",\n" };
        *self.first = false;
        write!(self.out, "{gap}{}", escape::json(&row.to_string()))
    }

    /// Adds facts and attributes. What cannot be read, or is too long to be shown, is left out.
    fn add_facts(&self, ino: Ino, row: &mut Map<String, Value>) {
        for name in ROW_FACTS {
            if let Ok(value) = self.operations.getxattr(ino, &[FACT_PREFIX, name.as_bytes()].concat()) {
                row.insert(name.into(), fact_json(name.as_bytes(), &value));
            }
        }
        let Ok(names) = self.operations.listxattr(ino) else { return };
        let mut attributes = Map::new();
        for name in names.split(|b| *b == 0).filter(|name| !name.is_empty() && !name.starts_with(FACT_PREFIX)) {
            if let Ok(value) = self.operations.getxattr(ino, name) {
                let shown = name.strip_prefix(USER_PREFIX).unwrap_or(name);
                attributes.insert(String::from_utf8_lossy(shown).into_owned(), text::json(&value));
            }
        }
        row.insert("attributes".into(), Value::Object(attributes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tree::tests::sample;

    fn printed(path: &str, style: Style, recursive: bool) -> Result<String, ViewError> {
        let (mut out, mut first) = (Vec::new(), true);
        let (operations, owners) = (&sample(), &mut Owners::default());
        let mut printer = Printer { operations, style, owners, argument: None, first: &mut first, out: &mut out };
        list(&mut printer, path.as_bytes(), recursive)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn short_and_recursive() {
        assert_eq!(printed("/", Style::Short, false).unwrap(), "g\nhost\nloop\nup\n");
        assert_eq!(printed("/g/d", Style::Short, false).unwrap(), "/g/d\n");
        assert_eq!(printed("", Style::Short, true).unwrap(), "/:\ng\nhost\nloop\nup\n\n/g:\nagain\nd\n");
        assert!(matches!(printed("/g/none", Style::Short, false), Err(ViewError::Path(_, Errno(libc::ENOENT)))));
    }

    #[test]
    fn long_lines_up() {
        let text = printed("/g", Style::Long, false).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("lrwxrwxrwx 1 ") && lines[0].ends_with(" 1 2024-01-01 00:00 again -> ."), "{text}");
        assert!(lines[1].starts_with("-r--r--r-- 1 ") && lines[1].ends_with(" 5 2024-01-01 00:00 d"), "{text}");
    }

    #[test]
    fn rows_of_json_have_facts_and_attributes() {
        let text = printed("/", Style::Json, true).unwrap();
        let rows: serde_json::Value = serde_json::from_str(&(text + "]")).unwrap();
        let paths: Vec<&str> = rows.as_array().unwrap().iter().map(|r| r["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/g", "/host", "/loop", "/up", "/g/again", "/g/d"]);
        assert_eq!(rows[3]["target"], "g/../g");
        assert_eq!((&rows[5]["size"], &rows[5]["dtype"]), (&5.into(), &"<i4".into()));
        assert_eq!(rows[5]["attributes"], json!({"raw": "\u{0}\u{1}", "units": "m\u{b2}"}));
    }
}
