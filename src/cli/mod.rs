//! The commands: their output, order of steps and exit codes.
//!
//! ```text
//! mount, umount   daemon: background, readiness, signals     logging, confine
//!                 control: signals that change or report     metrics_file
//! config          config: problems, values, schema of configuration files
//! create, recover file_commands: files that are not mounted
//! ls, stat        targets: arguments, brief: lines, facts    tree: paths inside a container
//!                 view: opens containers, colours            text: modes, times, names
//! defined, erase  the same, of the elements of a dataset   selection: files of --select
//! write           write: elements of a dataset
//! find            find: objects that match, as they are found
//! stat --space    space: bytes of a file
//! status          status: mounts of this machine, counters of one
//! compact, log    log: the log of a file
//! check           check: problems of a file                progress: a line on the terminal
//! completions  completions: scripts of shells, and candidates for a word
//! man             manual: from the definitions of the command line
//! cp, cat, diff   copy, cat, diff: over what they read    side: objects and local files
//! ```

mod attr;
pub(crate) mod brief;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod colours;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod confine;
pub(crate) mod control;
pub(crate) mod copy;
pub(crate) mod daemon;
pub(crate) mod defined;
pub(crate) mod diff;
pub(crate) mod facts;
pub(crate) mod failure;
pub(crate) mod file_commands;
mod find;
mod hints;
pub(crate) mod iod;
mod iod_text;
mod iod_versions;
mod kerchunk;
pub(crate) mod located;
pub(crate) mod log;
pub(crate) mod logging;
pub(crate) mod ls;
pub(crate) mod manual;
pub(crate) mod metrics_file;
pub(crate) mod mount;
mod output;
pub(crate) mod process;
pub(crate) mod progress;
mod selection;
pub(crate) mod side;
pub(crate) mod space;
pub(crate) mod stat;
pub(crate) mod status;
mod summary;
pub(crate) mod targets;
pub(crate) mod text;
pub(crate) mod tree;
pub(crate) mod tx;
pub(crate) mod umount;
pub(crate) mod view;
pub(crate) mod virtual_;
mod write;

pub(crate) use failure::{Exit, Failure};

use crate::base::{escape, url_secrets};
use crate::config::args::Command;
use crate::config::help;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// Runs a command line.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    process::ignore_signals();
    let args: Vec<OsString> = args.into_iter().collect();
    if completions::answer(&args) {
        return ExitCode::SUCCESS;
    }
    let args = args.into_iter().map(|argument| url_secrets::conceal_argument(&argument));
    let cli = match help::parse(args) {
        Ok(cli) => cli,
        Err(e) => {
            // An error quotes arguments, which are escaped; help is not.
            if e.use_stderr() {
                let _ = write!(io::stderr(), "{}", escape::lines(&url_secrets::shown(&e.render().to_string())));
            } else {
                let _ = e.print();
            }
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    let result = match cli.command {
        Command::Mount(args) if args.all => mount::all(&args),
        Command::Mount(args) => mount::mount(args),
        Command::BenchMemoryFs(args) => mount::bench_memory_fs(args),
        Command::Umount(args) => umount::umount(&args),
        Command::Config(args) => config::config(&args),
        Command::Create(args) => file_commands::create(&args),
        Command::Iod(args) => iod::iod(&args),
        Command::Tx(args) => tx::tx(&args),
        Command::Recover(args) => file_commands::recover(&args),
        Command::Ls(args) => ls::ls(&args),
        Command::Stat(args) if args.space => space::space(&args),
        Command::Stat(args) => stat::stat(&args),
        Command::Check(args) => check::check(&args),
        Command::Status(args) => status::status(&args),
        Command::Cp(args) => copy::copy(&args),
        Command::Attr(args) => attr::attr(&args),
        Command::Cat(args) => cat::cat(&args),
        Command::Find(args) => find::find(&args),
        Command::Summary(args) => summary::summary(&args),
        Command::Kerchunk(args) => kerchunk::kerchunk(&args),
        Command::Diff(args) => return diff::diff(&args),
        Command::Defined(args) => defined::defined(&args),
        Command::Erase(args) => defined::erase(&args),
        Command::Write(args) => write::write(&args),
        Command::Append(args) => write::append(&args),
        Command::Virtual(args) => virtual_::virtual_dataset(&args),
        Command::Compact(args) => log::compact(&args),
        Command::Log(args) => log::log(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => manual::man(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                print_error(&failure.message);
            }
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// Prints a message to standard error, on one line.
fn print_error(message: &str) {
    // A closed standard error is ignored.
    let _ = writeln!(io::stderr(), "h5dir: {}", escape::line(&url_secrets::shown(message)));
}
