//! Standard output of a command: closed pipes, and JSON documents of one or several arguments.

use super::failure::{Exit, Failure, reason};
use crate::base::escape;
use serde_json::Value;
use std::io::{self, Write};
use std::ops::ControlFlow;

/// Whether a command continues after output: not if its pipe is closed (`| head`).
pub(crate) fn printed(done: io::Result<()>) -> Result<ControlFlow<()>, Failure> {
    match done {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(e) => Err(Failure::new(Exit::General, format!("cannot write the output: {}", reason(&e)))),
    }
}

/// The end of a command whose last output is `end`.
pub(crate) fn ended(done: Result<(), Failure>, end: io::Result<()>) -> Result<(), Failure> {
    done?;
    printed(end).map(drop)
}

/// JSON documents: that of one argument, or a list of those of several.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    count: u64,
    is_list: bool,
}

impl Documents {
    /// Prints `document`; `several`: as an item of a list.
    pub(crate) fn add(&mut self, document: &Value, several: bool, out: &mut dyn Write) -> io::Result<()> {
        let gap = match (several, self.count) {
            (false, _) => "",
            (true, 0) => "[\n",
            (true, _) => ",\n",
        };
        self.is_list = several;
        self.count = self.count.saturating_add(1);
        write!(out, "{gap}{}", escape::json(&format!("{document:#}")))?;
        if several { Ok(()) } else { writeln!(out) }
    }

    /// Ends the list.
    pub(crate) fn end(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.is_list { writeln!(out, "\n]") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_documents_are_a_list() {
        let printed = |count: u64, several| {
            let (mut out, mut documents) = (Vec::new(), Documents::default());
            (0..count).try_for_each(|n| documents.add(&n.into(), several, &mut out)).and_then(|()| documents.end(&mut out)).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!([printed(1, false), printed(2, true), printed(0, true)], ["0\n", "[\n0,\n1\n]\n", ""]);
    }
}
