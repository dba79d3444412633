//! The parts of an operation: each changes one kind of thing.

use super::Change;

/// Links of groups, and facts about them.
pub(super) struct NameChange<'a> {
    pub(super) change: &'a Change<'a>,
}

/// Objects: creation, link counts, deletion, times, comments and properties.
pub(super) struct ObjectChange<'a> {
    pub(super) change: &'a Change<'a>,
}

/// Attributes of objects, those that wait for objects, and named datatypes.
pub(super) struct AttributeChange<'a> {
    pub(super) change: &'a Change<'a>,
}

/// Elements of datasets in their stored form.
pub(super) struct DataChange<'a> {
    pub(super) change: &'a Change<'a>,
}

/// What datasets are: type, shape, storage.
pub(super) struct LayoutChange<'a> {
    pub(super) change: &'a Change<'a>,
}

/// Datasets whose form is written as a whole.
pub(super) struct FormChange<'a> {
    pub(super) change: &'a Change<'a>,
}

/// Elements that refer to objects.
pub(super) struct ReferenceChange<'a> {
    pub(super) change: &'a Change<'a>,
}

/// The log of the file, and anchors of datasets in it.
pub(super) struct LogChange<'a> {
    pub(super) change: &'a Change<'a>,
}

/// Dirty chunks that are stored within the operation.
pub(super) struct DirtyChunkChange<'a> {
    pub(super) change: &'a Change<'a>,
}

impl Change<'_> {
    pub(super) fn names(&self) -> NameChange<'_> {
        NameChange { change: self }
    }

    pub(super) fn objects(&self) -> ObjectChange<'_> {
        ObjectChange { change: self }
    }

    pub(super) fn attributes(&self) -> AttributeChange<'_> {
        AttributeChange { change: self }
    }

    pub(super) fn data(&self) -> DataChange<'_> {
        DataChange { change: self }
    }

    pub(super) fn layout(&self) -> LayoutChange<'_> {
        LayoutChange { change: self }
    }

    pub(super) fn forms(&self) -> FormChange<'_> {
        FormChange { change: self }
    }

    pub(super) fn references(&self) -> ReferenceChange<'_> {
        ReferenceChange { change: self }
    }

    pub(super) fn log(&self) -> LogChange<'_> {
        LogChange { change: self }
    }

    pub(super) fn dirty_chunks(&self) -> DirtyChunkChange<'_> {
        DirtyChunkChange { change: self }
    }
}
