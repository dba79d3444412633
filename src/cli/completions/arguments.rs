//! Which candidates each argument of the command line has.

use super::objects::{self, Wanted};
use crate::config::catalog::Catalog;
use crate::config::help;
use crate::config::options::{LongOptions, choices};
use crate::fuse::mounts;
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::CompletionCandidate;
use clap_complete::engine::ArgValueCompleter;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Types of `h5dir find`.
const TYPES: [&str; 5] = ["g", "d", "l", "t", "m"];
/// Pages of `h5dir man` that are not those of commands.
const PAGES: [&str; 4] = ["h5dir", "h5dir.yaml", "7", "mount.h5dir"];

/// The words of a command line.
type Words = Arc<Vec<OsString>>;

/// The command line with the candidates of each argument. `words`: what was typed.
pub(super) fn command(words: &Words) -> Command {
    let command = help::command();
    let names = command.get_subcommands().filter(|c| help::is_documented(c)).map(|c| c.get_name().to_owned()).collect::<Vec<_>>();
    // Few commands are not on the screen, and are completed.
    let command = command.mut_subcommands(|c| if help::is_documented(&c) { c.hide(false) } else { c });
    command.mut_subcommands(|c| with_candidates(c, words, &names))
}

fn with_candidates(command: Command, words: &Words, commands: &[String]) -> Command {
    let name = command.get_name().to_owned();
    command.mut_args(|arg| of_argument(&name, arg, words, commands)).mut_subcommands(|c| with_candidates(c, words, commands))
}

/// `arg` of `command` with its candidates.
fn of_argument(command: &str, arg: Arg, words: &Words, commands: &[String]) -> Arg {
    let value = arg.get_value_names().and_then(<[_]>::first).map(ToString::to_string).unwrap_or_default();
    let words = words.clone();
    let objects = |arg: Arg, wanted| arg.add(ArgValueCompleter::new(move |current: &OsStr| objects::candidates(current, wanted)));
    match (command, arg.get_id().as_str(), value.as_str()) {
        ("umount" | "status", "mountpoint", _) => arg.add(ArgValueCompleter::new(mountpoints)),
        ("mount" | "bench-memory-fs", "mountpoint", _) => arg.value_hint(ValueHint::DirPath),
        ("mount" | "umount" | "show", "name", _) => arg.add(ArgValueCompleter::new(move |current: &OsStr| mounts_named(current, &words))),
        ("mount", "target", _) => arg.add(ArgValueCompleter::new(move |current: &OsStr| {
            let mut all = objects::candidates(current, Wanted::Groups);
            all.extend(mounts_named(current, &words));
            all
        })),
        ("get" | "set" | "rm", "name", _) => arg.add(ArgValueCompleter::new(move |current: &OsStr| attributes(current, &words))),
        ("man", "page", _) => {
            let pages: Vec<String> = commands.iter().cloned().chain(PAGES.map(str::to_owned)).collect();
            arg.add(ArgValueCompleter::new(move |current: &OsStr| beginning(&pages, current)))
        }
        ("find", "types", _) => arg.add(ArgValueCompleter::new(move |current: &OsStr| beginning(&TYPES, current))),
        (_, "fstab", _) => arg.add(ArgValueCompleter::new(fstab)),
        (_, "container", _) => objects(arg, Wanted::Containers),
        (_, _, "SRC" | "DST" | "A" | "B") => objects(arg, Wanted::Objects),
        (_, _, value) if value.contains("[:/") || value.contains(":/") => objects(arg, Wanted::Objects),
        (_, "file" | "files", "FILE" | "file") => objects(arg, Wanted::Files),
        _ => with_choices(arg),
    }
}

/// `arg` with the words that it accepts.
fn with_choices(arg: Arg) -> Arg {
    let words: Vec<String> = words_of(&arg);
    if words.is_empty() {
        return arg;
    }
    arg.add(ArgValueCompleter::new(move |current: &OsStr| beginning(&words, current)))
}

/// The words that `arg` accepts; those in capitals stand for others.
fn words_of(arg: &Arg) -> Vec<String> {
    let is_word = |word: &&str| !word.chars().any(char::is_uppercase);
    choices(arg).into_iter().filter(is_word).map(str::to_owned).collect()
}

/// Those of `all` that begin with `current`.
fn beginning<T: AsRef<str>>(all: &[T], current: &OsStr) -> Vec<CompletionCandidate> {
    let begins = |name: &&str| name.as_bytes().starts_with(current.as_bytes());
    all.iter().map(AsRef::as_ref).filter(begins).map(CompletionCandidate::new).collect()
}

/// The mounts of this user, of root all: by absolute path, and by that from here.
fn mountpoints(current: &OsStr) -> Vec<CompletionCandidate> {
    let user = nix::unistd::geteuid();
    let here = std::env::current_dir().ok();
    let of_user = |owner: Option<u32>| user.is_root() || owner.is_none_or(|owner| owner == user.as_raw());
    let all: Vec<PathBuf> = mounts::ours().unwrap_or_default().into_iter().filter(|m| of_user(m.owner)).map(|m| m.mountpoint).collect();
    let relative = |path: &PathBuf| path.strip_prefix(here.as_ref()?).ok().filter(|p| !p.as_os_str().is_empty()).map(Path::to_owned);
    let mut names: Vec<PathBuf> = if current.is_empty() { Vec::new() } else { all.iter().filter_map(relative).collect() };
    names.extend(all);
    names.sort();
    names.dedup();
    names.retain(|name| name.as_os_str().as_bytes().starts_with(current.as_bytes()));
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The value of the option `name` among `words`.
fn option(words: &[OsString], name: &str) -> Option<PathBuf> {
    let with_value = |word: &OsString| word.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
    let at = words.iter().position(|word| word == name || with_value(word).is_some())?;
    let word = words.get(at)?;
    let value = with_value(word).map_or_else(|| words.get(at.saturating_add(1)).cloned(), |v| Some(OsStr::from_bytes(&v).to_owned()));
    value.map(PathBuf::from)
}

/// Names of the configuration, that of `--config` or those of the machine and of the user.
fn mounts_named(current: &OsStr, words: &[OsString]) -> Vec<CompletionCandidate> {
    let catalog = Catalog::read(option(words, "--config").as_deref()).unwrap_or_default();
    let mut names: Vec<String> = catalog.mounts().into_iter().map(|(_, mount)| mount.name.clone()).collect();
    names.sort();
    names.dedup();
    beginning(&names, current)
}

/// Names of the attributes of the object that is an argument of `h5dir attr`.
fn attributes(current: &OsStr, words: &[OsString]) -> Vec<CompletionCandidate> {
    let end = words.len().saturating_sub(1);
    let before = words.get(..end).unwrap_or_default().iter().skip(3);
    let Some(object) = before.clone().find(|word| word.as_bytes().windows(2).any(|pair| pair == b":/")) else { return Vec::new() };
    let mut all = objects::attributes(object);
    all.retain(|c| c.get_value().as_bytes().starts_with(current.as_bytes()));
    all
}

/// Options in the form of fstab: the last of the list, or its value.
fn fstab(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(text) = current.to_str() else { return Vec::new() };
    let (before, last) =
        text.rsplit_once(',').map_or(("", text), |(_, last)| (text.get(..text.len().saturating_sub(last.len())).unwrap_or(""), last));
    let command = LongOptions::command();
    let named = |key: &str| command.get_arguments().find(|arg| arg.get_long() == Some(key.replace('_', "-").as_str()));
    let candidates: Vec<String> = match last.split_once('=') {
        Some((key, _)) => named(key).map(words_of).unwrap_or_default().into_iter().map(|word| format!("{key}={word}")).collect(),
        None => {
            let all = command.get_arguments().filter_map(|arg| {
                let needs_value = arg.get_action().takes_values() && !arg.is_require_equals_set();
                Some(format!("{}{}", arg.get_long()?.replace('-', "_"), if needs_value { "=" } else { "" }))
            });
            all.chain(["ro".to_owned(), "rw".to_owned()]).collect()
        }
    };
    beginning(&candidates, OsStr::new(last)).into_iter().map(|c| c.add_prefix(before)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments that take names which are not known: texts, numbers, new files.
    const FREE: [&str; 9] = [
        "attr set value",
        "iod tag name",
        "iod tag version",
        "iod diff from",
        "iod diff to",
        "iod revert version",
        "tx begin name",
        "create file",
        "log export output",
    ];

    #[test]
    fn positional_arguments_have_candidates() {
        fn check(command: &Command, path: &str, without: &mut Vec<String>) {
            for arg in command.get_positionals() {
                let has = arg.get::<ArgValueCompleter>().is_some()
                    || arg.get_value_hint() != ValueHint::Unknown
                    || !arg.get_possible_values().is_empty();
                if !has {
                    without.push(format!("{path} {}", arg.get_id()).trim().to_owned());
                }
            }
            for below in command.get_subcommands() {
                check(below, format!("{path} {}", below.get_name()).trim(), without);
            }
        }
        let mut without = Vec::new();
        check(&command(&Words::default()), "", &mut without);
        without.retain(|name| !FREE.contains(&name.as_str()) && !name.starts_with("tx "));
        assert!(without.is_empty(), "give candidates to {without:?}");
    }
}
