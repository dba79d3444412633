//! Parts of elements in the global heap: reads them for [`Parts`], stores those of a [`NewValue`].

use super::heap::{Descriptor, Heap, HeapStore};
use super::reference;
use crate::base::datatype::Reference;
use crate::base::parts::{Budget, Part, Parts, Region, Target};
use crate::base::value::NewValue;
use crate::base::variable_form::VariableForm;
use crate::base::{Address, Error, Result};
use crate::format::Reader;
use crate::format::selection::SerializedSelection;

impl<T: Heap + ?Sized> Parts for T {
    fn count(&self, element: &[u8]) -> Result<u32> {
        Ok(Descriptor::decode(element, self.ctx())?.count)
    }

    fn sequence(&self, element: &[u8], base_size: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        Descriptor::decode(element, self.ctx())?.payload(base_size, self, budget)
    }

    fn reference(&self, t: &Reference, element: &[u8], budget: &mut Budget) -> Result<Option<Target>> {
        let Some(stored) = reference::decode(t, element, self, budget)? else { return Ok(None) };
        let nameless = || format!("#{}", stored.object).into_bytes();
        let object = match &stored.file {
            // Addresses in another file say nothing here.
            Some(_) => nameless(),
            None => self.path(stored.object).unwrap_or_else(nameless),
        };
        let part = match stored.part {
            reference::Part::Object => Part::Object,
            reference::Part::Attribute(name) => Part::Attribute(name),
            reference::Part::Region(bytes) => {
                let local = stored.file.is_none().then(|| region(&bytes)).flatten();
                Part::Region(local.unwrap_or(Region::Opaque(bytes)))
            }
        };
        Ok(Some(Target { file: stored.file, object, part }))
    }
}

/// The selection that `bytes` serialize; `None` when they cannot be decoded.
fn region(bytes: &[u8]) -> Option<Region> {
    let mut r = Reader::new(bytes, "region reference", Address::UNDEF);
    Some(match SerializedSelection::decode(&mut r).ok()? {
        SerializedSelection::None(_) => Region::None,
        SerializedSelection::All(_) => Region::All,
        SerializedSelection::Points { rank, coordinates, .. } => Region::Points { rank, coordinates },
        SerializedSelection::Blocks { rank, corners, .. } => Region::Blocks { rank, corners },
        SerializedSelection::Regular { dims, .. } => Region::Regular(dims),
    })
}

/// The elements of `value` as stored, their parts in `store`.
pub fn store_elements(value: &NewValue, store: &mut dyn HeapStore) -> Result<Vec<u8>> {
    if !value.datatype.contains_vlen() && !value.datatype.contains_reference() {
        return Ok(value.form.clone());
    }
    let form = VariableForm::numbered(&value.datatype);
    let size = usize::try_from(value.datatype.element_size()).unwrap_or(usize::MAX).max(1);
    let wrong = || Error::refused(libc::EOPNOTSUPP, "the type's variable-length elements are not those of this file");
    // Both kinds of parts go to the same store.
    let store = std::cell::RefCell::new(store);
    let busy = |_| Error::refused(libc::EOPNOTSUPP, "references cannot be kept here");
    let mut keep = |count: u32, payload: &[u8]| store.try_borrow_mut().map_err(busy)?.sequence(count, payload);
    let mut refer = |t: &Reference, size: usize, number: u32| {
        let target = usize::try_from(number).ok().and_then(|n| n.checked_sub(1)).map(|n| value.targets.get(n).ok_or_else(wrong));
        match target.transpose()? {
            None => Ok(vec![0; size]),
            Some(target) => reference::encode(t, size, target, &mut **store.try_borrow_mut().map_err(busy)?),
        }
    };
    let mut out = Vec::new();
    let mut rest = value.form.as_slice();
    while !rest.is_empty() {
        let (element, used) = form.parse_numbered(size, rest, &mut keep, &mut refer)?.ok_or_else(wrong)?;
        if element.len() != size || used == 0 {
            return Err(wrong());
        }
        out.extend(element);
        rest = rest.get(used..).unwrap_or_default();
    }
    let want = value.shape.count().and_then(|n| n.checked_mul(size as u64));
    if want == Some(out.len() as u64) { Ok(out) } else { Err(wrong()) }
}
