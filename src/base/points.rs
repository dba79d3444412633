//! A point selection: single elements in list order; an element may occur twice.

use super::{Address, Error, Result, limits};

const STRUCTURE: &str = "point selection";

/// A list of element coordinates, with an index sorted by coordinates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Points {
    rank: usize,
    /// Coordinates of all points, `rank` numbers each.
    coordinates: Vec<u64>,
    /// List positions, sorted by coordinates, then by position.
    sorted: Vec<u32>,
}

impl Points {
    /// Builds a selection from `coordinates`, which holds `rank` numbers per point.
    pub fn new(rank: usize, coordinates: Vec<u64>) -> Result<Self> {
        let corrupt = |detail| Error::corrupt(STRUCTURE, Address::UNDEF, detail);
        if rank == 0 || rank > limits::RANK_MAX || !coordinates.len().is_multiple_of(rank) {
            return Err(corrupt("its rank"));
        }
        let n = coordinates.len().checked_div(rank).and_then(|n| u32::try_from(n).ok());
        let n = n.ok_or_else(|| Error::limit(STRUCTURE, Address::UNDEF, "number of points"))?;
        let mut points = Points { rank, coordinates, sorted: (0..n).collect() };
        let mut sorted = std::mem::take(&mut points.sorted);
        sorted.sort_by(|&a, &b| points.point(u64::from(a)).cmp(&points.point(u64::from(b))));
        points.sorted = sorted;
        Ok(points)
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of points.
    pub fn len(&self) -> u64 {
        self.sorted.len() as u64
    }

    /// Coordinates of the `i`-th point.
    pub fn point(&self, i: u64) -> Option<&[u64]> {
        let from = usize::try_from(i).ok()?.checked_mul(self.rank)?;
        self.coordinates.get(from..from.checked_add(self.rank)?)
    }

    /// List positions of the points from `first` to `last` (coordinates, inclusive), by ascending
    /// coordinates.
    pub fn between<'a>(&'a self, first: &[u64], last: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
        let from = self.sorted.partition_point(|&i| self.point(u64::from(i)).is_some_and(|p| p < first));
        let rest = self.sorted.get(from..).unwrap_or_default();
        rest.iter().map(|&i| u64::from(i)).take_while(move |&i| self.point(i).is_some_and(|p| p <= last))
    }

    /// Lowest and highest coordinate per dimension; `None` when there are no points.
    pub fn bounds(&self) -> Option<(Vec<u64>, Vec<u64>)> {
        let mut points = self.coordinates.chunks_exact(self.rank);
        let first = points.next()?.to_vec();
        Some(points.fold((first.clone(), first), |(mut low, mut high), p| {
            for (&c, (low, high)) in p.iter().zip(low.iter_mut().zip(high.iter_mut())) {
                *low = c.min(*low);
                *high = c.max(*high);
            }
            (low, high)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_by_coordinates() {
        let p = Points::new(2, vec![3, 1, 0, 5, 3, 0, 0, 5]).unwrap();
        assert_eq!((p.len(), p.rank()), (4, 2));
        assert_eq!(p.between(&[0, 0], &[9, 9]).collect::<Vec<_>>(), [1, 3, 2, 0]);
        assert_eq!(p.between(&[0, 6], &[3, 0]).collect::<Vec<_>>(), [2]);
        assert_eq!(p.bounds(), Some((vec![0, 0], vec![3, 5])));
        assert!(Points::new(0, vec![]).is_err() && Points::new(2, vec![1]).is_err());
        assert_eq!(Points::new(2, vec![]).unwrap().bounds(), None);
    }
}
