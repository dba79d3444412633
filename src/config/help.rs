//! What the help adds to the command line: the screen of `h5dir`, and examples of each command.

use super::args::Cli;
use super::find_args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// Help of `h5dir`, which fits on a screen of 24 lines.
const SCREEN: &str = "\
{about}. {usage-heading} {usage}. Commands:
{subcommands}
Options: -h, --help; -V, --version; h5dir COMMAND --help: options and examples
";

/// Up to three examples of each command.
const EXAMPLES: [(&str, &[&str]); 24] = [
    ("config", &["h5dir config check", "h5dir config show run7", "h5dir config schema > h5dir.schema.json"]),
    (
        "mount",
        &[
            "h5dir mount data.h5 /mnt/data",
            "h5dir mount --read-write data.h5:/run1 /mnt/run1",
            "h5dir mount -o allow_other,exclude=old /srv/runs /mnt/runs",
        ],
    ),
    ("umount", &["h5dir umount /mnt/data", "h5dir umount --lazy /mnt/data"]),
    ("ls", &["h5dir ls -l data.h5:/run1", "h5dir ls -lR data.h5", "h5dir ls -a 'data.h5:/run*/t'"]),
    ("stat", &["h5dir stat data.h5:/run1/temperature", "h5dir stat --json data.h5:/run1", "h5dir stat --space data.h5"]),
    ("status", &["h5dir status", "h5dir status --watch /mnt/data"]),
    ("check", &["h5dir check data.h5", "h5dir check --data --json data.h5"]),
    (
        "defined",
        &[
            "h5dir defined --count sparse.h5:/run1/image",
            "h5dir defined --select 0:10,: sparse.h5:/run1/image",
            "h5dir defined --mask mask.npy sparse.h5:/run1/image",
        ],
    ),
    (
        "attr",
        &[
            "h5dir attr get data.h5:/run1/temperature units",
            "h5dir attr set data.h5:/run1/temperature gain 5",
            "h5dir attr set --type <f4 data.h5:/run1/temperature gain 5",
        ],
    ),
    ("summary", &["h5dir summary data.h5:/run1/temperature", "h5dir summary --select 0:10,: --json data.h5:/run1/temperature"]),
    (
        "find",
        &[
            "h5dir find data.h5 -type d -attr units=K",
            "h5dir find runs/ -name 'temp*' -dtype f4 -size +1M",
            "h5dir find data.h5:/run1 -type d -print0 | xargs -0 -n 1 h5dir summary",
        ],
    ),
    ("kerchunk", &["h5dir kerchunk data.h5 -o data.json", "h5dir kerchunk s3://bucket/x.h5 > x.json"]),
    ("virtual", &["h5dir virtual all.h5:/frames 'run_*.h5:/frames'", "h5dir virtual --stack all.h5:/t a.h5:/t b.h5:/t"]),
    ("erase", &["h5dir erase --select 0:10,: sparse.h5:/run1/image"]),
    (
        "write",
        &[
            "h5dir write --select 3,10:20,::2 data.h5:/run1/image < block.raw",
            "h5dir write --select @spots.npy --from values.raw data.h5:/run1/image",
            "h5dir write --npy --from image.npy data.h5:/run1/image",
        ],
    ),
    ("append", &["h5dir append data.h5:/run1/image < rows.raw", "h5dir append --axis 2 --npy --from new.npy data.h5:/run1/image"]),
    (
        "create",
        &["h5dir create new.h5", "h5dir create --strategy=page --persist-free-space --user-block=4K new.h5", "h5dir create --log run.h5"],
    ),
    ("iod", &["h5dir iod log iod:runs", "h5dir iod tag iod:runs calibrated 7", "h5dir iod gc --keep 30 iod:runs"]),
    ("tx", &["h5dir tx begin --peers 2 iod:runs step7", "h5dir tx status iod:runs step7", "h5dir tx abort iod:runs step7"]),
    ("recover", &["h5dir recover data.h5", "h5dir recover --dry-run data.h5"]),
    ("compact", &["h5dir compact run.h5", "h5dir compact run.h5:/checkpoint"]),
    ("log", &["h5dir log dump run.h5", "h5dir log replay run.h5 plain.h5", "h5dir log export plain.h5 run.h5"]),
    (
        "completions",
        &[
            "h5dir completions bash > ~/.local/share/bash-completion/completions/h5dir",
            "h5dir completions zsh > ~/.zfunc/_h5dir",
            "h5dir completions fish > ~/.config/fish/completions/h5dir.fish",
        ],
    ),
    ("man", &["h5dir man mount | man -l -", "h5dir man --dir man"]),
];

/// Options that few need: in the manual and in `--help`, not in `-h`.
const RARE: [&str; 11] = [
    "stay-awake",
    "attr-timeout",
    "entry-timeout",
    "max-open",
    "idle-timeout",
    "readahead",
    "threads",
    "modes",
    "vds-missing",
    "metrics-interval",
    "log",
];

/// The command line with its whole help.
pub(crate) fn command() -> Command {
    Cli::command().help_template(SCREEN).mut_subcommands(|command| {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = EXAMPLES.iter().find(|(name, _)| *name == command.get_name()).map(|(_, lines)| *lines);
        let command = command.mut_args(|arg| {
            let is_rare = arg.get_long().is_some_and(|long| RARE.contains(&long));
            // A value of -1 is refused as such, not as an unknown option.
            let takes_value = arg.get_action().takes_values() && !arg.is_positional() && !arg.is_require_equals_set();
            arg.hide_short_help(is_rare).allow_negative_numbers(takes_value)
        });
        let command = if command.get_name() == "erase" {
            command.mut_arg("json", |arg| arg.hide(true)).mut_arg("version", |arg| arg.hide(true))
        } else {
            command
        };
        command.after_help(ending_with_examples(&text, lines.unwrap_or_default()))
    })
}

/// The paragraphs of `text`, examples last; `lines` are further examples.
fn ending_with_examples(text: &str, lines: &[&str]) -> String {
    let mut paragraphs: Vec<String> = text.split("\n\n").filter(|p| !p.is_empty()).map(str::to_owned).collect();
    if !lines.is_empty() {
        paragraphs.push(format!("Examples:\n  {}", lines.join("\n  ")));
    }
    paragraphs.sort_by_key(|paragraph| paragraph.starts_with("Examples:"));
    paragraphs.join("\n\n")
}

/// True for a command that has completions and is in the manual: the screen has no lines left for
/// all of them.
pub(crate) fn is_documented(command: &Command) -> bool {
    !command.is_hide_set() || matches!(command.get_name(), "append" | "completions" | "kerchunk" | "tx" | "virtual")
}

/// Parses a command line.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let command_line = command();
    let args = args.into_iter().collect();
    let args = match command_line.find_subcommand("find") {
        Some(find) => find_args::with_two_dashes(args, find),
        None => args,
    };
    let is_log = args.get(1).is_some_and(|name| name == "log");
    let matches = command_line.try_get_matches_from(args).map_err(|e| explained(e, is_log))?;
    Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command()))
}

/// `e` without advice that misleads. `is_log`: of `h5dir log`.
fn explained(mut e: clap::Error, is_log: bool) -> clap::Error {
    match e.kind() {
        // That a word with a dash may be a value is seldom what was meant.
        ErrorKind::UnknownArgument if e.get(ContextKind::SuggestedArg).is_none() => {
            e.remove(ContextKind::Suggested);
            e
        }
        ErrorKind::InvalidSubcommand if is_log => {
            let hint = "the log of a mount is MOUNTPOINT/.h5dir/log, and that of its daemon what --log-file names";
            e.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
            e
        }
        _ => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::MountOptions;
    use clap::Args;

    fn help(args: &[&str]) -> String {
        let error = parse(args.iter().map(OsString::from)).unwrap_err();
        assert!(!error.use_stderr(), "{error}");
        error.render().to_string()
    }

    #[test]
    fn the_commands_fit_on_one_screen() {
        for text in [help(&["h5dir", "--help"]), help(&["h5dir", "help"]), help(&["h5dir", "-h"])] {
            assert!(text.lines().count() <= 24, "{} lines:\n{text}", text.lines().count());
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            for command in command().get_subcommands() {
                assert_eq!(text.contains(&format!("\n  {} ", command.get_name())), !command.is_hide_set(), "{}", command.get_name());
            }
        }
    }

    #[test]
    fn the_help_of_each_command_ends_with_examples_that_parse() {
        for command in command().get_subcommands().filter(|c| c.get_name() != "bench-memory-fs") {
            let name = command.get_name();
            let text = help(&["h5dir", name, "--help"]);
            let Some((_, examples)) = text.split_once("\nExamples:\n") else { panic!("give '{name}' a line of EXAMPLES:\n{text}") };
            let lines: Vec<&str> = examples.lines().collect();
            assert!((1..=3).contains(&lines.len()), "{name}: {lines:?}");
            for line in lines {
                assert!(line.len() <= 100, "{line}");
                // A comment follows after spaces.
                let line = line.trim_start().split("  ").next().unwrap_or_default();
                let words: Vec<&str> = line.split_whitespace().take_while(|word| !matches!(*word, "|" | ">" | "<")).collect();
                assert!(words.starts_with(&["h5dir", name]), "{line}");
                parse(words.into_iter().map(OsString::from)).unwrap_or_else(|e| panic!("{line}: {e}"));
            }
        }
        for (name, _) in EXAMPLES {
            assert!(Cli::command().find_subcommand(name).is_some(), "there is no command '{name}'");
        }
    }

    #[test]
    fn examples_of_a_command_come_last() {
        assert_eq!(ending_with_examples("Examples:\n  a\n\nExit codes:\n  0  b", &[]), "Exit codes:\n  0  b\n\nExamples:\n  a");
        assert_eq!(ending_with_examples("Exit codes:\n  0  b", &["c", "d"]), "Exit codes:\n  0  b\n\nExamples:\n  c\n  d");
        assert_eq!(ending_with_examples("", &[]), "");
    }

    #[test]
    fn the_options_of_a_mount_are_grouped_by_topic() {
        for option in MountOptions::augment_args(Command::new("mount")).get_arguments() {
            assert!(option.get_help_heading().is_some(), "give '{}' a help_heading, see `options::heading`", option.get_id());
        }
        let text = help(&["h5dir", "mount", "--help"]);
        let headings = ["Arguments", "Options", "Container", "Writing", "Caching", "Access", "Daemon", "Log", "Exit codes", "Examples"];
        let at: Vec<Option<usize>> = headings.iter().map(|h| text.find(&format!("\n{h}:\n"))).collect();
        assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{at:?}\n{text}");
    }

    #[test]
    fn errors_of_the_command_line_name_the_next_step() {
        for args in
            [&["h5dir"][..], &["h5dir", "munt"], &["h5dir", "erase", "f.h5:/a"], &["h5dir", "ls", "--al", "f"], &["h5dir", "man", "a", "b"]]
        {
            let error = parse(args.iter().map(OsString::from)).unwrap_err();
            let text = error.render().to_string();
            assert!(error.exit_code() == 2 && text.contains("--help"), "{args:?}: {text}");
        }
    }
}
