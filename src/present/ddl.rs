//! Datatype as readable text in the manner of h5dump's data description language.

use super::{names, number};
use crate::base::datatype::{ByteOrder, Class, Datatype, FloatingPoint, VariableLengthKind};

/// Description of `t`: lines of text, the last one ended too.
pub fn text(t: &Datatype) -> String {
    let mut out = String::new();
    write(t, 0, &mut out);
    out.push('\n');
    out
}

/// A name in double quotes; quotes, backslashes, control characters and bytes that are not UTF-8
/// escaped.
fn quoted(name: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                c if c.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
                c => out.push(c),
            }
        }
        out.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
    }
    out.push('"');
    out
}

fn line(out: &mut String, depth: usize, content: &str) {
    out.push('\n');
    out.push_str(&"   ".repeat(depth));
    out.push_str(content);
}

fn endian(o: ByteOrder) -> &'static str {
    match o {
        ByteOrder::LittleEndian => "little-endian",
        ByteOrder::BigEndian => "big-endian",
        ByteOrder::Vax => "VAX-endian",
    }
}

/// Writes `t`, whose first line is begun already, without a final newline.
fn write(t: &Datatype, depth: usize, out: &mut String) {
    // The depth of the recursion is that of the message, which its decoder bounds.
    if let Some(name) = names::standard(t)
        && !matches!(t.class, Class::Complex(_))
    {
        out.push_str(&name);
        return;
    }
    let inner = depth.saturating_add(1);
    match &t.class {
        Class::FixedPoint(f) => {
            let sign = if f.signed { "signed" } else { "unsigned" };
            out.push_str(&odd(t.size, f.order, &format!("{sign} integer"), f.precision, f.offset));
        }
        Class::Bitfield(b) => out.push_str(&odd(t.size, b.order, "bit field", b.precision, b.offset)),
        Class::Time(u) => out.push_str(&odd(t.size, u.order, "UNIX time", u.precision, 0)),
        Class::FloatingPoint(f) => out.push_str(&odd_float(t.size, f)),
        Class::String(s) => string(&t.size.to_string(), names::padding(s.padding), names::charset(s.charset), depth, out),
        Class::VariableLength(v) if v.kind == VariableLengthKind::String => {
            string("H5T_VARIABLE", names::padding(v.padding), names::charset(v.charset), depth, out);
        }
        Class::Opaque(o) => {
            out.push_str("H5T_OPAQUE {");
            line(out, inner, &format!("OPAQUE_SIZE {};", t.size));
            line(out, inner, &format!("OPAQUE_TAG {};", quoted(o.tag())));
            line(out, depth, "}");
        }
        Class::Compound(_) => compound(t, depth, out),
        Class::Reference(r) => out.push_str(&format!("H5T_REFERENCE {{ {} }}", names::reference(r))),
        Class::Enumeration(_) => enumeration(t, depth, out),
        Class::VariableLength(v) => braced("H5T_VLEN { ", &v.base, depth, out),
        Class::Array(a) => {
            let dims: String = a.dims.iter().map(|d| format!("[{d}]")).collect();
            braced(&format!("H5T_ARRAY {{ {dims} "), &a.base, depth, out);
        }
        Class::Complex(c) => braced("H5T_COMPLEX { ", &c.base, depth, out),
    }
}

fn braced(head: &str, base: &Datatype, depth: usize, out: &mut String) {
    out.push_str(head);
    write(base, depth, out);
    out.push_str(" }");
}

/// An integer-like type without a predefined name.
fn odd(size: u32, order: ByteOrder, what: &str, precision: u16, offset: u16) -> String {
    let bits = u64::from(size).saturating_mul(8);
    format!("{bits}-bit {} {what}, {precision} bits from bit {offset}", endian(order))
}

fn odd_float(size: u32, f: &FloatingPoint) -> String {
    let bits = u64::from(size).saturating_mul(8);
    let range = |location: u8, len: u8| format!("{len} bits from bit {location}");
    format!(
        "{bits}-bit {} floating-point, {} bits precision, sign bit {}, exponent {} with bias {}, mantissa {} ({})",
        endian(f.order),
        f.precision,
        f.sign_location,
        range(f.exponent_location, f.exponent_size),
        f.exponent_bias,
        range(f.mantissa_location, f.mantissa_size),
        match f.normalization {
            crate::base::datatype::Normalization::None => "no normalization",
            crate::base::datatype::Normalization::MsbSet => "highest bit set",
            crate::base::datatype::Normalization::Implied => "highest bit implied",
        }
    )
}

fn string(size: &str, padding: String, charset: String, depth: usize, out: &mut String) {
    let inner = depth.saturating_add(1);
    out.push_str("H5T_STRING {");
    line(out, inner, &format!("STRSIZE {size};"));
    line(out, inner, &format!("STRPAD {padding};"));
    line(out, inner, &format!("CSET {charset};"));
    line(out, inner, "CTYPE H5T_C_S1;");
    line(out, depth, "}");
}

fn compound(t: &Datatype, depth: usize, out: &mut String) {
    let inner = depth.saturating_add(1);
    let packed = names::is_packed(t);
    out.push_str("H5T_COMPOUND {");
    if !packed {
        line(out, inner, &format!("SIZE {};", t.size));
    }
    for m in t.members() {
        line(out, inner, "");
        write(&m.datatype, inner, out);
        out.push(' ');
        out.push_str(&quoted(&m.name.bytes));
        if !packed {
            out.push_str(&format!(" : {}", m.offset));
        }
        out.push(';');
    }
    line(out, depth, "}");
}

fn enumeration(t: &Datatype, depth: usize, out: &mut String) {
    let Class::Enumeration(e) = &t.class else { return };
    let Class::FixedPoint(f) = &e.base.class else { return };
    let inner = depth.saturating_add(1);
    out.push_str("H5T_ENUM {");
    line(out, inner, "");
    write(&e.base, inner, out);
    out.push(';');
    for m in e.members() {
        let value = number::integer(&m.value, f.order, f.offset.into(), f.precision.into(), f.signed);
        let value = value.unwrap_or_else(|| format!("0x{}", number::hex(&m.value)));
        line(out, inner, &format!("{:<18} {value};", quoted(&m.name.bytes)));
    }
    line(out, depth, "}");
}
