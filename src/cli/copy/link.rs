//! `cp --link`: which files a container can refer to.

use super::super::failure::{Exit, Failure, reason};
use super::super::side::argument::Argument;
use crate::base::escape::escaped;
use crate::base::remote::{container_folder, container_parent, container_url, is_container, is_url};
use crate::config::side_args::ExternalArgs;
use std::path::{Path, PathBuf};

fn usage(text: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, text)
}

/// The canonical path of `path`, or of its parent and its name if it does not exist.
fn canonical(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |e| usage(format!("cannot find {}: {}", escaped(path), reason(&e)));
    match (path.canonicalize(), path.file_name()) {
        (Ok(path), _) => Ok(path),
        (Err(_), Some(name)) => {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(parent.canonicalize().map_err(failed)?.join(name))
        }
        (Err(e), None) => Err(failed(e)),
    }
}

/// Errors: why the container of `destination` cannot refer to files of `sources`.
pub(super) fn check(sources: &[Argument], destination: &Argument, external: &ExternalArgs) -> Result<(), Failure> {
    let container = match destination {
        Argument::Object { file, .. } if is_container(file) => file,
        _ => return Err(usage("--link needs a container as the destination: iod:FOLDER, or iod+s3://BUCKET/PREFIX")),
    };
    if !external.external.0 {
        return Err(usage("--link and --external=off exclude each other; leave out one of them"));
    }
    match (container_folder(container), container_url(container)) {
        (Some(folder), _) => check_beside_folder(sources, folder, external),
        (None, url) => check_beside_prefix(sources, container_parent(&url.unwrap_or_default())),
    }
}

/// The sources are objects below the prefix `url`.
fn check_beside_prefix(sources: &[Argument], url: &str) -> Result<(), Failure> {
    let is_below = |file: &Path| file.to_str().and_then(|text| text.strip_prefix(url)).is_some_and(|rest| rest.starts_with('/'));
    let all = sources.iter().all(|source| matches!(source, Argument::Object { file, .. } if is_below(file)));
    let hint = "leave it out, or put the container beside them";
    if all { Ok(()) } else { Err(usage(format!("--link of a container here refers to HDF5 files below {url}/ only; {hint}"))) }
}

/// The sources are files beneath the directory of external links of the container in `folder`.
fn check_beside_folder(sources: &[Argument], folder: &Path, external: &ExternalArgs) -> Result<(), Failure> {
    let root = match &external.external_root {
        Some(root) => canonical(root)?,
        None => canonical(folder)?.parent().unwrap_or(Path::new("/")).to_owned(),
    };
    for source in sources {
        let file = match source {
            Argument::Object { file, .. } if !is_container(file) && !is_url(file) => canonical(file)?,
            _ => return Err(usage("--link refers to HDF5 files of this machine; leave it out, or name one as the source")),
        };
        if !file.starts_with(&root) {
            let (file, root) = (escaped(&file), escaped(&root));
            let hint = "name a directory above both by --external-root, here and at each mount";
            return Err(usage(format!("{file} is not beneath {root}, where the container may refer to files; {hint}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::Switch;

    #[test]
    fn files_beneath_the_root_can_be_referred_to() {
        let top = tempfile::tempdir().unwrap();
        for name in ["a/sub", "b"] {
            std::fs::create_dir_all(top.path().join(name)).unwrap();
        }
        std::fs::write(top.path().join("a/sub/x.h5"), b"").unwrap();
        let object = |file: String| Argument::Object { file: file.into(), path: b"/".to_vec() };
        let at = |name: &str| top.path().join(name).to_str().unwrap().to_owned();
        let of = |root: Option<&str>, on| ExternalArgs { external: Switch(on), external_root: root.map(|r| at(r).into()), version: None };
        let checked = |source: Argument, folder: &str, external| match check(&[source], &object(format!("iod:{}", at(folder))), &external) {
            Ok(()) => String::new(),
            Err(failure) => failure.message,
        };
        let x = || object(at("a/sub/x.h5"));
        assert_eq!(checked(x(), "a/new", of(None, true)), "");
        assert_eq!(checked(x(), "b", of(None, true)), "");
        assert!(checked(x(), "b/new", of(None, true)).contains("--external-root"));
        assert_eq!(checked(x(), "b/new", of(Some(""), true)), "");
        assert!(checked(x(), "a/new", of(None, false)).contains("--external=off"));
        for wrong in [Argument::Local(at("a/sub/x.h5").into()), object("iod:other".into()), object("s3://bucket/x.h5".into())] {
            assert!(checked(wrong, "a/new", of(None, true)).contains("of this machine"));
        }
        assert!(check(&[x()], &object(at("y.h5")), &of(None, true)).is_err());
    }

    #[test]
    fn objects_below_the_prefix_of_a_container_can_be_referred_to() {
        let object = |file: &str| Argument::Object { file: file.into(), path: b"/".to_vec() };
        let external = ExternalArgs { external: Switch(true), external_root: None, version: None };
        let is_right = |source: &str| check(&[object(source)], &object("iod+s3://bucket/data/box"), &external).is_ok();
        assert!(is_right("s3://bucket/data/run.h5") && is_right("s3://bucket/data/a/run.h5"));
        for wrong in ["s3://bucket/run.h5", "s3://bucket/data-2/run.h5", "s3://other/data/run.h5", "/data/run.h5", "iod:folder"] {
            assert!(!is_right(wrong), "{wrong}");
        }
    }
}
