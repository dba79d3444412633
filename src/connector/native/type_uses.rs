//! Whether a file counts what uses its named datatypes.
//!
//! libhdf5 counts each dataset and attribute of a named datatype as a link to it. Files of other
//! writers may count hard links alone (JLD2): then a datatype whose count becomes 0 is in use, and
//! must stay. A file is believed if the objects that hard links reach use no datatype more often
//! than it counts.

use super::access::Access;
use super::claims::{Claims, Depth, claim_all};
use super::file::HdfFile;
use super::object::Object;
use super::{attribute, named_types};
use crate::base::{Address, Error, Result};
use crate::connector::ObjectKind;
use crate::format::Reader;
use crate::format::message::attribute::Attribute;
use crate::format::message::link::{Link, LinkTarget};
use crate::format::object_header::SharedMessage;
use crate::meta::extent::Extent;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Structures and links that are visited. Of larger files it is not known.
const STRUCTURES_MAX: u64 = 1 << 18;

/// True if `file` counts the uses of its named datatypes. False: it does not, or it is damaged or
/// too large to find out.
pub(super) fn are_counted(access: &Access<'_>, file: &Arc<HdfFile>) -> Result<bool> {
    // Only libhdf5 makes such files; a shared attribute counts once for all objects that have it.
    if file.shared.is_some() {
        return Ok(true);
    }
    let mut uses = Uses { of: HashMap::new(), structures: 0, is_unknown: false };
    claim_all(access, file, Depth::Structures, &mut uses)?;
    Ok(!uses.is_unknown && uses.of.values().all(|count| count.stated.is_none_or(|stated| count.found <= stated)))
}

/// Uses of a named datatype, or links to another object.
#[derive(Default)]
struct Count {
    /// Links, datasets and attributes that were found.
    found: u64,
    /// The count in the header of a named datatype.
    stated: Option<u64>,
}

/// What was found.
struct Uses {
    /// By address of the object.
    of: HashMap<Address, Count>,
    structures: u64,
    is_unknown: bool,
}

impl Uses {
    fn visit(&mut self) {
        self.structures = self.structures.saturating_add(1);
        self.is_unknown |= self.structures > STRUCTURES_MAX;
    }

    fn found(&mut self, address: Address) {
        let count = self.of.entry(address).or_default();
        count.found = count.found.saturating_add(1);
    }

    fn attribute(&mut self, object: &Object, a: &Attribute) {
        let mut r = Reader::new(&a.datatype, "shared message", object.header.address);
        match SharedMessage::decode(&mut r, object.file.store.ctx()) {
            Ok(SharedMessage::Object(address)) => self.found(address),
            Ok(SharedMessage::Heap(_)) => {}
            Err(_) => self.is_unknown = true,
        }
    }

    fn object(&mut self, object: &Object) -> Result<()> {
        let info = object.info();
        if info.kind == ObjectKind::Datatype {
            self.of.entry(object.header.address).or_default().stated = Some(info.links.into());
        }
        if info.kind == ObjectKind::Dataset
            && let Some(datatype) = named_types::of(object, None)?
        {
            self.found(datatype);
        }
        let damage = attribute::each(object, &mut |a| {
            if a.datatype_shared {
                self.attribute(object, &a)
            }
        })?;
        self.is_unknown |= damage.is_some();
        Ok(())
    }
}

impl Claims for Uses {
    fn live(&mut self, _object: Option<Address>, _extent: Extent) {
        self.visit();
    }

    fn free(&mut self, _range: Range<u64>) {}

    fn damaged(&mut self, _object: Option<Address>, _error: &Error) {
        self.is_unknown = true;
    }

    fn opened(&mut self, object: &Object) {
        self.is_unknown |= self.object(object).is_err();
    }

    fn link(&mut self, _group: Address, link: &Link) {
        self.visit();
        if let LinkTarget::Hard(address) = link.target {
            self.found(address);
        }
    }

    fn is_full(&self) -> bool {
        self.is_unknown
    }
}
