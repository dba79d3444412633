//! Options in a mapping of a configuration file: every long option of `h5dir mount`, without `--`.

use super::options::{LongOptions, MountOptions, choices};
use super::problem::{Problem, Span, suggestion};
use super::yaml::{Node, NodeKind};
use crate::base::remote::is_url;
use clap::{Arg, ArgAction, CommandFactory, Parser};
use std::any::TypeId;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Options of a mapping, and where each of them is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FileOptions {
    /// The options.
    pub(crate) options: MountOptions,
    /// Names of the options that are given, with their places.
    pub(crate) places: Vec<(String, Span)>,
}

impl FileOptions {
    /// The place of the option `name`, if it is given.
    pub(crate) fn place(&self, name: &str) -> Option<Span> {
        self.places.iter().find(|(given, _)| given == name).map(|(_, at)| *at)
    }
}

/// The pairs of a mapping; other values are a problem, no value is no pair. `what`: what it holds.
pub(crate) fn pairs<'a>(node: &'a Node, what: &str, problems: &mut Vec<Problem>) -> &'a [(Node, Node)] {
    let NodeKind::Mapping(pairs) = &node.kind else {
        if !node.is_null() {
            problems.push(Problem::new(node.at, format!("expected {what}, as 'key: value'")));
        }
        return &[];
    };
    for (i, (key, _)) in pairs.iter().enumerate() {
        let first = pairs.iter().take(i).find(|(other, _)| other.text() == key.text());
        if let Some((first, _)) = first {
            let name = key.text().unwrap_or_default();
            problems.push(Problem::new(key.at, format!("'{name}' is given twice, first at line {}", first.at.line)));
        }
    }
    pairs
}

/// Reads options from `pairs`. `others`: keys that are no option, read elsewhere. `base`: the
/// directory of relative paths, if it is not the working directory.
pub(crate) fn read(pairs: &[(Node, Node)], others: &[&str], base: Option<&Path>, problems: &mut Vec<Problem>) -> FileOptions {
    let command = LongOptions::command();
    let mut read = FileOptions::default();
    for (key, value) in pairs {
        let name = key.text().unwrap_or_default();
        if others.contains(&name) {
            continue;
        }
        let Some(arg) = command.get_arguments().find(|arg| arg.get_long() == Some(name)) else {
            let known = command.get_arguments().filter_map(Arg::get_long).chain(others.iter().copied());
            problems.push(Problem::new(key.at, format!("unknown key '{name}'{}", suggestion(name, known))));
            continue;
        };
        match option(arg, name, value, base) {
            Ok(Some(options)) => {
                read.options = options.or(read.options);
                read.places.push((name.to_owned(), key.at));
            }
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    read
}

/// Reads the option `name`; `None` without a value.
fn option(arg: &Arg, name: &str, value: &Node, base: Option<&Path>) -> Result<Option<MountOptions>, Problem> {
    if value.is_null() {
        return Ok(None);
    }
    let several = matches!(arg.get_action(), ArgAction::Append);
    let values: Vec<&Node> = match &value.kind {
        NodeKind::Sequence(items) if several => items.iter().collect(),
        _ => vec![value],
    };
    let mut given = Vec::new();
    for value in values {
        let expected = if several { "a value or a list of values" } else { "a single value" };
        let text = value.text().ok_or_else(|| Problem::new(value.at, format!("'{name}' has {expected}")))?;
        let text =
            base.filter(|_| is_path(arg)).map_or_else(|| text.to_owned(), |base| resolved(text, base).to_string_lossy().into_owned());
        given.push(format!("--{name}={text}"));
        if several {
            // Each value has its own place.
            parsed(arg, name, value, given.get(given.len().saturating_sub(1)..).unwrap_or_default())?;
        }
    }
    if given.is_empty() { Ok(None) } else { parsed(arg, name, value, &given).map(Some) }
}

fn parsed(arg: &Arg, name: &str, value: &Node, given: &[String]) -> Result<MountOptions, Problem> {
    LongOptions::try_parse_from(given).map(|long| long.options).map_err(|e| {
        let text = value.text().unwrap_or_default();
        let why = e.source().map_or_else(|| "it is not allowed".to_owned(), ToString::to_string);
        let hint = suggestion(text, choices(arg));
        Problem::new(value.at, format!("invalid value '{text}' for '{name}': {why}{hint}"))
    })
}

/// True for options whose value is a path.
fn is_path(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == TypeId::of::<PathBuf>()
}

/// A path of a configuration file: a URL, absolute, beneath the home directory (`~/`), or beneath
/// `base`.
pub(crate) fn resolved(text: &str, base: &Path) -> PathBuf {
    let home = || nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|user| user.dir);
    if is_url(Path::new(text)) {
        return PathBuf::from(text);
    }
    match text.strip_prefix("~/").and_then(|rest| Some(home()?.join(rest))) {
        Some(path) => path,
        None => base.join(text),
    }
}
