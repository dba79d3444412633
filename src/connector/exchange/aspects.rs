//! In which aspects two objects differ, of one container or of two.
//!
//! Elements are compared here only if their bytes are not their values: references, and variable
//! parts with references in them. Other elements the caller compares, byte by byte.

use super::defined::knows_defined;
use super::equal::{first_reference, has_same_defined, has_same_order, is_same_target, is_same_value};
use super::references::whole;
use super::{Object, attributes, definition};
use crate::base::Error;
use crate::base::datatype::make::Maker;
use crate::base::datatype::{Datatype, References};
use crate::base::value::NewValue;
use crate::connector::{DatasetInfo, FillSpec, ObjectKind, Result, Target, usual_fill_time};
use std::collections::BTreeSet;
use std::ops::Range;

/// One aspect of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aspect {
    /// Which kind of object it is.
    Kind,
    /// Type of its elements, keys or values, or the named datatype itself.
    Type,
    /// Current dimensions.
    Shape,
    /// Maximum dimensions.
    MaxShape,
    /// Dimensions of chunks.
    Chunks,
    /// Filters with their parameters.
    Filters,
    /// Value of elements that were never written.
    FillValue,
    /// When the fill value is written.
    FillTime,
    /// When space is allocated.
    AllocationTime,
    /// Layout.
    Layout,
    /// Which elements are defined.
    Defined,
    /// What the reference of this number names.
    Reference(u64),
    /// Elements of variable length with references in them.
    Elements,
    /// Comment.
    Comment,
    /// Order in which links were created.
    LinkOrder,
    /// The named datatype that it refers to, or its attribute of this name.
    NamedType(Option<Vec<u8>>),
    /// An attribute.
    Attribute(Vec<u8>, AttributePart),
}

/// What of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributePart {
    /// That it is there.
    Existence,
    /// Its type.
    Type,
    /// Its shape.
    Shape,
    /// Its elements.
    Value,
}

/// How the elements of two datasets are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementBytes {
    /// They are not: types or shapes differ, or it was done.
    Compared,
    /// Byte by byte, but for these ranges of each element.
    Without(Vec<Range<u64>>),
}

/// What two objects differ in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differing {
    /// In the order of the comparison.
    pub aspects: Vec<Aspect>,
    /// How the elements of datasets are compared.
    pub elements: ElementBytes,
}

/// In what `left` and `right` differ; with `storage` also in how they are stored, and in what
/// programs seldom see: order of links, named datatypes, defined elements.
pub fn differing(left: Object<'_>, right: Object<'_>, storage: bool) -> Result<Differing> {
    let mut found = Differing { aspects: Vec::new(), elements: ElementBytes::Compared };
    let kind = |object: Object<'_>| Ok::<_, Error>(object.connector.info(object.id)?.kind);
    let (kind, other) = (kind(left)?, kind(right)?);
    if kind != other {
        found.aspects.push(Aspect::Kind);
        return Ok(found);
    }
    match kind {
        ObjectKind::Dataset => found = datasets(left, right, storage)?,
        ObjectKind::Datatype => {
            let of = |object: Object<'_>| object.connector.datatype(object.id);
            found.note(Aspect::Type, is_same_type(&of(left)?, &of(right)?)?);
        }
        ObjectKind::Map => {
            let types = |object: Object<'_>| object.connector.maps().map(|maps| maps.types(object.id)).transpose();
            found.note(Aspect::Type, types(left)? == types(right)?);
        }
        ObjectKind::Group if storage => found.note(Aspect::LinkOrder, has_same_order(left, right)?),
        ObjectKind::Group => {}
        ObjectKind::Unknown => {
            return Err(Error::refused(libc::EIO, "it cannot be read, or is of an unknown kind; 'h5dir check' says more"));
        }
    }
    found.note(Aspect::Comment, left.connector.comment(left.id)? == right.connector.comment(right.id)?);
    compare_attributes(left, right, &mut found)?;
    if storage {
        compare_named_types(left, right, &mut found)?;
    }
    Ok(found)
}

impl Differing {
    fn note(&mut self, aspect: Aspect, same: bool) {
        if !same {
            self.aspects.push(aspect);
        }
    }
}

/// Bytes of references are those of the containers of both.
fn is_same_type(a: &Datatype, b: &Datatype) -> Result<bool> {
    let maker = Maker { sizeof_addr: 8 };
    Ok(a == b || maker.remake(a)?.is_like(&maker.remake(b)?))
}

fn datasets(left: Object<'_>, right: Object<'_>, storage: bool) -> Result<Differing> {
    let mut found = Differing { aspects: Vec::new(), elements: ElementBytes::Compared };
    let (a, b) = (left.connector.dataset(left.id)?, right.connector.dataset(right.id)?);
    let same_type = is_same_type(&a.datatype, &b.datatype)?;
    found.note(Aspect::Type, same_type);
    let extent = |d: &DatasetInfo| (d.shape.dims().map(<[u64]>::to_vec), d.shape == crate::base::shape::Shape::Null);
    found.note(Aspect::Shape, extent(&a) == extent(&b));
    let comparable = found.aspects.is_empty();
    if storage {
        compare_storage((&a, &b), same_type, right, &mut found)?;
    }
    if !comparable {
        return Ok(found);
    }
    if storage {
        let (ours, theirs) = ((left, &a), (right, &b));
        let same = if knows_defined(left, &a) { has_same_defined(ours, theirs)? } else { has_same_defined(theirs, ours)? };
        found.note(Aspect::Defined, same);
    }
    let Some(places) = References::of(&a.datatype) else {
        found.elements = ElementBytes::Without(Vec::new());
        return Ok(found);
    };
    if a.datatype.contains_vlen() {
        found.note(Aspect::Elements, is_same_value(&whole(left, 8)?, &whole(right, 8)?, right));
        return Ok(found);
    }
    found.aspects.extend(first_reference(left, right)?.map(Aspect::Reference));
    let mut ranges = Vec::new();
    places.each(&mut |at, t| {
        ranges.push(at as u64..(at as u64).saturating_add(t.size.into()));
        Ok(())
    })?;
    let is_all = matches!(ranges.as_slice(), [all] if *all == (0..a.datatype.element_size()));
    found.elements = if is_all { ElementBytes::Compared } else { ElementBytes::Without(ranges) };
    Ok(found)
}

fn compare_storage((a, b): (&DatasetInfo, &DatasetInfo), same_type: bool, right: Object<'_>, found: &mut Differing) -> Result<()> {
    found.note(Aspect::MaxShape, a.shape.max() == b.shape.max());
    found.note(Aspect::Chunks, a.chunks == b.chunks);
    let filters = |d: &DatasetInfo| d.filters.iter().map(|f| (f.id, f.flags, f.cd_values.clone())).collect::<Vec<_>>();
    found.note(Aspect::Filters, filters(a) == filters(b));
    if same_type {
        let maker = Maker { sizeof_addr: right.connector.reference_bytes() };
        let fill = |d: &DatasetInfo| definition::fill(d, &maker.remake(&d.datatype)?);
        let same = match (fill(a)?, fill(b)?) {
            (FillSpec::Value(a), FillSpec::Value(b)) => is_same_value(&a, &b, right),
            (a, b) => a == b,
        };
        found.note(Aspect::FillValue, same);
    }
    found.note(Aspect::Layout, a.layout == b.layout);
    let fill_time = |d: &DatasetInfo| Some(d.fill_time).filter(|time| *time != usual_fill_time(&d.datatype));
    found.note(Aspect::FillTime, fill_time(a) == fill_time(b));
    let allocation_time =
        |d: &DatasetInfo| Some(d.allocation_time).filter(|time| d.usual_allocation_time.is_some_and(|usual| usual != *time));
    found.note(Aspect::AllocationTime, allocation_time(a) == allocation_time(b));
    Ok(())
}

fn compare_attributes(left: Object<'_>, right: Object<'_>, found: &mut Differing) -> Result<()> {
    let (ours, theirs) = (left.connector.attributes(left.id)?, right.connector.attributes(right.id)?);
    for name in ours.iter().chain(theirs.iter()).collect::<BTreeSet<_>>() {
        let of = |object: Object<'_>| attributes::attribute(object, name, 8);
        let note = |part| Aspect::Attribute(name.clone(), part);
        let (Some(a), Some(b)) = (of(left)?, of(right)?) else {
            found.aspects.push(note(AttributePart::Existence));
            continue;
        };
        let (a, b) = (a.value, b.value);
        found.note(note(AttributePart::Type), a.datatype.is_like(&b.datatype));
        found.note(note(AttributePart::Shape), a.shape == b.shape || a.shape.dims() == b.shape.dims() && a.shape.max() == b.shape.max());
        let alike = NewValue { datatype: a.datatype.clone(), shape: a.shape.clone(), ..b };
        found.note(note(AttributePart::Value), is_same_value(&a, &alike, right));
    }
    Ok(())
}

fn compare_named_types(left: Object<'_>, right: Object<'_>, found: &mut Differing) -> Result<()> {
    let types = |object| Ok::<_, Error>(attributes::named_types(object)?.into_iter().collect::<std::collections::BTreeMap<_, _>>());
    let (ours, theirs) = (types(left)?, types(right)?);
    for user in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
        let same = match (ours.get(user), theirs.get(user)) {
            (Some(Some(a)), Some(Some(b))) => is_same_target(&Target::object(a.clone()), &Target::object(b.clone()), right),
            (a, b) => a == b,
        };
        found.note(Aspect::NamedType(user.clone()), same);
    }
    Ok(())
}
