//! The section `create:` of the configuration file: rules that make new files datasets, and rules
//! for new HDF5 files.
//!
//! ```text
//! create:
//!   - pattern: '*.f8'
//!     dtype: '<f8'
//!     shape: [null, 100]
//!   - pattern: '*.h5'
//!     strategy: page
//! ```
//! Each key of a rule for datasets except `pattern` has a value as in `user.h5dir.dataset`, each
//! key of a rule for HDF5 files one as the option of `h5dir create`. A wrong value is reported at
//! its place, contradicting keys at the first key of the rule.

use super::file_options::pairs;
use super::new_file_args::{FileRule, NewFileArgs, property, property_names};
use super::problem::{Problem, suggestion};
use super::yaml::{Node, NodeKind};
use crate::fs::create_rules::{self, CreateRule, NamePattern};
use serde_json::{Map, Value};

/// Keys of a rule.
pub(crate) const KEYS: [&str; 9] = ["pattern", "dtype", "shape", "maxshape", "chunks", "filters", "fillvalue", "layout", "profile"];

/// The rules of a section.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Rules that make new files datasets.
    pub(crate) datasets: Vec<CreateRule>,
    /// Rules for new HDF5 files.
    pub(crate) files: Vec<FileRule>,
}

/// Reads a list of rules.
pub(crate) fn rules(node: &Node, problems: &mut Vec<Problem>) -> Rules {
    let mut all = Rules::default();
    match &node.kind {
        NodeKind::Sequence(items) => items.iter().for_each(|item| rule(item, &mut all, problems)),
        _ if node.is_null() => {}
        _ => problems.push(Problem::new(node.at, "expected a list of rules, each '- pattern: ...'")),
    }
    all
}

/// Reads a rule, and adds it to `all` if it has no problem.
fn rule(node: &Node, all: &mut Rules, problems: &mut Vec<Problem>) {
    let before = problems.len();
    let (mut pattern, mut description) = (None, Map::new());
    let (properties, mut file) = (property_names(), None);
    let given = pairs(node, "a rule with the key pattern", problems);
    for (key, value) in given {
        let name = key.text().unwrap_or_default();
        if name == "pattern" {
            let made = value.text().ok_or_else(|| "a pattern is text".to_owned()).and_then(NamePattern::new);
            match made {
                Ok(made) => pattern = Some(made),
                Err(why) => problems.push(Problem::new(value.at, why)),
            }
        } else if KEYS.contains(&name) {
            match checked(name, value.json()) {
                Ok(value) => drop(description.insert(name.to_owned(), value)),
                Err(why) => problems.push(Problem::new(value.at, why)),
            }
        } else if properties.iter().any(|known| known == name) {
            let given = value.text().ok_or_else(|| format!("'{name}' has a single value")).and_then(|text| property(name, text));
            match given {
                Ok(given) => file = Some(given.or(&file.unwrap_or_default())),
                Err(why) => problems.push(Problem::new(value.at, why)),
            }
        } else {
            let known = KEYS.into_iter().chain(properties.iter().map(String::as_str));
            problems.push(Problem::new(key.at, format!("unknown key '{name}'{}", suggestion(name, known))));
        }
    }
    if problems.len() > before {
        return;
    }
    if let Some(properties) = file {
        match file_rule(pattern, properties, description.is_empty()) {
            Ok(rule) => all.files.push(rule),
            Err(why) => problems.push(Problem::new(node.at, why)),
        }
        return;
    }
    let description = Value::Object(description).to_string();
    let made = pattern.ok_or_else(|| "a rule needs the key pattern".to_owned());
    let made = made.and_then(|pattern| create_rules::check(&description).map(|()| CreateRule { pattern, description }));
    match made {
        Ok(rule) => all.datasets.push(rule),
        Err(why) => problems.push(Problem::new(node.at, why)),
    }
}

/// A rule for HDF5 files; `alone`: it has no key of a rule for datasets.
fn file_rule(pattern: Option<NamePattern>, properties: NewFileArgs, alone: bool) -> Result<FileRule, String> {
    if !alone {
        return Err("keys of a dataset and of an HDF5 file exclude each other; write two rules".into());
    }
    properties.new_file(false).check().map_err(|e| e.to_string())?;
    Ok(FileRule { pattern: pattern.ok_or("a rule needs the key pattern")?, properties })
}

/// Checks the value of the key `name`.
fn checked(name: &str, mut value: Value) -> Result<Value, String> {
    // `null`: no rows now, unlimited later.
    if let ("shape", Value::Array(dims)) = (name, &mut value)
        && let Some(first) = dims.first_mut().filter(|d| d.is_null())
    {
        *first = 0.into();
    }
    let alone = Value::Object(Map::from_iter([(name.to_owned(), value.clone())]));
    create_rules::check_key(&alone.to_string()).map(|()| value)
}
