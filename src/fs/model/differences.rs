//! In what two objects differ.

use super::ObjectModel;
use crate::base::Result;
pub use crate::connector::exchange::ElementBytes;
use crate::connector::exchange::{Aspect, AttributePart, Differing, differing};
use crate::present::{aspect_name, aspect_text};

/// One aspect in which two objects differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its name.
    pub what: String,
    /// What the left one has; `None`: nothing.
    pub left: Option<Vec<u8>>,
    /// What the right one has.
    pub right: Option<Vec<u8>>,
    /// Number of the element that differs first, if the elements differ there.
    pub element: Option<u64>,
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
            let element = match aspect {
                Aspect::Reference(number) => self.read(|object| {
                    let d = object.connector.dataset(object.id)?;
                    let elements = d.shape.dims().unwrap_or_default().iter().fold(1u64, |n, dim| n.saturating_mul(*dim));
                    Ok(number.checked_div(d.references.unwrap_or(1).checked_div(elements).unwrap_or(1)))
                })?,
                _ => None,
            };
            found.push(Difference { what: aspect_name(aspect), left: left_text, right: right_text, element });
        }
        Ok((found, elements))
    }
}
