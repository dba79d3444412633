//! The `h5dir` command.

use std::process::ExitCode;

/// Several threads change many small things: faster, and smaller after a long time, than the C library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    h5dir::cli::run(std::env::args_os())
}
