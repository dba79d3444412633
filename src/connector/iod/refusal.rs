//! Changes that cannot become a version: a commit was refused.

use super::access::IodConnector;
use crate::base::{Error, Result};

impl IodConnector {
    /// Why nothing can be changed; `None`: changes are possible.
    pub(super) fn refused_reason(&self) -> Option<String> {
        self.states.shown().failed.clone()
    }

    /// Drops the changes that were refused, and begins a session on the newest version.
    pub(super) fn discard_changes(&self) -> Result<()> {
        let mut state = self.states.next();
        if state.failed.is_none() || self.joined.is_some() {
            return Err(Error::refused(libc::EINVAL, "no commit was refused"));
        }
        let mut snapshot = self.container.snapshot(None)?;
        let session = self.container.begin_session(&mut snapshot)?;
        state.discard(snapshot, session);
        state.all_changed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes, empty, errno, open, shown, spec};
    use crate::connector::Connector;
    use crate::connector::edit::Edit;

    #[test]
    fn a_writer_goes_on_after_its_refused_changes_are_discarded() {
        let store = empty();
        let first = open(&store);
        let d = first.create_dataset(first.root(), b"d", &spec("u1", &[4])).unwrap();
        first.close().unwrap();
        let (a, b) = (open(&store), open(&store));
        assert_eq!((b.refusal(), errno(&b.discard())), (None, libc::EINVAL));
        b.hold(d);
        a.write(d, 0, b"aaaa").unwrap();
        a.commit().unwrap();
        b.write(d, 0, b"bbbb").unwrap();
        b.create_group(b.root(), b"dropped").unwrap();
        assert_eq!(errno(&b.commit()), libc::EIO);
        let reason = b.refusal().unwrap();
        assert!(reason.contains("conflict at /d"), "{reason}");
        assert_eq!((errno(&b.write(d, 0, b"cccc")), bytes(&*b, d)), (libc::EIO, b"bbbb".to_vec()));
        b.discard().unwrap();
        assert_eq!((b.refusal(), bytes(&*b, d)), (None, b"aaaa".to_vec()));
        assert_eq!(shown(&*b).into_keys().collect::<Vec<_>>(), ["/d"]);
        b.write(d, 1, b"bb").unwrap();
        b.create_group(b.root(), b"made").unwrap();
        b.release(d);
        b.close().unwrap();
        let reader = open(&store);
        assert_eq!(bytes(&*reader, d), b"abba");
        assert_eq!(shown(&*reader).into_keys().collect::<Vec<_>>(), ["/d", "/made"]);
    }
}
