//! `h5dir cat`: prints datasets as text or in other forms, and the bytes of files of a view,
//! without mounting.

use super::failure::{Exit, Failure, errno_text, reason};
use super::selection::SelectionFiles;
use super::side::argument::Argument;
use super::side::container::{Container, ObjectSource};
use super::side::{PIECE_BYTES, SideKind, Source};
use super::targets::{self, Asked, Failures, Manner, Shown};
use super::view::ViewError;
use crate::base::Error;
use crate::base::escape::escaped_bytes;
use crate::config::resolve;
use crate::config::side_args::{CatArgs, ExternalArgs};
use crate::config::value::Level;
use crate::fs::model::{Dialect, Form, ImageForm, ObjectModel, io_error};
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of text that are written at once.
const OUT_BYTES: usize = 256 << 10;

/// Runs `h5dir cat`.
pub(crate) fn cat(args: &CatArgs) -> Result<(), Failure> {
    let targets: Vec<Argument> = args.targets.iter().map(|text| Argument::parse(text)).collect();
    print(&targets, &args.external, &Wanted::of(args)?)
}

/// What is printed of each object.
#[derive(Default)]
pub(super) struct Wanted {
    /// `None`: the bytes of the file.
    form: Option<Form>,
    /// A form was not asked for: files without one are printed as they are.
    usual: bool,
    selection: SelectionFiles,
    head: Option<u64>,
    tail: Option<u64>,
}

impl Wanted {
    fn of(args: &CatArgs) -> Result<Wanted, Failure> {
        let forms = [
            (args.text, Form::Rows(Dialect::Text)),
            (args.csv, Form::Rows(Dialect::Csv)),
            (args.tsv, Form::Rows(Dialect::Tsv)),
            (args.jsonl, Form::Rows(Dialect::JsonLines)),
            (args.json, Form::Json),
            (args.npy, Form::Npy),
            (args.arrow, Form::Arrow),
            (args.png, Form::Image(ImageForm::Png)),
            (args.tif, Form::Image(ImageForm::Tiff)),
        ];
        let asked = forms.into_iter().find(|(asked, _)| *asked).map(|(_, form)| form);
        let part = args.select.is_some() || args.head.is_some() || args.tail.is_some();
        if args.raw && (args.head.is_some() || args.tail.is_some()) {
            return Err(Failure::new(Exit::Usage, "-n and --tail count rows; with --raw use --select"));
        }
        if matches!(asked, Some(Form::Json | Form::Npy | Form::Arrow | Form::Image(_))) && (args.head.is_some() || args.tail.is_some()) {
            return Err(Failure::new(Exit::Usage, "-n and --tail count rows; with --json, --npy, --arrow and images use --select"));
        }
        let usual = asked.is_none() && !args.raw;
        let text = usual && (part || io::stdout().is_terminal());
        let raw = (args.raw && part).then_some(Form::Raw);
        let form = asked.or(raw).or(text.then_some(Form::Rows(Dialect::Text)));
        let binary = [
            (Form::Npy, "a numpy", "npy"),
            (Form::Arrow, "an Arrow", "arrow"),
            (Form::Image(ImageForm::Png), "a PNG", "png"),
            (Form::Image(ImageForm::Tiff), "a TIFF", "tif"),
        ];
        let binary = binary.into_iter().find(|(binary, ..)| form == Some(*binary));
        if let Some((_, what, suffix)) = binary.filter(|_| io::stdout().is_terminal()) {
            return Err(Failure::new(Exit::Usage, format!("{what} file is not for a terminal; add > FILE.{suffix}")));
        }
        let selection = SelectionFiles::open(args.select.as_deref())?;
        Ok(Wanted { form, usual: usual && !part, selection, head: args.head, tail: args.tail })
    }

    fn rows(&self, count: u64) -> Range<u64> {
        let start = self.tail.map_or(0, |n| count.saturating_sub(n));
        start..self.head.map_or(count, |n| n.min(count))
    }
}

/// Why a file was not printed.
enum CatError {
    Input(io::Error),
    Output(io::Error),
}

/// Prints the objects `targets` one after another. A closed pipe is no failure.
pub(super) fn print(targets: &[Argument], external: &ExternalArgs, wanted: &Wanted) -> Result<(), Failure> {
    let asked = |target: &Argument| {
        let (file, path) = match target {
            Argument::Object { file, path } => (file, path.as_slice()),
            Argument::Local(file) => (file, &b"/"[..]),
            Argument::Standard => {
                let message = "standard input is no HDF5 file; write FILE:/PATH";
                return Asked { text: target.text(), found: Err(Failure::new(Exit::Usage, message)) };
            }
        };
        let found = resolve::side(file, external).map(|spec| (spec, path.to_vec())).map_err(Failure::from);
        Asked { text: target.text(), found }
    };
    let manner = Manner { verb: "read", level: Level::Warn, gives_reasons: true };
    targets::each(targets.iter().map(asked).collect(), manner, &mut |shown| print_shown(shown, wanted))
}

/// Prints the objects of an argument. Failures of some of several paths are printed.
fn print_shown(shown: &Shown<'_>, wanted: &Wanted) -> Result<(), ViewError> {
    let container = Arc::new(Container { operations: shown.shared.clone(), domain: 0 });
    let mut failures = Failures::new(shown.paths.len() > 1);
    for path in &shown.paths {
        let printed = ObjectSource::resolve(&container, path, true).map_err(CatError::Input).and_then(|source| print_one(&source, wanted));
        match printed {
            Ok(()) => {}
            Err(CatError::Output(e)) => return Err(ViewError::Output(e)),
            Err(CatError::Input(e)) => failures.add(failure(&shown.text_of(path), &e)).map_err(ViewError::Failed)?,
        }
    }
    failures.end().map_err(ViewError::Failed)
}

/// Prints a dataset in a form.
fn print_form(model: &ObjectModel, form: Form, wanted: &Wanted) -> Result<(), CatError> {
    let (mut out, mut failed) = (io::BufWriter::with_capacity(OUT_BYTES, io::stdout().lock()), None);
    let printed = model.print(form, wanted.selection.text(), &|count| wanted.rows(count), &mut |piece| {
        out.write_all(piece).map_err(|e| {
            failed = Some(e);
            Error::refused(libc::EPIPE, "the output takes no more")
        })
    });
    match (failed, printed) {
        (Some(e), _) => Err(CatError::Output(e)),
        (None, Err(e)) => Err(CatError::Input(io_error(&e))),
        (None, Ok(())) => out.flush().map_err(CatError::Output),
    }
}

fn failure(text: &[u8], e: &io::Error) -> Failure {
    let name = escaped_bytes(text);
    match e.raw_os_error() {
        Some(libc::EISDIR) => Failure::new(Exit::General, format!("cannot print {name}: it is a group; 'h5dir ls {name}' lists it")),
        Some(errno @ (libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => {
            Failure::new(Exit::Path, format!("cannot find {name}: {}; 'h5dir ls -R FILE' lists the paths of a file", errno_text(errno)))
        }
        _ => Failure::new(Exit::General, format!("cannot read {name}: {}", reason(e))),
    }
}

fn print_one(source: &ObjectSource, wanted: &Wanted) -> Result<(), CatError> {
    if source.meta().kind == SideKind::Directory {
        return Err(CatError::Input(io::Error::from_raw_os_error(libc::EISDIR)));
    }
    if let Some(form) = wanted.form {
        let model = source.model().map_err(CatError::Input)?.filter(ObjectModel::is_dataset);
        match model {
            Some(model) => return print_form(&model, form, wanted),
            None if wanted.usual => {}
            None => return Err(CatError::Input(io::Error::other("it is no dataset, and has no other form than its bytes"))),
        }
    }
    let mut content = source.open().map_err(CatError::Input)?;
    let (mut piece, mut at) = (vec![0; PIECE_BYTES], 0u64);
    // Unlocked and not buffered: binary data holds no lines.
    let mut out = std::fs::File::from(rustix::io::dup(io::stdout()).map_err(|e| CatError::Output(e.into()))?);
    loop {
        let n = content.read(at, &mut piece).map_err(CatError::Input)?;
        out.write_all(piece.get(..n).unwrap_or_default()).map_err(CatError::Output)?;
        at = at.saturating_add(n as u64);
        if n == 0 {
            return Ok(());
        }
    }
}
