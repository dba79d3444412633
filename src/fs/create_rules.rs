//! What new files become by their names: the rules `create:` of the configuration file.
//!
//! The first rule whose pattern matches makes a new file what its description says, as `user.h5dir.dataset` would. A pattern
//! with a slash is matched against the path within the container, any other against the name: link names, not file names.

use super::FsResult;
use super::container::ContainerFs;
use super::nodes::{NodeKind, View};
use super::types::{Entry, Ino};
use super::write::Spot;
use crate::base::Error;
use crate::connector::native;
use glob::{MatchOptions, Pattern};
use std::sync::Arc;

/// Asterisks do not cross slashes; names that begin with a dot are names like others.
const OPTIONS: MatchOptions = MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// A pattern of names or paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    glob: Pattern,
    whole_path: bool,
}

impl NamePattern {
    /// Reads a pattern; the error says what is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        let whole_path = text.contains('/');
        let glob = Pattern::new(text.strip_prefix('/').unwrap_or(text));
        let glob = glob.map_err(|e| format!("{text:?} is no pattern: {}, at its character {}", e.msg, e.pos.saturating_add(1)))?;
        if glob.as_str().is_empty() { Err("a pattern is not empty".into()) } else { Ok(NamePattern { glob, whole_path }) }
    }

    /// Whether it matches the link `name` in the group at `path`.
    fn matches(&self, path: &[Vec<u8>], name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name);
        if !self.whole_path {
            return self.glob.matches_with(&name, OPTIONS);
        }
        let groups = path.iter().map(|n| String::from_utf8_lossy(n) + "/");
        self.glob.matches_with(&(groups.collect::<String>() + &name), OPTIONS)
    }
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateRule {
    /// Of what.
    pub pattern: NamePattern,
    /// What it becomes: JSON in the form of `user.h5dir.dataset`.
    pub description: String,
}

/// Rules in the order in which they are tried.
pub type CreateRules = Arc<[CreateRule]>;

fn reason(result: Result<(), Error>) -> Result<(), String> {
    result.map_err(|e| match e {
        Error::Refused { reason, .. } => reason.into_owned(),
        other => other.to_string(),
    })
}

/// Whether a description of a single key says something; the error says why not.
pub fn check_key(description: &str) -> Result<(), String> {
    reason(native::check_fact(description.as_bytes()))
}

/// Whether a new file can become what `description` says; the error says why not.
pub fn check(description: &str) -> Result<(), String> {
    reason(native::check_new_file(description.as_bytes()))
}

impl ContainerFs {
    /// What the link `name` in the directory `parent` becomes, if a rule says so.
    fn rule(&self, parent: Ino, name: &[u8]) -> Option<&CreateRule> {
        if self.spec.create.is_empty() {
            return None;
        }
        let path = [self.prefix.clone(), self.node(parent).ok()?.path()].concat();
        self.spec.create.iter().find(|rule| rule.pattern.matches(&path, name))
    }

    /// Makes a new file; returns also whether it is one of bytes, of which no rule says anything.
    pub(super) fn make_file(&self, parent: Ino, spot: &Spot) -> FsResult<(Entry, bool)> {
        let mut plain = false;
        let entry = self.make_at(spot, |edit, group, link| {
            let rule = self.rule(parent, link);
            plain = rule.is_none();
            let made = match rule {
                Some(rule) => edit.create_dataset(group, link, rule.description.as_bytes()),
                None => edit.create_file(group, link),
            };
            made.map(|id| Some(NodeKind::Dataset(View::Main, id)))
        })?;
        Ok((entry, plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_names_and_paths() {
        let matches = |pattern: &str, path: &[&str], name: &str| {
            let path: Vec<Vec<u8>> = path.iter().map(|n| n.as_bytes().to_vec()).collect();
            NamePattern::new(pattern).unwrap().matches(&path, name.as_bytes())
        };
        assert!(matches("*.f8", &[], "a.f8") && matches("*.f8", &["g", "h"], ".f8") && !matches("*.f8", &[], "a.f4"));
        assert!(matches("[ab]?", &["g"], "a1") && !matches("[!ab]?", &["g"], "a1"));
        assert!(matches("g/*", &["g"], "a") && matches("/g/*", &["g"], "a") && !matches("g/*", &["g", "h"], "a"));
        assert!(matches("g/**/*.f8", &["g", "h", "i"], "a.f8") && matches("g/**/*.f8", &["g"], "a.f8"));
        assert!(matches("**/x", &[], "x") && matches("/*", &[], "x") && !matches("/*", &["g"], "x"));
        for wrong in ["", "/", "a**", "[", "***"] {
            assert!(NamePattern::new(wrong).is_err(), "{wrong}");
        }
    }
}
