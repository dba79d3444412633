//! Datatypes from their JSON description, the inverse of `describe`.
//!
//! Types inside may also be names ("base": "<i4"); an enumeration's members may be an object of
//! numbers. The description does not tell a standard reference's kind: it becomes one to objects.

use super::elements::fixed;
use super::node::{Fields, Node};
use super::{integer, invalid, shown};
use crate::base::Result;
use crate::base::datatype::make::{Maker, array, complex, compound, enumeration, floating, opaque, string};
use crate::base::datatype::{
    Bitfield, ByteOrder, CharacterSet, Class, Datatype, FixedPoint, FloatingPoint, Normalization, ReferenceKind, StringPadding, Time,
};

/// The datatype `node` describes, an object with a "class", `depth` levels inside another
/// description.
pub fn datatype(maker: Maker, node: &Node, depth: usize) -> Result<Datatype> {
    let class = match node {
        Node::Object(fields) => fields.iter().find(|(name, _)| name == b"class").map(|(_, class)| class),
        _ => None,
    };
    let class = text(class.ok_or_else(|| invalid("a datatype has no class"))?, "class")?;
    let inside = |node: &Node| maker.node(node, depth.saturating_add(1));
    let fields = |known: &[&str]| {
        let known: Vec<&str> = ["class"].iter().chain(known).copied().collect();
        Fields::new("a datatype", node, &known)
    };
    match class {
        "H5T_INTEGER" => {
            number(maker, &fields(&["base", "size", "order", "sign", "precision", "bitOffset", "lsbPad", "msbPad"])?, class, fixed_point)
        }
        "H5T_BITFIELD" => {
            number(maker, &fields(&["base", "size", "order", "precision", "bitOffset", "lsbPad", "msbPad"])?, class, bitfield)
        }
        "H5T_TIME" => number(maker, &fields(&["base", "size", "order", "precision"])?, class, time),
        "H5T_FLOAT" => number(maker, &fields(&FLOAT)?, class, floating_point),
        "H5T_STRING" => string_type(maker, &fields(&["charSet", "strPad", "length"])?),
        "H5T_OPAQUE" => {
            let f = fields(&["size", "tag"])?;
            let tag = f.get("tag").map(|t| t.string("tag")).transpose()?.unwrap_or_default();
            if tag.len() > 248 || tag.contains(&0) {
                return Err(invalid("a tag has more than 248 bytes or holds a NUL"));
            }
            Ok(opaque(positive(f.need("size")?, "size")?, tag))
        }
        "H5T_COMPOUND" => compound_type(maker, &fields(&["size", "fields"])?, depth),
        "H5T_REFERENCE" => reference(maker, text(fields(&["base"])?.need("base")?, "base")?),
        "H5T_ENUM" => {
            let f = fields(&["base", "members"])?;
            enumeration_type(inside(f.need("base")?)?, f.need("members")?)
        }
        "H5T_VLEN" => {
            let f = fields(&["size", "base"])?;
            if f.get("size").is_some_and(|s| *s != Node::String(b"H5T_VARIABLE".to_vec())) {
                return Err(invalid("the size of a sequence is H5T_VARIABLE"));
            }
            Ok(maker.sequence(inside(f.need("base")?)?))
        }
        "H5T_ARRAY" => {
            let f = fields(&["base", "dims"])?;
            let dims = f.need("dims")?.array("dims")?.iter().map(|d| d.small("a dimension")).collect::<Result<_>>()?;
            array(dims, inside(f.need("base")?)?)
        }
        "H5T_COMPLEX" => complex(inside(fields(&["base"])?.need("base")?)?),
        other => Err(invalid(format!("{} is no class of datatypes", shown(other.as_bytes())))),
    }
}

const FLOAT: [&str; 15] = [
    "base",
    "size",
    "order",
    "precision",
    "bitOffset",
    "lsbPad",
    "msbPad",
    "internalPad",
    "signLocation",
    "exponentLocation",
    "exponentSize",
    "exponentBias",
    "mantissaLocation",
    "mantissaSize",
    "normalization",
];

fn text<'a>(node: &'a Node, what: &str) -> Result<&'a str> {
    let s = node.string(what)?;
    std::str::from_utf8(s).map_err(|_| invalid(format!("{what} cannot be {}", shown(s))))
}

fn positive(node: &Node, what: &str) -> Result<u32> {
    node.small(what).and_then(|n| if n == 0 { Err(invalid(format!("{what} is 0"))) } else { Ok(n) })
}

/// A number by its predefined name, or by its layout.
fn number(maker: Maker, f: &Fields<'_>, class: &str, layout: fn(&Fields<'_>) -> Result<(Class, u8)>) -> Result<Datatype> {
    let Some(base) = f.get("base") else {
        let size = positive(f.need("size")?, "size")?;
        let (class, version) = layout(f)?;
        return Ok(Datatype::new(version, size, class));
    };
    if f.get("size").is_some() || f.get("order").is_some() {
        return Err(invalid("a number is given by its name (base) or its layout, not both"));
    }
    let t = maker.named(text(base, "base")?)?;
    let fits = match class {
        "H5T_INTEGER" => matches!(t.class, Class::FixedPoint(_)),
        "H5T_BITFIELD" => matches!(t.class, Class::Bitfield(_)),
        "H5T_TIME" => matches!(t.class, Class::Time(_)),
        _ => matches!(t.class, Class::FloatingPoint(_)),
    };
    if fits { Ok(t) } else { Err(invalid(format!("{} is of another class than {class}", shown(text(base, "base")?.as_bytes())))) }
}

fn order(f: &Fields<'_>, vax: bool) -> Result<ByteOrder> {
    match text(f.need("order")?, "order")? {
        "H5T_ORDER_LE" => Ok(ByteOrder::LittleEndian),
        "H5T_ORDER_BE" => Ok(ByteOrder::BigEndian),
        "H5T_ORDER_VAX" if vax => Ok(ByteOrder::Vax),
        other => Err(invalid(format!("{} is no byte order", shown(other.as_bytes())))),
    }
}

/// Padding; zeros by default.
fn pad(f: &Fields<'_>, name: &str) -> Result<bool> {
    match f.get(name).map(|n| text(n, name)).transpose()? {
        None | Some("H5T_PAD_ZERO") => Ok(false),
        Some("H5T_PAD_ONE") => Ok(true),
        Some(other) => Err(invalid(format!("{name} cannot be {}", shown(other.as_bytes())))),
    }
}

fn small<T: TryFrom<u64>>(f: &Fields<'_>, name: &str) -> Result<T> {
    f.need(name)?.small(name)
}

fn offset(f: &Fields<'_>) -> Result<u16> {
    f.get("bitOffset").map_or(Ok(0), |n| n.small("bitOffset"))
}

fn fixed_point(f: &Fields<'_>) -> Result<(Class, u8)> {
    let signed = match text(f.need("sign")?, "sign")? {
        "H5T_SGN_2" => true,
        "H5T_SGN_NONE" => false,
        other => return Err(invalid(format!("sign cannot be {}", shown(other.as_bytes())))),
    };
    let class = FixedPoint {
        order: order(f, false)?,
        low_padding: pad(f, "lsbPad")?,
        high_padding: pad(f, "msbPad")?,
        signed,
        offset: offset(f)?,
        precision: small(f, "precision")?,
    };
    Ok((Class::FixedPoint(class), 1))
}

fn bitfield(f: &Fields<'_>) -> Result<(Class, u8)> {
    let class = Bitfield {
        order: order(f, false)?,
        low_padding: pad(f, "lsbPad")?,
        high_padding: pad(f, "msbPad")?,
        offset: offset(f)?,
        precision: small(f, "precision")?,
    };
    Ok((Class::Bitfield(class), 1))
}

fn time(f: &Fields<'_>) -> Result<(Class, u8)> {
    Ok((Class::Time(Time { order: order(f, false)?, precision: small(f, "precision")? }), 1))
}

fn floating_point(f: &Fields<'_>) -> Result<(Class, u8)> {
    let normalization = match text(f.need("normalization")?, "normalization")? {
        "H5T_NORM_NONE" => Normalization::None,
        "H5T_NORM_MSBSET" => Normalization::MsbSet,
        "H5T_NORM_IMPLIED" => Normalization::Implied,
        other => return Err(invalid(format!("normalization cannot be {}", shown(other.as_bytes())))),
    };
    let class = FloatingPoint {
        order: order(f, true)?,
        low_padding: pad(f, "lsbPad")?,
        high_padding: pad(f, "msbPad")?,
        inner_padding: pad(f, "internalPad")?,
        normalization,
        sign_location: small(f, "signLocation")?,
        offset: offset(f)?,
        precision: small(f, "precision")?,
        exponent_location: small(f, "exponentLocation")?,
        exponent_size: small(f, "exponentSize")?,
        mantissa_location: small(f, "mantissaLocation")?,
        mantissa_size: small(f, "mantissaSize")?,
        exponent_bias: small(f, "exponentBias")?,
    };
    let t = floating(class, 1);
    Ok((t.class, t.version))
}

/// The number at the end of `H5T_STR_RESERVED_9`.
fn reserved(text: &str, prefix: &str, least: u8) -> Option<u8> {
    text.strip_prefix(prefix)?.parse().ok().filter(|n| (least..16).contains(n))
}

fn string_type(maker: Maker, f: &Fields<'_>) -> Result<Datatype> {
    let padding = match f.get("strPad").map(|n| text(n, "strPad")).transpose()?.unwrap_or("H5T_STR_NULLTERM") {
        "H5T_STR_NULLTERM" => StringPadding::NullTerminated,
        "H5T_STR_NULLPAD" => StringPadding::NullPadded,
        "H5T_STR_SPACEPAD" => StringPadding::SpacePadded,
        other => match reserved(other, "H5T_STR_RESERVED_", 3) {
            Some(n) => StringPadding::Reserved(n),
            None => return Err(invalid(format!("strPad cannot be {}", shown(other.as_bytes())))),
        },
    };
    let charset = match f.get("charSet").map(|n| text(n, "charSet")).transpose()?.unwrap_or("H5T_CSET_UTF8") {
        "H5T_CSET_ASCII" => CharacterSet::Ascii,
        "H5T_CSET_UTF8" => CharacterSet::Utf8,
        other => match reserved(other, "H5T_CSET_RESERVED_", 2) {
            Some(n) => CharacterSet::Reserved(n),
            None => return Err(invalid(format!("charSet cannot be {}", shown(other.as_bytes())))),
        },
    };
    match f.need("length")? {
        Node::String(s) if s == b"H5T_VARIABLE" => Ok(maker.variable_string(padding, charset)),
        length => Ok(string(positive(length, "length")?, padding, charset)),
    }
}

fn reference(maker: Maker, base: &str) -> Result<Datatype> {
    let kind = match base {
        "H5T_STD_REF_OBJ" => ReferenceKind::Object1,
        "H5T_STD_REF_DSETREG" => ReferenceKind::DatasetRegion1,
        "H5T_STD_REF" => ReferenceKind::Object2,
        other => return Err(invalid(format!("{} is no reference type", shown(other.as_bytes())))),
    };
    Ok(maker.reference(kind))
}

fn compound_type(maker: Maker, f: &Fields<'_>, depth: usize) -> Result<Datatype> {
    let (mut members, mut end) = (Vec::new(), 0u64);
    for field in f.need("fields")?.array("fields")? {
        let field = Fields::new("a member", field, &["name", "type", "offset"])?;
        let t = maker.node(field.need("type")?, depth.saturating_add(1))?;
        let offset = match field.get("offset") {
            Some(offset) => offset.small("an offset")?,
            None => u32::try_from(end).map_err(|_| invalid("a datatype is too large"))?,
        };
        end = u64::from(offset).saturating_add(t.element_size());
        members.push((field.need("name")?.string("a member's name")?.to_vec(), offset, t));
    }
    let least = members.iter().map(|(_, offset, t)| u64::from(*offset).saturating_add(t.element_size())).max().unwrap_or(0);
    let size = f.get("size").map(|n| n.unsigned("size")).transpose()?.unwrap_or(least);
    compound(members, size)
}

fn enumeration_type(base: Datatype, members: &Node) -> Result<Datatype> {
    let Class::FixedPoint(layout) = &base.class else { return Err(invalid("the base of an enumeration is no integer")) };
    let (layout, size) = (fixed(layout), base.size as usize);
    let value = |node: &Node| match node {
        Node::Number(n) => integer::parse(&layout, size, n.as_bytes()),
        // Wider integers are described by their bytes.
        Node::String(hex) => integer::raw_hex(hex, size).ok_or_else(|| invalid(format!("{} is no value of a member", shown(hex)))),
        other => Err(invalid(format!("a member's value cannot be {}", other.kind()))),
    };
    let members = match members {
        Node::Object(fields) => fields.iter().map(|(name, node)| Ok((name.clone(), value(node)?))).collect::<Result<_>>()?,
        Node::Array(items) => {
            let one = |item| {
                let f = Fields::new("a member", item, &["name", "value"])?;
                Ok((f.need("name")?.string("a member's name")?.to_vec(), value(f.need("value")?)?))
            };
            items.iter().map(one).collect::<Result<_>>()?
        }
        other => return Err(invalid(format!("members cannot be {}", other.kind()))),
    };
    enumeration(base, members)
}
