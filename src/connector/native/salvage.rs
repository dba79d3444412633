//! Opens a file whose superblock or root group is damaged, and finds objects by their headers.
//!
//! An object header of version 2 begins with a signature and has a checksum. One of version 1 has
//! neither: it is found by its prefix, whose fields are small numbers and zeros, and by messages
//! that decode. A candidate counts if it decodes as a group, a dataset or a named datatype. So
//! headers of removed objects are found as well.

use super::file::HdfFile;
use super::object::Object;
use super::{NativeConnector, Options};
use crate::base::{Address, Error, Result};
use crate::connector::salvage::{FoundVisitor, Salvage};
use crate::connector::{ObjectId, ObjectKind};
use crate::file::{FileDriver, read_all};
use crate::format::Context;
use crate::format::object_header::SIGNATURE;
use crate::format::superblock::{SIGNATURE as FILE_SIGNATURE, Superblock};
use crate::meta::{Store, find_superblock};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a prefix of version 1.
const PREFIX_BYTES: usize = 16;
/// Where the root group of a file usually is: after a superblock of version 2 or 3, and of version
/// 0 and 1.
const USUAL_ROOTS: [Address; 3] = [Address(48), Address(96), Address(100)];

/// The superblock of a file of `len` bytes whose own, at `base`, is damaged: addresses of 8 bytes,
/// no root group.
fn assumed(base: u64, len: u64) -> Superblock {
    let (extension, root) = (Address::UNDEF, Address::UNDEF);
    Superblock { version: 3, ctx: Context::DEFAULT, flags: 0, base: Address(base), eof: Address(len), extension, root, legacy: None }
}

/// Where the signature of a superblock is, as libhdf5 looks for it.
fn signature_offset(driver: &dyn FileDriver, len: u64) -> Option<u64> {
    let places = std::iter::successors(Some(0u64), |at| Some(if *at == 0 { 512 } else { at.saturating_mul(2) }));
    places.take_while(|at| *at < len).find(|at| {
        let mut head = [0u8; 8];
        read_all(driver, &mut head, *at).is_ok_and(|n| n == head.len()) && head == FILE_SIGNATURE
    })
}

/// True if the object at `address` is a group, a dataset or a named datatype that decodes.
fn is_object(file: &Arc<HdfFile>, address: Address) -> bool {
    let Ok(object) = Object::open(file, address) else { return false };
    match object.info().kind {
        ObjectKind::Group => object.group_storage().is_ok(),
        ObjectKind::Dataset => object.datatype().is_ok() && object.dataspace().is_ok(),
        ObjectKind::Datatype => object.datatype().is_ok(),
        ObjectKind::Map | ObjectKind::Unknown => false,
    }
}

/// True if `bytes` may begin an object header.
fn may_be_header(bytes: &[u8]) -> bool {
    if bytes.starts_with(&SIGNATURE) {
        return true;
    }
    // Version and a reserved byte; messages, two bytes; links, four; bytes of messages, four;
    // padding.
    let Some([1, 0, m0, m1, l0, l1, l2, 0, s0, _, _, 0, 0, 0, 0, 0]) = bytes.first_chunk::<PREFIX_BYTES>() else { return false };
    (*m0 > 0 || *m1 > 0) && (*l0 > 0 || *l1 > 0 || *l2 > 0) && s0 % 8 == 0
}

impl NativeConnector {
    /// Opens `driver`, whose directory is `directory`, as far as it is not damaged.
    pub fn open_damaged(driver: Arc<dyn FileDriver>, directory: PathBuf, options: Options) -> Result<Arc<NativeConnector>> {
        let status = driver.status().map_err(|e| Error::io("stat", Address(0), &e))?;
        let file = match HdfFile::open(driver.clone(), 0, directory.clone()) {
            Ok(file) => file,
            Err(e @ Error::Io { .. }) => return Err(e),
            Err(e) => {
                tracing::warn!("{e}: the file is read without it");
                let (superblock, offset) = match find_superblock(&*driver) {
                    Ok(Some((superblock, offset))) => (Superblock { extension: Address::UNDEF, ..superblock }, offset),
                    _ => {
                        let offset = signature_offset(&*driver, status.len).unwrap_or(0);
                        (assumed(offset, status.len), offset)
                    }
                };
                HdfFile::without_extension(Store::with_superblock(driver, superblock, offset)?, directory, &status)
            }
        };
        let mut file = Arc::new(file.named(&options.log.file_name).beside(options.log.writers.clone()));
        if !is_object(&file, file.root) {
            let usual = USUAL_ROOTS.into_iter().find(|at| Object::open(&file, *at).is_ok_and(|o| o.info().kind == ObjectKind::Group));
            tracing::warn!("the root group cannot be read: .h5dir/found has the objects of the file");
            if let (Some(root), Some(there)) = (usual, Arc::get_mut(&mut file)) {
                there.root = root;
            }
        }
        let connector = Self::assemble(file, options, None);
        Ok(connector)
    }
}

impl Salvage for NativeConnector {
    fn found(&self, start: u64, f: &mut FoundVisitor<'_>) -> Result<()> {
        let file = self.file(0)?;
        let (driver, base) = (file.store.driver(), file.store.base());
        let mut piece = vec![0u8; PIECE_BYTES];
        let mut at = start.max(base);
        loop {
            let n = read_all(&**driver, &mut piece, at).map_err(|e| Error::io("read", Address(at), &e))?;
            let bytes = piece.get(..n).unwrap_or_default();
            // The last ones are in the next piece, too.
            let last = n < PIECE_BYTES;
            let count = if last { n } else { n.saturating_sub(PREFIX_BYTES) };
            for i in 0..count {
                if !bytes.get(i..).is_some_and(may_be_header) {
                    continue;
                }
                let offset = at.saturating_add(i as u64);
                let address = Address(offset.saturating_sub(base));
                if is_object(&file, address) && f(ObjectId { file: 0, address }, offset.saturating_add(1)).is_break() {
                    return Ok(());
                }
            }
            if last {
                return Ok(());
            }
            at = at.saturating_add(count as u64);
        }
    }

    fn named(&self, name: &[u8]) -> Option<ObjectId> {
        let digits = std::str::from_utf8(name).ok()?.strip_prefix("0x")?;
        let address = Address(u64::from_str_radix(digits, 16).ok()?);
        let id = ObjectId { file: 0, address };
        (id.to_string().as_bytes() == name && is_object(&self.file(0).ok()?, address)).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_differ_from_other_bytes() {
        let header = [1, 0, 3, 0, 1, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0];
        assert!(may_be_header(&header) && may_be_header(b"OHDR") && !may_be_header(&header[..15]) && !may_be_header(b"OHD"));
        for (i, byte) in [(0, 2), (1, 1), (2, 0), (4, 0), (7, 1), (8, 25), (11, 1), (12, 1), (15, 1)] {
            let mut other = header;
            other[i] = byte;
            assert!(!may_be_header(&other), "{i}");
        }
    }
}
