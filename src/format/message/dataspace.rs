//! Dataspace message 0x0001, versions 1 and 2.
//!
//! ```text
//! v1: version 1 | rank | flags | 0 | 0 0 0 0 | dims rank x L | [max dims rank x L] |
//!     [permutations]
//! v2: version 2 | rank | flags | type 0 scalar, 1 simple, 2 null | dims rank x L |
//!     [max dims rank x L]
//! ```

use crate::base::shape::{Extent, Shape};
use crate::base::{Address, Result, limits};
use crate::format::{Context, Reader, Writer};

const NAME: &str = "dataspace message";
const MAX_PRESENT: u8 = 1;
const PERMUTATION_PRESENT: u8 = 2;

/// Shape of a dataset or attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataspace {
    /// 1 or 2.
    pub version: u8,
    /// Kind of extent.
    pub extent: Extent,
    /// Current dimensions in elements, slowest first; empty unless simple.
    pub dims: Vec<u64>,
    /// Maximum dimensions if stored; `None` inside = unlimited.
    pub max_dims: Option<Vec<Option<u64>>>,
}

impl Dataspace {
    /// Decodes a message body.
    pub fn decode(body: &[u8], ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(body, NAME, address);
        Self::read(&mut r, ctx)
    }

    /// Decodes a message body at the cursor.
    pub fn read(r: &mut Reader<'_>, ctx: &Context) -> Result<Self> {
        let version = r.version(1..=2)?;
        let rank = usize::from(r.u8()?);
        let flags = r.u8()?;
        if rank > limits::RANK_MAX {
            return Err(r.corrupt(format!("rank {rank}")));
        }
        let extent = if version == 1 {
            r.skip(5)?;
            if rank == 0 { Extent::Scalar } else { Extent::Simple }
        } else {
            match r.u8()? {
                0 => Extent::Scalar,
                1 => Extent::Simple,
                2 => Extent::Null,
                n => return Err(r.corrupt(format!("extent type {n}"))),
            }
        };
        if extent != Extent::Simple && rank != 0 {
            return Err(r.corrupt("a scalar or null dataspace with dimensions"));
        }
        if version == 1 && flags & PERMUTATION_PRESENT != 0 {
            return Err(r.unsupported("permutation indices"));
        }
        let dims = (0..rank).map(|_| r.length(ctx)).collect::<Result<Vec<_>>>()?;
        let mut max_dims = None;
        if flags & MAX_PRESENT != 0 {
            let max = (0..rank).map(|_| r.length(ctx).map(|n| (n != u64::MAX).then_some(n))).collect::<Result<Vec<_>>>()?;
            if dims.iter().zip(&max).any(|(d, m)| m.is_some_and(|m| *d > m)) {
                return Err(r.corrupt("a dimension exceeds its maximum"));
            }
            max_dims = Some(max);
        }
        Ok(Dataspace { version, extent, dims, max_dims })
    }

    /// Encodes the body.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        let flags = if self.max_dims.is_some() { MAX_PRESENT } else { 0 };
        w.u8(self.version).uint(self.dims.len() as u64, 1).u8(flags);
        if self.version == 1 {
            w.zeros(5);
        } else {
            w.u8(match self.extent {
                Extent::Scalar => 0,
                Extent::Simple => 1,
                Extent::Null => 2,
            });
        }
        for d in &self.dims {
            w.length(*d, ctx);
        }
        for m in self.max_dims.iter().flatten() {
            w.length(m.unwrap_or(u64::MAX), ctx);
        }
        w.into_bytes()
    }

    /// The message of this version for `shape`; a null dataspace needs version 2.
    pub fn of(shape: &Shape, version: u8) -> Self {
        let (extent, dims, max_dims) = match shape {
            Shape::Null => (Extent::Null, Vec::new(), None),
            Shape::Scalar => (Extent::Scalar, Vec::new(), None),
            Shape::Simple { dims, max } => (Extent::Simple, dims.clone(), max.as_ref().map(|_| shape.max())),
        };
        Dataspace { version: if extent == Extent::Null { 2 } else { version }, extent, dims, max_dims }
    }

    /// The shape, without the version of the message.
    pub fn shape(&self) -> Shape {
        match self.extent {
            Extent::Null => Shape::Null,
            Extent::Scalar => Shape::Scalar,
            Extent::Simple => Shape::Simple {
                dims: self.dims.clone(),
                max: self.max_dims.as_ref().map(|m| m.iter().map(|d| d.unwrap_or(u64::MAX)).collect()),
            },
        }
    }

    /// Number of elements; `None` if it exceeds 64 bits.
    pub fn elements(&self) -> Option<u64> {
        if self.extent == Extent::Null {
            return Some(0);
        }
        if self.dims.contains(&0) {
            return Some(0);
        }
        self.dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d))
    }

    /// Maximum dimensions: the stored ones, or else the current ones.
    pub fn max(&self) -> Vec<Option<u64>> {
        self.max_dims.clone().unwrap_or_else(|| self.dims.iter().map(|d| Some(*d)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// v2 message of `create_dataset('d', shape=(3, 5), maxshape=(None, 5), chunks=(2, 2))` by
    /// libhdf5 2.0.
    const GOLDEN: [u8; 36] =
        [2, 2, 1, 1, 3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 5, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn golden_round_trip() {
        let d = Dataspace::decode(&GOLDEN, &Context::DEFAULT, Address(0)).unwrap();
        assert_eq!((d.dims.clone(), d.max()), (vec![3, 5], vec![None, Some(5)]));
        assert_eq!(d.encode(&Context::DEFAULT), GOLDEN);
    }

    #[test]
    fn truncated_or_wrong_is_an_error() {
        for n in 0..GOLDEN.len() {
            assert!(Dataspace::decode(&GOLDEN[..n], &Context::DEFAULT, Address(0)).is_err());
        }
        let mut b = GOLDEN;
        b[12] = 6;
        assert!(Dataspace::decode(&b, &Context::DEFAULT, Address(0)).is_err(), "dimension over its maximum");
        b[1] = 33;
        assert!(Dataspace::decode(&b, &Context::DEFAULT, Address(0)).is_err(), "rank");
    }

    #[test]
    fn element_counts() {
        let space = |dims: &[u64]| Dataspace { version: 2, extent: Extent::Simple, dims: dims.to_vec(), max_dims: None };
        assert_eq!(space(&[1 << 40, 1 << 40]).elements(), None);
        assert_eq!(space(&[1 << 40, 1 << 40, 0]).elements(), Some(0));
        assert_eq!(Dataspace { extent: Extent::Scalar, ..space(&[]) }.elements(), Some(1));
    }
}
