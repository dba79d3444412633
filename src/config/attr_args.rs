//! Arguments of `h5dir attr`, `h5dir summary`, `h5dir write` and `h5dir kerchunk`.

use super::side_args::ExternalArgs;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Arguments of `h5dir attr`.
#[derive(Debug, Args)]
pub(crate) struct AttrArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: AttrCommand,
}

/// The object that is meant.
#[derive(Debug, Args)]
pub(crate) struct AttrTarget {
    #[command(flatten)]
    /// Which other files are read.
    pub(crate) external: ExternalArgs,

    /// The object
    #[arg(value_name = "FILE:/PATH")]
    pub(crate) object: OsString,
}

/// Arguments of `h5dir summary`.
#[derive(Debug, Args)]
pub(crate) struct SummaryArgs {
    #[command(flatten)]
    /// The dataset.
    pub(crate) target: AttrTarget,

    /// Only these elements: blocks as in numpy, such as 2:7,0 + 9,::2 - 3, or @POINTS.npy
    #[arg(short, long, value_name = "SELECTION", allow_hyphen_values = true)]
    pub(crate) select: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `h5dir write`.
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    /// The dataset.
    pub(crate) target: AttrTarget,

    /// The elements, in this order: blocks as in numpy, such as 2:7,0 + 9,::2 - 3, or @POINTS.npy
    #[arg(short, long, value_name = "SELECTION", allow_hyphen_values = true)]
    pub(crate) select: Option<String>,

    /// Read this file [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,

    /// The input is a numpy file
    #[arg(long)]
    pub(crate) npy: bool,

    /// Write raw files and sources of virtual datasets beneath --external-root
    #[arg(long, requires = "external_root")]
    pub(crate) external_write: bool,
}

/// Arguments of `h5dir append`.
#[derive(Debug, Args)]
pub(crate) struct AppendArgs {
    #[command(flatten)]
    /// The dataset.
    pub(crate) target: AttrTarget,

    /// The dimension that grows, from 0 on; a negative number counts from the last one
    #[arg(long, value_name = "K", default_value_t = 0, allow_hyphen_values = true)]
    pub(crate) axis: i64,

    /// Read this file [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,

    /// The input is a numpy file
    #[arg(long)]
    pub(crate) npy: bool,
}

/// The subcommands of `h5dir attr`.
#[derive(Debug, Subcommand)]
pub(crate) enum AttrCommand {
    /// Print an attribute as text, or all of them as NAME = VALUE
    Get {
        #[command(flatten)]
        /// Whose attributes.
        target: AttrTarget,
        /// The attribute
        name: Option<OsString>,
    },
    /// Set an attribute; numbers are <i8 or <f8, lists arrays, all else strings
    Set {
        #[command(flatten)]
        /// Whose attribute.
        target: AttrTarget,
        /// The attribute
        name: OsString,
        /// Its value: a number, a list as in JSON, or a string
        #[arg(allow_hyphen_values = true)]
        value: OsString,
        /// Its type in numpy's notation, such as <f8, |u1, S8; str: a string
        #[arg(long = "type", value_name = "TYPE")]
        datatype: Option<String>,
    },
    /// Remove an attribute
    Rm {
        #[command(flatten)]
        /// Whose attribute.
        target: AttrTarget,
        /// The attribute
        name: OsString,
    },
}

/// Arguments of `h5dir kerchunk`.
#[derive(Debug, Args)]
pub(crate) struct KerchunkArgs {
    #[command(flatten)]
    /// Which other files are read.
    pub(crate) external: ExternalArgs,

    /// Write into this file, which is replaced [default: standard output]
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,

    /// What the references call the file [default: its absolute path or its URL]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<OsString>,

    /// The HDF5 file, or a group of it
    #[arg(value_name = "FILE[:/GROUP]")]
    pub(crate) file: OsString,
}
