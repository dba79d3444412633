//! Arguments of `h5dir attr`.

use super::side_args::ExternalArgs;
use clap::{Args, Subcommand};
use std::ffi::OsString;

/// Examples after the help.
const EXAMPLES: &str = "Examples:
  h5dir attr get data.h5:/run1/temperature units
  h5dir attr set data.h5:/run1/temperature gain 5            # an int64
  h5dir attr set data.h5:/run1/temperature gain 5 --type '<f4'
  h5dir attr set data.h5:/run1/temperature range '[0, 273.15]'
  h5dir attr set data.h5:/ title 5 --type str                # a string";

/// Arguments of `h5dir attr`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AttrArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: AttrCommand,
}

/// The object whose attributes are meant.
#[derive(Debug, Args)]
pub(crate) struct AttrTarget {
    #[command(flatten)]
    /// Which other files are read.
    pub(crate) external: ExternalArgs,

    /// The object
    #[arg(value_name = "FILE:/PATH")]
    pub(crate) object: OsString,
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
