//! Properties of a new HDF5 file: those of the command line, then those of a rule.

use super::file::{self, Trust};
use super::new_file_args::{FileRule, NewFileArgs};
use super::{UsageError, value::LibVer};
use crate::base::escape::escaped;
use crate::fs::NewFile;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The properties `given`, and those of the first of `rules` that matches the name of `path`.
fn with_rules(given: &NewFileArgs, rules: &[FileRule], path: &Path) -> NewFileArgs {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let rule = rules.iter().find(|rule| rule.pattern.matches(&[], name));
    rule.map_or_else(|| given.clone(), |rule| given.or(&rule.properties))
}

/// The properties of the new file `path`: those `given`, and those of the rules in the
/// configuration file `config`. Errors: they contradict each other.
pub(crate) fn new_file(given: &NewFileArgs, config: Option<&Path>, libver: LibVer, path: &Path) -> Result<NewFile, UsageError> {
    let rules = match config {
        Some(config) => {
            let file = file::read(config, Trust::Named)?;
            file.usable()?;
            file.new_files
        }
        None => Vec::new(),
    };
    let new = with_rules(given, &rules, path).new_file(libver == LibVer::Earliest);
    match new.check() {
        Ok(()) => Ok(new),
        Err(why) => Err(UsageError(format!("cannot create {}: {why}", escaped(path)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::new_file_args::property;
    use crate::fs::Strategy;
    use crate::fs::create_rules::NamePattern;

    #[test]
    fn options_come_before_rules() {
        let rule = FileRule { pattern: NamePattern::new("*.h5").unwrap(), properties: property("strategy", "page").unwrap() };
        let given = property("user-block", "1K").unwrap();
        let made = |name: &str| with_rules(&given, std::slice::from_ref(&rule), Path::new(name)).new_file(false);
        assert_eq!((made("a/b.h5").strategy, made("a/b.h5").user_block), (Strategy::Page, 1024));
        assert_eq!((made("b.nc").strategy, made("b.nc").user_block), (Strategy::Fsm, 1024));
    }
}
