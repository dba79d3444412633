//! The JSON schema of configuration files, made of the definitions of the options.

use super::create;
use super::file::{FILE_KEYS, MOUNT_KEYS};
use super::new_file_args::{NewFileOptions, SharedMessages};
use super::options::{LongOptions, choices};
use super::value::{
    Containers, ExternalFiles, Group, Mode, Patterns, Seconds, Size, Switch, Threads, Transaction, User, Version, WriterNumber,
};
use crate::fs::spec::ViewChoice;
use clap::{Arg, ArgAction, CommandFactory};
use serde_json::{Map, Value, json};
use std::any::TypeId;

/// The schema, draft 7, which most editors know.
pub(crate) fn schema() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Configuration of h5dir",
        "type": ["object", "null"],
        "additionalProperties": false,
        "properties": FILE_KEYS.iter().map(|key| ((*key).to_owned(), section(key))).collect::<Map<_, _>>(),
        "definitions": {
            "options": {"type": ["object", "null"], "additionalProperties": false, "properties": options()},
            "mount": {
                "type": "object",
                "additionalProperties": false,
                "required": ["source", "at"],
                "properties": mount(),
            },
            "create": {"type": ["array", "null"], "items": rule()},
        },
    })
}

fn reference(to: &str, description: &str) -> Value {
    // Draft 7 ignores what is beside a reference.
    json!({"description": description, "allOf": [{"$ref": format!("#/definitions/{to}")}]})
}

fn section(key: &str) -> Value {
    match key {
        "defaults" => reference("options", "Options of all mounts of this file"),
        "mount" => reference("options", "Options of 'h5dir mount --config', for a file and a mountpoint of the command line"),
        "create" => reference("create", "Rules for new files; the first that matches is used"),
        _ => json!({
            "description": "Mounts by their names, for 'h5dir mount NAME' and 'h5dir mount --all'",
            "type": ["object", "null"],
            "propertyNames": {"pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]*$", "maxLength": 128},
            "additionalProperties": {"$ref": "#/definitions/mount"},
        }),
    }
}

fn mount() -> Map<String, Value> {
    let own = MOUNT_KEYS.iter().map(|key| {
        let value = match *key {
            "source" => json!({"type": "string", "minLength": 1, "description": "FILE or FILE:/GROUP; relative to this file's directory"}),
            "at" => json!({"type": "string", "minLength": 1, "description": "The mountpoint, an existing directory"}),
            _ => reference("create", "Rules for new files, before those of the file"),
        };
        ((*key).to_owned(), value)
    });
    let shared = options().into_iter().map(|(name, _)| {
        let target = format!("#/definitions/options/properties/{name}");
        (name, json!({"$ref": target}))
    });
    own.chain(shared).collect()
}

fn options() -> Map<String, Value> {
    let command = LongOptions::command();
    let named = command.get_arguments().filter_map(|arg| Some((arg.get_long()?.to_owned(), option(arg))));
    let mut all: Vec<(String, Value)> = named.collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.into_iter().collect()
}

fn option(arg: &Arg) -> Value {
    let value = value(arg);
    let value =
        if matches!(arg.get_action(), ArgAction::Append) { json!({"anyOf": [value, {"type": "array", "items": value}]}) } else { value };
    let mut described = json!({"description": arg.get_help().map(ToString::to_string)});
    if let (Value::Object(described), Value::Object(value)) = (&mut described, value) {
        described.extend(value);
    }
    described
}

fn value(arg: &Arg) -> Value {
    let id = arg.get_value_parser().type_id();
    let choices = choices(arg);
    if id == TypeId::of::<Switch>() {
        return json!({"enum": [true, false, "on", "off", "yes", "no"]});
    }
    if id == TypeId::of::<ExternalFiles>() {
        return json!({"enum": [true, false, "on", "off", "yes", "no", "all"]});
    }
    if !choices.is_empty() {
        return json!({"enum": choices});
    }
    if id == TypeId::of::<Size>() {
        return json!({"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+(\\.[0-9]*)? *([KkMmGgTt]([Ii]?[Bb])?|[Bb])?$"});
    }
    if id == TypeId::of::<Seconds>() {
        return json!({"type": "number", "minimum": 0});
    }
    if id == TypeId::of::<Mode>() {
        return json!({"type": ["integer", "string"], "minimum": 0, "maximum": 777, "pattern": "^(0o)?0*[0-7]{1,3}$"});
    }
    if id == TypeId::of::<Threads>() {
        return json!({"type": "integer", "minimum": 1, "maximum": 256});
    }
    if id == TypeId::of::<WriterNumber>() {
        return json!({"type": "integer", "minimum": 1, "maximum": 1024});
    }
    if id == TypeId::of::<Containers>() {
        return json!({"type": "integer", "minimum": 1, "maximum": 1_000_000});
    }
    if id == TypeId::of::<Version>() {
        return json!({"type": ["integer", "string"], "minimum": 1, "pattern": "^[a-z0-9_-]{1,64}$"});
    }
    if id == TypeId::of::<Patterns>() || id == TypeId::of::<ViewChoice>() || id == TypeId::of::<Transaction>() {
        return json!({"type": "string", "minLength": 1});
    }
    if id == TypeId::of::<User>() || id == TypeId::of::<Group>() {
        return json!({"type": ["integer", "string"], "minimum": 0});
    }
    if id == TypeId::of::<u16>() {
        return json!({"type": "integer", "minimum": 1, "maximum": 32_767});
    }
    if id == TypeId::of::<SharedMessages>() {
        return json!({"type": "string", "minLength": 1});
    }
    if id == TypeId::of::<std::path::PathBuf>() {
        return json!({"type": "string", "minLength": 1});
    }
    json!({"type": ["string", "number", "boolean"]})
}

fn rule() -> Value {
    let dims = json!({"type": "array", "items": {"type": ["integer", "null"], "minimum": 0}});
    let property = |key: &str| match key {
        "pattern" => json!({"type": "string", "minLength": 1, "description": "Names, or paths if it has a slash: * ? ** [...]"}),
        "dtype" => json!({"type": ["string", "array", "object"], "description": "As user.h5dir.dtype"}),
        "shape" | "maxshape" => dims.clone(),
        "chunks" => json!({"anyOf": [{"enum": ["auto", "none"]}, {"type": "array", "items": {"type": "integer", "minimum": 1}}]}),
        "filters" => json!({"type": ["array", "string"], "description": "As user.h5dir.filters"}),
        "fillvalue" => json!({"description": "As user.h5dir.fillvalue"}),
        "profile" => json!({"type": "string", "description": "Of layout sparse: map, filter, structured"}),
        _ => json!({"type": "string", "description": "As user.h5dir.layout"}),
    };
    let command = NewFileOptions::command();
    let of_files = command.get_arguments().filter_map(|arg| Some((arg.get_long()?.to_owned(), option(arg))));
    let properties: Map<String, Value> = create::KEYS.iter().map(|key| ((*key).to_owned(), property(key))).chain(of_files).collect();
    json!({"type": "object", "additionalProperties": false, "required": ["pattern"], "properties": properties})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_schema_is_that_of_the_options() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/h5dir.schema.json");
        let shipped = std::fs::read_to_string(path).unwrap();
        assert_eq!(shipped, format!("{:#}\n", schema()), "make it again: h5dir config schema >docs/h5dir.schema.json");
    }

    #[test]
    fn options_have_types_and_descriptions() {
        let schema = schema();
        let options = &schema["definitions"]["options"]["properties"];
        assert_eq!(options["vds-missing"]["enum"], json!(["error", "fill"]));
        assert_eq!(options["log-level"]["enum"][0], "off");
        assert_eq!(options["threads"]["maximum"], 256);
        assert_eq!(options["read-write"]["enum"][0], true);
        for (name, option) in options.as_object().unwrap() {
            assert!(option["description"].as_str().is_some_and(|text| text.len() > 8), "{name}");
            assert_ne!(option["type"], json!(["string", "number", "boolean"]), "{name} has a type that the schema does not know");
        }
        let references = schema["definitions"]["mount"]["properties"].as_object().unwrap();
        assert_eq!(references.len(), options.as_object().unwrap().len() + MOUNT_KEYS.len());
    }
}
