//! `h5dir find`: prints the objects that match, as they are found.
//!
//! ```text
//! walk       objects below a path, a part of a group at a time
//! object     an object that was found, and what it is tested for
//! ```

mod object;
mod walk;

use super::failure::{Exit, Failure};
use super::output;
use super::print_error;
use super::targets::{self, Asked, Manner};
use super::text;
use super::view::ViewError;
use crate::base::escape::{self, escaped_bytes};
use crate::config::find_args::FindArgs;
use crate::config::target::Target;
use object::Object;
use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// Longest time for which a match may wait in a buffer while others are found.
const FLUSH_INTERVAL: Duration = Duration::from_millis(20);

/// Runs `h5dir find`.
pub(crate) fn find(args: &FindArgs) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut matches = Matches { args, next_flush: None, failures: 0, out: &mut out };
    let found = targets::each(Asked::of_views(&args.targets, &args.options), Manner::new("read"), &mut |shown| {
        let file = Target::parse(OsStr::from_bytes(shown.argument)).file.into_os_string();
        for path in &shown.paths {
            walk::walk(shown.operations, (file.as_bytes(), path), args.maxdepth, &mut matches)?;
        }
        Ok(())
    });
    let failures = matches.failures;
    output::ended(found, out.flush())?;
    match failures {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::General, "1 object could not be read")),
        n => Err(Failure::new(Exit::General, format!("{n} objects could not be read"))),
    }
}

/// What was found so far.
struct Matches<'a> {
    args: &'a FindArgs,
    next_flush: Option<Instant>,
    /// Objects that could not be read.
    failures: u64,
    out: &'a mut dyn Write,
}

impl Matches<'_> {
    /// Prints `object`, which is `depth` groups below its start, if it matches.
    fn take(&mut self, object: &Object<'_>, depth: usize) -> Result<(), ViewError> {
        if self.args.mindepth.is_some_and(|least| depth < least) {
            return Ok(());
        }
        match object.matches(self.args) {
            Ok(true) => Ok(self.print(object)?),
            Ok(false) => Ok(()),
            Err(why) => self.failed(&object.text(), &why),
        }
    }

    fn print(&mut self, object: &Object<'_>) -> io::Result<()> {
        match (self.args.options.json, self.args.print0) {
            (true, _) => writeln!(self.out, "{}", escape::json(&object.json().to_string()))?,
            (_, true) => self.out.write_all(&[object.text().as_slice(), b"\0"].concat())?,
            _ => writeln!(self.out, "{}", text::name(&object.text()))?,
        }
        let now = Instant::now();
        if self.next_flush.is_none_or(|next| now >= next) {
            self.out.flush()?;
            self.next_flush = now.checked_add(FLUSH_INTERVAL);
        }
        Ok(())
    }

    /// Reports that the object `name` could not be read.
    fn failed(&mut self, name: &[u8], why: &str) -> Result<(), ViewError> {
        self.failures = self.failures.saturating_add(1);
        self.out.flush()?;
        print_error(&format!("cannot read {}: {why}", escaped_bytes(name)));
        Ok(())
    }

    /// Prints what waits in the buffer.
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
