//! Sessions of what makes datasets anew or changes which chunks they have.

use super::sessions::{Operations, Recording, objects};
use h5dir::connector::{Connector, Form, ObjectId, ObjectKind};
use h5dir::present;

/// Structures and what is done to them.
pub const SESSIONS: [(&str, &str, Operations); 12] = [
    ("vlen_earliest", "lines", lines),
    ("vlen_latest", "lines", lines),
    ("pages", "lines", lines),
    ("chunks_v110", "facts", facts),
    ("chunks_earliest", "facts", facts),
    ("layouts_latest", "facts", facts),
    ("chunks_latest", "punch", punch),
    ("chunks_earliest", "punch", punch),
    ("chunks_earliest", "copy", copy),
    ("chunks_latest", "copy", copy),
    ("groups_latest", "stream", stream),
    ("pages", "stream", stream),
];

fn datasets(r: &Recording) -> Vec<(ObjectId, u64)> {
    let size = |id| r.connector.content(id, Form::Main).and_then(|c| c.size()).unwrap_or(0);
    objects(&*r.connector, ObjectKind::Dataset)
        .into_iter()
        .map(|(_, id)| (id, size(id)))
        .filter(|(_, n)| (1..1 << 24).contains(n))
        .collect()
}

/// Variable-length strings, rewritten as lines.
fn lines(r: &mut Recording) {
    let root = r.connector.root();
    let Some(id) = r.get(|e| e.create_file(root, b"zz lines")) else { return };
    r.edited(|e| e.set_fact(id, "dataset", br#"{"dtype": "str", "shape": [3]}"#));
    r.commit();
    let strings: Vec<_> = datasets(r).into_iter().map(|(id, _)| id).chain([id]).collect();
    for id in strings {
        let dtype = present::fact(&*r.connector, id, "dtype").ok().flatten().unwrap_or_default();
        if !dtype.starts_with(br#"{"class":"H5T_STRING""#) {
            continue;
        }
        for text in ["a first line\n\nthe third\n", "1\n2\nonly the last of them is a longer one than before\n", "\n\n\n"] {
            r.edit().hold(id);
            let done = r.done(|e| e.set_size(id, 0)) && r.done(|e| e.write(id, 0, text.as_bytes())) && r.done(|e| e.finish(id, true));
            r.edit().release(id);
            if done {
                r.commit();
            }
        }
    }
}

/// Other chunks, filters and shapes.
fn facts(r: &mut Recording) {
    for (id, size) in datasets(r).into_iter().take(4) {
        r.done(|e| e.write(id, size / 2, &[0x5a]));
        for (name, text) in [
            ("chunks", "[3, 4]"),
            ("filters", r#"["shuffle", "deflate 1"]"#),
            ("shape", "[6, 5]"),
            ("layout", "contiguous"),
            ("chunks", "[5]"),
        ] {
            if r.edited(|e| e.set_fact(id, name, text.as_bytes())) {
                r.commit();
            }
        }
    }
}

/// Ranges become zero, whole datasets too, and are allocated and written again.
fn punch(r: &mut Recording) {
    for (id, size) in datasets(r) {
        if r.done(|e| e.zero(id, size / 4, size / 2)) {
            r.commit();
        }
        if r.done(|e| e.zero(id, 0, size)) && r.done(|e| e.allocate().unwrap().allocate(id, size / 2, size / 2)) {
            r.commit();
        }
        if r.done(|e| e.write(id, size / 3, &[0xa5; 2])) {
            r.commit();
        }
    }
}

/// Chunks are copied to other datasets, and to other places of the same one.
fn copy(r: &mut Recording) {
    let all = datasets(r);
    for ((from, size), (to, _)) in all.iter().zip(all.iter().cycle().skip(1)) {
        r.done(|e| e.write(*from, 5, &[0xee; 20]));
        if r.done(|e| e.copy_range().unwrap().copy_range((*from, 0), (*to, 0), *size)) {
            r.commit();
        }
        // Two rows of chunks on, where a dataset may grow.
        if r.done(|e| e.copy_range().unwrap().copy_range((*from, 0), (*from, size / 5 * 8), size / 5 * 2)) {
            r.commit();
        }
    }
}

/// A new file grows, and gets larger chunks: empty, and with elements.
fn stream(r: &mut Recording) {
    let root = r.connector.root();
    let Some(id) = r.get(|e| e.create_file(root, b"zz stream")) else { return };
    r.commit();
    r.get(|e| e.write(id, 0, &[1; 100]));
    r.commit();
    r.get(|e| e.write(id, (1 << 20) - 9000, &[2; 100]));
    r.commit();
    r.get(|e| e.write(id, (1 << 20) - 50, &[3; 100]));
    r.commit();
    let Some(id) = r.get(|e| e.create_file(root, b"zz at once")) else { return };
    r.get(|e| e.write(id, 0, &[4; 33_000]));
    r.commit();
}
