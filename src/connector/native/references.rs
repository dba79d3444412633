//! The references of a dataset, numbered through in stored order.

use super::dataset::Dataset;
use crate::base::datatype::{Datatype, References};
use crate::base::limits;

/// Most references of one element.
const PER_ELEMENT_MAX: u64 = 1 << 16;

/// Places of the references of a dataset.
pub struct ReferenceTable {
    /// Number of references.
    pub total: u64,
    element_size: u64,
    of_element: Vec<(u64, Datatype)>,
}

/// The references of one element of `dataset`; `None` if it has none, or none that can be listed.
fn of_element(dataset: &Dataset) -> Option<References> {
    // The addresses in elements of other files are theirs.
    let elsewhere = dataset.layout().mapped().is_some();
    References::of(&dataset.datatype).filter(|r| !elsewhere && (1..=PER_ELEMENT_MAX).contains(&r.count()))
}

fn total_of(dataset: &Dataset, per_element: u64) -> Option<u64> {
    let fits = dataset.element_size <= limits::ELEMENT_BYTES_MAX;
    dataset.elements().checked_mul(per_element).filter(|n| fits && *n > 0)
}

/// Number of references of `dataset`, if it has any that can be listed.
pub fn total(dataset: &Dataset) -> Option<u64> {
    total_of(dataset, of_element(dataset)?.count())
}

impl ReferenceTable {
    /// The references of `dataset`; `None` if it has none that can be listed.
    pub fn of(dataset: &Dataset) -> Option<ReferenceTable> {
        let references = of_element(dataset)?;
        let mut of_element = Vec::new();
        references
            .each(&mut |at, t| {
                of_element.push((at as u64, t.clone()));
                Ok(())
            })
            .ok()?;
        let total = total_of(dataset, of_element.len() as u64)?;
        Some(ReferenceTable { total, element_size: dataset.element_size, of_element })
    }

    /// Byte and type of reference `n`.
    pub fn place(&self, n: u64) -> Option<(u64, &Datatype)> {
        let per = self.of_element.len() as u64;
        let (offset, t) = self.of_element.get(usize::try_from(n.checked_rem(per)?).ok()?)?;
        let at = n.checked_div(per)?.checked_mul(self.element_size)?.checked_add(*offset)?;
        (n < self.total).then_some((at, t))
    }
}
