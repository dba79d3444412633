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

/// Debug builds check the order of those locks.
#[test]
fn locks_are_those_of_base() {
    // By rank; tried in the order that waiting would forbid.
    let others = ["src/connector/native/access.rs", "src/connector/native/edit/mod.rs", "src/connector/iod/long_values.rs"];
    let all = sources();
    let product = all.iter().filter(|s| s.path.starts_with("src/") && !others.contains(&s.path.as_str()));
    let foreign = |s: &&Source| s.code.contains("parking_lot::") && !s.code.contains("Condvar") || s.code.contains("sync::Mutex<");
    let found: Vec<String> = product.filter(foreign).map(|s| s.path.clone()).collect();
    report("locks without a condition variable are those of base::locks", &found);
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

/// Names that the file re-exports, with the paths that they stand for.
fn reexports(s: &Source) -> Vec<(String, String)> {
    let code: String = s.product().map(|(_, line)| format!("{line}\n")).collect();
    let mut found = Vec::new();
    for statement in code.split(';') {
        let Some((head, tree)) = statement.rsplit_once("use ") else { continue };
        let visibility = head.rsplit('\n').next().unwrap_or_default().trim();
        if !visibility.starts_with("pub") {
            continue;
        }
        let mut leaves = Vec::new();
        expand_named("", tree, &mut leaves);
        found.extend(leaves);
    }
    found
}

/// Adds the names and paths of the use tree `tree` to `out`.
fn expand_named(prefix: &str, tree: &str, out: &mut Vec<(String, String)>) {
    let mut paths = Vec::new();
    // `expand` leaves aliases out.
    for part in split_tree(prefix, tree) {
        let (path, alias) = part.split_once(" as ").map_or((part.as_str(), None), |(path, alias)| (path, Some(alias.trim())));
        let path = path.trim().trim_end_matches("::self").to_owned();
        let name = alias.unwrap_or_else(|| path.rsplit("::").next().unwrap_or_default()).to_owned();
        paths.push((name, path));
    }
    out.append(&mut paths);
}

/// The leaves of the use tree `tree`, with their aliases.
fn split_tree(prefix: &str, tree: &str) -> Vec<String> {
    let marked = tree.replace(" as ", "@as@");
    let mut out = Vec::new();
    expand(prefix, &marked, &mut out);
    out.iter().map(|leaf| leaf.replace("@as@", " as ")).collect()
}

/// `path` as it is seen from `module`, from the root of the crate, and how many parts of it are
/// those of the module that it begins at.
fn absolute(module: &[&str], path: &str) -> (Vec<String>, usize) {
    let mut parts = path.split("::").map(str::trim).peekable();
    let mut at = match parts.peek() {
        Some(&"crate") => {
            parts.next();
            Vec::new()
        }
        _ => module.to_vec(),
    };
    while parts.next_if_eq(&"super").is_some() {
        at.pop();
    }
    let begin = at.len();
    at.extend(parts.filter(|part| *part != "self"));
    (at.into_iter().map(str::to_owned).collect(), begin)
}

/// Re-exports that one path leads through, at most.
const REEXPORTS_MAX: usize = 8;

/// Files of the tree, and what each re-exports.
struct Tree<'a> {
    modules: BTreeMap<Vec<&'a str>, &'a Source>,
    reexports: BTreeMap<&'a str, Vec<(String, String)>>,
}

impl<'a> Tree<'a> {
    /// The file that defines what `path` names, which begins at the module of its first `begin`
    /// parts. `None`: that module itself does, or none.
    fn definition(&self, (path, begin): (&[String], usize), depth: usize) -> Option<&'a Source> {
        let (mut at, mut file): (Vec<&str>, _) = (Vec::new(), None);
        let mut rest = path.iter().peekable();
        while let Some(part) = rest.peek() {
            at.push(part.as_str());
            match self.modules.get(&at) {
                Some(found) => file = Some(*found),
                None => {
                    at.pop();
                    break;
                }
            }
            rest.next();
        }
        let file = file?;
        let defined = (at.len() > begin).then_some(file);
        let Some(name) = rest.next().filter(|_| depth < REEXPORTS_MAX) else { return defined };
        for (shown, path) in self.reexports.get(file.path.as_str()).into_iter().flatten() {
            if shown == name {
                let (target, begin) = absolute(&at, path);
                if let Some(found) = self.definition((&target, begin), depth + 1).filter(|found| found.path != file.path) {
                    return Some(found);
                }
            }
        }
        defined
    }
}

/// Files that each file imports, by path. Names that are re-exported are those of the file that
/// defines them.
fn imports(all: &[Source]) -> BTreeMap<&str, BTreeSet<&str>> {
    let modules = modules(all);
    let reexports = modules.values().map(|s| (s.path.as_str(), reexports(s))).collect();
    let tree = Tree { modules, reexports };
    let is_test = |s: &Source| s.test.iter().all(|test| *test);
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, s) in tree.modules.iter().filter(|(_, s)| !is_face(s) && !is_test(s)) {
        for path in used_paths(s) {
            let (path, begin) = absolute(module, &path);
            let target = tree.definition((&path, begin), 0);
            if let Some(target) = target.filter(|t| t.path != s.path && !is_face(t) && !is_test(t)) {
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

#[test]
fn reexports_are_followed() {
    let source = |path: &str, code: &str| Source::new(path, code.to_owned());
    let all = [
        source("src/a/mod.rs", "mod b;\nmod c;\npub(crate) use b::{B, X as Y};\npub use c::C;\n"),
        source("src/a/b.rs", "use super::C;\nstruct B;\n"),
        source("src/a/c.rs", "use super::Y;\nstruct C;\n"),
        source("src/d.rs", "use crate::a::{self, B};\nuse super::E;\nstruct D;\n"),
    ];
    let edges = imports(&all);
    let of = |file: &str| edges.get(file).into_iter().flatten().copied().collect::<Vec<_>>();
    assert_eq!((of("src/a/b.rs"), of("src/a/c.rs"), of("src/d.rs")), (vec!["src/a/c.rs"], vec!["src/a/b.rs"], vec!["src/a/b.rs"]));
}
