//! `h5dir mount`, and `h5dir bench-memory-fs`, the baseline of the benchmarks.

use super::control::Control;
use super::daemon::{self, Opening, Ready};
use super::failure::{Exit, Failure, errno_text, reason};
use super::{logging, process, umount};
use crate::base::escape::escaped;
use crate::config::MountPlan;
use crate::config::args::{BenchMemoryArgs, MountArgs};
use crate::config::catalog::Catalog;
use crate::config::file::{ConfigFile, NamedMount};
use crate::config::layers::Layers;
use crate::config::resolve::{self, Resolved};
use crate::fs::memory::MemoryFs;
use crate::fs::{Operations, open};
use crate::fuse::{MountError, mountpoint, mounts};
use crate::mirror::{self, MirrorSpec};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Runs `h5dir mount` for one mount.
pub(crate) fn mount(args: MountArgs) -> Result<(), Failure> {
    // It counts the files that may be open.
    process::raise_file_limit()?;
    let resolved = resolve::mount(&args)?;
    resolved.warnings.iter().for_each(|e| super::print_error(&e.0));
    let control = Control::new(args, &resolved);
    let Resolved { spec, mirror, plan, name, .. } = resolved;
    let failed = |e| Failure::open("mount", &e);
    if let Some(mirror) = &mirror {
        check_outside(&mirror.root, &plan)?;
    }
    let result = run(plan, Some(control), move || {
        if let Some(mirror) = &mirror {
            return open_mirror(mirror);
        }
        let located = open::locate(&spec).map_err(failed)?;
        let directories = located.directories().map_err(failed)?;
        Ok(Opening { directories, open: Box::new(move || open::open_located(&spec, located).map_err(failed)) })
    });
    result.map_err(|failure| match name {
        Some(name) => Failure::new(failure.exit, format!("{name}: {}", failure.message)),
        None => failure,
    })
}

/// Opens a directory.
fn open_mirror(spec: &MirrorSpec) -> Result<Opening, Failure> {
    let failed = |e| Failure::open("mount", &e);
    let located = mirror::locate(spec).map_err(failed)?;
    let directories = located.directories().map_err(failed)?;
    Ok(Opening { directories, open: Box::new(move || mirror::open(located).map_err(failed)) })
}

/// Checks that the mountpoint is not within the directory: the mount would show itself.
fn check_outside(root: &Path, plan: &MountPlan) -> Result<(), Failure> {
    let (Ok(root), Ok(at)) = (root.canonicalize(), mountpoint::resolve(&plan.session.mountpoint)) else { return Ok(()) };
    if at == root || !at.starts_with(&root) {
        return Ok(());
    }
    let message = format!("cannot mount {} at {}: the mountpoint is in the directory; choose one outside", escaped(&root), escaped(&at));
    Err(Failure::new(Exit::Usage, message))
}

/// Runs `h5dir mount --all`: mounts what is not mounted, and continues after a failure.
///
/// Each failure is a line. The exit code is that of the first one.
pub(crate) fn all(args: &MountArgs) -> Result<(), Failure> {
    let layers = Layers::of_command(&args.common)?;
    let catalog = Catalog::read(args.common.config.as_deref())?;
    let mut first: Option<Exit> = None;
    let mut failed = |exit: Exit, message: Option<&str>| {
        message.into_iter().for_each(super::print_error);
        first = first.or(Some(exit));
    };
    for e in &catalog.unreadable {
        failed(Exit::Usage, Some(&e.0));
    }
    // The mounts of the other files name the problem.
    for e in catalog.files.iter().filter(|file| file.mounts.is_empty()).filter_map(|file| file.usable().err()) {
        failed(Exit::Usage, Some(&e.0));
    }
    let mounts = catalog.mounts();
    if mounts.is_empty() && catalog.unreadable.is_empty() && catalog.files.iter().all(|file| file.usable().is_ok()) {
        super::print_error("nothing is mounted: no configuration file has 'mounts:'; 'h5dir config check' lists the files");
    }
    for (file, mount) in mounts {
        match start(file, mount, &layers) {
            Ok(None) => {}
            Ok(Some(exit)) => failed(exit, None),
            Err(failure) => failed(failure.exit, Some(&format!("{}: {}", mount.name, failure.message))),
        }
    }
    first.map_or(Ok(()), |exit| Err(Failure::reported(exit)))
}

/// Mounts one mount by another process, unless it is mounted. Returns the exit code of that
/// process if it failed, which it has reported.
fn start(file: &ConfigFile, mount: &NamedMount, layers: &Layers) -> Result<Option<Exit>, Failure> {
    let plan = resolve::named(file, mount, layers.clone())?.plan;
    let path = &plan.session.mountpoint;
    let at = mountpoint::resolve(path).ok().and_then(|at| Some((mounts::top_at(&at).ok()??, at)));
    if let Some((there, at)) = at.filter(|(there, at)| there.is_ours() && !umount::is_dead(at)) {
        if there.source == *plan.session.source {
            return Ok(None);
        }
        let (at, other) = (escaped(&at), escaped(&there.source));
        return Err(Failure::new(Exit::Mount, format!("cannot mount {}: {at} shows {other}", escaped(&plan.session.source))));
    }
    // The options of this command line apply to all.
    let own: Vec<OsString> = std::env::args_os().skip(2).filter(|arg| arg != "--all").collect();
    // The name of the process is that of its file.
    let program = std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| "/proc/self/exe".into());
    let mut command = Command::new(program);
    command.arg0("h5dir").args(["mount", "--name", &mount.name, "--foreground=off"]).args(own).stdin(Stdio::null());
    let status = command.status().map_err(|e| Failure::new(Exit::General, format!("cannot start h5dir: {}", reason(&e))))?;
    Ok((!status.success()).then(|| Exit::from_code(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))))
}

/// Runs `h5dir bench-memory-fs`.
pub(crate) fn bench_memory_fs(args: BenchMemoryArgs) -> Result<(), Failure> {
    let plan = resolve::memory_mount(&args.common, args.mountpoint)?;
    let size = usize::try_from(args.size.0).unwrap_or(usize::MAX);
    let open = move || match MemoryFs::with_data_file(size) {
        Ok(fs) => Ok(Arc::new(fs) as Arc<dyn Operations>),
        Err(e) => Err(Failure::new(Exit::General, format!("cannot allocate the file of {size} bytes: {}", errno_text(e.0)))),
    };
    run(plan, None, move || Ok(Opening { directories: Vec::new(), open: Box::new(open) }))
}

/// Mounts what `locate` finds, in the foreground or in the background.
fn run(mut plan: MountPlan, control: Option<Control>, locate: impl FnOnce() -> Result<Opening, Failure>) -> Result<(), Failure> {
    process::raise_file_limit()?;
    process::check_address_space()?;
    process::limit_heaps();
    // The working directory of a daemon is /.
    let path = plan.session.mountpoint;
    let absolute = mountpoint::resolve(&path);
    plan.session.mountpoint = absolute.map_err(|source| Failure::mount(&plan.session.source, &MountError::Mountpoint { path, source }))?;
    logging::start(&plan.log, !plan.foreground)?;
    if plan.foreground {
        return daemon::serve(locate, &plan, control, &mut Ready::foreground());
    }
    let automount = mounts::top_at(&plan.session.mountpoint).ok().flatten().is_some_and(|mount| mount.fs_type == "autofs");
    daemon::background(automount, |ready| daemon::serve(locate, &plan, control, ready))
}
