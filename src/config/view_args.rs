//! Arguments that commands which read objects share.

use super::value::{ExternalFiles, Version};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

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

    /// Read files that the HDF5 file names, beneath its directory or --external-root; 'all': hidden
    /// ones, too
    #[arg(long, value_name = "on|off|all", default_value = "on", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub(crate) external: ExternalFiles,

    /// Read only files beneath this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) external_root: Option<PathBuf>,

    /// Version of a container in an object store that is read [default: latest]
    #[arg(long, value_name = "VERSION")]
    pub(crate) version: Option<Version>,
}
