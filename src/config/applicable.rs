//! Options of a mount that have no effect on what is mounted.

use super::UsageError;
use super::layers::Layers;
use crate::base::escape::escaped;
use crate::base::remote::{is_container, is_url};
use crate::fs::MountSpec;
use crate::fs::spec::VersionName;
use std::path::Path;

/// Options of containers in object stores.
const OF_VERSIONS: [&str; 2] = ["version", "pin"];
/// Options of directories.
const OF_DIRECTORIES: [&str; 5] = ["include", "exclude", "mirror-names", "max-open", "idle-timeout"];
/// Options of objects that are read from object stores.
const OF_OBJECTS: [&str; 4] = ["anonymous", "cache-dir", "cache-dir-size", "remote-timeout"];

/// True if there is an onion file beside `file`.
pub(super) fn has_revisions(file: &Path) -> bool {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".onion");
    Path::new(&beside).exists()
}

/// Warnings for options that are given for this mount, not by `defaults:`, and have no effect on
/// the source. Errors: `version`, without which another state is shown than was asked for.
pub(crate) fn check(layers: &Layers, spec: &MountSpec, is_directory: bool) -> Result<Vec<UsageError>, UsageError> {
    let source = spec.file.as_path();
    let has_versions = is_container(source);
    let has_version = has_versions || has_revisions(source);
    if spec.version != VersionName::Newest && !has_version && !is_directory {
        let message = format!("--version needs a container in an object store, and {} has no versions; leave it out", escaped(source));
        return Err(UsageError(message));
    }
    let groups = [
        (&OF_VERSIONS[..1], has_version || is_directory, "a container in an object store"),
        (&OF_VERSIONS[1..], has_versions || is_directory, "a container in an object store"),
        (&OF_DIRECTORIES, is_directory, "a directory"),
        (&OF_OBJECTS, is_url(source) || has_versions, "an object of an object store"),
    ];
    let useless = groups.into_iter().filter(|(_, applies, _)| !applies);
    let given = useless.flat_map(|(names, _, what)| names.iter().map(move |name| (name, what)));
    let given = given.filter(|(name, _)| layers.is_own(name));
    Ok(given.map(|(name, what)| UsageError(format!("--{name} has no effect: {} is not {what}", escaped(source)))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::MountOptions;
    use crate::config::value::{Seconds, Version};
    use std::time::Duration;

    fn checked(options: MountOptions, source: &str, version: VersionName) -> Result<Vec<UsageError>, UsageError> {
        let layers = Layers::of_options(options);
        check(&layers, &MountSpec { version, ..MountSpec::new(source) }, source.ends_with('/'))
    }

    #[test]
    fn options_without_effect_are_named() {
        let pin = || MountOptions { pin: Some(Seconds(Duration::from_secs(60))), ..MountOptions::default() };
        let names = |done: Result<Vec<UsageError>, UsageError>| done.unwrap().into_iter().map(|e| e.0).collect::<Vec<_>>().join("\n");
        assert!(names(checked(pin(), "/a.h5", VersionName::Newest)).contains("--pin has no effect: /a.h5"));
        assert_eq!(names(checked(pin(), "iod:/a", VersionName::Newest)), "");
        let version = || MountOptions { version: Some(Version(VersionName::Number(3))), ..MountOptions::default() };
        assert!(checked(version(), "/a.h5", VersionName::Number(3)).unwrap_err().0.contains("has no versions"));
        assert_eq!(names(checked(version(), "iod:/a", VersionName::Number(3))), "");
        let interval = MountOptions { remote_timeout: Some(Seconds(Duration::from_secs(60))), ..MountOptions::default() };
        assert!(names(checked(interval, "/a.h5", VersionName::Newest)).contains("--remote-timeout"));
    }
}
