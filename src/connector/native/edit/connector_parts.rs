//! The parts of a container that is changed: each does one kind of work in several operations.

use super::super::NativeConnector;

/// Stores dirty chunks while operations continue.
pub(in crate::connector::native) struct WriteBack<'a> {
    pub(super) connector: &'a NativeConnector,
}

/// Makes changes durable, and space free.
pub(in crate::connector::native) struct Commits<'a> {
    pub(super) connector: &'a NativeConnector,
}

/// Compacts the log of records.
pub(in crate::connector::native) struct LogCompaction<'a> {
    pub(super) connector: &'a NativeConnector,
}

/// Prepares the next layouts of datasets.
pub(in crate::connector::native) struct LayoutPreparation<'a> {
    pub(super) connector: &'a NativeConnector,
}

/// Sets which elements of sparse datasets are defined.
pub(in crate::connector::native) struct Definitions<'a> {
    pub(super) connector: &'a NativeConnector,
}

/// Holes of new files.
pub(in crate::connector::native) struct Holes<'a> {
    pub(super) connector: &'a NativeConnector,
}

/// Joins run files of log writers with the log.
pub(in crate::connector::native) struct WriterJoin<'a> {
    pub(super) connector: &'a NativeConnector,
}

/// New files whose type was not declared yet: the sizes of their chunks.
pub(in crate::connector::native) struct NewFiles<'a> {
    pub(super) connector: &'a NativeConnector,
}

/// Writes sources of virtual datasets in other HDF5 files, and the parts of writes that they get.
pub(in crate::connector::native) struct OtherFileWrites<'a> {
    pub(super) connector: &'a NativeConnector,
}

impl NativeConnector {
    pub(in crate::connector::native) fn write_back(&self) -> WriteBack<'_> {
        WriteBack { connector: self }
    }

    pub(in crate::connector::native) fn commits(&self) -> Commits<'_> {
        Commits { connector: self }
    }

    pub(in crate::connector::native) fn compaction(&self) -> LogCompaction<'_> {
        LogCompaction { connector: self }
    }

    pub(in crate::connector::native) fn preparation(&self) -> LayoutPreparation<'_> {
        LayoutPreparation { connector: self }
    }

    pub(in crate::connector::native) fn definitions(&self) -> Definitions<'_> {
        Definitions { connector: self }
    }

    pub(in crate::connector::native) fn holes(&self) -> Holes<'_> {
        Holes { connector: self }
    }

    pub(in crate::connector::native) fn writer_join(&self) -> WriterJoin<'_> {
        WriterJoin { connector: self }
    }

    pub(in crate::connector::native) fn new_files(&self) -> NewFiles<'_> {
        NewFiles { connector: self }
    }

    pub(in crate::connector::native) fn other_files(&self) -> OtherFileWrites<'_> {
        OtherFileWrites { connector: self }
    }
}
