//! The arguments of `ls` and `stat`: files, containers and directories, with a path in each.
//!
//! All are located, then the command is confined to them, then each is opened and shown. One that
//! fails is reported, and the others are shown.

use super::confine::confine_command;
use super::failure::{Exit, Failure};
use super::located::Located;
use super::tree;
use super::view::{Owners, ViewError};
use super::{logging, print_error, process};
use crate::config::args::ViewsArgs;
use crate::config::resolve;
use crate::config::value::Level;
use crate::fs::create_rules::NamePattern;
use crate::fs::open::UsedDirectory;
use crate::fs::{Errno, FileKind, FsResult, MountSpec, Operations};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Arguments from which on the limit of open files is raised: each holds a few directories open.
const MANY_ARGUMENTS: usize = 64;

/// An argument that was opened.
pub(crate) struct Shown<'a> {
    /// As typed.
    pub(crate) argument: &'a [u8],
    /// True if it is one of several.
    pub(crate) is_one_of_several: bool,
    /// Its container.
    pub(crate) spec: &'a MountSpec,
    /// The view of the container.
    pub(crate) operations: &'a dyn Operations,
    /// Paths in the container: one, unless the argument has a pattern.
    pub(crate) paths: Vec<Vec<u8>>,
    /// Names of users and groups.
    pub(crate) owners: &'a mut Owners,
}

impl Shown<'_> {
    /// The argument that names `path` alone.
    pub(crate) fn text_of(&self, path: &[u8]) -> Vec<u8> {
        if self.paths.len() == 1 {
            return self.argument.to_vec();
        }
        [self.spec.file.as_os_str().as_bytes(), b":", path].concat()
    }
}

/// A container and a path in it.
struct Target {
    spec: MountSpec,
    path: Vec<u8>,
    /// `None`: the container is that of the argument before.
    located: Option<Located>,
}

/// Calls `show` with each argument in order to `verb` it. The failure of one argument is returned;
/// those of several are printed, and the first one decides the exit code.
pub(crate) fn each(args: &ViewsArgs, verb: &str, show: &mut dyn FnMut(&mut Shown<'_>) -> Result<(), ViewError>) -> Result<(), Failure> {
    logging::start_command(Level::Error, false)?;
    let several = args.targets.len() > 1;
    if args.targets.len() > MANY_ARGUMENTS {
        process::raise_file_limit()?;
    }
    let (targets, directories, mut owners) = locate(args, verb);
    confine_command(&directories, false);
    let mut opened: Result<Arc<dyn Operations>, Failure> = Err(Failure::reported(Exit::General));
    let mut first = None;
    for (argument, target) in args.targets.iter().zip(targets) {
        let done = target.and_then(|Target { spec, path, located }| {
            if let Some(located) = located {
                opened = located.open(&spec).map_err(|e| Failure::open(verb, &e));
            }
            let operations = opened.clone()?;
            let shown = paths(&*operations, &path).map_err(|e| ViewError::Path(path.clone(), e)).and_then(|paths| {
                let (argument, operations) = (argument.as_bytes(), &*operations);
                show(&mut Shown { argument, is_one_of_several: several, spec: &spec, operations, paths, owners: &mut owners })
            });
            match shown {
                Err(e @ ViewError::Output(_)) => Ok(Some(e.into_result(&spec, &path))),
                shown => shown.or_else(|e| e.into_result(&spec, &path)).map(|()| None),
            }
        });
        match done {
            Ok(None) => {}
            // Nothing more can be printed.
            Ok(Some(result)) => return result,
            Err(failure) if several => {
                print_error(&failure.message);
                first.get_or_insert(failure.exit);
            }
            Err(failure) => return Err(failure),
        }
    }
    first.map_or(Ok(()), |exit| Err(Failure::reported(exit)))
}

/// Locates all containers, and names the directories that they use and their owners.
fn locate(args: &ViewsArgs, verb: &str) -> (Vec<Result<Target, Failure>>, Vec<UsedDirectory>, Owners) {
    let (mut targets, mut directories, mut owners) = (Vec::new(), Vec::new(), Owners::default());
    let mut before = None;
    for argument in &args.targets {
        let mut find = || -> Result<Target, Failure> {
            let (spec, path) = resolve::view_of(argument, &args.options)?;
            if before.as_ref() == Some(&spec.file) {
                return Ok(Target { spec, path, located: None });
            }
            let failed = |e| Failure::open(verb, &e);
            before = None;
            let located = Located::find(&spec).map_err(failed)?;
            directories.extend(located.directories().map_err(failed)?);
            owners.user(spec.uid);
            owners.group(spec.gid);
            before = Some(spec.file.clone());
            Ok(Target { spec, path, located: Some(located) })
        };
        targets.push(find());
    }
    (targets, directories, owners)
}

fn is_pattern(name: &[u8]) -> bool {
    name.iter().any(|b| matches!(b, b'*' | b'?' | b'['))
}

/// The paths that `path` names: itself if there is such a path, else those that match it.
fn paths(operations: &dyn Operations, path: &[u8]) -> FsResult<Vec<Vec<u8>>> {
    let path = tree::absolute(path);
    match tree::resolve(operations, &path) {
        Ok(_) => return Ok(vec![path]),
        Err(Errno(libc::ENOENT)) if is_pattern(&path) => {}
        Err(e) => return Err(e),
    }
    let mut found = BTreeSet::from([b"/".to_vec()]);
    for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        let mut below = BTreeSet::new();
        for at in &found {
            below.extend(matching(operations, at, name)?);
        }
        found = below;
    }
    if found.is_empty() { Err(Errno(libc::ENOENT)) } else { Ok(found.into_iter().collect()) }
}

/// Paths of the files in the directory at `path` whose names match `pattern`; none if there is no
/// such directory.
fn matching(operations: &dyn Operations, path: &[u8], pattern: &[u8]) -> FsResult<Vec<Vec<u8>>> {
    let literal = tree::join(path, pattern);
    if tree::resolve(operations, &literal).is_ok() {
        return Ok(vec![literal]);
    }
    let text = std::str::from_utf8(pattern).ok().filter(|_| is_pattern(pattern));
    let Some(pattern) = text.and_then(|text| NamePattern::new(text).ok()) else { return Ok(Vec::new()) };
    let Ok(tree::Located { attr, .. }) = tree::locate(operations, path, true) else { return Ok(Vec::new()) };
    if attr.kind != FileKind::Directory {
        return Ok(Vec::new());
    }
    let names = tree::names(operations, attr.ino)?;
    Ok(names.iter().filter(|name| pattern.matches(&[], name)).map(|name| tree::join(path, name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tree::tests::sample;

    #[test]
    fn patterns_stand_for_names() {
        let found = |path: &str| {
            let paths = paths(&sample(), path.as_bytes());
            paths.map(|all| all.into_iter().map(|p| String::from_utf8(p).unwrap()).collect::<Vec<_>>().join(" ")).map_err(|e| e.0)
        };
        assert_eq!(found("/g/*"), Ok("/g/again /g/d".into()));
        assert_eq!(found("/[gu]*/d"), Ok("/g/d /up/d".into()));
        assert_eq!(found("/g/?"), Ok("/g/d".into()));
        assert_eq!(found("g//d"), Ok("/g/d".into()));
        assert_eq!(found("/g/d/*"), Err(libc::ENOTDIR));
        for none in ["/g/x*", "/x*/d", "/*/d/*", "/g/[", "/g/none"] {
            assert_eq!(found(none), Err(libc::ENOENT), "{none}");
        }
    }
}
