//! Chunks in the form that packs have.

use super::dataset::Dataset;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::changed::Unencoded;
use crate::dataset::chunk::file_image::FileImage;
use crate::dataset::environment::Environment;
use crate::format::chunk_record::StoredForm;
use std::borrow::Cow;

/// Fills a buffer with stored bytes from an offset.
type ReadStored<'a> = dyn Fn(u64, &mut [u8]) -> Result<()> + Send + Sync + 'a;

/// The stored bytes of a chunk.
pub(super) enum Encoded<'a> {
    /// In memory.
    Memory(Cow<'a, [u8]>),
    /// In a temporary file: how many, and what reads them.
    File(u64, Box<ReadStored<'a>>),
}

impl<'a> Encoded<'a> {
    /// All stored bytes. Errors: there is no memory for them.
    pub fn into_memory(self) -> Result<Cow<'a, [u8]>> {
        let (len, read) = match self {
            Encoded::Memory(bytes) => return Ok(bytes),
            Encoded::File(len, read) => (len, read),
        };
        let no_memory = || Error::Io { operation: "find memory for a chunk", address: Address::UNDEF, errno: libc::ENOMEM };
        let mut bytes = Vec::new();
        let len = usize::try_from(len).ok().filter(|len| bytes.try_reserve_exact(*len).is_ok()).ok_or_else(no_memory)?;
        bytes.resize(len, 0);
        read(0, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }
}

impl Dataset {
    /// The bytes to store for a chunk, and its filter mask.
    pub fn encode<'a>(&self, env: &Environment, image: &'a Unencoded) -> Result<(Encoded<'a>, u32)> {
        if let Some(image) = FileImage::of(image.image()) {
            if let Some(len) = self.format.stored_in_file(image.end()) {
                return Ok((Encoded::File(len, Box::new(|at, buf| image.file().read(at, buf))), 0));
            }
            let stored = self.format.encode_file(env, image.file())?;
            let mask = mask_of(stored.form())?;
            return Ok((Encoded::File(stored.len(), Box::new(move |at, buf| stored.read(at, buf))), mask));
        }
        if let Some(stored) = self.format.stored_as_is(image.image()) {
            return Ok((Encoded::Memory(Cow::Borrowed(stored)), 0));
        }
        let (stored, form) = self.format.encode(image.image().duplicate(), false)?;
        Ok((Encoded::Memory(Cow::Owned(stored)), mask_of(form)?))
    }
}

fn mask_of(form: StoredForm) -> Result<u32> {
    match form {
        StoredForm::Whole { filter_mask } => Ok(filter_mask),
        StoredForm::Sections(_) => Err(Error::refused(libc::EOPNOTSUPP, "containers have no chunks of sections")),
    }
}
