//! Shapes: how many elements a dataset or attribute has, and may have.

/// Kind of extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// One element.
    Scalar,
    /// An array.
    Simple,
    /// No element.
    Null,
}

/// Shape of a dataset or attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// No elements (null dataspace).
    Null,
    /// One element.
    Scalar,
    /// A simple dataspace.
    Simple {
        /// Dimensions, slowest first.
        dims: Vec<u64>,
        /// Largest dimensions if stored; `u64::MAX` is unlimited.
        max: Option<Vec<u64>>,
    },
}

impl Shape {
    /// Dimensions; none for a scalar, `None` for a null dataspace.
    pub fn dims(&self) -> Option<&[u64]> {
        match self {
            Shape::Null => None,
            Shape::Scalar => Some(&[]),
            Shape::Simple { dims, .. } => Some(dims),
        }
    }

    /// Number of elements; `None` when it exceeds 64 bits.
    pub fn count(&self) -> Option<u64> {
        let Some(dims) = self.dims() else { return Some(0) };
        if dims.contains(&0) {
            return Some(0);
        }
        dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
    }

    /// Largest dimensions: the stored ones, or else the current ones; `None` inside is unlimited.
    pub fn max(&self) -> Vec<Option<u64>> {
        let Shape::Simple { dims, max } = self else { return Vec::new() };
        max.as_ref().unwrap_or(dims).iter().map(|n| Some(*n).filter(|n| *n != u64::MAX || max.is_none())).collect()
    }
}
