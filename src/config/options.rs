//! The mount options: one structure for the command line, `-o` and the configuration file.

use super::value::{
    Containers, ExternalFiles, Group, Level, LogFormat, LogView, Mode, Patterns, Seconds, Size, Switch, Threads, Transaction, User,
    VdsMissing, Version, WriterNumber,
};
use crate::fs::spec::{Modes, ViewChoice};
use crate::mirror::Naming;
use clap::{Arg, Args, Parser};
use std::any::TypeId;
use std::path::PathBuf;

/// Headings of the help, by topic.
pub(crate) mod heading {
    pub(crate) const CONTAINER: &str = "Container";
    pub(crate) const ACCESS: &str = "Access";
    pub(crate) const CACHING: &str = "Caching";
    pub(crate) const WRITING: &str = "Writing";
    pub(crate) const REMOTE: &str = "Object stores";
    pub(crate) const LOG: &str = "Log";
    pub(crate) const DAEMON: &str = "Daemon";
}

/// Options of a mount; `None` if not given.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct MountOptions {
    /// Mount read-only (the default)
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) read_only: Option<Switch>,

    /// Allow changes of the file; the default modes are 0644 and 0755 then
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) read_write: Option<Switch>,

    /// Let SWMR readers follow; only elements change; needs --read-write [default: off]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    #[arg(help_heading = heading::WRITING)]
    pub(crate) swmr: Option<Switch>,

    /// Write datasets of its log to FILE.log.K, beside other writers; K is 1 to 1024 [default: off]
    #[arg(long, value_name = "K")]
    #[arg(help_heading = heading::WRITING)]
    pub(crate) log_writer: Option<WriterNumber>,

    /// Show what can be read of a damaged file; .h5dir/found has objects without names
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) rescue: Option<Switch>,

    /// Time between commits; 0: only by fsync, close and unmounting [default: 5; with --swmr 1]
    #[arg(long, value_name = "SECONDS")]
    #[arg(help_heading = heading::WRITING)]
    pub(crate) commit_interval: Option<Seconds>,

    /// Time between checks for changes of the file, if read-only; 0: no checks [default: 1]
    #[arg(long, value_name = "SECONDS")]
    #[arg(help_heading = heading::CACHING)]
    pub(crate) check_interval: Option<Seconds>,

    /// Commit when a written file is closed, not only by fsync, every interval and on unmounting
    /// [default: off]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    #[arg(help_heading = heading::WRITING)]
    pub(crate) commit_on_close: Option<Switch>,

    /// Give a file of bytes that is renamed over a dataset the type and attributes of that, if its
    /// bytes fit [default: on]
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    #[arg(help_heading = heading::WRITING)]
    pub(crate) keep_types: Option<Switch>,

    /// Poll for the next of many small requests, which keeps a processor busy; as root, up to 8
    /// processors do not sleep deeply [default: off]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    #[arg(help_heading = heading::WRITING)]
    pub(crate) stay_awake: Option<Switch>,

    /// Memory for caches, in bytes or with K, M, G [default: 1/8 of the memory, 64M to 1G]
    #[arg(long, value_name = "SIZE")]
    #[arg(help_heading = heading::CACHING)]
    pub(crate) cache_size: Option<Size>,

    /// Read files that the HDF5 file names: external links, raw files, sources of virtual datasets;
    /// 'all': hidden ones, too [default: on, but off with --allow-other]
    #[arg(long, value_name = "on|off|all", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) external: Option<ExternalFiles>,

    /// Read only files beneath this directory; implies --external [default: directory of FILE]
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) external_root: Option<PathBuf>,

    /// Read objects of object stores without credentials [default: off]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    #[arg(help_heading = heading::REMOTE)]
    pub(crate) anonymous: Option<Switch>,

    /// Keep bytes of objects in this directory, for later mounts [default: none]
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = heading::REMOTE)]
    pub(crate) cache_dir: Option<PathBuf>,

    /// Limit of --cache-dir [default: 10G]
    #[arg(long, value_name = "SIZE")]
    #[arg(help_heading = heading::REMOTE)]
    pub(crate) cache_dir_size: Option<Size>,

    /// Time in which a server must send bytes, with all retries [default: 30]
    #[arg(long, value_name = "SECONDS")]
    #[arg(help_heading = heading::REMOTE)]
    pub(crate) remote_timeout: Option<Seconds>,

    /// Write raw files and sources of virtual datasets beneath --external-root; needs --read-write
    /// [default: off]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) external_write: Option<Switch>,

    /// Result of reading a missing source of a virtual dataset [default: error]
    #[arg(long, value_name = "error|fill")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) vds_missing: Option<VdsMissing>,

    /// Datasets in a log of the log VOL: shown as datasets, or the objects as they are stored
    /// [default: datasets]
    #[arg(long, value_name = "datasets|raw")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) log: Option<LogView>,

    /// Version of a container in an object store, or revision of a file with an onion file, that is
    /// shown [default: latest]
    #[arg(long, value_name = "VERSION", visible_alias = "revision")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) version: Option<Version>,

    /// Views below .h5dir: their names, all, none, or those to leave out, as in all,-images
    /// [default: all]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) views: Option<ViewChoice>,

    /// Make all changes the part of one peer of this transaction, which other mounts join; begins
    /// it if there is none [default: none]
    #[arg(long, value_name = "NAME[,peers=N][,peer=K][,base=V][,after=NAME]")]
    #[arg(help_heading = heading::WRITING)]
    pub(crate) transaction: Option<Transaction>,

    /// Keep the version of a container in an object store from 'h5dir iod gc', by a pin that is
    /// renewed at half this time [default: 3600 with --read-write, else none]
    #[arg(long, value_name = "SECONDS")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) pin: Option<Seconds>,

    /// Allow all users, as far as the modes do
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    #[arg(help_heading = heading::ACCESS)]
    pub(crate) allow_other: Option<Switch>,

    /// Allow root too; the default modes are 0600 and 0700 then
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    #[arg(help_heading = heading::ACCESS)]
    pub(crate) allow_root: Option<Switch>,

    /// Owner shown, by number or name [default: the caller]
    #[arg(long, value_name = "USER")]
    #[arg(help_heading = heading::ACCESS)]
    pub(crate) uid: Option<User>,

    /// Group shown, by number or name [default: the caller's]
    #[arg(long, value_name = "GROUP")]
    #[arg(help_heading = heading::ACCESS)]
    pub(crate) gid: Option<Group>,

    /// Mode of files, octal [default: 0644]
    #[arg(long, value_name = "MODE")]
    #[arg(help_heading = heading::ACCESS)]
    pub(crate) file_mode: Option<Mode>,

    /// Mode of directories, octal [default: 0755]
    #[arg(long, value_name = "MODE")]
    #[arg(help_heading = heading::ACCESS)]
    pub(crate) dir_mode: Option<Mode>,

    /// Owners and modes of files: stored in the container, all with set-ID bits in read-only
    /// mounts, or fixed [default: stored]
    #[arg(long, value_name = "stored|all|fixed")]
    #[arg(help_heading = heading::ACCESS)]
    pub(crate) modes: Option<Modes>,

    /// Bits removed from all modes, octal
    #[arg(long, value_name = "MODE")]
    #[arg(help_heading = heading::ACCESS)]
    pub(crate) umask: Option<Mode>,

    /// Forbid running programs on the mount
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    #[arg(help_heading = heading::ACCESS)]
    pub(crate) noexec: Option<Switch>,

    /// Threads that serve requests [default: twice the processors, 4 to 16]
    #[arg(long, value_name = "N")]
    #[arg(help_heading = heading::DAEMON)]
    pub(crate) threads: Option<Threads>,

    /// Read-ahead of the kernel; above 128K only as root [default: 1M]
    #[arg(long, value_name = "SIZE")]
    #[arg(help_heading = heading::CACHING)]
    pub(crate) readahead: Option<Size>,

    /// How long the kernel caches attributes [default: 86400, with --read-write 1]
    #[arg(long, value_name = "SECONDS")]
    #[arg(help_heading = heading::CACHING)]
    pub(crate) attr_timeout: Option<Seconds>,

    /// How long the kernel caches names and listings [default: 86400, with --read-write 1]
    #[arg(long, value_name = "SECONDS")]
    #[arg(help_heading = heading::CACHING)]
    pub(crate) entry_timeout: Option<Seconds>,

    /// Show only files with these names, of a directory: patterns separated by commas, with a slash
    /// of paths
    #[arg(long, value_name = "PATTERNS")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) include: Option<Patterns>,

    /// Hide files and directories with these names, of a directory
    #[arg(long, value_name = "PATTERNS")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) exclude: Option<Patterns>,

    /// Names of HDF5 files in a directory: x.h5/ in place of the file, x.h5.d/, or the file and
    /// x.h5.d/ [default: replace]
    #[arg(long, value_name = "replace|suffix|both")]
    #[arg(help_heading = heading::CONTAINER)]
    pub(crate) mirror_names: Option<Naming>,

    /// HDF5 files of a directory that are open at a time [default: a quarter of the limit of open
    /// files, at most 1024]
    #[arg(long, value_name = "N")]
    #[arg(help_heading = heading::CACHING)]
    pub(crate) max_open: Option<Containers>,

    /// Close HDF5 files of a directory that were not used for so long [default: 10]
    #[arg(long, value_name = "SECONDS")]
    #[arg(help_heading = heading::CACHING)]
    pub(crate) idle_timeout: Option<Seconds>,

    /// Log level: off, error, warn, info, debug, trace [default: warn]
    #[arg(long, value_name = "LEVEL")]
    #[arg(help_heading = heading::LOG)]
    pub(crate) log_level: Option<Level>,

    /// Log to this file [default: standard error in the foreground, else syslog]
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = heading::LOG)]
    pub(crate) log_file: Option<PathBuf>,

    /// Format of log lines: text, json [default: text]
    #[arg(long, value_name = "FORMAT")]
    #[arg(help_heading = heading::LOG)]
    pub(crate) log_format: Option<LogFormat>,

    /// Keep capabilities and file access of the daemon [default: off]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    #[arg(help_heading = heading::DAEMON)]
    pub(crate) no_sandbox: Option<Switch>,

    /// Stay in the foreground and log to standard error
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off", hide_possible_values = true)]
    #[arg(help_heading = heading::DAEMON)]
    pub(crate) foreground: Option<Switch>,

    /// Write measurements in the format of Prometheus to this file periodically [default: none]
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = heading::DAEMON)]
    pub(crate) metrics_file: Option<PathBuf>,

    /// Time between two writes of --metrics-file [default: 15]
    #[arg(long, value_name = "SECONDS")]
    #[arg(help_heading = heading::DAEMON)]
    pub(crate) metrics_interval: Option<Seconds>,
}

/// Options that are given, in their long form.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub(crate) struct LongOptions {
    /// The options.
    #[command(flatten)]
    pub(crate) options: MountOptions,
}

/// Words that an option accepts; none if it accepts other values, too.
pub(crate) fn choices(arg: &Arg) -> Vec<&str> {
    let id = arg.get_value_parser().type_id();
    if id == TypeId::of::<Level>() {
        return Level::ALL.map(Level::name).to_vec();
    }
    if id == TypeId::of::<LogFormat>() {
        return vec!["text", "json"];
    }
    let name = arg.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
    if name.contains('|') { name.split('|').collect() } else { Vec::new() }
}

/// Calls a macro with the names of all fields.
macro_rules! all_options {
    ($call:ident) => {
        $call! {
            foreground read_only read_write swmr log_writer commit_interval commit_on_close keep_types stay_awake no_sandbox check_interval cache_size external external_root external_write
            vds_missing allow_other allow_root uid gid file_mode dir_mode modes umask noexec threads readahead attr_timeout entry_timeout log_level
            log_file log_format metrics_file metrics_interval include exclude mirror_names max_open idle_timeout rescue log
            anonymous cache_dir cache_dir_size remote_timeout version views transaction pin
        }
    };
}

impl MountOptions {
    /// Merges two sets: options of `self` take precedence.
    #[must_use]
    pub(crate) fn or(self, other: MountOptions) -> MountOptions {
        macro_rules! pick {
            ($($field:ident)*) => { MountOptions { $($field: self.$field.or(other.$field)),* } };
        }
        all_options!(pick)
    }

    /// Merges two sets: options of `self` take precedence, also over options of `other` that
    /// contradict them.
    #[must_use]
    pub(crate) fn over(self, other: &MountOptions) -> MountOptions {
        let mut lower = other.clone();
        if self.read_only.is_some() || self.read_write.is_some() {
            (lower.read_only, lower.read_write) = (None, None);
        }
        if self.umask.is_some() {
            (lower.file_mode, lower.dir_mode) = (None, None);
        }
        if self.file_mode.is_some() || self.dir_mode.is_some() {
            lower.umask = None;
        }
        if self.allow_other.is_some_and(|s| s.0) {
            lower.allow_root = None;
        }
        if self.allow_root.is_some_and(|s| s.0) {
            lower.allow_other = None;
        }
        self.or(lower)
    }

    /// True if it has the option `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        macro_rules! given {
            ($($field:ident)*) => { match name.replace('-', "_").as_str() { $(stringify!($field) => self.$field.is_some(),)* _ => false } };
        }
        all_options!(given)
    }
}
