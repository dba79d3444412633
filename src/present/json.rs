//! JSON text whose strings may hold any bytes.
//!
//! HDF5 names and strings need not be UTF-8. A byte that is not becomes the escape `\udc80` to
//! `\udcff`, as Python's "surrogateescape" has it: `os.fsencode(json.loads(text))` gives the bytes
//! back.

use serde_json::Value;

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// A number as written.
    Number(String),
    /// A string of any bytes.
    String(Vec<u8>),
    /// A list.
    Array(Vec<Json>),
    /// An object; order is kept.
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// A string.
    pub fn string(s: impl AsRef<[u8]>) -> Json {
        Json::String(s.as_ref().to_vec())
    }

    /// An integer.
    pub fn integer(n: impl Into<i128>) -> Json {
        Json::Number(n.into().to_string())
    }

    /// Appends the text to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Json::Null => out.extend_from_slice(b"null"),
            Json::Number(n) => out.extend_from_slice(n.as_bytes()),
            Json::String(s) => write_string(s, out),
            Json::Array(items) => {
                out.push(b'[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Json::Object(fields) => {
                out.push(b'{');
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    write_string(name.as_bytes(), out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }

    /// The same as serde_json has it. Its strings cannot hold other bytes than UTF-8: those become
    /// U+FFFD.
    pub fn to_value(&self) -> Value {
        match self {
            Json::Null => Value::Null,
            Json::Number(n) => n.parse::<serde_json::Number>().map_or_else(|_| Value::String(n.clone()), Value::Number),
            Json::String(s) => Value::String(String::from_utf8_lossy(s).into_owned()),
            Json::Array(items) => Value::Array(items.iter().map(Json::to_value).collect()),
            Json::Object(fields) => Value::Object(fields.iter().map(|(n, v)| ((*n).to_owned(), v.to_value())).collect()),
        }
    }
}

/// Appends `s` as a JSON string with its quotes.
pub fn write_string(s: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in s.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.extend_from_slice(b"\\t"),
                c if u32::from(c) < 0x20 || u32::from(c) == 0x7f => {
                    out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
                }
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for b in chunk.invalid() {
            out.extend_from_slice(format!("\\udc{b:02x}").as_bytes());
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_in_strings() {
        let mut out = Vec::new();
        write_string(b"a\"\\\n\x01\x7f\xc3\xa4\xff\xed\xa0\x80", &mut out);
        // python: os.fsencode(json.loads(out)) gives the bytes back
        assert_eq!(String::from_utf8(out).unwrap(), "\"a\\\"\\\\\\n\\u0001\\u007f\u{e4}\\udcff\\udced\\udca0\\udc80\"");
    }

    #[test]
    fn values_convert() {
        let j = Json::Object(vec![
            ("a", Json::Array(vec![Json::integer(-3), Json::Null, Json::Number("1.5e300".into())])),
            ("b", Json::string("x")),
        ]);
        let mut out = Vec::new();
        j.write(&mut out);
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), j.to_value());
    }
}
