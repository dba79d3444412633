//! `h5dir write` and `h5dir append`: write elements of a dataset, without mounting.

use super::attr::{failure, open_to_write};
use super::failure::{Exit, Failure, reason};
use super::process;
use super::progress::ProgressLine;
use super::selection::SelectionFiles;
use crate::base::Error;
use crate::config::attr_args::{AppendArgs, AttrTarget, WriteArgs};
use crate::fs::model::{Input, InputForm, ObjectModel, WriteProgress, io_error};
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read, Seek};
use std::path::Path;

/// Bytes that are read at once.
const INPUT_BYTES: usize = 1 << 20;

/// Runs `h5dir write`.
pub(crate) fn write(args: &WriteArgs) -> Result<(), Failure> {
    // Opened first: a process that reads an untrusted file is confined.
    let selection = SelectionFiles::open(args.select.as_deref())?;
    ElementsInput::open("write", args.from.as_deref(), args.npy)?.into_dataset(
        "write",
        (&args.target, args.external_write),
        &mut |object, input, progress| object.write(selection.text(), input, progress),
    )
}

/// Runs `h5dir append`.
pub(crate) fn append(args: &AppendArgs) -> Result<(), Failure> {
    ElementsInput::open("append", args.from.as_deref(), args.npy)?.into_dataset(
        "append",
        (&args.target, false),
        &mut |object, input, progress| object.append(args.axis, input, progress).map(drop),
    )
}

/// What puts the elements of an input into a dataset.
type IntoDataset<'a> = dyn FnMut(&ObjectModel, &mut Input<'_>, &mut WriteProgress<'_>) -> crate::base::Result<()> + 'a;

/// Elements from a file or standard input.
struct ElementsInput {
    file: File,
    /// Their bytes, if that is known.
    len: Option<u64>,
    form: InputForm,
}

impl ElementsInput {
    /// Opens the file `from`, or standard input, for `command`.
    fn open(command: &str, from: Option<&Path>, npy: bool) -> Result<Self, Failure> {
        let (mut file, name) = match from {
            Some(path) => {
                let failed = |e| Failure::new(Exit::General, format!("cannot read {}: {}", path.display(), reason(&e)));
                (File::open(path).map_err(failed)?, path.display().to_string())
            }
            None if io::stdin().is_terminal() => {
                let why = format!("{command} takes the elements from standard input: add '< FILE' or --from FILE");
                return Err(Failure::new(Exit::Usage, why));
            }
            None => {
                let failed =
                    |e: rustix::io::Errno| Failure::new(Exit::General, format!("cannot read standard input: {}", reason(&e.into())));
                (File::from(rustix::io::dup(io::stdin()).map_err(failed)?), "standard input".to_owned())
            }
        };
        // What is left of a regular file.
        let at = file.stream_position().unwrap_or(0);
        let len = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|m| m.len().saturating_sub(at));
        if len.is_none() && file.metadata().is_ok_and(|m| m.is_dir()) {
            return Err(Failure::new(Exit::General, format!("cannot read {name}: it is a directory")));
        }
        Ok(ElementsInput { file, len, form: if npy { InputForm::Npy } else { InputForm::Elements } })
    }

    /// Calls `put` with the dataset and the input.
    fn into_dataset(
        mut self,
        command: &str,
        (target, external_write): (&AttrTarget, bool),
        put: &mut IntoDataset<'_>,
    ) -> Result<(), Failure> {
        if target.external.version.is_some() {
            return Err(Failure::new(Exit::Usage, format!("{command} changes the newest version; omit --version")));
        }
        let (container, object) = open_to_write(target, external_write)?;
        let (mut line, mut bytes) = (ProgressLine::new(), 0u64);
        let mut reader = BufReader::with_capacity(INPUT_BYTES, Interruptible(&mut self.file));
        let mut input = Input { bytes: &mut reader, len: self.len, form: self.form };
        let written = put(&object, &mut input, &mut |written| {
            bytes = bytes.saturating_add(written);
            line.show(|| format!("{} MiB", bytes >> 20));
            if process::is_interrupted() { Err(Error::refused(libc::EINTR, "interrupted; what was written so far stays")) } else { Ok(()) }
        });
        line.clear();
        drop(object);
        let written = written.map_err(|e| failure(target, &io_error(&e)));
        let closed = container.operations.shutdown().map_err(|e| Failure::new(Exit::General, e.to_string()));
        written.and(closed)
    }
}

/// Reads again after signals, unless one interrupts the command.
struct Interruptible<'a>(&'a mut File);

impl Read for Interruptible<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if process::is_interrupted() {
            return Err(io::Error::from_raw_os_error(libc::ECANCELED));
        }
        self.0.read(buf)
    }
}
