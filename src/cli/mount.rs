//! `h5dir mount` and the baseline of the benchmarks.

use super::daemon::{self, Ready};
use super::failure::{Exit, Failure, errno_text};
use super::{logging, process};
use crate::config::MountPlan;
use crate::config::args::{BenchMemoryArgs, MountArgs};
use crate::config::resolve;
use crate::fs::memory::MemoryFs;
use crate::fs::{Operations, open};
use crate::fuse::{MountError, mounts};
use std::sync::Arc;

/// `h5dir mount`.
pub fn mount(args: MountArgs) -> Result<(), Failure> {
    let (spec, plan) = resolve::mount(args)?;
    run(plan, move || open(&spec).map_err(|e| Failure::open("mount", &e)))
}

/// `h5dir bench-memory-fs`.
pub fn bench_memory_fs(args: BenchMemoryArgs) -> Result<(), Failure> {
    let plan = resolve::memory_mount(args.common, args.mountpoint)?;
    let size = usize::try_from(args.size.0).unwrap_or(usize::MAX);
    run(plan, move || match MemoryFs::with_data_file(size) {
        Ok(fs) => Ok(Arc::new(fs) as Arc<dyn Operations>),
        Err(e) => Err(Failure::new(Exit::General, format!("cannot hold {size} bytes: {}", errno_text(e.0)))),
    })
}

/// Mounts what `open` gives, here or in the background.
fn run(mut plan: MountPlan, open: impl FnOnce() -> Result<Arc<dyn Operations>, Failure>) -> Result<(), Failure> {
    process::take_files()?;
    process::check_address_space()?;
    // A daemon's working directory is the root.
    let path = plan.session.mountpoint;
    let absolute = mounts::absolute(&path);
    plan.session.mountpoint = absolute.map_err(|source| Failure::mount(&plan.session.source, &MountError::Mountpoint { path, source }))?;
    logging::start(&plan.log, !plan.foreground)?;
    if plan.foreground {
        return daemon::serve(open, &plan, &mut Ready::foreground());
    }
    daemon::background(|ready| daemon::serve(open, &plan, ready))
}
