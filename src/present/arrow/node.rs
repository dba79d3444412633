//! Arrow types of datatypes.
//!
//! | datatype | Arrow |
//! |---|---|
//! | integers, bit fields of 1, 2, 4, 8 bytes | the integer |
//! | other integers of at most 64 bits | int64 or uint64 |
//! | floating-point of up to 4 bytes, others | float, double |
//! | strings, references | utf8 |
//! | enumeration; h5py's boolean | dictionary of int32 and utf8; bool |
//! | compound, complex | struct |
//! | array; sequence | fixed-size lists; list |
//! | times | timestamp |
//! | opaque, larger numbers | fixed-size binary |

use crate::base::datatype::{ByteOrder, Class, Datatype, Enumeration, FloatingPoint, StringPadding, VariableLengthKind};
use crate::base::{Error, Result};
use crate::present::numpy::{NumpyDtype, numpy_dtype};
use crate::present::table::Times;
use arrow_schema::{DataType, Field, TimeUnit};
use foldhash::HashMap;
use std::sync::Arc;

/// How the bytes of an element become cells.
pub(super) enum Kind {
    /// As they are, or reversed.
    Copy { swap: bool },
    /// An integer of any bits as one of 64.
    Integer { order: ByteOrder, offset: u16, precision: u16, signed: bool },
    /// A number of any layout as a float or a double.
    Float { layout: FloatingPoint, single: bool },
    /// A byte that is 0 or 1.
    Bool,
    /// A string of fixed length.
    Text(StringPadding),
    /// An index into a dictionary, by the bytes of the element.
    Names(HashMap<Vec<u8>, i32>),
    /// A time in units of so many nanoseconds.
    Time { times: Times, unit: i128 },
    /// So many elements.
    List(usize, Box<Node>),
    /// Members, by their offsets.
    Struct(Vec<(usize, Node)>),
    /// A string of variable length, or what a reference names.
    Outside,
    /// A sequence.
    Sequence(Box<Node>),
}

/// A type of cells.
pub(super) struct Node {
    pub(super) datatype: Datatype,
    pub(super) arrow: DataType,
    pub(super) kind: Kind,
}

impl Node {
    /// Bytes of an element.
    pub(super) fn size(&self) -> usize {
        match &self.kind {
            Kind::List(n, item) => n.saturating_mul(item.size()),
            _ => usize::try_from(self.datatype.size).unwrap_or(usize::MAX),
        }
    }

    /// True if cells may be null.
    pub(super) fn is_nullable(&self) -> bool {
        matches!(self.kind, Kind::Names(_) | Kind::Time { .. })
    }

    /// The field `name` of such cells.
    pub(super) fn field(&self, name: &str) -> Field {
        Field::new(name, self.arrow.clone(), self.is_nullable())
    }

    /// `n` elements of `item`.
    pub(super) fn list(n: u64, item: Node) -> Result<Node> {
        let large = || Error::refused(libc::EFBIG, "a row has too many elements for an Arrow file");
        let len = i32::try_from(n).map_err(|_| large())?;
        let arrow = DataType::FixedSizeList(Arc::new(item.field("item")), len);
        let kind = Kind::List(usize::try_from(n).map_err(|_| large())?, Box::new(item));
        Ok(Node { datatype: Datatype::byte(), arrow, kind })
    }

    /// The cells of elements of type `t`, which are times if `times` is given.
    pub(super) fn of(t: &Datatype, times: Option<&Times>) -> Result<Node> {
        let times = times.cloned().or_else(|| Times::of_type(t));
        let (arrow, kind) = match times {
            Some(times) => time(times),
            None => of_class(t)?,
        };
        Ok(Node { datatype: t.clone(), arrow, kind })
    }

    /// Adds the enumerations of its dictionaries, in the order of the fields.
    pub(super) fn dictionaries<'a>(&'a self, out: &mut Vec<&'a Enumeration>) {
        match (&self.kind, &self.datatype.class) {
            (Kind::Names(_), Class::Enumeration(e)) => out.push(e),
            (Kind::List(_, item) | Kind::Sequence(item), _) => item.dictionaries(out),
            (Kind::Struct(members), _) => members.iter().for_each(|(_, member)| member.dictionaries(out)),
            _ => {}
        }
    }
}

fn time(times: Times) -> (DataType, Kind) {
    let (arrow, unit) = match times.unit() {
        1..1_000 => (TimeUnit::Nanosecond, 1),
        1_000..1_000_000 => (TimeUnit::Microsecond, 1_000),
        unit if times.is_whole() && unit >= 1_000_000_000 => (TimeUnit::Second, 1_000_000_000),
        _ if times.is_whole() => (TimeUnit::Millisecond, 1_000_000),
        _ => (TimeUnit::Microsecond, 1_000),
    };
    (DataType::Timestamp(arrow, None), Kind::Time { times, unit })
}

fn of_class(t: &Datatype) -> Result<(DataType, Kind)> {
    let raw = || (DataType::FixedSizeBinary(i32::try_from(t.size).unwrap_or(i32::MAX)), Kind::Copy { swap: false });
    // The depth of the recursion is that of the datatype message, which its decoder bounds.
    Ok(match &t.class {
        Class::FixedPoint(f) => integer(t.size, f.order, f.offset, f.precision, f.signed).unwrap_or_else(raw),
        Class::Bitfield(b) => integer(t.size, b.order, b.offset, b.precision, false).unwrap_or_else(raw),
        Class::Time(u) => match integer(t.size, u.order, 0, u.precision, true) {
            Some(_) => {
                let kind = Kind::Integer { order: u.order, offset: 0, precision: u.precision, signed: true };
                (DataType::Timestamp(TimeUnit::Second, None), kind)
            }
            None => raw(),
        },
        Class::FloatingPoint(f) => float(t, f).unwrap_or_else(raw),
        Class::String(s) => (DataType::Utf8, Kind::Text(s.padding)),
        Class::Opaque(_) => raw(),
        Class::Enumeration(e) => enumeration(t, e),
        Class::Compound(c) => {
            let members = c.members.iter().map(|m| Ok((String::from_utf8_lossy(&m.name.bytes), m.offset, Node::of(&m.datatype, None)?)));
            let members = members.collect::<Result<Vec<_>>>()?;
            let fields = members.iter().map(|(name, _, node)| node.field(name)).collect();
            let at = |offset: u32| usize::try_from(offset).unwrap_or(usize::MAX);
            (DataType::Struct(fields), Kind::Struct(members.into_iter().map(|(_, offset, node)| (at(offset), node)).collect()))
        }
        Class::Complex(c) => {
            let (r, i) = (Node::of(&c.base, None)?, Node::of(&c.base, None)?);
            let fields = vec![r.field("r"), i.field("i")].into();
            let at = r.size();
            (DataType::Struct(fields), Kind::Struct(vec![(0, r), (at, i)]))
        }
        Class::Array(a) => {
            let item = Node::of(&a.base, None)?;
            let list = a.dims.iter().rev().try_fold(item, |item, n| Node::list(u64::from(*n), item))?;
            (list.arrow, list.kind)
        }
        Class::Reference(_) => (DataType::Utf8, Kind::Outside),
        Class::VariableLength(v) if v.kind == VariableLengthKind::String => (DataType::Utf8, Kind::Outside),
        Class::VariableLength(v) => {
            let item = Node::of(&v.base, None)?;
            (DataType::List(Arc::new(item.field("item"))), Kind::Sequence(Box::new(item)))
        }
    })
}

fn integer(size: u32, order: ByteOrder, offset: u16, precision: u16, signed: bool) -> Option<(DataType, Kind)> {
    let whole = offset == 0 && u32::from(precision) == size.saturating_mul(8) && order != ByteOrder::Vax;
    let copied = match (size, signed) {
        (1, true) => DataType::Int8,
        (2, true) => DataType::Int16,
        (4, true) => DataType::Int32,
        (1, false) => DataType::UInt8,
        (2, false) => DataType::UInt16,
        (4, false) => DataType::UInt32,
        (_, true) => DataType::Int64,
        (_, false) => DataType::UInt64,
    };
    if whole && matches!(size, 1 | 2 | 4 | 8) {
        return Some((copied, Kind::Copy { swap: order == ByteOrder::BigEndian }));
    }
    let wide = if signed { DataType::Int64 } else { DataType::UInt64 };
    (1..=64).contains(&precision).then_some((wide, Kind::Integer { order, offset, precision, signed }))
}

fn float(t: &Datatype, f: &FloatingPoint) -> Option<(DataType, Kind)> {
    let swap = f.order == ByteOrder::BigEndian;
    match numpy_dtype(t) {
        Some(NumpyDtype::Plain(notation)) if notation.ends_with("f4") => return Some((DataType::Float32, Kind::Copy { swap })),
        Some(NumpyDtype::Plain(notation)) if notation.ends_with("f8") => return Some((DataType::Float64, Kind::Copy { swap })),
        _ => {}
    }
    let fits = f.mantissa_size <= 125 && f.exponent_size <= 31;
    let single = f.mantissa_size <= 23 && f.exponent_size <= 8 && t.size <= 4;
    let arrow = if single { DataType::Float32 } else { DataType::Float64 };
    fits.then_some((arrow, Kind::Float { layout: *f, single }))
}

fn enumeration(t: &Datatype, e: &Enumeration) -> (DataType, Kind) {
    if numpy_dtype(t).is_some_and(|dtype| dtype == NumpyDtype::Plain("|b1".into())) {
        return (DataType::Boolean, Kind::Bool);
    }
    let arrow = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let mut indexes = HashMap::default();
    // The first of several members with a value names it.
    for (i, member) in (0i32..).zip(e.members()) {
        indexes.entry(member.value.clone()).or_insert(i);
    }
    (arrow, Kind::Names(indexes))
}
