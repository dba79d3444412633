//! `h5dir stat`: shows objects without mounting.
//!
//! ```text
//! screen     an object in short, on one screen
//! files      all that a mount shows of a file, as text and as JSON
//! ```

mod files;
mod screen;

use super::colours::Colours;
use super::failure::{Exit, Failure, reason};
use super::targets::{self, Asked, Manner, Shown};
use super::view::ViewError;
use super::{text, tree};
use crate::base::escape;
use crate::config::args::StatArgs;
use files::Report;
use serde_json::Value;
use std::io::{self, BufWriter, Write};

/// Runs `h5dir stat`.
pub(crate) fn stat(args: &StatArgs) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let (json, posix) = (args.view.options.json, args.view.posix);
    let mut printed = Printed { colours: Colours::of_output(), json, posix, first: true, reports: Vec::new(), out: &mut out };
    let shown = targets::each(Asked::of_views(&args.view.targets, &args.view.options), Manner::new("read"), &mut |shown| {
        let done = printed.argument(shown);
        printed.out.flush()?;
        done
    });
    let several = args.view.targets.len() > 1;
    match (shown, printed.end(several).and_then(|()| out.flush())) {
        (Ok(()), Err(e)) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e))))
        }
        (shown, _) => shown,
    }
}

struct Printed<'a> {
    colours: Colours,
    json: bool,
    posix: bool,
    /// True until something was printed.
    first: bool,
    /// Reports as JSON, which are one document.
    reports: Vec<Value>,
    out: &'a mut dyn Write,
}

impl Printed<'_> {
    fn argument(&mut self, shown: &mut Shown<'_>) -> Result<(), ViewError> {
        let headings = shown.is_one_of_several || shown.paths.len() > 1;
        for path in shown.paths.clone() {
            if self.json {
                self.reports.push(Report::gather(shown.operations, &path)?.json(shown.spec));
                continue;
            }
            if headings {
                let gap = if self.first { "" } else { "\n" };
                writeln!(self.out, "{gap}{}:", text::name(&shown.text_of(&path)))?;
            }
            self.first = false;
            self.path(shown, &path)?;
        }
        Ok(())
    }

    fn path(&mut self, shown: &mut Shown<'_>, path: &[u8]) -> Result<(), ViewError> {
        let located = tree::locate(shown.operations, path, false).map_err(|e| ViewError::Path(path.to_vec(), e))?;
        if !self.posix && !tree::is_below_control(path) && screen::print(shown.operations, path, &located, (self.colours, self.out))? {
            return Ok(());
        }
        Ok(Report::gather(shown.operations, path)?.print(shown.spec, shown.owners, self.out)?)
    }

    /// Prints the JSON of one object, or a list of that of several.
    fn end(&mut self, several: bool) -> io::Result<()> {
        let document = match self.reports.as_mut_slice() {
            [] => return Ok(()),
            [one] if !several => one.take(),
            _ => Value::Array(std::mem::take(&mut self.reports)),
        };
        writeln!(self.out, "{}", escape::json(&format!("{document:#}")))
    }
}
