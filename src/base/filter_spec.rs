//! What a filter of a dataset's pipeline is: its identifier and parameters.

/// Filter flag: chunks may be stored without the filter.
const OPTIONAL: u16 = 1;

/// One filter of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterSpec {
    /// Registered filter identifier.
    pub id: u16,
    /// Flags; bit 0: optional.
    pub flags: u16,
    /// Name stored in the file, may be empty.
    pub name: Vec<u8>,
    /// Client data values.
    pub cd_values: Vec<u32>,
}

impl FilterSpec {
    /// True if a chunk may be stored without this filter.
    pub fn is_optional(&self) -> bool {
        self.flags & OPTIONAL != 0
    }
}
