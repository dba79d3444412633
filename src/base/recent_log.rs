//! The last log lines of this process, for users who do not read the system's log.

use crate::base::locks::Mutex;
use std::collections::VecDeque;

/// Most lines kept.
const LINES_MAX: usize = 256;
/// Longest line kept, bytes; the rest is cut off.
const LINE_BYTES_MAX: usize = 2048;

static LINES: Mutex<VecDeque<Vec<u8>>> = Mutex::new(VecDeque::new());

/// Adds a line, with its newline; forgets the oldest one when there are too many.
pub fn add(line: &[u8]) {
    let mut line = line.strip_suffix(b"\n").unwrap_or(line).to_vec();
    line.truncate(LINE_BYTES_MAX);
    line.push(b'\n');
    let mut lines = LINES.lock();
    if lines.len() >= LINES_MAX {
        lines.pop_front();
    }
    lines.push_back(line);
}

/// The lines, oldest first.
pub fn text() -> Vec<u8> {
    LINES.lock().iter().flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lines_go_first() {
        (0..LINES_MAX + 3).for_each(|n| add(format!("line {n}\n").as_bytes()));
        add(&[b'x'; LINE_BYTES_MAX * 2]);
        let text = text();
        let lines: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').collect();
        assert_eq!((lines.len(), lines.last().unwrap().len()), (LINES_MAX, LINE_BYTES_MAX + 1));
        assert!(lines[0] != b"line 0\n" && lines.iter().all(|l| l.ends_with(b"\n")));
    }
}
