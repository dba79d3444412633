//! References in the elements of datasets, by what they name.

use super::cells::{NewCells, Place, StateCells};
use super::dataset::Dataset;
use super::object_access::ObjectAccess;
use super::state::State;
use crate::base::datatype::{Class, Datatype, References};
use crate::base::fill::Fill;
use crate::base::parts::{Budget, Part, Parts};
use crate::base::{Error, Result};
use crate::connector::edit::NewReference;
use crate::connector::{DatasetSpec, FillSpec, NewValue, TargetVisitor};
use crate::dataset::creation::Creation;
use crate::dataset::parts::store_elements;
use crate::dataset::reference;
use crate::iod::keys;

/// References that wait for their targets, at most.
const WAITING_MAX: usize = 1 << 20;

/// Fill values whose references wait for their targets, at most.
const FILLS_WAITING_MAX: usize = 1 << 16;

/// Places of the references of a dataset, those in sequences left out.
struct Table {
    total: u64,
    /// Offset and type of each reference of an element.
    places: Vec<(usize, Datatype)>,
}

impl Table {
    fn of(d: &Dataset) -> Option<Table> {
        let references = References::of(&d.datatype)?;
        let mut places = Vec::new();
        let _ = references.each(&mut |at, t| {
            places.push((at, t.clone()));
            Ok(())
        });
        let total = d.elements().checked_mul(places.len() as u64).filter(|n| *n > 0)?;
        Some(Table { total, places })
    }

    /// Byte and type of reference `n`.
    fn place(&self, d: &Dataset, n: u64) -> Option<(u64, &Datatype)> {
        let each = self.places.len() as u64;
        let (at, t) = self.places.get(usize::try_from(n.checked_rem(each)?).ok()?)?;
        Some((n.checked_div(each)?.checked_mul(d.element_size)?.checked_add(*at as u64)?, t))
    }
}

/// Number of references of a dataset.
pub(super) fn total(d: &Dataset) -> Option<u64> {
    Table::of(d).map(|table| table.total)
}

impl State {
    /// Keeps the fill value of `spec` until its references name objects, if they do not now:
    /// `nowhere`.
    pub(super) fn wait_for_fill(&mut self, id: u64, spec: &DatasetSpec, nowhere: bool) -> Result<()> {
        if spec.fillvalue.is_some() || spec.dtype.is_some() {
            self.waiting.fills.remove(&id);
        }
        let Some(FillSpec::Value(value)) = spec.fillvalue.as_ref().filter(|_| nowhere) else { return Ok(()) };
        if self.waiting.fills.len() >= FILLS_WAITING_MAX {
            return Err(Error::refused(libc::EINVAL, "too many fill values refer to objects that are not there"));
        }
        self.waiting.fills.insert(id, value.clone());
        Ok(())
    }
}

impl ObjectAccess {
    /// Calls `f` with what each reference names, from number `first` on.
    pub(super) fn visit_references(
        &self,
        state: &State,
        id: u64,
        first: u64,
        budget: &mut Budget,
        f: &mut TargetVisitor<'_>,
    ) -> Result<()> {
        let d = self.dataset_of(state, id)?;
        let Some(table) = Table::of(&d) else { return Ok(()) };
        let place = Place::Dataset(id);
        let cells = StateCells { objects: self, state, place: &place };
        for n in first..table.total {
            let Some((at, t)) = table.place(&d, n) else { break };
            let Class::Reference(r) = &t.class else { break };
            let mut bytes = vec![0; t.size as usize];
            self.chunks.read_elements(state, &d, at, &mut bytes)?;
            if f(cells.reference(r, &bytes, budget)?)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Sets references, from number `first` on.
    pub(super) fn put_references(&self, state: &mut State, id: u64, first: u64, all: Vec<NewReference>) -> Result<()> {
        let d = self.dataset_of(state, id)?;
        let end = first.saturating_add(all.len() as u64);
        // Copying programs set extended attributes in any order: the type comes later.
        let early = d.is_bytes_file();
        if !early && Table::of(&d).is_none_or(|table| end > table.total) {
            let reason = format!("the dataset has no {} references from number {first} on", all.len());
            return Err(Error::refused(libc::EINVAL, reason));
        }
        state.waiting.references.retain(|(dataset, n, _)| *dataset != id || !(first..end).contains(n));
        if state.waiting.references.len().saturating_add(all.len()) > WAITING_MAX {
            return Err(Error::refused(libc::EBUSY, "too many references lead to objects that are not there yet"));
        }
        for (n, entry) in (first..).zip(all) {
            if !self.put_reference(state, &d, n, &entry)? {
                state.waiting.references.push((id, n, entry));
            }
        }
        if early {
            return Ok(());
        }
        state.changed(id);
        state.touch(id)
    }

    /// Sets all elements of a dataset. References that lead nowhere are nil.
    pub(super) fn put_value(&self, state: &mut State, id: u64, value: &NewValue) -> Result<()> {
        let d = self.dataset_of(state, id)?;
        if !d.datatype.is_like(&value.datatype) || value.shape.count() != Some(d.elements()) {
            return Err(Error::refused(libc::EINVAL, "the elements do not fit the type and shape of the dataset"));
        }
        let mut cells = NewCells::new(state, true, true);
        let bytes = store_elements(value, &mut cells)?;
        let blocks = cells.into_blocks()?;
        state.remove_all(&keys::of_kind(id, keys::CHUNK))?;
        self.drop_cells(state, &d)?;
        for (block, bytes) in blocks {
            state.put(keys::key(id, keys::CELLS, &block.to_be_bytes()), &bytes)?;
        }
        state.changed(id);
        self.write_elements(state, &*self.dataset_of(state, id)?, 0, &bytes)?;
        state.touch(id)
    }

    /// Sets one reference; false: its target does not exist, and it is nil, or the dataset is still
    /// a file of bytes.
    fn put_reference(&self, state: &mut State, d: &Dataset, n: u64, entry: &NewReference) -> Result<bool> {
        let Some(table) = Table::of(d) else { return Ok(!d.is_bytes_file() || *entry == NewReference::Nil) };
        let Some((at, t)) = table.place(d, n) else { return Ok(true) };
        let mut bytes = vec![0; t.size as usize];
        let mut led = true;
        if let (NewReference::To(target), Class::Reference(r)) = (entry, &t.class) {
            let fits = match &target.part {
                Part::Object => r.is_standard() || !r.is_region(),
                Part::Region(_) => r.is_standard() || r.is_region(),
                Part::Attribute(_) => r.is_standard(),
            };
            if fits {
                let mut cells = NewCells::new(state, true, true);
                let encoded = reference::encode(r, t.size as usize, target, &mut cells);
                led = !cells.nowhere.get();
                let blocks = cells.into_blocks()?;
                match encoded {
                    Ok(encoded) => bytes = encoded,
                    Err(Error::Refused { .. }) => {}
                    Err(e) => return Err(e),
                }
                for (block, bytes) in blocks.into_iter().filter(|_| led) {
                    state.put(keys::key(d.id, keys::CELLS, &block.to_be_bytes()), &bytes)?;
                }
            }
        }
        let mut there = vec![0; bytes.len()];
        self.chunks.read_elements(state, d, at, &mut there)?;
        if there != bytes {
            self.write_elements(state, d, at, &bytes)?;
        }
        Ok(led)
    }

    /// Tries again to set what waits for its target.
    pub(super) fn lead(&self, state: &mut State) -> Result<()> {
        for (id, n, entry) in std::mem::take(&mut state.waiting.references) {
            let d = match self.dataset_of(state, id) {
                Ok(d) => d,
                Err(e) => {
                    tracing::debug!("references of a dataset stay nil: {e}");
                    continue;
                }
            };
            match self.put_reference(state, &d, n, &entry)? {
                true => state.changed(id),
                false => state.waiting.references.push((id, n, entry)),
            }
        }
        for ((id, name), value) in std::mem::take(&mut state.waiting.attributes) {
            self.put_attribute(state, id, &name, &value, true)?;
        }
        for (id, value) in std::mem::take(&mut state.waiting.fills) {
            if !self.put_fill(state, id, &value)? {
                state.waiting.fills.insert(id, value);
            }
        }
        self.lead_types(state, false);
        Ok(())
    }

    /// Sets the fill value of a dataset; false: one of its references names no object.
    fn put_fill(&self, state: &mut State, id: u64, value: &NewValue) -> Result<bool> {
        let d = self.dataset_of(state, id)?;
        let mut cells = NewCells::new(state, true, true);
        let bytes = store_elements(value, &mut cells)?;
        if cells.nowhere.get() {
            return Ok(false);
        }
        for (block, bytes) in cells.into_blocks()? {
            state.put(keys::key(id, keys::CELLS, &block.to_be_bytes()), &bytes)?;
        }
        if bytes.len() as u64 == d.element_size {
            state.put_dataset(id, &Creation { fill: Fill::Value(bytes), ..d.creation() })?;
            state.changed(id);
        }
        Ok(true)
    }
}
