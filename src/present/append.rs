//! Appends to a dataset along one dimension.

use super::write_selected::{
    INPUT_BYTES_MAX, Input, InputForm, WriteProgress, exact_forms, invalid, lines, npy_header, unreadable, write_elements,
};
use crate::base::selected::{Selected, Steps};
use crate::base::{Error, Result};
use crate::connector::edit::Edit;
use crate::connector::{Connector, DatasetInfo, ObjectId};
use std::io::{Cursor, Read};

/// Bytes of an input of unknown length that are appended at once, about.
const BATCH_BYTES: u64 = 8 << 20;

/// A dataset that grows along a dimension.
struct Growing<'a> {
    connector: &'a dyn Connector,
    edit: &'a dyn Edit,
    id: ObjectId,
    axis: usize,
    /// Elements of one coordinate of the dimension.
    slab: u64,
}

/// Appends `input`, elements of a block in row-major order, along the dimension `axis` (negative:
/// from the last one) of the dataset `id`. Returns the coordinates that came.
///
/// Errors: `EINVAL`, the input is no whole number of them: nothing is appended then, or whole ones
/// of an input of more than 64 MiB whose length is not known; `EFBIG`, the maximum shape does not
/// allow them, or such an input along another dimension than the first.
pub fn append(
    connector: &dyn Connector,
    edit: &dyn Edit,
    id: ObjectId,
    axis: i64,
    input: &mut Input<'_>,
    progress: &mut WriteProgress<'_>,
) -> Result<u64> {
    let dataset = connector.dataset(id)?;
    let dims = dataset.shape.dims().filter(|dims| !dims.is_empty());
    let dims = dims.ok_or_else(|| invalid("a dataset without dimensions takes no more elements".into()))?;
    let from_end = axis.checked_add(i64::try_from(dims.len()).unwrap_or(i64::MAX)).filter(|_| axis < 0);
    let number = usize::try_from(from_end.unwrap_or(axis)).ok().filter(|axis| *axis < dims.len());
    let axis = number.ok_or_else(|| invalid(format!("there is no dimension {axis}: the dataset has {}", dims.len())))?;
    let others = dims.iter().enumerate().filter(|(i, _)| *i != axis);
    let slab = others.fold(1u64, |n, (_, d)| n.saturating_mul(*d));
    if slab == 0 {
        return Err(invalid(format!("the dataset has the shape {dims:?}: what is appended along dimension {axis} has no elements")));
    }
    let growing = Growing { connector, edit, id, axis, slab };
    if dataset.datatype.contains_vlen() {
        return growing.variable(&dataset, input, progress);
    }
    let bytes = slab.checked_mul(dataset.datatype.element_size().max(1));
    let bytes = bytes.ok_or_else(|| Error::refused(libc::EFBIG, "one more coordinate has 2^64 bytes"))?;
    match (input.form, input.len) {
        (InputForm::Npy, _) => growing.npy(dims, input, progress),
        (InputForm::Elements, Some(len)) => growing.block(whole(len, bytes)?, input, progress),
        (InputForm::Elements, None) => growing.unknown(bytes, input, progress),
    }
}

/// Coordinates of `len` bytes, `bytes` each. Errors: they are no whole number.
fn whole(len: u64, bytes: u64) -> Result<u64> {
    match len.checked_rem(bytes) {
        Some(0) => Ok(len.checked_div(bytes).unwrap_or(0)),
        _ => Err(invalid(format!("the input has {len} bytes, which is no multiple of {bytes}, those of one more coordinate"))),
    }
}

impl Growing<'_> {
    /// Appends `n` coordinates from an input of as many elements.
    fn block(&self, n: u64, input: &mut Input<'_>, progress: &mut WriteProgress<'_>) -> Result<u64> {
        let now = self.connector.dataset(self.id)?.shape.dims().unwrap_or_default().to_vec();
        let mut next = now.clone();
        let too_large = || Error::refused(libc::EFBIG, "2^64 coordinates");
        for (i, d) in next.iter_mut().enumerate().filter(|(i, _)| *i == self.axis) {
            *d = now.get(i).copied().unwrap_or(0).checked_add(n).ok_or_else(too_large)?;
        }
        if n == 0 {
            return Ok(0);
        }
        self.edit.set_extent(self.id, &next)?;
        let steps = now.iter().zip(&next).map(|(now, next)| if now == next { 0..*next } else { *now..*next });
        let elements = Selected::grid(&next, steps.map(|range| Steps::range(&range)).collect())?;
        let written = write_elements(self.connector, self.edit, self.id, &elements, input, progress);
        if written.is_err() {
            // Nothing of what failed stays.
            self.edit.set_extent(self.id, &now)?;
        }
        written.map(|()| n)
    }

    fn npy(&self, dims: &[u64], input: &mut Input<'_>, progress: &mut WriteProgress<'_>) -> Result<u64> {
        let (header, front) = npy_header(input)?;
        let shape = header.dims();
        let fits = shape.len() == dims.len() && shape.iter().zip(dims).enumerate().all(|(i, (a, b))| i == self.axis || a == b);
        if !fits {
            return Err(invalid(format!(
                "the numpy file has the shape {shape:?}, which does not continue {dims:?} along dimension {}",
                self.axis
            )));
        }
        let n = shape.get(self.axis).copied().unwrap_or(0);
        let len = input.len;
        let mut bytes = Cursor::new(front).chain(&mut *input.bytes);
        self.block(n, &mut Input { bytes: &mut bytes, len, form: InputForm::Npy }, progress)
    }

    /// Appends an input of unknown length; `bytes`: those of one coordinate.
    fn unknown(&self, bytes: u64, input: &mut Input<'_>, progress: &mut WriteProgress<'_>) -> Result<u64> {
        let (mut rows, mut most) = (0u64, INPUT_BYTES_MAX.max(bytes).next_multiple_of(bytes));
        loop {
            let mut front = Vec::new();
            input.bytes.take(most).read_to_end(&mut front).map_err(|e| unreadable(&e))?;
            let is_last = (front.len() as u64) < most;
            if !is_last && self.axis > 0 {
                let reason =
                    format!("the input has {most} bytes or more; along another dimension than the first give it as a file, by --from");
                return Err(Error::refused(libc::EFBIG, reason));
            }
            let n = whole(front.len() as u64, bytes).map_err(|e| if rows == 0 { e } else { part(rows, bytes) })?;
            if n > 0 {
                let len = Some(front.len() as u64);
                rows = rows.saturating_add(self.block(
                    n,
                    &mut Input { bytes: &mut Cursor::new(front), len, form: InputForm::Elements },
                    progress,
                )?);
            }
            if is_last {
                return Ok(rows);
            }
            most = BATCH_BYTES.max(bytes).next_multiple_of(bytes);
        }
    }

    /// Appends elements of variable length.
    fn variable(&self, dataset: &DatasetInfo, input: &mut Input<'_>, progress: &mut WriteProgress<'_>) -> Result<u64> {
        let mut bytes = Vec::new();
        input.bytes.take(INPUT_BYTES_MAX.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| unreadable(&e))?;
        if bytes.len() as u64 > INPUT_BYTES_MAX {
            return Err(Error::refused(
                libc::EFBIG,
                format!("more than {INPUT_BYTES_MAX} bytes of elements of variable length; append in parts"),
            ));
        }
        let forms = if dataset.datatype.is_vlen_string() { lines(&bytes)? } else { exact_forms(&dataset.datatype, &bytes)? };
        let count = forms.len() as u64;
        drop(forms);
        let n = count.checked_div(self.slab).filter(|n| n.checked_mul(self.slab) == Some(count));
        let n = n.ok_or_else(|| {
            invalid(format!("the input has {count} elements, which is no multiple of {}, those of one more coordinate", self.slab))
        })?;
        let len = Some(bytes.len() as u64);
        self.block(n, &mut Input { bytes: &mut Cursor::new(bytes), len, form: input.form }, progress)
    }
}

fn part(rows: u64, bytes: u64) -> Error {
    invalid(format!("the input ended within one of {bytes} bytes; the {rows} coordinates before it were appended"))
}
