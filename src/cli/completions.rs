//! `h5dir completions`: what a shell completes, from the definitions of the command line.

use super::Failure;
use super::manual::print;
use crate::config::args::CompletionsArgs;
use crate::config::help;
use clap::Command;

/// Runs `h5dir completions`.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(&help::command()), "h5dir", &mut script);
    print(&script)
}

/// The command line without commands that are not documented.
fn visible(command: &Command) -> Command {
    let commands = command.get_subcommands().filter(|c| help::is_documented(c)).map(|c| c.clone().hide(false));
    let about = command.get_about().cloned().unwrap_or_default();
    Command::new("h5dir").about(about).version(env!("CARGO_PKG_VERSION")).subcommand_required(true).subcommands(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_commands_are_not_completed() {
        let all = help::command();
        let visible = visible(&all);
        let names = |command: &Command| command.get_subcommands().map(|c| c.get_name().to_owned()).collect::<Vec<_>>();
        assert!(names(&visible).contains(&"mount".to_owned()) && !names(&visible).contains(&"man".to_owned()));
        assert_eq!(
            names(&visible),
            all.get_subcommands().filter(|c| help::is_documented(c)).map(|c| c.get_name().to_owned()).collect::<Vec<_>>()
        );
    }
}
