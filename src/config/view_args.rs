//! Arguments that commands which read objects share.

use super::side_args::ExternalArgs;
use clap::{Args, ValueHint};
use std::ffi::OsString;

/// Arguments of commands that read or change one object.
#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// The HDF5 file and a path in it
    #[arg(value_name = "FILE[:/PATH]", value_hint = ValueHint::FilePath)]
    pub(crate) target: OsString,

    #[command(flatten)]
    /// The options.
    pub(crate) options: ViewOptions,
}

/// Arguments that `ls` and `stat` share.
#[derive(Debug, Args)]
pub(crate) struct ViewsArgs {
    /// HDF5 files, containers or directories, and a path in each: *, ? and [...] stand for names
    #[arg(value_name = "FILE[:/PATH]", value_hint = ValueHint::FilePath, required = true)]
    pub(crate) targets: Vec<OsString>,

    /// Show it as files: mode, links, owner, group, size, times
    #[arg(long, conflicts_with = "json")]
    pub(crate) posix: bool,

    #[command(flatten)]
    /// The options.
    pub(crate) options: ViewOptions,
}

/// Options of commands that read objects.
#[derive(Debug, Clone, Args)]
pub(crate) struct ViewOptions {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    /// Which files are read, and which version.
    pub(crate) files: ExternalArgs,
}
