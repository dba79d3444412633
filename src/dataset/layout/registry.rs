//! Opens the layout that a data layout message describes.

use super::parts::Parts;
use super::traits::Layout;
use super::{chunked, compact, contiguous, external, virtual_};
use crate::base::{Error, Result};

/// Opens a layout; `None` for a message of another class.
type Opener = fn(&mut Parts<'_>) -> Result<Option<Box<dyn Layout>>>;

/// All layouts. The first one that fits the message is used.
const LAYOUTS: [Opener; 5] = [compact::open, external::open, contiguous::open, chunked::open, virtual_::open];

/// Opens the layout of a dataset. Errors: a message of unknown class, or one that contradicts the
/// dataset.
pub(crate) fn open(mut parts: Parts<'_>) -> Result<Box<dyn Layout>> {
    for layout in LAYOUTS {
        if let Some(opened) = layout(&mut parts)? {
            return Ok(opened);
        }
    }
    Err(Error::unsupported("data layout message", parts.header, "an unknown class"))
}
