//! `h5dir completions`, and what a shell gets that asks for the candidates of a word.
//!
//! ```text
//! scripts    bash.sh, zsh.sh, fish.fish: ask the program, by environment variables
//! words      words of a command line, quoted as a shell does
//! arguments  which candidates each argument of the command line has
//! objects    paths in HDF5 files, and files
//! ```
//!
//! The shell runs `COMPLETE=SHELL h5dir -- WORDS...`, the protocol of clap's dynamic completion,
//! whose engine finds the argument that is completed.

mod arguments;
mod objects;
mod words;

use super::Failure;
use super::manual::print;
use crate::config::args::CompletionsArgs;
use crate::config::find_args::with_two_dashes;
use clap_complete::CompletionCandidate;
use clap_complete::Shell;
use clap_complete::engine;
use clap_complete::env::{Elvish, EnvCompleter, Powershell};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use words::Kept;

/// Names the shell that asks.
const SHELL: &str = "COMPLETE";
/// The command line up to the cursor, as typed: bash.
const LINE: &str = "_H5DIR_LINE";
/// The last word up to the cursor, as typed, from where the shell replaces it: bash, fish.
const TEXT: &str = "_H5DIR_TEXT";
/// Start of the last word that the shell keeps, without quotes: zsh.
const KEPT: &str = "_H5DIR_KEPT";
/// Number of the word that is completed; 0 is the program.
const INDEX: &str = "_CLAP_COMPLETE_INDEX";
/// What separates candidates, if not a newline.
const SEPARATOR: &str = "_CLAP_IFS";

/// Candidates that a shell gets at most.
const CANDIDATES_MAX: usize = 4096;
/// Longest time until a shell gets an answer: a file may be on a server that does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs `h5dir completions`.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    print(&script(args.shell))
}

/// The script that makes `shell` ask the program.
fn script(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    // Writing to a vector does not fail.
    let _ = match shell {
        Shell::Zsh => text.write_all(include_bytes!("zsh.sh")),
        Shell::Fish => text.write_all(include_bytes!("fish.fish")),
        Shell::Elvish => Elvish.write_registration(SHELL, "h5dir", "h5dir", "h5dir", &mut text),
        Shell::PowerShell => Powershell.write_registration(SHELL, "h5dir", "h5dir", "h5dir", &mut text),
        _ => text.write_all(include_bytes!("bash.sh")),
    };
    text
}

/// Answers a shell that asks for candidates. False: none asks, `args` are a command line.
pub(crate) fn answer(args: &[OsString]) -> bool {
    let asked = std::env::var(SHELL).ok().and_then(|name| Shell::from_str(&name).ok());
    let Some(shell) = asked else { return false };
    match args.get(1) {
        None => drop(print(&script(shell))),
        Some(dashes) if dashes == "--" => {
            let words = args.get(2..).unwrap_or_default().to_vec();
            // A failure is no candidate. The thread is left behind if it does not end.
            std::panic::set_hook(Box::new(|_| {}));
            let (sender, answer) = mpsc::channel();
            let asked = thread::Builder::new().spawn(move || drop(sender.send(reply(shell, words))));
            let text = asked.ok().and_then(|_| answer.recv_timeout(ANSWER_TIMEOUT).ok()).unwrap_or_default();
            let mut out = io::stdout().lock();
            let _ = out.write_all(&text).and_then(|()| out.flush());
        }
        Some(_) => return false,
    }
    true
}

/// The candidates for the last of `words`, as the script of `shell` reads them.
fn reply(shell: Shell, words: Vec<OsString>) -> Vec<u8> {
    let mut text = Vec::new();
    let others: Option<&dyn EnvCompleter> = match shell {
        Shell::Elvish => Some(&Elvish),
        Shell::PowerShell => Some(&Powershell),
        _ => None,
    };
    if let Some(others) = others {
        let directory = std::env::current_dir().ok();
        let _ = others.write_complete(&mut arguments::command(&Arc::new(words.clone())), words, directory.as_deref(), &mut text);
        return text;
    }
    let (words, kept) = typed(words);
    let separator = std::env::var(SEPARATOR).unwrap_or_else(|_| "\n".into());
    for candidate in candidates(words) {
        let Some(value) = kept.rest(candidate.get_value().as_bytes()) else { continue };
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.lines().next().unwrap_or_default();
        if !text.is_empty() {
            text.extend_from_slice(separator.as_bytes());
        }
        match shell {
            Shell::Zsh => {
                let goes_on = value.last().is_some_and(|b| b"/:=,".contains(b));
                text.push(if goes_on { b'-' } else { b'+' });
                for byte in value {
                    text.extend_from_slice(if *byte == b':' { b"\\:" } else { std::slice::from_ref(byte) });
                }
                text.extend(if help.is_empty() { Vec::new() } else { [b":", help.as_bytes()].concat() });
            }
            Shell::Fish => {
                text.extend_from_slice(value);
                text.extend(if help.is_empty() { Vec::new() } else { [b"\t", help.as_bytes()].concat() });
            }
            _ if kept.is_quoted => text.extend(kept.quoting.quoted(value, kept.is_at_start)),
            _ => text.extend_from_slice(value),
        }
    }
    text.extend(if text.is_empty() { "" } else { "\n" }.bytes());
    text
}

/// The words up to the one that is completed, without quotes, and what the shell keeps of that one.
fn typed(given: Vec<OsString>) -> (Vec<OsString>, Kept) {
    let variable = |name: &str| std::env::var_os(name).map(OsString::into_vec);
    if let Some(line) = variable(LINE) {
        let mut all = words::split(&line);
        let kept = all.last().map_or_else(Kept::default, |last| last.kept(&variable(TEXT).unwrap_or_default()));
        return (all.drain(..).map(|word| OsString::from_vec(word.text)).collect(), kept);
    }
    let last = given.len().saturating_sub(1);
    let index = std::env::var(INDEX).ok().and_then(|n| n.parse().ok()).unwrap_or(last);
    let mut all = given;
    all.truncate(index.saturating_add(1));
    if let Some(text) = variable(TEXT) {
        let text = words::split(&text).pop().map(|word| word.text).unwrap_or_default();
        all.pop();
        all.push(OsString::from_vec(text));
    }
    (all, Kept { text: variable(KEPT).unwrap_or_default(), ..Kept::default() })
}

/// The candidates for the last of `words`, at most [`CANDIDATES_MAX`]. Those with control
/// characters are left out: they have no form in all shells, and change terminals.
fn candidates(mut words: Vec<OsString>) -> Vec<CompletionCandidate> {
    let Some(last) = words.pop() else { return Vec::new() };
    let mut command = arguments::command(&Arc::new([words.clone(), vec![last.clone()]].concat()));
    // `-name` of find is `--name` for clap.
    let dash = last.as_bytes().strip_prefix(b"-").filter(|rest| !rest.starts_with(b"-"));
    let of_find = dash.filter(|_| words.get(1).is_some_and(|command| command == "find"));
    if let Some(find) = command.find_subcommand("find") {
        words = with_two_dashes(words, find);
    }
    let asked = of_find.map_or_else(|| last.clone(), |rest| OsString::from_vec([b"--", rest].concat()));
    let index = words.len();
    words.push(asked);
    let directory = std::env::current_dir().ok();
    let mut all = engine::complete(&mut command, words, index, directory.as_deref()).unwrap_or_default();
    // The engine offers what is hidden where there is nothing else.
    all.retain(|c| !(c.is_hide_set() && c.get_id().is_some_and(|id| id.starts_with("command::"))));
    let is_option = |value: &OsStr| value.as_bytes().starts_with(b"-");
    // Options are for words that begin as one, and where there is nothing else.
    if !is_option(&last) && all.iter().any(|c| !is_option(c.get_value())) {
        all.retain(|c| !is_option(c.get_value()));
    }
    all.retain(|c| !c.get_value().as_bytes().iter().any(u8::is_ascii_control));
    all.truncate(CANDIDATES_MAX);
    if of_find.is_none() {
        return all;
    }
    let single = |c: CompletionCandidate| {
        let name = OsStr::from_bytes(c.get_value().as_bytes().get(1..).unwrap_or_default()).to_owned();
        CompletionCandidate::new(name).help(c.get_help().cloned())
    };
    all.into_iter().map(single).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::help;

    fn of(line: &str) -> Vec<String> {
        let words = line.split(' ').map(OsString::from).collect();
        candidates(words).iter().map(|c| c.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn commands_and_options_are_candidates() {
        assert_eq!(of("h5dir mou"), ["mount"]);
        assert_eq!(of("h5dir mount --cache-s"), ["--cache-size"]);
        assert_eq!(of("h5dir bench"), Vec::<String>::new());
        let commands = of("h5dir ");
        let documented =
            help::command().get_subcommands().filter(|c| help::is_documented(c)).map(|c| c.get_name().to_owned()).collect::<Vec<_>>();
        assert!(documented.iter().all(|name| commands.contains(name)), "{commands:?}");
        assert!(!commands.contains(&"bench-memory-fs".to_owned()));
    }

    #[test]
    fn values_of_options_are_candidates() {
        assert_eq!(of("h5dir completions z"), ["zsh"]);
        assert_eq!(of("h5dir mount --log-level d"), ["debug"]);
        assert_eq!(of("h5dir mount --log-level=d"), ["--log-level=debug"]);
        assert_eq!(of("h5dir ls --external="), ["--external=on", "--external=off", "--external=all"]);
        assert_eq!(of("h5dir mount -o ro,log_level=w"), ["ro,log_level=warn"]);
        assert_eq!(of("h5dir mount -o allow_o"), ["allow_other"]);
        assert_eq!(of("h5dir find -ty"), ["-type"]);
        assert_eq!(of("h5dir find f.h5 -type d"), ["d"]);
        assert_eq!(of("h5dir man mount"), ["mount", "mount.h5dir"]);
    }

    #[test]
    fn urls_have_no_candidates() {
        for url in ["s3://", "s3://b/x.h5:/", "http://h/", "http://h/x.h5:/g", "iod+s3://b/p:/", "iod+http://"] {
            for command in ["ls", "cat", "check", "mount", "iod log", "kerchunk"] {
                let found = of(&format!("h5dir {command} {url}"));
                assert!(found.iter().all(|c| c.starts_with('-')), "{command} {url}: {found:?}");
            }
        }
    }
}
