//! The configuration file (`--config`), YAML:
//!
//! ```text
//! mount:                # the long options of `h5dir mount`, without --
//!   cache-size: 512M
//!   allow-other: true
//! ```
//! An unknown key or a wrong value is an error that names the line and column of the key.

use super::UsageError;
use super::options::MountOptions;
use serde::Deserialize;
use std::path::Path;

/// Largest file read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    mount: MountOptions,
}

/// Reads the options in the file at `path`.
pub fn read(path: &Path) -> Result<MountOptions, UsageError> {
    let failed = |e: &dyn std::fmt::Display| UsageError(format!("cannot read the configuration file {}: {e}", path.display()));
    let size = std::fs::metadata(path).map_err(|e| failed(&e))?.len();
    if size > FILE_BYTES_MAX {
        return Err(failed(&"it is larger than 1 MiB"));
    }
    let text = std::fs::read_to_string(path).map_err(|e| failed(&e))?;
    parse(&text).map_err(|e| UsageError(format!("configuration file {}: {e}", path.display())))
}

fn parse(text: &str) -> Result<MountOptions, String> {
    // An empty file, or one of comments, is no document.
    match serde_yaml::from_str::<Option<File>>(text) {
        Ok(file) => Ok(file.unwrap_or_default().mount),
        Err(e) => {
            let text = e.to_string();
            // The reader leaves out the very first position.
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
        let options = parse(text).unwrap();
        assert_eq!(options.cache_size, Some(Size(512 << 20)));
        assert_eq!(options.allow_other, Some(Switch(true)));
        assert_eq!(options.external, Some(Switch(false)));
        assert_eq!((options.file_mode, options.dir_mode), (Some(Mode(0o440)), Some(Mode(0o550))));
        assert_eq!(options.attr_timeout, Some(Seconds(Duration::from_millis(1500))));
        assert_eq!(options.log_file, None);
        for empty in ["", "# only a comment\n", "mount:\n", "---\n", "{}"] {
            assert_eq!(parse(empty), Ok(MountOptions::default()), "{empty:?}");
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
}
