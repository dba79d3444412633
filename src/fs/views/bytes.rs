//! The bytes of an open file, and the sources that views open.

use crate::base::Result;
use crate::connector::{Connector, Content, Form, ObjectId, Seek};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads within this distance of the last one count as sequential, bytes: the kernel's read-ahead
/// sends several requests at once, and they arrive in any order.
const SEQUENTIAL_DISTANCE: u64 = 2 << 20;

/// The bytes of an open file.
pub trait Bytes: Send + Sync {
    /// Fills the front of `buf` from `offset`; fewer bytes only at the end.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Size, bytes.
    fn size(&self) -> Result<u64>;

    /// Next data or hole at or after `offset`; `None`: past the end, or no more data.
    fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        let size = self.size()?;
        Ok((offset < size).then_some(if what == Seek::Data { offset } else { size }))
    }

    /// Fills `buf` with what bytes from `offset` on, past EOF, will be when the file grows. False:
    /// they will be zeros.
    fn pad(&self, _offset: u64, _buf: &mut [u8]) -> bool {
        false
    }
}

/// Bytes in memory.
pub struct Text(pub Vec<u8>);

impl Bytes for Text {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(copy(&self.0, offset, buf))
    }

    fn size(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }
}

/// Where the elements of a dataset come from.
enum Source {
    /// They stay as they are.
    Fixed { header: Vec<u8>, content: Arc<dyn Content> },
    /// The dataset is changed: it is opened anew for each request.
    Live { connector: Arc<dyn Connector>, id: ObjectId },
}

/// A dataset as a view shows it: perhaps a header, then its elements.
pub struct Elements {
    source: Source,
    form: Form,
    header: Option<Header>,
    pads: bool,
    read_ahead: ReadAhead,
}

/// Makes the header of a dataset.
pub type Header = fn(&dyn Connector, ObjectId) -> Result<Vec<u8>>;

impl Elements {
    /// The elements of `id` in `form`. `live`: the dataset may change meanwhile. `header` makes the
    /// bytes before them. Fails when the dataset cannot be read.
    pub fn open(connector: &Arc<dyn Connector>, id: ObjectId, form: Form, live: bool, header: Option<Header>) -> Result<Self> {
        let content = connector.content(id, form)?;
        let source = if live {
            Source::Live { connector: connector.clone(), id }
        } else {
            let header = header.map(|header| header(&**connector, id)).transpose()?.unwrap_or_default();
            Source::Fixed { header, content }
        };
        Ok(Elements { source, form, header, pads: false, read_ahead: ReadAhead::default() })
    }

    /// The kernel's last page is padded with the dataset's fill value.
    #[must_use]
    pub fn padded(self) -> Self {
        Elements { pads: matches!(self.source, Source::Live { .. }), ..self }
    }

    fn parts(&self) -> Result<(Cow<'_, [u8]>, Arc<dyn Content>)> {
        Ok(match &self.source {
            Source::Fixed { header, content } => (Cow::Borrowed(header.as_slice()), content.clone()),
            Source::Live { connector, id } => {
                let header = self.header.map(|header| header(&**connector, *id)).transpose()?.unwrap_or_default();
                (Cow::Owned(header), connector.content(*id, self.form)?)
            }
        })
    }
}

impl Bytes for Elements {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (header, content) = self.parts()?;
        let n = copy(&header, offset, buf);
        let Some(rest) = buf.get_mut(n..).filter(|r| !r.is_empty()) else { return Ok(n) };
        let at = offset.saturating_add(n as u64).saturating_sub(header.len() as u64);
        self.read_ahead.before_read(&*content, at, rest.len() as u64);
        Ok(content.read(at, rest)?.saturating_add(n))
    }

    fn size(&self) -> Result<u64> {
        let (header, content) = self.parts()?;
        Ok(content.size()?.saturating_add(header.len() as u64))
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        let (header, content) = self.parts()?;
        let header = header.len() as u64;
        let size = content.size()?.saturating_add(header);
        if offset >= size {
            return Ok(None);
        }
        if offset < header && what == Seek::Data {
            return Ok(Some(offset));
        }
        let inner = offset.saturating_sub(header);
        if inner >= size.saturating_sub(header) {
            return Ok((what == Seek::Hole).then_some(size));
        }
        Ok(content.seek(inner, what)?.map(|at| at.saturating_add(header)))
    }

    fn pad(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.pads && self.parts().is_ok_and(|(_, content)| content.beyond(offset, buf))
    }
}

/// Notices sequential reads of a file.
#[derive(Debug, Default)]
struct ReadAhead {
    /// Where the last read ended.
    last_end: AtomicU64,
    /// Up to where read-ahead was asked for.
    requested: AtomicU64,
}

impl ReadAhead {
    /// Asks `content` for read-ahead if the read of `len` bytes at `at` follows the one before.
    fn before_read(&self, content: &dyn Content, at: u64, len: u64) {
        let end = at.saturating_add(len);
        let last = self.last_end.swap(end, Ordering::Relaxed);
        // The first read of a file may be the only one: nothing is read ahead of it.
        if last == 0 || at.abs_diff(last) > SEQUENTIAL_DISTANCE {
            self.requested.store(end, Ordering::Relaxed);
            return;
        }
        let before = self.requested.load(Ordering::Relaxed);
        let after = content.read_ahead(end, before.max(end));
        if after > before {
            // A concurrent read of the same file may have asked for the same.
            let _ = self.requested.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Copies bytes of `all` from `offset` to the front of `buf`; returns how many.
pub fn copy(all: &[u8], offset: u64, buf: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|o| all.get(o..)).unwrap_or_default();
    let n = rest.len().min(buf.len());
    if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
        to.copy_from_slice(from);
    }
    n
}
