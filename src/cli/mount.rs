//! `h5dir mount`, and `h5dir bench-memory-fs`, the baseline of the benchmarks.

use super::daemon::{self, Opening, Ready};
use super::failure::{Exit, Failure, errno_text};
use super::{logging, process};
use crate::base::escape::escaped;
use crate::config::MountPlan;
use crate::config::args::{BenchMemoryArgs, MountArgs};
use crate::config::resolve;
use crate::fs::memory::MemoryFs;
use crate::fs::{Operations, open};
use crate::fuse::{MountError, mountpoint};
use crate::mirror;
use std::path::Path;
use std::sync::Arc;

/// Runs `h5dir mount`.
pub(crate) fn mount(args: MountArgs) -> Result<(), Failure> {
    // It counts the files that may be open.
    process::raise_file_limit()?;
    let failed = |e| Failure::open("mount", &e);
    if Path::new(&args.target).is_dir() {
        return mount_mirror(args);
    }
    let (spec, plan) = resolve::mount(args)?;
    run(plan, move || {
        let located = open::locate(&spec).map_err(failed)?;
        let directories = located.directories().map_err(failed)?;
        Ok(Opening { directories, open: Box::new(move || open::open_located(&spec, located).map_err(failed)) })
    })
}

/// Mounts a directory.
fn mount_mirror(args: MountArgs) -> Result<(), Failure> {
    let failed = |e| Failure::open("mount", &e);
    let (spec, plan) = resolve::mirror(args)?;
    check_outside(&spec.root, &plan)?;
    run(plan, move || {
        let located = mirror::locate(&spec).map_err(failed)?;
        let directories = located.directories().map_err(failed)?;
        Ok(Opening { directories, open: Box::new(move || mirror::open(located).map_err(failed)) })
    })
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

/// Runs `h5dir bench-memory-fs`.
pub(crate) fn bench_memory_fs(args: BenchMemoryArgs) -> Result<(), Failure> {
    let plan = resolve::memory_mount(args.common, args.mountpoint)?;
    let size = usize::try_from(args.size.0).unwrap_or(usize::MAX);
    let open = move || match MemoryFs::with_data_file(size) {
        Ok(fs) => Ok(Arc::new(fs) as Arc<dyn Operations>),
        Err(e) => Err(Failure::new(Exit::General, format!("cannot allocate the file of {size} bytes: {}", errno_text(e.0)))),
    };
    run(plan, move || Ok(Opening { directories: Vec::new(), open: Box::new(open) }))
}

/// Mounts what `locate` finds, in the foreground or in the background.
fn run(mut plan: MountPlan, locate: impl FnOnce() -> Result<Opening, Failure>) -> Result<(), Failure> {
    process::check_address_space()?;
    // The working directory of a daemon is /.
    let path = plan.session.mountpoint;
    let absolute = mountpoint::resolve(&path);
    plan.session.mountpoint = absolute.map_err(|source| Failure::mount(&plan.session.source, &MountError::Mountpoint { path, source }))?;
    logging::start(&plan.log, !plan.foreground)?;
    if plan.foreground {
        return daemon::serve(locate, &plan, &mut Ready::foreground());
    }
    daemon::background(|ready| daemon::serve(locate, &plan, ready))
}
