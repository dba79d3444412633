//! In what two objects differ.

use super::ObjectModel;
use crate::base::Result;
use crate::connector::DatasetInfo;
pub use crate::connector::exchange::ElementBytes;
use crate::connector::exchange::{Aspect, AttributePart, Differing, differing};
use crate::present::{aspect_name, aspect_text, element_text};

/// One aspect in which two objects differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its name.
    pub what: String,
    /// What the left one has; `None`: nothing.
    pub left: Option<Vec<u8>>,
    /// What the right one has.
    pub right: Option<Vec<u8>>,
    /// Coordinates of the element that differs first, if an element differs.
    pub at: Option<Vec<u64>>,
}

impl ObjectModel {
    /// In what the object differs from `right`; with `storage` also in how they are stored. Also
    /// which bytes of their elements are to be compared: those that are no references.
    pub fn differences(&self, right: &ObjectModel, storage: bool) -> Result<(Vec<Difference>, ElementBytes)> {
        let Differing { aspects, elements } = self.read(|left| right.read(|right| differing(left, right, storage)))?;
        let types_differ = |of: &Vec<u8>| aspects.contains(&Aspect::Attribute(of.clone(), AttributePart::Type));
        let mut found = Vec::new();
        for aspect in &aspects {
            let text = |of: &ObjectModel, exact| of.read(|object| aspect_text(object.connector, object.id, aspect, exact));
            let (mut left_text, mut right_text) = (text(self, false)?, text(right, false)?);
            if left_text == right_text {
                if matches!(aspect, Aspect::Attribute(name, AttributePart::Value) if types_differ(name)) {
                    continue;
                }
                (left_text, right_text) = (text(self, true)?, text(right, true)?);
            }
            let at = match aspect {
                Aspect::Reference(number) => Some(self.read(|object| {
                    let d = object.connector.dataset(object.id)?;
                    let of_one = d.references.zip(d.shape.count()).and_then(|(all, count)| all.checked_div(count));
                    Ok(coordinates(&d, number.checked_div(of_one.unwrap_or(1)).unwrap_or(*number)))
                })?),
                _ => None,
            };
            found.push(Difference { what: aspect_name(aspect), left: left_text, right: right_text, at });
        }
        Ok((found, elements))
    }

    /// Coordinates of element `number` of the dataset.
    pub fn coordinates(&self, number: u64) -> Result<Vec<u64>> {
        self.read(|object| Ok(coordinates(&object.connector.dataset(object.id)?, number)))
    }

    /// Element `number` of the dataset as text.
    pub fn element_text(&self, number: u64) -> Result<Vec<u8>> {
        self.read(|object| element_text(object.connector, object.id, number))
    }

    /// Bytes of an element of the dataset.
    pub fn element_size(&self) -> Result<u64> {
        self.read(|object| Ok(object.connector.dataset(object.id)?.datatype.element_size()))
    }
}

/// The coordinates of element `number` of the dataset `d`.
fn coordinates(d: &DatasetInfo, number: u64) -> Vec<u64> {
    let (mut rest, mut index) = (number, Vec::new());
    for dim in d.shape.dims().unwrap_or_default().iter().rev() {
        index.push(rest.checked_rem(*dim).unwrap_or(0));
        rest = rest.checked_div(*dim).unwrap_or(0);
    }
    index.reverse();
    index
}
