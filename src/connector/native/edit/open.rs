//! Opening a file for changes.

use super::super::file::HdfFile;
use super::super::log_names::FileLog;
use super::super::object::Object;
use super::super::recover::end_killed_swmr_writer;
use super::super::{NativeConnector, Options};
use super::Editing;
use super::only_writer::OnlyWriter;
use crate::base::{Address, Error, Result};
use crate::connector::edit::Edit;
use crate::file::host_file::HostFile;
use crate::file::journal_path::JournalPath;
use crate::file::posix::PosixFile;
use crate::file::writer_log::WriterLogs;
use crate::file::{JournalPlace, WriteDriver};
use crate::format::object_header::kind;
use crate::meta::{ObjectHeader, Store};
use crate::structures::before_first_write::BeforeFirstWrite;
use std::path::PathBuf;
use std::sync::Arc;

/// K of chunk B-trees where a file does not say (HDF5_BTREE_CHUNK_IK_DEF).
const CHUNK_K: u16 = 32;

impl NativeConnector {
    /// Opens `file`, which [`open_to_change`](super::super::open_to_change) opened as `host`, for
    /// reading and writing.
    pub fn open_writable(host: &HostFile, file: PosixFile, directory: PathBuf, options: Options) -> Result<Arc<NativeConnector>> {
        let only_writer = OnlyWriter::claim(host.identity())?;
        end_killed_swmr_writer(host, &file)?;
        let place = JournalPath::new(host).map_err(|e| Error::io("open", Address(0), &e))?;
        let connector = Self::writable_over(Arc::new(file), Box::new(place), directory, options)?;
        let _ = connector.editing()?.only_writer.set(only_writer);
        Ok(connector)
    }

    /// [`NativeConnector::open_writable`], with the run files at `writers` joined.
    pub fn open_joined(
        host: &HostFile,
        file: PosixFile,
        directory: PathBuf,
        options: Options,
        writers: &WriterLogs,
    ) -> Result<Arc<NativeConnector>> {
        let connector = Self::open_writable(host, file, directory, options)?;
        connector.closed_on_error(connector.writer_join().join_writers(writers))?;
        Ok(connector)
    }

    /// Closes the container if `done` is an error.
    pub(in crate::connector::native) fn closed_on_error(&self, done: Result<()>) -> Result<()> {
        if done.is_err()
            && let Err(e) = Edit::close(self)
        {
            tracing::warn!("cannot close the file: {e}");
        }
        done
    }

    /// Opens `driver`, whose journal is at `place`, for reading and writing.
    pub fn writable_over(
        driver: Arc<dyn WriteDriver>,
        place: Box<dyn JournalPlace>,
        directory: PathBuf,
        options: Options,
    ) -> Result<Arc<NativeConnector>> {
        let status = driver.status().map_err(|e| Error::io("stat", Address(0), &e))?;
        let store = Store::open_writable(driver, place)?;
        let superblock = store.superblock().clone();
        if superblock.is_in_use() {
            let reason = "the file is flagged as open for writing: another program writes it, or died doing so; when none does, 'h5dir recover FILE' takes the flag off";
            return Err(Error::refused(libc::EBUSY, reason));
        }
        if superblock.is_of_several() {
            return Err(Error::unsupported("superblock", Address(store.base()), "files of the family and multi drivers are not written"));
        }
        let mut first = BeforeFirstWrite::default();
        let mut chunk_k = superblock.legacy.as_ref().map_or(CHUNK_K, |l| l.chunk_internal_k);
        if superblock.extension.is_defined() {
            let extension = ObjectHeader::load(&store, superblock.extension)?;
            if let Some(k) = extension.find(kind::BTREE_K).and_then(|m| m.body.get(1..3)).and_then(|b| b.try_into().ok()) {
                chunk_k = u16::from_le_bytes(k);
            }
            first = BeforeFirstWrite::plan(&store, &extension)?;
        }
        let file = Arc::new(HdfFile::over(store, 0, directory, &status)?.named(&options.log.file_name).beside(options.log.writers.clone()));
        first.check_image(&file.store)?;
        Object::open(&file, file.root)?;
        let editing = Editing { btree_k: chunk_k.max(1), first, ..Editing::default() };
        let connector = Self::assemble(file.clone(), options, Some(editing));
        let access = connector.access();
        if let Some(FileLog::Released { written: Some(log), .. }) = access.log_of(&file).as_deref()
            && let Err(e) = log.verify()
        {
            let reason = format!(
                "the log VOL wrote the file, and a part of its log is not written here ({e}): mount it without --read-write, or change its objects as they are stored with --log=raw"
            );
            return Err(Error::refused(libc::EROFS, reason));
        }
        drop(access);
        Ok(connector)
    }
}
