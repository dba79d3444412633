//! The commands: what each prints, in which order things happen, and the exit code.
//!
//! ```text
//! mount, umount   daemon: background, readiness, signals     logging, confine
//! create, recover container: files that are not mounted
//! ls, stat        tree: paths inside a container             text: modes, times, names
//! ```

pub mod confine;
pub mod container;
pub mod daemon;
pub mod failure;
pub mod logging;
pub mod ls;
pub mod mount;
pub mod process;
pub mod stat;
pub mod text;
pub mod tree;
pub mod umount;

pub use failure::{Exit, Failure};

use crate::base::escape;
use crate::config::args::{Cli, Command};
use clap::Parser;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// Carries out a command line.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    process::ignore_stray_signals();
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            // Help is printed as it is; an error shows arguments.
            if e.use_stderr() {
                let _ = write!(io::stderr(), "{}", escape::lines(&e.render().to_string()));
            } else {
                let _ = e.print();
            }
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    let result = match cli.command {
        Command::Mount(args) => mount::mount(args),
        Command::BenchMemoryFs(args) => mount::bench_memory_fs(args),
        Command::Umount(args) => umount::umount(&args),
        Command::Create(args) => container::create(&args),
        Command::Recover(args) => container::recover(&args),
        Command::Ls(args) => ls::ls(&args),
        Command::Stat(args) => stat::stat(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure.message);
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// Prints a message to standard error, on one line.
fn say(message: &str) {
    // Nobody may read it.
    let _ = writeln!(io::stderr(), "h5dir: {}", escape::line(message));
}
