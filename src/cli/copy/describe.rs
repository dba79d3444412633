//! What a copy of an object needs beside its bytes: its type, attributes and references.

use crate::base::escape::escaped_bytes;
use crate::cli::side::container::ObjectSource;
use crate::cli::side::{DEFINED_XATTR, FACT_PREFIX, Source, defined, fact};
use crate::fs::JsonTree;
use std::io;

/// Facts of references hold so many of a dataset at most: `references1024` is the last one.
const LAST_REFERENCES: &str = "references1024";
/// Fact of the named datatypes that an object and its attributes refer to.
const TYPES: &str = "types";
/// Fact of the comment of an object.
pub(super) const COMMENT: &str = "comment";
/// Fact of the order in which the links of a group were created.
pub(super) const LINKS: &str = "links";
/// Extended attribute of the fact [`TYPES`].
pub(super) const TYPES_XATTR: &[u8] = b"user.h5dir.types";
/// The view of exact forms.
pub(super) const EXACT: &[u8] = b"/.h5dir/exact";

/// Name and value of an extended attribute.
pub(super) type Xattr = (Vec<u8>, Vec<u8>);

/// What makes a copy of a file the same object.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Description {
    /// Set before the bytes are written: what the object is.
    pub(super) definition: Option<Xattr>,
    /// Its bytes follow from the definition.
    pub(super) without_bytes: bool,
    /// The bytes are copied in the exact form.
    pub(super) exact: bool,
    /// Set after the bytes are written.
    pub(super) others: Vec<Xattr>,
}

fn refused(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, reason.into())
}

fn xattr(name: &str, value: Vec<u8>) -> Xattr {
    ([FACT_PREFIX, name.as_bytes()].concat(), value)
}

/// How datasets of a copy are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// As they are.
    Kept,
    /// As they are, but those of a log as ordinary ones.
    NoLog,
    /// As new datasets of the destination, which has a log.
    InLog,
}

/// The description of an object of the main tree, for another container.
pub(super) fn of_object(source: &ObjectSource, storage: Storage) -> io::Result<Description> {
    let mut description = Description::default();
    match fact(source, "kind")?.as_deref() {
        Some(b"dataset") => {
            let text = fact(source, "dataset")?.ok_or_else(|| refused("it has no description"))?;
            let (definition, exact) = definition(&text, storage)?;
            (description.definition, description.exact) = (Some(xattr("dataset", definition)), exact);
            description.others = references(source)?;
            description.others.extend(defined_elements(source)?);
        }
        Some(b"datatype") => {
            let text = fact(source, "datatype")?.ok_or_else(|| refused("it has no description"))?;
            (description.definition, description.without_bytes) = (Some(xattr("datatype", text)), true);
        }
        Some(b"group" | b"map") => description.others.extend(fact(source, LINKS)?.map(|text| xattr(LINKS, text))),
        _ => return Err(refused("it is an object of an unknown kind, or cannot be read; 'h5dir check' says more")),
    }
    description.others.extend(attributes(source)?);
    description.others.extend(fact(source, TYPES)?.map(|text| xattr(TYPES, text)));
    description.others.extend(fact(source, COMMENT)?.map(|text| xattr(COMMENT, text)));
    Ok(description)
}

/// The definition of a dataset from its fact `dataset`, and whether its bytes are copied in the
/// exact form.
fn definition(text: &[u8], storage: Storage) -> io::Result<(Vec<u8>, bool)> {
    let tree = JsonTree::parse(text).ok().filter(|tree| matches!(tree, JsonTree::Object(_)));
    let Some(mut all) = tree else { return Err(refused("its description is no JSON")) };
    if all.get("dtype").is_some_and(|dtype| has_reference_in_sequence(dtype, false)) {
        return Err(refused("it has references inside sequences, which cannot be copied to another place"));
    }
    let logged = match storage {
        Storage::Kept => false,
        Storage::NoLog => all.get("layout").and_then(JsonTree::text) == Some(b"log"),
        Storage::InLog => true,
    };
    if logged {
        all.remove("layout");
        all.remove("profile");
        all.remove("alloctime");
        // Without chunks an ordinary one could not grow.
        all.remove("chunks");
    }
    if storage == Storage::InLog {
        all.remove("filters");
    }
    // Strings with newlines. The list of them may have been too long.
    let lines = all.remove("newlines").is_some();
    // The destination may have another layout in its place.
    let converts = all.get("layout").is_some();
    if let (true, JsonTree::Object(fields)) = (converts, &mut all) {
        fields.push((b"convert".to_vec(), JsonTree::String(b"layout".to_vec())));
    }
    let changed = lines || logged || converts;
    Ok((if changed { all.json() } else { text.to_vec() }, lines))
}

fn class(dtype: &JsonTree) -> Option<&[u8]> {
    dtype.get("class").and_then(JsonTree::text)
}

/// True if the datatype `dtype`, a JSON description, has a reference within a sequence.
fn has_reference_in_sequence(dtype: &JsonTree, within: bool) -> bool {
    let within = match class(dtype) {
        Some(b"H5T_REFERENCE") => return within,
        Some(b"H5T_VLEN") => true,
        _ => within,
    };
    match dtype {
        JsonTree::Object(fields) => fields.iter().any(|(_, value)| has_reference_in_sequence(value, within)),
        JsonTree::Array(items) => items.iter().any(|value| has_reference_in_sequence(value, within)),
        _ => false,
    }
}

/// The defined elements of a dataset that knows them, if they are not too many: the copy is
/// compared with its source.
fn defined_elements(source: &ObjectSource) -> io::Result<Option<Xattr>> {
    match defined(source) {
        Ok(text) => Ok(text.map(|text| (DEFINED_XATTR.to_vec(), text))),
        Err(e) if matches!(e.raw_os_error(), Some(libc::E2BIG | libc::EFBIG)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The facts of the references of a dataset.
fn references(source: &ObjectSource) -> io::Result<Vec<Xattr>> {
    if fact(source, LAST_REFERENCES)?.is_some() {
        return Err(refused("it has more than 130,944 references"));
    }
    let mut all = Vec::new();
    for number in 1u64.. {
        let name = if number == 1 { "references".to_owned() } else { format!("references{number}") };
        match fact(source, &name)? {
            Some(text) => all.push(xattr(&name, text)),
            None => break,
        }
    }
    Ok(all)
}

/// The fact of all attributes; `None` if there are none. Errors: one cannot be read.
pub(super) fn attributes(source: &dyn Source) -> io::Result<Option<Xattr>> {
    let Some(text) = fact(source, "attributes")? else { return Ok(None) };
    let Ok(JsonTree::Array(list)) = JsonTree::parse(&text) else { return Err(refused("its attributes are no JSON")) };
    if let Some(broken) = list.iter().find(|attribute| attribute.get("error").is_some()) {
        let part = |key: &str| escaped_bytes(broken.get(key).and_then(JsonTree::text).unwrap_or_default()).to_string();
        return Err(refused(format!("its attribute {} cannot be read: {}", part("name"), part("error"))));
    }
    Ok((!list.is_empty()).then(|| xattr("attributes", text)))
}

/// The description of a local file with extended attributes, for a container; of any file, for a
/// local file.
pub(super) fn of_xattrs(source: &dyn Source) -> io::Result<Description> {
    let mut description = Description::default();
    for name in source.xattr_names()? {
        let value = match source.xattr(&name) {
            Ok(value) => value,
            // It was removed meanwhile.
            Err(e) if e.raw_os_error() == Some(libc::ENODATA) => continue,
            Err(e) => return Err(e),
        };
        match name.strip_prefix(FACT_PREFIX) {
            Some(b"dataset" | b"datatype") => {
                description.without_bytes = name.ends_with(b"datatype");
                description.definition = Some((name, value));
            }
            _ => description.others.push((name, value)),
        }
    }
    // The facts of an object come first: they say of which type its attributes are. Attributes get
    // their named datatypes last.
    description.others.sort_by_key(|(name, _)| (name == TYPES_XATTR, !name.starts_with(FACT_PREFIX)));
    Ok(description)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_in_sequences_are_found_at_any_depth() {
        let tree = |text: &str| JsonTree::parse(text.as_bytes()).unwrap();
        let text = |tree: &JsonTree| String::from_utf8(tree.json()).unwrap();
        let reference = tree(r#"{"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}"#);
        let sequence = |base: &JsonTree| tree(&format!(r#"{{"class": "H5T_VLEN", "base": {}}}"#, text(base)));
        let compound = |of: &JsonTree| tree(&format!(r#"{{"class": "H5T_COMPOUND", "fields": [{{"name": "a", "type": {}}}]}}"#, text(of)));
        assert!(!has_reference_in_sequence(&reference, false));
        assert!(!has_reference_in_sequence(&compound(&reference), false));
        assert!(has_reference_in_sequence(&sequence(&reference), false));
        assert!(has_reference_in_sequence(&compound(&sequence(&compound(&reference))), false));
        assert!(!has_reference_in_sequence(&sequence(&tree(r#"{"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}"#)), false));
    }

    #[test]
    fn lines_are_copied_in_the_exact_form() {
        let text = br#"{"dtype":{"class":"H5T_STRING"},"shape":[2],"newlines":null}"#;
        let (definition, exact) = definition(text, Storage::Kept).unwrap();
        assert!(exact && definition == br#"{"dtype":{"class":"H5T_STRING"},"shape":[2]}"#);
        let text = br#"{"dtype":{"class":"H5T_INTEGER"},"shape":[2]}"#;
        assert_eq!(super::definition(text, Storage::Kept).unwrap(), (text.to_vec(), false));
        assert!(super::definition(b"[1]", Storage::Kept).is_err());
    }

    #[test]
    fn datasets_of_a_log_become_ordinary_ones() {
        let text = br#"{"dtype":"<i4","shape":[2],"layout":"log","profile":"plain"}"#;
        let kept = br#"{"dtype":"<i4","shape":[2],"layout":"log","profile":"plain","convert":"layout"}"#;
        assert_eq!(definition(text, Storage::Kept).unwrap().0, kept.to_vec());
        assert_eq!(definition(text, Storage::NoLog).unwrap().0, br#"{"dtype":"<i4","shape":[2]}"#.to_vec());
        let (text, kept) = (br#"{"dtype":"<i4","shape":[2],"layout":"chunked"}"#, br#""layout":"chunked","convert":"layout"}"#);
        assert!(definition(text, Storage::NoLog).unwrap().0.ends_with(kept));
    }

    #[test]
    fn datasets_become_ones_of_a_log() {
        let text = br#"{"dtype":"<i4","shape":[2],"layout":"chunked","chunks":[2],"filters":[{"id":1}]}"#;
        assert_eq!(definition(text, Storage::InLog).unwrap().0, br#"{"dtype":"<i4","shape":[2]}"#.to_vec());
    }
}
