//! The section `create:` of the configuration file: rules that make new files datasets.
//!
//! ```text
//! create:
//!   - pattern: '*.f8'
//!     dtype: '<f8'
//!     shape: [null, 100]
//! ```
//! Each key except `pattern` has a value as in `user.h5dir.dataset`. Values are checked while the
//! YAML reader is at them, so that it adds their line and column to the error. Contradicting keys
//! are reported at the first key of the rule.

use crate::fs::create_rules::{self, CreateRule, NamePattern};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// Keys of a rule.
pub(crate) const KEYS: [&str; 9] = ["pattern", "dtype", "shape", "maxshape", "chunks", "filters", "fillvalue", "layout", "profile"];

/// A rule, deserialized and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule(pub(crate) CreateRule);

impl<'de> serde::Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RuleVisitor)
    }
}

struct RuleVisitor;

impl<'de> Visitor<'de> for RuleVisitor {
    type Value = Rule;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rule: a mapping with the key pattern")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Rule, A::Error> {
        let (mut pattern, mut description) = (None, Map::new());
        while let Some(key) = map.next_key_seed(KeySeed { pattern: pattern.is_some(), description: &description })? {
            if key == "pattern" {
                pattern = Some(map.next_value_seed(PatternSeed)?);
            } else {
                description.insert(key.to_owned(), map.next_value_seed(ValueSeed(key))?);
            }
        }
        let pattern = pattern.ok_or_else(|| A::Error::missing_field("pattern"))?;
        let description = Value::Object(description).to_string();
        create_rules::check(&description).map_err(A::Error::custom)?;
        Ok(Rule(CreateRule { pattern, description }))
    }
}

/// Deserializes a key; fails if it is unknown or repeated.
struct KeySeed<'a> {
    pattern: bool,
    description: &'a Map<String, Value>,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of the keys {}", KEYS.join(", "))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<&'static str, E> {
        let known = KEYS.into_iter().find(|k| *k == text).ok_or_else(|| E::unknown_field(text, &KEYS))?;
        let twice = if known == "pattern" { self.pattern } else { self.description.contains_key(known) };
        if twice { Err(E::duplicate_field(known)) } else { Ok(known) }
    }
}

/// Deserializes the value of `pattern`.
struct PatternSeed;

impl<'de> DeserializeSeed<'de> for PatternSeed {
    type Value = NamePattern;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<NamePattern, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for PatternSeed {
    type Value = NamePattern;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pattern")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NamePattern, E> {
        NamePattern::new(text).map_err(E::custom)
    }
}

/// Deserializes and checks the value of the key with this name.
struct ValueSeed(&'static str);

impl ValueSeed {
    fn checked<E: Error>(&self, mut value: Value) -> Result<Value, E> {
        // `null`: no rows now, unlimited later.
        if let ("shape", Value::Array(dims)) = (self.0, &mut value)
            && let Some(first) = dims.first_mut().filter(|d| d.is_null())
        {
            *first = 0.into();
        }
        let alone = Value::Object(Map::from_iter([(self.0.to_owned(), value.clone())]));
        create_rules::check_key(&alone.to_string()).map_err(E::custom)?;
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of {}", self.0)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.checked(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.checked(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.checked(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // JSON has no NaN and no infinities.
        self.checked(if value.is_finite() { value.into() } else { format!("{value}").to_lowercase().into() })
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.checked(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.checked(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<Value>()? {
            items.push(item);
        }
        self.checked(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((key, value)) = map.next_entry::<String, Value>()? {
            fields.insert(key, value);
        }
        self.checked(fields.into())
    }
}
