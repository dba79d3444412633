//! `h5dir ls`: lists the view of a mount without mounting.

use super::confine::confine_command;
use super::failure::{Exit, Failure, errno_text, reason};
use super::{text, tree};
use crate::base::escape::{self, escaped};
use crate::config::args::LsArgs;
use crate::config::resolve;
use crate::config::value::Level;
use crate::fs::model;
use crate::fs::open::LocatedContainer;
use crate::fs::{Attr, Errno, FileKind, Ino, MountSpec, Operations, open};
use crate::mirror::{self, MirrorSpec};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use tree::Named;

/// Runs `h5dir ls`.
pub(crate) fn ls(args: &LsArgs) -> Result<(), Failure> {
    let (spec, path) = resolve::view(&args.view)?;
    let (operations, owners) = match resolve::listed_prefix(&spec) {
        Some(mirror) => open_prefix(&mirror)?,
        None => open_view(&spec, "list", Level::Error)?,
    };
    let style = if args.view.json {
        Style::Json
    } else if args.long {
        Style::Long
    } else {
        Style::Short
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let result = list(&*operations, &path, style, args.recursive, (owners, &mut out)).and_then(|()| Ok(out.flush()?));
    result.or_else(|e| e.into_result(&spec, &path))
}

/// Opens the mirror of a prefix of objects, and confines the process.
fn open_prefix(spec: &MirrorSpec) -> Result<(Arc<dyn Operations>, Owners), Failure> {
    super::logging::start_command(Level::Error, false)?;
    let failed = |e| Failure::open("list", &e);
    let located = mirror::locate(spec).map_err(failed)?;
    let mut owners = Owners::default();
    owners.user(spec.container.uid);
    owners.group(spec.container.gid);
    confine_command(&located.directories().map_err(failed)?, false);
    Ok((mirror::open(located).map_err(failed)?, owners))
}

/// Opens the file system of `spec` in order to `verb` it; logs from `level` on.
///
/// First looks up the names of its owners, then confines the process.
pub(super) fn open_view(spec: &MountSpec, verb: &str, level: Level) -> Result<(Arc<dyn Operations>, Owners), Failure> {
    let (located, owners) = locate_confined(spec, verb, level)?;
    Ok((open::open_located(spec, located).map_err(|e| Failure::open(verb, &e))?, owners))
}

/// Locates the container of `spec` in order to `verb` it, and confines the process.
pub(super) fn locate_confined(spec: &MountSpec, verb: &str, level: Level) -> Result<(LocatedContainer, Owners), Failure> {
    super::logging::start_command(level, false)?;
    let failed = |e| Failure::open(verb, &e);
    let located = open::locate(spec).map_err(failed)?;
    let mut owners = Owners::default();
    owners.user(spec.uid);
    owners.group(spec.gid);
    confine_command(&located.directories().map_err(failed)?, spec.writable);
    Ok((located, owners))
}

/// Why a view could not be printed.
#[derive(Debug)]
pub(super) enum ViewError {
    Path(Vec<u8>, Errno),
    Output(io::Error),
}

impl From<io::Error> for ViewError {
    fn from(e: io::Error) -> Self {
        ViewError::Output(e)
    }
}

impl ViewError {
    /// Makes a failure of it. A closed pipe (`| head`) is none.
    pub(super) fn into_result(self, spec: &MountSpec, asked: &[u8]) -> Result<(), Failure> {
        match self {
            ViewError::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            ViewError::Output(e) => Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e)))),
            ViewError::Path(path, Errno(errno)) => {
                let path = if path.is_empty() { asked } else { &path };
                let (path, file) = (text::name(path), escaped(&spec.file));
                Err(match errno {
                    libc::ENOENT | libc::ENOTDIR | libc::ELOOP => {
                        let message = format!("cannot find {path} in {file}: {}; 'h5dir ls -R {file}' lists its paths", errno_text(errno));
                        Failure::new(Exit::Path, message)
                    }
                    _ => Failure::new(Exit::General, format!("cannot read {path} in {file}: {}", errno_text(errno))),
                })
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Short,
    Long,
    Json,
}

struct Printer<'a> {
    operations: &'a dyn Operations,
    style: Style,
    owners: Owners,
    first: bool,
    out: &'a mut dyn Write,
}

/// Identifies the group that the directory `ino` shows, if it has several hard links.
fn shared_group(operations: &dyn Operations, ino: Ino) -> Result<Option<u64>, Errno> {
    match operations.model(ino) {
        Ok(model) => model.shared_group().map_err(|e| model::errno(&e)),
        Err(Errno(libc::EOPNOTSUPP)) => Ok(None),
        Err(e) => Err(e),
    }
}

fn list(
    operations: &dyn Operations,
    path: &[u8],
    style: Style,
    recursive: bool,
    (owners, out): (Owners, &mut dyn Write),
) -> Result<(), ViewError> {
    let failed = |path: &[u8]| {
        let path = path.to_vec();
        move |e| ViewError::Path(path, e)
    };
    let path = tree::absolute(path);
    let attr = tree::resolve(operations, &path).map_err(failed(&path))?;
    let mut printer = Printer { operations, style, owners, first: true, out };
    printer.begin()?;
    if attr.kind != FileKind::Directory {
        printer.rows(&[], &[Named { name: path, attr }])?;
        return Ok(printer.end()?);
    }
    if style == Style::Short && !recursive && !operations.lists_attributes() {
        let names = tree::names(operations, attr.ino).map_err(failed(&path))?;
        return Ok(names.iter().try_for_each(|name| writeln!(printer.out, "{}", text::name(name)))?);
    }
    // A hard link can place a directory beneath itself: each is listed once. A few groups with
    // several hard links each have very many paths.
    let mut seen: HashSet<Ino> = HashSet::from([attr.ino]);
    let mut groups: HashMap<u64, Vec<u8>> = HashMap::new();
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
    Ok(printer.end()?)
}

impl Printer<'_> {
    fn begin(&mut self) -> io::Result<()> {
        if self.style == Style::Json { write!(self.out, "[") } else { Ok(()) }
    }

    fn end(&mut self) -> io::Result<()> {
        if self.style == Style::Json { writeln!(self.out, "{}]", if self.first { "" } else { "\n" }) } else { Ok(()) }
    }

    fn heading(&mut self, path: &[u8]) -> io::Result<()> {
        if self.style == Style::Json {
            return Ok(());
        }
        let gap = if self.first { "" } else { "\n" };
        self.first = false;
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

    fn rows(&mut self, directory: &[u8], names: &[Named]) -> io::Result<()> {
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
        if let (Some(target), Some(row)) = (self.target(&n.attr), row.as_object_mut()) {
            row.insert("target".into(), text::json(&target));
        }
        let gap = if self.first { "\n" } else { ",\n" };
        self.first = false;
        write!(self.out, "{gap}{}", escape::json(&row.to_string()))
    }
}

/// Cached names of users and groups.
#[derive(Debug, Default)]
pub(super) struct Owners {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Owners {
    pub(super) fn user(&mut self, id: u32) -> String {
        let find =
            || nix::unistd::User::from_uid(id.into()).ok().flatten().map_or_else(|| id.to_string(), |u| text::name(u.name.as_bytes()));
        self.users.entry(id).or_insert_with(find).clone()
    }

    pub(super) fn group(&mut self, id: u32) -> String {
        let find =
            || nix::unistd::Group::from_gid(id.into()).ok().flatten().map_or_else(|| id.to_string(), |g| text::name(g.name.as_bytes()));
        self.groups.entry(id).or_insert_with(find).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tree::tests::sample;

    fn printed(path: &str, style: Style, recursive: bool) -> Result<String, ViewError> {
        let mut out = Vec::new();
        list(&sample(), path.as_bytes(), style, recursive, (Owners::default(), &mut out))?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn short_and_recursive() {
        assert_eq!(printed("/", Style::Short, false).unwrap(), "g\nhost\nloop\nup\n");
        assert_eq!(printed("/g/d", Style::Short, false).unwrap(), "/g/d\n");
        assert_eq!(printed("", Style::Short, true).unwrap(), "/:\ng\nhost\nloop\nup\n\n/g:\nagain\nd\n");
    }

    #[test]
    fn long_lines_up() {
        let text = printed("/g", Style::Long, false).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("lrwxrwxrwx 1 ") && lines[0].ends_with(" 1 2024-01-01 00:00 again -> ."), "{text}");
        assert!(lines[1].starts_with("-r--r--r-- 1 ") && lines[1].ends_with(" 5 2024-01-01 00:00 d"), "{text}");
    }

    #[test]
    fn json_is_one_document() {
        let rows: serde_json::Value = serde_json::from_str(&printed("/", Style::Json, true).unwrap()).unwrap();
        let paths: Vec<&str> = rows.as_array().unwrap().iter().map(|r| r["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/g", "/host", "/loop", "/up", "/g/again", "/g/d"]);
        assert_eq!(rows[3]["target"], "g/../g");
        assert_eq!(rows[5]["size"], 5);
        let mut fs = crate::fs::memory::MemoryFs::new();
        fs.add_dir(crate::fs::types::ROOT, b"empty").unwrap();
        let mut out = Vec::new();
        list(&fs, b"/empty", Style::Json, false, (Owners::default(), &mut out)).unwrap();
        assert_eq!(out, b"[]\n");
    }

    #[test]
    fn wrong_path_is_exit_code_5() {
        let spec = resolve::view(&view_args()).unwrap().0;
        let failure = printed("/g/none", Style::Short, false).unwrap_err().into_result(&spec, b"/g/none").unwrap_err();
        assert_eq!(failure.exit, Exit::Path);
        assert!(failure.message.starts_with("cannot find /g/none in /f.h5: No such file or directory; "), "{}", failure.message);
        let pipe = ViewError::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(pipe.into_result(&spec, b"/"), Ok(()));
    }

    fn view_args() -> crate::config::args::ViewArgs {
        let external = crate::config::value::ExternalFiles::Visible;
        crate::config::args::ViewArgs { target: "/f.h5".into(), json: false, external, external_root: None, version: None }
    }
}
