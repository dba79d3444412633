//! How a dataset is stored, in the classes of the HDF5 specification.

/// The class of a data layout message, and the log of this program, which has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageClass {
    /// In the object header.
    Compact,
    /// In one block, of the file or of external files.
    Contiguous,
    /// In chunks.
    Chunked,
    /// In other datasets.
    Virtual,
    /// In records of a log.
    Log,
}
