//! The datasets that new files become by their names: the rules `create:` of the configuration
//! file.
//!
//! The first rule whose pattern matches makes a new file what its description says, as
//! `user.h5dir.dataset` would. A pattern with a slash is matched against the path within the
//! container, any other against the name: link names, not file names.

use crate::base::Error;
use crate::present;
use glob::{MatchOptions, Pattern};
use std::sync::Arc;

/// Asterisks do not match slashes. A leading dot is an ordinary character.
const OPTIONS: MatchOptions = MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// A pattern of names or paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    glob: Pattern,
    matches_path: bool,
}

impl NamePattern {
    /// Parses a pattern; the error is a sentence.
    pub fn new(text: &str) -> Result<Self, String> {
        let matches_path = text.contains('/');
        let glob = Pattern::new(text.strip_prefix('/').unwrap_or(text));
        let glob = glob.map_err(|e| format!("{text:?} is no pattern: {}, at its character {}", e.msg, e.pos.saturating_add(1)))?;
        if glob.as_str().is_empty() { Err("a pattern is not empty".into()) } else { Ok(NamePattern { glob, matches_path }) }
    }

    /// Its text; a pattern of paths has no slash at its beginning.
    pub fn text(&self) -> &str {
        self.glob.as_str()
    }

    /// True if it matches the link `name` in the group at `path`.
    pub fn matches(&self, path: &[Vec<u8>], name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name);
        if !self.matches_path {
            return self.glob.matches_with(&name, OPTIONS);
        }
        let groups = path.iter().map(|n| String::from_utf8_lossy(n) + "/");
        self.glob.matches_with(&(groups.collect::<String>() + &name), OPTIONS)
    }
}

/// What new files of some names become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateRule {
    /// The names.
    pub pattern: NamePattern,
    /// The dataset: JSON in the form of `user.h5dir.dataset`.
    pub description: String,
}

impl CreateRule {
    /// True for the link `name` in the group at `path`.
    pub fn applies(&self, path: &[Vec<u8>], name: &[u8]) -> bool {
        self.pattern.matches(path, name)
    }
}

/// Rules; the first one that applies is used.
pub type CreateRules = Arc<[CreateRule]>;

fn reason(result: Result<(), Error>) -> Result<(), String> {
    result.map_err(|e| match e {
        Error::Refused { reason, .. } => reason.into_owned(),
        other => other.to_string(),
    })
}

/// Checks a description with a single key; the error is a sentence.
pub fn check_key(description: &str) -> Result<(), String> {
    reason(present::check_fact(description.as_bytes()))
}

/// Checks the description of a dataset; the error is a sentence.
pub fn check(description: &str) -> Result<(), String> {
    reason(present::check_new_file(description.as_bytes()))
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
