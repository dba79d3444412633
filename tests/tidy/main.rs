//! Style test: the rules of the source tree that a machine can check.
//!
//! Layers import downwards only, files and functions stay short, each file says what it is, no
//! fixture lies around unused. Lists of exceptions only shrink: an entry that is no longer needed, or
//! allows more than is used, fails the test too.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod dependencies;
mod imports;
mod source;

use source::{SOURCES, files, function_name, item_end, read, report, root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Longest file, lines, tests included.
const FILE_LINES: usize = 600;
/// Files that are longer, with their length.
const LONG_FILES: [(&str, usize); 0] = [];
/// Longest function, lines.
const FUNCTION_LINES: usize = 70;
/// Functions that are longer, with their length.
const LONG_FUNCTIONS: [(&str, &str, usize); 0] = [];
/// Text that may not be in a source.
const FORBIDDEN: [&str; 6] = ["todo!", "unimplemented!", "dbg!", "FIXME", "XXX", "#[ignore"];

/// Longest line of a document or a comment, characters.
const TEXT_COLUMNS: usize = 100;
/// Paraphrases of the field's words, in lower case. Each stands for whole words.
const PARAPHRASES: [&str; 30] = [
    "nobody",
    "nobody's",
    "somebody",
    "whoever",
    "told",
    "tells",
    "is told",
    "made good",
    "make good",
    "given back",
    "give back",
    "gives back",
    "taken back",
    "take back",
    "takes back",
    "looked at again",
    "lies behind",
    "behind it",
    "behind the end",
    "behind its end",
    "goes on to",
    "said of",
    "said about",
    "is said",
    "was said",
    "what is said",
    "that it tells",
    "the same, once",
    "see above",
    "for ever",
];
/// Names of `#[cfg(test)]` modules beside `tests` and `*_tests`.
const TEST_MODULES: [&str; 6] = ["cases", "edit_oracle", "golden", "oracle", "python", "testing"];

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
            if s.path != "tests/tidy/main.rs" {
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

/// The documents of the project.
fn documents() -> BTreeSet<String> {
    ["docs", "."].iter().flat_map(|d| files(d)).filter(|p| p.ends_with(".md")).collect()
}

/// The first paraphrase in `line`. Text in backquotes is not looked at.
fn paraphrase(line: &str) -> Option<&'static str> {
    let prose: String = line.to_lowercase().split('`').step_by(2).collect::<Vec<_>>().join(" ` ");
    let words: Vec<&str> = prose.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != ',').filter(|w| !w.is_empty()).collect();
    let prose = format!(" {} ", words.join(" "));
    let plain = prose.replace(',', "");
    PARAPHRASES.into_iter().find(|p| prose.contains(&format!(" {p} ")) || plain.contains(&format!(" {p} ")))
}

/// Faults of a text by the style sheet. `long`: its lines must be short.
fn style_faults(path: &str, text: &str, long: impl Fn(&str) -> bool) -> Vec<String> {
    let faults = text.lines().enumerate().flat_map(|(i, line)| {
        let columns = line.chars().count();
        let long = (columns > TEXT_COLUMNS && long(line)).then(|| format!("{columns} columns"));
        let paraphrase = paraphrase(line).map(|p| format!("'{p}'"));
        [long, paraphrase].into_iter().flatten().map(move |why| format!("{path}:{}: {why}", i + 1))
    });
    faults.collect()
}

#[test]
fn documents_meet_the_style_sheet() {
    // An address in a table cannot be broken.
    let is_long = |line: &str| !(line.starts_with('|') && line.contains("http"));
    let found: Vec<String> = documents().iter().flat_map(|path| style_faults(path, &read(path), is_long)).collect();
    report("documents have lines of at most 100 characters, and no paraphrases", &found);
}

#[test]
fn sources_meet_the_style_sheet() {
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let all = sources();
    let product = all.iter().filter(|s| s.path.starts_with("src/"));
    let found: Vec<String> = product.flat_map(|s| style_faults(&s.path, &s.text, is_comment)).collect();
    report("sources have comments of at most 100 characters, and no paraphrases", &found);
}

#[test]
fn paraphrases_are_found_as_whole_words() {
    assert_eq!(paraphrase("/// Nobody, it is."), Some("nobody"));
    assert_eq!(paraphrase("// The same, once more"), Some("the same, once"));
    assert_eq!(paraphrase("user `nobody` mounts, tellstale"), None);
}

#[test]
fn test_modules_can_be_found_by_name() {
    let mut found = Vec::new();
    for s in sources().iter().filter(|s| s.path.starts_with("src/")) {
        let mut lines = s.text.lines().map(str::trim).enumerate();
        while let Some((number, line)) = lines.next() {
            if line != "#[cfg(test)]" {
                continue;
            }
            let next = lines.find(|(_, l)| !l.starts_with("#[")).map_or("", |(_, l)| l);
            let Some((_, rest)) = next.split_once("mod ").filter(|(before, _)| before.is_empty() || before.starts_with("pub")) else {
                continue;
            };
            let name = rest.trim_end_matches([' ', '{', ';', '}']);
            if name != "tests" && !name.ends_with("_tests") && !TEST_MODULES.contains(&name) {
                found.push(format!("{}:{}: {name}", s.path, number + 1));
            }
        }
    }
    report("test modules are called tests or *_tests", &found);
}

#[test]
fn documents_have_one_title() {
    let mut found = Vec::new();
    for path in documents() {
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
