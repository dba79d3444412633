//! Which source imports which: layers import downwards only, and no files import each other in a circle.

use crate::source::{Source, report, sources};
use std::collections::{BTreeMap, BTreeSet};

/// What each layer may import, beside itself.
const LAYERS: [(&str, &[&str]); 16] = [
    ("base", &[]),
    ("format", &["base"]),
    ("file", &["base"]),
    ("meta", &["format", "file", "base"]),
    ("structures", &["meta", "format", "file", "base"]),
    ("filter", &["format", "base"]),
    ("dataset", &["structures", "filter", "meta", "format", "file", "base"]),
    ("iod", &["format", "file", "base"]),
    ("connector", &["dataset", "iod", "structures", "filter", "meta", "format", "file", "base"]),
    ("present", &["connector", "base"]),
    ("fs", &["present", "connector", "base"]),
    ("mirror", &["fs", "file", "base"]),
    ("fuse", &["fs", "base"]),
    ("config", &["fuse", "mirror", "fs", "base"]),
    ("cli", &["config", "fuse", "mirror", "fs", "base"]),
    // A crate of its own, which uses the public items of this one.
    ("plugin", &[]),
];

#[test]
fn layers_import_downwards_only() {
    let layers: BTreeMap<&str, &[&str]> = LAYERS.into();
    let mut found = Vec::new();
    for s in sources().iter().filter(|s| s.path.starts_with("src/") && s.path.matches('/').count() > 1) {
        let own = s.path.split('/').nth(1).unwrap();
        let Some(allowed) = layers.get(own) else {
            found.push(format!("{}: layer {own} is not in the table", s.path));
            continue;
        };
        for (number, line) in s.product() {
            for path in line.split("crate::").skip(1) {
                let name: String = path.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                if name != own && !allowed.contains(&name.as_str()) {
                    found.push(format!("{}:{number}: {own} imports crate::{name}", s.path));
                }
            }
        }
    }
    report("layers import downwards only", &found);
}

#[test]
fn only_the_fuse_layer_names_fuser() {
    let all = sources();
    let product = all.iter().filter(|s| s.path.starts_with("src/") && !s.path.starts_with("src/fuse/"));
    let found: Vec<String> = product.filter(|s| s.code.contains("fuser::")).map(|s| s.path.clone()).collect();
    report("fuser is named in src/fuse only", &found);
}

#[test]
fn only_the_remote_driver_names_its_crates() {
    let crates = ["tokio::", "object_store::", "reqwest::", "rustls::", "futures_util::"];
    let all = sources();
    let product = all.iter().filter(|s| s.path.starts_with("src/") && !s.path.starts_with("src/file/remote/"));
    let found: Vec<String> = product.filter(|s| crates.iter().any(|name| s.code.contains(name))).map(|s| s.path.clone()).collect();
    report("asynchronous crates are named in src/file/remote only", &found);
}

#[test]
fn permissions_between_layers_are_used_and_one_way() {
    let all = sources();
    let mut used = BTreeSet::new();
    for s in all.iter().filter(|s| s.path.starts_with("src/")) {
        let own = s.path.split('/').nth(1).unwrap().to_owned();
        for (_, line) in s.product() {
            for path in line.split("crate::").skip(1) {
                used.insert((own.clone(), path.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>()));
            }
        }
    }
    let mut found = Vec::new();
    for (layer, allowed) in LAYERS {
        for other in allowed {
            if !used.contains(&(layer.to_owned(), (*other).to_owned())) {
                found.push(format!("{layer} may import {other} and does not"));
            }
            let back = LAYERS.iter().any(|(name, allowed)| name == other && allowed.contains(&layer));
            if back && layer < other {
                found.push(format!("{layer} and {other} may import each other"));
            }
        }
    }
    report("permissions between layers are used and one way", &found);
}

/// Files of `src` by module path.
fn modules(all: &[Source]) -> BTreeMap<Vec<&str>, &Source> {
    let in_src = all.iter().filter_map(|s| Some((s.path.strip_prefix("src/")?.strip_suffix(".rs")?, s)));
    in_src.map(|(path, s)| (path.split('/').filter(|part| *part != "mod" && *part != "lib").collect(), s)).collect()
}

/// True if the file only declares and re-exports modules.
fn is_face(s: &Source) -> bool {
    let defines = ["fn ", "struct ", "enum ", "trait ", "impl ", "impl<", "const ", "static ", "type "];
    !s.product().any(|(_, line)| {
        let line = line.trim_start();
        let line = line.split_once(") ").filter(|_| line.starts_with("pub(")).map_or(line, |(_, rest)| rest);
        defines.iter().any(|word| line.trim_start_matches("pub ").starts_with(word))
    })
}

/// Paths that follow `use` in product code, with braces expanded.
fn used_paths(s: &Source) -> Vec<String> {
    let code: String = s.product().map(|(_, line)| format!("{line}\n")).collect();
    let mut paths = Vec::new();
    for statement in code.split("use ").skip(1) {
        let statement = statement.split(';').next().unwrap_or_default();
        expand("", statement, &mut paths);
    }
    // Paths that are not imported first.
    for word in ["crate::", "super::"] {
        for path in code.split(word).skip(1) {
            let path: String = path.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':')).collect();
            paths.push(format!("{word}{path}"));
        }
    }
    paths
}

/// Adds the paths of the use tree `tree` to `out`.
fn expand(prefix: &str, tree: &str, out: &mut Vec<String>) {
    let Some(open) = tree.find('{') else {
        out.push(format!("{prefix}{}", tree.split(" as ").next().unwrap_or_default().trim()));
        return;
    };
    let inner = tree.get(open + 1..tree.rfind('}').unwrap_or(tree.len())).unwrap_or_default();
    let prefix = format!("{prefix}{}", tree.get(..open).unwrap_or_default().trim());
    let (mut depth, mut start) = (0, 0);
    for (i, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inner.get(start..i).unwrap_or_default();
                if !part.trim().is_empty() {
                    expand(&prefix, part, out);
                }
                start = i + 1;
            }
            _ => {}
        }
    }
}

/// Files that each file imports, by path. Files that only re-export are seen through.
fn imports(all: &[Source]) -> BTreeMap<&str, BTreeSet<&str>> {
    let modules = modules(all);
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, s) in &modules {
        if is_face(s) || s.test.iter().all(|test| *test) {
            continue;
        }
        for path in used_paths(s) {
            let mut at: Vec<&str> = Vec::new();
            let mut parts = path.split("::").peekable();
            match parts.peek() {
                Some(&"crate") => drop(parts.next()),
                Some(&"super") => {
                    at = module.clone();
                    while parts.next_if_eq(&"super").is_some() {
                        at.pop();
                    }
                }
                _ => at.clone_from(module),
            }
            let mut target = None;
            for part in parts {
                at.push(part.trim());
                match modules.get(&at) {
                    Some(file) => target = Some(*file),
                    None => break,
                }
            }
            if let Some(target) = target.filter(|t| t.path != s.path && !is_face(t) && !t.test.iter().all(|test| *test)) {
                edges.entry(&s.path).or_default().insert(&target.path);
            }
        }
    }
    edges
}

/// Files that `from` reaches.
fn reachable<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut pending = vec![from];
    while let Some(at) = pending.pop() {
        pending.extend(edges.get(at).into_iter().flatten().filter(|next| seen.insert(**next)));
    }
    seen
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let all = sources();
    let edges = imports(&all);
    assert!(edges.len() > 200, "only {} files with imports found", edges.len());
    let mut circles: BTreeSet<BTreeSet<&str>> = BTreeSet::new();
    for file in edges.keys() {
        let reached = reachable(&edges, file);
        if reached.contains(file) {
            circles.insert(reached.into_iter().filter(|other| reachable(&edges, other).contains(file)).collect());
        }
    }
    let found: Vec<String> = circles.iter().map(|c| c.iter().copied().collect::<Vec<_>>().join(", ")).collect();
    report("no files import each other in a circle", &found);
}

#[test]
fn use_trees_are_expanded() {
    let mut out = Vec::new();
    expand("", "crate::a::{self, b::{C, D as E}, f}", &mut out);
    assert_eq!(out, ["crate::a::self", "crate::a::b::C", "crate::a::b::D", "crate::a::f"]);
}
