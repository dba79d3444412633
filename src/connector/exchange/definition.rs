//! What an object is: what a new one gets before its bytes.

use super::Object;
use crate::base::datatype::make::Maker;
use crate::base::datatype::{Class, Datatype};
use crate::base::fill::Fill;
use crate::base::shape::Shape;
use crate::base::value::{Elements, NewValue};
use crate::base::{Address, Error};
use crate::connector::maps::MapTypes;
use crate::connector::{
    ChunksSpec, DatasetInfo, DatasetSpec, Elsewhere, FillSpec, ObjectKind, Result, SourceMapping, elsewhere_layout, usual_fill_time,
};

/// Name of the layout of datasets that are in a log.
pub(super) const LOG: &str = "log";

/// What an object is, beside its bytes and attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Definition {
    /// A group.
    Group,
    /// A map.
    Map(MapTypes),
    /// A dataset.
    Dataset(Box<DatasetSpec>),
    /// A named datatype.
    Datatype(Datatype),
}

impl Definition {
    /// The definition of a copy of `object` in a container whose elements refer by `sizeof_addr`
    /// bytes. Errors: `EOPNOTSUPP`, it cannot be copied to another container.
    pub fn of(object: Object<'_>, sizeof_addr: u8) -> Result<Definition> {
        let Object { connector, id } = object;
        let maker = Maker { sizeof_addr };
        let unreadable = |e: Error| match e {
            Error::Corrupt { .. } => Error::refused(libc::EIO, format!("it cannot be read: {e}; 'h5dir check' says more")),
            e => e,
        };
        match connector.info(id).map_err(unreadable)?.kind {
            ObjectKind::Group => Ok(Definition::Group),
            ObjectKind::Map => {
                let maps = connector.maps().ok_or_else(|| Error::corrupt("object", id.address, "the container has no maps"))?;
                let types = maps.types(id)?;
                Ok(Definition::Map(MapTypes { key: maker.remake(&types.key)?, value: maker.remake(&types.value)? }))
            }
            ObjectKind::Dataset => Ok(Definition::Dataset(Box::new(dataset(&connector.dataset(id)?, connector.reference_bytes(), maker)?))),
            ObjectKind::Datatype => Ok(Definition::Datatype(maker.remake(&connector.datatype(id)?)?)),
            ObjectKind::Unknown => Err(refused("it is an object of an unknown kind, or cannot be read; 'h5dir check' says more")),
        }
    }
}

impl Definition {
    /// With its elements where those of `object` are, if these are in other datasets.
    pub fn mapped_as(mut self, object: Object<'_>) -> Result<Definition> {
        if let Definition::Dataset(spec) = &mut self
            && let Some(elsewhere @ Elsewhere::Datasets(_)) = object.connector.elsewhere(object.id)?
        {
            spec.forget_storage();
            spec.filters = None;
            spec.layout = Some(elsewhere_layout(&elsewhere).to_owned());
            spec.elsewhere = Some(elsewhere);
        }
        Ok(self)
    }

    /// A virtual dataset of this type with the dimensions `shape` and the sources `mappings`.
    pub fn as_virtual(mut self, shape: Vec<u64>, mappings: Vec<SourceMapping>) -> Definition {
        if let Definition::Dataset(spec) = &mut self {
            let elsewhere = Elsewhere::Datasets(mappings);
            spec.forget_storage();
            (spec.filters, spec.maxshape, spec.shape) = (None, None, Some(shape));
            spec.layout = Some(elsewhere_layout(&elsewhere).to_owned());
            spec.elsewhere = Some(elsewhere);
        }
        self
    }

    /// The dimensions of a dataset.
    pub fn shape(&self) -> Option<&[u64]> {
        if let Definition::Dataset(spec) = self { spec.shape.as_deref() } else { None }
    }

    /// The type of the elements of a dataset.
    pub fn datatype(&self) -> Option<&Datatype> {
        if let Definition::Dataset(spec) = self { spec.dtype.as_ref() } else { None }
    }

    /// True if its elements are in other files or datasets.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Definition::Dataset(spec) if spec.elsewhere.is_some())
    }

    /// Without the layout that keeps a dataset in a log.
    pub fn without_log(mut self) -> Definition {
        if let Definition::Dataset(spec) = &mut self
            && spec.layout.as_deref() == Some(LOG)
        {
            spec.forget_storage();
        }
        self
    }

    /// Stored as new datasets of its container are, which has a log.
    pub fn in_log(mut self) -> Definition {
        if let Definition::Dataset(spec) = &mut self {
            spec.forget_storage();
            spec.filters = None;
        }
        self
    }
}

fn refused(reason: &'static str) -> Error {
    Error::refused(libc::EOPNOTSUPP, reason)
}

/// What makes a dataset like `d`, of a file whose references to objects have `reference_bytes`.
/// Where its elements lie elsewhere the copy has its own.
fn dataset(d: &DatasetInfo, reference_bytes: u8, maker: Maker) -> Result<DatasetSpec> {
    // A chunk dimension is stored in at most 32 bits by the layouts all programs read.
    if d.chunks.as_ref().is_some_and(|dims| dims.is_empty() || dims.iter().any(|n| *n == 0 || *n > u32::MAX.into())) {
        return Err(Error::corrupt("dataset", Address::UNDEF, "its chunks have no size, or too large a one"));
    }
    let datatype = maker.remake(&d.datatype)?;
    if datatype.contains_reference() && reference_bytes != maker.sizeof_addr {
        return Err(refused(
            "it has references, which take another number of bytes in the destination: one of both files has short addresses",
        ));
    }
    let dims = d.shape.dims();
    let is_known = |time: &u8| (1..=3).contains(time);
    let spec = DatasetSpec {
        fillvalue: Some(fill(d, &datatype)?),
        dtype: Some(datatype),
        shape: dims.map(<[u64]>::to_vec),
        null_space: d.shape == Shape::Null,
        maxshape: dims.map(|_| d.shape.max()),
        chunks: d.chunks.clone().map(ChunksSpec::Dims),
        filters: d.chunks.is_some().then(|| d.filters.clone()),
        fill_time: Some(d.fill_time).filter(|time| *time < 3 && *time != usual_fill_time(&d.datatype)),
        allocation_time: Some(d.allocation_time)
            .filter(|time| is_known(time) && d.usual_allocation_time.is_some_and(|usual| usual != *time)),
        layout: d.copy_layout.map(str::to_owned),
        elsewhere: None,
        profile: d.profile.filter(|_| d.copy_layout.is_some()).map(str::to_owned),
        undefine_fill: false,
        only_blank: false,
        // The destination may have another layout in its place.
        converts_layout: d.copy_layout.is_some(),
        newlines: None,
    };
    spec.check()?;
    Ok(spec)
}

/// The fill value of `d` as an element of `datatype`.
pub(super) fn fill(d: &DatasetInfo, datatype: &Datatype) -> Result<FillSpec> {
    let bytes = match &d.fill {
        Fill::Undefined => return Ok(FillSpec::Undefined),
        Fill::Value(bytes) if bytes.len() as u64 == d.datatype.element_size() => bytes,
        Fill::Default | Fill::Value(_) => return Ok(FillSpec::Default),
    };
    let element = Elements { datatype: &d.datatype, shape: &Shape::Scalar, bytes };
    match NewValue::of(&element, datatype.clone(), &*d.parts) {
        // An empty sequence is what unwritten elements are by default.
        Ok(value) if d.datatype.contains_vlen() && value.form.iter().all(|b| *b == 0) => Ok(FillSpec::Default),
        Ok(value) => Ok(FillSpec::Value(value)),
        Err(e) if !d.datatype.contains_reference() => Err(e),
        Err(e) => {
            tracing::warn!("the fill value of a dataset is null, as its reference cannot be made: {e}");
            Ok(FillSpec::Default)
        }
    }
}

/// True if the datatype `t` has a reference within a sequence. `within`: it is in a sequence.
fn has_reference_in_sequence(t: &Datatype, within: bool) -> bool {
    // The depth of the recursion is that of the message, which its decoder bounds.
    let within = match &t.class {
        Class::Reference(_) => return within,
        Class::VariableLength(_) => true,
        _ => within,
    };
    t.base().is_some_and(|base| has_reference_in_sequence(base, within))
        || t.members().iter().any(|member| has_reference_in_sequence(&member.datatype, within))
}

/// True if a copy of the dataset `object` gets its elements as one value ([`super::whole`]) instead
/// of bytes: there are references in its sequences.
pub fn is_copied_as_value(object: Object<'_>) -> Result<bool> {
    let Object { connector, id } = object;
    Ok(connector.info(id)?.kind == ObjectKind::Dataset && has_reference_in_sequence(&connector.dataset(id)?.datatype, false))
}

/// True if the lines of the dataset `object` do not give its strings: there are newlines in some.
/// May cost a pass over the elements.
pub fn needs_exact_form(object: Object<'_>) -> Result<bool> {
    let Object { connector, id } = object;
    if connector.info(id)?.kind != ObjectKind::Dataset {
        return Ok(false);
    }
    Ok(connector.dataset(id)?.lines && connector.newlines(id)?.is_none_or(|newlines| !newlines.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasets_come_into_a_log_and_out_of_it() {
        let spec = |layout: &str| DatasetSpec {
            shape: Some(vec![2]),
            chunks: Some(ChunksSpec::Dims(vec![2])),
            filters: Some(Vec::new()),
            layout: Some(layout.into()),
            profile: Some("plain".into()),
            converts_layout: true,
            ..DatasetSpec::default()
        };
        let of = |spec: &DatasetSpec| Definition::Dataset(Box::new(spec.clone()));
        let bare = DatasetSpec { shape: Some(vec![2]), ..DatasetSpec::default() };
        let filtered = DatasetSpec { filters: Some(Vec::new()), ..bare.clone() };
        assert_eq!(of(&spec("log")).without_log(), of(&filtered));
        assert_eq!(of(&spec("chunked")).without_log(), of(&spec("chunked")));
        assert_eq!(of(&spec("chunked")).in_log(), of(&bare));
        assert_eq!(Definition::Group.in_log(), Definition::Group);
    }
    use crate::base::datatype::ReferenceKind;
    use crate::base::datatype::make::{array, compound};

    #[test]
    fn references_in_sequences_are_found_at_any_depth() {
        let maker = Maker { sizeof_addr: 8 };
        let reference = maker.reference(ReferenceKind::Object1);
        let within = |t: Datatype| compound(vec![(b"a".to_vec(), 0, t.clone())], t.element_size()).unwrap();
        let has = |t: &Datatype| has_reference_in_sequence(t, false);
        assert!(!has(&reference) && !has(&within(reference.clone())));
        assert!(has(&maker.sequence(reference.clone())));
        assert!(has(&within(maker.sequence(array(vec![2], within(reference)).unwrap()))));
        assert!(!has(&maker.sequence(Datatype::byte())));
    }
}
