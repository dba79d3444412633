//! The mount options. One structure serves the command line, `-o` and the configuration file, so that
//! each option has the same name and the same values everywhere.

use super::value::{Group, Level, LogFormat, Mode, Seconds, Size, Switch, Threads, User, VdsMissing};
use clap::Args;
use serde::Deserialize;
use std::path::PathBuf;

/// Options of a mount; `None` was not asked for.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case", expecting = "options and their values")]
pub struct MountOptions {
    /// Stay in the foreground and log to standard error
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off", hide_possible_values = true)]
    pub foreground: Option<Switch>,

    /// Mount read-only, which is the default
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    pub read_only: Option<Switch>,

    /// Let the file be changed through the mount; the default modes are 0644 and 0755 then
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    pub read_write: Option<Switch>,

    /// How often changes are made durable, beside fsync, closing and unmounting; 0: only then [default: 5]
    #[arg(long, value_name = "SECONDS")]
    pub commit_interval: Option<Seconds>,

    /// How often the file is looked at for changes by others, in a read-only mount; 0: it never changes [default: 1]
    #[arg(long, value_name = "SECONDS")]
    pub check_interval: Option<Seconds>,

    /// Make what was written durable when it is closed; off: only by fsync, the interval and unmounting,
    /// as for files on a disk [default: on]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    pub commit_on_close: Option<Switch>,

    /// Keep processors from sleeping while many small changes come, as root on a machine with up to 8 of them [default: on]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    pub stay_awake: Option<Switch>,

    /// Let the daemon keep the capabilities and the access to files that it was started with [default: off]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    pub no_sandbox: Option<Switch>,

    /// Memory for caches, in bytes or with K, M, G [default: 1/8 of the memory, 64M to 1G]
    #[arg(long, value_name = "SIZE")]
    pub cache_size: Option<Size>,

    /// Read other files that the HDF5 file names: external links, raw files, sources of virtual
    /// datasets [default: on, but off with --allow-other]
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub external: Option<Switch>,

    /// Directory beneath which such files are read; implies --external [default: the directory of FILE]
    #[arg(long, value_name = "DIR")]
    pub external_root: Option<PathBuf>,

    /// Let raw files beneath --external-root be written through datasets whose elements lie in them; needs --read-write [default: off]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    pub external_write: Option<Switch>,

    /// What a missing source of a virtual dataset reads as [default: error]
    #[arg(long, value_name = "error|fill")]
    pub vds_missing: Option<VdsMissing>,

    /// Let all users use the mount, as far as the modes allow
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    pub allow_other: Option<Switch>,

    /// Let root use the mount too; the default modes are 0400 and 0500 then
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    pub allow_root: Option<Switch>,

    /// Owner shown, by number or name [default: the caller]
    #[arg(long, value_name = "USER")]
    pub uid: Option<User>,

    /// Group shown, by number or name [default: the caller's]
    #[arg(long, value_name = "GROUP")]
    pub gid: Option<Group>,

    /// Mode of files, octal [default: 0444, with --read-write 0644]
    #[arg(long, value_name = "MODE")]
    pub file_mode: Option<Mode>,

    /// Mode of directories, octal [default: 0555, with --read-write 0755]
    #[arg(long, value_name = "MODE")]
    pub dir_mode: Option<Mode>,

    /// Bits removed from the default modes, octal
    #[arg(long, value_name = "MODE")]
    pub umask: Option<Mode>,

    /// Forbid running programs on the mount
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "on", value_name = "on|off")]
    pub noexec: Option<Switch>,

    /// Threads that serve requests [default: twice the processors, 4 to 16]
    #[arg(long, value_name = "N")]
    pub threads: Option<Threads>,

    /// How far the kernel reads ahead in a file; above 128K only as root [default: 1M]
    #[arg(long, value_name = "SIZE")]
    pub readahead: Option<Size>,

    /// How long the kernel may remember attributes [default: 86400, with --read-write 1]
    #[arg(long, value_name = "SECONDS")]
    pub attr_timeout: Option<Seconds>,

    /// How long the kernel may remember names and listings [default: 86400, with --read-write 1]
    #[arg(long, value_name = "SECONDS")]
    pub entry_timeout: Option<Seconds>,

    /// How much is logged: off, error, warn, info, debug, trace [default: warn]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<Level>,

    /// Log to this file [default: standard error in the foreground, else syslog]
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,

    /// Form of the log lines: text, json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

impl MountOptions {
    /// These options, and where one was not asked for, the other's.
    #[must_use]
    pub fn or(self, other: MountOptions) -> MountOptions {
        macro_rules! pick {
            ($($field:ident)*) => { MountOptions { $($field: self.$field.or(other.$field)),* } };
        }
        pick! {
            foreground read_only read_write commit_interval commit_on_close stay_awake no_sandbox check_interval cache_size external external_root external_write
            vds_missing allow_other allow_root uid gid file_mode dir_mode umask noexec threads readahead attr_timeout entry_timeout log_level
            log_file log_format
        }
    }
}
