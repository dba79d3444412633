//! The section `create:` of the configuration file: rules that make new files datasets.
//!
//! ```text
//! create:
//!   - pattern: '*.f8'
//!     dtype: '<f8'
//!     shape: [null, 100]
//! ```
//! Each key except `pattern` has a value as in `user.h5dir.dataset`. A wrong value is reported at
//! its place, contradicting keys at the first key of the rule.

use super::file_options::pairs;
use super::problem::{Problem, suggestion};
use super::yaml::{Kind, Node};
use crate::fs::create_rules::{self, CreateRule, NamePattern};
use serde_json::{Map, Value};

/// Keys of a rule.
pub(crate) const KEYS: [&str; 9] = ["pattern", "dtype", "shape", "maxshape", "chunks", "filters", "fillvalue", "layout", "profile"];

/// Reads a list of rules.
pub(crate) fn rules(node: &Node, problems: &mut Vec<Problem>) -> Vec<CreateRule> {
    match &node.kind {
        Kind::Sequence(items) => items.iter().filter_map(|item| rule(item, problems)).collect(),
        _ if node.is_null() => Vec::new(),
        _ => {
            problems.push(Problem::new(node.at, "expected a list of rules, each '- pattern: ...'"));
            Vec::new()
        }
    }
}

/// Reads a rule; `None` after a problem.
fn rule(node: &Node, problems: &mut Vec<Problem>) -> Option<CreateRule> {
    let before = problems.len();
    let (mut pattern, mut description) = (None, Map::new());
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
        } else {
            problems.push(Problem::new(key.at, format!("unknown key '{name}'{}", suggestion(name, KEYS))));
        }
    }
    if problems.len() > before {
        return None;
    }
    let description = Value::Object(description).to_string();
    let made = pattern.ok_or_else(|| "a rule needs the key pattern".to_owned());
    let made = made.and_then(|pattern| create_rules::check(&description).map(|()| CreateRule { pattern, description }));
    made.map_err(|why| problems.push(Problem::new(node.at, why))).ok()
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
