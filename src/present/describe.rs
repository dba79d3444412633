//! Datatype as JSON in the manner of the HDF Group's hdf5-json.
//!
//! Types that have no predefined name say their layout in added fields (`precision`, `bitOffset`,
//! `exponent`, ...), unpacked compounds their `size` and the members' `offset`. The message's
//! version and its reserved bits are not shown.

use super::json::Json;
use super::numpy::numpy_dtype;
use super::{names, number};
use crate::base::datatype::{
    Bitfield, Class, Compound, Datatype, Enumeration, FixedPoint, FloatingPoint, Normalization, VariableLengthKind,
};
use serde_json::Value;

type Fields = Vec<(&'static str, Json)>;

/// numpy's notation of a datatype, or else its JSON description.
pub fn dtype(datatype: &Datatype) -> Vec<u8> {
    match numpy_dtype(datatype) {
        Some(d) => d.to_string().into_bytes(),
        None => {
            let mut out = Vec::new();
            type_json(datatype).write(&mut out);
            out
        }
    }
}

/// Datatype in hdf5-json's form. Names that are not UTF-8 have U+FFFD in them; [`type_json`] keeps
/// them.
pub fn json_type(t: &Datatype) -> Value {
    type_json(t).to_value()
}

/// Datatype in hdf5-json's form.
pub fn type_json(t: &Datatype) -> Json {
    // The depth of the recursion is that of the message, which its decoder bounds.
    let mut fields: Fields = vec![("class", Json::string(class_name(t)))];
    match &t.class {
        Class::FixedPoint(f) => number_fields(t, &mut fields, |out| fixed_fields(f, out)),
        Class::FloatingPoint(f) => number_fields(t, &mut fields, |out| float_fields(f, out)),
        Class::Bitfield(b) => number_fields(t, &mut fields, |out| bitfield_fields(b, out)),
        Class::Time(u) => number_fields(t, &mut fields, |out| {
            out.push(("order", Json::string(names::order(u.order))));
            out.push(("precision", Json::integer(u.precision)));
        }),
        Class::String(s) => {
            fields.push(("charSet", Json::string(names::charset(s.charset))));
            fields.push(("strPad", Json::string(names::padding(s.padding))));
            fields.push(("length", Json::integer(t.size)));
        }
        Class::Opaque(o) => {
            fields.push(("size", Json::integer(t.size)));
            fields.push(("tag", Json::string(o.tag())));
        }
        Class::Compound(c) => compound_fields(t, c, &mut fields),
        Class::Reference(r) => fields.push(("base", Json::string(names::reference(r)))),
        Class::Enumeration(e) => enumeration_fields(e, &mut fields),
        Class::VariableLength(v) if v.kind == VariableLengthKind::String => {
            fields.push(("charSet", Json::string(names::charset(v.charset))));
            fields.push(("strPad", Json::string(names::padding(v.padding))));
            fields.push(("length", Json::string("H5T_VARIABLE")));
        }
        Class::VariableLength(v) => {
            fields.push(("size", Json::string("H5T_VARIABLE")));
            fields.push(("base", type_json(&v.base)));
        }
        Class::Array(a) => {
            fields.push(("base", type_json(&a.base)));
            fields.push(("dims", Json::Array(a.dims.iter().map(|&d| Json::integer(d)).collect())));
        }
        Class::Complex(c) => fields.push(("base", type_json(&c.base))),
    }
    Json::Object(fields)
}

fn class_name(t: &Datatype) -> &'static str {
    match &t.class {
        Class::FixedPoint(_) => "H5T_INTEGER",
        Class::FloatingPoint(_) => "H5T_FLOAT",
        Class::Time(_) => "H5T_TIME",
        Class::String(_) => "H5T_STRING",
        Class::Bitfield(_) => "H5T_BITFIELD",
        Class::Opaque(_) => "H5T_OPAQUE",
        Class::Compound(_) => "H5T_COMPOUND",
        Class::Reference(_) => "H5T_REFERENCE",
        Class::Enumeration(_) => "H5T_ENUM",
        Class::VariableLength(v) if v.kind == VariableLengthKind::String => "H5T_STRING",
        Class::VariableLength(_) => "H5T_VLEN",
        Class::Array(_) => "H5T_ARRAY",
        Class::Complex(_) => "H5T_COMPLEX",
    }
}

/// The predefined name, or the size and what `layout` adds.
fn number_fields(t: &Datatype, fields: &mut Fields, layout: impl FnOnce(&mut Fields)) {
    match names::standard(t) {
        Some(name) => fields.push(("base", Json::string(name))),
        None => {
            fields.push(("size", Json::integer(t.size)));
            layout(fields);
        }
    }
}

fn pad(on: bool) -> Json {
    Json::string(if on { "H5T_PAD_ONE" } else { "H5T_PAD_ZERO" })
}

fn fixed_fields(f: &FixedPoint, out: &mut Fields) {
    out.push(("order", Json::string(names::order(f.order))));
    out.push(("sign", Json::string(if f.signed { "H5T_SGN_2" } else { "H5T_SGN_NONE" })));
    out.push(("precision", Json::integer(f.precision)));
    out.push(("bitOffset", Json::integer(f.offset)));
    out.push(("lsbPad", pad(f.low_padding)));
    out.push(("msbPad", pad(f.high_padding)));
}

fn bitfield_fields(b: &Bitfield, out: &mut Fields) {
    out.push(("order", Json::string(names::order(b.order))));
    out.push(("precision", Json::integer(b.precision)));
    out.push(("bitOffset", Json::integer(b.offset)));
    out.push(("lsbPad", pad(b.low_padding)));
    out.push(("msbPad", pad(b.high_padding)));
}

fn float_fields(f: &FloatingPoint, out: &mut Fields) {
    let normalization = match f.normalization {
        Normalization::None => "H5T_NORM_NONE",
        Normalization::MsbSet => "H5T_NORM_MSBSET",
        Normalization::Implied => "H5T_NORM_IMPLIED",
    };
    out.push(("order", Json::string(names::order(f.order))));
    out.push(("precision", Json::integer(f.precision)));
    out.push(("bitOffset", Json::integer(f.offset)));
    out.push(("lsbPad", pad(f.low_padding)));
    out.push(("msbPad", pad(f.high_padding)));
    out.push(("internalPad", pad(f.inner_padding)));
    out.push(("signLocation", Json::integer(f.sign_location)));
    out.push(("exponentLocation", Json::integer(f.exponent_location)));
    out.push(("exponentSize", Json::integer(f.exponent_size)));
    out.push(("exponentBias", Json::integer(f.exponent_bias)));
    out.push(("mantissaLocation", Json::integer(f.mantissa_location)));
    out.push(("mantissaSize", Json::integer(f.mantissa_size)));
    out.push(("normalization", Json::string(normalization)));
}

fn compound_fields(t: &Datatype, c: &Compound, fields: &mut Fields) {
    let packed = names::is_packed(t);
    if !packed {
        fields.push(("size", Json::integer(t.size)));
    }
    let members = c.members.iter().map(|m| {
        let mut member: Fields = vec![("name", Json::string(&m.name.bytes)), ("type", type_json(&m.datatype))];
        if !packed {
            member.push(("offset", Json::integer(m.offset)));
        }
        Json::Object(member)
    });
    fields.push(("fields", Json::Array(members.collect())));
}

fn enumeration_fields(e: &Enumeration, fields: &mut Fields) {
    fields.push(("base", type_json(&e.base)));
    let members =
        e.members().iter().map(|m| Json::Object(vec![("name", Json::string(&m.name.bytes)), ("value", integer_json(&e.base, &m.value))]));
    fields.push(("members", Json::Array(members.collect())));
}

/// An integer element as a number; beyond 128 bits its bytes in hexadecimal.
fn integer_json(base: &Datatype, value: &[u8]) -> Json {
    let Class::FixedPoint(f) = &base.class else { return Json::Null };
    match number::integer(value, f.order, f.offset.into(), f.precision.into(), f.signed) {
        Some(n) => Json::Number(n),
        None => Json::string(number::hex(value)),
    }
}
