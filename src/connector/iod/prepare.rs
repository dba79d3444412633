//! The next layout of a dataset, made beside other operations: in a copy of the state, from which
//! the change then takes the values of the dataset. A change of the dataset meanwhile makes that
//! void.

use super::access::IodConnector;
use super::image::Body;
use super::object_access::ObjectAccess;
use super::preparations::elements_of;
use super::state::{Prepared, State};
use crate::base::Result;
use crate::connector::DatasetSpec;
use crate::connector::edit::Elements;
use crate::iod::{Cell, Key, keys};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Datasets with fewer bytes are changed at once.
const PREPARED_MIN_BYTES: u64 = 16 << 20;

/// The values of the dataset `id` but those that a layout does not change.
fn values(state: &State, id: u64) -> Result<Vec<(Key, Cell)>> {
    let mut all = Vec::new();
    let _ = state.scan(&keys::of_object(id), &mut |key, cell| {
        if elements_of(key).is_some() {
            all.push((key.to_vec(), cell.clone()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(all)
}

impl ObjectAccess {
    /// Gives the dataset `id` the layout that was made for it; false: there is no valid one.
    pub(super) fn use_prepared(&self, state: &mut State, id: u64, spec: &DatasetSpec) -> Result<bool> {
        let Some((prepared, is_valid)) = state.preparations.take(id) else { return Ok(false) };
        let Prepared { spec: of, session, state: mut made } = prepared;
        state.unpublished.append(&mut made.unpublished);
        let same_session = session.zip(state.session.clone()).is_some_and(|(a, b)| Arc::ptr_eq(&a, &b));
        if !is_valid || of != *spec || !same_session {
            return Ok(false);
        }
        for (key, _) in values(state, id)? {
            if made.get(&key)?.is_none() {
                state.remove(key)?;
            }
        }
        for (key, cell) in values(&made, id)? {
            if state.get(&key)?.as_ref() != Some(&cell) {
                let written = made.written(&key);
                state.change(key, Body::Cell(cell), written);
            }
        }
        state.changed(id);
        Ok(true)
    }
}

impl IodConnector {
    /// See [`crate::connector::edit::Edit::prepare_change`].
    pub(super) fn prepare(&self, id: u64, spec: &DatasetSpec) -> Result<bool> {
        let d = self.objects.dataset_of(&self.states.shown(), id)?;
        let is_plain = !d.datatype.contains_vlen() && spec.fillvalue.is_none() && spec.newlines.is_none();
        if d.size < PREPARED_MIN_BYTES || !is_plain || self.joined.is_some() {
            return Ok(false);
        }
        let preparations = self.states.shown().preparations.clone();
        let (mut copy, under_way) = {
            let next = self.states.next();
            self.commits.check_writable(&next)?;
            let Some(under_way) = preparations.begin(id) else { return Ok(false) };
            (next.copy(), under_way)
        };
        let done = self.prepared(&mut copy, id, spec, d.named);
        copy.end(true);
        let is_valid = under_way.finish(Prepared { spec: spec.clone(), session: copy.session.clone(), state: copy });
        if is_valid && matches!(done, Ok(true)) {
            return done;
        }
        self.end_prepared(id);
        // Changed meanwhile, it is changed again from what it is then. An error may be due to that:
        // packs that nothing but the copy refers to are deleted where there is no room.
        if is_valid { done } else { Ok(false) }
    }

    /// Gives the dataset `id` its next layout in `copy`, with all values stored. False: that would
    /// change other objects.
    fn prepared(&self, copy: &mut State, id: u64, spec: &DatasetSpec, named: Option<u64>) -> Result<bool> {
        self.objects.change_layout(copy, id, spec, Elements::Kept)?;
        self.values.store(copy)?;
        Ok(self.objects.dataset_of(copy, id)?.named == named)
    }

    /// Ends a preparation that was not used.
    pub(super) fn end_prepared(&self, id: u64) {
        let unused = self.states.shown().preparations.take(id);
        if let Some((mut unused, _)) = unused {
            self.states.next().unpublished.append(&mut unused.state.unpublished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes, empty, open, spec};
    use super::*;
    use crate::connector::edit::Edit;
    use crate::connector::{ChunksSpec, Connector, FilterSpec, ObjectId};
    use crate::file::store::memory::MemoryStore;
    use crate::iod::{Container, gc};

    const SIZE: u64 = 20 << 20;

    fn chunks(len: u64) -> DatasetSpec {
        DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![len])), ..DatasetSpec::default() }
    }

    fn made(store: &MemoryStore) -> (Arc<IodConnector>, ObjectId, Vec<u8>) {
        let c = open(store);
        let deflate = FilterSpec { id: 1, flags: 0, name: Vec::new(), cd_values: vec![1] };
        let spec = DatasetSpec { filters: Some(vec![deflate]), maxshape: Some(vec![None]), ..spec("u1", &[SIZE]) };
        let id = c.create_dataset(c.root(), b"d", &DatasetSpec { chunks: chunks(1 << 20).chunks, ..spec }).unwrap();
        let data: Vec<u8> = (0..SIZE).map(|n| (n / 1000 % 251) as u8).collect();
        c.write(id, 0, &data).unwrap();
        (c, id, data)
    }

    fn dims(c: &IodConnector, id: ObjectId) -> Vec<u64> {
        c.objects.dataset_of(&c.states.shown(), id.serial()).unwrap().chunk_dims().to_vec()
    }

    fn collect(store: &MemoryStore) {
        let options = gc::Options { keep: gc::Keep::Versions(1), grace: 0, dry_run: false };
        gc::run(&Container::open(Arc::new(store.clone())).unwrap(), &options).unwrap();
    }

    /// Commits, other changes and garbage collection between the preparation and the change; with
    /// chunks that were committed before it, or by a commit after it.
    #[test]
    fn a_prepared_layout_is_taken_over() {
        for commits_first in [false, true] {
            let store = empty();
            let (c, id, data) = made(&store);
            c.pins.keep_renewed().unwrap();
            if commits_first {
                Edit::commit(&*c).unwrap();
            }
            let wanted = chunks(1 << 16);
            assert!(Edit::prepare_change(&*c, id, &wanted).unwrap());
            c.create_group(c.root(), b"g").unwrap();
            c.set_mtime(id, 7).unwrap();
            Edit::commit(&*c).unwrap();
            collect(&store);
            assert_eq!((dims(&c, id), bytes(&*c, id) == data), (vec![1 << 20], true));
            let sent = c.container.store().counters()[2];
            c.change_dataset(id, wanted, Elements::Kept).unwrap();
            c.end_preparation(id);
            assert_eq!(c.container.store().counters()[2], sent, "nothing is stored again");
            assert_eq!((dims(&c, id), bytes(&*c, id) == data), (vec![1 << 16], true));
            assert!(c.states.shown().preparations.is_empty());
            c.close().unwrap();
            let reader = open(&store);
            assert_eq!((dims(&reader, id), bytes(&*reader, id) == data), (vec![1 << 16], true));
            collect(&store);
            assert!(bytes(&*open(&store), id) == data);
        }
    }

    /// Changes after the preparation are in the new layout, also those of chunks in memory.
    #[test]
    fn a_change_of_the_dataset_makes_a_preparation_void() {
        type Change = fn(&IodConnector, ObjectId);
        let changes: [(Change, &str); 6] = [
            (|c, id| c.write(id, 200, b"in memory, too").unwrap(), "bytes in memory"),
            (|c, id| c.write(id, 5, b"new").unwrap(), "bytes"),
            (|c, id| c.set_size(id, SIZE - 3).unwrap(), "size"),
            (|c, id| c.zero(id, 0, 3 << 20).unwrap(), "zeros"),
            (|c, id| c.change_dataset(id, chunks(1 << 17), Elements::Kept).unwrap(), "another layout"),
            (|c, _| c.states.next().all_changed(), "versions of others"),
        ];
        for (change, what) in changes {
            let store = empty();
            let (c, id, _) = made(&store);
            // One chunk is in memory.
            c.write(id, 100, b"in memory").unwrap();
            let wanted = chunks(1 << 16);
            assert!(Edit::prepare_change(&*c, id, &wanted).unwrap());
            change(&c, id);
            let before = bytes(&*c, id);
            c.change_dataset(id, wanted, Elements::Kept).unwrap();
            c.end_preparation(id);
            assert!(bytes(&*c, id) == before, "{what}");
            assert_eq!(dims(&c, id), [1 << 16], "{what}");
            c.close().unwrap();
            assert!(bytes(&*open(&store), id) == before, "{what}");
        }
    }

    /// Regression: the second preparation of a dataset made the first one valid again, which did
    /// not have what was written between both.
    #[test]
    fn two_preparations_of_a_dataset_lose_no_bytes() {
        let (c, id, _) = made(&empty());
        let preparations = c.states.shown().preparations.clone();
        let first = preparations.begin(id.serial()).unwrap();
        c.write(id, 7, b"between").unwrap();
        assert!(!Edit::prepare_change(&*c, id, &chunks(1 << 16)).unwrap());
        let state = c.states.shown().copy();
        assert!(!first.finish(Prepared { spec: chunks(1 << 16), session: state.session.clone(), state }));
        let before = bytes(&*c, id);
        c.change_dataset(id, chunks(1 << 16), Elements::Kept).unwrap();
        assert!(bytes(&*c, id) == before && before[7..14] == *b"between" && dims(&c, id) == [1 << 16]);
        assert!(preparations.is_empty());
    }

    #[test]
    fn a_preparation_for_another_layout_is_not_used() {
        let (c, id, data) = made(&empty());
        assert!(!Edit::prepare_change(&*c, c.create_file(c.root(), b"small").unwrap(), &chunks(5)).unwrap());
        assert!(Edit::prepare_change(&*c, id, &chunks(1 << 16)).unwrap());
        c.change_dataset(id, chunks(1 << 18), Elements::Kept).unwrap();
        c.end_preparation(id);
        assert_eq!((dims(&c, id), bytes(&*c, id) == data), (vec![1 << 18], true));
        assert!(Edit::prepare_change(&*c, id, &chunks(1 << 16)).unwrap());
        c.end_preparation(id);
        assert!(c.states.shown().preparations.is_empty() && dims(&c, id) == [1 << 18]);
    }
}
