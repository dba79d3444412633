//! The sources of the options of one mount, from the strongest to the weakest.

use super::args::CommonMountArgs;
use super::file::{ConfigFile, MOUNT_KEYS, NamedMount};
use super::file_options::FileOptions;
use super::options::MountOptions;
use super::{UsageError, fstab};
use crate::base::escape::escaped;
use crate::fs::create_rules::CreateRule;
use std::fmt;
use std::path::PathBuf;

/// Options of a mount by their source.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layers {
    /// Long options.
    pub(super) command: MountOptions,
    /// Options of `-o`.
    list: MountOptions,
    /// Options of the mount in a file.
    own: FileOptions,
    /// Options of `defaults:` in that file.
    defaults: FileOptions,
    /// The configuration file.
    pub(crate) file: Option<PathBuf>,
    /// Rules for new files.
    pub(crate) create: Vec<CreateRule>,
    /// How often `-v` was given.
    pub(crate) verbose: u8,
    /// `-d` was given.
    pub(crate) debug: bool,
}

/// Where the value of an option comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// An argument.
    CommandLine,
    /// A line of a file.
    File(PathBuf, usize),
    /// It was not given.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::CommandLine => f.write_str("command line"),
            Origin::File(path, line) => write!(f, "{}:{line}", escaped(path)),
            Origin::Default => f.write_str("default"),
        }
    }
}

impl Layers {
    /// The layers of these options of the command.
    #[cfg(test)]
    pub(super) fn of_options(command: MountOptions) -> Layers {
        Layers { command, ..Layers::default() }
    }

    /// The options of a command line.
    pub(crate) fn of_command(args: &CommonMountArgs) -> Result<Layers, UsageError> {
        let list = fstab::parse(&args.fstab)?;
        Ok(Layers { command: args.options.clone(), list, verbose: args.verbose, debug: args.debug, ..Layers::default() })
    }

    /// Adds `mount:` of `file`.
    pub(crate) fn with_file(self, file: &ConfigFile) -> Layers {
        let (own, defaults) = (file.single.clone(), file.defaults.clone());
        Layers { own, defaults, file: Some(file.path.clone()), create: file.create.clone(), ..self }
    }

    /// Adds `mount` of `file`. Its rules come before those of the file.
    pub(crate) fn with_mount(self, file: &ConfigFile, mount: &NamedMount) -> Layers {
        let create = mount.create.iter().chain(&file.create).cloned().collect();
        Layers { own: mount.options.clone(), create, ..self.with_file(file) }
    }

    /// All options that are given, the strongest of each.
    pub(crate) fn merged(&self) -> MountOptions {
        let given = self.command.clone().or(self.list.clone());
        given.over(&self.own.options.clone().over(&self.defaults.options))
    }

    /// True if the option `name` is given for this mount, not by the defaults of a file.
    pub(crate) fn is_own(&self, name: &str) -> bool {
        self.command.has(name) || self.list.has(name) || self.own.options.has(name)
    }

    /// Where the option `name` is given.
    pub(crate) fn origin(&self, name: &str) -> Origin {
        let raised = match name {
            "log-level" => self.verbose > 0 || self.debug,
            "foreground" => self.debug,
            _ => false,
        };
        if raised || self.command.has(name) || self.list.has(name) {
            return Origin::CommandLine;
        }
        // An option that a stronger one contradicts does not count.
        if !self.merged().has(name) && !MOUNT_KEYS.contains(&name) {
            return Origin::Default;
        }
        let place = self.own.place(name).or_else(|| self.defaults.place(name));
        place.zip(self.file.clone()).map_or(Origin::Default, |(at, path)| Origin::File(path, at.line))
    }
}
