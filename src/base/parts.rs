//! Parts of elements that lie outside their own bytes: sequences, strings and what references name.
//!
//! How an element stores such a part is a matter of its container, which implements [`Parts`].

use super::datatype::Reference;
use super::hyperslab::HyperslabDim;
use super::{Address, Error, Result};

/// What a reference names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// File that holds the object, if not that of the reference.
    pub file: Option<Vec<u8>>,
    /// Path of the object, or `#` and the container's own name of an object without a path.
    pub object: Vec<u8>,
    /// Which part of the object.
    pub part: Part,
}

impl Target {
    /// The object at `path` of the file of the reference, as a whole.
    pub fn object(path: Vec<u8>) -> Target {
        Target { file: None, object: path, part: Part::Object }
    }

    /// Bytes of its names and of its part in memory, about.
    pub fn memory(&self) -> usize {
        let region = |region: &Region| match region {
            Region::None | Region::All => 0,
            Region::Points { coordinates: numbers, .. } | Region::Blocks { corners: numbers, .. } => numbers.len().saturating_mul(8),
            Region::Regular(dims) => dims.len().saturating_mul(32),
            Region::Opaque(bytes) => bytes.len(),
        };
        let part = match &self.part {
            Part::Object => 0,
            Part::Region(r) => region(r),
            Part::Attribute(name) => name.len(),
        };
        self.file.as_ref().map_or(0, Vec::len).saturating_add(self.object.len()).saturating_add(part)
    }
}

/// Part of an object that a reference names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Part {
    /// All of it.
    Object,
    /// Elements of a dataset.
    Region(Region),
    /// The attribute of this name.
    Attribute(Vec<u8>),
}

/// Elements of a dataset that a reference names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Region {
    /// Nothing.
    None,
    /// The whole dataset.
    All,
    /// Single elements.
    Points {
        /// Number of dimensions.
        rank: usize,
        /// Coordinates of all points, `rank` numbers each.
        coordinates: Vec<u64>,
    },
    /// Blocks of elements.
    Blocks {
        /// Number of dimensions.
        rank: usize,
        /// First and last coordinates (inclusive) of all blocks, `2 * rank` numbers each.
        corners: Vec<u64>,
    },
    /// A regular hyperslab: one item per dimension.
    Regular(Vec<HyperslabDim>),
    /// A selection that cannot be decoded, as stored.
    Opaque(Vec<u8>),
}

impl Region {
    /// Number of dimensions, if the region states it.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Region::None | Region::All | Region::Opaque(_) => None,
            Region::Points { rank, .. } | Region::Blocks { rank, .. } => Some(*rank),
            Region::Regular(dims) => Some(dims.len()),
        }
    }
}

/// Reads the parts of elements that lie outside their bytes.
pub trait Parts {
    /// Number of base elements of the variable-length element `element`.
    fn count(&self, element: &[u8]) -> Result<u32>;

    /// The base elements of the variable-length element `element`, of `base_size` bytes each.
    fn sequence(&self, element: &[u8], base_size: u32, budget: &mut Budget) -> Result<Vec<u8>>;

    /// What the reference `element` names; `None` when it is nil.
    fn reference(&self, t: &Reference, element: &[u8], budget: &mut Budget) -> Result<Option<Target>>;
}

/// [`Parts`] with the most bytes that one call may produce from them.
#[derive(Clone, Copy)]
pub struct Limited<'a> {
    /// Reads parts.
    pub parts: &'a dyn Parts,
    /// Most bytes of output; more is [`Error::Limit`].
    pub limit: u64,
}

/// What is left of a call's means. Nested sequences may name one stored part many times, so
/// neither the output nor what is read is bounded by the container's size.
#[derive(Debug, Clone)]
pub struct Budget {
    output: u64,
    reads: u64,
}

impl Budget {
    /// Output of `limit` bytes, and 64 times that and 64 MiB of stored parts.
    pub fn new(limit: u64) -> Self {
        Budget { output: limit, reads: limit.saturating_mul(64).saturating_add(64 << 20) }
    }

    /// Output of `limit` bytes, and twice that and 16 MiB of stored parts.
    pub fn tight(limit: u64) -> Self {
        Budget { output: limit, reads: limit.saturating_mul(2).saturating_add(16 << 20) }
    }

    /// A budget of `limit` bytes of output, and of the stored parts that are left of this one.
    pub fn part(&self, limit: u64) -> Self {
        Budget { output: limit, reads: self.reads }
    }

    /// Takes what `part` has read, which was a part of this one.
    pub fn join(&mut self, part: &Budget) {
        self.reads = part.reads;
    }

    /// Takes `n` bytes of output.
    pub fn output(&mut self, n: u64) -> Result<()> {
        let left = self.output.checked_sub(n);
        self.output = left.ok_or_else(|| Error::limit("value", Address::UNDEF, "the value is larger than its reader allows"))?;
        Ok(())
    }

    /// Takes a stored part of `n` bytes.
    pub fn read(&mut self, n: u64) -> Result<()> {
        let left = self.reads.checked_sub(n.max(1));
        self.reads = left.ok_or_else(|| Error::limit("value", Address::UNDEF, "too much of the global heap is read for one value"))?;
        Ok(())
    }
}
