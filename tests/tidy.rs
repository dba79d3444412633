//! Style test: the rules of the source tree that a machine can check.
//!
//! Layers import downwards only, files and functions stay short, each file says what it is, no
//! fixture lies around unused. Lists of exceptions only shrink: an entry that is no longer needed, or
//! allows more than is used, fails the test too.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What each layer may import, beside itself.
const LAYERS: [(&str, &[&str]); 12] = [
    ("base", &[]),
    ("format", &["base"]),
    ("file", &["base"]),
    ("meta", &["format", "file", "base"]),
    ("container", &["meta", "format", "file", "base"]),
    ("filter", &["format", "base"]),
    ("dataset", &["container", "filter", "meta", "format", "file", "base"]),
    ("connector", &["dataset", "container", "filter", "meta", "format", "file", "base"]),
    ("fs", &["connector", "base"]),
    ("fuse", &["fs", "base"]),
    ("config", &["cli", "fuse", "fs", "base"]),
    ("cli", &["config", "fuse", "fs", "base"]),
];
/// Imports that single files may have beyond that: file, layer, why.
const LAYER_EXCEPTIONS: [(&str, &str, &str); 4] = [
    ("src/fs/container.rs", "dataset", "the kinds of seek"),
    ("src/fs/file.rs", "dataset", "the kinds of seek"),
    ("src/fs/open.rs", "dataset", "builds the environment"),
    ("src/fs/open.rs", "file", "opens the driver"),
];
/// Longest file, lines, tests included.
const FILE_LINES: usize = 600;
/// Files that are longer, with their length.
const LONG_FILES: [(&str, usize); 0] = [];
/// Longest function, lines.
const FUNCTION_LINES: usize = 70;
/// Functions that are longer, with their length.
const LONG_FUNCTIONS: [(&str, &str, usize); 0] = [];
/// Folders with Rust sources.
const SOURCES: [&str; 4] = ["src", "tests", "benches", "fuzz"];
/// Text that may not be in a source.
const FORBIDDEN: [&str; 6] = ["todo!", "unimplemented!", "dbg!", "FIXME", "XXX", "#[ignore"];

/// A Rust source: its text, the same with comments and literals blanked, and its tests.
struct Source {
    path: String,
    text: String,
    /// `text` with everything blank that is a comment, a string or a character literal.
    code: String,
    /// Per line, whether it belongs to a test module.
    test: Vec<bool>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Files below `directory`, as paths from the root, sorted; build output left out.
fn files(directory: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut pending = vec![root().join(directory)];
    while let Some(at) = pending.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "target" | "corpus" | "artifacts" | "__pycache__") && !name.starts_with('.') {
                    pending.push(path);
                }
            } else {
                out.push(path.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    out.sort();
    out
}

fn read(path: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(root().join(path)).unwrap()).into_owned()
}

fn sources() -> Vec<Source> {
    let paths = SOURCES.iter().flat_map(|d| files(d)).filter(|p| p.ends_with(".rs"));
    let mut all: Vec<Source> = paths.map(|p| Source::new(&p, read(&p))).collect();
    mark_test_files(&mut all);
    assert!(all.len() > 100, "only {} sources found", all.len());
    all
}

/// Files named by `#[cfg(test)] mod name;`, and everything in tests/ and benches/, are tests.
fn mark_test_files(all: &mut [Source]) {
    let tests: BTreeSet<String> = all.iter().flat_map(test_modules).collect();
    for s in all.iter_mut() {
        let stem = s.path.trim_end_matches(".rs");
        let below = tests.iter().any(|t| stem == t || stem.starts_with(&format!("{t}/")));
        if below || s.path.starts_with("tests/") || s.path.starts_with("benches/") {
            s.test.iter_mut().for_each(|t| *t = true);
        }
    }
}

/// Paths, without `.rs`, of the test modules that `s` declares.
fn test_modules(s: &Source) -> Vec<String> {
    let path = Path::new(&s.path);
    let stem = path.file_stem().unwrap().to_str().unwrap();
    let parent = path.parent().unwrap();
    let base = if matches!(stem, "mod" | "lib" | "main") { parent.to_owned() } else { parent.join(stem) };
    let mut out = Vec::new();
    let mut lines = s.text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            continue;
        }
        let mut next = lines.next().unwrap_or_default();
        let other = next.strip_prefix("#[path = \"").and_then(|p| p.strip_suffix(".rs\"]"));
        if other.is_some() {
            next = lines.next().unwrap_or_default();
        }
        let module = next.trim_start_matches("pub ").strip_prefix("mod ").and_then(|m| m.strip_suffix(';'));
        if let Some(module) = module {
            out.push(other.map_or_else(|| base.join(module), |p| parent.join(p)).to_string_lossy().into_owned());
        }
    }
    out
}

impl Source {
    fn new(path: &str, text: String) -> Self {
        let code = blank(&text);
        let test = test_lines(&code);
        Source { path: path.to_owned(), text, code, test }
    }

    /// Numbered code lines outside tests.
    fn product(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().filter(|(i, _)| !self.test[*i]).map(|(i, l)| (i + 1, l))
    }
}

/// Lines of `#[cfg(test)] mod name { ... }`.
fn test_lines(code: &str) -> Vec<bool> {
    let lines: Vec<&str> = code.lines().collect();
    let mut test = vec![false; lines.len()];
    let mut i = 0;
    while i < lines.len() {
        if lines[i].trim() == "#[cfg(test)]" {
            let end = item_end(&lines, i + 1);
            test[i..=end].iter_mut().for_each(|t| *t = true);
            i = end;
        }
        i += 1;
    }
    test
}

/// Last line of the item that begins at line `start`: its closing brace, or a semicolon before any.
fn item_end(lines: &[&str], start: usize) -> usize {
    let mut depth = 0usize;
    let mut nested = 0usize;
    for (i, line) in lines.iter().enumerate().skip(start) {
        for c in line.chars() {
            match c {
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return i;
                    }
                }
                '(' | '[' => nested += 1,
                ')' | ']' => nested = nested.saturating_sub(1),
                ';' if depth == 0 && nested == 0 => return i,
                _ => {}
            }
        }
    }
    lines.len().saturating_sub(1)
}

/// Replaces comments, strings and character literals by spaces; line breaks stay.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let word_before = i > 0 && (at(i - 1).is_alphanumeric() || at(i - 1) == '_');
        let end = match at(i) {
            '/' if at(i + 1) == '/' => (i..chars.len()).find(|j| at(*j) == '\n').unwrap_or(chars.len()),
            '/' if at(i + 1) == '*' => block_comment_end(&chars, i),
            'b' | 'c' if !word_before && at(i + 1) == '"' => string_end(&chars, i + 2),
            'r' | 'b' if !word_before && raw_start(&chars, i).is_some() => raw_end(&chars, i),
            '"' => string_end(&chars, i + 1),
            '\'' if at(i + 1) == '\\' => (i + 3..chars.len()).find(|j| at(*j) == '\'').map_or(chars.len(), |j| j + 1),
            '\'' if at(i + 2) == '\'' => i + 3,
            _ => i,
        };
        if end == i {
            out.push(at(i));
            i += 1;
            continue;
        }
        (i..end).for_each(|j| out.push(if at(j) == '\n' { '\n' } else { ' ' }));
        i = end;
    }
    out
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut i = start;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => (depth, i) = (depth + 1, i + 1),
            ('*', '/') => {
                (depth, i) = (depth - 1, i + 1);
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
        i += 1;
    }
    chars.len()
}

/// After the quote that ends the string whose content begins at `i`.
fn string_end(chars: &[char], mut i: usize) -> usize {
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 1,
            '"' => return i + 1,
            _ => {}
        }
        i += 1;
    }
    chars.len()
}

/// Number of `#` and position after the opening quote of a raw string at `i`.
fn raw_start(chars: &[char], i: usize) -> Option<(usize, usize)> {
    let mut j = i;
    if chars[j] == 'b' {
        j += 1;
    }
    if chars.get(j) != Some(&'r') {
        return None;
    }
    let hashes = chars[j + 1..].iter().take_while(|c| **c == '#').count();
    (chars.get(j + 1 + hashes) == Some(&'"')).then_some((hashes, j + 2 + hashes))
}

fn raw_end(chars: &[char], i: usize) -> usize {
    let Some((hashes, start)) = raw_start(chars, i) else { return i };
    let closes = |j: &usize| chars[*j] == '"' && chars[j + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes;
    (start..chars.len()).find(closes).map_or(chars.len(), |j| j + 1 + hashes)
}

fn report(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

#[test]
fn layers_import_downwards_only() {
    let layers: BTreeMap<&str, &[&str]> = LAYERS.into();
    let mut used = BTreeSet::new();
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
                if name == own || allowed.contains(&name.as_str()) {
                    continue;
                }
                match LAYER_EXCEPTIONS.iter().find(|(file, layer, _)| *file == s.path && *layer == name) {
                    Some(exception) => drop(used.insert(*exception)),
                    None => found.push(format!("{}:{number}: {own} imports crate::{name}", s.path)),
                }
            }
        }
    }
    found.extend(LAYER_EXCEPTIONS.iter().filter(|e| !used.contains(*e)).map(|e| format!("exception not needed: {e:?}")));
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
fn files_are_short_and_say_what_they_are() {
    let mut found = Vec::new();
    let mut long: BTreeMap<&str, usize> = LONG_FILES.into();
    for s in sources() {
        if !s.text.starts_with("//! ") {
            found.push(format!("{}: does not begin with //!", s.path));
        }
        let lines = s.text.lines().count();
        let limit = long.remove(s.path.as_str());
        match limit {
            Some(limit) if lines < limit => found.push(format!("{}: {lines} lines now: shrink its entry ({limit})", s.path)),
            _ if lines > limit.unwrap_or(FILE_LINES) => found.push(format!("{}: {lines} lines", s.path)),
            _ => {}
        }
    }
    found.extend(long.keys().map(|p| format!("{p}: entry not needed")));
    report("files begin with //! and have at most 600 lines", &found);
}

#[test]
fn functions_are_short() {
    let mut found = Vec::new();
    let mut long: BTreeMap<(&str, &str), usize> = LONG_FUNCTIONS.iter().map(|(f, n, l)| ((*f, *n), *l)).collect();
    let all = sources();
    for s in &all {
        let lines: Vec<&str> = s.code.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else { continue };
            let length = item_end(&lines, i) - i + 1;
            let limit = long.remove(&(s.path.as_str(), name));
            match limit {
                Some(limit) if length < limit => {
                    found.push(format!("{}: {name} has {length} lines now: shrink its entry ({limit})", s.path))
                }
                _ if length > limit.unwrap_or(FUNCTION_LINES) => found.push(format!("{}:{}: {name} has {length} lines", s.path, i + 1)),
                _ => {}
            }
        }
    }
    found.extend(long.keys().map(|k| format!("{k:?}: entry not needed")));
    report("functions have at most 70 lines", &found);
}

/// The name of the function that this line of code begins.
fn function_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let name = loop {
        match words.next()? {
            "fn" => break words.next()?,
            w if w.starts_with("pub") || matches!(w, "const" | "unsafe" | "async" | "extern" | "default") => {}
            _ => return None,
        }
    };
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[test]
fn no_panic_by_unwrapping_outside_tests() {
    let mut found = Vec::new();
    for s in sources().iter().filter(|s| s.path.starts_with("src/")) {
        // A constant is evaluated by the compiler.
        let run = s.product().filter(|(_, l)| !l.trim_start_matches("pub ").starts_with("const "));
        let bad = run.filter(|(_, l)| [".unwrap()", ".expect(", "panic!(", "unreachable!("].iter().any(|w| l.contains(w)));
        found.extend(bad.map(|(n, l)| format!("{}:{n}: {}", s.path, l.trim())));
    }
    report("nothing is unwrapped outside tests", &found);
}

#[test]
fn sources_are_ascii_and_finished() {
    let mut found = Vec::new();
    for s in sources() {
        for (i, line) in s.text.lines().enumerate() {
            if !line.is_ascii() {
                found.push(format!("{}:{}: not ASCII", s.path, i + 1));
            }
            if s.path != "tests/tidy.rs" {
                let bad = FORBIDDEN.iter().filter(|w| line.contains(*w));
                found.extend(bad.map(|w| format!("{}:{}: {w}", s.path, i + 1)));
            }
        }
    }
    report("sources are ASCII and hold nothing unfinished", &found);
}

#[test]
fn every_fixture_is_used_and_can_be_made_again() {
    let is_maker = |p: &str| p.rsplit('/').next().is_some_and(|n| n.starts_with("make_"));
    let scripts = files("tests").into_iter().filter(|p| [".py", ".sh", "/run"].iter().any(|e| p.ends_with(e)));
    let rust = SOURCES.iter().flat_map(|d| files(d)).filter(|p| p.ends_with(".rs"));
    let users: Vec<String> = scripts.filter(|p| !is_maker(p)).chain(rust).map(|p| read(&p)).collect();
    let mut found = Vec::new();
    for path in files("tests/fixtures") {
        let (folder, name) = path.rsplit_once('/').unwrap();
        if is_maker(&path) {
            continue;
        }
        let folders = Path::new(folder).ancestors().take_while(|f| f.starts_with("tests/fixtures"));
        let mut beside = folders.flat_map(|f| std::fs::read_dir(root().join(f)).unwrap());
        if !beside.any(|e| is_maker(&e.unwrap().file_name().to_string_lossy())) {
            found.push(format!("{path}: no make_*.py beside or above it"));
        }
        // A test may read a folder as a whole, or build a name from its parts: stem + ".json".
        let stem = name.split('.').next().unwrap();
        let (quoted, dotted, folder) = (format!("\"{stem}\""), format!("{stem}."), format!("{folder}\""));
        let uses =
            |u: &String| u.contains(name) || u.contains(&quoted) || u.contains(&dotted) || (u.contains(&folder) && u.contains("read_dir"));
        if !users.iter().any(uses) {
            found.push(format!("{path}: no test names it"));
        }
    }
    report("fixtures are used and have a script that makes them", &found);
}

#[test]
fn cases_of_pjdfstest_that_must_fail_are_documented() {
    let (list, text) = (read("tests/posix/excluded.txt"), read("docs/TESTING.md"));
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut told = BTreeSet::new();
    for row in text.lines().skip_while(|l| !l.starts_with("| suite | all |")).take_while(|l| l.starts_with('|')) {
        if let [_, suite, _, _, cases, _] = row.split('|').collect::<Vec<_>>()[..] {
            told.extend(quoted(cases).iter().map(|case| format!("{}::{case}", quoted(suite)[0])));
        }
    }
    assert_eq!(told, list.lines().filter(|l| !l.starts_with('#')).map(str::to_owned).collect(), "in the table, and in the list");
}

#[test]
fn documents_have_one_title() {
    let mut found = Vec::new();
    let documents = ["docs", "."].iter().flat_map(|d| files(d)).filter(|p| p.ends_with(".md")).collect::<BTreeSet<_>>();
    for path in documents {
        let text = read(&path);
        let mut fenced = false;
        let mut titles = 0;
        for line in text.lines() {
            fenced ^= line.trim_start().starts_with("```");
            titles += usize::from(!fenced && line.starts_with("# "));
        }
        if titles != 1 || !text.starts_with("# ") {
            found.push(format!("{path}: {titles} titles"));
        }
    }
    report("documents begin with their only title", &found);
}

#[test]
fn the_scanner_knows_comments_strings_and_characters() {
    let text = "a // x\nb /* {\n } */ c \"}\\\"\" 'x' '\\'' '\\u{7d}' r#\"}\"\"# b\"}\" &'a str\n";
    let code = blank(text);
    assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "b", "c", "&'a", "str"]);
    assert_eq!((code.lines().count(), code.contains('}')), (3, false));
    let source =
        Source::new("x.rs", "fn f() {\n    1\n}\n#[cfg(test)]\nmod t {\n    fn g() {}\n}\nfn h(a: [u8; 3]) -> u8\nwhere\n{ }\n".into());
    assert_eq!(source.product().filter_map(|(n, l)| Some((n, function_name(l)?))).collect::<Vec<_>>(), [(1, "f"), (8, "h")]);
    let lines: Vec<&str> = source.code.lines().collect();
    assert_eq!((item_end(&lines, 0), item_end(&lines, 4), item_end(&lines, 7)), (2, 6, 9));
}
