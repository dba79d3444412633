//! The arguments of commands that look into files: files, containers and directories, with a path
//! in each.
//!
//! All are located, then the command is confined to them, then each is opened and shown. One that
//! fails is reported, and the others are shown. The exit code is the highest one.

use super::confine::confine_command;
use super::failure::{Exit, Failure};
use super::located::Located;
use super::tree;
use super::view::{Owners, ViewError};
use super::{logging, print_error, process};
use crate::base::escape::{escaped, escaped_bytes};
use crate::config::resolve;
use crate::config::value::Level;
use crate::config::view_args::ViewOptions;
use crate::fs::create_rules::NamePattern;
use crate::fs::open::{LocatedContainer, UsedDirectory};
use crate::fs::{Errno, FileKind, FsResult, MountSpec, Operations};
use crate::mirror;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Arguments from which on the limit of open files is raised: each holds a few directories open.
const MANY_ARGUMENTS: usize = 64;

/// An argument of a command.
pub(crate) struct Asked {
    /// As typed.
    pub(crate) text: Vec<u8>,
    /// The container that it names and the path in it, or why it names none.
    pub(crate) found: Result<(MountSpec, Vec<u8>), Failure>,
}

impl Asked {
    /// The arguments of `ls`, `stat` and `find`.
    pub(crate) fn of_views(targets: &[OsString], options: &ViewOptions) -> Vec<Asked> {
        let asked = |text: &OsString| {
            let found = resolve::view_of(text, options).map_err(Failure::from);
            Asked { text: text.as_bytes().to_vec(), found }
        };
        targets.iter().map(asked).collect()
    }

    /// The argument, which must name a whole file. Errors: it has a path.
    pub(crate) fn whole(self, command: &str) -> Asked {
        let found = self.found.and_then(|(spec, path)| {
            if path.iter().all(|b| *b == b'/') {
                return Ok((spec, path));
            }
            let (file, path) = (escaped(&spec.file).to_string(), escaped_bytes(&path).to_string());
            Err(Failure::new(Exit::Usage, format!("{command} takes whole files: give {file} without :{path}")))
        });
        Asked { found, ..self }
    }
}

/// What a command does with its arguments, and how it logs.
#[derive(Clone, Copy)]
pub(crate) struct Manner<'a> {
    /// In messages: cannot `verb` FILE.
    pub(crate) verb: &'a str,
    /// Least severe messages that are logged.
    pub(crate) level: Level,
    /// Its own messages have the reasons of operations that fail.
    pub(crate) gives_reasons: bool,
}

impl<'a> Manner<'a> {
    /// A command that logs errors.
    pub(crate) fn new(verb: &'a str) -> Manner<'a> {
        Manner { verb, level: Level::Error, gives_reasons: false }
    }
}

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
    /// The same view, to be kept.
    pub(crate) shared: &'a Arc<dyn Operations>,
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

/// The failures of a command with several arguments, which were printed.
pub(crate) struct Failures {
    several: bool,
    worst: Option<Exit>,
}

impl Failures {
    /// `several`: arguments after one that failed are processed, too.
    pub(crate) fn new(several: bool) -> Failures {
        Failures { several, worst: None }
    }

    /// Takes the end of one. Error: it was the only one.
    pub(crate) fn add(&mut self, failure: Failure) -> Result<(), Failure> {
        if !self.several {
            return Err(failure);
        }
        if !failure.message.is_empty() {
            print_error(&failure.message);
        }
        self.worst = Some(self.worst.map_or(failure.exit, |worst| worst.worse(failure.exit)));
        Ok(())
    }

    /// The end of the command.
    pub(crate) fn end(self) -> Result<(), Failure> {
        self.worst.map_or(Ok(()), |exit| Err(Failure::reported(exit)))
    }
}

/// Calls `show` with each argument in order to `verb` it. The failure of one argument is returned;
/// those of several are printed, and the worst one decides the exit code.
pub(crate) fn each(
    asked: Vec<Asked>,
    manner: Manner<'_>,
    show: &mut dyn FnMut(&mut Shown<'_>) -> Result<(), ViewError>,
) -> Result<(), Failure> {
    let (verb, several) = (manner.verb, asked.len() > 1);
    let (targets, mut owners) = locate(asked, manner, true)?;
    let mut opened: Result<Arc<dyn Operations>, Failure> = Err(Failure::reported(Exit::General));
    let mut failures = Failures::new(several);
    for (argument, target) in targets {
        let done = target.and_then(|Target { spec, path, located }| {
            if let Some(located) = located {
                opened = located.open(&spec).map_err(|e| Failure::open(verb, &e));
            }
            let shared = &opened.clone()?;
            let shown = paths(&**shared, &path).map_err(|e| ViewError::Path(path.clone(), e)).and_then(|paths| {
                let (argument, operations) = (argument.as_slice(), &**shared);
                show(&mut Shown { argument, is_one_of_several: several, spec: &spec, operations, shared, paths, owners: &mut owners })
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
            Err(failure) => failures.add(failure)?,
        }
    }
    failures.end()
}

/// Calls `f` with each container: of an argument that is a directory, with all in it. True: it is
/// one of several. `f` breaks if nothing more can be printed. Failures are those of [`each`].
pub(crate) fn each_container(
    asked: Vec<Asked>,
    manner: Manner<'_>,
    f: &mut dyn FnMut(&MountSpec, LocatedContainer, bool) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let verb = manner.verb;
    let (targets, _) = locate(asked, manner, false)?;
    let several = targets.len() > 1 || targets.iter().any(|(_, t)| matches!(t, Ok(Target { located: Some(Located::Mirror(_)), .. })));
    let mut failures = Failures::new(several);
    for (argument, target) in targets {
        let ended = match target {
            Err(failure) => Err(failure),
            Ok(Target { spec, located: Some(Located::Container(located)), .. }) => f(&spec, located, several),
            Ok(Target { located: Some(Located::Mirror(located)), .. }) => {
                let (mut found, mut flow) = (false, ControlFlow::Continue(()));
                let visited = mirror::visit_containers(located, &mut |spec, located| {
                    found = true;
                    let done = located.map_err(|e| Failure::open(verb, &e)).and_then(|located| f(spec, located, several));
                    // A failure of one of several is no failure here.
                    flow = done.unwrap_or_else(|failure| failures.add(failure).map_or(ControlFlow::Break(()), ControlFlow::Continue));
                    flow
                });
                let none = || Failure::new(Exit::File, format!("cannot {verb} {}: it has no HDF5 files", escaped_bytes(&argument)));
                visited.map_err(|e| Failure::open(verb, &e)).and_then(|()| if found { Ok(flow) } else { Err(none()) })
            }
            Ok(Target { located: None, .. }) => Ok(ControlFlow::Continue(())),
        };
        match ended {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => break,
            Err(failure) => failures.add(failure)?,
        }
    }
    failures.end()
}

type Targets = Vec<(Vec<u8>, Result<Target, Failure>)>;

/// Locates all containers, confines the command to the directories that they use, and looks up the
/// names of their owners. `shares`: arguments in a row that name one container share it.
fn locate(asked: Vec<Asked>, manner: Manner<'_>, shares: bool) -> Result<(Targets, Owners), Failure> {
    logging::start_command(manner.level, manner.gives_reasons)?;
    if asked.len() > MANY_ARGUMENTS {
        process::raise_file_limit()?;
    }
    let (mut targets, mut directories, mut owners) = (Targets::new(), Vec::<UsedDirectory>::new(), Owners::default());
    let mut before = None;
    for Asked { text, found } in asked {
        let find = |(spec, path): (MountSpec, Vec<u8>)| -> Result<Target, Failure> {
            if shares && before.as_ref() == Some(&spec.file) {
                return Ok(Target { spec, path, located: None });
            }
            let failed = |e| Failure::open(manner.verb, &e);
            before = None;
            let located = Located::find(&spec).map_err(failed)?;
            directories.extend(located.directories().map_err(failed)?);
            owners.user(spec.uid);
            owners.group(spec.gid);
            before = Some(spec.file.clone());
            Ok(Target { spec, path, located: Some(located) })
        };
        targets.push((text, found.and_then(find)));
    }
    confine_command(&directories, false);
    Ok((targets, owners))
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
