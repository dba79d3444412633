//! `h5dir create` and `h5dir recover`: commands on a file that is not mounted.

use super::confine::confine_command;
use super::failure::Failure;
use crate::base::escape;
use crate::config::args::{CreateArgs, RecoverArgs};
use crate::config::value::LibVer;
use crate::fs::open;
use std::io::{self, Write};

/// Runs `h5dir create`.
pub(crate) fn create(args: &CreateArgs) -> Result<(), Failure> {
    open::create(&args.file, args.libver == LibVer::Earliest).map_err(|e| Failure::open("create", &e))
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
