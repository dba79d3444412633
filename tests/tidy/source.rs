//! The sources of the project, with comments, literals and tests told apart.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Folders with Rust sources.
pub const SOURCES: [&str; 4] = ["src", "tests", "benches", "fuzz"];

/// A Rust source: its text, the same with comments and literals blanked, and its tests.
pub struct Source {
    pub path: String,
    pub text: String,
    /// `text` with everything blank that is a comment, a string or a character literal.
    pub code: String,
    /// Per line, whether it belongs to a test module.
    pub test: Vec<bool>,
}

impl Source {
    pub fn new(path: &str, text: String) -> Self {
        let code = blank(&text);
        let test = test_lines(&code);
        Source { path: path.to_owned(), text, code, test }
    }

    /// Numbered code lines outside tests.
    pub fn product(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().filter(|(i, _)| !self.test[*i]).map(|(i, l)| (i + 1, l))
    }
}

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Files below `directory`, as paths from the root, sorted; build output left out.
pub fn files(directory: &str) -> Vec<String> {
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

pub fn read(path: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(root().join(path)).unwrap()).into_owned()
}

pub fn sources() -> Vec<Source> {
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
        let module =
            next.trim_start_matches("pub ").trim_start_matches("pub(super) ").strip_prefix("mod ").and_then(|m| m.strip_suffix(';'));
        if let Some(module) = module {
            out.push(other.map_or_else(|| base.join(module), |p| parent.join(p)).to_string_lossy().into_owned());
        }
    }
    out
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
pub fn item_end(lines: &[&str], start: usize) -> usize {
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

/// The name of the function that this line of code begins.
pub fn function_name(line: &str) -> Option<&str> {
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

pub fn report(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
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
