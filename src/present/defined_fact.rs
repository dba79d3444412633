//! The defined elements of a sparse dataset as facts: `user.h5dir.defined`, then `defined2`,
//! `defined3`, ... of the elements that follow.
//!
//! Each is a text about a range of elements, in row-major numbers, `FIRST:END`, and the runs of
//! defined elements in it, ` GAP+LENGTH`: so many undefined elements, and so many defined ones. A
//! copy by programs gets its defined elements from these: holes do not show them where the fill
//! value is not zero, and programs do not copy holes exactly.

use crate::base::{Address, Error, Result};
use crate::connector::edit::Edit;
use crate::connector::exchange::{self, Object, Slabs};
use crate::connector::{Connector, DatasetInfo, ObjectId};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

/// Name of the first fact.
const NAME: &str = "defined";
/// Longest text of one fact, bytes: less than an extended attribute may have.
const FACT_BYTES: u64 = 60 << 10;
/// Most facts of one dataset.
const FACTS_MAX: usize = 64;
/// Most runs in one text.
const RUNS_MAX: usize = 1 << 22;

fn invalid(reason: impl Into<Cow<'static, str>>) -> Error {
    Error::refused(libc::EINVAL, reason)
}

/// Number of the fact `name`, from 0 on; `None` if it is another one.
pub fn number(name: &str) -> Option<u64> {
    match name.strip_prefix(NAME)? {
        "" => Some(0),
        rest => rest.parse::<u64>().ok().filter(|n| *n >= 2 && n.to_string() == rest).map(|n| n.saturating_sub(1)),
    }
}

/// True if the fact `name` sets defined elements.
pub fn is_defined_fact(name: &str) -> bool {
    number(name).is_some()
}

/// Name of the fact with number `number`.
pub fn name(number: usize) -> Cow<'static, str> {
    if number == 0 { NAME.into() } else { format!("{NAME}{}", number.saturating_add(1)).into() }
}

/// Texts of the facts of one dataset.
pub struct DefinedTexts {
    texts: Vec<String>,
    /// They have all defined elements.
    is_complete: bool,
}

impl DefinedTexts {
    /// Of the dataset `id`; none if it does not know which elements are defined.
    pub fn of(connector: &dyn Connector, id: ObjectId) -> Result<Self> {
        let mut all = DefinedTexts { texts: Vec::new(), is_complete: true };
        let dataset = connector.dataset(id)?;
        if knows(connector, id, &dataset) {
            texts(connector, id, &dataset, FACT_BYTES, &mut |text| {
                all.is_complete = all.texts.len() < FACTS_MAX;
                if all.is_complete {
                    all.texts.push(text);
                }
                all.is_complete
            })?;
        }
        Ok(all)
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Number of texts; `None`: the defined elements take more.
    pub fn count(&self) -> Option<usize> {
        self.is_complete.then_some(self.texts.len())
    }

    /// Text of the fact `name`; `None` if it is another one.
    pub fn text(&self, name: &str) -> Option<&[u8]> {
        self.texts.get(usize::try_from(number(name)?).ok()?).map(String::as_bytes)
    }
}

/// Text of the fact `name` of the dataset `id`.
pub fn text(connector: &dyn Connector, id: ObjectId, name: &str) -> Result<Option<Vec<u8>>> {
    Ok(DefinedTexts::of(connector, id)?.text(name).map(<[u8]>::to_vec))
}

/// All defined elements of the dataset `id` in one text of at most `limit` bytes; `None` if it does
/// not know which are.
pub fn whole(connector: &dyn Connector, id: ObjectId, limit: u64) -> Result<Option<Vec<u8>>> {
    let dataset = connector.dataset(id)?;
    if !knows(connector, id, &dataset) {
        return Ok(None);
    }
    let (mut count, mut found) = (0u64, None);
    texts(connector, id, &dataset, limit, &mut |text| {
        (count, found) = (count.saturating_add(1), Some(text.into_bytes()));
        count < 2
    })?;
    if count > 1 {
        return Err(Error::limit("value", Address::UNDEF, "the defined elements take more than their reader allows"));
    }
    Ok(found)
}

fn knows(connector: &dyn Connector, id: ObjectId, dataset: &DatasetInfo) -> bool {
    exchange::knows_defined(Object { connector, id }, dataset)
}

/// Writes the text of a range of elements.
struct Writer {
    first: u64,
    /// End of the last run.
    at: u64,
    runs: String,
}

impl Writer {
    fn add(&mut self, run: &Range<u64>) {
        let _ = write!(self.runs, " {}+{}", run.start.saturating_sub(self.at), run.end.saturating_sub(run.start));
        self.at = run.end;
    }

    fn text(&self, end: u64) -> String {
        format!("{}:{end}{}", self.first, self.runs)
    }
}

/// Calls `f` with the texts of about `limit` bytes that together describe all elements, until it
/// returns false.
fn texts(connector: &dyn Connector, id: ObjectId, dataset: &DatasetInfo, limit: u64, f: &mut dyn FnMut(String) -> bool) -> Result<()> {
    let mut writer = Writer { first: 0, at: 0, runs: String::new() };
    // The next steps may extend it.
    let mut last: Option<Range<u64>> = None;
    let (mut end, mut more) = (0u64, true);
    let mut put = |writer: &mut Writer, run: Range<u64>, more: &mut bool| {
        // A run takes 42 bytes at most, and the range as many.
        if *more && !writer.runs.is_empty() && (writer.runs.len() as u64).saturating_add(84) > limit {
            *more = f(writer.text(run.start));
            *writer = Writer { first: run.start, at: run.start, runs: String::new() };
        }
        writer.add(&run);
    };
    let mut slabs = Slabs::of(dataset);
    while let Some((slab, runs)) = slabs.next(&|slab| exchange::defined_runs(Object { connector, id }, dataset, slab))? {
        if !more {
            break;
        }
        end = slab.elements.end;
        for run in runs {
            match &mut last {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => last.replace(run).into_iter().for_each(|run| put(&mut writer, run, &mut more)),
            }
        }
    }
    last.into_iter().for_each(|run| put(&mut writer, run, &mut more));
    if more {
        f(writer.text(end));
    }
    Ok(())
}

/// The range and the runs of a text.
fn parse(text: &[u8]) -> Result<(Range<u64>, Vec<Range<u64>>)> {
    let wrong = || invalid("defined elements are FIRST:END and GAP+LENGTH of each run, in elements");
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    let numbers = |part: &str, sign: char| -> Option<(u64, u64)> {
        let (a, b) = part.split_once(sign)?;
        Some((a.parse().ok()?, b.parse().ok()?))
    };
    let mut parts = text.split_ascii_whitespace();
    let (first, end) = parts.next().and_then(|part| numbers(part, ':')).filter(|(first, end)| first <= end).ok_or_else(wrong)?;
    let (mut at, mut runs) = (first, Vec::new());
    for part in parts {
        let (gap, len) = numbers(part, '+').filter(|(_, len)| *len > 0).ok_or_else(wrong)?;
        let start = at.checked_add(gap).ok_or_else(wrong)?;
        at = start.checked_add(len).filter(|at| *at <= end).ok_or_else(wrong)?;
        if runs.len() >= RUNS_MAX {
            return Err(Error::refused(libc::EFBIG, format!("more than {RUNS_MAX} runs of defined elements")));
        }
        runs.push(start..at);
    }
    Ok((first..end, runs))
}

/// Sets which elements of the dataset `id` are defined from the text of a fact. No value changes:
/// elements with another value than the fill value stay defined.
pub fn set(connector: &dyn Connector, edit: &dyn Edit, id: ObjectId, text: &[u8]) -> Result<()> {
    let (range, runs) = parse(text)?;
    let dataset = connector.dataset(id)?;
    let total = dataset.shape.count().unwrap_or(0);
    // Programs may set what a new file is after this.
    if !dataset.is_bytes_file && range.end > total {
        return Err(invalid(format!("element {} of a dataset of {total}", range.end)));
    }
    if range.is_empty() {
        return Ok(());
    }
    if !dataset.is_bytes_file && !knows(connector, id, &dataset) {
        // All of its elements are defined.
        let reason = "the dataset does not know which of its elements are defined; all are";
        return if runs == [range] { Ok(()) } else { Err(Error::refused(libc::EOPNOTSUPP, reason)) };
    }
    let none = || Error::refused(libc::EOPNOTSUPP, "the container has no undefined elements");
    edit.erase().ok_or_else(none)?.set_defined(id, range, &runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_numbered_from_two() {
        let names = ["defined", "defined2", "defined64", "defined1", "defined02", "defined0", "define", "defined+3"];
        assert_eq!(names.map(number), [Some(0), Some(1), Some(63), None, None, None, None, None]);
    }

    #[test]
    fn texts_are_parsed_as_they_were_written() {
        let mut writer = Writer { first: 10, at: 10, runs: String::new() };
        [10..12, 20..21].iter().for_each(|run| writer.add(run));
        assert_eq!(writer.text(30), "10:30 0+2 8+1");
        assert_eq!(parse(b"10:30 0+2 8+1\n").unwrap(), (10..30, vec![10..12, 20..21]));
        assert_eq!(parse(b"0:0").unwrap(), (0..0, vec![]));
        let max = u64::MAX.to_string();
        for wrong in ["", "5", "5:3", "0:9 1", "0:9 1+0", "0:9 1+9", "0:9 -1+2", "0:9 5+4 1+1", &format!("0:{max} {max}+1 1+1")] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
