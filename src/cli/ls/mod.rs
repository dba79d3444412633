//! `h5dir ls`: lists the view of a mount without mounting.
//!
//! ```text
//! files      names, files as ls(1) shows them, JSON
//! table      a line for each object, in columns
//! drawing    all below a group as a tree
//! ```

mod drawing;
mod files;
mod table;

use super::colours::Colours;
use super::failure::{Exit, Failure, reason};
use super::targets::{self, Asked, Manner, Shown};
use super::text;
use super::tree::{self, Named};
use super::view::ViewError;
use crate::config::args::LsArgs;
use crate::fs::{FileKind, Operations};
use files::{Printer, Style};
use std::io::{self, BufWriter, Write};

/// Runs `h5dir ls`.
pub(crate) fn ls(args: &LsArgs) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut listing = Listing { form: Form::of(args), colours: Colours::of_output(), first: true, is_listed: false, out: &mut out };
    let listed = targets::each(Asked::of_views(&args.view.targets, &args.view.options), Manner::new("list"), &mut |shown| {
        let listed = listing.show(shown);
        listing.is_listed |= listed.is_ok();
        listing.out.flush()?;
        listed
    });
    let end = listing.end().and_then(|()| out.flush());
    match (listed, end) {
        (Ok(()), Err(e)) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e))))
        }
        (listed, _) => listed,
    }
}

/// What of the objects is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Form {
    json: bool,
    posix: bool,
    /// In columns.
    long: bool,
    /// With the values of attributes.
    attributes: bool,
    recursive: bool,
}

impl Form {
    fn of(args: &LsArgs) -> Form {
        Form {
            json: args.view.options.json,
            posix: args.view.posix,
            long: args.long || args.attributes,
            attributes: args.attributes,
            recursive: args.recursive,
        }
    }

    /// How files are printed as files; `None`: objects are described.
    fn style(self, path: &[u8]) -> Option<Style> {
        let is_form = tree::is_below_control(path);
        match self {
            Form { json: true, .. } => Some(Style::Json),
            Form { long: true, posix, .. } if posix || is_form => Some(Style::Long),
            Form { long: false, recursive, posix, .. } if posix || is_form || !recursive => Some(Style::Short),
            _ => None,
        }
    }
}

struct Listing<'a> {
    form: Form,
    colours: Colours,
    /// True until something was printed.
    first: bool,
    /// True if an argument was listed.
    is_listed: bool,
    out: &'a mut dyn Write,
}

impl Listing<'_> {
    fn show(&mut self, shown: &mut Shown<'_>) -> Result<(), ViewError> {
        if shown.is_one_of_several {
            self.heading(shown.argument)?;
        }
        if let [path] = shown.paths.as_slice() {
            let path = path.clone();
            return self.one(shown, &path);
        }
        let mut directories = Vec::new();
        let mut others = Vec::new();
        for path in shown.paths.clone() {
            let attr = tree::resolve(shown.operations, &path).map_err(|e| ViewError::Path(path.clone(), e))?;
            match attr.kind {
                FileKind::Directory => directories.push(path),
                _ => others.push(Named { name: path, attr }),
            }
        }
        self.together(shown, &others)?;
        for path in directories {
            self.heading(&shown.text_of(&path))?;
            self.one(shown, &path)?;
        }
        Ok(())
    }

    fn heading(&mut self, argument: &[u8]) -> io::Result<()> {
        if self.form.json {
            return Ok(());
        }
        let gap = if self.first { "" } else { "\n" };
        self.first = false;
        writeln!(self.out, "{gap}{}:", text::name(argument))
    }

    /// Lists files that are no directories, by their paths.
    fn together(&mut self, shown: &mut Shown<'_>, files: &[Named]) -> Result<(), ViewError> {
        let Some(first) = files.first() else { return Ok(()) };
        if let Some(style) = self.form.style(&first.name).or((!self.form.long).then_some(Style::Short)) {
            self.printer(shown, style).rows(&[], files)?;
        } else {
            let mut lines = Vec::new();
            for file in files {
                lines.push(table::line_at(shown.operations, &file.name, self.form.attributes)?);
            }
            table::print(&lines, self.colours, self.out)?;
        }
        self.first = false;
        Ok(())
    }

    fn printer<'b>(&'b mut self, shown: &'b mut Shown<'_>, style: Style) -> Printer<'b> {
        let argument = shown.is_one_of_several.then_some(shown.argument);
        Printer { operations: shown.operations, style, owners: shown.owners, argument, first: &mut self.first, out: self.out }
    }

    /// Lists the directory or the file at `path`.
    fn one(&mut self, shown: &mut Shown<'_>, path: &[u8]) -> Result<(), ViewError> {
        if let Some(style) = self.form.style(path) {
            let recursive = self.form.recursive;
            return files::list(&mut self.printer(shown, style), path, recursive);
        }
        let operations: &dyn Operations = shown.operations;
        if self.form.recursive {
            let root = text::name(&shown.text_of(path));
            return drawing::draw(operations, path, &root, self.form.long.then_some(self.form.attributes), (self.colours, self.out));
        }
        table::list(operations, path, self.form.attributes, (self.colours, self.out))
    }

    /// Ends the list of JSON; there is none if no argument could be listed.
    fn end(&mut self) -> io::Result<()> {
        match (self.form.json, self.first, self.is_listed) {
            (true, false, _) => writeln!(self.out, "\n]"),
            (true, true, true) => writeln!(self.out, "[]"),
            _ => Ok(()),
        }
    }
}
