//! The command line as typed.

use super::options::MountOptions;
use clap::{ArgAction, Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  general failure
  2  usage: wrong option, value or configuration file
  3  the file cannot be opened or is not HDF5; for writing also: it is in use, flagged or of a kind that is not written
  4  mounting or unmounting failed
  5  no such path inside the file

Environment:
  H5DIR_LOG  log filter, e.g. \"debug\" or \"warn,h5dir::fuse=trace\"; overrides --log-level
  HDF5_USE_FILE_LOCKING  as in libhdf5: FALSE or BEST_EFFORT for file systems without locks";

/// Shows HDF5 files as directories.
#[derive(Debug, Parser)]
#[command(name = "h5dir", version, about = "Shows HDF5 files as directories", after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount an HDF5 file on a directory
    #[command(after_help = EXIT_CODES)]
    Mount(MountArgs),
    /// Unmount, and wait until the mount and its daemon are gone
    #[command(visible_alias = "unmount", after_help = EXIT_CODES)]
    Umount(UmountArgs),
    /// List what a mount would show, without mounting
    #[command(after_help = EXIT_CODES)]
    Ls(LsArgs),
    /// Show all about one object, without mounting
    #[command(after_help = EXIT_CODES)]
    Stat(StatArgs),
    /// Make a new, empty HDF5 file
    #[command(after_help = EXIT_CODES)]
    Create(CreateArgs),
    /// Make good what an interrupted writer left behind; mounting for writing does it too
    #[command(after_help = EXIT_CODES)]
    Recover(RecoverArgs),
    /// Mount one file of bytes in memory: the baseline of the benchmarks
    #[command(hide = true)]
    BenchMemoryFs(BenchMemoryArgs),
}

/// Options that mounting commands share.
#[derive(Debug, Args)]
pub struct CommonMountArgs {
    #[command(flatten)]
    /// The long options.
    pub options: MountOptions,

    /// Any long option as KEY=VALUE, several separated by commas (a comma in a value: \,)
    #[arg(short = 'o', value_name = "KEY=VALUE[,...]", action = ArgAction::Append)]
    pub fstab: Vec<String>,

    /// Read options (`mount:`) and what new files become by their names (`create:`) from a YAML file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Log more (-v: info, -vv: debug, -vvv: trace)
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,

    /// Log debugging output and stay in the foreground
    #[arg(short, long)]
    pub debug: bool,
}

/// `h5dir mount`.
#[derive(Debug, Args)]
pub struct MountArgs {
    #[command(flatten)]
    /// The options.
    pub common: CommonMountArgs,

    /// The HDF5 file; with :/GROUP, that group becomes the root
    #[arg(value_name = "FILE[:/GROUP]")]
    pub target: OsString,

    /// An existing directory
    pub mountpoint: PathBuf,
}

/// `h5dir umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// Detach now, even when files on it are open; it ends when they are closed
    #[arg(short, long)]
    pub lazy: bool,

    /// Where it is mounted
    pub mountpoint: PathBuf,
}

/// What `ls` and `stat` look at.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// The HDF5 file and a path in it
    #[arg(value_name = "FILE[:/PATH]")]
    pub target: OsString,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Read other files that the HDF5 file names, beneath its directory or --external-root
    #[arg(long, value_name = "on|off", default_value = "on", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub external: super::value::Switch,

    /// Directory beneath which such files may be read
    #[arg(long, value_name = "DIR")]
    pub external_root: Option<PathBuf>,
}

/// `h5dir ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    #[command(flatten)]
    /// What to list.
    pub view: ViewArgs,

    /// Long form: mode, links, owner, group, size, time (UTC), name
    #[arg(short)]
    pub long: bool,

    /// Directories below too
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// `h5dir stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    #[command(flatten)]
    /// What to show.
    pub view: ViewArgs,
}

/// `h5dir create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Which libhdf5 must be able to use the file: earliest (1.8 and before) or v110 (1.10)
    #[arg(long, value_name = "earliest|v110", default_value = "v110")]
    pub libver: super::value::LibVer,

    /// The new file
    pub file: PathBuf,
}

/// `h5dir recover`.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// The HDF5 file
    pub file: PathBuf,
}

/// `h5dir bench-memory-fs`.
#[derive(Debug, Args)]
pub struct BenchMemoryArgs {
    #[command(flatten)]
    /// The options.
    pub common: CommonMountArgs,

    /// Size of the file `data`
    #[arg(long)]
    pub size: super::value::Size,

    /// An existing directory
    pub mountpoint: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(m.common.options.external.map(|s| s.0), Some(true));
        assert_eq!((m.common.verbose, m.common.fstab.len()), (2, 2));
        assert_eq!(parse(&["--threads=0"]).unwrap_err().exit_code(), 2);
        assert_eq!(parse(&["--no-such-option"]).unwrap_err().exit_code(), 2);
    }
}
