//! `h5dir cp`: copies from, to and between HDF5 files without mounting.
//!
//! ```text
//! copier    walks the sources            sink            what a destination can do
//! manner    how files are copied         object          objects between containers
//! describe  extended attributes          local_sink      a local directory
//! stored    chunks as they are stored    container_sink  a group of a container
//! bytes     data and holes               resume          interrupted copies
//! verify    compares copies              whole           whole files as arguments
//! report    lines and progress           absent          a destination that is not made
//! dry_run   directories of a copy that changes nothing
//! ```

mod absent;
mod bytes;
mod container_sink;
mod copier;
mod describe;
mod dry_run;
mod input;
mod local_sink;
mod manner;
mod object;
mod report;
mod resume;
mod sink;
mod stored;
mod verify;
mod whole;

use super::cat;
use super::failure::{Exit, Failure, reason};
use super::process;
use super::side::argument::Argument;
use super::side::container::{Container, ObjectSource};
use super::side::local::{LocalSource, StandardInput};
use super::side::opened;
use super::side::{Meta, SideKind, Source};
use crate::base::escape::escaped_bytes;
use crate::base::remote::{container_folder, container_url, is_container, is_url};
use crate::cli::confine::Tree;
use crate::cli::{print_error, tree};
use crate::config::new_files;
use crate::config::resolve;
use crate::config::side_args::{CopyArgs, ExternalArgs};
use crate::fs::open;
use crate::fs::open::{Resolved, host_path};
use absent::AbsentDirectory;
use container_sink::GroupDirectory;
use copier::{Copier, Stop};
use local_sink::LocalDirectory;
use manner::{Manner, Storage};
use report::{Lines, Report};
use sink::SinkDirectory;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

/// Runs `h5dir cp`.
pub(crate) fn copy(args: &CopyArgs) -> Result<(), Failure> {
    let sides = args.sides().ok_or_else(|| Failure::new(Exit::Usage, "the destination is missing: h5dir cp SRC... DST"))?;
    let sources = sides.0.iter().map(|text| Argument::parse(text)).collect();
    let (sources, destination, creates) = whole::roots(sources, Argument::parse(sides.1), is_recursive(args));
    check(args, &sources, &destination)?;
    if destination == Argument::Standard {
        if args.verbose || args.dry_run || args.json {
            let message = "the data itself is the output if the destination is '-'; omit --verbose, --dry-run and --json";
            return Err(Failure::new(Exit::Usage, message));
        }
        return cat::print(&sources, &args.external, &cat::Wanted::default());
    }
    process::catch_ending_signals().map_err(|e| Failure::new(Exit::General, format!("cannot catch signals: {}", reason(&e))))?;
    sources.iter().try_for_each(check_exists)?;
    let wanted = args.create || creates;
    if !wanted && !exists(&destination, false) {
        let name = escaped_bytes(&destination.text()).to_string();
        let message = format!("cannot write {name}: its file does not exist; --create creates it");
        return Err(Failure::new(Exit::File, message));
    }
    let absent = args.dry_run && wanted && !exists(&destination, wanted);
    let created = if args.dry_run { None } else { create(args, &destination, wanted)? };
    let job = Job::open(args, &sources, (&destination, absent));
    let result = job.and_then(|job| job.run(args, (&sources, &destination), created.is_some()));
    // An empty container may stay.
    let file = created.filter(|file| !is_container(file));
    if let (Some(file), Err(Ended { copied: false, .. })) = (&file, &result) {
        // Nothing was copied into it.
        let _ = host_path::remove(file);
    }
    result.map_err(|ended| {
        if process::is_interrupted() {
            print_error(&ended.failure.message);
        }
        process::end_if_interrupted();
        ended.failure
    })
}

/// Refuses arguments that no copy has.
fn check(args: &CopyArgs, sources: &[Argument], destination: &Argument) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::new(Exit::Usage, text));
    let is_object = |a: &Argument| matches!(a, Argument::Object { .. });
    if let Argument::Local(file) | Argument::Object { file, .. } = destination
        && is_url(file)
        && !is_container(file)
    {
        let message = "HDF5 files in object stores are only read; name a local file, or a container such as iod+s3://BUCKET/PREFIX";
        return Err(Failure::new(Exit::Usage, format!("cannot write {}: {message}", escaped_bytes(&destination.text()))));
    }
    if !sources.iter().chain([destination]).any(is_object) {
        return usage("no argument is an object of an HDF5 file; write FILE:/PATH, for all of a file FILE:/");
    }
    if sources.iter().any(|s| !is_object(s)) && !is_object(destination) {
        return usage("a local file is copied to a local file; use cp(1) for that");
    }
    if args.link {
        check_link(args, sources, destination)?;
    }
    if args.create && !is_object(destination) {
        return usage("--create needs an HDF5 file as the destination");
    }
    match sources {
        [Argument::Standard] | [Argument::Local(_) | Argument::Object { .. }] => Ok(()),
        many if many.contains(&Argument::Standard) => usage("standard input cannot be copied together with other files"),
        _ => Ok(()),
    }
}

/// Refuses sources of `--link` that the destination cannot refer to.
fn check_link(args: &CopyArgs, sources: &[Argument], destination: &Argument) -> Result<(), Failure> {
    let usage = |reason: &str| Failure::new(Exit::Usage, format!("--link: {reason}"));
    let Argument::Object { file, .. } = destination else {
        return Err(usage("the destination is no container; name iod:FOLDER or iod+s3://BUCKET/PREFIX"));
    };
    let spec = resolve::side(file, &args.external).map_err(Failure::from)?;
    for source in sources {
        let Argument::Object { file, .. } = source else { return Err(usage("a source is no HDF5 file")) };
        open::check_original(&spec, file).map_err(|reason| usage(&reason))?;
    }
    Ok(())
}

/// Errors: the file of `source` is not there. Nothing is created for it.
fn check_exists(source: &Argument) -> Result<(), Failure> {
    let path = match source {
        Argument::Local(path) => path,
        Argument::Object { file, .. } => container_folder(file).unwrap_or(file),
        Argument::Standard => return Ok(()),
    };
    if is_url(path) || open::exists(path) {
        return Ok(());
    }
    path.symlink_metadata().map(drop).map_err(|e| cannot("read", source, &e))
}

/// True if the container of the destination exists; one in an object store is only looked for if
/// it is `wanted`.
fn exists(destination: &Argument, wanted: bool) -> bool {
    let Argument::Object { file, .. } = destination else { return true };
    match container_folder(file) {
        Some(folder) => folder.join("iod").symlink_metadata().is_ok(),
        None if container_url(file).is_some() => !wanted || open::examine(file, |_| ()).is_ok(),
        None => is_url(file) || open::exists(file),
    }
}

/// Creates the container of the destination if it does not exist and `wanted`. Returns its name if
/// it is new.
fn create<'a>(args: &CopyArgs, destination: &'a Argument, wanted: bool) -> Result<Option<&'a Path>, Failure> {
    let Argument::Object { file, .. } = destination else { return Ok(None) };
    if !wanted || exists(destination, wanted) {
        return Ok(None);
    }
    let new = new_files::new_file(&Default::default(), args.config.as_deref(), args.libver, file)?;
    open::create(file, &new).map_err(|e| Failure::open("create", &e))?;
    Ok(Some(file))
}

/// Why a copy ended, and whether something was copied.
struct Ended {
    failure: Failure,
    copied: bool,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Ended { failure, copied: false }
    }
}

fn cannot(verb: &str, argument: &Argument, why: &io::Error) -> Failure {
    let missing = matches!(why.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP));
    let (exit, hint) = match argument {
        Argument::Object { .. } if missing => (Exit::Path, "; 'h5dir ls -R FILE' lists its paths"),
        _ if missing => (Exit::General, "; check the path"),
        _ => (Exit::General, ""),
    };
    Failure::new(exit, format!("cannot {verb} {}: {}{hint}", escaped_bytes(&argument.text()), reason(why)))
}

/// The destination: a directory, and the name in it if it is no directory itself.
struct CopyDestination {
    directory: Rc<dyn SinkDirectory>,
    name: Option<Vec<u8>>,
}

/// Everything that is open.
struct Job {
    /// The sources; `None`: standard input.
    sources: Vec<Option<Box<dyn Source>>>,
    place: CopyDestination,
    /// The container that is changed.
    container: Option<Arc<Container>>,
    /// What is copied, if the copy can be resumed.
    identity: Option<Vec<u8>>,
}

impl Job {
    /// Opens local files, then the containers, after which the process is confined.
    /// `absent`: the container of the destination is not made.
    fn open(args: &CopyArgs, sources: &[Argument], (destination, absent): (&Argument, bool)) -> Result<Job, Ended> {
        let local = |argument: &Argument| match argument {
            Argument::Local(path) => LocalSource::open(path, !is_recursive(args)).map(Some).map_err(|e| cannot("read", argument, &e)),
            Argument::Standard | Argument::Object { .. } => Ok(None),
        };
        let locals = sources.iter().map(local).collect::<Result<Vec<_>, _>>()?;
        let target = match destination {
            Argument::Local(path) => Some(local_place(path).map_err(|e| cannot("write", destination, &e))?),
            Argument::Standard | Argument::Object { .. } => None,
        };
        let mut trees: Vec<Tree<'_>> = locals.iter().flatten().map(|s| Tree { file: s.descriptor(), written: false }).collect();
        trees.extend(target.iter().map(|(directory, _)| Tree { file: directory.descriptor().as_fd(), written: !args.dry_run }));
        let mut specs = Vec::new();
        for argument in sources.iter().chain((!absent).then_some(destination)) {
            if let Argument::Object { file, .. } = argument {
                let is_destination = std::ptr::eq(argument, destination);
                // The version is that of the sources.
                let external = ExternalArgs { version: args.external.version.clone().filter(|_| !is_destination), ..args.external.clone() };
                let side = resolve::side(file, &external).map_err(Failure::from)?;
                let changed = is_destination && !args.dry_run;
                specs.push(if changed { side.to_change(args.external_write) } else { side });
            }
        }
        let rules = args.config.as_deref().map(resolve::create_rules).transpose().map_err(Failure::from)?.unwrap_or_default();
        let ruled = !rules.is_empty();
        if let (Argument::Object { .. }, Some(spec), false) = (destination, specs.last_mut(), absent) {
            spec.create = rules.into();
        }
        // A new file for which there are rules has its name before it is complete.
        let identity = if ruled || !is_recursive(args) || args.dry_run { None } else { resume::identity(sources) };
        let containers = opened::open(specs, &trees)?;
        drop(trees);
        let mut job = Self::resolve(args, (sources, locals), (destination, target, ruled, absent), containers.iter().cloned());
        if let Ok(job) = &mut job {
            job.identity = identity;
        }
        if job.is_err() {
            // Nothing was changed.
            containers.iter().for_each(|c| drop(c.operations.shutdown()));
        }
        job
    }

    /// Finds the objects in the containers.
    fn resolve(
        args: &CopyArgs,
        (sources, mut locals): (&[Argument], Vec<Option<LocalSource>>),
        (destination, target, ruled, absent): (&Argument, Option<(LocalDirectory, Option<Vec<u8>>)>, bool, bool),
        mut containers: impl Iterator<Item = Arc<Container>>,
    ) -> Result<Job, Ended> {
        let mut opened = Vec::new();
        for (argument, local) in sources.iter().zip(&mut locals) {
            opened.push(match argument {
                Argument::Standard => None,
                Argument::Local(_) => local.take().map(|s| Box::new(s) as Box<dyn Source>),
                Argument::Object { path, .. } => Some(object(&mut containers, path, args).map_err(|e| cannot("find", argument, &e))?),
            });
        }
        let (place, container) = match (destination, target) {
            (Argument::Object { .. }, _) if absent => {
                (CopyDestination { directory: Rc::new(AbsentDirectory { is_local: false }), name: None }, None)
            }
            (Argument::Object { path, .. }, _) => {
                let container = containers.next().ok_or_else(|| Failure::new(Exit::General, "no container is open"))?;
                let place = object_place(&container, path, ruled).map_err(|e| cannot("write", destination, &e))?;
                // A copy that changes nothing closes nothing.
                (place, (!args.dry_run).then_some(container))
            }
            (_, Some((directory, name))) => (CopyDestination { directory: Rc::new(directory), name }, None),
            (_, None) => return Err(Failure::new(Exit::Usage, "there is no destination").into()),
        };
        Ok(Job { sources: opened, place, container, identity: None })
    }

    /// Copies everything, and closes the container.
    fn run(self, args: &CopyArgs, (sources, destination): (&[Argument], &Argument), new_destination: bool) -> Result<(), Ended> {
        let Job { sources: opened, place, container, identity } = self;
        let between = container.is_some() && opened.iter().flatten().all(|s| s.as_object().is_some());
        let manner = Manner {
            recursive: is_recursive(args),
            owner: args.archive || args.preserve || between,
            umask: process::umask(),
            archive: args.archive || args.preserve,
            new_destination,
            xattrs: args.xattrs || args.archive,
            xattrs_may_fail: !args.xattrs && container.is_none(),
            no_clobber: args.no_clobber,
            update: args.update,
            dry_run: args.dry_run,
            force: args.force,
            resize: args.resize,
            storage: match (args.no_log, args.into_log) {
                (_, true) => Storage::InLog,
                (true, _) => Storage::NoLog,
                _ => Storage::Kept,
            },
            dereference: args.dereference,
            link: args.link,
        };
        let lines = match (args.json, args.verbose || args.dry_run) {
            (true, _) => Lines::Json,
            (false, true) => Lines::Names,
            (false, false) => Lines::None,
        };
        let mut copier = Copier::new(manner, container.clone(), Report::new(lines, &opened));
        let copied = copy_all(&mut copier, &opened, &place, (sources, identity), destination);
        let mut resumable = false;
        let finished = match copied {
            Ok(Ok(())) => Ok(copier.finish()),
            Ok(Err(stop)) => {
                resumable = copier.interrupt();
                Ok(Err(stop))
            }
            other => other,
        };
        let (objects, failures) = copier.counts();
        // Nodes are released before the container is closed.
        drop((copier, opened, place));
        let closed = container.map_or(Ok(()), |c| c.operations.shutdown().map_err(|e| Failure::new(Exit::General, e.to_string())));
        let failure = match (finished, closed) {
            (Err(failure), _) | (_, Err(failure)) => failure,
            (Ok(Err(Stop::Interrupted)), _) if resumable => Failure::new(Exit::General, "interrupted: the same command copies the rest"),
            (Ok(Err(Stop::Interrupted)), _) => Failure::new(Exit::General, "interrupted: the rest was not copied"),
            (Ok(Err(Stop::Full)), _) => Failure::new(Exit::General, "the destination takes no more: the rest was not copied"),
            (Ok(Ok(())), Ok(())) if failures == 0 => return Ok(()),
            (Ok(Ok(())), Ok(())) => Failure::new(Exit::General, not_copied(failures)),
        };
        Err(Ended { failure, copied: objects > 0 })
    }
}

fn not_copied(failures: u64) -> String {
    match failures {
        1 => "1 object was not copied, or not as it is".into(),
        n => format!("{n} objects were not copied, or not as they are"),
    }
}

fn is_recursive(args: &CopyArgs) -> bool {
    args.recursive || args.archive
}

/// The object at `path` of the next container.
fn object(containers: &mut impl Iterator<Item = Arc<Container>>, path: &[u8], args: &CopyArgs) -> io::Result<Box<dyn Source>> {
    let container = containers.next().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
    Ok(Box::new(ObjectSource::resolve(&container, path, !is_recursive(args))?))
}

/// The local destination `path`: an existing directory, or its parent and a name.
fn local_place(path: &Path) -> io::Result<(LocalDirectory, Option<Vec<u8>>)> {
    if path.is_dir() {
        return Ok((LocalDirectory::open(path)?, None));
    }
    if path.file_name().is_none() {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    let found = Resolved::new_name(path)?;
    Ok((LocalDirectory::of(&found.directory)?, Some(found.name.into_vec())))
}

/// The destination `path` in `container`: an existing group, or its parent and a name.
fn object_place(container: &Arc<Container>, path: &[u8], rules: bool) -> io::Result<CopyDestination> {
    match GroupDirectory::open(container, path, rules) {
        Ok(group) => return Ok(CopyDestination { directory: Rc::new(group), name: None }),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {}
        Err(e) => return Err(e),
    }
    let path = tree::absolute(path);
    let at = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
    let (parent, name) = (path.get(..at).unwrap_or_default(), path.get(at.saturating_add(1)..).unwrap_or_default());
    let parent = if parent.is_empty() { b"/" } else { parent };
    Ok(CopyDestination { directory: Rc::new(GroupDirectory::open(container, parent, rules)?), name: Some(name.to_vec()) })
}

/// Copies the sources to the place. Inner errors were printed.
fn copy_all(
    copier: &mut Copier,
    opened: &[Option<Box<dyn Source>>],
    place: &CopyDestination,
    (sources, source): (&[Argument], Option<Vec<u8>>),
    destination: &Argument,
) -> Result<Result<(), Stop>, Failure> {
    let directory = &place.directory;
    if place.name.is_some() && sources.len() > 1 {
        let why = "several sources need a directory that exists";
        return Err(Failure::new(Exit::Usage, format!("cannot write {}: {why}", escaped_bytes(&destination.text()))));
    }
    // The contents of a root group are copied into the same new directory again.
    let is_root = |argument: &Argument| matches!(argument, Argument::Object { path, .. } if path.iter().all(|b| *b == b'/'));
    if place.name.is_some() && sources.iter().all(is_root) {
        copier.new_top.clone_from(&source);
    }
    copier.note_destination(directory, source).map_err(|e| cannot("write", destination, &e))?;
    for (source, argument) in opened.iter().zip(sources) {
        let (path, name) = (argument.text(), place.name.clone().or_else(|| argument.name()));
        let there = destination.text();
        let below = if place.name.is_some() { None } else { name.as_ref() };
        copier.report.begin(&path, below.map_or_else(|| there.clone(), |name| tree::join(&there, name)));
        let done = match (source, name) {
            (None, Some(name)) => match copier.copy_input(&mut StandardInput::new(), &input_meta(), directory, &name) {
                Ok(()) => Ok(()),
                Err(e) => copier.failed(&path, &e),
            },
            (None, None) => return Err(Failure::new(Exit::Usage, "standard input has no name; name the destination")),
            (Some(source), Some(name)) => copier.copy(source.as_ref(), &path, directory, &name, 0),
            // The root, `.` or `..`: what is in it.
            (Some(source), None) if source.meta().kind == SideKind::Directory => copier.copy_top(source.as_ref(), &path, directory),
            (Some(_), None) => return Err(Failure::new(Exit::Usage, format!("{} has no name", escaped_bytes(&path)))),
        };
        if let Err(stop) = done {
            return Ok(Err(stop));
        }
    }
    Ok(Ok(()))
}

/// Attributes of a file made of standard input.
fn input_meta() -> Meta {
    let now = SystemTime::now();
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    Meta { kind: SideKind::Regular, perm: 0o644, uid, gid, size: u64::MAX, links: 1, identity: (0, 0), atime: now, mtime: now }
}
