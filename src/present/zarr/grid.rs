//! The chunks of an array, and runs of the elements of one chunk.

/// Largest chunk into which elements are cut that are not in chunks, bytes.
const CUT_BYTES_MAX: u64 = 4 << 20;
/// A cut without remainder may have this part of the rows of one with a remainder.
const ROWS_RATIO_MAX: u64 = 64;

/// How the elements of a dataset are cut into chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grid {
    /// Dimensions of the dataset.
    pub dims: Vec<u64>,
    /// Dimensions of a chunk, none 0.
    pub chunk: Vec<u64>,
}

/// Elements of a chunk that follow one another in the dataset, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// First of them in the dataset; `None`: they are outside of it.
    pub first: Option<u64>,
    /// Their number.
    pub len: u64,
}

impl Grid {
    /// A grid of chunks of these dimensions. `None`: their numbers differ, one is 0, or a chunk or
    /// the dataset has 2^64 elements or more.
    pub fn new(dims: Vec<u64>, chunk: Vec<u64>) -> Option<Grid> {
        let count = |all: &[u64]| all.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
        let whole = dims.contains(&0) || count(&dims).is_some();
        (dims.len() == chunk.len() && !chunk.contains(&0) && count(&chunk).is_some() && whole).then_some(Grid { dims, chunk })
    }

    /// Cuts a dataset of elements of `size` bytes into chunks, each of which is one range of it.
    /// `evenly`: all chunks are whole, or there is one.
    pub fn cut(dims: Vec<u64>, size: u64, evenly: bool) -> Option<Grid> {
        let mut chunk: Vec<u64> = dims.iter().map(|d| (*d).max(1)).collect();
        let whole = chunk.clone();
        for i in 0..chunk.len() {
            let (Some(rows), Some(rest)) = (chunk.get(i).copied(), chunk.get(i.saturating_add(1)..)) else { break };
            let row = rest.iter().fold(size.max(1), |n, d| n.saturating_mul(*d));
            if rows.saturating_mul(row) <= CUT_BYTES_MAX {
                break;
            }
            let most = (CUT_BYTES_MAX / row.max(1)).max(1);
            let cut = if evenly { divisor(rows, most) } else { Some(most) };
            let Some(cut) = cut else { return Grid::new(dims, whole) };
            chunk.get_mut(i).into_iter().for_each(|n| *n = cut);
            if row <= CUT_BYTES_MAX {
                break;
            }
        }
        Grid::new(dims, chunk)
    }

    /// Elements of a chunk.
    pub fn chunk_elements(&self) -> u64 {
        self.chunk.iter().fold(1, |n: u64, d| n.saturating_mul(*d))
    }

    /// Number of chunks in each dimension.
    pub fn counts(&self) -> Vec<u64> {
        self.dims.iter().zip(&self.chunk).map(|(d, c)| d.div_ceil((*c).max(1))).collect()
    }

    /// True if there is such a chunk.
    pub fn contains(&self, scaled: &[u64]) -> bool {
        scaled.len() == self.dims.len() && scaled.iter().zip(self.counts()).all(|(s, count)| *s < count)
    }

    /// The chunk of the element number `element` of the dataset.
    pub fn chunk_of(&self, element: u64) -> Vec<u64> {
        let mut rest = element;
        let mut scaled = vec![0; self.dims.len()];
        for ((s, d), c) in scaled.iter_mut().zip(&self.dims).zip(&self.chunk).rev() {
            *s = rest.checked_rem(*d).unwrap_or(0).checked_div(*c).unwrap_or(0);
            rest = rest.checked_div(*d).unwrap_or(0);
        }
        scaled
    }

    /// The elements from number `from` of the chunk `scaled` on, as far as they follow each other.
    /// `from` is less than the number of elements of a chunk.
    pub fn run(&self, scaled: &[u64], from: u64) -> Run {
        // Dimensions after `split` are whole.
        let rank = self.dims.len();
        let whole = self.dims.iter().zip(&self.chunk).rev().take_while(|(d, c)| d == c).count();
        let split = rank.saturating_sub(whole).saturating_sub(1);
        let tail = |all: &[u64], at: usize| all.get(at..).unwrap_or_default().iter().fold(1u64, |n, d| n.saturating_mul(*d));
        let (inner, length) = (tail(&self.dims, split.saturating_add(1)), tail(&self.chunk, split));
        let within = from.checked_rem(length).unwrap_or(0);
        let mut outer = from.checked_div(length).unwrap_or(0);
        let mut inside = true;
        // Coordinates of the first element, slowest last.
        let mut coordinates = Vec::with_capacity(split);
        for i in (0..split).rev() {
            let (Some(s), Some(c), Some(d)) = (scaled.get(i), self.chunk.get(i), self.dims.get(i)) else { break };
            let at = s.saturating_mul(*c).saturating_add(outer.checked_rem(*c).unwrap_or(0));
            outer = outer.checked_div(*c).unwrap_or(0);
            inside &= at < *d;
            coordinates.push(at);
        }
        let origin = scaled.get(split).zip(self.chunk.get(split)).map_or(0, |(s, c)| s.saturating_mul(*c));
        let rows = self.dims.get(split).map_or(1, |d| d.saturating_sub(origin).min(self.chunk.get(split).copied().unwrap_or(1)));
        let valid = if inside { rows.saturating_mul(inner) } else { 0 };
        if within >= valid {
            return Run { first: None, len: length.saturating_sub(within).max(1) };
        }
        let place = coordinates.iter().rev().zip(&self.dims).fold(0u64, |n, (at, d)| n.saturating_mul(*d).saturating_add(*at));
        let row = place.saturating_mul(self.dims.get(split).copied().unwrap_or(1)).saturating_add(origin);
        Run { first: Some(row.saturating_mul(inner).saturating_add(within)), len: valid.saturating_sub(within) }
    }
}

/// The largest divisor of `n` up to `most`, unless it is much less.
fn divisor(n: u64, most: u64) -> Option<u64> {
    let least = most.div_ceil(ROWS_RATIO_MAX).max(1);
    // A divisor d belongs to n / d rows: the quotients are fewer than the candidates.
    let first = n.div_ceil(most.max(1));
    (first..first.saturating_add(1 << 16))
        .filter(|q| n.checked_rem(*q) == Some(0))
        .map(|q| n.checked_div(q).unwrap_or(1))
        .find(|d| *d >= least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasets_are_cut_into_ranges() {
        let cut = |dims: &[u64], size, evenly| Grid::cut(dims.to_vec(), size, evenly).unwrap().chunk;
        assert_eq!(cut(&[10, 7], 8, false), [10, 7]);
        assert_eq!(cut(&[1 << 20, 16], 8, false), [1 << 15, 16]);
        assert_eq!(cut(&[3, 5, 1 << 20], 8, false), [1, 1, 1 << 19]);
        assert_eq!(cut(&[1_000_003], 8, false), [1 << 19]);
        assert_eq!(cut(&[1_000_003], 8, true), [1_000_003], "a prime number of rows");
        assert_eq!(cut(&[1_000_000], 8, true), [500_000]);
        assert_eq!((cut(&[], 8, true), cut(&[0, 5], 8, false)), (vec![], vec![1, 5]));
        assert!(Grid::cut(vec![1 << 40, 1 << 40], 8, false).is_none());
    }

    /// Every element of every chunk, against numbers made one by one.
    #[test]
    fn runs_have_the_elements_of_a_chunk() {
        for (dims, chunk) in
            [(vec![5, 7], vec![2, 3]), (vec![4, 3, 5], vec![3, 3, 5]), (vec![4, 3, 5], vec![1, 2, 5]), (vec![6], vec![4]), (vec![], vec![])]
        {
            let grid = Grid::new(dims.clone(), chunk.clone()).unwrap();
            let all: u64 = dims.iter().product();
            let mut seen = vec![false; all as usize];
            let chunks: u64 = grid.counts().iter().product();
            for number in 0..chunks {
                let mut rest = number;
                let mut scaled: Vec<u64> = grid.counts().iter().rev().map(|n| (rest % n, rest /= n).0).collect();
                scaled.reverse();
                let mut at = 0;
                while at < grid.chunk_elements() {
                    let run = grid.run(&scaled, at);
                    for k in 0..run.len {
                        let mut rest = at + k;
                        let mut inside: Vec<u64> = chunk.iter().rev().map(|n| (rest % n, rest /= n).0).collect();
                        inside.reverse();
                        let at: Vec<u64> = inside.iter().zip(&scaled).zip(&chunk).map(|((i, s), c)| s * c + i).collect();
                        let valid = at.iter().zip(&dims).all(|(a, d)| a < d);
                        let place = at.iter().zip(&dims).fold(0, |n, (a, d)| n * d + a);
                        assert_eq!(run.first.map(|f| f + k), valid.then_some(place), "{dims:?} {chunk:?} {scaled:?}");
                        if valid {
                            assert_eq!(grid.chunk_of(place), scaled);
                            seen[place as usize] = true;
                        }
                    }
                    at += run.len;
                }
            }
            assert!(seen.iter().all(|s| *s), "{dims:?} {chunk:?}");
        }
    }
}
