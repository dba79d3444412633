//! Values of the in-memory model: elements, and beside them the parts that do not lie in them.
//!
//! A variable-length element is a count of base elements and the number of the bytes that it holds,
//! from 1 on; a reference is the number of what it names. Both are lowest byte first and padded
//! with zeros to the size of the element.

use super::{Budget, Datatype, NewValue, Parts, Result, Shape, Target, Value};
use crate::base::datatype::Reference;
use crate::base::variable_form::VariableForm;
use crate::base::{Address, Error};
use std::sync::Arc;

/// Parts that lie outside elements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kept {
    sequences: Vec<Vec<u8>>,
    targets: Vec<Target>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryValue {
    datatype: Datatype,
    shape: Shape,
    bytes: Vec<u8>,
    kept: Arc<Kept>,
}

impl From<Vec<u8>> for MemoryValue {
    /// A UTF-8 string.
    fn from(text: Vec<u8>) -> Self {
        let datatype = Datatype::utf8(u32::try_from(text.len().max(1)).unwrap_or(u32::MAX));
        let bytes = if text.is_empty() { vec![0] } else { text };
        MemoryValue { datatype, shape: Shape::Scalar, bytes, kept: Arc::default() }
    }
}

impl MemoryValue {
    /// A list of bytes.
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        let shape = Shape::Simple { dims: vec![bytes.len() as u64], max: None };
        MemoryValue { datatype: Datatype::byte(), shape, bytes: bytes.to_vec(), kept: Arc::default() }
    }

    /// The value that `new` describes.
    pub(super) fn of(new: &NewValue) -> Result<Self> {
        let wrong = || Error::refused(libc::EINVAL, "the value does not fit its type");
        let form = VariableForm::numbered(&new.datatype);
        let size = usize::try_from(new.datatype.element_size()).unwrap_or(usize::MAX).max(1);
        let number = |n: usize| u32::try_from(n).map_err(|_| wrong());
        let mut sequences = Vec::new();
        let mut keep = |count: u32, payload: &[u8]| {
            sequences.push(payload.to_vec());
            Ok([count.to_le_bytes(), number(sequences.len())?.to_le_bytes(), [0; 4], [0; 4]].concat())
        };
        let mut refer = |_: &Reference, size: usize, number: u32| {
            let mut element = number.to_le_bytes().to_vec();
            element.resize(size, 0);
            Ok(element)
        };
        let (mut bytes, mut rest) = (Vec::new(), new.form.as_slice());
        while !rest.is_empty() {
            let (element, used) = form.parse_numbered(size, rest, &mut keep, &mut refer)?.ok_or_else(wrong)?;
            if element.len() != size || used == 0 {
                return Err(wrong());
            }
            bytes.extend(element);
            rest = rest.get(used..).unwrap_or_default();
        }
        let kept = Arc::new(Kept { sequences, targets: new.targets.clone() });
        Ok(MemoryValue { datatype: new.datatype.clone(), shape: new.shape.clone(), bytes, kept })
    }

    /// As the container model has it.
    pub(super) fn value(&self) -> Value {
        let (datatype, shape, bytes) = (self.datatype.clone(), self.shape.clone(), self.bytes.clone());
        Value { datatype, committed: false, shape, bytes, parts: self.kept.clone() }
    }
}

fn number(element: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(element.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn short() -> Error {
    Error::corrupt("value", Address::UNDEF, "an element is too short")
}

/// Item number `n`, from 1 on; 0 is none.
fn item<T>(all: &[T], n: u32) -> Result<Option<&T>> {
    let Some(at) = n.checked_sub(1) else { return Ok(None) };
    let item = usize::try_from(at).ok().and_then(|at| all.get(at));
    item.map(Some).ok_or_else(|| Error::corrupt("value", Address::UNDEF, "there is no such part"))
}

impl Parts for Kept {
    fn count(&self, element: &[u8]) -> Result<u32> {
        number(element, 0).ok_or_else(short)
    }

    fn sequence(&self, element: &[u8], _base_size: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        let bytes = item(&self.sequences, number(element, 4).ok_or_else(short)?)?.cloned().unwrap_or_default();
        budget.read(bytes.len() as u64)?;
        Ok(bytes)
    }

    fn reference(&self, _t: &Reference, element: &[u8], _budget: &mut Budget) -> Result<Option<Target>> {
        Ok(item(&self.targets, number(element, 0).ok_or_else(short)?)?.cloned())
    }
}
