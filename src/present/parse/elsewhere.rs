//! Where the elements of a new dataset are: lists of raw files, and of sources of virtual datasets.
//!
//! | key | item |
//! |---|---|
//! | `external` | `{"file": NAME, "offset": N, "size": N}`, or `[NAME, N, N]`; `null`: no end |
//! | `virtual` | `{"source": "FILE:/PATH", "select": SELECTION, "at": SELECTION}` |
//!
//! A selection has `start:stop:step` for each dimension, divided by commas, or one coordinate. The
//! stop `inf` is unlimited; `step*block` selects blocks of that many coordinates. Without a stop, a
//! dimension of `at` ends with the dataset, one of `select` where it has as many coordinates as
//! that of `at`.

use super::invalid;
use super::node::{Fields, Node};
use crate::base::hyperslab::{HyperslabDim, UNLIMITED};
use crate::base::{Result, limits};
use crate::connector::{Elsewhere, Segment, SourceMapping};

/// One dimension as it is written.
struct Slice {
    start: u64,
    /// `None`: open.
    stop: Option<u64>,
    step: u64,
    /// Coordinates of a block, if they are given.
    block: Option<u64>,
}

/// The list of raw files `node`.
pub(super) fn files(node: &Node) -> Result<Elsewhere> {
    let size = |node: Option<&Node>| match node {
        None | Some(Node::Null) => Ok(None),
        Some(Node::String(s)) if s == b"unlimited" => Ok(None),
        Some(size) => size.unsigned("the size of a segment").map(Some),
    };
    let one = |node: &Node| -> Result<Segment> {
        if let Node::Array(items) = node {
            let [name, offset, len] = items.as_slice() else { return Err(invalid("an external file is [NAME, OFFSET, SIZE]")) };
            let offset = offset.unsigned("the offset of a segment")?;
            return Ok(Segment { name: name.string("a file name")?.to_vec(), offset, size: size(Some(len))? });
        }
        let fields = Fields::new("an external file", node, &["file", "offset", "size"])?;
        let offset = fields.get("offset").map_or(Ok(0), |n| n.unsigned("the offset of a segment"))?;
        Ok(Segment { name: fields.need("file")?.string("a file name")?.to_vec(), offset, size: size(fields.get("size"))? })
    };
    node.array("external")?.iter().map(one).collect::<Result<_>>().map(Elsewhere::Files)
}

/// The list of sources `node` of a virtual dataset with the dimensions `shape`.
pub(super) fn sources(node: &Node, shape: &[u64]) -> Result<Elsewhere> {
    node.array("virtual")?.iter().map(|node| source(node, shape)).collect::<Result<_>>().map(Elsewhere::Datasets)
}

fn source(node: &Node, shape: &[u64]) -> Result<SourceMapping> {
    let fields = Fields::new("a source", node, &["source", "select", "at"])?;
    let name = fields.need("source")?.string("a source")?;
    // As everywhere, the last ":/" divides file and path.
    let Some(at) = memchr::memmem::rfind(name, b":/") else {
        return Err(invalid("a source is FILE:/PATH; .:/PATH is in the file of the virtual dataset"));
    };
    let (file, path) = name.split_at(at);
    let path = path.get(1..).unwrap_or_default();
    let printf = [file, path].iter().any(|part| memchr::memmem::find(part, b"%b").is_some());
    let text = |key: &str| match fields.get(key) {
        None | Some(Node::Null) => Ok(None),
        Some(text) => slices(text.string(key)?).map(Some),
    };
    let (select, at) = (text("select")?, text("at")?);
    let at = at.map(|slices| targets(&slices, shape)).transpose()?;
    let is_unlimited = at.as_ref().is_some_and(|dims| dims.iter().any(HyperslabDim::is_unlimited));
    let select = match (select, &at) {
        (None, _) if printf => return Err(invalid("a source with %b needs \"select\": the elements of one block")),
        (None, Some(at)) if is_unlimited => Some(at.iter().map(|_| Slice { start: 0, stop: None, step: 1, block: None }).collect()),
        (select, _) => select,
    };
    let whole: Vec<HyperslabDim> = shape.iter().map(|n| HyperslabDim::contiguous(0, *n)).collect();
    let partner = at.as_deref().unwrap_or(&whole);
    let select = select.map(|slices| selected(&slices, partner)).transpose()?;
    let at = match (at, &select) {
        (Some(at), Some(select)) if printf => Some(blocks(at, select)),
        (at, _) => at,
    };
    Ok(SourceMapping::new(file.to_vec(), path.to_vec(), select, at))
}

/// Reads a selection.
fn slices(text: &[u8]) -> Result<Vec<Slice>> {
    let text = std::str::from_utf8(text).map_err(|_| invalid("a selection is text"))?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| invalid(format!("{text:?} in a selection is no number")));
    let or = |text: Option<&str>, default: u64| text.map(str::trim).filter(|t| !t.is_empty()).map_or(Ok(default), number);
    let one = |text: &str| -> Result<Slice> {
        let mut parts = text.split(':');
        let (first, stop, step) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        if parts.next().is_some() {
            return Err(invalid(format!("{text:?} is no start:stop:step")));
        }
        let start = or(Some(first), 0)?;
        let Some(stop) = stop.map(str::trim) else {
            let end = number(first)?.checked_add(1).filter(|end| *end < UNLIMITED);
            let stop = end.ok_or_else(|| invalid("a coordinate exceeds 64 bits"))?;
            return Ok(Slice { start, stop: Some(stop), step: 1, block: None });
        };
        let stop = match stop {
            "" => None,
            "inf" | "unlimited" => Some(UNLIMITED),
            stop => Some(number(stop)?.min(UNLIMITED.saturating_sub(1))),
        };
        let (step, block) = step.map_or((None, None), |step| step.split_once('*').map_or((Some(step), None), |(s, b)| (Some(s), Some(b))));
        let slice = Slice { start, stop, step: or(step, 1)?, block: block.map(number).transpose()? };
        match slice.step == 0 || slice.block == Some(0) || slice.stop.is_some_and(|stop| stop < start) {
            true => Err(invalid(format!("{text:?} selects nothing, or ends before it begins"))),
            false => Ok(slice),
        }
    };
    let all: Vec<Slice> = text.split(',').map(one).collect::<Result<_>>()?;
    if all.len() > limits::RANK_MAX { Err(invalid("a selection of too many dimensions")) } else { Ok(all) }
}

impl Slice {
    /// The slice as it ends at `stop`.
    fn until(&self, stop: u64) -> Result<HyperslabDim> {
        let block = self.block.unwrap_or(1);
        if stop == UNLIMITED {
            return Ok(HyperslabDim { start: self.start, stride: self.step.max(block), count: UNLIMITED, block });
        }
        let len = stop.saturating_sub(self.start);
        if self.step == 1 && self.block.is_none() {
            return Ok(HyperslabDim::contiguous(self.start, len));
        }
        if block > self.step {
            return Err(invalid("blocks of a selection overlap"));
        }
        if self.block.is_some() && (1..block).contains(&(len % self.step)) {
            return Err(invalid("the last block of a selection is cut off"));
        }
        Ok(HyperslabDim { start: self.start, stride: self.step, count: len.div_ceil(self.step), block })
    }

    /// The slice with `n` coordinates.
    fn of(&self, n: u64) -> Result<HyperslabDim> {
        if n == UNLIMITED || self.step == 1 {
            return self.until(if n == UNLIMITED { n } else { self.start.saturating_add(n) });
        }
        let block = self.block.unwrap_or(1);
        Ok(HyperslabDim { start: self.start, stride: self.step, count: n / block.max(1), block })
    }
}

/// Coordinates that are selected in one dimension; [`UNLIMITED`] if that is so.
fn coordinates(dim: &HyperslabDim) -> u64 {
    if dim.is_unlimited() { UNLIMITED } else { dim.count.saturating_mul(dim.block) }
}

/// The elements of the virtual dataset.
fn targets(slices: &[Slice], shape: &[u64]) -> Result<Vec<HyperslabDim>> {
    if slices.len() != shape.len() {
        return Err(invalid(format!("\"at\" has {} dimensions, the dataset {}", slices.len(), shape.len())));
    }
    slices.iter().zip(shape).map(|(slice, extent)| slice.until(slice.stop.unwrap_or(*extent))).collect()
}

/// The elements of the source for those of the virtual dataset `at`.
fn selected(slices: &[Slice], at: &[HyperslabDim]) -> Result<Vec<HyperslabDim>> {
    // Of another rank: dimensions of one coordinate have no partner.
    let is_one = |slice: &Slice| slice.stop.is_some_and(|stop| stop.saturating_sub(slice.start) == 1);
    let partners: Vec<Option<&HyperslabDim>> = match slices.len() == at.len() {
        true => at.iter().map(Some).collect(),
        false => {
            let mut long: Vec<&HyperslabDim> = at.iter().filter(|dim| coordinates(dim) != 1).collect();
            let fits = long.len() == slices.iter().filter(|slice| !is_one(slice)).count();
            long.truncate(if fits { long.len() } else { 0 });
            let mut rest = long.into_iter();
            slices.iter().map(|slice| if is_one(slice) { None } else { rest.next() }).collect()
        }
    };
    let one = |(slice, partner): (&Slice, Option<&HyperslabDim>)| match (slice.stop, partner) {
        (Some(stop), _) => slice.until(stop),
        (None, Some(target)) => slice.of(coordinates(target)),
        (None, None) => Err(invalid("\"select\" has other dimensions than \"at\": each needs its end")),
    };
    slices.iter().zip(partners).map(one).collect()
}

/// `at` with blocks as long as `select`, one for each source.
fn blocks(at: Vec<HyperslabDim>, select: &[HyperslabDim]) -> Vec<HyperslabDim> {
    let same_rank = at.len() == select.len();
    let one = |(i, dim): (usize, HyperslabDim)| match select.get(i).filter(|_| same_rank && dim.is_unlimited() && dim.block == 1) {
        Some(source) => HyperslabDim { block: coordinates(source), stride: dim.stride.max(coordinates(source)), ..dim },
        None => dim,
    };
    at.into_iter().enumerate().map(one).collect()
}

/// The text of a selection.
pub(crate) fn selection_text(dims: &[HyperslabDim]) -> String {
    let one = |d: &HyperslabDim| {
        let span = |count: u64, block: u64| match count {
            0 => Some(0),
            n => n.saturating_sub(1).checked_mul(d.stride)?.checked_add(block),
        };
        let stop = match d.is_unlimited() {
            true => "inf".to_owned(),
            false => span(d.count, d.block).and_then(|n| n.checked_add(d.start)).map_or_else(|| "inf".to_owned(), |n| n.to_string()),
        };
        match (d.count, d.block) {
            (1, _) | (_, UNLIMITED) => format!("{}:{stop}", d.start),
            (_, 1) if d.stride == 1 => format!("{}:{stop}", d.start),
            (_, 1) => format!("{}:{stop}:{}", d.start, d.stride),
            (_, block) => format!("{}:{stop}:{}*{block}", d.start, d.stride),
        }
    };
    dims.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str, shape: &[u64]) -> Result<SourceMapping> {
        match sources(&Node::parse(json.as_bytes())?, shape)? {
            Elsewhere::Datasets(mut all) => Ok(all.pop().unwrap()),
            Elsewhere::Files(_) => unreachable!(),
        }
    }

    fn texts(json: &str, shape: &[u64]) -> (Option<String>, Option<String>) {
        let mapping = parsed(json, shape).unwrap();
        let (source, at) = mapping.regular();
        (source.map(selection_text), at.map(selection_text))
    }

    #[test]
    fn selections_are_completed() {
        let some = |a: &str, b: &str| (Some(a.to_owned()), Some(b.to_owned()));
        assert_eq!(texts(r#"[{"source": "a.h5:/x"}]"#, &[4]), (None, None));
        assert_eq!(texts(r#"[{"source": "a:/x", "select": "2:8:2,:", "at": ":,1:4"}]"#, &[3, 9]), some("2:7:2,0:3", "0:3,1:4"));
        assert_eq!(texts(r#"[{"source": "a:/x", "at": "0:inf,:"}]"#, &[0, 5]), some("0:inf,0:5", "0:inf,0:5"));
        assert_eq!(texts(r#"[{"source": "r_%b:/x", "select": "0:3,:", "at": "0:inf,:"}]"#, &[0, 5]), some("0:3,0:5", "0:inf:3*3,0:5"));
        assert_eq!(texts(r#"[{"source": "a:/x", "select": "1,:,2:4", "at": "0:3,5:7"}]"#, &[3, 9]), some("1:2,0:3,2:4", "0:3,5:7"));
        assert_eq!(texts(r#"[{"source": "a:/x", "select": "5", "at": "0:12:4*2"}]"#, &[12]), some("5:6", "0:10:4*2"));
        for wrong in [
            r#"[{"source": "a.h5"}]"#,
            r#"[{"source": "r_%b:/x", "at": "0:inf"}]"#,
            r#"[{"source": "a:/x", "at": "0:1,0:1"}]"#,
            r#"[{"source": "a:/x", "at": "3:1"}]"#,
            r#"[{"source": "a:/x", "at": "a"}]"#,
            r#"[{"source": "a:/x", "at": "0:4:0"}]"#,
            r#"[{"source": "a:/x", "at": "0:4:1*2"}]"#,
            r#"[{"source": "a:/x", "select": "0:,0:"}]"#,
            r#"{"source": "a:/x"}"#,
        ] {
            assert!(parsed(wrong, &[4]).is_err(), "{wrong}");
        }
    }
}
