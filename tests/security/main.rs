//! What an unprivileged user can do to those who use h5dir on that user's files. Needs root, which plays both.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attacks;
#[cfg(target_os = "linux")]
mod links;
#[cfg(target_os = "linux")]
mod originals;
#[cfg(target_os = "linux")]
mod races;
mod stepper;
#[path = "../support/mod.rs"]
#[allow(dead_code)]
mod support;
