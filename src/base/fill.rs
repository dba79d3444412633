//! Fill values: what elements that were never written read as.

/// Value that unwritten elements read as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fill {
    /// Zero bytes (the library's default).
    Default,
    /// Explicitly undefined; read as zero bytes here.
    Undefined,
    /// One element's bytes in the dataset's own type.
    Value(Vec<u8>),
}
