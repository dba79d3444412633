//! The `h5dir` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    h5dir::cli::run(std::env::args_os())
}
