//! Copies an object of a container to another one, in types.

use super::manner::Manner;
use super::sink::SinkFile;
use super::{bytes, stored};
use crate::cli::side::Source;
use crate::cli::side::container::ObjectSource;
use crate::fs::model::{CopiedBytes, Lost, ObjectModel, io_error};
use std::io;

/// What is lost of undefined elements.
pub(super) const UNDEFINED_LOST: &str = "elements that are undefined in the source are defined in the copy";
/// What is lost of named datatypes.
pub(super) const TYPE_LOST: &str = "its named datatype was not kept: another one is where it is copied to; the copy has a type of its own";
/// What is lost of named datatypes without a path.
pub(super) const UNNAMED_TYPE_LOST: &str = "its named datatype was not kept: it has no path; the copy has a type of its own";

/// Why a pair of a map is not copied into a group.
pub(super) const PAIR_WITHOUT_MAP: &str =
    "it is a pair of a map, without a type of its own; copy it into a map, or its bytes by 'h5dir cat'";
/// Why a directory is not copied without -r.
pub(super) const NOT_RECURSIVE: &str = "it is a directory; -r copies it with everything in it";
/// Why a directory is not copied into one of its own.
pub(super) const INTO_ITSELF: &str = "a directory cannot be copied into itself";

/// Makes the new file `file` a copy of the object `model`, whose bytes `source` reads. Returns what
/// it did not get.
pub(super) fn copy(
    (source, model): (&ObjectSource, &ObjectModel),
    file: &mut dyn SinkFile,
    manner: &Manner,
    piece: &mut Vec<u8>,
    progress: &mut dyn FnMut(u64),
) -> io::Result<Lost> {
    let copy = file.model()?;
    let failed = |e| io_error(&e);
    let (definition, copied) = model.definition(&copy, !manner.dereference).map_err(failed)?;
    copy.define(&manner.storage.of(definition)).map_err(failed)?;
    if copied == CopiedBytes::Exact {
        file.use_exact_form();
    }
    if copied != CopiedBytes::None && !stored::copy(source, file, manner.link, progress)? {
        let mut content = if copied == CopiedBytes::Exact { source.exact()?.open()? } else { source.open()? };
        bytes::copy(&mut *content, file, piece, progress)?;
    }
    file.end_content()?;
    copy.take_rest(model).map_err(failed)
}

/// Errors: links or attributes of `source` could not be read, and are missing in the copy.
pub(super) fn check_lists(source: &dyn Source) -> io::Result<()> {
    let Some(model) = source.as_object().map(ObjectSource::model).transpose()?.flatten() else { return Ok(()) };
    match model.damage() {
        Some(e) => Err(io::Error::other(format!("the rest is copied, but not what is damaged: {e}; 'h5dir check' says more"))),
        None => Ok(()),
    }
}
