//! Arguments of `iod` and `tx`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Arguments of `h5dir iod`.
#[derive(Debug, Args)]
pub(crate) struct IodArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: IodCommand,
}

/// The subcommands of `h5dir iod`.
#[derive(Debug, Subcommand)]
pub(crate) enum IodCommand {
    /// List the versions, the newest first
    Log(IodLogArgs),
    /// Print the stored values by object: KV pairs, arrays, blobs
    Dump(IodDumpArgs),
    /// Delete what no kept version needs: old versions, packs of killed writers
    Gc(IodGcArgs),
    /// List tags, give a version a name, or remove one
    Tag(IodTagArgs),
    /// List the objects that differ between two versions, and how
    Diff(IodDiffArgs),
    /// Commit a version with the content of an earlier one
    Revert(IodRevertArgs),
}

/// Arguments of `h5dir iod tag`.
#[derive(Debug, Args)]
pub(crate) struct IodTagArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Remove this tag
    #[arg(long, value_name = "NAME", conflicts_with_all = ["name", "version"])]
    pub(crate) delete: Option<String>,

    /// The container: iod:FOLDER, iod+s3://BUCKET/PREFIX
    pub(crate) container: PathBuf,

    /// The new tag: 1 to 64 characters of a-z, 0-9, - and _, not only digits
    pub(crate) name: Option<String>,

    /// The version that it names [default: latest]
    #[arg(value_name = "NUMBER|TAG")]
    pub(crate) version: Option<super::value::Version>,
}

/// Arguments of `h5dir iod diff`.
#[derive(Debug, Args)]
pub(crate) struct IodDiffArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The container: iod:FOLDER, iod+s3://BUCKET/PREFIX
    pub(crate) container: PathBuf,

    /// One version
    #[arg(value_name = "NUMBER|TAG")]
    pub(crate) from: super::value::Version,

    /// The other version [default: latest]
    #[arg(value_name = "NUMBER|TAG")]
    pub(crate) to: Option<super::value::Version>,
}

/// Arguments of `h5dir iod revert`.
#[derive(Debug, Args)]
pub(crate) struct IodRevertArgs {
    /// The container: iod:FOLDER, iod+s3://BUCKET/PREFIX
    pub(crate) container: PathBuf,

    /// The version whose content is committed again
    #[arg(value_name = "NUMBER|TAG")]
    pub(crate) version: super::value::Version,
}

/// Arguments of `h5dir iod log`.
#[derive(Debug, Args)]
pub(crate) struct IodLogArgs {
    /// Print a JSON object for each version, on a line
    #[arg(long)]
    pub(crate) json: bool,

    /// The container: iod:FOLDER, iod+s3://BUCKET/PREFIX
    pub(crate) container: PathBuf,
}

/// Arguments of `h5dir iod dump`.
#[derive(Debug, Args)]
pub(crate) struct IodDumpArgs {
    /// The version [default: latest]
    #[arg(long, value_name = "NUMBER|TAG")]
    pub(crate) version: Option<super::value::Version>,

    /// The container: iod:FOLDER, iod+s3://BUCKET/PREFIX
    pub(crate) container: PathBuf,
}

/// Arguments of `h5dir iod gc`.
#[derive(Debug, Args)]
pub(crate) struct IodGcArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Keep the versions of the last days [default: 30]
    #[arg(long, value_name = "DAYS", conflicts_with = "keep_versions")]
    pub(crate) keep: Option<u32>,

    /// Keep so many of the newest versions
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_versions: Option<u64>,

    /// Seconds between publishing what goes, and deleting it by a later run; 0: at once
    #[arg(long, value_name = "SECONDS", default_value = "86400")]
    pub(crate) grace: super::value::Seconds,

    /// Say what would go, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// The container: iod:FOLDER, iod+s3://BUCKET/PREFIX
    pub(crate) container: PathBuf,
}

/// Arguments of `h5dir tx`.
#[derive(Debug, Args)]
pub(crate) struct TxArgs {
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: TxCommand,
}

/// The subcommands of `h5dir tx`.
#[derive(Debug, Subcommand)]
pub(crate) enum TxCommand {
    /// Begin a transaction; mounts with --transaction NAME are its peers
    Begin(TxBeginArgs),
    /// List all transactions
    List(TxListArgs),
    /// Show one transaction
    Status(TxArg),
    /// Commit a transaction whose peers all finished, if none of them did
    Finish(TxArg),
    /// Abort an open transaction, whichever peers finished
    Abort(TxArg),
    /// Skip a transaction: others that wait for it go on
    Skip(TxArg),
}

/// Arguments of `h5dir tx list`.
#[derive(Debug, Args)]
pub(crate) struct TxListArgs {
    /// The container: iod:FOLDER, iod+s3://BUCKET/PREFIX
    pub(crate) container: PathBuf,
}

/// A container and the name of a transaction.
#[derive(Debug, Args)]
pub(crate) struct TxArg {
    /// The container: iod:FOLDER, iod+s3://BUCKET/PREFIX
    pub(crate) container: PathBuf,

    /// The transaction: 1 to 64 of a-z, 0-9, - and _
    pub(crate) name: String,
}

/// Arguments of `h5dir tx begin`.
#[derive(Debug, Args)]
pub(crate) struct TxBeginArgs {
    /// Number of peers, which all finish before it is committed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) peers: u32,

    /// The version that all peers see
    #[arg(long, value_name = "last|next|NUMBER", default_value = "last")]
    pub(crate) base: super::value::BaseVersion,

    /// Wait for the end of this transaction; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) after: Vec<String>,

    #[command(flatten)]
    /// The container and the name.
    pub(crate) which: TxArg,
}
