//! `h5dir create` and `h5dir recover`: files that are not mounted.

use super::confine::confine_command;
use super::failure::Failure;
use crate::base::escape;
use crate::config::args::{CreateArgs, RecoverArgs};
use crate::config::value::LibVer;
use crate::fs::open;
use std::io::{self, Write};

/// `h5dir create`.
pub fn create(args: &CreateArgs) -> Result<(), Failure> {
    open::create(&args.file, args.libver == LibVer::Earliest).map_err(|e| Failure::open("create", &e))
}

/// `h5dir recover`.
pub fn recover(args: &RecoverArgs) -> Result<(), Failure> {
    let found = open::recover(&args.file, |directories| confine_command(directories, true)).map_err(|e| Failure::open("recover", &e))?;
    // Nobody may read it; what was done stays done.
    let _ = writeln!(io::stdout(), "{}", escape::line(&found));
    Ok(())
}
