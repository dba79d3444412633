//! The `h5dir` command.

fn main() {}
