//! `h5dir config`: checks and shows configuration files, and prints their schema.

use super::failure::{Exit, Failure, reason};
use super::text;
use crate::base::escape::{self, escaped};
use crate::config::args::{CheckConfigArgs, ConfigArgs, ConfigCommand, ShowConfigArgs};
use crate::config::catalog::Catalog;
use crate::config::file::{self, ConfigFile, Trust};
use crate::config::layers::{Layers, Origin};
use crate::config::problem::Problem;
use crate::config::resolve::{self, Resolved};
use crate::config::{effective, schema};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Column of the values of `config show`, and of their origins.
const VALUE_COLUMN: usize = 20;
const ORIGIN_COLUMN: usize = 30;

/// Runs `h5dir config`.
pub(crate) fn config(args: &ConfigArgs) -> Result<(), Failure> {
    match &args.command {
        ConfigCommand::Check(args) => check(args),
        ConfigCommand::Show(args) => show(args),
        ConfigCommand::Schema => print(&format!("{:#}\n", schema::schema())),
    }
}

fn print(output: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(output.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e)))),
        Ok(()) => Ok(()),
    }
}

/// Prints all problems of configuration files.
fn check(args: &CheckConfigArgs) -> Result<(), Failure> {
    let (mut output, mut count) = (String::new(), 0usize);
    let mut catalog = Catalog::default();
    if args.files.is_empty() {
        catalog = Catalog::read(None)?;
    }
    for path in &args.files {
        match file::read(path, Trust::Named) {
            Ok(file) => catalog.files.push(file),
            Err(e) => catalog.unreadable.push(e),
        }
    }
    for e in &catalog.unreadable {
        // Writing to a String does not fail.
        let _ = writeln!(output, "{}", escape::line(&e.0));
        count = count.saturating_add(1);
    }
    for file in &catalog.files {
        let problems = problems(file);
        count = count.saturating_add(problems.len());
        problems.iter().for_each(|problem| output.push_str(&problem.quoted(&file.path, &file.text)));
        if problems.is_empty() {
            let mounts = file.mounts.len();
            let _ = writeln!(output, "{}: {mounts} mount{}, no problems", escaped(&file.path), if mounts == 1 { "" } else { "s" });
        }
    }
    if catalog.files.is_empty() && count == 0 {
        output.push_str("no configuration files\n");
    }
    print(&output)?;
    match count {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::General, "the configuration has a problem")),
        n => Err(Failure::new(Exit::General, format!("the configuration has {n} problems"))),
    }
}

/// Problems of `file`, also those of options that contradict each other.
fn problems(file: &ConfigFile) -> Vec<Problem> {
    let mut all: Vec<Problem> = file.all_problems().into_iter().cloned().collect();
    for mount in &file.mounts {
        if let (Ok(()), Err(e)) = (file.usable_mount(mount), resolve::named(file, mount, Layers::default())) {
            all.push(Problem::new(mount.at, e.0));
        }
    }
    if let (Ok(()), Some((_, at)), Err(e)) = (file.usable(), file.single.places.first(), resolve::single_options(file)) {
        all.push(Problem::new(*at, e.0));
    }
    all.sort_by_key(|problem| (problem.at.line, problem.at.column));
    all
}

/// Shows the options of one mount, or of all.
fn show(args: &ShowConfigArgs) -> Result<(), Failure> {
    let catalog = Catalog::read(args.common.config.as_deref())?;
    let layers = Layers::of_command(&args.common)?;
    let found = match &args.name {
        Some(name) => vec![catalog.find(name)?],
        None => catalog.mounts(),
    };
    let (mut shown, mut failure) = (Vec::new(), None);
    for (file, mount) in found {
        match resolve::named(file, mount, layers.clone()) {
            Ok(resolved) => shown.push((mount.name.clone(), Shown::new(&resolved))),
            Err(e) if args.name.is_some() => return Err(e.into()),
            Err(e) => {
                super::print_error(&format!("{}: {e}", mount.name));
                failure = Some(Failure::reported(Exit::Usage));
            }
        }
    }
    for e in &catalog.unreadable {
        super::print_error(&e.0);
        failure = failure.or(args.name.is_none().then(|| Failure::reported(Exit::Usage)));
    }
    let output = if args.json {
        let all: Map<String, Value> = shown.iter().map(|(name, shown)| (name.clone(), shown.json())).collect();
        escape::json(&format!("{:#}\n", Value::Object(all))).into_owned()
    } else if args.yaml {
        format!("mounts:\n{}", shown.iter().map(|(name, shown)| shown.yaml(name)).collect::<String>())
    } else {
        shown.iter().map(|(name, shown)| shown.text(name)).collect::<Vec<_>>().join("\n")
    };
    print(&output)?;
    failure.map_or(Ok(()), Err)
}

/// Values of a mount with their origins.
struct Shown(Vec<(&'static str, Value, Origin)>);

impl Shown {
    fn new(resolved: &Resolved) -> Shown {
        Shown(effective::all(resolved).into_iter().map(|(name, value)| (name, value, resolved.layers.origin(name))).collect())
    }

    fn json(&self) -> Value {
        let one = |(name, value, origin): &(&'static str, Value, Origin)| {
            let from = match origin {
                Origin::CommandLine => json!({"from": "command line"}),
                Origin::File(path, line) => json!({"from": "file", "file": text::json(path.as_os_str().as_encoded_bytes()), "line": line}),
                Origin::Default => json!({"from": "default"}),
            };
            let mut entry = json!({"value": value});
            if let (Value::Object(entry), Value::Object(from)) = (&mut entry, from) {
                entry.extend(from);
            }
            ((*name).to_owned(), entry)
        };
        Value::Object(self.0.iter().map(one).collect())
    }

    fn text(&self, name: &str) -> String {
        let mut out = format!("{name}\n");
        for (name, value, origin) in &self.0 {
            let value =
                if *name == "create" { format!("{} rules", value.as_array().map_or(0, Vec::len)) } else { effective::text(name, value) };
            let value = escape::line(&value).into_owned();
            let _ = writeln!(out, "  {name:<VALUE_COLUMN$}{value:<ORIGIN_COLUMN$}  {origin}");
        }
        out
    }

    /// A mount of a configuration file. Defaults are comments.
    fn yaml(&self, name: &str) -> String {
        let mut out = format!("  {name}:\n");
        for (name, value, origin) in &self.0 {
            let value = match value {
                Value::String(text) => yaml_text(text),
                Value::Array(rules) => rules_as_yaml(rules),
                other => effective::text(name, other),
            };
            let mark = if *origin == Origin::Default { "# " } else { "" };
            let _ = writeln!(out, "    {mark}{name}: {value}  # {origin}");
        }
        out
    }
}

/// Text as a YAML scalar on one line, in quotes where it could be taken for something else.
fn yaml_text(text: &str) -> String {
    let plain = serde_yaml::to_string(text).ok().map(|yaml| yaml.trim_end().to_owned());
    // JSON in quotes is YAML.
    let quoted = || escape::json(&Value::from(text).to_string()).into_owned();
    plain.filter(|yaml| !yaml.contains(['\n', '#']) && escape::line(yaml) == yaml.as_str()).unwrap_or_else(quoted)
}

/// Rules in the flow style of YAML, which JSON is.
fn rules_as_yaml(rules: &[Value]) -> String {
    let flat = rules.iter().map(|rule| {
        let dataset = rule.get("dataset").and_then(Value::as_str).and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
        let mut flat = Map::from_iter([("pattern".to_owned(), rule.get("pattern").cloned().unwrap_or_default())]);
        flat.extend(dataset.unwrap_or_default());
        Value::Object(flat)
    });
    escape::json(&Value::Array(flat.collect()).to_string()).into_owned()
}
