//! The command line, parsed by clap.

use super::iod_args::{IodArgs, TxArgs};
use super::options::{MountOptions, heading};
use super::view_args::{ViewArgs, ViewsArgs};
use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  general failure
  2  usage: wrong option, value or configuration file
  3  the file cannot be opened or is not HDF5; for writing: it is in use, flagged or not supported
  4  mounting or unmounting failed
  5  no such path inside the file

Environment:
  H5DIR_LOG  log filter, for example \"debug\" or \"warn,h5dir::fuse=trace\"; overrides --log-level
  HDF5_USE_FILE_LOCKING  as in libhdf5: FALSE or BEST_EFFORT for file systems without locks";

const OUTPUT_EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  general failure
  2  usage: wrong option or value";

const CHECK_EXIT_CODES: &str = "\
Exit codes:
  0  no problem was found
  1  problems were found, or the check failed
  2  usage: wrong option or value
  3  the file cannot be opened or is not HDF5";

/// The command line of `h5dir`.
#[derive(Debug, Parser)]
#[command(name = "h5dir", version, about = "Mounts HDF5 files as directories", after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount an HDF5 file on a directory
    #[command(after_help = EXIT_CODES)]
    Mount(MountArgs),
    /// Unmount, and wait until the daemon has ended
    #[command(visible_alias = "unmount", after_help = EXIT_CODES)]
    Umount(UmountArgs),
    /// List groups without mounting
    #[command(after_help = EXIT_CODES)]
    Ls(LsArgs),
    /// Show objects without mounting
    #[command(after_help = EXIT_CODES)]
    Stat(StatArgs),
    /// List the mounts of this machine, or show the counters of one
    #[command(after_help = EXIT_CODES)]
    Status(StatusArgs),
    /// Look for damage in a file
    #[command(after_help = CHECK_EXIT_CODES)]
    Check(CheckArgs),
    /// Show which elements of a dataset were written
    #[command(after_help = EXIT_CODES)]
    Defined(DefinedArgs),
    /// Make elements of a dataset undefined
    #[command(after_help = EXIT_CODES)]
    Erase(EraseArgs),
    /// Write elements of a dataset without mounting
    #[command(after_help = EXIT_CODES)]
    Write(super::attr_args::WriteArgs),
    /// Append to a dataset along a dimension without mounting
    #[command(hide = true, after_help = EXIT_CODES)]
    Append(super::attr_args::AppendArgs),
    /// Copy from, to and between HDF5 files without mounting
    Cp(super::side_args::CopyArgs),
    /// Print datasets as text or in other forms without mounting
    Cat(super::side_args::CatArgs),
    /// Show, set or remove attributes without mounting
    #[command(after_help = EXIT_CODES)]
    Attr(super::attr_args::AttrArgs),
    /// Find objects by name, type, attribute or size without mounting
    #[command(after_help = EXIT_CODES)]
    Find(super::find_args::FindArgs),
    /// Show statistics of the numbers of a dataset without mounting
    #[command(after_help = EXIT_CODES)]
    Summary(super::attr_args::SummaryArgs),
    /// Print where chunks are, for fsspec, Zarr and xarray
    #[command(hide = true, after_help = EXIT_CODES)]
    Kerchunk(super::attr_args::KerchunkArgs),
    /// Compare HDF5 objects with each other or with local files
    Diff(super::side_args::DiffArgs),
    /// Make a virtual dataset of datasets, one after another along an axis
    #[command(hide = true, after_help = EXIT_CODES)]
    Virtual(super::side_args::VirtualArgs),
    /// Check or show configuration files
    #[command(after_help = EXIT_CODES)]
    Config(ConfigArgs),
    /// Create an empty HDF5 file
    #[command(after_help = EXIT_CODES)]
    Create(CreateArgs),
    /// Show the versions and values of a container in an object store
    #[command(after_help = EXIT_CODES)]
    Iod(IodArgs),
    /// Begin, end and show transactions of several mounts of a container
    #[command(hide = true, after_help = EXIT_CODES)]
    Tx(TxArgs),
    /// Recover a file whose writer was killed
    #[command(after_help = EXIT_CODES)]
    Recover(RecoverArgs),
    /// Lay the records of a log together, and free the others
    #[command(after_help = EXIT_CODES)]
    Compact(CompactArgs),
    /// Show, rebuild, replay or make the log of a file
    #[command(after_help = EXIT_CODES)]
    Log(LogArgs),
    /// Print the completions of a shell
    #[command(hide = true, after_help = OUTPUT_EXIT_CODES)]
    Completions(CompletionsArgs),
    /// Print or write the manual pages
    #[command(hide = true, after_help = OUTPUT_EXIT_CODES)]
    Man(ManArgs),
    /// Mount a file in memory: the baseline of the benchmarks
    #[command(hide = true)]
    BenchMemoryFs(BenchMemoryArgs),
}

/// Options that mounting commands share.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommonMountArgs {
    #[command(flatten)]
    /// The long options.
    pub(crate) options: MountOptions,

    /// Long options as KEY=VALUE, separated by commas (a comma in a value: \,)
    #[arg(short = 'o', value_name = "KEY=VALUE[,...]", action = ArgAction::Append)]
    pub(crate) fstab: Vec<String>,

    /// Read options, rules for new files and mounts from this YAML file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Log more (-v: info, -vv: debug, -vvv: trace)
    #[arg(short, long, action = ArgAction::Count, help_heading = heading::LOG)]
    pub(crate) verbose: u8,

    /// Log debug messages and stay in the foreground
    #[arg(short, long, help_heading = heading::LOG)]
    pub(crate) debug: bool,
}

/// Arguments of `h5dir mount`.
#[derive(Debug, Clone, Args)]
pub(crate) struct MountArgs {
    #[command(flatten)]
    /// The options.
    pub(crate) common: CommonMountArgs,

    /// Mount every mount of the configuration that is not mounted
    #[arg(long, conflicts_with_all = ["target", "mountpoint", "name", "foreground", "debug"])]
    pub(crate) all: bool,

    /// Mount this one of the configuration
    #[arg(long, value_name = "NAME", conflicts_with_all = ["target", "mountpoint"])]
    pub(crate) name: Option<String>,

    /// The HDF5 file, with :/GROUP a group of it, or a directory. Without MOUNTPOINT, if there is
    /// no such file: a name of the configuration
    #[arg(value_name = "FILE[:/GROUP]|DIR|NAME", value_hint = ValueHint::FilePath)]
    pub(crate) target: Option<OsString>,

    /// An existing directory
    pub(crate) mountpoint: Option<PathBuf>,
}

/// Arguments of `h5dir umount`.
#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// Detach a mount in use; the daemon ends when its files are closed
    #[arg(short, long)]
    pub(crate) lazy: bool,

    /// Unmount this one of the configuration
    #[arg(long, value_name = "NAME", conflicts_with = "mountpoint")]
    pub(crate) name: Option<String>,

    /// Look for --name in this YAML file
    #[arg(long, value_name = "FILE", requires = "name")]
    pub(crate) config: Option<PathBuf>,

    /// The mountpoint
    #[arg(required_unless_present = "name")]
    pub(crate) mountpoint: Option<PathBuf>,
}

/// Arguments of `h5dir ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    /// Arguments that `ls` and `stat` share.
    pub(crate) view: ViewsArgs,

    /// Long form: type, shape, chunks, filters, storage, attributes, name
    #[arg(short)]
    pub(crate) long: bool,

    /// Long form, with the values of attributes in short
    #[arg(short, long, conflicts_with_all = ["json", "posix"])]
    pub(crate) attributes: bool,

    /// List all below, as a tree; with --posix a list for each group
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

/// Arguments of `h5dir stat`.
#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    /// Arguments that `ls` and `stat` share.
    pub(crate) view: ViewsArgs,

    /// Show live, free and dead bytes of whole files, also of those in directories
    #[arg(long, conflicts_with = "posix")]
    pub(crate) space: bool,
}

/// Arguments of `h5dir status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// A mountpoint; without it, all mounts are listed
    pub(crate) mountpoint: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Show the counters again every second
    #[arg(long, requires = "mountpoint")]
    pub(crate) watch: bool,
}

/// Arguments of `h5dir check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// HDF5 files, containers, and directories of them
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required = true)]
    pub(crate) files: Vec<OsString>,

    /// Decode all elements of all datasets, too
    #[arg(long)]
    pub(crate) data: bool,

    /// Read files that the file names only beneath this directory [default: that of FILE]
    #[arg(long, value_name = "DIR")]
    pub(crate) external_root: Option<PathBuf>,

    /// Version of a container in an object store that is checked [default: latest]
    #[arg(long, value_name = "VERSION")]
    pub(crate) version: Option<super::value::Version>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `h5dir defined`.
#[derive(Debug, Args)]
pub(crate) struct DefinedArgs {
    #[command(flatten)]
    /// The object, and options.
    pub(crate) view: ViewArgs,

    /// Only these elements: blocks as in numpy, such as 2:7,0 + 9,::2 - 3, or @POINTS.npy
    #[arg(short, long, value_name = "SELECTION", allow_hyphen_values = true)]
    pub(crate) select: Option<String>,

    /// Print their number
    #[arg(long, conflicts_with_all = ["json", "mask"])]
    pub(crate) count: bool,

    /// Write a numpy file of booleans with the shape of the dataset
    #[arg(long, value_name = "OUT.npy", conflicts_with = "json")]
    pub(crate) mask: Option<PathBuf>,
}

/// Arguments of `h5dir erase`.
#[derive(Debug, Args)]
pub(crate) struct EraseArgs {
    #[command(flatten)]
    /// The object, and options.
    pub(crate) view: ViewArgs,

    /// The elements: blocks as in numpy, such as 2:7,0 + 9,::2 - 3, or @POINTS.npy
    #[arg(short, long, value_name = "SELECTION", allow_hyphen_values = true)]
    pub(crate) select: String,
}

/// Arguments of `h5dir config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// The subcommands of `h5dir config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// List all problems of configuration files
    Check(CheckConfigArgs),
    /// Show every option of mounts, with where its value comes from
    Show(Box<ShowConfigArgs>),
    /// Print the JSON schema of configuration files, for editors
    Schema,
}

/// Arguments of `h5dir config check`.
#[derive(Debug, Args)]
pub(crate) struct CheckConfigArgs {
    /// The files [default: those of the machine and of the user]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// Arguments of `h5dir config show`.
#[derive(Debug, Args)]
pub(crate) struct ShowConfigArgs {
    #[command(flatten)]
    /// Options that `h5dir mount` would get.
    pub(crate) common: CommonMountArgs,

    /// Print JSON
    #[arg(long, conflicts_with = "yaml")]
    pub(crate) json: bool,

    /// Print YAML that is a configuration file
    #[arg(long)]
    pub(crate) yaml: bool,

    /// A mount of the configuration [default: all]
    pub(crate) name: Option<String>,
}

/// Arguments of `h5dir compact`.
#[derive(Debug, Args)]
pub(crate) struct CompactArgs {
    /// The file, or one dataset in it
    #[arg(value_name = "FILE[:/PATH]", value_hint = ValueHint::FilePath)]
    pub(crate) target: OsString,
}

/// Arguments of `h5dir log`.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: LogCommand,
}

/// The subcommands of `h5dir log`.
#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Print the parts of a log: runs, records and index, or sections and entries
    Dump(DumpLogArgs),
    /// Make the index anew from the records alone
    Rebuild(RebuildLogArgs),
    /// Copy a file with a log to a new one without
    Replay(ReplayLogArgs),
    /// Copy a file to a new one with a log: the inverse of replay
    Export(ExportLogArgs),
}

/// Arguments of `h5dir log export`.
#[derive(Debug, Args)]
pub(crate) struct ExportLogArgs {
    /// How the log is stored, as for `h5dir create --log`
    #[arg(long, value_name = "records|released", default_value = "released")]
    pub(crate) log_format: super::value::LogForm,

    /// Oldest libhdf5 that can use the new file, as for `h5dir create`
    #[arg(long, value_name = "earliest|v110", default_value = "v110")]
    pub(crate) libver: super::value::LibVer,

    /// The file
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,

    /// The new file
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
}

/// Arguments of `h5dir log dump`.
#[derive(Debug, Args)]
pub(crate) struct DumpLogArgs {
    /// Print a JSON object per line
    #[arg(long)]
    pub(crate) json: bool,

    /// The file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Arguments of `h5dir log rebuild`.
#[derive(Debug, Args)]
pub(crate) struct RebuildLogArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Arguments of `h5dir log replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayLogArgs {
    /// Oldest libhdf5 that can use the new file, as for `h5dir create`
    #[arg(long, value_name = "earliest|v110", default_value = "v110")]
    pub(crate) libver: super::value::LibVer,

    /// The file with a log
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,

    /// The new file
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
}

/// Arguments of `h5dir create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Oldest libhdf5 that can use the file: earliest (1.8 and before) or v110 (1.10)
    #[arg(long, value_name = "earliest|v110", default_value = "v110")]
    pub(crate) libver: super::value::LibVer,

    /// Keep the elements of new datasets in a log, to which every write is appended
    #[arg(long)]
    pub(crate) log: bool,

    /// With --log: how the log is stored. A log of the released log VOL (released) has all datasets
    #[arg(long, value_name = "records|released", default_value = "records", requires = "log")]
    pub(crate) log_format: super::value::LogForm,

    #[command(flatten)]
    /// Properties of the file.
    pub(crate) properties: super::new_file_args::NewFileArgs,

    /// Read rules for new files (`create:`) from a YAML file; options replace what a rule says
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The new file
    pub(crate) file: PathBuf,
}

/// Arguments of `h5dir recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// The HDF5 file
    pub(crate) file: PathBuf,
}

/// Arguments of `h5dir completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Arguments of `h5dir man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write all pages to this directory, which is created if it is missing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "page")]
    pub(crate) dir: Option<PathBuf>,

    /// Print this page: h5dir, a command, h5dir.yaml, 7 (a mount), mount.h5dir
    #[arg(default_value = "h5dir")]
    pub(crate) page: String,
}

/// Arguments of `h5dir bench-memory-fs`.
#[derive(Debug, Args)]
pub(crate) struct BenchMemoryArgs {
    #[command(flatten)]
    /// The options.
    pub(crate) common: CommonMountArgs,

    /// Size of the file `data`
    #[arg(long)]
    pub(crate) size: super::value::Size,

    /// An existing directory
    pub(crate) mountpoint: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::ExternalFiles;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn switches_take_an_optional_value() {
        let parse = |args: &[&str]| Cli::try_parse_from([&["h5dir", "mount"], args, &["f.h5", "/m"]].concat()).map(|c| c.command);
        let Ok(Command::Mount(m)) = parse(&["-f", "--allow-other=off", "--external", "-vv", "-o", "ro", "-o", "uid=0"]) else { panic!() };
        assert_eq!(m.common.options.foreground.map(|s| s.0), Some(true));
        assert_eq!(m.common.options.allow_other.map(|s| s.0), Some(false));
        assert_eq!(m.common.options.external, Some(ExternalFiles::Visible));
        assert_eq!((m.common.verbose, m.common.fstab.len()), (2, 2));
        assert_eq!(parse(&["--threads=0"]).unwrap_err().exit_code(), 2);
        assert_eq!(parse(&["--no-such-option"]).unwrap_err().exit_code(), 2);
    }
}
