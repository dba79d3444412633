//! The chunks of a dataset that are values of the map.

use super::dataset::Dataset;
use super::state::State;
use crate::base::Result;
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::chunk::present::{PresentChunks, VisitNumber};
use crate::iod::keys;
use std::ops::{Bound, ControlFlow};

/// The chunks of a dataset at a state, encoded or not.
pub(super) struct ValueChunks<'a> {
    /// Has the values.
    pub state: &'a State,
    /// The dataset at that state.
    pub d: &'a Dataset,
}

impl PresentChunks for ValueChunks<'_> {
    fn grid(&self) -> &ByteGrid {
        &self.d.grid
    }

    fn visit(&self, from: u64, f: &mut VisitNumber<'_>) -> Result<()> {
        let (grid, d) = (&self.d.grid, self.d);
        if from >= grid.chunks() {
            return Ok(());
        }
        let keys = (Bound::Included(d.chunk_key(from)), keys::of_kind(d.id, keys::CHUNK).1);
        let _ = self.state.scan(&keys, &mut |key, _| match keys::scaled(key).and_then(|scaled| grid.linear(&scaled)) {
            Some(number) => f(number),
            None => Ok(ControlFlow::Continue(())),
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{empty, open, spec};
    use crate::connector::edit::Edit;
    use crate::connector::{ChunksSpec, Connector, DatasetSpec, Form};
    use crate::dataset::layout::Seek;
    use crate::iod::keys;

    /// Holes beside a chunk in the same rows of chunks were data.
    #[test]
    fn data_and_holes_are_exact_to_the_chunk_in_every_dimension() {
        let c = open(&empty());
        let spec = DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![2, 3])), ..spec("u1", &[7, 10]) };
        let id = c.create_dataset(c.root(), b"d", &spec).unwrap();
        let content = c.content(id, Form::Main).unwrap();
        let mut data = [false; 70];
        let check = |data: &[bool; 70]| {
            for at in 0..70 {
                let next = |wanted: bool| (at..70).find(|n| data[*n] == wanted).map(|n| n as u64);
                assert_eq!(content.seek(at as u64, Seek::Data).unwrap(), next(true), "data from {at}");
                assert_eq!(content.seek(at as u64, Seek::Hole).unwrap(), Some(next(false).unwrap_or(70)), "hole from {at}");
                let written = next(true).map(|start| start..(start as usize..70).find(|n| !data[*n]).unwrap_or(70) as u64);
                assert_eq!(content.written(at as u64).unwrap(), written);
            }
        };
        check(&data);
        for (row, column) in [(5, 4), (0, 9), (6, 0), (3, 7)] {
            c.write(id, row * 10 + column, &[7]).unwrap();
            let (rows, columns) = (row / 2 * 2..(row / 2 + 1) * 2, column / 3 * 3..(column / 3 + 1) * 3);
            rows.filter(|r| *r < 7).for_each(|r| columns.clone().filter(|c| *c < 10).for_each(|c| data[(r * 10 + c) as usize] = true));
            check(&data);
        }
        Edit::commit(&*c).unwrap();
        check(&data);
        // A chunk of zeros is removed.
        c.zero(id, 60, 3).unwrap();
        data[60..63].fill(false);
        check(&data);
        Edit::commit(&*c).unwrap();
        check(&data);
        assert!(c.states.shown().get(&keys::chunk(id.serial(), &[3, 0])).unwrap().is_none());
    }
}
