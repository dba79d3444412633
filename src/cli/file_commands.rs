//! `h5dir create` and `h5dir recover`: commands on a file that is not mounted.

use super::confine::confine_command;
use super::failure::Failure;
use crate::base::escape;
use crate::config::args::{CreateArgs, RecoverArgs};
use crate::config::new_files;
use crate::config::value::LogForm;
use crate::fs::{ExternalPolicy, MountSpec, open};
use std::io::{self, Write};

/// Runs `h5dir create`.
pub(crate) fn create(args: &CreateArgs) -> Result<(), Failure> {
    let failed = |e| Failure::open("create", &e);
    let new = new_files::new_file(&args.properties, args.config.as_deref(), args.libver, &args.file)?;
    open::create(&args.file, &new).map_err(failed)?;
    if !args.log {
        return Ok(());
    }
    let spec = MountSpec { writable: true, external: ExternalPolicy::Off, ..MountSpec::new(&args.file) };
    // Not confined: its bytes are known, and `log export` reads another file afterwards.
    let logged = open::locate(&spec).and_then(|located| open::log_by_default(located, args.log_format == LogForm::Released));
    // It is not what was asked for.
    logged.inspect_err(|_| drop(open::host_path::remove(&args.file))).map_err(failed)
}

/// Runs `h5dir recover`.
pub(crate) fn recover(args: &RecoverArgs) -> Result<(), Failure> {
    let found = match args.dry_run {
        true => open::examine(&args.file, |directories| confine_command(directories, false)),
        false => open::recover(&args.file, |directories| confine_command(directories, true)),
    };
    let found = found.map_err(|e| Failure::open("recover", &e))?;
    // A closed standard output is no failure: the file is recovered.
    let _ = writeln!(io::stdout(), "{}", escape::line(&found));
    Ok(())
}
