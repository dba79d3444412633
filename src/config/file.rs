//! The configuration file (`--config`), YAML:
//!
//! ```text
//! mount:                # the long options of `h5dir mount`, without --
//!   cache-size: 512M
//!   allow-other: true
//! create:               # rules for new files, see `create`
//!   - pattern: '*.f8'
//!     dtype: '<f8'
//! ```
//! An unknown key or a wrong value is an error that names the line and column of the key.

use super::UsageError;
use super::create::Rule;
use super::options::MountOptions;
use crate::base::escape::escaped;
use crate::fs::create_rules::CreateRule;
use serde::Deserialize;
use std::path::Path;

/// Largest configuration file, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    mount: MountOptions,
    create: Option<Vec<Rule>>,
}

/// Reads options and rules from the file at `path`.
pub(crate) fn read(path: &Path) -> Result<(MountOptions, Vec<CreateRule>), UsageError> {
    let failed = |e: &dyn std::fmt::Display| UsageError(format!("cannot read the configuration file {}: {e}", escaped(path)));
    let unreadable = |e: std::io::Error| {
        let reason = e.raw_os_error().map_or_else(|| e.to_string(), |errno| nix::errno::Errno::from_raw(errno).desc().to_owned());
        failed(&format!("{reason}; check the path"))
    };
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > FILE_BYTES_MAX {
        return Err(failed(&"it is larger than 1 MiB"));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    parse(&text).map_err(|e| UsageError(format!("configuration file {}: {e}", escaped(path))))
}

fn parse(text: &str) -> Result<(MountOptions, Vec<CreateRule>), String> {
    // A file without a YAML document (empty, or comments only) has no options.
    match serde_yaml::from_str::<Option<File>>(text) {
        Ok(file) => {
            let file = file.unwrap_or_default();
            Ok((file.mount, file.create.unwrap_or_default().into_iter().map(|rule| rule.0).collect()))
        }
        Err(e) => {
            let text = e.to_string();
            // The YAML reader omits the position if it is the first one.
            Err(if text.contains(" at line ") { text } else { format!("{text} at line 1 column 1") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::{Mode, Seconds, Size, Switch};
    use std::time::Duration;

    #[test]
    fn values_are_read_as_written() {
        let text = "# ours\nmount:\n  cache-size: 512M\n  allow-other: true\n  external: off\n  file-mode: 0440\n  dir-mode: '0550'\n  attr-timeout: 1.5\n  uid: 0\n  log-file:\n";
        let options = parse(text).unwrap().0;
        assert_eq!(options.cache_size, Some(Size(512 << 20)));
        assert_eq!(options.allow_other, Some(Switch(true)));
        assert_eq!(options.external, Some(Switch(false)));
        assert_eq!((options.file_mode, options.dir_mode), (Some(Mode(0o440)), Some(Mode(0o550))));
        assert_eq!(options.attr_timeout, Some(Seconds(Duration::from_millis(1500))));
        assert_eq!(options.log_file, None);
        for empty in ["", "# only a comment\n", "mount:\n", "---\n", "{}"] {
            assert_eq!(parse(empty), Ok((MountOptions::default(), Vec::new())), "{empty:?}");
        }
    }

    #[test]
    fn errors_name_line_and_column() {
        let unknown = parse("mount:\n  threads: 4\n  cache-sise: 5\n").unwrap_err();
        assert!(unknown.contains("cache-sise") && unknown.contains("line 3 column 3"), "{unknown}");
        let value = parse("mount:\n  threads: many\n").unwrap_err();
        assert!(value.contains("'many'") && value.contains("line 2 column 3"), "{value}");
        let top = parse("mont: {}\n").unwrap_err();
        assert!(top.contains("mont") && top.contains("line 1"), "{top}");
        let shape = parse("mount: [1]\n").unwrap_err();
        assert!(shape.contains("line 1"), "{shape}");
        let twice = parse("mount:\n  threads: 1\n  threads: 2\n").unwrap_err();
        assert!(twice.contains("threads") && twice.contains("line"), "{twice}");
        assert!(parse("mount: {").unwrap_err().contains("line"));
    }

    #[test]
    fn rules_for_new_files() {
        let text = "create:\n  - {pattern: '*.f8', dtype: '<f8', shape: [null, 100], chunks: [64, 100], filters: [shuffle, {deflate: 4}]}\n  - pattern: /log/**\n    dtype: i4\n    fillvalue: -1.5\n";
        let wrong_fill = parse(text).unwrap_err();
        assert!(wrong_fill.contains("line 3 column 5"), "{wrong_fill}");
        let rules = parse(&text.replace("dtype: i4", "dtype: f4")).unwrap().1;
        assert_eq!(
            rules.iter().map(|r| r.description.as_str()).collect::<Vec<_>>(),
            [
                r#"{"dtype":"<f8","shape":[0,100],"chunks":[64,100],"filters":["shuffle",{"deflate":4}]}"#,
                r#"{"dtype":"f4","fillvalue":-1.5}"#
            ]
        );
        for empty in ["create:\n", "create: []\n"] {
            assert_eq!(parse(empty).unwrap().1, []);
        }
    }

    #[test]
    fn errors_in_rules_name_line_and_column() {
        for (rule, what, at) in [
            ("pattern: a\n    dtipe: f8", "dtipe", "line 3 column 5"),
            ("pattern: a\n    dtype: f9", "\"f9\" is no datatype", "line 3 column 12"),
            ("pattern: a\n    dtype: f8\n    filters: [shuffle, deflat]", "no filter \"deflat\"", "line 4 column 14"),
            ("pattern: a\n    filters: [32999]", "not encoded", "line 3 column 14"),
            ("pattern: a\n    shape: [1, -2]", "-2", "line 3 column 12"),
            ("pattern: a\n    shape: [1, null]", "null", "line 3 column 12"),
            ("pattern: a\n    layout: odd", "odd", "line 3 column 13"),
            ("dtype: f8\n    pattern: 'a['", "a[", "line 3 column 14"),
            ("dtype: f8", "pattern", "line 2 column 5"),
            ("pattern: a\n    dtype: f8\n    dtype: f4", "duplicate", "line 4 column 5"),
            ("pattern: a\n    shape: [0, 3]\n    chunks: [5]", "chunks have 1 dimensions", "line 2 column 5"),
            ("pattern: a\n    chunks: [5, 5]", "rank of the dataset", "line 2 column 5"),
            ("pattern: a\n    layout: compact\n    filters: [shuffle]", "only a dataset in chunks", "line 2 column 5"),
            ("7", "a rule", "line 2 column 5"),
        ] {
            let error = parse(&format!("create:\n  - {rule}\n")).unwrap_err();
            assert!(error.contains(what) && error.ends_with(at), "{rule}: {error}");
        }
        assert!(parse("create: 5\n").unwrap_err().contains("line 1 column 9"));
        let odd = parse("mount: [\n").unwrap_err();
        assert!(odd.contains("expected options and their values") && odd.contains("line 1"), "{odd}");
        let none = read(Path::new("/nonexistent/x.yaml")).unwrap_err().0;
        assert_eq!(none, "cannot read the configuration file /nonexistent/x.yaml: No such file or directory; check the path");
    }
}
