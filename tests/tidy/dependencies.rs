//! The crates that the program is built from: licences, sources, versions, and their list in
//! docs/DEPENDENCIES.md.
//!
//! What needs a database of the network, such as security advisories, is not asked here.

use super::source::{read, report, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Licences that may be asked for.
const LICENCES: [&str; 12] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "bzip2-1.0.6",
];

/// Crates that are built in several versions, which other crates ask for: small ones, or used while
/// building alone.
const SEVERAL_VERSIONS: [&str; 5] = ["crypto-common", "digest", "getrandom", "miniz_oxide", "syn"];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Packages of the lock file that are built here.
fn packages() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    let platform = format!("--filter-platform={}-unknown-linux-gnu", std::env::consts::ARCH);
    cargo.args(["metadata", "--format-version=1", "--locked", &platform]);
    let output = cargo.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or("")
}

/// True if an SPDX expression can be satisfied with `LICENCES`. `/` is an older "OR".
fn is_permitted(expression: &str) -> bool {
    let expression = expression.trim();
    let closes = |e: &str| {
        let depths = e.chars().scan(0i32, |depth, c| {
            *depth += i32::from(c == '(') - i32::from(c == ')');
            Some(*depth)
        });
        depths.take(e.len().saturating_sub(1)).all(|depth| depth > 0)
    };
    if expression.starts_with('(') && expression.ends_with(')') && closes(expression) {
        return is_permitted(&expression[1..expression.len() - 1]);
    }
    for (operator, any) in [(" OR ", true), ("/", true), (" AND ", false)] {
        let parts = split_outside(expression, operator);
        if parts.len() > 1 {
            return if any { parts.iter().any(|p| is_permitted(p)) } else { parts.iter().all(|p| is_permitted(p)) };
        }
    }
    LICENCES.contains(&expression)
}

/// Parts of an expression between operators outside of parentheses.
fn split_outside<'a>(expression: &'a str, operator: &str) -> Vec<&'a str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (i, c) in expression.char_indices() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth == 0 && i >= from && expression[i..].starts_with(operator) {
            parts.push(&expression[from..i]);
            from = i + operator.len();
        }
    }
    parts.push(&expression[from..]);
    parts
}

#[test]
fn licences_are_evaluated() {
    for (expression, permitted) in [
        ("MIT", true),
        ("MIT OR GPL-3.0", true),
        ("MIT AND GPL-3.0", false),
        ("MIT/Apache-2.0", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(MIT OR Apache-2.0) AND (GPL-3.0 OR AGPL-3.0)", false),
        ("(MIT AND GPL-3.0) OR (GPL-3.0)", false),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
        ("", false),
    ] {
        assert_eq!(is_permitted(expression), permitted, "{expression}");
    }
}

#[test]
fn crates_have_permitted_licences_and_come_from_crates_io() {
    let mut found = Vec::new();
    let own = root().join("src").join("plugin");
    let is_own = |p: &&Value| [&root(), &own].iter().any(|folder| folder.join("Cargo.toml").as_os_str() == text(p, "manifest_path"));
    for p in packages().iter().filter(|p| !is_own(p)) {
        if !is_permitted(text(p, "license")) {
            found.push(format!("{} {}: licence {:?}", text(p, "name"), text(p, "version"), text(p, "license")));
        }
        if text(p, "source") != CRATES_IO {
            found.push(format!("{} {}: from {:?}", text(p, "name"), text(p, "version"), text(p, "source")));
        }
    }
    report("crates have permitted licences and come from crates.io", &found);
}

#[test]
fn each_crate_is_built_in_one_version() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for p in packages() {
        versions.entry(text(&p, "name").to_owned()).or_default().insert(text(&p, "version").to_owned());
    }
    let several: Vec<&String> = versions.iter().filter(|(_, v)| v.len() > 1).map(|(name, _)| name).collect();
    assert_eq!(several, SEVERAL_VERSIONS, "crates in several versions");
}

#[test]
fn direct_dependencies_are_listed_with_their_versions() {
    let all = packages();
    let document = read("docs/DEPENDENCIES.md");
    let rows: Vec<Vec<&str>> = document.lines().filter(|l| l.starts_with("| ")).map(|l| l.split('|').map(str::trim).collect()).collect();
    let product = all.iter().find(|p| text(p, "name") == "h5dir").unwrap();
    let mut found = Vec::new();
    for d in product["dependencies"].as_array().unwrap().iter().filter(|d| d["kind"].is_null()) {
        let name = text(d, "name");
        let versions: Vec<&str> = all.iter().filter(|p| text(p, "name") == name).map(|p| text(p, "version")).collect();
        let row = rows.iter().find(|row| row[1].split(' ').next() == Some(name));
        match row {
            None => found.push(format!("{name} is not listed")),
            Some(row) if !versions.iter().any(|v| v.split('+').next().unwrap().starts_with(row[2])) => {
                found.push(format!("{name} is listed as {}, and built as {versions:?}", row[2]));
            }
            Some(_) => {}
        }
    }
    report("docs/DEPENDENCIES.md lists the direct dependencies", &found);
}
