//! The configuration files of this machine and of the user, and the mounts in them.
//!
//! Root reads `/etc/h5dir/*.yaml` only: its environment may be that of a user. Other users read
//! these and `$XDG_CONFIG_HOME/h5dir/*.yaml` (`~/.config/h5dir`), whose mounts take precedence.

use super::UsageError;
use super::file::{self, ConfigFile, NamedMount, Trust, distrusted};
use super::problem::suggestion;
use crate::base::escape::escaped;
use crate::fs::open::Directory;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The machine's configuration files.
const SYSTEM_DIRECTORY: &str = "/etc/h5dir";

/// Configuration files, the strongest first.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// The files that could be read.
    pub(crate) files: Vec<ConfigFile>,
    /// Why the others could not be.
    pub(crate) unreadable: Vec<UsageError>,
    /// Where they were looked for.
    places: Vec<PathBuf>,
}

/// The directories of configuration files, the strongest first.
fn directories() -> Vec<PathBuf> {
    let user = nix::unistd::geteuid();
    let mut all = Vec::new();
    if !user.is_root() {
        // The XDG specification: a relative path is ignored.
        let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || nix::unistd::User::from_uid(user).ok().flatten().map(|user| user.dir);
        let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(home);
        all.extend(base.or_else(|| Some(home()?.join(".config"))).map(|base| base.join("h5dir")));
    }
    all.push(SYSTEM_DIRECTORY.into());
    all
}

/// Paths of the configuration files in `directory`, sorted.
fn files_in(directory: &Path) -> Result<Vec<PathBuf>, UsageError> {
    let failed = |why: &dyn std::fmt::Display| UsageError(format!("cannot use the configuration files of {}: {why}", escaped(directory)));
    let opened = match Directory::open(directory) {
        Ok(opened) => opened,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(Vec::new()),
        Err(e) => return Err(failed(&e)),
    };
    let names = opened.names(usize::MAX).map_err(|e| failed(&e))?;
    let status = opened.as_fd().try_clone_to_owned().and_then(|opened| std::fs::File::from(opened).metadata());
    if let Some(why) = status.map_or_else(|e| Some(e.to_string()), |status| distrusted(&status)) {
        return Err(failed(&why));
    }
    let is_config = |path: &PathBuf| {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !hidden && path.extension().is_some_and(|extension| extension == "yaml")
    };
    let mut paths: Vec<PathBuf> = names.into_iter().map(|name| directory.join(name)).filter(is_config).collect();
    paths.sort();
    Ok(paths)
}

impl Catalog {
    /// Reads the file of `--config`, or else the files of the directories.
    pub(crate) fn read(config: Option<&Path>) -> Result<Catalog, UsageError> {
        match config {
            Some(path) => Ok(Catalog { files: vec![file::read(path, Trust::Named)?], places: vec![path.to_owned()], ..Catalog::default() }),
            None => Ok(Self::of(directories())),
        }
    }

    fn of(places: Vec<PathBuf>) -> Catalog {
        let mut catalog = Catalog { places, ..Catalog::default() };
        for directory in &catalog.places {
            match files_in(directory) {
                Ok(paths) => {
                    for path in paths {
                        match file::read(&path, Trust::Found) {
                            Ok(file) => catalog.files.push(file),
                            Err(e) => catalog.unreadable.push(e),
                        }
                    }
                }
                Err(e) => catalog.unreadable.push(e),
            }
        }
        catalog
    }

    /// All mounts with their files, but those that a mount of a stronger directory replaces.
    pub(crate) fn mounts(&self) -> Vec<(&ConfigFile, &NamedMount)> {
        let mut all: Vec<(&ConfigFile, &NamedMount)> = Vec::new();
        for (file, mount) in self.files.iter().flat_map(|file| file.mounts.iter().map(move |mount| (file, mount))) {
            let replaced =
                |(other, earlier): &&(&ConfigFile, &NamedMount)| earlier.name == mount.name && other.path.parent() != file.path.parent();
            if !all.iter().any(|earlier| replaced(&earlier)) {
                all.push((file, mount));
            }
        }
        all
    }

    /// The mount `name` and its file.
    pub(crate) fn find(&self, name: &str) -> Result<(&ConfigFile, &NamedMount), UsageError> {
        let all = self.mounts();
        let mut found = all.iter().filter(|(_, mount)| mount.name == name);
        match (found.next(), found.next()) {
            (Some((file, mount)), None) => Ok((file, mount)),
            (Some((file, mount)), Some((other, twin))) => {
                let place = |file: &ConfigFile, mount: &NamedMount| format!("{}:{}", escaped(&file.path), mount.at.line);
                let (a, b) = (place(file, mount), place(other, twin));
                Err(UsageError(format!("there are two mounts '{name}', at {a} and at {b}; rename one of them")))
            }
            (None, _) => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> UsageError {
        let places: Vec<String> = self.places.iter().map(|place| escaped(place).to_string()).collect();
        let hint = suggestion(name, self.mounts().iter().map(|(_, mount)| mount.name.as_str()));
        let unreadable: String = self.unreadable.iter().map(|e| format!("; {e}")).collect();
        let broken: String = self.files.iter().filter_map(|file| file.usable().err()).map(|e| format!("; {e}")).collect();
        let name = escaped(name);
        UsageError(format!("there is no mount '{name}' in {}, and no file of that name{hint}{unreadable}{broken}", places.join(" or ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_name() {
        let place = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("own/a.yaml", "mounts: {x: {source: /x1, at: /m/x1}}");
        write("all/a.yaml", "mounts: {x: {source: /x2, at: /m/x2}, y: {source: /y, at: /m/y}, twin: {source: /1, at: /1}}");
        write("all/b.yaml", "mounts: {twin: {source: /2, at: /2}}");
        write("all/.b.yaml", "mounts: {hidden: {source: /2, at: /2}}");
        write("all/b.conf", "FILE=x");
        let catalog = Catalog::of(["own", "all", "none"].map(|name| place.path().join(name)).to_vec());
        assert!(catalog.unreadable.is_empty());
        assert_eq!(catalog.find("x").unwrap().1.source, "/x1");
        assert_eq!(catalog.find("y").unwrap().1.source, "/y");
        let twins = catalog.find("twin").unwrap_err().0;
        assert!(twins.contains("all/a.yaml:1 and at") && twins.contains("all/b.yaml:1"), "{twins}");
        let unknown = catalog.find("twyn").unwrap_err().0;
        assert!(unknown.contains("no mount 'twyn'") && unknown.contains("did you mean 'twin'?"), "{unknown}");
        assert!(catalog.find("hidden").is_err());
    }

    #[test]
    fn files_that_others_can_write_are_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.yaml");
        std::fs::write(&path, "mounts: {x: {source: /x, at: /m}}").unwrap();
        let found = |mode: u32, of: &Path| {
            std::fs::set_permissions(of, PermissionsExt::from_mode(mode)).unwrap();
            let catalog = Catalog::of(vec![place.path().to_owned()]);
            (catalog.find("x").is_ok(), catalog.unreadable.iter().map(|e| e.0.clone()).collect::<String>())
        };
        assert_eq!(found(0o644, &path), (true, String::new()));
        let (good, why) = found(0o666, &path);
        assert!(!good && why.contains("a.yaml: other users can write it"), "{why}");
        found(0o600, &path);
        let (good, why) = found(0o777, place.path());
        assert!(!good && why.contains("other users can write it"), "{why}");
        found(0o700, place.path());
        if nix::unistd::geteuid().is_root() {
            let (good, why) = found(0o660, &path);
            assert!(!good && why.contains("other users can write it"), "{why}");
            found(0o600, &path);
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            let (good, why) = found(0o600, &path);
            assert!(!good && why.contains("it belongs to user 65534"), "{why}");
        }
    }
}
