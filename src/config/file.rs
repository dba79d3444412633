//! A configuration file, YAML:
//!
//! ```text
//! defaults:             # the long options of `h5dir mount`, without --, for all mounts below
//!   cache-size: 512M
//! mounts:
//!   run7:
//!     source: /srv/run7.h5:/entry/data
//!     at: /mnt/run7
//!     allow-other: true
//!     create: [...]     # rules for new files of this mount, before those of the file
//! mount:                # options of a mount whose file and mountpoint are on the command line
//!   cache-size: 64M
//! create:               # rules for new files, see `create`
//!   - pattern: '*.f8'
//!     dtype: '<f8'
//! ```
//! Reading collects every problem with its place. A problem of one mount leaves the others usable.

use super::file_options::{FileOptions, pairs, read as read_options, resolved};
use super::new_file_args::FileRule;
use super::problem::{Problem, Span, suggestion};
use super::yaml::{self, Node};
use super::{UsageError, create};
use crate::base::escape::escaped;
use crate::base::request_error::RequestError;
use crate::fs::create_rules::CreateRule;
use crate::fs::open::host_path;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Largest configuration file, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Keys of a file.
pub(crate) const FILE_KEYS: [&str; 4] = ["defaults", "mounts", "mount", "create"];
/// Keys of a mount beside the options.
pub(crate) const MOUNT_KEYS: [&str; 3] = ["source", "at", "create"];
/// Longest name of a mount, bytes.
const NAME_BYTES_MAX: usize = 128;

/// A configuration file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ConfigFile {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Its text.
    pub(crate) text: String,
    /// Options of `mount:`.
    pub(crate) single: FileOptions,
    /// Options of `defaults:`.
    pub(crate) defaults: FileOptions,
    /// Rules of the file.
    pub(crate) create: Vec<CreateRule>,
    /// Rules for new HDF5 files.
    pub(crate) new_files: Vec<FileRule>,
    /// Its mounts, in the order of the file.
    pub(crate) mounts: Vec<NamedMount>,
    /// Problems outside of `mounts:`.
    pub(crate) problems: Vec<Problem>,
}

/// A mount of `mounts:`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedMount {
    /// Its name.
    pub(crate) name: String,
    /// Place of the name.
    pub(crate) at: Span,
    /// What is mounted: `FILE[:/GROUP]`. Empty after a problem.
    pub(crate) source: OsString,
    /// Its mountpoint. Empty after a problem.
    pub(crate) mountpoint: PathBuf,
    /// Its options.
    pub(crate) options: FileOptions,
    /// Its rules.
    pub(crate) create: Vec<CreateRule>,
    /// Its problems.
    pub(crate) problems: Vec<Problem>,
}

/// Whether the owner of a file must be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The caller named the file.
    Named,
    /// The file was found in a directory of configuration files.
    Found,
}

/// Why the owner or the mode of a file or directory does not fit, by its status; `None` if it does.
///
/// Root trusts itself only. Other users trust root and themselves, and group-writable files.
pub(crate) fn distrusted(status: &std::fs::Metadata) -> Option<String> {
    let user = geteuid().as_raw();
    let others = if user == 0 { 0o022 } else { 0o002 };
    if status.uid() != 0 && status.uid() != user {
        return Some(format!("it belongs to user {}; give it to {}", status.uid(), if user == 0 { "root" } else { "yourself" }));
    }
    (status.mode() & others != 0).then(|| "other users can write it; use 'chmod go-w'".to_owned())
}

/// Reads the file at `path` and collects its problems.
pub(crate) fn read(path: &Path, trust: Trust) -> Result<ConfigFile, UsageError> {
    let failed = |why: &str| UsageError(format!("cannot read the configuration file {}: {why}", escaped(path)));
    let unreadable = |e: std::io::Error| {
        if RequestError::of(&e).is_some() {
            return failed(&e.to_string());
        }
        let reason = e.raw_os_error().map_or_else(|| e.to_string(), |errno| nix::errno::Errno::from_raw(errno).desc().to_owned());
        failed(&format!("{reason}; check the path"))
    };
    // A FIFO must not block.
    let file = host_path::open(path, OFlag::O_RDONLY).map_err(unreadable)?;
    let status = file.metadata().map_err(unreadable)?;
    if let Some(why) = distrusted(&status).filter(|_| trust == Trust::Found) {
        return Err(failed(&why));
    }
    if trust == Trust::Found && !status.is_file() {
        return Err(failed("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX.saturating_add(1)).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed("it is larger than 1 MiB"));
    }
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok(parse(path, text))
}

/// Parses the file with this path and text.
pub(crate) fn parse(path: PathBuf, text: String) -> ConfigFile {
    let mut file = ConfigFile { path, text, ..ConfigFile::default() };
    match yaml::parse(&file.text) {
        Ok(Some(root)) => read_root(&mut file, &root),
        // A file without a YAML document (empty, or comments only) has no options.
        Ok(None) => {}
        Err(problem) => file.problems.push(problem),
    }
    file
}

fn read_root(file: &mut ConfigFile, root: &Node) {
    let ConfigFile { path, single, defaults, create, new_files, mounts, problems, .. } = file;
    let (base, mut rules_at) = (path.parent(), None);
    for (key, value) in pairs(root, "the sections of a configuration file", problems) {
        match key.text().unwrap_or_default() {
            "mount" => *single = read_options(pairs(value, "options and their values", problems), &[], None, problems),
            "defaults" => *defaults = read_options(pairs(value, "options and their values", problems), &[], base, problems),
            "create" => {
                let rules = create::rules(value, problems);
                (*create, *new_files) = (rules.datasets, rules.files);
                rules_at = Some(key.at);
            }
            "mounts" => {
                *mounts = pairs(value, "mounts by their names", problems).iter().map(|(key, value)| mount(key, value, base)).collect()
            }
            other => {
                let hint = suggestion(other, FILE_KEYS);
                problems.push(Problem::new(key.at, format!("unknown key '{other}'{hint}; a file has {}", FILE_KEYS.join(", "))));
            }
        }
    }
    defaults.places.extend(rules_at.map(|at| ("create".to_owned(), at)));
    let twin = |(i, mount): (usize, &NamedMount)| {
        let other = mounts.iter().take(i).find(|other| other.mountpoint == mount.mountpoint && !mount.mountpoint.as_os_str().is_empty())?;
        Some((i, Problem::new(mount.at, format!("'{}' has the mountpoint of '{}'", mount.name, other.name))))
    };
    let twins: Vec<(usize, Problem)> = mounts.iter().enumerate().filter_map(twin).collect();
    for (i, problem) in twins {
        mounts.get_mut(i).into_iter().for_each(|mount| mount.problems.push(problem.clone()));
    }
}

/// Why `name` is no name of a mount.
fn name_problem(name: &str) -> Option<&'static str> {
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let fits = name.len() <= NAME_BYTES_MAX;
    (!(is_plain && starts && fits)).then_some("a name has letters, digits, '_', '-' and '.', and begins with none of the last two")
}

fn mount(key: &Node, value: &Node, base: Option<&Path>) -> NamedMount {
    let name = key.text().unwrap_or_default().to_owned();
    let mut problems: Vec<Problem> = name_problem(&name).map(|why| Problem::new(key.at, why)).into_iter().collect();
    let given = pairs(value, "source, at and options", &mut problems);
    let mut options = read_options(given, &MOUNT_KEYS, base, &mut problems);
    options
        .places
        .extend(given.iter().filter_map(|(key, _)| Some((key.text().filter(|key| MOUNT_KEYS.contains(key))?.to_owned(), key.at))));
    let value_of = |name: &str| given.iter().find(|(key, _)| key.text() == Some(name)).map(|(_, value)| value);
    let mut path = |name: &str, what: &str| {
        let text = match value_of(name) {
            Some(value) if value.is_null() => Err(Problem::new(value.at, format!("'{name}' is empty; it is {what}"))),
            Some(value) => value.text().ok_or_else(|| Problem::new(value.at, format!("'{name}' is {what}"))),
            None => Err(Problem::new(key.at, format!("the key '{name}' is missing: {what}"))),
        };
        let text = text.map_err(|problem| problems.push(problem)).ok()?;
        Some(resolved(text, base.unwrap_or(Path::new("/"))))
    };
    let source = path("source", "the file or directory to mount, with :/GROUP after a file for one group");
    let mountpoint = path("at", "the mountpoint");
    let create = value_of("create").map(|rules| (rules.at, create::rules(rules, &mut problems)));
    let create = create.map(|(at, rules)| {
        if !rules.files.is_empty() {
            problems.push(Problem::new(at, "a mount makes no HDF5 files; rules for these belong to the section 'create' of the file"));
        }
        rules.datasets
    });
    let create = create.unwrap_or_default();
    NamedMount {
        name,
        at: key.at,
        source: source.unwrap_or_default().into_os_string(),
        mountpoint: mountpoint.unwrap_or_default(),
        options,
        create,
        problems,
    }
}

impl ConfigFile {
    /// Fails with the first problem of `problems`, if there is one.
    fn first(&self, problems: &[Problem]) -> Result<(), UsageError> {
        let Some(problem) = problems.first() else { return Ok(()) };
        let path = escaped(&self.path);
        let more = match problems.len() {
            1 => String::new(),
            n => format!(" (one of {n} problems; 'h5dir config check {path}' lists them)"),
        };
        Err(UsageError(format!("configuration file {path}: {}{more}", problem.sentence())))
    }

    /// Fails if the file has a problem outside of `mounts:`.
    pub(crate) fn usable(&self) -> Result<(), UsageError> {
        self.first(&self.problems)
    }

    /// Fails if the file or its `mount` has a problem.
    pub(crate) fn usable_mount(&self, mount: &NamedMount) -> Result<(), UsageError> {
        self.usable()?;
        self.first(&mount.problems)
    }

    /// All problems, in the order of the file.
    pub(crate) fn all_problems(&self) -> Vec<&Problem> {
        let mut all: Vec<&Problem> = self.problems.iter().chain(self.mounts.iter().flat_map(|m| &m.problems)).collect();
        all.sort_by_key(|problem| (problem.at.line, problem.at.column));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::MountOptions;
    use crate::config::value::{ExternalFiles, Mode, Seconds, Size, Switch};
    use std::time::Duration;

    fn parsed(text: &str) -> ConfigFile {
        parse("/etc/h5dir/c.yaml".into(), text.into())
    }

    /// The only problem of a file, as a part of a sentence.
    fn problem(text: &str) -> String {
        let file = parsed(text);
        let all = file.all_problems();
        assert_eq!(all.len(), 1, "{text}: {all:?}");
        all[0].sentence()
    }

    #[test]
    fn values_are_read_as_written() {
        let text = "# ours\nmount:\n  cache-size: 512M\n  allow-other: true\n  external: off\n  file-mode: 0440\n  dir-mode: '0550'\n  attr-timeout: 1.5\n  uid: 0\n  log-file:\n";
        let file = parsed(text);
        assert_eq!(file.all_problems(), Vec::<&Problem>::new());
        let options = file.single.options;
        assert_eq!(options.cache_size, Some(Size(512 << 20)));
        assert_eq!(options.allow_other, Some(Switch(true)));
        assert_eq!(options.external, Some(ExternalFiles::Off));
        assert_eq!((options.file_mode, options.dir_mode), (Some(Mode(0o440)), Some(Mode(0o550))));
        assert_eq!(options.attr_timeout, Some(Seconds(Duration::from_millis(1500))));
        assert_eq!(options.log_file, None);
        for empty in ["", "# only a comment\n", "mount:\n", "---\n", "{}", "mounts:\ndefaults: {}\n"] {
            let file = parsed(empty);
            assert!(file.all_problems().is_empty() && file.single.options == MountOptions::default(), "{empty:?}");
        }
    }

    #[test]
    fn problems_name_line_and_column() {
        for (text, what, at) in [
            ("mount:\n  threads: 4\n  cache-sise: 5\n", "unknown key 'cache-sise'; did you mean 'cache-size'?", "line 3 column 3"),
            ("mount:\n  threads: many\n", "invalid value 'many' for 'threads': expected a number from 1 to 256", "line 2 column 12"),
            ("mount:\n  log-level: inof\n", "did you mean 'info'?", "line 2 column 14"),
            ("mount:\n  vds-missing: fil\n", "did you mean 'fill'?", "line 2 column 16"),
            ("mont: {}\n", "unknown key 'mont'; did you mean 'mount'?", "line 1 column 1"),
            ("mount: [1]\n", "expected options and their values", "line 1 column 8"),
            ("mount:\n  threads: 1\n  threads: 2\n", "'threads' is given twice, first at line 2", "line 3 column 3"),
            ("mount:\n  threads: [1]\n", "'threads' has a single value", "line 2 column 12"),
            ("mounts:\n  a: {source: x}\n", "the key 'at' is missing", "line 2 column 3"),
            ("mounts:\n  a: {source: x, at:}\n", "'at' is empty", "line 2 column 20"),
            ("mounts:\n  'a b': {source: x, at: y}\n", "a name has letters", "line 2 column 3"),
            ("mounts:\n  a: {source: x, at: y}\n  b: {source: z, at: ./y}\n", "'b' has the mountpoint of 'a'", "line 3 column 3"),
            ("mounts:\n  a: {source: x, at: y, soruce: z}\n", "did you mean 'source'?", "line 2 column 25"),
        ] {
            let found = problem(text);
            assert!(found.contains(what) && found.ends_with(at), "{text}: {found}");
        }
        assert!(problem("mount: {").contains("line"));
    }

    #[test]
    fn a_problem_of_one_mount_leaves_the_others() {
        let text = "defaults: {threads: 2}\nmounts:\n  a:\n    source: /a.h5:/g\n    at: m\n    uid: 7\n  b:\n    source: 5.h5\n    treads: x\n    uid: no such user\n";
        let file = parsed(text);
        let (a, b) = (&file.mounts[0], &file.mounts[1]);
        assert_eq!((a.source.to_str(), a.mountpoint.to_str()), (Some("/a.h5:/g"), Some("/etc/h5dir/m")));
        assert_eq!((a.options.place("uid").map(|at| at.line), file.defaults.place("threads").map(|at| at.line)), (Some(6), Some(1)));
        assert!(file.usable_mount(a).is_ok());
        assert_eq!(b.problems.len(), 3, "{:?}", b.problems);
        assert!(file.usable_mount(b).unwrap_err().0.contains("one of 3 problems"));
        assert_eq!(file.all_problems().iter().map(|p| p.at.line).collect::<Vec<_>>(), [7, 9, 10]);
    }

    #[test]
    fn rules_for_new_files() {
        let text = "create:\n  - {pattern: '*.f8', dtype: '<f8', shape: [null, 100], chunks: [64, 100], filters: [shuffle, {deflate: 4}]}\n  - pattern: /log/**\n    dtype: i4\n    fillvalue: -1.5\n";
        assert!(problem(text).ends_with("line 3 column 5"));
        let rules = parsed(&text.replace("dtype: i4", "dtype: f4")).create;
        assert_eq!(
            rules.iter().map(|r| r.description.as_str()).collect::<Vec<_>>(),
            [
                r#"{"dtype":"<f8","shape":[0,100],"chunks":[64,100],"filters":["shuffle",{"deflate":4}]}"#,
                r#"{"dtype":"f4","fillvalue":-1.5}"#
            ]
        );
        for empty in ["create:\n", "create: []\n"] {
            assert_eq!(parsed(empty).create, []);
        }
    }

    #[test]
    fn errors_in_rules_name_line_and_column() {
        for (rule, what, at) in [
            ("pattern: a\n    dtipe: f8", "unknown key 'dtipe'; did you mean 'dtype'?", "line 3 column 5"),
            ("pattern: a\n    dtype: f9", "\"f9\" is no datatype", "line 3 column 12"),
            ("pattern: a\n    dtype: f8\n    filters: [shuffle, deflat]", "no filter \"deflat\"", "line 4 column 14"),
            ("pattern: a\n    filters: [32999]", "not encoded", "line 3 column 14"),
            ("pattern: a\n    shape: [1, -2]", "-2", "line 3 column 12"),
            ("pattern: a\n    shape: [1, null]", "null", "line 3 column 12"),
            ("pattern: a\n    layout: odd", "odd", "line 3 column 13"),
            ("dtype: f8\n    pattern: 'a['", "a[", "line 3 column 14"),
            ("dtype: f8", "pattern", "line 2 column 5"),
            ("pattern: a\n    dtype: f8\n    dtype: f4", "given twice", "line 4 column 5"),
            ("pattern: a\n    shape: [0, 3]\n    chunks: [5]", "chunks have 1 dimensions", "line 2 column 5"),
            ("pattern: a\n    chunks: [5, 5]", "rank of the dataset", "line 2 column 5"),
            ("pattern: a\n    layout: compact\n    filters: [shuffle]", "only a dataset in chunks", "line 2 column 5"),
            ("7", "a rule", "line 2 column 5"),
        ] {
            let error = problem(&format!("create:\n  - {rule}\n"));
            assert!(error.contains(what) && error.ends_with(at), "{rule}: {error}");
        }
        assert!(problem("create: 5\n").contains("line 1 column 9"));
        let none = read(Path::new("/nonexistent/x.yaml"), Trust::Named).unwrap_err().0;
        assert_eq!(none, "cannot read the configuration file /nonexistent/x.yaml: No such file or directory; check the path");
    }
}
